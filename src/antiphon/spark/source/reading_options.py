"""The options of `spark.read.format("antiphon")`, each checked by name.

A *place* is where reading begins or ends: a position, a time, `earliest` or `latest`. Both ends are
included: messages that were accepted at the named time belong to both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from antiphon.spark.logs.log import Log
from antiphon.spark.source import options

EARLIEST, LATEST = "earliest", "latest"
MESSAGES_PER_TASK = 500_000
"""Messages of a task of a second or less: few enough of them, and no core waits long for
another."""

OPTIONS = (
    "url",
    "journal",
    "archive",
    "topic",
    "startingPosition",
    "endingPosition",
    "maxMessagesPerTrigger",
    "messagesPerTask",
    "pushFilters",
    "purpose",
)
STREAM_ONLY = ("maxMessagesPerTrigger", "purpose")
BATCH_ONLY = ("endingPosition", "pushFilters")

Place = int | datetime | str
"""A position; a time; EARLIEST or LATEST."""


class ReadingOptions(NamedTuple):
    """The options of a read, parsed and checked."""

    url: str
    journal: str
    archive: str
    topics: tuple[str, ...]
    start: Place
    end: Place
    messages_per_trigger: int  # 0: no limit
    messages_per_task: int
    push_filters: bool
    purpose: str  # of a stream: its checkpoint must have the same; empty: any


def parse(given: Mapping[str, str], *, stream: bool) -> ReadingOptions:
    """Return the parsed options. Raise `ValueError`, with the name of the option and the allowed
    values."""
    values = options.known(given, OPTIONS)
    for name in BATCH_ONLY if stream else STREAM_ONLY:
        if name in values:
            raise ValueError(f"option {name} is for {'read' if stream else 'readStream'}")
    return ReadingOptions(
        *_where(values),
        _topics(values.get("topic", "")),
        _place("startingPosition", values.get("startingPosition", EARLIEST)),
        _place("endingPosition", values.get("endingPosition", LATEST)),
        _number(values, "maxMessagesPerTrigger", 0),
        _number(values, "messagesPerTask", MESSAGES_PER_TASK),
        _choice(values, "pushFilters"),
        values.get("purpose", ""),
    )


def _where(values: Mapping[str, str]) -> tuple[str, str, str]:
    url, journal, archive = (values.get(name, "") for name in ("url", "journal", "archive"))
    if bool(url) + bool(journal) != 1 and not (archive and not url and not journal):
        raise ValueError(
            "say where to read: option url, or journal (a server's folder), or archive; or archive "
            "with one of the others, which has what is newer"
        )
    return url, journal, archive


def _topics(text: str) -> tuple[str, ...]:
    topics = options.topics(text)
    if not topics:
        raise ValueError("option topic is missing: a topic, or several with commas between them")
    return topics


def _place(name: str, text: str) -> Place:
    if text in (EARLIEST, LATEST):
        return text
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(
            f"option {name} is {EARLIEST}, {LATEST}, a position from 1 on, or a time with its zone "
            f"like 2026-11-15T22:00:00Z, not {text!r}"
        )
    return time


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"option {name} is a number of messages from 1 on, not {text!r}")
    return int(text)


def _choice(values: Mapping[str, str], name: str) -> bool:
    text = values.get(name, "false").lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name} is true or false, not {text!r}")
    return text == "true"


def log_of(given: ReadingOptions) -> Log:
    """Return the log to read. Raise an error if its place is wrong."""
    if not given.archive:
        return _newest(given)
    from antiphon.spark.archive.log import ArchiveLog, Joined

    archive = ArchiveLog(given.archive)
    return Joined(archive, _newest(given)) if given.url or given.journal else archive


def _newest(given: ReadingOptions) -> Log:
    if given.url:
        from antiphon.spark.logs.server_log import ServerLog

        return ServerLog(given.url)
    from antiphon.spark.logs.journal_log import JournalLog

    return JournalLog(given.journal)


def stamp_at(time: datetime) -> int:
    """Return the first of the log's ms that is not before this time."""
    return max(0, -(-(time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)))


def stamp_after(time: datetime) -> int:
    """Return the first of the log's ms that is after this time."""
    return max(0, (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + 1)
