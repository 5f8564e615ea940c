"""The same entries give the same state, byte for byte, by whatever way a replica came to it."""

import itertools
import random

import pytest

from antiphon.broker.machine import keys
from antiphon.broker.machine.machine import Broker
from antiphon.formats import commands as command
from antiphon.formats import pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import PRIORITY, Extra
from tests.broker.support.bare_broker import BareBroker

SESSIONS = range(1, 6)
DESTINATIONS = ("topic:a", "topic:a.b", "queue:q", "queue:r", "temp-queue:1.1", "temp-topic:2.1")
PATTERNS = (*DESTINATIONS, "queue:DLQ", "topic:>", "topic:a.*")


def anything(bare: BareBroker, draw: random.Random) -> None:
    """One step of several clients that do what they like."""
    session = draw.choice(SESSIONS)
    known = bare.broker.sessions.get(session)
    if known is None or draw.random() < 0.05:
        bare.numbers.pop(session, None) if known is None else None
        bare.sequences = {k: v for k, v in bare.sequences.items() if k[0] != session or known}
        bare.attach(
            session,
            node=draw.randrange(1, 4),
            life=draw.randrange(1, 3),
            client_id=draw.choice(("", f"c{session}", "shared")),
            resume=known is not None,
            attempt=known.attempt + 1
            if known
            else bare.broker.sessions.ended.get(session, (0, 0))[0] + 1,
            lease_ms=draw.choice((100, 5000)),
        )
        return
    step = draw.randrange(10)
    if step < 2:
        bare.publish(session, draw.choice(DESTINATIONS), draw.randrange(1, 20))
    elif step < 3:
        some_pack(bare, session, draw)
    elif step < 4:
        keys = draw.choices((None, "k", "l", "m"), k=draw.randrange(1, 6))
        bare.publish_keys(session, draw.choice(DESTINATIONS), *keys)
    elif step < 6:
        bare.ack(session, *some_rows(bare, session, draw))
    elif step < 9:
        bare.ask(session, a_request(bare, session, draw))
    elif draw.random() < 0.3:
        bare.new_leader()
    elif draw.random() < 0.5:
        bare.detach(session)
    else:
        bare.wait(draw.choice((10, 1000, 6000)))


def some_pack(bare: BareBroker, session: int, draw: random.Random) -> None:
    """With something special about its messages, or staged, or both."""
    delay = draw.choice((0, 0, 50, 3000))
    groups = ({}, {}, {"JMSXGroupID": "g"}, {"JMSXGroupID": "h", "JMSXGroupSeq": -1})
    extras = [
        Extra(
            draw.choice(groups),
            priority=draw.choice((1, PRIORITY, 9)),
            time_to_live=draw.choice((0, 40, 4000)),
            delivery_delay=delay,
        )
        for _ in range(draw.randrange(1, 6))
    ]
    flags = draw.choice((0, pack.STAGED))
    destination = draw.choice(("queue:q", *DESTINATIONS))
    bare.publish_each(session, destination, *extras, flags=flags)


def some_rows(bare: BareBroker, session: int, draw: random.Random) -> list[cw.AckRow]:
    rows = []
    for consumer in list(bare.broker.sessions[session].consumers.values())[:3]:
        spans = bare.broker.assigned(consumer)
        kind = draw.choice((cw.ACK, cw.ACK, cw.ACK, cw.DEAD))
        rows += [cw.AckRow(consumer.number, *span[:2], kind=kind) for span in spans[:2]]
        upto = draw.randrange(bare.broker.position + 1)
        first = draw.choice((0, max(0, upto - 3)))
        rows += [] if spans else [cw.AckRow(consumer.number, first, upto, kind=kind)]
        kind = draw.choice((cw.CLAIM, cw.CLAIM, cw.SKIP))
        rows.append(cw.AckRow(consumer.number, first, upto, kind=kind))
    return rows


def a_transaction(bare: BareBroker, session: int, draw: random.Random) -> cw.Body:
    """About some of what is staged."""
    own = bare.broker.sessions[session].staged.values()
    sent = [(p.header.producer, p.header.sequence, p.header.last) for p in own]
    some = tuple(draw.sample(sent, draw.randrange(len(sent) + 1)))
    handles = tuple(
        draw.sample(list(bare.broker.pending.staged), min(1, len(bare.broker.pending.staged)))
    )
    rows = [row for row in some_rows(bare, session, draw) if row.kind in (cw.ACK, cw.DEAD)]
    token = draw.choice(("", "", "t", "u"))
    commit = cw.Commit(tuple(rows), some, token, draw.choice(((), handles)))
    return draw.choice((commit, commit, cw.Stage(some), cw.Discard(some)))


def a_request(bare: BareBroker, session: int, draw: random.Random) -> cw.Body:
    if draw.random() < 0.25:
        return a_transaction(bare, session, draw)
    consumers = list(bare.broker.sessions[session].consumers) or [1]
    number = draw.choice(consumers)
    first = draw.randrange(1, bare.broker.position + 2)
    kept = (cw.Kept(number, first, first + draw.randrange(5), draw.randrange(1, 4)),)
    return draw.choice(
        (
            cw.OpenConsumer(draw.randrange(1, 9), draw.choice(PATTERNS), draw.randrange(1, 30)),
            cw.OpenConsumer(
                draw.randrange(1, 9), draw.choice(PATTERNS), 5, durable=draw.choice(("x", "y"))
            ),
            cw.OpenConsumer(
                draw.randrange(1, 9),
                draw.choice(PATTERNS),
                5,
                draw.choice(("", "x")),
                draw.choice(("", "a  = 1", "a = 2", "a =")),
                no_local=draw.random() < 0.5,
            ),
            cw.OpenConsumer(
                draw.randrange(1, 9),
                draw.choice(PATTERNS),
                draw.randrange(1, 6),
                selector=draw.choice(("", "a = 1")),
                shared=draw.choice(("", "s")),
                browse=draw.random() < 0.2,
                exclusive=draw.random() < 0.2,
            ),
            cw.OpenConsumer(
                draw.randrange(1, 9), draw.choice(PATTERNS), 5, durable="x", shared="x"
            ),
            cw.OpenConsumer(draw.randrange(1, 9), "queue:q", draw.randrange(1, 4)),
            cw.Widen(number, draw.randrange(1, 60)),
            cw.CreateTopic(draw.choice(DESTINATIONS)),
            cw.CloseConsumer(number, kept),
            cw.Return(kept),
            cw.Unsubscribe("x"),
            cw.CreateTemporary(draw.choice(("temp-queue:1.1", "temp-topic:2.1"))),
            cw.DeleteTemporary(draw.choice(("temp-queue:1.1", "temp-topic:2.1"))),
            cw.OpenProducer(draw.randrange(1, 4), draw.choice(("p", "q"))),
            cw.CloseSession(kept),
        )
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_way_to_a_state_gives_the_same_bytes(seed: int) -> None:
    draw = random.Random(seed)
    bare = BareBroker()
    marks = sorted(draw.sample(range(400), 4))
    taken: list[tuple[int, list[bytes]]] = []
    for step in range(400):
        anything(bare, draw)
        if step in marks:
            taken.append((len(bare.entries), bare.snapshot()))
    final, live = bare.snapshot(), bare.broker.live()
    for upto, chunks in [(0, BareBroker().snapshot()), *taken]:
        other = Broker()
        other.restore(iter(chunks))
        assert list(other.snapshot()) == chunks
        for entry in bare.entries[upto:]:
            other.apply(entry)
        assert list(other.snapshot()) == final
        assert (other.digest, other.live()) == (bare.broker.digest, live)
        assert other.next_deadline() == bare.broker.next_deadline()
        assert (other.parked(), other.pending.count) == (
            bare.broker.parked(),
            len(other.parked()),
        )


def test_a_snapshot_has_something_of_everything() -> None:
    bare = BareBroker()
    bare.attach(1, client_id="c")
    bare.attach(2, lease_ms=5000)
    bare.attach(3)
    bare.close(3)
    bare.ask(1, cw.OpenProducer(1, "p"))
    bare.publish(1, "queue:q", 2, producer=1)
    bare.publish(1, "topic:>", producer=1)  # is refused
    bare.ask(1, cw.CreateTemporary("temp-queue:1.1"))
    bare.open(1, 1, "topic:a.*", durable="d")
    bare.open(2, 1, "queue:q", prefetch=1)
    bare.publish(1, "topic:a.b", 6)
    bare.publish(1, "queue:q", 4)
    bare.publish(1, "temp-queue:1.1")
    bare.ask(1, cw.CreateTopic("topic:v"))
    bare.ask(1, cw.CreateTopic("topic:w"))
    bare.publish_keys(1, "topic:v", "k", None)
    bare.publish_keys(1, "topic:v", "k", flags=pack.STAGED)
    bare.ack(1, (1, 0, 3), (1, 5, 5))
    bare.close_consumer(1, 1, cw.Kept(1, 4, 4, 3))
    bare.open(1, 2, "topic:v", durable="e", selector="a = 1", no_local=True)
    whose = [s.no_local for s in bare.broker.topics.subscriptions.values()]
    assert whose == [None, keys.owner("c", 1)]
    bare.open(2, 2, "queue:q", prefetch=2)
    bare.close_consumer(2, 2)
    bare.detach(2)
    one = bare.broker
    waiting = [list(q.waiting()) for q in one.queues.values()]
    assert waiting == [
        [(2, 2, 0, 4, False), (9, 9, 0, 4, False), (10, 12, 0, 4, True)],
        [(13, 13, 0, 4, True)],
    ]
    assert [list(s.acked) for s in one.topics.subscriptions.values()] == [
        [(5, 5, 1)],
        [(15, 15, 1)],
    ]
    assert [list(s.returned) for s in one.topics.subscriptions.values()] == [[(4, 4, 3)], []]
    assert list(one.last_values.rows()) == [("topic:v", "k", 14)]
    assert list(one.last_values.topics()) == ["topic:v", "topic:w"]
    assert [p.last for p in one.producers.values()] == [3]
    assert list(one.sessions.ended) == [3]
    assert len(one.sessions[1].refusals) == len(one.sessions[1].temporaries) == 1
    chunks = bare.snapshot()
    other = Broker()
    other.restore(iter(chunks))
    assert list(other.snapshot()) == chunks
    assert (other.live(), other.next_deadline()) == (one.live(), one.next_deadline())


@pytest.mark.parametrize("seed", range(40, 60))
def test_a_queue_message_is_at_one_place_or_acknowledged(seed: int) -> None:
    draw = random.Random(seed)
    bare = BareBroker()
    for _ in range(300):
        anything(bare, draw)
        for queue in bare.broker.queues.values():
            ranges = sorted(queue.live())
            for (_, last), (first, _) in itertools.pairwise(ranges):
                assert last < first, f"{queue.name} has {first} twice"


def test_a_command_applied_twice_changes_nothing_more() -> None:
    bare = BareBroker()
    bare.attach(1, client_id="c")
    bare.open(1, 1, "queue:q")
    bare.publish(1, "queue:q", 3)
    bare.ack(1, (1, 1, 2))
    state = bare.snapshot()[1:]
    for commands in (
        command.Acks(1, 1, 1, ((1, (cw.AckRow(1, 1, 2),)),)),
        command.Request(1, 1, cw.OpenConsumer(1, "queue:q", 100)),
    ):
        bare.command(commands)
    assert bare.snapshot()[1:] == state
