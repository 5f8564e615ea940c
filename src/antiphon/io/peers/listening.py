"""The port at which a channel's process takes connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from antiphon.io.transport import format_address, parse_address

logger = logging.getLogger("antiphon.io.peers")

BACKLOG = 128
HANDSHAKE_S = 5.0
PAUSE_S = 0.1
"""The pause after an accept that failed, for lack of files for instance."""

NOT_HERE = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""Errors of an address that is taken, or another machine's."""


def listening_socket(
    addresses: Sequence[str], check: Callable[[str], None]
) -> tuple[socket.socket, str]:
    """Return a socket that listens at the first of these addresses that can be had, and its host.
    Raises `OSError` if there is none, and what `check` raises for a host."""
    failures = []
    for address in addresses:
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except socket.gaierror as error:
            failures.append(f"{address}: {error.strerror}")
            continue
        except OSError as error:
            if error.errno not in NOT_HERE:
                raise OSError(error.errno, f"{address}: {error.strerror}") from None
            failures.append(f"{address}: {error.strerror}")
            continue
        try:
            check(host)
        except BaseException:
            listener.close()
            raise
        listener.setblocking(False)
        return listener, host
    raise OSError(errno.EADDRNOTAVAIL, f"no address to listen at: {'; '.join(failures)}")


class Acceptor:
    """Takes connections from a listening socket, until it is closed. Each shakes its TLS hands in a
    task of its own, and a failure there is logged: event loops keep it to themselves."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._listener = listener
        self._tls = tls
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._begun: set[asyncio.Task[None]] = set()
        self._task = self._loop.create_task(self._accept())

    def close(self) -> None:
        """Take no more."""
        self._task.cancel()
        for task in self._begun:
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, address = await self._loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("cannot take a connection: %s", error)
                await asyncio.sleep(PAUSE_S)
                continue
            task = self._loop.create_task(self._begin(sock, format_address(address[:2])))
            self._begun.add(task)
            task.add_done_callback(self._begun.discard)

    async def _begin(self, sock: socket.socket, name: str) -> None:
        limit = None if self._tls is None else HANDSHAKE_S
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, sock, ssl=self._tls, ssl_handshake_timeout=limit
            )
        except (OSError, ssl.SSLError) as error:
            logger.warning("refused a connection from %s: %s", name, error)
            sock.close()
