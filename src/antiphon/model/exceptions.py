"""Exceptions that travel: as the name of their type and a text."""

from __future__ import annotations

import builtins
from typing import Any

from antiphon.errors import JMSError


class RemoteError(JMSError):
    """An exception of a member whose type is not known here; `type_name` is the name of that."""

    def __init__(self, text: str, type_name: str = "Exception") -> None:
        super().__init__(text)
        self.type_name = type_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.type_name)


def describe(error: Exception) -> tuple[str, str]:
    """Return the name of an exception's type, and its text, to be sent."""
    if isinstance(error, RemoteError):
        return error.type_name, str(error)
    # A `KeyError` shows its key quoted; as an argument it would be quoted twice.
    text = str(error.args[0]) if len(error.args) == 1 else str(error)
    # A text that is not UTF-8, like some names of files, could not travel.
    return type(error).__name__, text.encode(errors="backslashreplace").decode()


def restored(type_name: str, text: str) -> Exception:
    """Return an exception of Python's own as itself, another one as `RemoteError`."""
    kind = getattr(builtins, type_name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass  # one of the few that want more than a text
    return RemoteError(f"{type_name}: {text}", type_name)
