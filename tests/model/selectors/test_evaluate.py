"""Selectors: each rule as a table, then random ones against a plain reading of the JMS text."""

import pickle
import struct
import sys
import time
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from antiphon.api.messages.properties import check_name
from antiphon.errors import InvalidSelectorError, MessageFormatError
from antiphon.model.selectors.evaluate import Selector, parse
from antiphon.model.selectors.grammar import DEPTH_MAX, HEADERS, LENGTH_MAX, PATTERN_MAX
from antiphon.model.selectors.tokens import KEYWORDS
from tests.model.selectors.support import random_selectors

FIELDS = {
    "five": 5,
    "minus": -7,
    "half": 0.5,
    "word": "abc",
    "digit": "5",
    "yes": True,
    "no": False,
    "none": None,
    "long": (1 << 63) - 1,
    "zero": 0,
    "nan": float("nan"),
    "JMSPriority": 4,
    "JMSDeliveryMode": "PERSISTENT",
    "JMSXDeliveryCount": 1,
    "JMS_antiphon_x": "y",
}


def parsed(text: str) -> Selector:
    selector = parse(text)
    assert selector is not None
    return selector


def truth(text: str, fields: dict[str, Any] = FIELDS) -> bool | None:
    """TRUE, FALSE or UNKNOWN, told apart by what NOT makes of them."""
    selects, rejects = parsed(text).matches(fields), parsed(f"NOT ({text})").matches(fields)
    assert not (selects and rejects)
    return True if selects else False if rejects else None


def check(table: str) -> Any:
    """A test for each line: a selector, and its value for `FIELDS`."""
    lines = [line.rsplit(maxsplit=1) for line in table.strip().splitlines()]
    values = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
    cases = [(text.strip(), values[value]) for text, value in lines]
    return pytest.mark.parametrize(("text", "value"), cases, ids=[text for text, _ in cases])


# -- Literals and names -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("29", 29),
        ("035", 29),
        ("0_35", 29),
        ("0x1D", 29),
        ("0X1d", 29),
        ("0b11101", 29),
        ("0", 0),
        ("00", 0),
        ("1_000__000", 1000000),
        ("7L", 7),
        ("7l", 7),
        ("0x7L", 7),
        ("0x1F", 31),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
        ("- -9223372036854775808", -(1 << 63)),
        ("-(-9223372036854775808)", -(1 << 63)),
        ("0x7FFFFFFFFFFFFFFF", (1 << 63) - 1),
        ("0xFFFFFFFF", 0xFFFFFFFF),
        ("-257", -257),
        ("+82", 82),
        ("- - + -5", -5),
        ("7.", 7.0),
        (".5", 0.5),
        ("1.5e3", 1500.0),
        ("1.5E+3", 1500.0),
        ("7E3", 7000.0),
        ("-57.9E2", -5790.0),
        ("5e-1", 0.5),
        ("7.e1", 70.0),
        ("08.5", 8.5),
        ("1_0.2_5", 10.25),
        ("2d", 2.0),
        ("2f", 2.0),
        ("0.1f", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("0.1D", 0.1),
        ("0x1p4", 16.0),
        ("0x1.8P-1", 0.75),
        ("0x.8p0", 0.5),
    ],
)
def test_numbers_are_written_as_in_java(literal: str, value: float) -> None:
    assert parsed(f"x = {literal}").matches({"x": value})
    assert parsed(f"{literal} = x").matches({"x": value})
    other = value + 1 if isinstance(value, int) else value * 1.000001
    assert not parsed(f"x = {literal}").matches({"x": other})


@pytest.mark.parametrize(
    "literal",
    [
        "089",
        "0x",
        "0xG",
        "0b2",
        "0b",
        "1x",
        "1_",
        "0x_1",
        "1.2.3",
        "1e",
        "1e+",
        "1.5L",
        "0x1.8",
        "0x1p",
        "9223372036854775808",
        "-(9223372036854775808)",
        "0x8000000000000000",
        "0xFFFFFFFFFFFFFFFF",
        "9" * 5000,
        "1e999",
        "1e39f",
        "0x1p1024",
        "0x1p99999999999",
    ],
)
def test_other_numbers_are_refused(literal: str) -> None:
    with pytest.raises(InvalidSelectorError, match=r"wrong at position [567]: expected a number"):
        parse(f"x = {literal}")


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'abc'", "abc"), ("'it''s'", "it's"), ("''", ""), ("''''", "'"), ("'é\n\"'", 'é\n"')],
)
def test_strings(literal: str, value: str) -> None:
    assert parsed(f"x = {literal}").matches({"x": value})
    assert not parsed(f"x = {literal}").matches({"x": value + "x"})


@pytest.mark.parametrize("name", ["x", "_x", "$x", "a$1_b", "größe", "名前", "Not1", "nulls", "क़ि"])
def test_names(name: str) -> None:
    check_name(name)
    selector = parsed(f"{name} = 1")
    assert selector.names == {name}
    assert selector.matches({name: 1})


@given(st.text(st.characters(categories=("L", "M", "N", "Pc", "Sc")), max_size=4))
def test_a_name_is_what_can_name_a_property(name: str) -> None:
    try:
        check_name(name)
    except MessageFormatError:
        return
    assert parsed(f"{name} = 1").names == {name}


@pytest.mark.parametrize("keyword", sorted(KEYWORDS))
def test_keywords_are_no_names(keyword: str) -> None:
    for word in (keyword, keyword.lower(), keyword.title()):
        with pytest.raises(InvalidSelectorError):
            parse(f"{word} > 1 AND {word} IS NULL")


def test_names_do_not_ignore_case_and_keywords_do() -> None:
    assert not parsed("X = 1").matches({"x": 1})
    assert parsed("nOt x iS nULL aNd x bEtween 0 And 2 oR fAlse").matches({"x": 1})


@pytest.mark.parametrize("header", HEADERS)
def test_headers_can_be_selected_by(header: str) -> None:
    assert parsed(f"{header} = 'x'").matches({header: "x"})


@pytest.mark.parametrize("name", ["JMSReplyTo", "JMSDestination", "JMSExpiration", "JMSfoo", "JMS"])
def test_other_names_of_jms_are_refused(name: str) -> None:
    with pytest.raises(InvalidSelectorError, match=f"position 7: .* JMSType, found {name}$"):
        parse(f"1 = 1+{name}")


# -- Meaning ------------------------------------------------------------------------------------


@check("""
    five = 5                              TRUE
    five = 5.0                            TRUE
    5.0e0 = five                          TRUE
    half = 0.5                            TRUE
    five > half                           TRUE
    five <> 5                             FALSE
    five < 6                              TRUE
    six < 6                               UNKNOWN
    6 > five                              TRUE
    6 >= five                             TRUE
    6 <= five                             FALSE
    5 <= five                             TRUE
    five >= 5                             TRUE
    five > 5                              FALSE
    four <> 4                             UNKNOWN
    five = four                           UNKNOWN
    word = 'abc'                          TRUE
    word = 'ABC'                          FALSE
    word <> 'abc'                         FALSE
    'abd' <> word                         TRUE
    word = word                           TRUE
    yes = TRUE                            TRUE
    yes <> FALSE                          TRUE
    no = false                            TRUE
    yes = (five = 5)                      TRUE
    (five = 5) <> (five = 6)              TRUE
    (four = 4) = TRUE                     UNKNOWN
    nan = nan                             FALSE
    nan <> nan                            TRUE
    JMSPriority > 3                       TRUE
    JMSDeliveryMode = 'PERSISTENT'        TRUE
    JMSXDeliveryCount = 1                 TRUE
    JMS_antiphon_x = 'y'                  TRUE
    9007199254740993 = 9007199254740992.0 TRUE
    9007199254740993 > 9007199254740992.0 FALSE
    9007199254740993 > 9007199254740992   TRUE
    long = 9223372036854775807            TRUE
    long = 9223372036854775806            FALSE
    long = 9223372036854775807.0          TRUE
""")
def test_comparison(text: str, value: bool | None) -> None:
    assert truth(text) is value


@check("""
    digit = 5            UNKNOWN
    digit <> 5           UNKNOWN
    five = '5'           UNKNOWN
    five <> '5'          UNKNOWN
    '5' <> five          UNKNOWN
    5 = '5'              UNKNOWN
    5 <> '5'             UNKNOWN
    NOT five = '5'       UNKNOWN
    word = five          UNKNOWN
    word <> yes          UNKNOWN
    yes = 1              UNKNOWN
    yes <> 1             UNKNOWN
    zero = FALSE         UNKNOWN
    no = 0               UNKNOWN
    yes = 'TRUE'         UNKNOWN
    word < 'b'           FALSE
    word > 'b'           FALSE
    word <= 'abc'        FALSE
    'a' < 'b'            FALSE
    no < yes             FALSE
    no <= no             FALSE
    yes > 0              UNKNOWN
    digit > 4            UNKNOWN
    word < 5             UNKNOWN
    none < 'b'           UNKNOWN
    none = 'b'           UNKNOWN
    four <> TRUE         UNKNOWN
    word BETWEEN 1 AND 2      UNKNOWN
    word NOT BETWEEN 1 AND 2  UNKNOWN
""")
def test_unlike_types_and_order(text: str, value: bool | None) -> None:
    assert truth(text) is value


@check("""
    TRUE                 TRUE
    FALSE                FALSE
    yes                  TRUE
    no                   FALSE
    four                 UNKNOWN
    word                 UNKNOWN
    five                 UNKNOWN
    NOT yes              FALSE
    NOT word             UNKNOWN
    NOT NOT yes          TRUE
    NOT NOT NOT no       TRUE
    NOT NOT four         UNKNOWN
    (NOT NOT five) = 5   UNKNOWN
    (NOT NOT yes) = TRUE TRUE
    yes AND yes          TRUE
    yes AND no           FALSE
    yes AND four         UNKNOWN
    four AND yes         UNKNOWN
    four AND no          FALSE
    no AND four          FALSE
    four AND four        UNKNOWN
    yes OR four          TRUE
    four OR yes          TRUE
    no OR no             FALSE
    no OR four           UNKNOWN
    four OR no           UNKNOWN
    yes OR yes AND no    TRUE
    (yes OR yes) AND no  FALSE
    NOT no AND no        FALSE
    NOT (no AND no)      TRUE
    NOT five = 6         TRUE
    word AND no          FALSE
    word OR yes          TRUE
""")
def test_three_values(text: str, value: bool | None) -> None:
    assert truth(text) is value


@check("""
    five BETWEEN 5 AND 6           TRUE
    five BETWEEN 4 AND 5           TRUE
    five BETWEEN 6 AND 4           FALSE
    five BETWEEN 4.5 AND 5.5       TRUE
    five NOT BETWEEN 5 AND 6       FALSE
    five NOT BETWEEN 6 AND 7       TRUE
    four BETWEEN 1 AND 2           UNKNOWN
    four NOT BETWEEN 1 AND 2       UNKNOWN
    five BETWEEN four AND 4        FALSE
    five BETWEEN four AND 6        UNKNOWN
    five NOT BETWEEN four AND 4    TRUE
    five NOT BETWEEN 4 AND four    UNKNOWN
    five BETWEEN 1 + 1 AND 3 * 2 AND yes   TRUE
    five BETWEEN 4 AND 6 OR no     TRUE
    word IN ('x', 'abc')           TRUE
    word IN ('x')                  FALSE
    word NOT IN ('x', 'abc')       FALSE
    word NOT IN ('x')              TRUE
    four IN ('x')                  UNKNOWN
    four NOT IN ('x')              UNKNOWN
    five IN ('5')                  UNKNOWN
    five NOT IN ('5')              UNKNOWN
    yes NOT IN ('TRUE')            UNKNOWN
    five IS NULL                   FALSE
    five IS NOT NULL               TRUE
    four IS NULL                   TRUE
    four IS NOT NULL               FALSE
    none IS NULL                   TRUE
    NOT four IS NULL               FALSE
    (none) IS NULL                 TRUE
    five LIKE '5'                  UNKNOWN
    five NOT LIKE 'x'              UNKNOWN
    four LIKE '%'                  UNKNOWN
    four NOT LIKE '%'              UNKNOWN
    word LIKE 'a%'                 TRUE
    word NOT LIKE 'a%'             FALSE
""")
def test_between_in_null_like(text: str, value: bool | None) -> None:
    assert truth(text) is value


@check("""
    five + 1 = 6                   TRUE
    five - 1 - 1 = 3               TRUE
    five - (1 - 1) = 5             TRUE
    five * 2 + 1 = 11              TRUE
    1 + five * 2 = 11              TRUE
    (1 + five) * 2 = 12            TRUE
    -five = -5                     TRUE
    - -five = 5                    TRUE
    +five = 5                      TRUE
    -five * 2 = -10                TRUE
    five / 2 = 2                   TRUE
    minus / 2 = -3                 TRUE
    five / -2 = -2                 TRUE
    -five / -2 = 2                 TRUE
    five / 2.0 = 2.5               TRUE
    five / 2 * 2 = 4               TRUE
    five + half = 5.5              TRUE
    five / 0 = 1                   UNKNOWN
    five / zero <> 1               UNKNOWN
    five / 0.0 > 1                 UNKNOWN
    half / 0 > 1                   UNKNOWN
    1 / 0 * 0 = 0                  UNKNOWN
    four + 1 = 5                   UNKNOWN
    word + 1 = 5                   UNKNOWN
    digit + 1 <> 5                 UNKNOWN
    yes + 1 = 2                    UNKNOWN
    -word = 'abc'                  UNKNOWN
    +word = 'abc'                  UNKNOWN
    long + 1 < 0                   TRUE
    long + 1 = -9223372036854775808    TRUE
    -long - 2 = long               TRUE
    long * 2 = -2                  TRUE
    (-long - 1) / -1 = -long - 1   TRUE
    -(-long - 1) = -long - 1       TRUE
    long + 1.0 > long              FALSE
    1e308 * 10 > 1e308             TRUE
    1e308 * 10 - 1e308 * 10 = 0    FALSE
""")
def test_arithmetic(text: str, value: bool | None) -> None:
    assert truth(text) is value


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("'abc'", ["abc"], ["", "ab", "abcd", "ABC"]),
        ("''", [""], ["a"]),
        ("'%'", ["", "a", "a\nb"], []),
        ("'_'", ["a", "\n", "é", "😀"], ["", "ab"]),
        ("'12%3'", ["123", "12993", "12 3 3"], ["1234", "12", "13"]),
        ("'l_se'", ["lose", "l\nse"], ["loose", "lse"]),
        ("'%b%'", ["b", "abc"], ["", "ac"]),
        ("'a%a'", ["aa", "aba"], ["a", "ab", ""]),
        ("'%a_c%'", ["abc", "aabcc", "aacc"], ["ac", "abbc"]),
        ("'_%_'", ["ab", "abc"], ["", "a"]),
        ("'a%%b'", ["ab", "axb"], ["a"]),
        ("'%ab%ba%'", ["abba", "xabxbax"], ["aba"]),
        ("'.*[x]'", [".*[x]"], ["aax"]),
        (r"'\_%' ESCAPE '\'", ["_", "_foo"], ["bar", r"\_"]),
        ("'!%!_!!' ESCAPE '!'", ["%_!"], ["a_!", "%a!", "%_"]),
        ("'%!%%' ESCAPE '!'", ["%", "a%b"], ["", "ab"]),
        ("'%%_a' ESCAPE '%'", ["%xa"], ["xa", "%a"]),
        ("'''%' ESCAPE '!'", ["'", "'a"], ["a"]),
        ("'a''%' ESCAPE ''''", ["a%"], ["ab"]),
    ],
)
def test_like(pattern: str, fitting: list[str], others: list[str]) -> None:
    for text in fitting:
        assert truth(f"x LIKE {pattern}", {"x": text}) is True, text
        assert truth(f"x NOT LIKE {pattern}", {"x": text}) is False, text
    for text in others:
        assert truth(f"x LIKE {pattern}", {"x": text}) is False, text


@given(st.text("ab%_", max_size=7), st.text("abc", max_size=8))
@settings(max_examples=300)
def test_like_is_what_it_is_explained_to_be(pattern: str, text: str) -> None:
    items = tuple(c if c in "%_" else "\\" + c for c in pattern)
    meant = random_selectors.fits(text, items)
    assert parsed(f"x LIKE '{pattern}'").matches({"x": text}) is meant


@pytest.mark.parametrize("pattern", ["%a" * 500 + "%b", "%_a" * 340 + "b", "%" * 1000 + "_b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    selector = parsed(f"x LIKE '{pattern}'")
    started = time.process_time()
    assert not selector.matches({"x": "a" * 20_000})
    assert time.process_time() - started < 1  # a few ms; with backtracking, forever


# -- What is wrong, and where -------------------------------------------------------------------


OPERAND = "a name, a number, a string, TRUE, FALSE or '('"


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("a = 'x\ud800'", 7, "text, found half of a surrogate pair"),
        ("five >", 7, f"{OPERAND}, found the end"),
        ("five > AND", 8, f"{OPERAND}, found AND"),
        ("a b", 3, "an operator or the end, found b"),
        ("a = 1)", 6, "an operator or the end, found )"),
        ("(a = 1", 7, "an operator or ')', found the end"),
        ("a = 1 = 2", 7, "an operator or the end, found ="),
        ("a == 1", 4, f"{OPERAND}, found ="),
        ("a != 1", 3, "no '!' outside of strings"),
        ('a = "x"', 5, "no '\"' outside of strings"),
        ("a\u00a0= 1", 2, r"no '\xa0' outside of strings"),
        ("a = 'x", 5, "a ' that ends the string, found none"),
        ("a = 'x''", 5, "a ' that ends the string, found none"),
        ("5", 1, "a condition, found a number"),
        ("(5)", 1, "a condition, found a number"),
        ("'x'", 1, "a condition, found a string"),
        ("a AND 5", 7, "a condition, found a number"),
        ("'x' AND a", 1, "a condition, found a string"),
        ("a OR b + 1", 6, "a condition, found a number"),
        ("a + 1 OR b", 1, "a condition, found a number"),
        ("NOT 5", 5, "a condition, found a number"),
        ("NOT", 4, f"{OPERAND}, found the end"),
        ("a = 'x' + 1", 5, "a number, found a string"),
        ("a = 1 * TRUE", 9, "a number, found a condition"),
        ("a = 1 + (b = 2)", 9, "a number, found a condition"),
        ("a = -'x'", 6, "a number, found a string"),
        ("a = NULL", 5, f"{OPERAND}, found NULL"),
        ("a = NOT b", 5, f"{OPERAND}, found NOT"),
        ("a BETWEEN 'a' AND 'b'", 11, "a number, found a string"),
        ("'a' BETWEEN 1 AND 2", 1, "a number, found a string"),
        ("a BETWEEN 1 AND 'b'", 17, "a number, found a string"),
        ("a BETWEEN 1 OR 2", 13, "AND, found OR"),
        ("a IN 'x'", 6, "'(', found 'x'"),
        ("a IN ()", 7, "a string, found )"),
        ("a IN (1)", 7, "a string, found 1"),
        ("a IN ('x',)", 11, "a string, found )"),
        ("a IN ('x' 'y')", 11, "',' or ')', found 'y'"),
        ("'x' IN ('x')", 1, "a name before IN, LIKE or IS, found a string"),
        ("a LIKE b", 8, "a string after LIKE, found b"),
        ("a LIKE 'x' ESCAPE", 18, "a string of one character after ESCAPE, found the end"),
        ("a LIKE 'x' ESCAPE ''", 19, "one character after ESCAPE, found 0"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "one character after ESCAPE, found 2"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "%, _ or ! after each ! of the pattern"),
        ("a LIKE '!x' ESCAPE '!'", 8, "%, _ or ! after each ! of the pattern"),
        ("a + 1 LIKE 'x'", 1, "a name before IN, LIKE or IS, found a number"),
        ("(NOT NOT a) IS NULL", 1, "a name before IN, LIKE or IS, found a condition"),
        ("5 IS NULL", 1, "a name before IN, LIKE or IS, found a number"),
        ("a IS 5", 6, "NULL, found 5"),
        ("a IS NOT 5", 10, "NULL, found 5"),
        ("a NOT 5", 7, "BETWEEN, IN or LIKE after NOT, found 5"),
        ("a NOT = 5", 7, "BETWEEN, IN or LIKE after NOT, found ="),
        ("a = " + "b" * 50 + " c", 56, "an operator or the end, found c"),
        ("a = 1 " + "b" * 50, 7, "an operator or the end, found " + "b" * 37 + "..."),
    ],
)
def test_errors_say_where_and_what_was_expected(text: str, position: int, expected: str) -> None:
    with pytest.raises(InvalidSelectorError) as raised:
        parse(text)
    assert str(raised.value) == (
        f"the selector is wrong at position {position}: expected {expected}"
    )


@pytest.mark.parametrize("text", ["", " ", " \t\r\n\f "])
def test_a_blank_selector_is_none(text: str) -> None:
    assert parse(text) is None


def test_length_is_bounded() -> None:
    longest = "a = 1 OR " * 900 + "a = 2"
    longest += " " * (LENGTH_MAX - len(longest))
    assert parsed(longest).matches({"a": 2})
    with pytest.raises(InvalidSelectorError, match="at most 8192 characters, found 8193"):
        parse(longest + " ")
    with pytest.raises(InvalidSelectorError, match="at most 1024 characters, not 1025"):
        parse(f"a LIKE '{'x' * (PATTERN_MAX + 1)}'")


@pytest.mark.parametrize(
    ("level", "parentheses", "end"),
    [
        ("({})", 1, ""),
        ("x AND (x OR NOT x = ({}))", 2, ""),
        ("NOT ({} AND x OR x) = x", 1, ""),
        ("(1 + 2 * -{})", 1, " <> 1"),
    ],
)
def test_depth_is_bounded(level: str, parentheses: int, end: str) -> None:
    text = "x"
    for _ in range(DEPTH_MAX // parentheses):
        text = level.format(text)
    # Also where the stack is half full already.
    assert parse_deep(text + end, sys.getrecursionlimit() // 3)
    for _ in range(1000):
        text = f"({text})"
    with pytest.raises(InvalidSelectorError, match="parentheses nested no deeper than 50"):
        parse(text + end)


def parse_deep(text: str, frames: int) -> Selector:
    if frames:
        return parse_deep(text, frames - 1)
    selector = parsed(text)
    selector.matches({"x": True})
    selector.matches({"x": 1})
    return selector


@pytest.mark.parametrize(
    "text",
    ["x" + " + x" * 2000, "x" + " * 2 / 2" * 900, "-" * 8000 + "x", "+ " * 4000 + "x"],
)
def test_only_parentheses_nest(text: str) -> None:
    assert parsed(text + " <> 0").matches({"x": 1})
    assert parsed("NOT " * 2000 + "x").matches({"x": True})
    assert parsed("x" + " AND x" * 1300).matches({"x": True})


FRAGMENTS = [
    *sorted(KEYWORDS),
    *(
        "a",
        "b",
        "JMSType",
        "'x'",
        "''",
        "'",
        "1",
        "0x1F",
        "1.5e3",
        "08",
        "7L",
        "=",
        "<>",
        "<",
        "<=",
    ),
    *(
        "(",
        ")",
        ",",
        "+",
        "-",
        "*",
        "/",
        ".",
        "%",
        "$",
        "e5",
        "0x",
        "\x00",
        "\ud800",
        "²",
        "💡",
        ";",
    ),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12), st.sampled_from(["", " "]))
@settings(max_examples=400)
def test_random_tokens_are_parsed_or_refused(pieces: list[str], between: str) -> None:
    only_refused(between.join(pieces))


@given(st.text(max_size=30))
@settings(max_examples=300)
@example("\u0131s")  # in capitals IS
@example("0" * 5000)
@example("." * 5000)
@example("1" + "_" * 5000)
@example("1e" + "_1" * 2000 + "x = 1")
def test_random_text_is_parsed_or_refused(text: str) -> None:
    only_refused(text)


def only_refused(text: str) -> None:
    try:
        selector = parse(text)
    except InvalidSelectorError:
        return
    if selector is not None:
        selector.matches({"a": 1, "b": "x"})
        assert_same_when_read_again(selector)
        assert len(selector.text) <= len(text)


# -- Text, names, equality ----------------------------------------------------------------------


def assert_same_when_read_again(selector: Selector) -> None:
    again = parsed(selector.text)
    assert again.text == selector.text
    assert again.tree == selector.tree


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a=1 AND b<>'X'", " a  =\t1 and\nb <> 'X' "),
        ("a = 0X1F", "a = 0x1f"),
        ("a = 1E3 or B = 7L", "a=1e3 OR B=7l"),
        ("a = 7. AND b", "a=7. and b"),
        ("a LIKE 'x' ESCAPE '!'", "a like'x'escape'!'"),
    ],
)
def test_the_text_forgets_blanks_and_case_of_keywords(one: str, other: str) -> None:
    assert parsed(one).text == parsed(other).text
    assert parsed(one) == parsed(other)
    assert hash(parsed(one)) == hash(parsed(other))
    assert_same_when_read_again(parsed(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a = 1", "A = 1"), ("a = 'x'", "a = 'X'"), ("a = 'x y'", "a = 'x  y'"), ("a = 1", "a = 2")],
)
def test_the_text_tells_different_selectors_apart(one: str, other: str) -> None:
    assert parsed(one).text != parsed(other).text
    assert parsed(one) != parsed(other)


def test_names_are_all_that_is_read() -> None:
    text = (
        "a = 1 AND NOT b BETWEEN c AND d OR e IN ('x') AND f LIKE 'y' "
        "OR g IS NULL OR (-h + i) * j / k > 1 OR l OR TRUE = (m AND n = 'o')"
    )
    assert parsed(text).names == set("abcdefghijklmn")


def test_selectors_survive_pickle() -> None:
    selector = parsed("a = 1 OR b LIKE 'x%'")
    copy = pickle.loads(pickle.dumps(selector))
    assert copy == selector
    assert copy.matches({"b": "xy"})
    assert repr(copy) == "parse(\"a=1 OR b LIKE'x%'\")"


# -- Random selectors ---------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
@settings(max_examples=1000)
def test_random_selectors_mean_what_jms_says(seed: int) -> None:
    random = Random(seed)
    tree = random_selectors.condition(random, 4)
    text = random_selectors.spell(tree, random)
    note(text)
    selector, negated = parsed(text), parsed(f"NOT({text})")
    assert_same_when_read_again(selector)
    for _ in range(3):
        fields = random_selectors.random_fields(random)
        note(repr(fields))
        meant = random_selectors.truth(tree, fields)
        assert selector.matches(fields) is (meant is True)
        assert negated.matches(fields) is (meant is False)
        assert selector.matches({name: fields.get(name) for name in selector.names}) is (
            meant is True
        )
