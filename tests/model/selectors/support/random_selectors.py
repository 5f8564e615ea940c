"""Random selectors: a tree that says what it means, by the JMS text, and how it may be spelled.

Written apart from `antiphon.model`: a tree is walked again for each message, and shares nothing
with what it checks.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

NAMES = ("a", "b", "Größe", "$d", "JMSType", "JMSXGroupID")
WORDS = ("", "a", "ab", "it's", "a%b", "A_b", "5")
NUMBERS = (0, 1, 2, 5, 7, 29, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 0.0, 0.5, 2.0, 5.0, 1e300)
VALUES = (*WORDS, *NUMBERS, -1, -7, -(1 << 63), float(1 << 53), -0.5, True, False, None)
COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PRECEDENCE = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6, "sign": 7, "atom": 8}
COMPARISON = 4


@dataclass(frozen=True)
class Tree:
    kind: str  # an operator or one of the words below
    parts: tuple[Any, ...]

    @property
    def precedence(self) -> int:
        return PRECEDENCE.get(self.kind, COMPARISON)


def random_fields(random: Random) -> dict[str, Any]:
    return {name: random.choice(VALUES) for name in NAMES if random.random() < 0.8}


# -- Growing ------------------------------------------------------------------------------------


def condition(random: Random, depth: int) -> Tree:
    if depth == 0 or random.random() < 0.15:
        return random.choice((name(random), Tree("atom", (random.random() < 0.5,))))
    kind = random.choice(("AND", "OR", "NOT", "=", "=", "compare", "BETWEEN", "IN", "LIKE", "IS"))
    negated = random.random() < 0.5
    match kind:
        case "AND" | "OR":
            return Tree(kind, (condition(random, depth - 1), condition(random, depth - 1)))
        case "NOT":
            return Tree(kind, (condition(random, depth - 1),))
        case "=":
            literal = random.choice((*WORDS, *NUMBERS, True, False))
            return Tree("=", (name(random), Tree("atom", (literal,))))
        case "compare":
            symbol = random.choice(tuple(COMPARISONS))
            return Tree(symbol, (value(random, depth - 1), value(random, depth - 1)))
        case "BETWEEN":
            return Tree(kind, (negated, *(number(random, depth - 1) for _ in range(3))))
        case "IN":
            words = tuple(random.choice(WORDS) for _ in range(random.randint(1, 3)))
            return Tree(kind, (negated, name(random), words))
        case "LIKE":
            return Tree(kind, (negated, name(random), random_pattern(random)))
        case _:
            return Tree("IS", (negated, name(random)))


def value(random: Random, depth: int) -> Tree:
    kind = random.randrange(4)
    if kind == 0:
        return Tree("atom", (random.choice(WORDS),))
    if kind == 1 and depth > 0:
        return condition(random, depth - 1)
    return number(random, depth)


def number(random: Random, depth: int) -> Tree:
    if depth == 0 or random.random() < 0.3:
        return random.choice((name(random), Tree("atom", (random.choice(NUMBERS),))))
    kind = random.choice(("+", "-", "*", "/", "sign"))
    if kind == "sign":
        return Tree(kind, (random.choice("+-"), number(random, depth - 1)))
    return Tree(kind, (number(random, depth - 1), number(random, depth - 1)))


def name(random: Random) -> Tree:
    return Tree("atom", (Name(random.choice(NAMES)),))


class Name(str):
    """Not a string of the selector's, but the name of a field."""


def random_pattern(random: Random) -> tuple[str, ...]:
    """Items: `%`, `_`, or a character with a backslash before it."""
    items = ("%", "_", "\\a", "\\b", "\\%", "\\_", "\\'")
    return tuple(random.choice(items) for _ in range(random.randint(0, 4)))


# -- Meaning ------------------------------------------------------------------------------------

_RANK = {False: 0, None: 1, True: 2}


def evaluate(tree: Tree, fields: dict[str, Any]) -> Any:
    parts = tree.parts
    match tree.kind:
        case "atom":
            return fields.get(parts[0]) if isinstance(parts[0], Name) else parts[0]
        case "AND":
            return min((truth(part, fields) for part in parts), key=_RANK.__getitem__)
        case "OR":
            return max((truth(part, fields) for part in parts), key=_RANK.__getitem__)
        case "NOT":
            return {True: False, False: True, None: None}[truth(parts[0], fields)]
        case "BETWEEN":
            middle, low, high = (evaluate(part, fields) for part in parts[1:])
            if parts[0]:
                sides = compare("<", middle, low), compare(">", middle, high)
                return max(sides, key=_RANK.__getitem__)
            sides = compare(">=", middle, low), compare("<=", middle, high)
            return min(sides, key=_RANK.__getitem__)
        case "IN":
            found = evaluate(parts[1], fields)
            return (found in parts[2]) != parts[0] if isinstance(found, str) else None
        case "LIKE":
            found = evaluate(parts[1], fields)
            return fits(found, parts[2]) != parts[0] if isinstance(found, str) else None
        case "IS":
            return (evaluate(parts[1], fields) is None) != parts[0]
        case "sign":
            zero = evaluate(parts[1], fields)
            return arithmetic("*", zero, -1 if parts[0] == "-" else 1)
        case "+" | "-" | "*" | "/":
            return arithmetic(tree.kind, *(evaluate(part, fields) for part in parts))
        case symbol:
            return compare(symbol, *(evaluate(part, fields) for part in parts))


def truth(tree: Tree, fields: dict[str, Any]) -> bool | None:
    found = evaluate(tree, fields)
    return found if isinstance(found, bool) else None


def is_number(found: object) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def compare(symbol: str, one: Any, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    if is_number(one) and is_number(other):
        if isinstance(one, float) or isinstance(other, float):
            one, other = float(one), float(other)
        return bool(COMPARISONS[symbol](one, other))
    if type(one) is not type(other):
        return None
    return symbol in ("=", "<>") and bool(COMPARISONS[symbol](one, other))


def arithmetic(symbol: str, one: Any, other: Any) -> Any:
    if not is_number(one) or not is_number(other) or (symbol == "/" and other == 0):
        return None
    if isinstance(one, int) and isinstance(other, int):
        exact = {
            "+": lambda: one + other,
            "-": lambda: one - other,
            "*": lambda: one * other,
            "/": lambda: int(Fraction(one, other)),
        }
        return ctypes.c_int64(exact[symbol]()).value
    one, other = float(one), float(other)
    functions = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    return functions[symbol](one, other)


def fits(text: str, pattern: tuple[str, ...]) -> bool:
    """LIKE, as one would explain it."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return fits(text, rest) or (text != "" and fits(text[1:], pattern))
    return text != "" and first in ("_", "\\" + text[0]) and fits(text[1:], rest)


# -- Spelling -----------------------------------------------------------------------------------


def spell(tree: Tree, random: Random) -> str:
    """With blanks, parentheses, cases and notations as they come."""
    text = ""
    for token in _tokens(tree, random, 0):
        blank = random.choice(("", " ", " ", "\n\t"))
        if not blank and text and _in_word(text[-1]) and _in_word(token[0]):
            blank = " "
        text += blank + token
    return text


def _in_word(character: str) -> bool:
    return character.isalnum() or character in "_$."


def _tokens(tree: Tree, random: Random, least: int) -> list[str]:
    """`least`: what binds less strongly needs parentheses."""
    if tree.precedence < least or random.random() < 0.1:
        return ["(", *_tokens(tree, random, 0), ")"]
    parts, own = tree.parts, tree.precedence

    def words(text: str) -> list[str]:
        return ["".join(random.choice((c, c.lower())) for c in word) for word in text.split()]

    def negation() -> list[str]:
        return words("NOT") if parts[0] else []

    match tree.kind:
        case "atom":
            return [_atom(parts[0], random)]
        case "NOT":
            return [*words("NOT"), *_tokens(parts[0], random, own)]
        case "sign":
            return [parts[0], *_tokens(parts[1], random, own)]
        case "BETWEEN":
            middle, low, high = (_tokens(part, random, own + 1) for part in parts[1:])
            return [*middle, *negation(), *words("BETWEEN"), *low, *words("AND"), *high]
        case "IN":
            listed = [token for word in parts[2] for token in (",", _quoted(word))]
            subject = _tokens(parts[1], random, own + 1)
            return [*subject, *negation(), *words("IN"), "(", *listed[1:], ")"]
        case "LIKE":
            subject = _tokens(parts[1], random, own + 1)
            return [*subject, *negation(), *words("LIKE"), *_pattern(parts[2], words, random)]
        case "IS":
            return [*_tokens(parts[1], random, own + 1), *words("IS"), *negation(), *words("NULL")]
        case symbol:
            # From left to right; comparisons do not chain.
            left = _tokens(parts[0], random, own + (symbol in COMPARISONS))
            return [*left, *words(symbol), *_tokens(parts[1], random, own + 1)]


def _atom(found: Any, random: Random) -> str:
    if isinstance(found, Name):
        return str(found)
    if isinstance(found, bool):
        return random.choice((str(found), str(found).upper(), str(found).lower()))
    if isinstance(found, str):
        return _quoted(found)
    if isinstance(found, float):
        return random.choice((f"{found!r}", f"{found!r}D", found.hex(), f"{found:.17E}"))
    spelled = random.choice((f"{found}", f"{found:#x}", f"0{found:o}", f"{found:#b}", f"{found:_}"))
    return spelled + random.choice(("", "l", "L"))


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def _pattern(items: tuple[str, ...], words: Any, random: Random) -> list[str]:
    if any(item in ("\\%", "\\_") for item in items) or random.random() < 0.2:
        escaped = [i if i in ("%", "_", "\\%", "\\_") else i[1:] for i in items]
        return [_quoted("".join(escaped)), *words("ESCAPE"), _quoted("\\")]
    return [_quoted("".join(i if i in ("%", "_") else i[1:] for i in items))]
