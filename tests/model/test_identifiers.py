"""Names as in Java, for properties and selectors alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.model.identifiers import begins, continues, is_identifier
from antiphon.model.selectors.tokens import tokens


@pytest.mark.parametrize("name", ["a", "_", "$", "a1", "Zoë", "€", "a$b", "‿a", "ⅷ", "é", "数"])
def test_names(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a-b", "a.b", "a\n", "\u0301a", "a\u200d", "a\0", "+", "a'", "℘"]
)
def test_no_names(name: str) -> None:
    assert not is_identifier(name)


@given(st.characters())
def test_what_begins_a_name_can_stand_in_it(character: str) -> None:
    assert continues(character) or not begins(character)


@given(st.text(min_size=1, max_size=5))
def test_what_is_a_name_is_one_word_of_a_selector(text: str) -> None:
    if is_identifier(text):
        word, end = tokens(text)
        assert word.text in (text, text.upper())
        assert end.kind == "end"
