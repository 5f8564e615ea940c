"""A server of a replicated counter, in a group of JBora, with the threads of figure 1 of its text:
one receives from the group, one accepts clients, and each client has one. What a test asks of it,
and what it says: see `peer_program.py`.

A client's request is a line of JSON, `{"id": ..., "add": ...}`, and so is the answer.
"""

import json
import os
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from antiphon.errors import JMSError
from antiphon.toolkits import jbora
from tests.process.support.peer_program import described, say

REFUSED = {"refused": "not primary: ask another server"}


class Counter:
    """The replicated state: a number, and the answers to requests."""

    def __init__(self) -> None:
        self.total = 0
        self.carried_out = 0  # ever; of two states the one with more is the newer one
        self.answers = jbora.Answers()

    def take(self, request: dict[str, Any]) -> Any:
        return self.answers.once(request["id"], lambda: self._add(request))

    def _add(self, request: dict[str, Any]) -> int:
        self.total += request["add"]
        self.carried_out += 1
        say(carried_out=request["id"], total=self.total)
        return self.total

    def state(self) -> dict[str, Any]:
        state = {"carried out": self.carried_out, "total": self.total}
        return {**state, "answers": self.answers.state()}

    def take_over(self, states: Sequence[dict[str, Any]]) -> None:
        newest = max(states, key=lambda state: state["carried out"])
        if newest["carried out"] > self.carried_out:
            self.total, self.carried_out = newest["total"], newest["carried out"]
            self.answers.take_over(newest["answers"])


class Server:
    """The thread that receives."""

    def __init__(self, group: jbora.Group, exchanges: bool) -> None:
        self.group = group
        self.doomed: set[str] = set()  # requests before whose answer this process is killed
        self._exchanges = exchanges
        self._counter = Counter()
        self._waiting: dict[str, list[jbora.LocalCall]] = {}

    def run(self) -> None:
        try:
            while (event := self.group.receive()) is not None:
                self._handle(event)
                if self._exchanges and isinstance(event, jbora.ViewChange) and event.view.expanded:
                    self._exchange()
        except JMSError as error:
            say(lost=described(error))

    def _exchange(self) -> None:
        states, events = self.group.propagate(self._state_after)
        self._counter.take_over(list(states.values()))
        for event in events:
            self._handle(event)

    def _state_after(self, events: Sequence[jbora.Event]) -> dict[str, Any]:
        for event in events:
            self._handle(event)
        return self._counter.state()

    def _handle(self, event: jbora.Event) -> None:
        match event:
            case jbora.ViewChange(view):
                say(
                    view=view.members,
                    id=str(view.id),
                    primary=view.primary,
                    joined=view.joined,
                    left=view.left,
                )
                if not view.primary:
                    for request in list(self._waiting):
                        self._answer(request, REFUSED)
            case jbora.LocalCall(body):
                self._ask(event, body)
            case jbora.Message(body=dict(request)):
                assert event.view is not None
                if event.view.primary:
                    self._answer(request["id"], {"answer": self._counter.take(request)})
            case jbora.Message(body):
                say(got=body, sender=event.sender)

    def _ask(self, call: jbora.LocalCall, request: dict[str, Any]) -> None:
        if self.group.is_primary():
            self._waiting.setdefault(request["id"], []).append(call)
            self.group.multicast(request)
        else:
            self.group.local_respond(call, REFUSED)

    def _answer(self, request: str, answer: Any) -> None:
        calls = self._waiting.pop(request, [])
        if request in self.doomed and calls:
            os.kill(os.getpid(), signal.SIGKILL)
        for call in calls:
            self.group.local_respond(call, answer)


class Clients(socketserver.ThreadingTCPServer):
    """The thread that accepts clients."""

    daemon_threads = True
    group: jbora.Group


class Session(socketserver.StreamRequestHandler):
    """A client's thread."""

    server: Clients

    def handle(self) -> None:
        for line in self.rfile:
            answer = self.server.group.local_call(json.loads(line))
            self.wfile.write(json.dumps(answer).encode() + b"\n")


def send_on(group: jbora.Group, stop: threading.Event) -> None:
    """Multicast numbers, as fast as the group takes them, but for short pauses."""
    number = 0
    while not stop.wait(0.002):
        number += 1
        group.multicast(f"{group.name} {number}")
    say(sent=number)


def obey(server: Server, stop: threading.Event, order: dict[str, Any]) -> Any:
    match order:
        case {"send": list() as bodies}:
            for body in bodies:
                server.group.multicast(body)
            return len(bodies)
        case {"chatter": True}:
            threading.Thread(target=send_on, args=(server.group, stop), daemon=True).start()
            return True
        case {"chatter": False}:
            stop.set()
            return True
        case {"put": value}:
            server.group.whiteboard.put_value(value)
            return value
        case {"get": name}:
            return server.group.whiteboard.get_value(name)
        case {"doom": request}:
            server.doomed.add(request)
            return True
        case {"close": _}:
            server.group.leave()
            return True
    raise AssertionError(order)


def main() -> None:
    options = json.loads(sys.argv[1])
    group = jbora.Group(options["url"], name=options["name"], trace=options.get("trace"))
    began = time.monotonic()
    group.join(30)
    server = Server(group, options.get("exchanges", True))
    with Clients(("127.0.0.1", 0), Session) as clients:
        clients.group = group
        threading.Thread(target=clients.serve_forever, daemon=True).start()
        threading.Thread(target=server.run, daemon=True).start()
        say(connected=True, seconds=time.monotonic() - began, clients=clients.server_address)
        stop = threading.Event()
        for line in sys.stdin:
            order = json.loads(line)
            say(answer=obey(server, stop, order))
            if "close" in order:
                break
        clients.shutdown()


if __name__ == "__main__":
    main()
