"""Multicast DNS: the processes of one local network, without anything set up: `peer:mdns/NAME`.

Each process announces itself as a service of the type `SERVICE`, and listens for announcements.
Nothing is decided here, so nobody founds a cluster: its views are not primary, unless the stack
names those who found it together. Needs the package `zeroconf`, and IPv4.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.errors import ConfigurationError
from antiphon.io.transport import format_address, parse_address
from antiphon.model.peer_views import MemberId
from antiphon.peers.discovery.name_service import own_host

if TYPE_CHECKING:
    from zeroconf import ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

SERVICE = "_antiphon-peer._tcp.local."
MULTICAST = ("224.0.0.251", 5353)

ANSWERS_S = 1.0
"""How long a process that begins to listen waits for the others to announce themselves."""

RESOLVE_MS = 3000
"""How long an announcement may take to tell its address."""


class Mdns:
    """The processes of one cluster in a local network; see the module."""

    def __init__(self, name: str) -> None:
        try:
            import zeroconf.asyncio  # noqa: F401
        except ImportError:
            raise ConfigurationError(
                f"peer:mdns/{name} needs the package zeroconf: pip install 'antiphon[mdns]'"
            ) from None
        self.listen = ("0.0.0.0:0",)
        self.listed: tuple[str, ...] = ()
        self.founds = False
        self._name = name
        self._zeroconf: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._own: AsyncServiceInfo | None = None
        self._found: dict[str, str] = {}  # by the names of services: addresses
        self._resolving: set[asyncio.Task[None]] = set()

    async def enter(self, member: MemberId, address: str) -> bool:
        """Announce this process. Return False."""
        from zeroconf.asyncio import AsyncServiceInfo

        host, port = parse_address(address)
        if host == "0.0.0.0":
            host = own_host(*MULTICAST)
        self._listen(host)
        assert self._zeroconf is not None
        self._own = AsyncServiceInfo(
            SERVICE,
            f"{member.incarnation:x}.{SERVICE}",
            addresses=[socket.inet_aton(host)],
            port=port,
            properties={"cluster": self._name},
            server=f"{member.incarnation:x}.local.",
        )
        await self._zeroconf.async_register_service(self._own)
        await asyncio.sleep(ANSWERS_S)
        return False

    async def claim(self) -> bool:
        """Return False."""
        return False

    async def look(self) -> Sequence[str]:
        """Return the addresses that are announced."""
        if self._zeroconf is None:  # this program only looks
            self._listen(own_host(*MULTICAST))
            await asyncio.sleep(ANSWERS_S)
        return tuple(self._found.values())

    async def leave(self, last: bool) -> None:
        """Take the announcement back."""
        for task in self._resolving:
            task.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            if self._own is not None:
                await (await self._zeroconf.async_unregister_service(self._own))
            await self._zeroconf.async_close()

    def _listen(self, host: str) -> None:
        from zeroconf.asyncio import AsyncServiceBrowser, AsyncZeroconf

        self._zeroconf = AsyncZeroconf(interfaces=[host])
        self._browser = AsyncServiceBrowser(
            self._zeroconf.zeroconf, SERVICE, handlers=[self._changed]
        )

    def _changed(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Take an announcement, or the end of one."""
        self._found.pop(name, None)
        if state_change.name != "Removed":
            task = asyncio.ensure_future(self._resolve(zeroconf, name))
            self._resolving.add(task)
            task.add_done_callback(self._resolving.discard)

    async def _resolve(self, zeroconf: Zeroconf, name: str) -> None:
        from zeroconf.asyncio import AsyncServiceInfo

        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(zeroconf, RESOLVE_MS):
            return
        if info.properties.get(b"cluster") == self._name.encode() and info.port:
            for host in info.parsed_addresses()[:1]:
                self._found[name] = format_address((host, info.port))
