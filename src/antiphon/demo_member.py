"""A member of the demo's replicated table, a process of its own.

    python -m antiphon.demo_member URL NAME TRACES INCARNATION

All members get the same writes in the same order, and each of them answers. It says what happens in
lines of JSON, and writes a trace to the folder TRACES. (`examples/replicated_table` is the same to
be read and taken further.)
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import Any

import antiphon
from antiphon.chaos.recorder import Recorder

GROUP = "demo.table"
WHERE = f"topic:{GROUP}"
ID = "id"  # by which a message is known in the traces
TABLE_FOR, AS_OF = "table_for", "as_of"


class Replica:
    """One membership: until it leaves, or is removed."""

    def __init__(self, ctx: antiphon.Context, name: str, trace: Recorder) -> None:
        self._trace = trace
        self._answers = ctx.create_producer()
        self._table: dict[str, int] = {}
        self._position = 0  # of the last write that is in the table
        self._has_table = False
        self._early: list[antiphon.Message] = []
        self._without_table: set[str] = set()
        self._me = ctx.join(ctx.create_group(GROUP), name)
        trace.add("join", group=WHERE, sender=name)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            message = self._me.receive(timeout=0.2)
            if message is not None:
                self._record(message)
                self._handle(message)
                if self._me.name not in self._me.view.members:
                    return
        self._trace.add("leave", group=WHERE)
        self._me.leave()

    def _record(self, message: antiphon.Message) -> None:
        self._trace.handed_out(WHERE, message, str(message.properties.get(ID)))

    def _handle(self, message: antiphon.Message) -> None:
        match message:
            case antiphon.ViewMessage(view=view, joined=joined, left=left):
                say(view=view.id, members=view.members, joined=joined, left=left)
                self._without_table = (self._without_table - set(left)) | set(joined)
                if view.members[:1] == (self._me.name,):
                    self._take_care_of_newcomers(view)
            case antiphon.SuspicionMessage(suspects=suspects, withdrawn=withdrawn):
                say(suspicion=message.id, suspects=suspects, withdrawn=withdrawn)
                self._trace.add("remove", group=WHERE, members=suspects)
                self._me.remove(*suspects)
            case _ if message.property_exists(TABLE_FOR):
                self._take_over(message)
            case _ if self._has_table:
                self._write(message)
            case _:
                self._early.append(message)

    def _take_care_of_newcomers(self, view: antiphon.View) -> None:
        """The oldest member has the table, and gives it to those who have not."""
        if not self._has_table:
            self._begin()
        self._without_table.discard(self._me.name)
        if not self._without_table:
            return
        id, names = f"{self._me.name}/{view.id}", " ".join(sorted(self._without_table))
        self._trace.add("send", group=WHERE, message=id, persistent=True)
        self._me.multicast(
            json.dumps(self._table), properties={ID: id, TABLE_FOR: names, AS_OF: self._position}
        )
        self._trace.add("sent", group=WHERE, message=id, persistent=True)

    def _take_over(self, message: antiphon.Message) -> None:
        names = str(message.properties[TABLE_FOR]).split()
        self._without_table.difference_update(names)
        if self._me.name in names and not self._has_table:
            self._table = json.loads(message.text)
            self._position = message.get_long_property(AS_OF)
            self._begin()
            say(table_of=self._me.name, pairs=len(self._table))

    def _begin(self) -> None:
        self._has_table = True
        for write in self._early:
            if write.position > self._position:
                self._write(write)
        self._early.clear()

    def _write(self, message: antiphon.Message) -> None:
        """Answered with the value that was there before; without a key, with the whole table."""
        self._position = message.position
        answer: Any = None
        match message.body:
            case {"key": str(key), "value": int(value)}:
                answer = self._table.get(key)
                self._table[key] = value
            case _:
                answer = json.dumps(self._table, sort_keys=True)
        if message.reply_to is not None:
            sending = self._answers.send_async(
                message.reply_to,
                {"answer": answer, "member": self._me.name},
                correlation_id=message.id,
            )
            sending.add_done_callback(lambda done: done.exception())  # who asked may be gone


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(url: str, name: str, traces: str, incarnation: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    trace = Recorder(traces, "demo", name, int(incarnation))
    with antiphon.connect(url) as ctx:
        while not stop.is_set():
            Replica(ctx, name, trace).run(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
