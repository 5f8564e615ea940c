"""Headers and properties of a message to be sent: checked, and written as bytes.

A value of a wrong type raises `MessageFormatError` or `InvalidDestinationError`, a number out of
bounds `ValueError`, too much of everything `ResourceAllocationError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypedDict

from antiphon.api import arguments
from antiphon.api.messages import properties as props
from antiphon.api.messages.destinations import Destination, check_sendable
from antiphon.api.messages.properties import PropertyValue
from antiphon.api.modes import DeliveryMode
from antiphon.errors import (
    InvalidDestinationError,
    MessageFormatError,
    ResourceAllocationError,
)
from antiphon.formats import columns
from antiphon.formats.columns import Extra

HEADERS_MAX = 1_000_000
"""Limit of the bytes of headers and properties of one message: with the largest body they fit a
pack."""

SECONDS_MAX = 1e11


class Headers(TypedDict, total=False):
    """Headers and properties that become part of a message. None means not given."""

    properties: Mapping[str, PropertyValue] | None
    priority: int | None  # 0 to 9
    time_to_live: float | None  # seconds; 0: forever
    delivery_delay: float | None  # seconds
    correlation_id: str | None
    reply_to: Destination | None
    type: str | None
    tag: str | None
    key: str | None


class SendHeaders(Headers, total=False):
    """The headers and properties that may be given with each `send`; `Producer.send` explains them.
    None means not given."""

    delivery_mode: DeliveryMode | None


DEFAULT_HEADERS = SendHeaders(
    properties=None,
    priority=columns.PRIORITY,
    time_to_live=0,
    delivery_delay=0,
    correlation_id=None,
    reply_to=None,
    type=None,
    tag=None,
    key=None,
    delivery_mode=DeliveryMode.PERSISTENT,
)
"""The values of headers that are not given; None: that of the message, if it is a `Message`."""


def fields_of(given: Headers, extra: Extra) -> dict[str, Any]:
    """Return the fields of `Extra` that are given, checked."""
    fields: dict[str, Any] = {}
    value: Any
    for name, value in given.items():
        match name:
            case _ if value is None:
                pass
            case "correlation_id" | "type" | "tag" | "key":
                fields[name] = text(name, value)
            case "properties":
                if not isinstance(value, Mapping):
                    raise MessageFormatError(f"properties are a mapping, not {value!r}")
                fields[name] = extra.properties | props.checked(value)
            case "priority":
                fields[name] = _priority(value)
            case "time_to_live" | "delivery_delay":
                fields[name] = _milliseconds(name, value)
            case "reply_to":
                fields[name] = address(value)
            case _:
                raise TypeError(f"a message has no header {name!r}")
    return fields


def written(extra: Extra) -> bytes:
    """Return headers and properties as bytes. Raise if they are too many, or not UTF-8."""
    try:
        data = columns.encode_extra(extra)
    except UnicodeEncodeError as error:
        raise MessageFormatError(
            f"a header or property cannot be written as UTF-8: {error}"
        ) from None
    if len(data) > HEADERS_MAX:
        raise ResourceAllocationError(
            f"headers and properties of {len(data)} bytes: a message has at most {HEADERS_MAX}. "
            "Nothing was sent."
        )
    return data


def text(name: str, value: str | None) -> str | None:
    """Return a text header, checked."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise MessageFormatError(f"{name} is a str, not a {type(value).__name__}")
    return str.__str__(value)


def address(destination: Destination | None) -> str | None:
    """Return the destination for answers as text, checked."""
    if destination is None:
        return None
    if not isinstance(destination, Destination):
        raise InvalidDestinationError(
            f"reply_to is a destination, not a {type(destination).__name__}"
        )
    check_sendable(destination)
    return destination.text


def _priority(priority: int) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= 9:
        raise ValueError(f"a priority is a number from 0 to 9, not {priority!r}")
    return int(priority)


def _milliseconds(name: str, seconds: float) -> int:
    if not arguments.seconds(name, seconds) <= SECONDS_MAX:
        raise ValueError(
            f"{name} is a number of seconds from 0 to {SECONDS_MAX:g}, not {seconds!r}"
        )
    # Rounded up: nothing expires early.
    return math.ceil(seconds * 1000)
