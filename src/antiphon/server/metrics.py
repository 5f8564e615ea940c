"""`--metrics HOST:PORT`: a server's counts for Prometheus, and whether it is ready for clients.

`GET /metrics` answers in Prometheus' text format. `GET /ready` answers 200 while the server takes
part in a cluster that has a leader, and 503 with the reason otherwise.

Promises: no request can disturb the server. It has at most `REQUEST_BYTES` and `REQUEST_S`, an
answer that the client does not read is dropped after `ANSWER_S`, and one connection carries one
request; beyond `CONNECTIONS_MAX` a new connection is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Protocol

from antiphon._version import __version__
from antiphon.formats import protocol as cw
from antiphon.io.transport import Address

REQUEST_BYTES = 8 << 10
REQUEST_S = 5.0
ANSWER_S = 5.0
CONNECTIONS_MAX = 32
TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

logger = logging.getLogger("antiphon.server.metrics")


class Source(Protocol):
    """A server, as far as metrics need it (`server.py`)."""

    serves: asyncio.Future[None]

    def status(self) -> cw.Status: ...

    def counts(self) -> dict[str, dict[str, int]]: ...


class Metrics:
    """The small HTTP server of `--metrics`; promises are the module's."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, listen: Address) -> Address:
        """Listen, and return the address. Raise `OSError` if it cannot be listened on."""
        self._server = await asyncio.start_server(self._answer, *listen, limit=REQUEST_BYTES)
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) == CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            writer.write(self._respond(await _read_request(reader)))
            async with asyncio.timeout(ANSWER_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            writer.transport.abort()  # the client is slow, or gone
        except Exception:
            # Not left to the event loop, for which an unknown error is the end of the server.
            logger.exception("a request for metrics failed")
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    def _respond(self, line: bytes | None) -> bytes:
        parts = line.split(b" ") if line is not None else []
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1 request\n")
        method, path = parts[0], parts[1].partition(b"?")[0]
        if path not in (b"/metrics", b"/ready"):
            return _response(HTTPStatus.NOT_FOUND, "there are /metrics and /ready\n")
        if method != b"GET":
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n", "Allow: GET\r\n")
        if path == b"/metrics":
            text = render(self._source.status(), self._source.counts())
            return _response(HTTPStatus.OK, text)
        problem = _why_not_ready(self._source)
        return (
            _response(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n")
            if problem
            else _response(HTTPStatus.OK, "ready\n")
        )


async def _read_request(reader: asyncio.StreamReader) -> bytes | None:
    """Return the request line; None if the input is not a request, too large, or too slow."""
    with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        async with asyncio.timeout(REQUEST_S):
            head = await reader.readuntil(b"\r\n\r\n")
        return head.partition(b"\r\n")[0]
    return None


def _response(status: HTTPStatus, text: str, header: str = "") -> bytes:
    body = text.encode()
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {TEXT_FORMAT}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Connection: close\r\n{header}\r\n"
    ).encode() + body


def _why_not_ready(source: Source) -> str:
    status = source.status()
    if status.trouble:
        return "; ".join(status.trouble)
    if not source.serves.done() or status.leader is None:
        return "no leader is known here"
    return ""


# -- The text format -------------------------------------------------------------------------------


ONLY_GROW = {
    "listener": {"dropped", "connected"},
    "session": {"published", "refused"},
    "log": {"doubts"},
    "journal": {"syncs"},
    "dispatcher": {"delivered_packs", "delivered_bytes", "dropped_messages"},
}
"""Counts that never fall while a server runs: counters, whose names end in `_total` by Prometheus'
convention. All others are gauges."""


def render(status: cw.Status, counts: dict[str, dict[str, int]]) -> str:
    lines = [*_of_the_server(status)]
    for component, values in counts.items():
        grow = ONLY_GROW.get(component, ())
        for name, value in values.items():
            suffix = "_total" if name in grow else ""
            lines += _metric(f"antiphon_{component}_{name}{suffix}", value)
    return "\n".join(lines) + "\n"


def _of_the_server(status: cw.Status) -> Iterator[str]:
    labels = f'{{node="{status.id.node}",role="{status.role}",version="{__version__}"}}'
    yield from _metric("antiphon_info", 1, "what this server is", labels)
    yield from _metric("antiphon_leader", _leader(status), "number of the leader, 0: none")
    yield from _metric("antiphon_epoch", status.epoch, "epoch of the log")
    yield from _metric("antiphon_committed", status.committed, "entries that a majority has")
    yield from _metric("antiphon_applied", status.applied, "entries applied here")
    yield from _metric("antiphon_messages_total", status.position, "messages accepted, ever")
    yield from _metric("antiphon_troubles", len(status.trouble), "reasons in `cluster status`")
    yield from _metric("process_cpu_seconds_total", status.cpu_s, "processor time used")
    yield from _metric("process_resident_memory_bytes", resident_bytes(), "memory in use")


def _leader(status: cw.Status) -> int:
    return status.leader.node if status.leader is not None else 0


def _metric(name: str, value: float, text: str = "", labels: str = "") -> Iterator[str]:
    if text:
        yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
    yield f"{name}{labels} {value}"


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the greatest so far is the best there is
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most << 10
