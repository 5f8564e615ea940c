"""Whatever a program passes is taken, or refused by a `TypeError`, a `ValueError` or a `JMSError`
with a sentence; never by the story of something inside, and nobody else is harmed."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

import antiphon
from antiphon.api import arguments
from tests.api.support.fronts import PATIENCE_S

_numbers = count(1)

NEVER_SECONDS = [math.nan, -1, -0.001, "5", True, b"1", [1], {1}]
FOR_EVER = [None, math.inf, 1e30, 10**400]

ODD: list[Any] = [
    None,
    5,
    -1,
    1.5,
    math.nan,
    10**30,
    True,
    "",
    "a b",
    "\ud800",
    "x" * 70_000,
    b"x",
    [],
    {},
    object(),
    lambda: 0,
]


@pytest.fixture
def ctx(front: Any) -> Iterator[Any]:
    with_server = front.connect(f"embedded:arguments{next(_numbers)}", close_timeout=1)
    yield with_server
    with_server.close()


# -- Seconds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NEVER_SECONDS, ids=repr)
@pytest.mark.parametrize("name", ["connect_timeout", "send_timeout", "close_timeout"])
def test_what_is_no_number_of_seconds_is_refused_by_connect(
    front: Any, name: str, value: Any
) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{name} is a number of seconds"):
        front.connect("embedded:", **{name: value})
    if front.name == "sync":
        factory = antiphon.ConnectionFactory("embedded:", **{name: value})
        with pytest.raises((TypeError, ValueError), match=f"{name} is a number of seconds"):
            factory.create_context()


@pytest.mark.parametrize("value", NEVER_SECONDS, ids=repr)
def test_what_is_no_number_of_seconds_is_refused_by_who_waits(
    front: Any, ctx: Any, value: Any
) -> None:
    consumer = ctx.create_consumer(ctx.create_queue("empty"))
    member = ctx.join(ctx.create_group("g"))
    assert member.receive(PATIENCE_S).view.members == (member.name,)
    for waiting in (consumer, member):
        with pytest.raises((TypeError, ValueError), match="a timeout is a number of seconds"):
            waiting.receive(value)
    if front.name == "sync":
        sent = ctx.create_producer().send_async(ctx.create_queue("q"), "x")
        for look in (sent.result, sent.exception):
            with pytest.raises((TypeError, ValueError), match="a timeout is a number of seconds"):
                look(value)


@pytest.mark.parametrize("value", [*NEVER_SECONDS, False, ""], ids=repr)
def test_what_is_no_number_of_seconds_is_refused_while_messages_are_there(
    ctx: Any, value: Any
) -> None:
    queue = ctx.create_queue("full")
    consumer = ctx.create_consumer(queue)
    member = ctx.join(ctx.create_group("g"))
    ctx.create_producer().send_all(queue, ["one", "two"])
    assert consumer.receive(PATIENCE_S).text == "one"
    assert member.receive(PATIENCE_S).view.members == (member.name,)
    member.multicast("one")
    member.multicast("two")
    assert member.receive(PATIENCE_S).text == "one"
    for waiting in (consumer, member):
        with pytest.raises((TypeError, ValueError), match="a timeout is a number of seconds"):
            waiting.receive(value)
        assert waiting.receive(PATIENCE_S).text == "two"


@pytest.mark.parametrize("value", FOR_EVER, ids=lambda value: str(value)[:6])
def test_infinity_and_what_no_clock_measures_is_for_ever(front: Any, value: Any) -> None:
    url = f"embedded:arguments{next(_numbers)}"
    patience = 10.0 if value is None else value
    ctx = front.connect(url, connect_timeout=patience, send_timeout=value, close_timeout=PATIENCE_S)
    queue = ctx.create_queue("q")
    ctx.create_producer().send(queue, "one", delivery_delay=0.05)
    assert ctx.create_consumer(queue).receive(value).text == "one"
    if front.name == "sync":
        ctx.create_producer().send_async(queue, "two").result(value)
    ctx.close()
    front.connect(url, close_timeout=value).close()


@pytest.mark.parametrize("value", [*NEVER_SECONDS, False, "", [], math.inf, 1e12], ids=repr)
@pytest.mark.parametrize("header", ["time_to_live", "delivery_delay"])
def test_headers_in_seconds_have_bounds(ctx: Any, header: str, value: Any) -> None:
    producer, queue = ctx.create_producer(), ctx.create_queue("q")
    with pytest.raises((TypeError, ValueError), match=f"{header} is a number of seconds"):
        producer.send(queue, "x", **{header: value})


@pytest.mark.parametrize("value", [True, False, "4", 4.0], ids=repr)
def test_a_priority_is_a_whole_number(ctx: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="a priority is a number from 0 to 9"):
        ctx.create_producer().send(ctx.create_queue("q"), "x", priority=value)


def test_a_timeout_is_a_float_or_none() -> None:
    assert arguments.timeout("t", 3) == 3.0
    assert [arguments.timeout("t", value) for value in FOR_EVER] == [None] * 4
    with pytest.raises(ValueError, match="t is a number of seconds, 0 or more, not nan"):
        arguments.timeout("t", math.nan)


# -- Anything --------------------------------------------------------------------------------------

Call = Callable[..., Any]


def is_told_well(call: Call, given: dict[str, Any]) -> bool:
    """Whether what it raises, if it does, was raised on purpose."""
    try:
        result = call(**given)
        for name in ("result", "close"):
            if hasattr(result, name):
                getattr(result, name)()
    except antiphon.JMSError as error:
        return bool(str(error))
    except (TypeError, ValueError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        deliberate = "raise " in (last.line or "") or "enum" in last.filename
        return deliberate and len(str(error)) > 10
    except Exception:
        return False
    return True


def wrongly(call: Call, right: dict[str, Any]) -> list[str]:
    """Each argument in turn is odd; returns what is told badly."""
    return [
        f"{name}={odd!r}"[:80]
        for name in right
        for odd in ODD
        if not is_told_well(call, {**right, name: odd})
    ]


def of_contexts(ctx: Any) -> dict[str, dict[str, Any]]:
    topic, queue, group = ctx.create_topic("t"), ctx.create_queue("q"), ctx.create_group("g")
    relation = antiphon.ConflictRelation.ATOMIC
    return {
        "create_topic": {"name": "t"},
        "create_queue": {"name": "q"},
        "create_group": {"name": "g", "conflict": relation, "remove_after": 60.0},
        "create_producer": {"name": "p"},
        "create_consumer": {
            "destination": topic,
            "selector": None,
            "no_local": False,
            "prefetch": 10,
            "slow": "drop",
        },
        "create_shared_consumer": {"topic": topic, "name": "s"},
        "create_browser": {"queue": queue, "selector": None},
        "create_text_message": {"text": "x"},
        "lookup": {"name": "x"},
        "join": {"group": group, "name": "m", "workers": 1},
        "unsubscribe": {"name": "nobody", "group": None},
        "commit": {"token": "x", "staged": []},
    }


CONTEXTS = """create_topic create_queue create_group create_producer create_consumer
    create_shared_consumer create_browser create_text_message lookup join unsubscribe commit"""


@pytest.mark.parametrize("name", CONTEXTS.split())
def test_odd_arguments_of_a_context(ctx: Any, name: str) -> None:
    assert wrongly(getattr(ctx, name), of_contexts(ctx)[name]) == []
    ctx.create_producer().send(ctx.create_queue("q"), "and it goes on")


@pytest.mark.parametrize("name", ["send", "send_async", "send_all"])
def test_odd_arguments_of_a_producer(ctx: Any, name: str) -> None:
    queue = ctx.create_queue("q")
    headers: dict[str, Any] = {
        "properties": {"a": 1},
        "priority": 4,
        "time_to_live": 0,
        "delivery_mode": None,
        "delivery_delay": 0,
        "correlation_id": "c",
        "reply_to": None,
        "type": "t",
        "tag": None,
        "key": None,
    }
    what = {"messages": ["x"]} if name == "send_all" else {"message_or_body": "x"}
    producer = ctx.create_producer()
    assert wrongly(getattr(producer, name), {"destination": queue, **what, **headers}) == []
    producer.send(queue, "and it goes on")


def test_odd_arguments_of_a_member(ctx: Any) -> None:
    member = ctx.join(ctx.create_group("g"), name="m")
    assert member.receive(PATIENCE_S).view.members == ("m",)
    body = {"body": "x", "tag": None, "key": None, "properties": {}}
    assert wrongly(member.multicast, body) == []
    assert wrongly(member.invite, {"name": "other"}) == []
    relation = antiphon.ConflictRelation.ATOMIC
    assert wrongly(member.set_conflict, {"relation": relation}) == []
    assert wrongly(lambda name: member.remove(name), {"name": "nobody"}) == []
    assert member.view.members == ("m",)


def test_odd_arguments_of_connect(front: Any) -> None:
    right: dict[str, Any] = {
        "url": "embedded:",
        "client_id": None,
        "user": None,
        "password": None,
        "session_mode": antiphon.AUTO_ACKNOWLEDGE,
        "tls": None,
        "allow_pickle": False,
        "packing": "adaptive",
    }
    assert wrongly(lambda **given: front.connect(connect_timeout=0.2, **given), right) == []
    for trace in ("/proc/self/status", "/proc/nobody", 5, "x" * 300):
        with pytest.raises((antiphon.ConfigurationError, TypeError), match="trace"):
            front.connect("embedded:", trace=trace)


def test_odd_arguments_of_what_needs_no_connection() -> None:
    assert wrongly(antiphon.Topic, {"name": "t"}) == []
    assert wrongly(antiphon.Queue, {"name": "q"}) == []
    assert wrongly(antiphon.lookup, {"name": "t", "config": None}) == []
    relation = {"tags": ["a"], "conflicts": [("a", "a")]}
    assert wrongly(antiphon.ConflictRelation, relation) == []
    assert wrongly(antiphon.open_log, {"url": "embedded:", "timeout": 1.0}) == []


def test_an_option_that_nobody_knows_is_refused(front: Any) -> None:
    with pytest.raises(TypeError, match="no option 'nonsense'"):
        front.connect("embedded:", nonsense=1)
    with pytest.raises(TypeError, match="no option 'nonsense'"):
        antiphon.ConnectionFactory("embedded:", nonsense=1)  # type: ignore[call-arg]
