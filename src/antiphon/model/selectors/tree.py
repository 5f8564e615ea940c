"""A selector as a tree: `grammar.py` makes it of the text, `evaluate.py` compiles it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

Operator = OneOf["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in the selector."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Name:
    """A header or a property of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign before an operand that is not a literal. `+` too: it makes anything but a number
    NULL."""

    negative: bool
    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """From left to right; either only `+` and `-`, or only `*` and `/`."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values and how they must compare."""

    operator: Operator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """A value and its bounds, both included."""

    negated: bool
    value: Node
    low: Node
    high: Node


@dataclass(frozen=True, slots=True)
class In:
    """A name and the texts of which it must be one."""

    negated: bool
    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A pattern of LIKE: each item is a character, `ANY_ONE` or `ANY_MANY`."""

    negated: bool
    name: str
    pattern: tuple[str, ...]


ANY_ONE, ANY_MANY = "any one", "any many"  # longer than a character, so they are none


@dataclass(frozen=True, slots=True)
class IsNull:
    """A name that must have no value."""

    negated: bool
    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    operand: Node


@dataclass(frozen=True, slots=True)
class All:
    """Conditions that must all be true."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions of which one must be true."""

    terms: tuple[Node, ...]


Node = (
    Literal | Name | Sign | Arithmetic | Compare | Between | In | Like | IsNull | Not | All | Either
)


def type_of(node: Node) -> OneOf["a number", "a string", "a condition", "a name"]:
    """Return what kind of value this gives, as far as that shows without a message; a name may turn
    out to be anything."""
    match node:
        case Name():
            return "a name"
        case Literal(value=str()):
            return "a string"
        case Sign() | Arithmetic():
            return "a number"
        case Literal(value=value) if not isinstance(value, bool):
            return "a number"
        case _:
            return "a condition"
