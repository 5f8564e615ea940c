"""The traces of a simulated run, a file for each life, as real processes write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from antiphon.checkers.peer_histories import Delivery, End, Event, Receipt, Sending, Showing
from antiphon.formats.channel_trace import (
    ChannelEvent,
    encode_event,
    encode_header,
    life_text,
    view_text,
)
from antiphon.model.peer_views import MemberId, ViewId
from antiphon.sim.peers.judge import Judge

CLUSTER = "sim"


def write(judge: Judge, directory: Path, run: str) -> None:
    """Write what each life did. A life that was killed has no end."""
    directory.mkdir(parents=True, exist_ok=True)
    lives: dict[str, int] = {}
    for me, events in judge.histories.items():
        lives[me.name] = lives.get(me.name, 0) + 1
        path = directory / f"{run}-{me.name}-{lives[me.name]}.channel"
        rows = [
            encode_event(
                ChannelEvent(
                    run=run,
                    process=me.name,
                    incarnation=lives[me.name],
                    seq=seq,
                    cluster=CLUSTER,
                    life=life_text(me),
                    at=at_us / 1e6,
                    **_columns(me, event),
                )
            )
            for seq, (event, at_us) in enumerate(zip(events, judge.times_us[me], strict=True), 1)
            if event != End(crashed=True)
        ]
        path.write_bytes(encode_header() + b"".join(rows))


def _columns(me: MemberId, event: Event) -> dict[str, Any]:
    match event:
        case Sending(number, level, to):
            whom = None if to is None else _lives(to)
            return {"kind": "send", **_message(me, number), "level": level, "to": whom}
        case Receipt(sender, number, view):
            return {"kind": "receive", **_message(sender, number), "view": view_text(view)}
        case Delivery(sender, number, level, view, closing):
            columns = _message(sender, number) | {"level": level, "view": view_text(view)}
            return {"kind": "deliver", **columns, "closing": closing}
        case Showing(view, together, merged, past, founding, origin):
            return {
                "kind": "view",
                "view": view_text(view.id),
                "members": _lives(view.members),
                "leader": life_text(view.leader),
                "primary": view.primary,
                "seats": _lives(view.seats),
                "together": _lives(together),
                "merged": _ids(merged),
                "past": _ids(past),
                "founding": "" if founding is None else view_text(founding),
                "origin": "" if origin is None else view_text(origin),
            }
    return {"kind": "end"}


def _message(sender: MemberId, number: int) -> dict[str, Any]:
    return {"sender": life_text(sender), "first": number, "count": 1}


def _lives(members: Sequence[MemberId]) -> tuple[str, ...]:
    return tuple(map(life_text, members))


def _ids(views: Sequence[ViewId]) -> tuple[str, ...]:
    return tuple(map(view_text, views))
