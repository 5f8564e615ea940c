"""JMS selectors: which messages a consumer wants, as a condition on their headers and properties.

`parse` reads a selector once; the result answers for one message after another. The language is
drawn in `grammar.py`; its meaning is here. A condition is TRUE, FALSE or UNKNOWN, and only TRUE
selects. A field that a message does not have is NULL, and makes each comparison or calculation with
it UNKNOWN; only `IS NULL` asks for it. UNKNOWN is NULL's twin, and both are None here.

    NOT UNKNOWN    is UNKNOWN
    UNKNOWN AND x  is FALSE if x is, else UNKNOWN
    UNKNOWN OR x   is TRUE if x is, else UNKNOWN

Numbers compare with numbers; if one of two is approximate, both are taken as doubles, as in Java.
Any other comparison of unlike types is UNKNOWN, `<>` too, and so is its NOT: neither selects.
Strings and booleans have no order: `<` and its like are FALSE on two of them.

Where JMS is silent:

- `IN`, `LIKE` and their negations are UNKNOWN on anything but a string, so neither selects.
- Arithmetic on anything but numbers is NULL. So is a division by zero, of doubles too. Exact
  numbers are longs, and wrap around like Java's; a quotient of two loses its fraction.
- A name alone is a condition: TRUE or FALSE if it is a boolean, else UNKNOWN. Conditions in
  parentheses compare like booleans.
- `LIKE` counts code points, where Java counts halves of surrogate pairs.

No message makes a selector raise or run long: a pattern costs at most one step for each character.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from antiphon.model.selectors.grammar import parse_tree
from antiphon.model.selectors.like import compile_pattern
from antiphon.model.selectors.tokens import LONG_MAX, LONG_MIN
from antiphon.model.selectors.tree import (
    All,
    Arithmetic,
    Between,
    Compare,
    Either,
    In,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Operator,
    Sign,
)

Fields = Mapping[str, object]
Evaluate = Callable[[Fields], object]
"""The value of a part of a selector. Of a condition: True, False, or None for UNKNOWN."""

EXACT_AS_DOUBLE = 1 << 53
"""A number nearer to zero equals the same ones, and is below the same ones, as an exact number and
as a double. Only beyond does it show that a comparison takes exact numbers as doubles."""


def parse(text: str) -> Selector | None:
    """None if the text is blank, which selects everything. Raise `InvalidSelectorError`."""
    parsed = parse_tree(text)
    return None if parsed is None else Selector(*parsed)


class Selector:
    """Equal if the texts are: then both select the same."""

    __slots__ = ("_evaluate", "names", "text", "tree")

    names: frozenset[str]
    """The fields that it reads."""

    text: str
    """The selector as it was written, but for the blanks between its tokens and the case of
    keywords and of letters in numbers. Another order of terms, other parentheses or `4.0` for `4`
    make another text. It is never longer than the original, and parses to an equal selector."""

    def __init__(self, tree: Node, text: str) -> None:
        self.tree = tree
        self.text = text
        self.names = frozenset(_names(tree))
        self._evaluate = compile_condition(tree)

    def matches(self, fields: Fields) -> bool:
        """`fields` has the properties, and the headers by their JMS names: values of the exact
        types bool, int (of 64 bits), float and str, or None, which is like having no such field."""
        return self._evaluate(fields) is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"parse({self.text!r})"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return parse, (self.text,)


def _names(node: Node) -> Iterator[str]:
    match node:
        case Name(name) | In(_, name, _) | Like(_, name, _) | IsNull(_, name):
            yield name
        case Sign(_, operand) | Not(operand):
            yield from _names(operand)
        case Arithmetic(first, rest):
            yield from _names(first)
            for _, operand in rest:
                yield from _names(operand)
        case Compare(_, left, right):
            yield from _names(left)
            yield from _names(right)
        case Between(_, value, low, high):
            for part in (value, low, high):
                yield from _names(part)
        case All(terms) | Either(terms):
            for term in terms:
                yield from _names(term)


# -- From the tree to functions -----------------------------------------------------------------


def compile_condition(node: Node) -> Evaluate:
    """Return a function of a message's fields that returns whether this condition is true, false or
    unknown."""
    evaluate = _compile(node)
    if not isinstance(node, Name):
        return evaluate

    def truth(fields: Fields) -> object:
        value = evaluate(fields)
        return value if value is True or value is False else None

    return truth


def _compile(node: Node) -> Evaluate:
    match node:
        case Literal(value):
            return lambda fields: value
        case Name(name):
            return lambda fields: fields.get(name)
        case Sign(negative, operand):
            return _sign(negative, _compile(operand))
        case Arithmetic(first, rest):
            return _arithmetic(_compile(first), [(_ARITHMETIC[o], _compile(n)) for o, n in rest])
        case Compare(symbol, left, right):
            return _comparison(symbol, left, right)
        case Between(negated, value, low, high):
            return _between(negated, _compile(value), _compile(low), _compile(high))
        case In(negated, name, values):
            return _in(negated, name, frozenset(values))
        case Like(negated, name, pattern):
            return _like(negated, name, compile_pattern(pattern))
        case IsNull(negated, name):
            return lambda fields: (fields.get(name) is None) is not negated
        case Not(operand):
            return _not(compile_condition(operand))
        case All(terms):
            return _all([compile_condition(term) for term in terms])
        case Either(terms):
            return _either([compile_condition(term) for term in terms])


def _not(operand: Evaluate) -> Evaluate:
    def negation(fields: Fields) -> object:
        value = operand(fields)
        return None if value is None else not value

    return negation


def _all(terms: list[Evaluate]) -> Evaluate:
    def conjunction(fields: Fields) -> object:
        result: object = True
        for term in terms:
            value = term(fields)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return conjunction


def _either(terms: list[Evaluate]) -> Evaluate:
    def disjunction(fields: Fields) -> object:
        result: object = False
        for term in terms:
            value = term(fields)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return disjunction


# -- Comparison ---------------------------------------------------------------------------------

_COMPARISONS: dict[Operator, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: dict[Operator, Operator] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def compare(symbol: Operator, left: object, right: object) -> bool | None:
    """Return how two values compare; None: unknown."""
    if left is None or right is None:
        return None
    if _is_number(left) and _is_number(right):
        if type(left) is not type(right):
            left, right = float(left), float(right)  # type: ignore[arg-type]
        return _COMPARISONS[symbol](left, right)
    if type(left) is not type(right):
        return None
    return symbol in ("=", "<>") and _COMPARISONS[symbol](left, right)


def _is_number(value: object) -> bool:
    return type(value) is int or type(value) is float


def _comparison(symbol: Operator, left: Node, right: Node) -> Evaluate:
    if isinstance(left, Literal) and isinstance(right, Name):
        symbol, left, right = _MIRRORED[symbol], right, left
    if isinstance(left, Name) and isinstance(right, Literal):
        if isinstance(right.value, str) and symbol in ("=", "<>"):
            return _with_string(symbol, left.name, right.value)
        if _is_number(right.value) and abs(right.value) < EXACT_AS_DOUBLE:  # type: ignore[arg-type]
            return _with_number(symbol, left.name, right.value)
    one, other = _compile(left), _compile(right)
    return lambda fields: compare(symbol, one(fields), other(fields))


# The two that nearly all selectors consist of, without the questions that `compare` asks.


def _with_string(symbol: Operator, name: str, literal: str) -> Evaluate:
    test = _COMPARISONS[symbol]

    def comparison(fields: Fields) -> object:
        value = fields.get(name)
        return test(value, literal) if type(value) is str else None

    return comparison


def _with_number(symbol: Operator, name: str, literal: object) -> Evaluate:
    test = _COMPARISONS[symbol]

    def comparison(fields: Fields) -> object:
        value = fields.get(name)
        if type(value) is int or type(value) is float:
            return test(value, literal)
        return None

    return comparison


def _between(negated: bool, value: Evaluate, low: Evaluate, high: Evaluate) -> Evaluate:
    def inside(fields: Fields) -> object:
        middle = value(fields)
        above, below = compare(">=", middle, low(fields)), compare("<=", middle, high(fields))
        if above is False or below is False:
            return False
        return above and below

    def outside(fields: Fields) -> object:
        middle = value(fields)
        below, above = compare("<", middle, low(fields)), compare(">", middle, high(fields))
        if above or below:
            return True
        return None if above is None or below is None else False

    return outside if negated else inside


def _in(negated: bool, name: str, values: frozenset[str]) -> Evaluate:
    def membership(fields: Fields) -> object:
        value = fields.get(name)
        return (value in values) is not negated if type(value) is str else None

    return membership


def _like(negated: bool, name: str, fits: Callable[[str], bool]) -> Evaluate:
    def likeness(fields: Fields) -> object:
        value = fields.get(name)
        return fits(value) is not negated if type(value) is str else None

    return likeness


# -- Arithmetic ---------------------------------------------------------------------------------


def _sign(negative: bool, operand: Evaluate) -> Evaluate:
    def signed(fields: Fields) -> object:
        value: Any = operand(fields)
        if not _is_number(value):
            return None
        return _as_long(-value) if negative else value

    return signed


def _arithmetic(
    first: Evaluate, rest: list[tuple[Callable[[Any, Any], Any], Evaluate]]
) -> Evaluate:
    def arithmetic(fields: Fields) -> object:
        value: Any = first(fields)
        for calculate, operand in rest:
            other: Any = operand(fields)
            if not _is_number(value) or not _is_number(other):
                return None
            if type(value) is not type(other):
                value, other = float(value), float(other)
            value = _as_long(calculate(value, other))
        return value

    return arithmetic


def _as_long(value: Any) -> Any:
    if type(value) is not int or LONG_MIN <= value <= LONG_MAX:
        return value
    return (value - LONG_MIN) % (1 << 64) + LONG_MIN


def _divide(value: Any, by: Any) -> Any:
    if by == 0:
        return None
    if type(value) is float:
        return value / by
    # Python rounds down, Java towards zero.
    quotient = abs(value) // abs(by)
    return quotient if (value < 0) == (by < 0) else -quotient


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}
