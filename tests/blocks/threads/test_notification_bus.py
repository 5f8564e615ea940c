"""`NotificationBus`: the same events for everybody; who comes later begins with the last ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from queue import Queue
from typing import Any

import msgspec
import pytest

import antiphon
from antiphon.blocks import NotificationBus
from antiphon.blocks.pure.block import Heard, Tell
from antiphon.blocks.pure.notifications import BusBlock
from antiphon.errors import FormatError, IllegalStateError, MessageFormatError
from tests.api.support.steps import heard, until
from tests.blocks.conftest import Connect
from tests.blocks.support.steps import remove

GROUP = "alarms"


@dataclass
class Fire:
    floor: int
    since: datetime | None = None


class Flood(msgspec.Struct):
    litres: float
    rooms: list[str] = []


class Start:
    """Busses, each of a program of its own."""

    def __init__(self, connect: Connect, stack: ExitStack) -> None:
        self._connect, self._stack = connect, stack

    def __call__(self, *kinds: type, name: str | None = None) -> NotificationBus:
        bus = NotificationBus(self._connect(), GROUP, *(kinds or (Fire, Flood)), name=name)
        return self._stack.enter_context(bus)


@pytest.fixture
def start(connect: Connect) -> Iterator[Start]:
    with ExitStack() as stack:
        yield Start(connect, stack)


def subscribed(bus: NotificationBus, *kinds: type) -> Queue[Any]:
    events: Queue[Any] = Queue()
    for kind in kinds or (Fire, Flood):
        bus.subscribe(kind, events.put)
    return events


def test_all_get_the_same_events_in_the_same_order(start: Start) -> None:
    busses = [start(), start()]
    got = [subscribed(bus) for bus in busses]
    events = [
        Fire(1, datetime(2026, 1, 2, 3)),
        Flood(2.5, ["hall"]),
        Fire(3),
        Flood(0.0),
    ]
    for number, event in enumerate(events):
        busses[number % 2].publish(event)
    assert [heard(queue, 4) for queue in got] == [events, events]


def test_who_comes_later_begins_with_the_last_of_each_kind(start: Start) -> None:
    one = start()
    for floor in (1, 2, 3):
        one.publish(Fire(floor))
    one.publish(Flood(7.0))
    two = start()
    got = subscribed(two)
    assert heard(got, 2) == [Fire(3), Flood(7.0)]
    assert (two.last(Fire), two.last(Flood)) == (Fire(3), Flood(7.0))
    one.publish(Fire(4))
    assert heard(got, 1) == [Fire(4)]
    assert got.empty()


def test_who_subscribes_later_begins_with_the_last_one(start: Start) -> None:
    one = start()
    assert one.last(Fire) is None
    got = subscribed(one)
    for floor in (1, 2):
        one.publish(Fire(floor))
    assert heard(got, 2) == [Fire(1), Fire(2)]
    assert heard(subscribed(one), 1) == [Fire(2)]


def test_the_state_is_the_last_of_each_kind() -> None:
    old, new = BusBlock(), BusBlock()
    told = [
        effect.what
        for body in (("Fire", {"floor": 1}), ("Flood", {}), ("Fire", {"floor": 2}), "noise")
        for effect in old.heard(Heard(body), 0.0)
        if isinstance(effect, Tell)
    ]
    assert told == [(1, "Fire", {"floor": 1}), (2, "Flood", {}), (3, "Fire", {"floor": 2})]
    new.restore(old.snapshot())
    assert new.last == {"Fire": {"floor": 2}, "Flood": {}}


def test_what_is_told_before_it_is_handed_out_comes_once(start: Start) -> None:
    """Somebody subscribes when an event is known, and has not been handed out yet."""
    one = start()
    got: Queue[Any] = Queue()
    hand_out = one._host._told

    def subscribe_before(event: Any) -> None:
        one.subscribe(Fire, got.put)
        hand_out(event)

    one._host._told = subscribe_before
    one.publish(Fire(1))
    assert heard(got, 1) == [Fire(1)]
    one._host._told = hand_out
    one.publish(Fire(2))
    assert heard(got, 1) == [Fire(2)]


def test_a_subscriber_may_publish_and_subscribe(start: Start) -> None:
    one = start()
    got: Queue[Any] = Queue()

    def alarm(fire: Fire) -> None:
        one.subscribe(Flood, got.put)
        one.publish(Flood(float(fire.floor)))

    one.subscribe(Fire, alarm)
    one.publish(Fire(5))
    assert heard(got, 1) == [Flood(5.0)]


def test_a_subscriber_that_raises_keeps_nothing_from_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one = start()
    before = subscribed(one)
    one.subscribe(Fire, lambda fire: 1 // (fire.floor - 1))
    after = subscribed(one)
    for floor in (1, 2):
        one.publish(Fire(floor))
    assert heard(before, 2) == [Fire(1), Fire(2)]
    assert heard(after, 2) == [Fire(1), Fire(2)]
    assert "a subscriber has not taken an event of kind Fire" in caplog.text
    assert one.is_member


def other_fire() -> type:
    """As another program, or a newer one, has it."""
    return msgspec.defstruct("Fire", [("place", str)])


def test_an_event_that_does_not_fit_the_class_is_not_handed_out(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    kind = other_fire()
    one, two = start(), start(kind)
    got = subscribed(one)
    two.publish(kind("hall"))
    two_got = subscribed(two, kind)
    assert heard(two_got, 1) == [kind("hall")]
    one.publish(Flood(1.0))
    assert heard(got, 1) == [Flood(1.0)]
    assert "an event is no Fire as this program has it" in caplog.text
    with pytest.raises(FormatError, match="an event is no Fire as this program has it"):
        one.last(Fire)
    late = subscribed(one, Fire)
    one.publish(Fire(3))
    assert heard(late, 1) == heard(got, 1) == [Fire(3)]


def test_kinds_that_only_others_know_are_passed_over_and_kept(start: Start) -> None:
    one, two = start(Fire), start(Fire, Flood)
    got = subscribed(one, Fire)
    two.publish(Flood(1.0))
    two.publish(Fire(1))
    assert heard(got, 1) == [Fire(1)]
    assert heard(subscribed(start(Flood), Flood), 1) == [Flood(1.0)]


@pytest.mark.parametrize("event", ["text", 7, None, antiphon.TextMessage("x")])
def test_what_is_no_event_of_the_bus_is_refused(start: Start, event: Any) -> None:
    one = start(Fire)
    for call in (lambda: one.publish(event), lambda: one.subscribe(type(event), print)):
        with pytest.raises(MessageFormatError, match="is not a kind of event of this bus: Fire"):
            call()
    with pytest.raises(MessageFormatError, match="Flood is not a kind of event"):
        one.last(Flood)
    with pytest.raises(ValueError, match="the same name"):
        start(Fire, other_fire())


def test_a_message_that_is_no_event_is_passed_over(start: Start, connect: Connect) -> None:
    one = start()
    got = subscribed(one)
    ctx = connect()
    ctx.create_producer().send(ctx.create_topic(GROUP), "noise")
    one.publish(Fire(1))
    assert heard(got, 1) == [Fire(1)]


@pytest.mark.parametrize("ends", ["closed", "removed"])
def test_a_bus_that_is_over_takes_no_events(start: Start, connect: Connect, ends: str) -> None:
    one, two = start(name="one"), start()
    one.publish(Fire(1))
    until(lambda: None not in (one.last(Fire), two.last(Fire)))
    if ends == "closed":
        one.close()
    else:
        remove(connect(), GROUP, "one")
    until(lambda: not one.is_member)
    with pytest.raises(IllegalStateError, match="one is not a member of the group any more"):
        one.publish(Fire(2))
    assert one.last(Fire) == two.last(Fire) == Fire(1)


def test_two_busses_in_one_program(start: Start) -> None:
    calls: list[Callable[[], Any]] = []
    one, two = start(name="one"), start(name="two")
    got = subscribed(two, Fire)
    one.subscribe(Fire, lambda fire: calls.append(lambda: fire))
    one.publish(Fire(9))
    assert heard(got, 1) == [Fire(9)]
    until(lambda: bool(calls))
    assert one.view.members == ("one", "two")
