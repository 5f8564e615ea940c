"""Reading the log by position: complete, once, in order, whatever servers do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import LogPack, LogSlice
from antiphon.api import log_reader
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    InvalidDestinationError,
    MessagesGoneError,
    OutcomeUnknownError,
)
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Outgoing
from antiphon.io import line
from antiphon.io.rules import attempts
from tests.process.support.cluster import Cluster


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"embedded:{request.node.name}"


@pytest.fixture
def context(url: str) -> Iterator[antiphon.Context]:
    with antiphon.connect(url) as ctx:
        yield ctx


def texts(packs: list[LogPack]) -> list[str]:
    found = []
    for one in packs:
        messages = Columns(one.pack)
        found += [messages.body(n).decode() for n in range(messages.count)]
    return found


# -- Against a server ------------------------------------------------------------------------------


def test_what_was_sent_is_within_the_bounds(context: antiphon.Context, url: str) -> None:
    producer, topic = context.create_producer(), context.create_topic("t")
    with antiphon.open_log(url) as log:
        assert log.bounds() == (1, 0)
        for n in range(1, 6):
            producer.send(topic, str(n))
            assert log.bounds() == (1, n)


def test_packs_of_a_topic_are_read_in_order(context: antiphon.Context, url: str) -> None:
    producer = context.create_producer()
    for n in range(1, 31):
        producer.send(context.create_topic("even" if n % 2 == 0 else "odd"), str(n))
    with antiphon.open_log(url) as log:
        found = list(log.packs("even", 5, 24))
        assert texts(found) == [str(n) for n in range(6, 25, 2)]
        assert [one.position for one in found] == list(range(6, 25, 2))
        assert list(log.packs("nothing", 1, 30)) == []
        assert texts(list(log.packs(antiphon.Topic("odd"), 30, 30))) == []


def test_slices_are_by_topic_and_no_larger_than_asked_for(
    context: antiphon.Context, url: str
) -> None:
    producer = context.create_producer()
    for n in range(30):
        producer.send(context.create_topic(f"a.{n % 2}"), "x")
    producer.send(context.create_queue("a"), "x")
    with antiphon.open_log(url) as log:
        assert log.slices("a.*", 1, 31, 10) == [
            LogSlice("a.0", 1, 19, 10),
            LogSlice("a.0", 21, 29, 5),
            LogSlice("a.1", 2, 20, 10),
            LogSlice("a.1", 22, 30, 5),
        ]
        assert log.slices(["a.1", antiphon.Topic("a.>")], 29, 30) == [
            LogSlice("a.0", 29, 29, 1),
            LogSlice("a.1", 30, 30, 1),
        ]
        assert log.slices("b", 1, 31) == []


def test_positions_are_found_by_time(context: antiphon.Context, url: str) -> None:
    producer, topic = context.create_producer(), context.create_topic("t")
    for n in range(3):
        producer.send(topic, str(n))
    with antiphon.open_log(url) as log:
        stamps = [one.stamp for one in log.packs("t", 1, 3)]
        assert stamps == sorted(stamps)
        assert log.position_at(0) == 1
        assert log.position_at(stamps[2]) == stamps.index(stamps[2]) + 1
        assert log.position_at(stamps[2] + 1) == 4
        time = datetime.fromtimestamp(stamps[0] / 1000, UTC)
        assert log.position_at(time) == 1
        assert log.position_at(time.replace(year=2100)) == 4


def test_what_is_committed_stands_where_it_was_committed(url: str) -> None:
    with (
        antiphon.connect(url) as ctx,
        ctx.create_context(antiphon.SESSION_TRANSACTED) as transacted,
        antiphon.open_log(url) as log,
    ):
        transacted.create_producer().send(ctx.create_topic("t"), "staged first")
        ctx.create_producer().send(ctx.create_topic("t"), "sent second")
        assert log.bounds() == (1, 1)
        transacted.commit()
        assert log.bounds() == (1, 2)
        assert texts(list(log.packs("t", 1, 2))) == ["sent second", "staged first"]


def test_messages_of_a_group_have_their_view(context: antiphon.Context, url: str) -> None:
    group = context.create_group("g")
    with context.join(group) as member:
        context.create_producer().send(group, "hello")
        with antiphon.open_log(url) as log:
            (one,) = log.packs("g", *log.bounds())
            assert one.view == member.view.id


def test_wrong_arguments_are_refused_at_once(context: antiphon.Context, url: str) -> None:
    with antiphon.open_log(url) as log:
        with pytest.raises(InvalidDestinationError):
            log.packs("a b", 1, 2)
        with pytest.raises(ValueError, match="begin with 1"):
            log.slices("a", 0, 2)
        with pytest.raises(ValueError, match="at least one message"):
            log.slices("a", 1, 2, 0)
        with pytest.raises(ValueError, match="any time zone"):
            log.position_at(datetime(2026, 1, 1))
        with pytest.raises(TypeError):
            log.position_at("now")  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError, match="closed"):
        log.bounds()
    log.close()


@pytest.mark.process
@pytest.mark.parametrize("storage", ["durable", "memory"])
def test_servers_are_killed_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str
) -> None:
    """All but one: that one has everything, and tells it."""
    monkeypatch.setattr(log_reader, "CREDIT_BYTES", 5000)
    with Cluster(tmp_path, storage=storage) as cluster:
        cluster.start()
        with antiphon.connect(cluster.url) as ctx:
            producer, topic = ctx.create_producer(), ctx.create_topic("t")
            futures = [producer.send_async(topic, f"{n:01000}") for n in range(300)]
            for future in futures:
                future.result()
        cluster.wait_whole()
        with antiphon.open_log(cluster.url) as log:
            bounds = log.bounds()
            packs = log.packs("t", *bounds)
            found = [next(packs)]
            for node in list(cluster.servers)[1:]:
                cluster.servers[node].kill()
            found += packs
            assert texts(found) == [f"{n:01000}" for n in range(300)]


# -- Against servers that do as they are told ------------------------------------------------------

Say = Callable[[Any], list[cw.Answer] | None]
"""What a server answers to a request; None: it hangs up."""


class ScriptedRoute:
    """Each connection leads to the next server of a list, and to the last one in the end."""

    def __init__(self, *servers: Say) -> None:
        self._servers = list(servers)
        self.asked: list[Any] = []

    def next(self) -> str:
        return "scripted"

    async def dial(self, at: str, on_bodies: Any, on_lost: Any) -> Any:
        say = self._servers.pop(0) if len(self._servers) > 1 else self._servers[0]
        return ScriptedLink(self, say, on_bodies, on_lost)

    async def release(self) -> None:
        pass


class ScriptedLink:
    waiting_bytes = 0

    def __init__(self, route: ScriptedRoute, say: Say, on_bodies: Any, on_lost: Any) -> None:
        self._route, self._say = route, say
        self._on_bodies, self._on_lost = on_bodies, on_lost

    def send(self, requests: list[cw.Request]) -> None:
        for request in requests:
            self._route.asked.append(request)
            answers = self._say(request)
            if answers is None:
                self._on_lost(None)
            else:
                self._on_bodies([cw.encode(answer) for answer in answers])

    def close(self) -> None:
        pass


def delivered(position: int, count: int = 1) -> cw.Delivered:
    body, flags = columns.encode([Outgoing(columns.TEXT, b"x", b"", 0)] * count)
    return cw.Delivered(position, 0, pack.encode("topic:t", count, body, flags=flags))


def gone(_: Any) -> list[cw.Answer]:
    return [cw.Refused("messages 1 to 4 are gone", "MessagesGoneError")]


def says(*answers: cw.Answer) -> Say:
    return lambda request: [] if isinstance(request, cw.Credit) else list(answers)


def hangs_up(_: Any) -> None:
    return None


def dies_after(*answers: cw.Answer) -> Say:
    """Answers, and hangs up at the next word."""
    left = [list(answers)]
    return lambda _: left.pop() if left else None


def reader(
    monkeypatch: pytest.MonkeyPatch, *servers: Say, patience: float = 0.02, timeout: float = 0.1
) -> tuple[Any, ScriptedRoute]:
    route = ScriptedRoute(*servers)
    monkeypatch.setattr(log_reader, "route_to", lambda _: route)
    monkeypatch.setattr(attempts, "PATIENCE_S", patience)
    monkeypatch.setattr(attempts, "REDIAL_S", 0.0)
    monkeypatch.setattr(log_reader, "CREDIT_BYTES", 1)  # so that there is a word for each pack
    url = "antiphon://" + ",".join("h" * len(servers))
    return antiphon.open_log(url, timeout=timeout), route


def test_another_server_goes_on_behind_the_last_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    log, route = reader(
        monkeypatch,
        dies_after(delivered(2, 3), delivered(7, 2)),
        says(delivered(12), cw.LogEnd(20)),
    )
    assert [one.position for one in log.packs("t", 3, 20)] == [2, 7, 12]
    assert [r.first for r in route.asked if isinstance(r, cw.ReadLog)] == [3, 9]


def test_a_server_that_is_behind_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = reader(monkeypatch, says(delivered(1)), says(delivered(2), cw.LogEnd(2)))
    assert [one.position for one in log.packs("t", 1, 2)] == [1, 2]


def test_what_one_server_has_let_go_of_another_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = reader(monkeypatch, gone, hangs_up, says(delivered(1), cw.LogEnd(4)))
    assert [one.position for one in log.packs("t", 1, 4)] == [1]


def test_what_is_gone_everywhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log, route = reader(monkeypatch, gone, gone, gone)
    with pytest.raises(MessagesGoneError, match="1 to 4 are gone"):
        list(log.packs("t", 1, 4))
    assert len(route.asked) == 3
    with pytest.raises(MessagesGoneError):
        log.slices("t", 1, 4)


def test_servers_that_do_not_get_on_are_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = reader(monkeypatch, says())
    with pytest.raises(OutcomeUnknownError, match="messages up to 4: no server has made progress"):
        list(log.packs("t", 1, 4))


def test_servers_that_cannot_be_reached_are_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = reader(monkeypatch, hangs_up, patience=2, timeout=2)  # so that no attempt is too slow
    with pytest.raises(ConnectionLostError):
        log.bounds()


def test_slices_are_asked_for_until_they_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        1: cw.LogSlices((cw.LogSlice("topic:b", 1, 3, 3), cw.LogSlice("topic:a", 4, 4, 1)), 5),
        5: cw.LogSlices((cw.LogSlice("topic:b", 5, 6, 2),), 8),
        8: cw.LogSlices((cw.LogSlice("topic:b", 9, 9, 1),), 10),
    }
    log, _ = reader(monkeypatch, lambda request: [answers[request.first]])
    assert log.slices("*", 1, 9, 5) == [
        LogSlice("a", 4, 4, 1),
        LogSlice("b", 1, 6, 5),
        LogSlice("b", 9, 9, 1),
    ]


def test_a_reader_that_rests_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    pinged = threading.Event()

    def say(request: Any) -> list[cw.Answer]:
        if isinstance(request, cw.Ping):
            pinged.set()
            return [cw.Pong()]
        return [cw.Barrier(1, 7) if isinstance(request, cw.AskBarrier) else cw.LogBounds(3, 9, 5)]

    monkeypatch.setattr(line, "PING_S", 0.01)
    log, _ = reader(monkeypatch, say, patience=10)
    for _ in range(2):
        assert log.bounds() == (3, 9)
        pinged.clear()
        assert pinged.wait(10)
    log.close()


def test_bounds_are_asked_for_behind_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    def say(request: Any) -> list[cw.Answer]:
        return [cw.Barrier(1, 7) if isinstance(request, cw.AskBarrier) else cw.LogBounds(3, 9, 5)]

    log, route = reader(monkeypatch, say)
    assert log.bounds() == (3, 9)
    assert log.position_at(1000) == 5
    assert [type(request) for request in route.asked] == [cw.AskBarrier, cw.AskLog] * 2
    assert route.asked[-1].stamp == 1000
