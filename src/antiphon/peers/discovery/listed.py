"""Lists of addresses: of all processes of a cluster, of some of them, or those that DNS has."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

from antiphon.io.transport import format_address, parse_address
from antiphon.model.peer_views import MemberId


class _Unkept:
    """A discovery that keeps nothing of the processes that enter: none of them founds a cluster by
    entering."""

    async def enter(self, member: MemberId, address: str) -> bool:
        """Return False."""
        return False

    async def claim(self) -> bool:
        """Return False."""
        return False

    async def leave(self, last: bool) -> None:
        """Nothing is kept."""


class Listed(_Unkept):
    """The addresses of all processes, as the URL lists them. The cluster is founded by all of them
    together. Raises `FormatError` for what is not an address."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.listen = self.listed = _formatted(addresses)
        self.founds = True

    async def look(self) -> Sequence[str]:
        return self.listed


class At(_Unkept):
    """The addresses of some processes, by which a newcomer finds all others; none: it is the first
    one. Nobody founds a cluster here: its views are not primary. Raises `FormatError` for what is
    not an address."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.listen = ("127.0.0.1:0",)
        self.listed: tuple[str, ...] = ()
        self.founds = False
        self._known = _formatted(addresses)

    async def look(self) -> Sequence[str]:
        return self._known


class Dns(_Unkept):
    """A name that DNS has several addresses for: those of the processes, which all listen at the
    same port. DNS decides nothing, so nobody founds a cluster here: its views are not primary."""

    def __init__(self, host: str, port: int) -> None:
        self.listen = (format_address(("0.0.0.0", port)),)
        self.listed: tuple[str, ...] = ()
        self.founds = False
        self._host = host
        self._port = port

    async def look(self) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise OSError(f"{self._host!r}: {error.strerror}") from None
        return tuple({format_address((str(at[0]), int(at[1]))): None for *_, at in found})


def _formatted(addresses: Sequence[str]) -> tuple[str, ...]:
    return tuple(format_address(parse_address(address)) for address in addresses)
