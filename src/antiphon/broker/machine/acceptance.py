"""A pack becomes messages: they get their positions, and go to queues and subscriptions.

Mostly that is when the pack is applied; a pack that is staged or delayed (`transactions.py`) gets
its positions later, at the entry that makes it visible.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.broker.machine.keys import Owner
from antiphon.broker.machine.last_values import Keys, keys_in
from antiphon.broker.machine.pending_packs import Notes
from antiphon.broker.machine.queues.lanes import PLAIN, Special
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.errors import FormatError, ResourceAllocationError
from antiphon.formats import pack
from antiphon.formats.columns import Columns, Extra, decode_extra
from antiphon.formats.pack import PackHeader
from antiphon.log.effects import Accepted
from antiphon.model import destinations as names

GROUP_ID, GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
CLOSES = -1
"""The sequence number by which a sender says that its group ends."""

TIME_MAX = 1 << 50
"""Limit of the milliseconds that a message may wait or live: more than any program runs, and stamps
that far ahead fit the formats."""


def accept(b: State, header: PackHeader, notes: Notes, source: int = 0) -> None:
    """Make the messages of a pack visible. `source`: the earlier entry that has the pack; 0: the
    present one. Times to live begin with the present one."""
    first = b.take_positions(header.count)
    timed = [_until(special, b.stamp) for special in notes.specials]
    if names.is_queue(header.destination):
        queue = b.queues.named(header.destination)
        queue.put(first, b.position, timed)
        b.queues.assign(queue, b.stamp)
    else:
        _publish(b, notes.owner, header.destination, notes.keys, first, b.position)
        for queue in b.queues.shared_by(header.destination):
            is_member = queue.pattern in b.groups
            queue.put(first, b.position, _lasting(notes.specials) if is_member else timed)
            b.queues.assign(queue, b.stamp)
    group = b.groups.get(header.destination)
    if group is not None:
        group.count(header.count)
    b.accept(
        Accepted(
            b.index,
            first,
            header.count,
            b.stamp,
            group.view if group is not None else 0,
            header.destination,
            header.session,
            header.sequence,
            header.producer,
            source,
        )
    )


def _until(special: Special, stamp: int) -> Special:
    if not special.expires:
        return special
    return msgspec.structs.replace(special, expires=stamp + special.expires)


def _lasting(specials: Sequence[Special]) -> list[Special]:
    """Return the headers without expiry: in a group nothing expires, for its members get the same
    messages, however slow they are."""
    return [msgspec.structs.replace(special, expires=0) for special in specials]


def look_into(b: State, session: Session, header: PackHeader, payload: bytes) -> Notes:
    """Return the facts about the messages that are needed when they are accepted. Raise a
    `JMSError` if they cannot be taken."""
    flags = header.flags & (pack.SPECIAL | pack.EXTRAS)
    if not flags:
        return Notes(session.owner)
    keys = keys_in(payload) if header.destination in b.last_values else {}
    if full := _why_topic_cannot(b, header.destination, keys):
        raise ResourceAllocationError(full)
    specials = _specials(payload) if flags & pack.SPECIAL else ()
    return Notes(session.owner, specials, keys)


def _specials(payload: bytes) -> tuple[Special, ...]:
    """Return for each message of a pack its special headers. `expires` is the time to live beyond
    the delivery delay. Raise `ResourceAllocationError`."""
    return tuple(_special(extra) for extra in _extras(payload))


def delay_of(payload: bytes) -> int:
    """Return the delivery delay, which all messages of a pack share."""
    return _bounded(next(iter(_extras(payload))).delivery_delay)


def _bounded(time_ms: int) -> int:
    return max(0, min(time_ms, TIME_MAX))


def _extras(payload: bytes) -> list[Extra]:
    """Return the headers of the messages; of a message whose headers cannot be read, none: servers
    do not check them."""
    try:
        columns = Columns(payload)
        return [decode_extra(columns.extra(i)) for i in range(columns.count)]
    except FormatError:
        return [Extra()] * pack.read_header(payload).count


def _special(extra: Extra) -> Special:
    found = extra.properties.get(GROUP_ID)
    group = found if isinstance(found, str) else ""
    if len(group) > names.NAME_MAX:
        raise ResourceAllocationError(f"a {GROUP_ID} has at most {names.NAME_MAX} characters")
    closes = extra.properties.get(GROUP_SEQUENCE) == CLOSES
    lives = _bounded(extra.time_to_live) - _bounded(extra.delivery_delay)
    special = Special(
        max(0, min(extra.priority, 9)),
        # One that expires before it may be delivered is dropped as soon as it may be.
        max(lives, 1) if extra.time_to_live > 0 else 0,
        group,
        closes and bool(group),
    )
    return PLAIN if special == PLAIN else special


def _why_topic_cannot(b: State, destination: str, keys: Keys) -> str:
    """Return why the topic cannot take messages with these keys; empty: it can."""
    if not keys or destination not in b.last_values:
        return ""
    return b.last_values.why_not(destination, keys)


def _publish(b: State, owner: Owner, destination: str, keys: Keys, first: int, last: int) -> None:
    """Give messages of this client, `first` to `last`, to all who consume from the topic."""
    for subscription in b.topics.no_local.get(owner, {}).values():
        # Here and not in the dispatcher, which may come to them long after the session of their
        # sender has ended.
        if subscription.matches(destination):
            subscription.pass_over(b.topics.last_for(subscription), last)
    b.topics.published(destination, last)
    if keys and destination in b.last_values:
        b.last_values.take(destination, keys, first)
