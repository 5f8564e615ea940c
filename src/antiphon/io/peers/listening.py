"""The port at which a channel's process takes connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

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
    """Return a socket that listens at the first of these addresses that is free, and its host.
    Raise `OSError` if there is none, and the errors of `check` for a host."""
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
    """Takes connections from a listening socket, until it is closed. The TLS handshake of each is a
    task of its own, whose failure is logged, for event loops do not report it.

    Promise: after `close`, no socket is left open that was taken and has no connection yet. That is
    why the listener is a reader of the loop: a cancelled `sock_accept` may lose a socket.
    """

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
        self._pause: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Take no more connections."""
        if self._listener.fileno() < 0:
            return
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        for task in self._begun:
            task.cancel()
        self._listener.close()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return  # the other side has closed it meanwhile
        except OSError as error:
            logger.warning("cannot take a connection: %s", error)
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(PAUSE_S, self._listen)
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._begin(sock))
        self._begun.add(task)
        task.add_done_callback(partial(self._has_begun, sock, format_address(address[:2])))

    async def _begin(self, sock: socket.socket) -> None:
        limit = None if self._tls is None else HANDSHAKE_S
        await self._loop.connect_accepted_socket(
            self._protocol, sock, ssl=self._tls, ssl_handshake_timeout=limit
        )

    def _has_begun(self, sock: socket.socket, name: str, task: asyncio.Task[None]) -> None:
        """Close the socket unless it has a connection now. Not in `_begin`: a task that is
        cancelled before its first step runs no code."""
        self._begun.discard(task)
        if task.cancelled():
            sock.close()
        elif (error := task.exception()) is not None:
            logger.warning("refused a connection from %s: %s", name, error)
            sock.close()
