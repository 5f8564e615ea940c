"""An operator's client: asks servers for their status, without a session.

Promises: `status` returns one server's status, with its view of the cluster; `barrier` returns
after everything that was accepted before the call. Each call asks one server after the other until
one answers (`io/line.py` has the time limits), and leaves no connection behind.
"""

from __future__ import annotations

from contextlib import closing

from antiphon.formats import protocol as cw
from antiphon.io.client_link import Servers
from antiphon.io.line import Asker, Line, Wanted
from antiphon.io.transport import parse_address, parse_url

CONNECT_S = 2.0
"""Seconds that a connection to one server may take if there is no other one to try."""


class AdminClient:
    """Asks the servers of a URL. `timeout`: a call raises after this many seconds, if it has tried
    each of them."""

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        """Raise `ConfigurationError` if this is not a URL of servers."""
        self._addresses = parse_url(url)
        self._timeout = timeout

    def status(self) -> cw.Status:
        """Return the status of any server."""
        return self._ask("the status", cw.AskStatus(), cw.Status)

    def barrier(self) -> int:
        """Return the position of the last message accepted, as of some moment after this call
        began."""
        return self._ask("the end of the log", cw.AskBarrier(1), cw.Barrier).position

    def _ask(self, wanted: str, request: cw.Request, kind: type[Wanted]) -> Wanted:
        asker = Asker(Servers(self._addresses), len(self._addresses), self._timeout)
        with closing(asker):
            return asker.ask(wanted, lambda line: line.ask(request, kind))


def line_to(address: str, patience: float) -> Line:
    """Return a line to the server at this address, which the caller closes. Its answers may take
    `patience` seconds each. Raise `OSError`."""
    line = Line(Servers([parse_address(address)]), CONNECT_S)
    line.patience = patience
    return line
