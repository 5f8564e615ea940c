"""Histories of channels as rows of their traces."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from antiphon.checkers.peer_histories import Delivery, End, Event, Receipt, Sending, Showing
from antiphon.formats.channel_trace import ChannelEvent, Kind, life_text, view_text
from antiphon.model.peer_views import Level, MemberId, ViewId


def rows(
    history: Mapping[MemberId, Sequence[Event]], run: str = "run", cluster: str = "c"
) -> list[ChannelEvent]:
    """Return the rows; a process that crashed has no `end`, but one more life, in which nothing
    happens but a view of itself alone."""
    found: list[ChannelEvent] = []
    files: dict[str, int] = defaultdict(int)
    for life in sorted(history):
        files[life.name] += 1
        head = {"run": run, "process": life.name, "cluster": cluster, "life": life_text(life)}
        crashed = False
        for seq, event in enumerate(history[life], 1):
            crashed = isinstance(event, End) and event.crashed
            if not crashed:
                kind, columns = _columns(life, event)
                number = files[life.name]
                found.append(
                    ChannelEvent(**head, incarnation=number, seq=seq, kind=kind, **columns)
                )
        if crashed:
            number, again = 100 + files[life.name], MemberId(life.name, life.incarnation + 100)
            head["life"] = life_text(again)
            alone = {"view": view_text(ViewId(1, again)), "members": (life_text(again),)}
            alone |= {"leader": life_text(again), "together": (life_text(again),)}
            found.append(ChannelEvent(**head, incarnation=number, seq=1, kind="view", **alone))
    return found


def _columns(me: MemberId, event: Event) -> tuple[Kind, dict[str, Any]]:
    match event:
        case Sending(number, level, to):
            sent = None if to is None else _texts(to)
            return "send", {**_pack(me, number, level), "to": sent}
        case Receipt(sender, number, view):
            return "receive", {**_pack(sender, number, Level.SAFE), "view": view_text(view)}
        case Delivery(sender, number, level, view, closing):
            columns = _pack(sender, number, level)
            return "deliver", {**columns, "view": view_text(view), "closing": closing}
        case Showing(view, together, merged, past, founding, origin):
            return "view", {
                "view": view_text(view.id),
                "members": _texts(view.members),
                "leader": life_text(view.leader),
                "primary": view.primary,
                "seats": _texts(view.seats),
                "together": _texts(together),
                "merged": tuple(map(view_text, merged)),
                "past": tuple(map(view_text, past)),
                "founding": "" if founding is None else view_text(founding),
                "origin": "" if origin is None else view_text(origin),
            }
        case _:
            return "end", {}


def _pack(sender: MemberId, number: int, level: Level) -> dict[str, Any]:
    return {"sender": life_text(sender), "first": number, "count": 1, "level": int(level)}


def _texts(lives: Sequence[MemberId]) -> tuple[str, ...]:
    return tuple(map(life_text, lives))
