"""Findings as sentences: a broken promise is reported once, under one property.

The properties overlap on purpose. A durable member that lacks a message breaks P2 and the promise
to durable members; one that lacks messages right after its state breaks P2 and the promise about
states; and where all messages conflict, a member that breaks P5 breaks total order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from antiphon.spark.audit.findings import Finding
from antiphon.spark.audit.fingerprints import Print
from antiphon.spark.audit.members import NOWHERE, Cast, Member


class Found(NamedTuple):
    """A row of `messages.py: SHAPE`."""

    rule: str
    world: int
    member: int | None
    other_member: int | None
    message: str | None
    position: int | None
    other: int | None
    times: int | None
    never: bool | None


class FindingWriter:
    """Turns rows that break a rule into findings with sentences, each violation once."""

    def __init__(self, cast: Cast, prints: Iterable[Print]) -> None:
        self._cast = cast
        self._begins: dict[int, int] = {}  # the first position that each member got after its state
        for one in prints:
            if one.first_position > cast.members[one.member].cut:
                begins = self._begins.get(one.member, one.first_position)
                self._begins[one.member] = min(begins, one.first_position)

    def tell(self, rows: list[Found]) -> Iterator[Finding]:
        twice = {(row.world, row.message) for row in rows if row.rule == "twice"}
        for row in rows:
            # A message that came twice came out of order, too: that is reported once.
            if row.rule != "P5" or (row.world, row.message) not in twice:
                yield from self._tell(row)
        yield from self._after_states([row for row in rows if row.rule == "P2"])

    def _tell(self, row: Found) -> Iterator[Finding]:
        world = self._cast.worlds[row.world]
        members = tuple(
            self._cast.members[m] for m in (row.member, row.other_member) if m is not None
        )
        text = _SENTENCES[row.rule](row, *members)
        messages = tuple((row.message or "").split(" and "))
        finding = Finding(_PROPERTIES[row.rule], world, text, members, messages)
        yield finding
        if finding.property == "P5" and world.is_total:
            yield finding._replace(property="total")
        if finding.property == "P2" and members[0].durable:
            yield finding._replace(property="durable")

    def _after_states(self, lost: list[Found]) -> Iterator[Finding]:
        """Yield one finding for each member that lacks messages between a state and its first
        message after it."""
        by_member: dict[int, list[Found]] = {}
        for row in lost:
            if row.member is not None and row.position is not None:
                member = self._cast.members[row.member]
                begins = self._begins.get(row.member, NOWHERE)
                if member.cut > NOWHERE and row.position < begins:
                    by_member.setdefault(row.member, []).append(row)
        for number, rows in by_member.items():
            member = self._cast.members[number]
            world = self._cast.worlds[member.world]
            text = (
                f"the state of {member.label} ends at {member.cut} and its first message after it "
                f"is at {self._begins[number]}: {len(rows)} between them are missing"
            )
            messages = tuple(row.message or "" for row in rows)
            yield Finding("state", world, text, (member,), messages)


_PROPERTIES = {
    "P1": "P1",
    "P2": "P2",
    "nowhere": "P3",
    "twice": "P3",
    "P4": "P4",
    "P4 own": "P4",
    "P5": "P5",
    "moved": "P5",
    "shared": "P5",
    "fifo": "fifo",
    "causal": "causal",
    "left": "views",
    "in state": "state",
}


def _out_of_order(row: Found, member: Member) -> str:
    more = f", and {row.times - 1} more" if row.times and row.times > 1 else ""
    if row.never:
        return (
            f"{member.label} delivered the message at {row.other} without {row.message}, which is "
            f"at {row.position} and conflicts with it{more}"
        )
    return (
        f"{member.label} delivered the message at {row.other} before {row.message}, which is at "
        f"{row.position} and conflicts with it{more}"
    )


def _fifo(row: Found, *member: Member) -> str:
    who = member[0].label if member else "everybody"
    return f"{who} delivered {row.message} after message {row.other} of the same sender, sent later"


_SENTENCES: dict[str, Any] = {
    "P1": lambda row: f"{row.message} was broadcast, and no correct member delivered it",
    "P2": lambda row, member, by: (
        f"{by.label} delivered {row.message} in view {row.other}, and {member.label}, which is "
        "correct in it, did not"
    ),
    "nowhere": lambda row, member: (
        f"{member.label} delivered {row.message}, which nobody broadcast"
    ),
    "twice": lambda row, member: f"{member.label} delivered {row.message} twice, and unmarked",
    "P4": lambda row, member, other: (
        f"{member.label} delivered {row.message} in view {row.times}, {other.label} in {row.other}"
    ),
    "P4 own": lambda row, member: (
        f"{member.label} delivered {row.message} of view {row.times} in its view {row.other}"
    ),
    "P5": _out_of_order,
    "moved": lambda row: (
        f"{row.message} is at {row.position} for one and at {row.other} for another"
    ),
    "shared": lambda row: f"{row.message} are both at {row.position}",
    "fifo": _fifo,
    "causal": lambda row: (
        f"{row.message} comes before message {row.other} of another sender, which its own sender "
        "had been given before it sent it"
    ),
    "left": lambda row, member: (
        f"{member.label} delivered {row.message} when it was not a member any more"
    ),
    "in state": lambda row, member: (
        f"{member.label} delivered {row.message} at {row.position}, which is in its state up to "
        f"{row.other}"
    ),
}
