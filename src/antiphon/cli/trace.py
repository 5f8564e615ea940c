"""`antiphon trace show`: the events of one trace file, a line each."""

from __future__ import annotations

import argparse
from pathlib import Path

from antiphon.formats.trace import TraceEvent, decode
from antiphon.terminal.lines import say, say_json

# Shown in every line's fixed part, so not again among the further columns.
_IN_PREFIX = {"run", "process", "incarnation", "seq", "kind"}


def run(args: argparse.Namespace) -> int:
    try:
        data = Path(args.file).read_bytes()
    except OSError as error:
        say(f"cannot read {args.file}: {error.strerror}", error=True)
        return 2
    events, torn_bytes = decode(data)
    for event in events:
        if args.json:
            say_json(_as_json(event))
        else:
            say(_line(event))
    if torn_bytes:
        say(f"{torn_bytes} bytes of a torn tail were left out", error=True)
    return 0


def _line(event: TraceEvent) -> str:
    source = f"{event.run} {event.process}/{event.incarnation}"
    return f"{source} {event.seq:>6} {event.kind:<11} {_further_columns(event)}".rstrip()


def _further_columns(event: TraceEvent) -> str:
    columns = _as_json(event).items()
    return " ".join(f"{name}={value!r}" for name, value in columns if name not in _IN_PREFIX)


def _as_json(event: TraceEvent) -> dict[str, object]:
    """Return the columns of this event that are not at their defaults."""
    plain = TraceEvent(run="", process="", incarnation=0, seq=0, kind=event.kind)
    return {
        name: getattr(event, name)
        for name in event.__struct_fields__
        if name in _IN_PREFIX or getattr(event, name) != getattr(plain, name)
    }
