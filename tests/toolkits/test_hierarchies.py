"""Which leaf of a hierarchical group a member goes to, and which one has some data."""

import pytest

from antiphon.toolkits._isis.hierarchies import leaf_for, leaf_of_key


def test_a_member_goes_to_the_first_leaf_with_room() -> None:
    leaves = {"g/0": ("a", "b"), "g/1": ("c",)}
    assert leaf_for("d", "g", ["a", "b", "c", "d"], leaves, 2) == "g/1"
    assert leaf_for("d", "g", ["b", "c", "d"], {"g/0": ("b",), "g/1": ("c",)}, 2) == "g/0"
    assert leaf_for("a", "g", ["a"], {}, 2) == "g/0"


def test_those_who_join_together_count_alike() -> None:
    members = ["a", "b", "c", "d", "e"]
    found = [leaf_for(one, "g", members, {"g/0": ("a",)}, 2) for one in "bcde"]
    assert found == ["g/0", "g/1", "g/1", "g/2"]


def test_who_has_a_leaf_gets_no_other() -> None:
    with pytest.raises(ValueError, match="'a' is in a leaf"):
        leaf_for("a", "g", ["a"], {"g/0": ("a",)}, 2)


def test_data_is_divided_the_same_everywhere() -> None:
    leaves = {"g/1": ("c",), "g/0": ("a",)}
    keys = [f"key {i}" for i in range(50)]
    assert {leaf_of_key(key, leaves) for key in keys} == set(leaves)
    other = dict(reversed(leaves.items()))
    assert [leaf_of_key(key, leaves) for key in keys] == [leaf_of_key(key, other) for key in keys]
