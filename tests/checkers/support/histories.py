"""Histories of a group, told in the order in which they happened, and what the judges find.

`History().join("p")` and so on; each method adds the rows that a trace would have.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from antiphon.checkers import groups, memberships
from antiphon.formats.trace import Kind, TraceEvent
from antiphon.model.conflicts import ConflictRelation


class History:
    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self._lives: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._views: dict[int, tuple[tuple[str, ...], int]] = {}

    def add(self, process: str, kind: Kind, **fields: Any) -> "History":
        number = len(self.events) + 1
        fields.setdefault("group", "g")
        self.events.append(
            TraceEvent(
                run="r",
                process=process,
                incarnation=self._lives.get(process, 1),
                seq=number,
                kind=kind,
                at=float(number),
                **fields,
            )
        )
        return self

    # -- Membership ----------------------------------------------------------------------------

    def join(self, process: str, *, durable: bool = False) -> "History":
        return self.add(process, "join", sender=process, durable=durable)

    def view(self, id: int, members: str, *at: str, position: int | None = None) -> "History":
        """Installed by these processes: by all of its members, if none are given."""
        known = self._views.setdefault(id, (tuple(members.split()), len(self._positions)))
        where = known[1] if position is None else position
        for process in at or members.split():
            self.add(process, "view", view_id=id, members=tuple(members.split()), position=where)
        return self

    def crash(self, process: str) -> "History":
        self.add(process, "crash", group="")
        self._lives[process] = self._lives.get(process, 1) + 1
        return self

    # -- Messages ------------------------------------------------------------------------------

    def broadcast(self, process: str, *messages: str) -> "History":
        for message in messages:
            self.partially(process, message)
            self.add(process, "sent", message=message, persistent=True)
        return self

    def partially(self, process: str, message: str) -> "History":
        self._positions[message] = len(self._positions) + 1
        return self.add(process, "send", message=message)

    def deliver(self, process: str, *messages: str, view: int = 1, **fields: Any) -> "History":
        for message in messages:
            position = self._positions.get(message, 99)
            tag, _, key = message.rstrip("0123456789'").partition(":")
            self.add(
                process,
                "deliver",
                message=message,
                position=position,
                view_id=view,
                tag=tag or None,
                key=key or None,
                **fields,
            )
        return self

    def relation(self, relation: ConflictRelation, after: int = 0) -> "History":
        return self.add("p", "conflict", relation=relation.to_json(), position=after)

    def broken(self, *, complete: bool = True) -> list[str]:
        """Return the rules that the specification finds broken; the judge of memberships must say
        the same as far as it goes."""
        found = [v.rule for v in groups.check(self.events, complete=complete)]
        assert self.broken_for_members(complete=complete) == of_members(found)
        return found

    def broken_for_members(self, *, complete: bool = True) -> set[str]:
        """Return the rules that the judge of memberships finds broken."""
        return {f.rule for f in memberships.check(self.events, complete=complete)}


def of_members(rules: Iterable[str]) -> set[str]:
    """Return those rules of the specification that the judge of memberships knows, by its names."""
    return {"views" if rule == "suspicion" else rule for rule in rules} & {"views", "P2", "P4"}


def pair(*, durable: bool = False) -> History:
    """p and q are in view 1 (p is durable, if anybody is), and s is not."""
    return History().join("p", durable=durable).join("q").view(1, "p q")


def lost_by_a_member(destination: str) -> list[TraceEvent]:
    """Return the events of a group in which q has never got a message that p got."""
    h = pair()
    h.broadcast("p", "m").deliver("p", "m")
    return [replace(event, group=destination) for event in h.events]
