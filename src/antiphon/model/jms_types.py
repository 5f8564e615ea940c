"""The types of JMS: which one a value has, and as which it may be read.

JMS has more types than Python. A number counts as the smallest type that holds it, unless it was
stated otherwise (`model/jms_scalars.py`). Types as which a value may be read, in properties, maps
and streams:

    boolean   boolean, string
    byte      byte, short, int, long, string        and so on: a wider type may always be asked for
    char      char, string
    float     float, double, string
    double    double, string
    string    string, and every other type but char and bytes that it can be parsed as
    bytes     bytes
    None      string and bytes (None), boolean (False)

Everything else raises `MessageFormatError`.
"""

from __future__ import annotations

import math
import re
import reprlib
import struct
from typing import Any, Literal

from antiphon.errors import MessageFormatError
from antiphon.model.jms_scalars import Char, Double, Int, Long, Short, fits, is_char

Kind = Literal[
    "boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes"
]

_BITS: dict[Kind, int] = {"byte": 8, "short": 16, "int": 32, "long": 64}
_CLASSES: dict[Kind, type] = {
    "short": Short,
    "int": Int,
    "long": Long,
    "double": Double,
    "char": Char,
}
_KINDS: dict[type, Kind] = {
    bool: "boolean",
    str: "string",
    bytes: "bytes",
    **{cls: kind for kind, cls in _CLASSES.items()},
}
_READABLE_AS: dict[Kind, tuple[Kind, ...]] = {
    "boolean": ("boolean", "string"),
    "byte": ("byte", "short", "int", "long", "string"),
    "short": ("short", "int", "long", "string"),
    "char": ("char", "string"),
    "int": ("int", "long", "string"),
    "long": ("long", "string"),
    "float": ("float", "double", "string"),
    "double": ("double", "string"),
    "string": ("string",),
    "bytes": ("bytes",),
}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_FLOATING = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?Infinity|NaN")
_SINGLE = struct.Struct("<f")


def kind_of(value: Any) -> Kind | None:
    """None: it has no type of JMS."""
    cls = type(value)
    if cls is int:
        return next((kind for kind, bits in _BITS.items() if fits(value, bits)), None)
    if cls is float:
        return "float" if single(value) == value or math.isnan(value) else "double"
    return _KINDS.get(cls)


# -- Stating a type --------------------------------------------------------------------------------


def state(what: str, value: Any, kind: Kind) -> Any:
    """Return the value as one of this type. Raise `MessageFormatError` if it does not fit; `what`
    names it in the text."""
    plain = _plain(value, kind)
    if plain is None and not (value is None and kind in ("string", "bytes")):
        raise MessageFormatError(f"{what}: {reprlib.repr(value)} is no {kind}")
    if plain is None or kind_of(plain) == kind:
        return plain
    return _CLASSES[kind](plain)


def _plain(value: Any, kind: Kind) -> Any:
    """Return the value as one of Python's own types; None: it does not fit."""
    match kind:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "byte" | "short" | "int" | "long":
            good = _is_integer(value) and fits(value, _BITS[kind])
            return int(value) if good else None
        case "float" | "double":
            return _floating(value, kind)
        case "char":
            return str.__str__(value) if isinstance(value, str) and is_char(value) else None
        case "string":
            return str.__str__(value) if isinstance(value, str) else None
        case "bytes":
            return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _floating(value: Any, kind: Kind) -> float | None:
    if not isinstance(value, float) and not _is_integer(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if kind == "double":
        return number
    rounded = single(number)
    return None if math.isinf(rounded) and not math.isinf(number) else rounded


def single(value: float) -> float:
    """Return the nearest number that a float of 32 bits can hold; one that is too large becomes
    infinite."""
    try:
        (nearest,) = _SINGLE.unpack(_SINGLE.pack(value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(nearest)


# -- Reading ---------------------------------------------------------------------------------------


def convert(what: str, value: Any, kind: Kind) -> Any:
    """Return the value, read as this type."""
    own = kind_of(value)
    if value is None:
        if kind in ("boolean", "string", "bytes"):
            return False if kind == "boolean" else None
    elif own == "string" and kind not in ("string", "char", "bytes"):
        parsed = _parsed(value, kind)
        if parsed is not None:
            return parsed
    elif own is not None and kind in _READABLE_AS[own]:
        return text_of(value) if kind == "string" else _plain(value, kind)
    raise MessageFormatError(f"{what} is {reprlib.repr(value)}, which cannot be read as {kind}")


def _parsed(text: str, kind: Kind) -> bool | int | float | None:
    if kind == "boolean":
        return text.lower() == "true"
    if kind in _BITS:
        number = int(text) if _INTEGER.fullmatch(text) else None
        return number if number is not None and fits(number, _BITS[kind]) else None
    if not _FLOATING.fullmatch(text):
        return None
    return single(float(text)) if kind == "float" else float(text)


def text_of(value: bool | int | float | str) -> str:
    """Return a value as text, as Java writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, float) or math.isfinite(value):
        return str(value)
    # As it is parsed, here and in Java.
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
