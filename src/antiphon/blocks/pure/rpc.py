"""Calls of methods: their messages, and a member's part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.blocks.pure.block import Heard


def check_public(method: str) -> None:
    if method.startswith("_"):
        raise AttributeError(f"{method!r}: only public methods can be called on a group")


def invoke(target: object, message: Heard) -> Any:
    """Call a method, and return its result. Raise the method's errors, and `TypeError` or
    `AttributeError` if there is no such call."""
    match message.body:
        case (str(method), tuple(args), dict(named)):
            pass
        case _:
            raise TypeError("a call is a method's name, its arguments, and those with names")
    found = None if method.startswith("_") else getattr(target, method, None)
    if not callable(found):
        raise AttributeError(f"{type(target).__name__} has no public method {method!r}")
    return found(*args, **named)


def first_of(replies: Mapping[str, Any]) -> Any:
    (value, *_) = replies.values()
    if isinstance(value, Exception):
        raise value
    return value
