"""The bodies of messages as bytes and back, by the kinds of `formats/columns.py`.

`write_*` gives kind and bytes. A pickled body is read only if the program that receives it has
agreed to, for unpickling runs code of the sender's choice. Everything here raises
`MessageFormatError`.
"""

from __future__ import annotations

import pickle
from typing import Any

from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import values
from antiphon.formats.columns import BYTES, MAP, MESSAGE, OBJECT, PICKLE, STREAM, TEXT
from antiphon.model.read_only import ReadOnlyDict, ReadOnlyList


def write_text(body: str) -> tuple[int, bytes]:
    """Return kind and bytes of a text."""
    try:
        return TEXT, body.encode()
    except UnicodeEncodeError as error:
        raise MessageFormatError(f"the text cannot be written as UTF-8: {error}") from None


def write_map(body: dict[str, Any]) -> tuple[int, bytes]:
    """Return kind and bytes of a map."""
    for name in body:
        check_map_name(name)
    return MAP, values.encode(body)


def check_map_name(name: Any) -> None:
    """Raise `MessageFormatError` unless this is a name that a map message may have."""
    if type(name) is not str or not name:
        raise MessageFormatError(
            f"a map message has names that are not empty, not {name!r}: "
            "send it as an object message"
        )


def write_stream(body: list[Any]) -> tuple[int, bytes]:
    """Return kind and bytes of a stream."""
    return STREAM, values.encode(body)


def write_object(body: Any, allow_pickle: bool) -> tuple[int, bytes]:
    """Return kind and bytes of an object, which is pickled only if it has no safe encoding."""
    try:
        return OBJECT, values.encode(body)
    except MessageFormatError:
        if not allow_pickle:
            raise
    try:
        return PICKLE, pickle.dumps(body)
    except Exception as error:  # whatever the object's own code raises
        raise MessageFormatError(f"a {type(body).__name__} cannot be pickled: {error!r}") from error


def read(kind: int, data: bytes, pickle_allowed: bool) -> Any:
    """Return the body of this kind."""
    if kind == TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MessageFormatError(f"the text of the message is not UTF-8: {error}") from None
    if kind == BYTES:
        return data
    if kind == MESSAGE:
        return None
    if kind == PICKLE:
        return _unpickled(data, pickle_allowed)
    try:
        body = values.decode(data)
    except FormatError as error:
        raise MessageFormatError(f"the body of the message cannot be read: {error}") from None
    if kind == OBJECT:
        return body
    if kind == MAP and isinstance(body, dict):
        return ReadOnlyDict(body)
    if kind == STREAM and isinstance(body, list):
        return ReadOnlyList(body)
    raise MessageFormatError(f"a body of kind {kind} is not known to this release")


def _unpickled(data: bytes, allowed: bool) -> Any:
    if not allowed:
        raise MessageFormatError(
            "the body is pickled, and reading it could run any code: if you trust all who can send "
            "here, connect with allow_pickle=True"
        )
    try:
        return pickle.loads(data)
    except Exception as error:  # whatever the object's own code raises
        raise MessageFormatError(f"the body cannot be unpickled: {error!r}") from error
