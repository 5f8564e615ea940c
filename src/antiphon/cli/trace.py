"""`antiphon trace show`: the events of one trace file, a line each; `antiphon trace check`: judges
whether groups and channels kept their promises, by the traces of a folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.checkers import channel_traces, groups
from antiphon.errors import ConfigurationError, FormatError
from antiphon.formats import channel_trace
from antiphon.formats.channel_trace import ChannelEvent, ChannelReading
from antiphon.formats.trace import Reading, TraceEvent
from antiphon.terminal.lines import say, say_json

# Shown in every line's fixed part, so not again among the further columns.
_IN_PREFIX = {"run", "process", "incarnation", "seq", "kind"}
_OF_A_PROCESS = ("crash", "recover")  # and of no group


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon trace show`, and return its exit code."""
    try:
        data = Path(args.file).read_bytes()
    except OSError as error:
        say(f"cannot read {args.file}: {error.strerror}", error=True)
        return 2
    is_channel = data.startswith(channel_trace.MAGIC)
    reading = ChannelReading(data) if is_channel else Reading(data)
    for event in reading:
        if args.json:
            say_json(_as_json(event))
        else:
            say(_line(event))
    if reading.torn_bytes:
        say(f"{reading.torn_bytes} bytes of a torn tail were left out", error=True)
    return 0


def _line(event: TraceEvent | ChannelEvent) -> str:
    source = f"{event.run} {event.process}/{event.incarnation}"
    return f"{source} {event.seq:>6} {event.kind:<11} {_further_columns(event)}".rstrip()


def _further_columns(event: TraceEvent | ChannelEvent) -> str:
    columns = _as_json(event).items()
    return " ".join(f"{name}={value!r}" for name, value in columns if name not in _IN_PREFIX)


def _as_json(event: TraceEvent | ChannelEvent) -> dict[str, object]:
    """Return the columns of this event that are not at their defaults."""
    plain: TraceEvent | ChannelEvent
    if isinstance(event, TraceEvent):
        plain = TraceEvent(run="", process="", incarnation=0, seq=0, kind=event.kind)
    else:
        plain = ChannelEvent(
            run="", process="", incarnation=0, seq=0, kind=event.kind, cluster="", life=""
        )
    return {
        name: getattr(event, name)
        for name in event.__struct_fields__
        if name in _IN_PREFIX or getattr(event, name) != getattr(plain, name)
    }


# -- Judging ---------------------------------------------------------------------------------------


class Violation(NamedTuple):
    """A broken promise: its rule, run, group or cluster, and a sentence."""

    rule: str
    run: str
    group: str
    text: str


def check(args: argparse.Namespace) -> int:
    """Carry out `antiphon trace check`, and return its exit code: 1 if there are violations."""
    folder = Path(args.dir)
    of_groups = _read(folder, "*.trace", Reading)
    of_channels = _read(folder, "*.channel", ChannelReading)
    if not of_groups and not of_channels:
        raise ConfigurationError(f"{folder} has no files that end in .trace or .channel")
    violations = [*_of_groups(of_groups), *_of_channels(of_channels, args.complete)]
    events = len(of_groups) + len(of_channels)
    if args.json:
        say_json({"events": events, "violations": [one._asdict() for one in violations]})
    else:
        for one in violations:
            say(f"VIOLATION of {one.rule}: {one.text} (group {one.group}, run {one.run})")
        say(f"{events} events, {len(violations)} violations")
    return 1 if violations else 0


def _read(folder: Path, pattern: str, reading: Any) -> list[Any]:
    """Return the events of all files, of each up to a torn tail."""
    events: list[Any] = []
    for path in sorted(folder.glob(pattern)):
        try:
            events += reading(path.read_bytes())
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None
    return events


def _of_groups(events: list[TraceEvent]) -> Iterator[Violation]:
    """Yield the violations of groups, which are the destinations with views."""
    for run, group in sorted({(e.run, e.group) for e in events if e.kind == "view"}):
        own = [e for e in events if e.run == run and (e.group == group or e.kind in _OF_A_PROCESS)]
        for found in groups.check(own):
            yield Violation(found.rule, run, group, found.text)


def _of_channels(events: list[ChannelEvent], complete: bool) -> Iterator[Violation]:
    for cluster, finding in channel_traces.check(events, complete):
        yield Violation(finding.rule, cluster.run, cluster.name, finding.text)
