"""A replica of a table: thesis 6.5 and appendix B, as a member of a group.

    python replica.py URL NAME

All replicas get the same requests in the same order, so all hold the same table, and each of them
answers; a client takes the first answer. The table works as long as one replica does.

- Who joins is handed the table by the oldest member, as it is at one point of the order. Requests
  that come meanwhile wait, and those that are in the table already are dropped.
- Who is suspected is removed by the others. If it was not dead after all, it sees the view that is
  without it, throws its table away and joins again as somebody new.

SIGTERM makes it leave the group.
"""

import json
import signal
import sys
import threading

import antiphon

GROUP = "replicated-table"
STATE_FOR, AS_OF = "state_for", "as_of"  # properties of the message that has the table

Answer = str | bool | None


class Replica:
    """One membership, from joining to leaving or being removed."""

    def __init__(self, ctx: antiphon.Context, name: str) -> None:
        self.table: dict[str, str] = {}
        self._answers = ctx.create_producer()
        self._position = 0  # of the last request that is in the table
        self._has_table = False
        self._early: list[antiphon.Message] = []  # requests that came before the table did
        self._without_table: set[str] = set()  # members that wait for it, I may be one of them
        self._me = ctx.join(ctx.create_group(GROUP), name)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            match self._me.receive(timeout=0.2):
                case antiphon.ViewMessage(view=view, joined=joined, left=left):
                    say(f"view {view.id}: {' '.join(view.members)}")
                    if self._me.name not in view.members:
                        return say("removed: the others took me for dead")
                    self._without_table = (self._without_table - set(left)) | set(joined)
                    self._take_care_of_newcomers(view)
                case antiphon.SuspicionMessage(suspects=suspects, withdrawn=withdrawn):
                    say(f"suspected: {suspects}, no longer suspected: {withdrawn}")
                    self._me.remove(*suspects)
                case antiphon.Message() as message if message.property_exists(STATE_FOR):
                    self._take_over(message)
                case antiphon.Message() as request if self._has_table:
                    self._handle(request)
                case antiphon.Message() as request:
                    self._early.append(request)
        self._me.leave()

    # -- The table for new members ---------------------------------------------------------------

    def _take_care_of_newcomers(self, view: antiphon.View) -> None:
        """Views list the members in the order in which they joined, and the oldest has the table:
        those who wait for it came later. If it is gone, the next view makes another one the oldest.
        """
        if view.members[0] != self._me.name:
            return
        if not self._has_table:
            say("nobody has the table: it begins empty")
            self._begin()
        self._without_table.discard(self._me.name)
        if self._without_table:
            names = " ".join(sorted(self._without_table))
            say(f"hands {len(self.table)} pairs to {names}")
            self._me.multicast(
                json.dumps(self.table), properties={STATE_FOR: names, AS_OF: self._position}
            )

    def _take_over(self, message: antiphon.Message) -> None:
        names = str(message.properties[STATE_FOR]).split()
        self._without_table.difference_update(names)
        if self._me.name in names and not self._has_table:
            self.table = json.loads(message.text)
            self._position = message.get_long_property(AS_OF)
            say(f"got {len(self.table)} pairs")
            self._begin()

    def _begin(self) -> None:
        self._has_table = True
        for request in self._early:
            if request.position > self._position:
                self._handle(request)
        self._early.clear()

    # -- Requests --------------------------------------------------------------------------------

    def _handle(self, request: antiphon.Message) -> None:
        self._position = request.position
        answer = self._perform(request)
        if request.reply_to is not None:
            sending = self._answers.send_async(
                request.reply_to,
                {"answer": answer, "replica": self._me.name},
                correlation_id=request.id,
            )
            sending.add_done_callback(lambda done: done.exception())  # the client may be gone

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
