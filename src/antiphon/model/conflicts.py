"""The relation of messages that conflict, and must be delivered in one order: generic broadcast.

Messages carry a *tag*, and perhaps a *key*. Two messages conflict if their tags do; with `keyed`,
only if their keys are equal too. A message that says nothing about itself must be taken to conflict
with everything: a message without a tag conflicts with every message, and one without a key with
every key (thesis 4.2.3; paper, table I). So does a tag that the relation does not know: a message
that was under way when the relation changed may have one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar

from antiphon.errors import FormatError

TAGS_MAX = 256


class ConflictRelation:
    """A relation of the messages of a group that conflict: these are delivered in one order to all
    members.

    `ConflictRelation(("read", "write"), [("write", "write"), ("read", "write")])` has two tags, of
    which only two reads do not conflict. `keyed`: messages whose tags conflict do so only if their
    keys are equal; one without a key conflicts with every key. A message without a tag conflicts
    with everything. Relations are values: equal by their content, hashable, picklable. Raise
    `TypeError` or `ValueError` for tags and pairs that make no sense.
    """

    RELIABLE: ClassVar[ConflictRelation]
    """Nothing conflicts, not even messages without a tag: reliable broadcast."""

    ATOMIC: ClassVar[ConflictRelation]
    """Everything conflicts: atomic broadcast. The default of a group."""

    RELIABLE_ATOMIC: ClassVar[ConflictRelation]
    """Tags `"rbcast"` and `"abcast"`: only two of the first do not conflict (thesis, fig. 4.1)."""

    __slots__ = ("_pairs", "keyed", "nothing", "tags")
    tags: tuple[str, ...]
    keyed: bool
    nothing: bool

    def __init__(
        self,
        tags: Iterable[str],
        conflicts: Iterable[tuple[str, str]],
        keyed: bool = False,
        *,
        nothing: bool = False,
    ) -> None:
        """`nothing`: nothing conflicts with anything; only for `RELIABLE`."""
        self.nothing = nothing
        if isinstance(tags, str) or not isinstance(tags, Iterable):
            raise TypeError(f"the tags of a relation are a list of str, not {tags!r}")
        if not isinstance(conflicts, Iterable):
            raise TypeError(f"conflicts are pairs of tags, not {conflicts!r}")
        self.tags = tuple(sorted(set(tags)))
        self.keyed = keyed
        if len(self.tags) > TAGS_MAX:
            raise ValueError(f"a relation has at most {TAGS_MAX} tags, not {len(self.tags)}")
        pairs = set()
        for pair in conflicts:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"conflicts are pairs of tags, and {pair!r} is none")
            one, two = pair
            for tag in pair:
                if tag not in self.tags:
                    raise ValueError(f"{tag!r} conflicts, but is none of the tags {self.tags}")
            pairs |= {(one, two), (two, one)}
        self._pairs = frozenset(pairs)

    @property
    def conflicts(self) -> tuple[tuple[str, str], ...]:
        """The pairs of tags that conflict, each once, sorted."""
        return tuple(sorted(pair for pair in self._pairs if pair[0] <= pair[1]))

    def conflict(
        self, tag: str | None, key: str | None, other_tag: str | None, other_key: str | None
    ) -> bool:
        """Return whether two messages with these tags and keys conflict."""
        if self.nothing:
            return False
        known = tag in self.tags and other_tag in self.tags
        if known and (tag, other_tag) not in self._pairs:
            return False
        return not self.keyed or key is None or other_key is None or key == other_key

    def check_tag(self, tag: str | None) -> None:
        """Raise `ValueError` for a tag that the relation does not know."""
        if tag is not None and tag not in self.tags:
            known = ", ".join(map(repr, self.tags)) or "none"
            raise ValueError(f"the group's conflict relation has no tag {tag!r}; it has {known}")

    def to_json(self) -> str:
        """Return the relation as text, which `from_json` reads."""
        fields = {
            "tags": self.tags,
            "conflicts": self.conflicts,
            "keyed": self.keyed,
            "nothing": self.nothing,
        }
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ConflictRelation:
        """Return the relation that `to_json` has written. Raise `FormatError` for other texts."""
        try:
            data = json.loads(text)
            pairs = [(one, two) for one, two in data["conflicts"]]
            if not all(isinstance(tag, str) for tag in data["tags"]):
                raise TypeError("a tag is a text")
            nothing = data.get("nothing") is True
            return cls(list(data["tags"]), pairs, data.get("keyed") is True, nothing=nothing)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(f"not a conflict relation: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConflictRelation) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        if self.nothing:
            return "ConflictRelation.RELIABLE"
        keyed = ", keyed=True" if self.keyed else ""
        return f"ConflictRelation({self.tags!r}, {list(self.conflicts)!r}{keyed})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return ConflictRelation.from_json, (self.to_json(),)


ConflictRelation.RELIABLE = ConflictRelation(("rbcast",), (), nothing=True)
ConflictRelation.ATOMIC = ConflictRelation((), ())
ConflictRelation.RELIABLE_ATOMIC = ConflictRelation(
    ("abcast", "rbcast"), (("abcast", "abcast"), ("abcast", "rbcast"))
)
