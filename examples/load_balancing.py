"""Servers that share their load by the number of requests in progress, the example of JBora.

Three servers are a group. Their clients are not members: each one talks to a server over TCP, and
here all of them know server a only. Each server writes on the whiteboard how many requests it has
in progress. A server that has as many as the threshold sends its next client on to the one with
the fewest. The whiteboard takes no messages of its own: a number travels with the next request that
the servers tell each other of, or with the next acknowledgement or heartbeat.

    without a threshold a serves all
    with a threshold of 3 each of a, b and c serves at least an eighth
    all servers know of 480 requests

Without an argument the servers find each other on this machine; with the URL of Antiphon servers
these are their name service. With a file as the second argument the shares are drawn into it:
`python load_balancing.py "" shares.svg`. Here all run in one program.
"""

import json
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from antiphon.reports.charts import Line, line_chart
from antiphon.toolkits import jbora

NAMES = ("a", "b", "c")
CLIENTS, REQUESTS = 12, 20
WORK_S = 0.02
WAIT_S = 30.0


def chosen(own: str, in_progress: Mapping[str, int], threshold: int) -> str:
    """Return the server for the next request: this one while it has less than the threshold in
    progress, else the one with the fewest."""
    if in_progress[own] < threshold:
        return own
    return min(in_progress, key=lambda name: in_progress[name])


class Server:
    """One server: a thread that receives, one that accepts clients, and one for each of these."""

    def __init__(self, cluster: str, name: str, addresses: dict[str, Any]) -> None:
        self.group = jbora.Group(cluster, name=name)
        self.group.join()
        self.threshold: int | None = None
        self.known = 0  # requests that were multicast
        self._in_progress = 0
        self._addresses = addresses
        self._members: tuple[str, ...] = ()
        self._waiting: dict[str, jbora.LocalCall] = {}
        self._news = threading.Condition()
        self._clients = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._session())
        addresses[name] = self._clients.server_address
        self._threads = [
            threading.Thread(target=self._receive),
            threading.Thread(target=self._clients.serve_forever, args=(0.05,)),
        ]
        for thread in self._threads:
            thread.start()

    # -- The thread that receives ----------------------------------------------------------------

    def _receive(self) -> None:
        while (event := self.group.receive()) is not None:
            with self._news:
                match event:
                    case jbora.ViewChange(view):
                        self._members = view.members
                    case jbora.LocalCall(request):
                        self._waiting[request] = event
                        self.group.multicast(request)
                    case jbora.Message(request):
                        self.known += 1
                        if (call := self._waiting.pop(request, None)) is not None:
                            self.group.local_respond(call)
                self._news.notify_all()

    def wait(self, members: Sequence[str], known: int) -> None:
        """Wait until this server is in a view of these, and knows of so many requests."""

        def has_all() -> bool:
            return sorted(self._members) == sorted(members) and self.known == known

        with self._news:
            assert self._news.wait_for(has_all, WAIT_S), (self._members, self.known)

    # -- The threads of clients ------------------------------------------------------------------

    def _session(self) -> type[socketserver.StreamRequestHandler]:
        server = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                self.wfile.write(json.dumps(server.answer(**request)).encode() + b"\n")

        return Session

    def answer(self, request: str, was_sent_on: bool) -> dict[str, Any]:
        """Serve a request, or say who will."""
        name = self.group.name
        if self.threshold is not None and not was_sent_on:
            other = chosen(name, self._numbers(), self.threshold)
            if other != name:
                return {"go to": self._addresses[other]}
        self._count(1)
        self.group.local_call(request, WAIT_S)
        time.sleep(WORK_S)  # for what such requests do
        self._count(-1)
        return {"served by": name}

    def _numbers(self) -> dict[str, int]:
        """Return how many requests each server has in progress, as far as this one knows."""
        return {name: self.group.whiteboard.get_value(name) or 0 for name in self._members}

    def _count(self, change: int) -> None:
        with self._news:
            self._in_progress += change
            self.group.whiteboard.put_value(self._in_progress)

    # -- The end ---------------------------------------------------------------------------------

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self.group.leave()
        self._clients.shutdown()
        self._clients.server_close()
        for thread in self._threads:
            thread.join()


def ask(address: Any, request: str, was_sent_on: bool = False) -> str:
    """Have a request served, by whichever server, and return the server's name."""
    with socket.create_connection(tuple(address), WAIT_S) as connection:
        line = json.dumps({"request": request, "was_sent_on": was_sent_on})
        connection.sendall(line.encode() + b"\n")
        answer = json.loads(connection.makefile().readline())
    if "go to" in answer:
        return ask(answer["go to"], request, was_sent_on=True)
    return str(answer["served by"])


def serve_all(address: Any, turn: str) -> list[str]:
    """Have all clients ask for all they want; return who served each request, in that order."""
    served: list[str] = []

    def client(number: int) -> None:
        for request in range(REQUESTS):
            served.append(ask(address, f"{turn} {number} {request}"))

    with ThreadPoolExecutor(CLIENTS) as clients:
        for done in [clients.submit(client, number) for number in range(CLIENTS)]:
            done.result()
    return served


def shares(served: Sequence[str]) -> list[Line]:
    """Return the lines of a chart: the share of each server in the requests so far, in percent."""
    counts: Counter[str] = Counter()
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for number, server in enumerate(served, 1):
        counts[server] += 1
        for name, points in lines.items():
            points.append((number, 100 * counts[name] / number))
    return [Line(name, points) for name, points in lines.items()]


def main(url: str = "", plot: str = "") -> None:
    cluster = f"peer:{url}/load" if url else "peer:load"
    addresses: dict[str, Any] = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(cluster, name, addresses)) for name in NAMES]
        for server in servers:
            server.wait(NAMES, 0)
        alone = Counter(serve_all(addresses["a"], "first"))
        assert alone == {"a": CLIENTS * REQUESTS}, alone
        print("without a threshold a serves all")
        for server in servers:
            server.threshold = 3
        served = serve_all(addresses["a"], "second")
        counts = Counter(served)
        assert min(counts[name] for name in NAMES) >= len(served) / 8, counts
        print("with a threshold of 3 each of a, b and c serves at least an eighth")
        for server in servers:
            server.wait(NAMES, 2 * len(served))
        print(f"all servers know of {2 * len(served)} requests")
    if plot:
        chart = line_chart("Who serves requests", "requests", "share, %", shares(served))
        Path(plot).write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
