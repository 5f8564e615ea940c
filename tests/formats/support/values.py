"""Strategies for the values of the formats, made from their declared types."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

U32, U64 = 2**32 - 1, 2**64 - 1
PLAIN = {
    bool: st.booleans(),
    int: st.integers(-(2**63), U64),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=50),
    type(None): st.none(),
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    if kind in PLAIN:
        return PLAIN[kind]
    arguments = get_args(kind)
    match get_origin(kind):
        case _ if isinstance(kind, UnionType):
            return st.one_of(*map(of_type, arguments))
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if origin is list:
            return st.lists(of_type(arguments[0]), max_size=4)
        case origin if origin is dict:
            return st.dictionaries(*map(of_type, arguments), max_size=4)
        case origin if origin is tuple and arguments[-1] is ...:
            return st.lists(of_type(arguments[0]), max_size=4).map(tuple)
        case origin if origin is tuple:
            return st.tuples(*map(of_type, arguments))
    assert issubclass(kind, msgspec.Struct | tuple), kind
    fields = {name: of_type(field) for name, field in get_type_hints(kind).items()}
    return st.builds(kind, **{name: fields[name] for name in field_names(kind)})


def field_names(kind: Any) -> tuple[str, ...]:
    return kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else kind._fields


def with_flipped_bit(data: bytes, bit: int) -> bytes:
    """Bit number `bit`, counted round and round."""
    at = bit // 8 % len(data)
    return data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :]
