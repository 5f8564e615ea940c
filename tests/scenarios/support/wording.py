"""Values of the log in the words of scenario files."""

from __future__ import annotations

import re

from antiphon.formats import frames, pack
from antiphon.formats import server_messages as m
from antiphon.formats.entry import ANY, Entry, Kind, Membership, ReplicaId, decode_membership
from antiphon.formats.journal import Promise
from antiphon.log.pieces import size_of


def tell_id(id: ReplicaId) -> str:
    """Incarnations count from 1 in a scenario."""
    return f"{id.node}?" if id.incarnation == ANY else f"{id.node}" + "'" * (id.incarnation - 1)


def tell_membership(membership: Membership) -> str:
    names = (
        tell_id(member.id) if member.voter else f"({tell_id(member.id)})"
        for member in membership.members
    )
    return " ".join(names) or "unknown"


def tell_packs(packs: tuple[bytes, ...]) -> str:
    return " ".join(repr(pack.body(one).decode()) for one in packs)


def tell_entries(entries: tuple[Entry, ...], numbered: bool = True) -> str:
    """What the entries are, each with its index."""
    return ", ".join(
        (f"{entry.index} " if numbered else "")
        + {
            Kind.PACK: lambda e: repr(pack.body(e.payload).decode()),
            Kind.MEMBERSHIP: lambda e: f"members {tell_membership(decode_membership(e.payload))}",
            Kind.EPOCH: lambda e: f"epoch {e.epoch}",
            Kind.TICK: lambda e: "tick",
        }[Kind(entry.kind)](entry)
        for entry in entries
    )


def tell_records(records: tuple[Entry | Promise, ...]) -> str:
    promises = [
        f"epoch {r.epoch}" + (f" and its vote for {tell_id(r.vote)}" if r.vote else "")
        for r in records
        if isinstance(r, Promise)
    ]
    entries = tuple(r for r in records if isinstance(r, Entry))
    return ", ".join(promises + ([tell_entries(entries)] if entries else []))


def tell_reason(reason: str) -> str:
    """A sentence of the core's, with our names for incarnations."""
    return re.sub(
        r"\b(\d+)\.([0-9a-f]+)\b",
        lambda found: tell_id(ReplicaId(int(found[1]), int(found[2], 16))),
        reason,
    )


def tell_message(message: m.Message) -> str:
    return f"{type(message).__name__} {_content(message)}".rstrip()


def tell_span(entries: tuple[Entry, ...]) -> str:
    if not entries:
        return "nothing"
    first, last = entries[0].index, entries[-1].index
    return f"{first}" if first == last else f"{first}..{last}"


def _view(view: m.View) -> str:
    """What somebody said of itself."""
    seeks = " and seeks" if view.seeks else ""
    return f"{view.node} hears {' '.join(map(str, view.hears)) or 'nobody'}{seeks}"


def _round(number: int) -> str:
    return f", round {number}" if number else ""


def _content(message: m.Message) -> str:
    match message:
        case m.RequestVote(epoch, last, last_epoch, pre, forced):
            how = ", only asking" * pre + ", at the leader's wish" * forced
            return f"for epoch {epoch}, log up to {last} of epoch {last_epoch}{how}"
        case m.Vote(epoch, granted, pre):
            verb = "would be " * pre + ("granted" if granted else "refused")
            return f"{verb} in epoch {epoch}"
        case m.Append(epoch, prev, prev_epoch, entries, commit, round, has):
            after = f"after {prev} of {prev_epoch}, committed {commit}, has {has}{_round(round)}"
            return f"{tell_span(entries)} in epoch {epoch}, {after}"
        case m.Appended(epoch, match, round):
            return f"up to {match} in epoch {epoch}{_round(round)}"
        case m.Refused(epoch, prev, hint, hint_epoch, round):
            return f"after {prev} in epoch {epoch}, try {hint} of {hint_epoch}{_round(round)}"
        case m.SnapshotPart(_, attempt, meta, seq, _, last):
            end = ", the last" * last
            return f"{seq} of the snapshot at {meta.index}{end}, attempt {attempt}"
        case m.PartTaken(_, attempt, seq):
            return f"{seq}, attempt {attempt}"
        case m.TimeoutNow(epoch):
            return f"in epoch {epoch}"
        case m.Forward(packs):
            return tell_packs(packs)
        case m.Piece(name, at, data):
            return f"{at} to {at + len(data)} of {size_of(name)}"
        case m.PieceTaken(name, held):
            return f"{held} of {size_of(name)}"
        case m.AppendNamed(append, named):
            return f"{_content(append)}, {len(named)} by name"
        case m.ForwardNamed(packs, named):
            return f"{len(packs)}, {len(named)} by name"
        case m.ReadRequest(request):
            return str(request)
        case m.ReadAnswer(request, index):
            return f"{request}: {index if index >= 0 else 'not now'}"
        case m.Knock(who, echo):
            return f"of {tell_id(who)}" + (f", echoing {echo}" if echo else "")
        case m.Welcome(challenge):
            return f"with challenge {challenge}" if challenge else ""
        case m.Unwelcome(reason):
            return f"because {tell_reason(reason)}"
        case m.Ask(nonce, listed) | m.Promise(nonce, listed):
            return f"to found {nonce} with {' '.join(map(str, listed))}"
        case m.Found(nonce, membership):
            return f"{nonce} with {tell_membership(membership)}"
        case m.Hears(views):
            return "; ".join(map(_view, views))
        case m.Via(source, to, _, inner):
            told = tell_message(frames.decode_message(inner))
            return f"from {tell_id(source)} to {tell_id(to)}: {told}"
    raise AssertionError(message)
