"""A member of the demo's replicated table, a process of its own.

    python -m antiphon.lab.demo.member URL NAME TRACES

All members get the same writes in the same order, and each of them answers. It prints events as
lines of JSON, and its trace is in the folder TRACES. (`examples/replicated_table` is the same, to
read and to extend.)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import antiphon
from antiphon.terminal.lines import say_json

GROUP = "demo.table"


class Replica:
    """One membership, until it is removed."""

    def __init__(self, ctx: antiphon.Context, name: str) -> None:
        self._table: dict[str, int] = {}
        self._answers = ctx.create_producer()
        self._me = ctx.join(ctx.create_group(GROUP), name, state_provider=self._hand_out)

    def _hand_out(self) -> bytes:
        return json.dumps(self._table).encode()

    def run(self) -> None:
        state = self._me.initial_state
        if state is not None:
            self._table = json.load(state)
            say(table_of=self._me.name, pairs=len(self._table))
        for event in self._me:
            match event:
                case antiphon.ViewMessage(view=view, joined=joined, left=left):
                    say(view=view.id, members=view.members, joined=joined, left=left)
                case antiphon.SuspicionMessage(suspects=suspects, withdrawn=withdrawn):
                    say(suspicion=event.id, suspects=suspects, withdrawn=withdrawn)
                    self._me.remove(*suspects)
                case antiphon.Message() as request:
                    self._answer(request, self._perform(request))

    def _perform(self, request: antiphon.Message) -> int | str | None:
        """Answer a write with the value that was there before, anything else with the whole
        table."""
        match request.body:
            case {"key": str(key), "value": int(value)}:
                before = self._table.get(key)
                self._table[key] = value
                return before
        return json.dumps(self._table, sort_keys=True)

    def _answer(self, request: antiphon.Message, answer: int | str | None) -> None:
        if request.reply_to is not None:
            sending = self._answers.send_async(
                request.reply_to,
                {"answer": answer, "member": self._me.name},
                correlation_id=request.id,
            )
            sending.add_done_callback(lambda done: done.exception())  # the caller may be gone


def say(**what: Any) -> None:
    say_json(what, flush=True)


def main(url: str, name: str, traces: str) -> None:
    with antiphon.connect(url, trace=traces) as ctx:
        while True:
            Replica(ctx, name).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
