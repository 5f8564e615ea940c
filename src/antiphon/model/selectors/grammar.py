"""The grammar of JMS selectors: from text to a tree, or to an error that says where and why.

    condition   =  conjunction { OR conjunction }
    conjunction =  negation { AND negation }
    negation    =  { NOT } comparison
    comparison  =  sum [ ( = | <> | < | <= | > | >= ) sum
                       | [NOT] BETWEEN sum AND sum
                       | [NOT] IN ( string { , string } )
                       | [NOT] LIKE string [ESCAPE string]
                       | IS [NOT] NULL ]
    sum         =  product { ( + | - ) product }
    product     =  signed { ( * | / ) signed }
    signed      =  { + | - } operand
    operand     =  number | string | TRUE | FALSE | name | ( condition )

The operand before IN, LIKE and IS is a name. An operand that visibly has a wrong type is refused
here: a string or a condition in arithmetic, a number as a condition. A string in `<` is not: JMS
lets it be written and select nothing. Where JMS leaves a choice:

- Of the names that begin with JMS there are the six headers that can be selected by, `JMSX...` and
  `JMS_...`; others would select nothing, and are refused.
- `ESCAPE` escapes `%`, `_` and itself, nothing else.

The text comes from outside. `LENGTH_MAX`, `DEPTH_MAX` and `PATTERN_MAX` bound what it can cost;
only parentheses nest, everything else is a list, however long it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from antiphon.model.selectors.tokens import (
    LONG_MAX,
    LONG_MIN,
    Token,
    canonical,
    shortened,
    tokens,
    wrong,
)
from antiphon.model.selectors.tree import (
    ANY_MANY,
    ANY_ONE,
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
    type_of,
)

LENGTH_MAX = 8192
"""Characters."""

DEPTH_MAX = 50
"""Parentheses within parentheses. Each needs eleven calls within calls here, and no more later:
550 of the 1000 that Python allows."""

PATTERN_MAX = 1024
"""Characters after LIKE. For each one that differs a server keeps a number with a bit for each."""

HEADERS = (
    "JMSCorrelationID",
    "JMSDeliveryMode",
    "JMSMessageID",
    "JMSPriority",
    "JMSTimestamp",
    "JMSType",
)
"""The headers that JMS lets a selector read."""


def parse_tree(text: str) -> tuple[Node, str] | None:
    """Return the tree and the canonical text; None if the text is blank."""
    if len(text) > LENGTH_MAX:
        wrong(LENGTH_MAX, f"expected at most {LENGTH_MAX} characters, found {len(text)}")
    found = tokens(text)
    if len(found) == 1:
        return None
    return _Parser(found).selector(), canonical(found)


class _Parser:
    """One method for each rule of the grammar; each leaves `_next` at the first token after it."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._depth = 0

    def selector(self) -> Node:
        start = self._next
        tree = self.condition()
        if self._next.kind != "end":
            self._wrong("an operator or the end")
        return self._expect_condition(tree, start)

    def condition(self) -> Node:
        """Or, in parentheses and wherever one is not refused, a number or a string."""
        start = self._next
        first = self.conjunction()
        if not self._is("OR"):
            return first
        terms = [self._expect_condition(first, start)]
        while self._take("OR"):
            start = self._next
            terms.append(self._expect_condition(self.conjunction(), start))
        return Either(tuple(terms))

    def conjunction(self) -> Node:
        start = self._next
        first = self.negation()
        if not self._is("AND"):
            return first
        terms = [self._expect_condition(first, start)]
        while self._take("AND"):
            start = self._next
            terms.append(self._expect_condition(self.negation(), start))
        return All(tuple(terms))

    def negation(self) -> Node:
        negations = 0
        while self._take("NOT"):
            negations += 1
        start = self._next
        operand = self.comparison()
        if not negations:
            return operand
        self._expect_condition(operand, start)
        # Two more change nothing, but two are not none: they make anything but a boolean UNKNOWN.
        return Not(operand) if negations % 2 else Not(Not(operand))

    def comparison(self) -> Node:
        start = self._next
        left = self.sum()
        for operator in _OPERATORS:
            if self._take(operator):
                return Compare(operator, left, self.sum())
        negated = self._take("NOT")
        if self._take("BETWEEN"):
            return self._between(negated, left, start)
        if self._take("IN"):
            return In(negated, self._expect_name(left, start), self._strings())
        if self._take("LIKE"):
            return Like(negated, self._expect_name(left, start), self._pattern())
        if negated:
            self._wrong("BETWEEN, IN or LIKE after NOT")
        if self._take("IS"):
            negated = self._take("NOT")
            self._expect("NULL")
            return IsNull(negated, self._expect_name(left, start))
        return left

    def _between(self, negated: bool, value: Node, start: Token) -> Node:
        self._expect_number(value, start)
        start = self._next
        low = self._expect_number(self.sum(), start)
        self._expect("AND")
        start = self._next
        return Between(negated, value, low, self._expect_number(self.sum(), start))

    def _strings(self) -> tuple[str, ...]:
        self._expect("(")
        found = [self._string("a string")]
        while self._take(","):
            found.append(self._string("a string"))
        if not self._take(")"):
            self._wrong("',' or ')'")
        return tuple(found)

    def _pattern(self) -> tuple[str, ...]:
        at = self._next.at
        written = self._string("a string after LIKE")
        if len(written) > PATTERN_MAX:
            wrong(at, f"expected a pattern of at most {PATTERN_MAX} characters, not {len(written)}")
        escape = ""
        if self._take("ESCAPE"):
            escape_at = self._next.at
            escape = self._string("a string of one character after ESCAPE")
            if len(escape) != 1:
                wrong(escape_at, f"expected one character after ESCAPE, found {len(escape)}")
        return _read_pattern(written, escape, at)

    def sum(self) -> Node:
        return self._arithmetic(self.product, "+", "-")

    def product(self) -> Node:
        return self._arithmetic(self.signed, "*", "/")

    def _arithmetic(self, operand: Callable[[], Node], *symbols: str) -> Node:
        start = self._next
        first = operand()
        rest: list[tuple[str, Node]] = []
        while (symbol := self._next.text) in symbols and self._take(symbol):
            if not rest:
                self._expect_number(first, start)
            start = self._next
            rest.append((symbol, self._expect_number(operand(), start)))
        return Arithmetic(first, tuple(rest)) if rest else first

    def signed(self) -> Node:
        signs = []
        while (symbol := self._next.text) in ("+", "-") and self._take(symbol):
            signs.append(symbol)
        start = self._next
        operand = self.operand()
        # Java knows this number only behind a minus, where it is the smallest long.
        if _is_above_long(operand) and signs[-1:] != ["-"]:
            wrong(start.at, f"expected a number that a long can hold, found {start.text}")
        if not signs:
            return operand
        self._expect_number(operand, start)
        return _with_sign(signs.count("-") % 2 == 1, operand)

    def operand(self) -> Node:
        token = self._next
        if token.kind in ("number", "string"):
            self._at += 1
            return Literal(token.value)
        if token.kind == "name":
            self._at += 1
            return Name(_checked_name(token))
        if self._take("TRUE") or self._take("FALSE"):
            return Literal(token.text == "TRUE")
        if self._take("("):
            return self._in_parentheses(token)
        self._wrong("a name, a number, a string, TRUE, FALSE or '('")

    def _in_parentheses(self, opened: Token) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            wrong(opened.at, f"expected parentheses nested no deeper than {DEPTH_MAX}")
        inner = self.condition()
        if not self._take(")"):
            self._wrong("an operator or ')'")
        self._depth -= 1
        return inner

    # The next token, and whether it is allowed.

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _is(self, word: str) -> bool:
        return self._next.kind in ("keyword", "symbol") and self._next.text == word

    def _take(self, word: str) -> bool:
        taken = self._is(word)
        self._at += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._wrong(repr(word) if word == "(" else word)

    def _string(self, expected: str) -> str:
        token = self._next
        if token.kind != "string":
            self._wrong(expected)
        self._at += 1
        return str(token.value)

    def _wrong(self, expected: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else shortened(token.text)
        wrong(token.at, f"expected {expected}, found {found}")

    def _expect_condition(self, node: Node, start: Token) -> Node:
        return _expect_type(node, start, "a condition")

    def _expect_number(self, node: Node, start: Token) -> Node:
        return _expect_type(node, start, "a number")

    def _expect_name(self, node: Node, start: Token) -> str:
        if not isinstance(node, Name):
            wrong(start.at, f"expected a name before IN, LIKE or IS, found {type_of(node)}")
        return node.name


_OPERATORS: tuple[Operator, ...] = ("=", "<>", "<=", ">=", "<", ">")


def _is_above_long(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, int) and node.value > LONG_MAX


def _with_sign(negative: bool, operand: Node) -> Node:
    if isinstance(operand, Literal) and isinstance(operand.value, int | float):
        signed = Literal(-operand.value if negative else operand.value)
        return Literal(LONG_MIN) if _is_above_long(signed) else signed
    return Sign(negative, operand)


def _expect_type(node: Node, start: Token, expected: str) -> Node:
    found = type_of(node)
    if found not in ("a name", expected):
        wrong(start.at, f"expected {expected}, found {found}")
    return node


def _checked_name(token: Token) -> str:
    name = token.text
    if name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")) and name not in HEADERS:
        known = ", ".join(HEADERS)
        wrong(token.at, f"expected a property or one of the headers {known}, found {name}")
    return name


def _read_pattern(written: str, escape: str, at: int) -> tuple[str, ...]:
    pattern = []
    characters = iter(written)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character or character not in ("%", "_", escape):
                wrong(at, f"expected %, _ or {escape} after each {escape} of the pattern")
            pattern.append(character)
        else:
            pattern.append({"%": ANY_MANY, "_": ANY_ONE}.get(character, character))
    return tuple(pattern)
