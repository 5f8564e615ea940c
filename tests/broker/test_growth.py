"""More of something costs only where it is used: counted in lines that run, not in time."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import antiphon
from antiphon.broker.machine.ranges import Spans
from antiphon.broker.machine.topics import Subscription, Topics
from antiphon.formats import protocol as cw
from tests.broker.support.homes import Client, Homes, open_consumer, publish

PACKAGE = str(Path(antiphon.__file__).parent)
FEW, MANY = 20, 200
A, B = 0xA, 0xB
FIRST = 0x1000
"""The session of the first of many clients."""

G = "topic:g"


def lines(work: Callable[[], object]) -> int:
    """Of the package, that this runs."""
    count = 0

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_lines_are_counted_also_within_one() -> None:
    """A comprehension is a line, and runs as often as it goes round."""
    spans = [(n, n, 1) for n in range(MANY)]
    assert lines(lambda: Spans(spans)) > MANY


def check(cost: Callable[[int], float]) -> None:
    """It does not depend on how many there are."""
    assert cost(MANY) <= 1.1 * cost(FEW)


# -- Consumers and subscriptions -------------------------------------------------------------------


@pytest.mark.parametrize("ending", [False, True])
def test_the_others_of_a_connection_cost_nothing_to_open_or_close_a_consumer(ending: bool) -> None:
    def cost(consumers: int) -> float:
        client = Homes().attached(A)
        for number in range(1, consumers + 1):
            client.say(open_consumer(number, number, f"topic:t.{number}"))
        number = consumers + 1
        if ending:
            return lines(lambda: client.say(cw.Control(number, cw.CloseConsumer(consumers))))
        return lines(lambda: client.say(open_consumer(number, number, "topic:t")))

    check(cost)


def test_other_consumers_cost_a_new_durable_subscription_nothing() -> None:
    def cost(consumers: int) -> float:
        homes = Homes()
        other, client = homes.attached(A, client_id="a"), homes.attached(B, client_id="b")
        for number in range(1, consumers + 1):
            other.say(open_consumer(number, number, "topic:t", durable=f"s{number}"))
        return lines(lambda: client.say(open_consumer(1, 1, "topic:t", durable="s")))

    check(cost)


def test_other_topics_cost_a_message_nothing() -> None:
    def cost(topics: int) -> float:
        homes = Homes()
        sender, client = homes.attached(A), homes.attached(B)
        for number in range(1, topics + 1):
            client.say(open_consumer(number, number, f"topic:t.{number}"))
        sender.say(publish(A, 1, 10, "topic:t.7"))
        spent = lines(lambda: sender.say(publish(A, 11, 10, "topic:t.7")))
        assert len(client.deliveries()) == 2
        return spent

    check(cost)


def test_subscriptions_that_nobody_reads_cost_a_message_nothing() -> None:
    def cost(subscriptions: int) -> float:
        homes = Homes()
        sender, client = homes.attached(A), homes.attached(B, client_id="b")
        for number in range(subscriptions):
            name = f"s{number}"
            client.say(open_consumer(2 * number + 1, number + 1, "topic:t", durable=name))
            client.say(cw.Control(2 * number + 2, cw.CloseConsumer(number + 1)))
        sender.say(publish(A, 1, 10))
        return lines(lambda: sender.say(publish(A, 11, 10)))

    check(cost)


def test_idle_connections_cost_a_message_nothing() -> None:
    def cost(connections: int) -> float:
        homes = Homes()
        sender = homes.attached(A)
        for number in range(connections):
            homes.attached(FIRST + number).reads = False  # nothing is sent to it, so nothing leaves
        return lines(lambda: sender.say(publish(A, 1, 10)))

    check(cost)


def test_what_is_live_is_found_once_for_a_wildcard_however_many_have_it() -> None:
    def cost(subscriptions: int) -> float:
        topics = Topics()
        for number in range(subscriptions):
            topics.add(Subscription(("c ", f"s{number}"), True, "topic:t.*", "", number))
        for number in range(1000):
            topics.published(f"topic:t.{number}", number + 1)
        return lines(lambda: list(topics.live()))

    assert cost(10) <= 1.1 * cost(1)


# -- Groups ----------------------------------------------------------------------------------------


def group_of(members: int) -> tuple[Homes, list[Client]]:
    homes = Homes()
    clients = [homes.attached(FIRST + number) for number in range(members)]
    for number, client in enumerate(clients):
        client.say(cw.Control(1, cw.Join(1, G, 1000, f"m{number}")))
    return homes, clients


def test_a_pack_costs_for_each_member_what_it_costs_for_one() -> None:
    def cost(members: int) -> float:
        homes, clients = group_of(members)
        sender = homes.attached(A)
        spent = lines(lambda: sender.say(publish(A, 1, 10, G)))
        assert all(len(client.deliveries()) == 1 for client in clients)
        return spent / members

    check(cost)


def test_a_join_costs_for_each_member_what_it_costs_for_one() -> None:
    def cost(members: int) -> float:
        homes, _ = group_of(members)
        newcomer = homes.attached(A)
        return lines(lambda: newcomer.say(cw.Control(1, cw.Join(1, G, 1000, "new")))) / members

    check(cost)


def test_acknowledging_a_view_costs_each_member_what_it_costs_one() -> None:
    def cost(members: int) -> float:
        homes, clients = group_of(members)
        for client in clients:  # in one turn, as they come in at a server
            last = client.told(cw.Happened)[-1].event.serial
            ack = cw.Ack(1, (cw.AckRow(1, 0, 0, last),), patient=True)
            client.server.home.received(client.link, ack, homes.now_ms)
        spent = lines(lambda: homes.wait(250)) / members
        assert homes.servers[1].broker.groups[G].events == []
        return spent

    check(cost)
