"""Many selectors asked at once: which of them select this message?

A thousand consumers that each want another floor (`floor = 17`) need not be asked one by one. From
a selector that can be TRUE only if one field has one of a few values, these values become keys of a
dict, and the message's own value finds it there. The rest of the selector is evaluated, but only
for those that were found. Equal selectors are kept, looked up and evaluated as one.

Such a *probe* is a term of the selector's outermost AND (or all of the selector):

    floor = 4                 also 4 = floor, and with strings and booleans
    kind IN ('a', 'b')
    floor = 4 OR floor = 5    all on one field

Of several probes the one is taken whose values lead to the fewest others so far, so that a term
that all selectors share (`kind = 'call' AND floor = 17`) does not gather them all in one place.

The answer is the same as that of one by one, in the order in which they were added.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

from antiphon.model.selectors.evaluate import (
    EXACT_AS_DOUBLE,
    Evaluate,
    Fields,
    Selector,
    compile_condition,
)
from antiphon.model.selectors.tree import All, Compare, Either, In, Literal, Name, Node

Key = TypeVar("Key", bound=Hashable)


class Probe(NamedTuple):
    """A condition that is TRUE exactly if the field has one of the values."""

    field: str
    values: frozenset[Hashable]  # as `_probe_value` has them


class _Entry(Generic[Key]):
    """A selector, and all who have it."""

    __slots__ = ("keys", "probe", "rest")

    def __init__(self, probe: Probe | None, rest: Evaluate | None) -> None:
        self.keys: dict[Key, int] = {}  # each with its place in the order
        self.probe = probe
        self.rest = rest  # the rest to evaluate once the probe has found it

    def fits(self, fields: Fields) -> bool:
        return self.rest is None or self.rest(fields) is True


class SelectorIndex(Generic[Key]):
    """A key without a selector gets every message."""

    def __init__(self) -> None:
        self._selectors: dict[Key, Selector | None] = {}
        self._entries: dict[Selector | None, _Entry[Key]] = {}
        self._probed: dict[str, dict[Hashable, dict[_Entry[Key], None]]] = {}
        self._unprobed: dict[_Entry[Key], None] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._selectors)

    def add(self, key: Key, selector: Selector | None) -> None:
        """Add a key with its selector; None: it wants every message."""
        assert key not in self._selectors, f"{key!r} has a selector already"
        entry = self._entries.get(selector)
        if entry is None:
            entry = self._entries[selector] = self._make_entry(selector)
            self._insert(entry)
        self._added += 1
        entry.keys[key] = self._added
        self._selectors[key] = selector

    def remove(self, key: Key) -> None:
        """Remove a key."""
        selector = self._selectors.pop(key)
        entry = self._entries[selector]
        del entry.keys[key]
        if not entry.keys:
            del self._entries[selector]
            self._take_out(entry)

    def matching(self, fields: Fields) -> list[Key]:
        """Those whose selectors match, in the order in which they were added."""
        found = [entry for entry in self._candidates(fields) if entry.fits(fields)]
        if len(found) == 1:
            return list(found[0].keys)
        ordered = [(place, key) for entry in found for key, place in entry.keys.items()]
        ordered.sort()  # by place: no two are the same, so keys are never compared
        return [key for _, key in ordered]

    def _candidates(self, fields: Fields) -> Iterator[_Entry[Key]]:
        for field, by_value in self._probed.items():
            yield from by_value.get(_probe_value(fields.get(field)), ())
        yield from self._unprobed

    def _make_entry(self, selector: Selector | None) -> _Entry[Key]:
        if selector is None:
            return _Entry(None, None)
        terms = tuple(_terms(selector.tree))
        probes = {i: probe for i, term in enumerate(terms) if (probe := probe_of(term))}
        if not probes:
            return _Entry(None, compile_condition(selector.tree))
        best = min(probes, key=lambda i: self._crowd(probes[i]))
        rest = terms[:best] + terms[best + 1 :]
        return _Entry(probes[best], compile_condition(All(rest)) if rest else None)

    def _crowd(self, probe: Probe) -> int:
        """Return how many selectors, at most, one of the probe's values finds already."""
        by_value = self._probed.get(probe.field, {})
        return max(len(by_value.get(value, ())) for value in probe.values)

    def _insert(self, entry: _Entry[Key]) -> None:
        if entry.probe is None:
            self._unprobed[entry] = None
            return
        by_value = self._probed.setdefault(entry.probe.field, {})
        for value in entry.probe.values:
            by_value.setdefault(value, {})[entry] = None

    def _take_out(self, entry: _Entry[Key]) -> None:
        if entry.probe is None:
            del self._unprobed[entry]
            return
        by_value = self._probed[entry.probe.field]
        for value in entry.probe.values:
            del by_value[value][entry]
            if not by_value[value]:
                del by_value[value]
        if not by_value:
            del self._probed[entry.probe.field]


def _terms(node: Node) -> Iterator[Node]:
    """Those that all must be TRUE, also of an AND in parentheses within an AND."""
    if isinstance(node, All):
        for term in node.terms:
            yield from _terms(term)
    else:
        yield node


def probe_of(node: Node) -> Probe | None:
    """Return a field and the values of which it must have one for this condition to be true; None:
    there is no such field."""
    match node:
        case Compare("=", Name(name), Literal(value)) | Compare("=", Literal(value), Name(name)):
            # Beyond, one double stands for several exact numbers.
            if type(value) is int and abs(value) >= EXACT_AS_DOUBLE:
                return None
            return Probe(name, frozenset((_probe_value(value),)))
        case In(False, name, values):
            return Probe(name, frozenset(values))
        case Either(terms):
            return _union([probe_of(term) for term in terms])
        case _:
            return None


def _union(probes: list[Probe | None]) -> Probe | None:
    known = [probe for probe in probes if probe is not None]
    if len(known) < len(probes) or len({probe.field for probe in known}) > 1:
        return None
    return Probe(known[0].field, frozenset().union(*(probe.values for probe in known)))


def _probe_value(value: object) -> Hashable:
    """Equal for values that `=` takes for equal, and only for them."""
    if type(value) is str:
        return value
    if type(value) is int or type(value) is float:
        return float(value)
    if type(value) is bool:
        return (value,)  # True itself would equal 1.0
    return None
