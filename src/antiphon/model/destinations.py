"""Where messages go: `topic:Alarms`, `queue:orders`, and what lives as long as its connection,
`temp-topic:5f3a.1`, `temp-queue:5f3a.2` (the session in hexadecimal, and a number).

A topic's name is a path with dots: `dealing.stock.ibm`. A subscription may name many: `*` stands
for one part, `>` at the end for one or more. Everything here raises `InvalidDestinationError`.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.errors import InvalidDestinationError

TOPIC, QUEUE, TEMP_TOPIC, TEMP_QUEUE = "topic", "queue", "temp-topic", "temp-queue"
KINDS = (TOPIC, QUEUE, TEMP_TOPIC, TEMP_QUEUE)
NAME_MAX = 1024

DEAD_LETTERS = "queue:DLQ"
"""Where messages go that were delivered too often. From there they go nowhere else."""


def parse(text: str) -> tuple[str, str]:
    """Kind and name of something to send to or to consume from; a topic may be a pattern."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS:
        raise InvalidDestinationError(
            f"{text!r} is not a destination: write it as topic:NAME or queue:NAME"
        )
    check_name(name)
    if kind != TOPIC and is_pattern(name):
        raise InvalidDestinationError(f"{text!r} has a wildcard, and only topics may")
    return kind, name


def check_name(name: str) -> None:
    """Raise `InvalidDestinationError` unless this is the name of a destination, or a pattern."""
    parts = name.split(".")
    wrong = ""
    if not name or len(name) > NAME_MAX:
        wrong = f"a name has 1 to {NAME_MAX} characters"
    elif not name.isprintable() or " " in name:
        wrong = "a name has neither blanks nor control characters"
    elif "" in parts:
        wrong = "a part between two dots is empty"
    elif ">" in parts[:-1]:
        wrong = "> stands for all that follows, so nothing may follow it"
    if wrong:
        raise InvalidDestinationError(f"{name[:80]!r} is not a name for a destination: {wrong}")


def is_pattern(name: str) -> bool:
    """Return whether a name stands for many destinations."""
    return any(part in ("*", ">") for part in name.split("."))


def is_queue(destination: str) -> bool:
    """Return whether a destination is a queue."""
    return destination.startswith(("queue:", "temp-queue:"))


def is_temporary(destination: str) -> bool:
    """Return whether a destination lives only as long as its session."""
    return destination.startswith("temp-")


def owner(destination: str) -> int:
    """Return the session that a temporary destination belongs to."""
    session = destination.partition(":")[2].partition(".")[0]
    try:
        return int(session, 16)
    except ValueError:
        raise InvalidDestinationError(f"{destination!r} names no session") from None


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a subscription to `pattern` receives the messages to a
    destination. Both with their kinds: `topic:a.*` receives `topic:a.b`."""
    kind, name = parse(pattern)
    if not is_pattern(name):
        return pattern.__eq__
    wanted = name.split(".")
    prefix = kind + ":"

    def matches(destination: str) -> bool:
        if not destination.startswith(prefix):
            return False
        parts = destination[len(prefix) :].split(".")
        if wanted[-1] == ">":
            if len(parts) < len(wanted):
                return False
        elif len(parts) != len(wanted):
            return False
        return all(want in ("*", ">", part) for want, part in zip(wanted, parts, strict=False))

    return matches
