"""A clean trace in which everything happens that can be told in a trace: `trace()`.

Two groups in one run. In `topic:one` everything conflicts: a, b, c, the durable d and later e; c is
killed and removed, d is killed and comes back, e takes over a state, b leaves. In `topic:tags` the
relation is by tags and keys, and changes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from antiphon.formats.trace import Kind, TraceEvent
from antiphon.model.conflicts import ConflictRelation

KEYED = ConflictRelation(("get", "put"), (("put", "put"), ("get", "put")), keyed=True)
SEQ_STEP = 2  # so that a row can be planted between any two


class Story:
    """Members that are handed one log."""

    def __init__(self, run: str, group: str) -> None:
        self.events: list[TraceEvent] = []
        self._run = run
        self._group = group
        self._lives: dict[str, int] = defaultdict(lambda: 1)
        self._seqs: dict[str, int] = defaultdict(int)
        self._now = 0.0
        self._position = 0
        self._view: tuple[str, ...] = ()
        self._view_id = 0
        self._away: list[str] = []  # durable ones
        self._missed: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._in_state: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._delivered: dict[tuple[str, int, int], int] = defaultdict(int)
        self._sent: dict[str, int] = defaultdict(int)
        self._clocks: dict[str, dict[str, int]] = defaultdict(dict)

    def tell(self, process: str, kind: Kind, **columns: Any) -> None:
        self._now += 1.0
        self._seqs[process] += SEQ_STEP
        self.events.append(
            TraceEvent(
                run=self._run,
                process=process,
                incarnation=self._lives[process],
                seq=self._seqs[process],
                kind=kind,
                at=self._now,
                **{"group": self._group, **columns},
            )
        )

    def relation(self, relation: ConflictRelation) -> None:
        self._position += SEQ_STEP
        for member in self._view:
            self.tell(member, "conflict", position=self._position, relation=relation.to_json())

    def join(self, *names: str, durable: bool = False, state: bool = False) -> None:
        for name in names:
            self.tell(name, "join", sender=name, durable=durable)
            self._install((*self._view, name))
            if state:
                self.send("a", upto_state=name)
                self.tell(name, "state", position=self._position)

    def _install(self, members: tuple[str, ...], last_for: str = "") -> None:
        self._position += SEQ_STEP
        self._view_id += 1
        self._view = members
        columns = {"view_id": self._view_id, "members": members, "position": self._position}
        for member in (*members, *filter(None, [last_for])):
            self._hand(member, "view", columns)

    def send(
        self,
        sender: str,
        tag: str | None = None,
        key: str | None = None,
        upto_state: str = "",
        answered: bool = True,
    ) -> None:
        """`upto_state`: who has it in its state, and so does not get it."""
        self._sent[sender] += 1
        message = f"ID:{sender}.{self._sent[sender]}"
        clock, self._clocks[sender] = self._clocks[sender], {}
        who = {"message": message, "sender": sender, "sender_seq": self._sent[sender]}
        self.tell(sender, "send", **who, persistent=True, clock=clock)
        if answered:
            self.tell(sender, "sent", **who, persistent=True)
        self._position += SEQ_STEP
        columns = {
            **who,
            "position": self._position,
            "view_id": self._view_id,
            "tag": tag,
            "key": key,
            "persistent": True,
        }
        for member in self._view:
            if member != upto_state:
                self._hand(member, "deliver", columns)
            else:
                self._in_state[member].append(columns)

    def _hand(self, member: str, kind: Kind, columns: dict[str, Any]) -> None:
        if member in self._away:
            self._missed[member].append({"kind": kind, **columns})
            return
        if kind == "deliver":
            life = (member, self._lives[member], columns["view_id"])
            columns = {**columns, "didx": self._delivered[life]}
            self._delivered[life] += 1
            self._clocks[member][columns["sender"]] = columns["sender_seq"]
        self.tell(member, kind, **columns)

    def crash(self, name: str) -> None:
        self.tell(name, "crash", group="")
        self._lives[name] += 1
        self._seqs[name] = 0
        self._away.append(name)

    def remove(self, name: str, by: str) -> None:
        self.tell(by, "remove", members=(name,))
        self._install(tuple(m for m in self._view if m != name))

    def leave(self, name: str) -> None:
        self.tell(name, "leave")
        self._install(tuple(m for m in self._view if m != name))

    def come_back(self, name: str, again: int, state_is_void: bool = False) -> None:
        """The durable one gets its last messages again, and what it missed; if it did not
        acknowledge its state, also what that stood for."""
        self._away.remove(name)
        self.tell(name, "join", sender=name, durable=True)
        if state_is_void:
            for columns in self._in_state.pop(name):
                self._hand(name, "deliver", columns)
        mine = [e for e in self.events if e.process == name and e.kind == "deliver"]
        for event in mine[-again:]:
            told = ("message", "sender", "sender_seq", "position", "view_id", "tag", "key")
            columns = {column: getattr(event, column) for column in told}
            self._hand(name, "deliver", {**columns, "redelivered": True, "persistent": True})
        for columns in self._missed.pop(name, []):
            self._hand(name, columns.pop("kind"), columns)


def void_state(run: str = "void") -> list[TraceEvent]:
    """A durable member dies before it has acknowledged the state that it was given."""
    story = Story(run, "topic:void")
    story.join("a")
    story.join("d", durable=True, state=True)
    for sender in "ada":
        story.send(sender)
    story.crash("d")
    story.send("a")
    story.come_back("d", again=3, state_is_void=True)
    story.send("d")
    return story.events


def trace(run: str = "scene") -> list[TraceEvent]:
    one = Story(run, "topic:one")
    one.join("a", "b", "c")
    one.join("d", durable=True)
    for sender in "abcdabcaabb":
        one.send(sender)
    one.crash("c")
    one.send("a")
    one.remove("c", by="a")
    one.send("b")
    one.crash("d")
    for sender in "abab":
        one.send(sender)
    one.join("e", state=True)
    one.send("e")
    one.come_back("d", again=2)
    for sender in "ebda":
        one.send(sender)
    one.leave("b")
    for sender in "eda":
        one.send(sender)
    one.send("x", answered=False)
    tags = Story(run, "topic:tags")
    tags.join("k", "l", "m")
    for relation in (ConflictRelation.RELIABLE, KEYED):
        tags.relation(relation)
        for tag, key in (("put", "1"), ("put", "2"), ("get", "1"), ("get", "1"), ("put", "1")):
            for sender in "kl":
                tags.send(sender, tag, key)
    return one.events + tags.events
