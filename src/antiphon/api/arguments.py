"""Checks of the arguments that programs give: a wrong one is refused at once, in a sentence that
helps.

The conversation refuses those that slip through: no request leaves that a server could not read,
for a server ends the connection of a client that sends such a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from antiphon.errors import SecurityError
from antiphon.model.durations import FOR_EVER_S as FOR_EVER_S
from antiphon.model.durations import seconds as seconds
from antiphon.model.durations import timeout as timeout

Item = TypeVar("Item")


def text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be written as UTF-8: {error}") from None
    return value


def optional_text(what: str, value: object) -> str:
    """Return the text, checked; empty: it was not given."""
    return "" if value is None else text(what, value)


def texts(what: str, values: Iterable[object]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{what} is a list of str, not {values!r}")
    return tuple(text(f"each of {what}", value) for value in values)


def several(what: str, values: Iterable[Item]) -> Iterable[Item]:
    if not isinstance(values, Iterable):
        raise TypeError(f"{what} are an iterable, not {values!r}")
    return values


def number(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{what} is an int, not {value!r}")
    return value


def switch(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {value!r}")
    return value


def path(what: str, value: object) -> str | None:
    if value is None:
        return None
    path_of = getattr(type(value), "__fspath__", None)  # as `os.fspath` does
    if path_of is None and not isinstance(value, str):
        raise TypeError(f"{what} is a path, not {value!r}")
    return text(what, value if path_of is None else path_of(value))


def check_credentials(user: object, password: object) -> None:
    """Raise for a user or a password: no server would check them, and they would travel in
    clear."""
    if user or password:
        raise SecurityError(
            "user and password are refused: servers of this version keep no users and let "
            "everybody in, and what is sent to them is not encrypted. Connect without them"
        )


def check_listener(value: Callable[..., object] | None) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"a listener is a function, or None, not {value!r}")
