"""The options of Spark's format `antiphon` that readers and writers share, and the spelling of
destinations in them.

Spark takes options in any case, and hands them on in small letters. It hands on some of its own
too: the place of a stream's checkpoint, its name, and the path that `load`, `save` or `start` got.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from antiphon.errors import InvalidDestinationError
from antiphon.model import destinations as names

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Spark's own options of a stream that is written."""

_PATHS = ("path", "paths")


def known(given: Mapping[str, str], there_are: Sequence[str]) -> dict[str, str]:
    """Return the options as they are spelled here. Raise `ValueError`, with the name of the option
    and the allowed ones."""
    spelled = {name.lower(): name for name in there_are}
    values: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() not in spelled:
            raise ValueError(f"{_unknown(name, spelled)}; there are: {', '.join(there_are)}")
        if not value:
            raise ValueError(f"option {spelled[name.lower()]} is empty: leave it out, or fill it")
        values[spelled[name.lower()]] = value
    return values


def _unknown(name: str, spelled: Mapping[str, str]) -> str:
    if name.lower() in _PATHS:
        return f"option {name!r} is not known: no path is read or written, but the option topic"
    nearest = get_close_matches(name.lower(), spelled, 1)
    hint = f" (did you mean {spelled[nearest[0]]}?)" if nearest else ""
    return f"option {name!r} is not known{hint}"


def topics(text: str) -> tuple[str, ...]:
    r"""Return the names, or patterns, in an option, with commas between them. A comma inside a name
    is written `\,`, and a backslash before a comma or another backslash `\\`."""
    parts = [
        re.sub(r"\\([\\,])", r"\1", part.strip())
        for part in re.findall(r"(?:\\[\\,]|[^,])+", text, re.DOTALL)
    ]
    return tuple(dict.fromkeys(_topic(part) for part in parts if part))


def _topic(text: str) -> str:
    """Return the name of a topic, which may be written `topic:NAME`."""
    kind, colon, name = text.partition(":")
    if not (colon and kind in names.KINDS):
        kind, name = names.TOPIC, text
    if kind != names.TOPIC:
        raise ValueError(
            f"option topic: {text!r} cannot be read, since only topics are tables: a queue's "
            f"messages are for its consumers alone. A topic of this name is topic:{text}"
        )
    try:
        names.check_name(name)
    except InvalidDestinationError as error:
        raise ValueError(f"option topic: {error}") from None
    return name
