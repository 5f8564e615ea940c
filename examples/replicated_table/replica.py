"""A replica of a table: thesis 6.5 and appendix B, as a member of a group.

    python replica.py URL NAME

All replicas get the same requests in the same order, so all hold the same table, and each of them
answers; a client takes the first answer. The table works as long as one replica does.

- A new replica gets the table from another one, as it is at one point of the order, and gets the
  requests from there on.
- A suspected replica is removed by the others. If it was not dead after all, it sees the view
  without itself, throws its table away and joins again as somebody new.

SIGTERM makes it leave the group.
"""

import json
import signal
import sys
import threading

import antiphon

GROUP = "replicated-table"

Answer = str | bool | None


class Replica:
    """One membership, from joining to leaving or being removed."""

    def __init__(self, ctx: antiphon.Context, name: str) -> None:
        self.table: dict[str, str] = {}
        self._answers = ctx.create_producer()
        self._me = ctx.join(ctx.create_group(GROUP), name, state_provider=self._hand_out)

    def _hand_out(self) -> bytes:
        """Called inside `receive`, when all requests before the new member's view are handled."""
        say(f"hands out {len(self.table)} pairs")
        return json.dumps(self.table).encode()

    def _take_over(self) -> None:
        state = self._me.initial_state
        if state is not None:  # somebody was there before
            self.table = json.load(state)
            say(f"got {len(self.table)} pairs")

    def run(self, stop: threading.Event) -> None:
        self._take_over()
        while not stop.is_set():
            match self._me.receive(timeout=0.2):
                case antiphon.ViewMessage(view=view):
                    say(f"view {view.id}: {' '.join(view.members)}")
                    if self._me.name not in view.members:
                        return say("removed: the others took me for dead")
                case antiphon.SuspicionMessage(suspects=suspects, withdrawn=withdrawn):
                    say(f"suspected: {suspects}, no longer suspected: {withdrawn}")
                    self._me.remove(*suspects)
                case antiphon.Message() as request:
                    self._answer(request, self._perform(request))
        self._me.leave()

    def _perform(self, request: antiphon.Message) -> Answer:
        match request.body:
            case {"do": "put", "key": str(key), "value": str(value)}:
                before = self.table.get(key)
                self.table[key] = value
                return before
            case {"do": "get", "key": str(key)}:
                return self.table.get(key)
            case {"do": "contains_key", "key": str(key)}:
                return key in self.table
            case {"do": "remove", "key": str(key)}:
                return self.table.pop(key, None)
            case {"do": "all"}:
                return json.dumps(self.table, sort_keys=True)
        return None  # not one of ours; groups are open, anybody may publish there

    def _answer(self, request: antiphon.Message, answer: Answer) -> None:
        if request.reply_to is not None:
            sending = self._answers.send_async(
                request.reply_to,
                {"answer": answer, "replica": self._me.name},
                correlation_id=request.id,
            )
            sending.add_done_callback(lambda done: done.exception())  # the client may be gone


def say(what: str) -> None:
    print(what, flush=True)


def main(url: str, name: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with antiphon.connect(url) as ctx:
        while not stop.is_set():
            Replica(ctx, name).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
