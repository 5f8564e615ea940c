"""The state's way into a snapshot and back.

Promises: equal states give equal bytes on every server; a restored state goes on exactly as the one
that was written. Everything is written in the order in which it came, which decides whose turn it
is. `PARTS` is the one list of the parts of a snapshot: a part that is missing there is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from antiphon.broker.machine.deadlines import GROUP, HELD, SESSION, Deadline, GroupKey
from antiphon.broker.machine.groups.group import Group, Past
from antiphon.broker.machine.pending_packs import Parked
from antiphon.broker.machine.queues.lanes import Special
from antiphon.broker.machine.queues.queue import Queue
from antiphon.broker.machine.sessions.producers import Producer
from antiphon.broker.machine.sessions.servers import Life, Serving
from antiphon.broker.machine.sessions.session import Session
from antiphon.broker.machine.state import State
from antiphon.broker.machine.topics import Subscription

ROWS_A_CHUNK = 1024

encoder = msgspec.msgpack.Encoder()


def write(state: State) -> Iterator[bytes]:
    """Return the chunks of a snapshot. They are made at once, for the state goes on changing while
    the server stores them."""
    chunks = (
        encoder.encode((part.name, rows))
        for part in PARTS
        for rows in _some_at_a_time(iter(part.rows(state)))
    )
    return iter(list(chunks))


def read(state: State, chunks: Iterator[bytes]) -> None:
    """Take the state from the chunks of a snapshot."""
    state.reset()
    for chunk in chunks:
        name, rows = msgspec.msgpack.decode(chunk)
        _RESTORE[name](state, rows)
    for deadline in _deadlines(state):
        state.deadlines.add(*deadline)
    for queue in state.queues.values():
        queue.expire(state.stamp)  # drops no message: only consumers' messages may have expired
        state.queues.watch(queue)


def _deadlines(state: State) -> Iterator[Deadline]:
    for session in state.sessions.values():
        if session.expires:
            yield session.expires, SESSION, session.number
    for queue in state.queues.values():
        if (release := queue.next_release) is not None:
            yield release, HELD, queue.name
    for group in state.groups.values():
        for name in ("", *group.members):
            if (stamp := group.due(name)) is not None:
                yield stamp, GROUP, GroupKey(group.destination, name)


def _some_at_a_time(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while some := list(islice(rows, ROWS_A_CHUNK)):
        yield some


# -- Parts -----------------------------------------------------------------------------------------


def _head(state: State, rows: list[Any]) -> None:
    *numbers, contexts = rows
    state.restore_head(*numbers)
    state.servers.restore_contexts(contexts)


def _sessions(state: State, rows: list[Any]) -> None:
    for row in rows:
        state.sessions.add(Session.from_state(row))


def _subscriptions(state: State, rows: list[Any]) -> None:
    for row in rows:
        state.topics.add(Subscription.from_state(row))


def _last(state: State, rows: list[Any]) -> None:
    state.topics.restore_last(rows)


def _last_value_topics(state: State, rows: list[Any]) -> None:
    state.last_values.restore_topics(rows)


def _last_values(state: State, rows: list[Any]) -> None:
    state.last_values.restore_rows(rows)


def _queues(state: State, rows: list[Any]) -> None:
    for row in rows:
        state.queues.restore(Queue.from_state(row))


def _waiting(state: State, rows: list[Any]) -> None:
    for name, *waiting in rows:
        state.queues[name].restore_waiting(*waiting)


def _held(state: State, rows: list[Any]) -> None:
    for name, until, first, last, deliveries in rows:
        state.queues[name].hold(until, (first, last, deliveries))


def _special(state: State, rows: list[Any]) -> None:
    for name, first, last, special in rows:
        state.queues[name].restore_special(first, last, msgspec.convert(special, Special))


def _reasons(state: State, rows: list[Any]) -> None:
    for name, first, last, reason in rows:
        state.queues[name].restore_reason(first, last, reason)


def _delayed(state: State, rows: list[Any]) -> None:
    for due, parked in rows:
        state.pending.delay(due, Parked.from_state(parked))


def _parked(state: State, rows: list[Any]) -> None:
    for session, parked in rows:
        state.sessions[session].stage(Parked.from_state(parked))
        state.pending.park()


def _staged(state: State, rows: list[Any]) -> None:
    for handle, expires in rows:
        state.pending.stage(handle, expires, [])


def _staged_packs(state: State, rows: list[Any]) -> None:
    for handle, parked in rows:
        state.pending.restore_staged(handle, Parked.from_state(parked))


def _tokens(state: State, rows: list[Any]) -> None:
    state.pending.restore_tokens(rows)


def _groups(state: State, rows: list[Any]) -> None:
    for row in rows:
        state.groups.restore(Group.from_state(row))


def _past_groups(state: State, rows: list[Any]) -> None:
    state.groups.restore_past(rows)


def _past_floor(state: State, rows: list[Any]) -> None:
    state.groups.restore_floor(Past(*rows[0]))


def _producers(state: State, rows: list[Any]) -> None:
    for producer in msgspec.convert(rows, list[Producer]):
        state.producers.restore(producer)


def _serving(state: State, rows: list[Any]) -> None:
    for serving in msgspec.convert(rows, list[Serving]):
        state.servers.restore_serving(serving)


def _lives(state: State, rows: list[Any]) -> None:
    for life in msgspec.convert(rows, list[Life]):
        state.servers.restore_life(life)


def _incarnations(state: State, rows: list[Any]) -> None:
    state.servers.restore_incarnations(rows)


def _ended(state: State, rows: list[Any]) -> None:
    state.sessions.restore_ended(rows)


class Part(NamedTuple):
    """One part of a snapshot: how it is written, and how it is read again."""

    name: str
    rows: Callable[[State], Iterable[Any]]
    restore: Callable[[State, list[Any]], None]


def _of_queues(
    rows: Callable[[Queue], Iterable[Iterable[Any]]],
) -> Callable[[State], Iterable[Any]]:
    """Return a function for the rows of every queue, each with the queue's name in front."""
    return lambda s: ((q.name, *row) for q in s.queues.values() for row in rows(q))


PARTS = (
    Part("head", lambda s: [s.position, s.digest, s.stamp, s.servers.contexts], _head),
    Part("session", lambda s: (one.state() for one in s.sessions.values()), _sessions),
    Part(
        "subscription",
        lambda s: (one.state() for one in s.topics.subscriptions.values()),
        _subscriptions,
    ),
    Part("last", lambda s: s.topics.last.items(), _last),
    Part("last value topic", lambda s: s.last_values.topics(), _last_value_topics),
    Part("last value", lambda s: s.last_values.rows(), _last_values),
    Part("queue", lambda s: (q.state() for q in s.queues.values()), _queues),
    Part("waiting", _of_queues(lambda q: q.waiting()), _waiting),
    Part("held", _of_queues(lambda q: sorted(q.held)), _held),
    Part("special", _of_queues(lambda q: q.special), _special),
    Part("reason", _of_queues(lambda q: q.reasons), _reasons),
    Part("delayed", lambda s: ((d, p.state()) for d, p in s.pending.delayed.values()), _delayed),
    Part(
        "parked",
        lambda s: (
            (one.number, p.state()) for one in s.sessions.values() for p in one.staged.values()
        ),
        _parked,
    ),
    Part("staged", lambda s: ((h, one.expires) for h, one in s.pending.staged.items()), _staged),
    Part(
        "staged pack",
        lambda s: ((h, p.state()) for h, one in s.pending.staged.items() for p in one.packs),
        _staged_packs,
    ),
    Part("token", lambda s: s.pending.tokens.items(), _tokens),
    Part("group", lambda s: (g.state() for g in s.groups.values()), _groups),
    Part("past group", lambda s: ((n, *past) for n, past in s.groups.past.items()), _past_groups),
    Part(
        "past floor",
        lambda s: [s.groups.past_floor] if s.groups.past_floor.view else [],
        _past_floor,
    ),
    Part("producer", lambda s: s.producers.values(), _producers),
    Part("serving", lambda s: s.servers.serving.values(), _serving),
    Part("life", lambda s: s.servers.lives.values(), _lives),
    Part("incarnation", lambda s: s.servers.incarnations.items(), _incarnations),
    Part("ended", lambda s: s.sessions.ended.items(), _ended),
)

_RESTORE = {part.name: part.restore for part in PARTS}
