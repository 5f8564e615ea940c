"""Selectors: points 1 to 10 of "What implementers get wrong" (`docs/jms.md`).

Each is tried on a topic, by subscribers, and on a queue, by browsers: servers look into messages in
both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from queue import Queue as Results
from typing import Any

import pytest

from antiphon import DeliveryMode
from antiphon.errors import InvalidDestinationError, InvalidSelectorError
from tests.api.support.backends import Backend
from tests.api.support.fronts import every_front
from tests.api.support.steps import Connect, heard, listed, received, send, send_numbers, texts

END = "end"


class Messages:
    """Messages on a topic and on a queue, and who selects which."""

    def __init__(self, context: Any, backend: Backend) -> None:
        self._context = context
        self._topic = context.create_topic(backend.name())
        self._queue = context.create_queue(backend.name())
        self._subscribers: dict[str, Any] = {}

    def select(self, *selectors: str) -> None:
        """Of what is sent from now on; all see the end."""
        for selector in selectors:
            also_the_end = f"({selector}) OR JMSType = '{END}'"
            consumer = self._context.create_consumer(self._topic, also_the_end)
            self._subscribers[selector] = consumer

    def send(self, name: str, properties: Mapping[str, Any], **headers: Any) -> None:
        for destination in (self._topic, self._queue):
            producer = self._context.create_producer()
            producer.send(destination, name, properties=dict(properties), **headers)

    def found(self) -> dict[str, list[str]]:
        """By selector. A topic's subscribers and the browsers of a queue must agree."""
        self._context.create_producer().send(self._topic, END, type=END)
        found = {
            selector: list(iter(lambda c=consumer: received(c).text, END))
            for selector, consumer in self._subscribers.items()
        }
        for selector, names in found.items():
            assert listed(self._context, self._queue, selector) == names, selector
        return found


def selected(
    connect: Connect,
    backend: Backend,
    messages: Mapping[str, Mapping[str, Any]],
    expected: Mapping[str, list[str]],
) -> None:
    """These messages, by name, with these properties; and which of them each selector selects."""
    some = Messages(connect(), backend)
    some.select(*expected)
    for name, properties in messages.items():
        some.send(name, properties)
    assert some.found() == expected


@every_front
def test_numbers_are_written_as_in_java(connect: Connect, backend: Backend) -> None:
    """[1]"""
    selected(
        connect,
        backend,
        {
            "29": {"n": 29},
            "31": {"n": 31},
            "1500": {"n": 1500},
            "1500.0": {"n": 1500.0},
            "7": {"n": 7},
            "0.5": {"n": 0.5},
        },
        {
            "n = 035": ["29"],
            "n = 0x1F": ["31"],
            "n = 1.5e3": ["1500", "1500.0"],
            "n = 1500": ["1500", "1500.0"],
            "n = 7L": ["7"],
            "n < 7.5": ["7", "0.5"],
            "n BETWEEN .5 AND 035": ["29", "7", "0.5"],
        },
    )


@every_front
def test_what_is_no_string_is_in_no_list(connect: Connect, backend: Backend) -> None:
    """[2]"""
    selected(
        connect,
        backend,
        {"a": {"p": "a"}, "b": {"p": "b"}, "one": {"p": 1}, "true": {"p": True}, "none": {}},
        {
            "p IN ('a', '1', 'true')": ["a"],
            "p NOT IN ('a', 'c')": ["b"],
            "NOT p IN ('a', 'c')": ["b"],
        },
    )


@every_front
def test_what_is_absent_is_unknown(connect: Connect, backend: Backend) -> None:
    """[3]"""
    selected(
        connect,
        backend,
        {"one": {"n": 1, "s": "x"}, "two": {"n": 2}, "neither": {}},
        {
            "n = 1": ["one"],
            "NOT n = 1": ["two"],
            "n <> 1": ["two"],
            "n <> '1' OR NOT n = '1'": [],
            "n IS NULL": ["neither"],
            "n IS NOT NULL": ["one", "two"],
            "NOT (s LIKE 'y%')": ["one"],
            "s NOT LIKE 'y%'": ["one"],
            "s NOT IN ('y')": ["one"],
            "n NOT BETWEEN 2 AND 3": ["one"],
            "NOT (n BETWEEN 2 AND 3)": ["one"],
            "n = 1 OR s = 'x' OR TRUE": ["one", "two", "neither"],
            "n > 0 AND NOT s = 'y'": ["one"],
            "n + 1 > 0": ["one", "two"],
        },
    )


@every_front
def test_patterns(connect: Connect, backend: Backend) -> None:
    """[4]"""
    names = ["12_3", "1243", "123", "12993", "lose", "loose", "l%se", ".*"]
    selected(
        connect,
        backend,
        {name: {"s": name} for name in names},
        {
            r"s LIKE '12!_3' ESCAPE '!'": ["12_3"],
            r"s LIKE 'l\%se' ESCAPE '\'": ["l%se"],
            "s LIKE '12%3'": ["12_3", "1243", "123", "12993"],
            "s LIKE 'l_se'": ["lose", "l%se"],
            "s NOT LIKE '%3'": ["lose", "loose", "l%se", ".*"],
            "s LIKE '.*'": [".*"],
            "s LIKE '[l]ose'": [],
        },
    )


@every_front
def test_unlike_types_are_not_equal(connect: Connect, backend: Backend) -> None:
    """[5]"""
    selected(
        connect,
        backend,
        {"text": {"p": "5"}, "number": {"p": 5}, "truth": {"p": True}, "word": {"p": "TRUE"}},
        {
            "p = 5": ["number"],
            "p = '5'": ["text"],
            "p = TRUE": ["truth"],
            "p = 'TRUE'": ["word"],
            "p > 4": ["number"],
            "p > '4'": [],
            "p < '6'": [],
            "p >= FALSE": [],
            "p <= TRUE": [],
        },
    )


@every_front
def test_keywords_ignore_case_and_names_do_not(connect: Connect, backend: Backend) -> None:
    """[6]"""
    selected(
        connect,
        backend,
        {"lower": {"floor": 4}, "upper": {"Floor": 4}, "both": {"floor": 5, "Floor": 3}},
        {
            "floor beTWEEN 4 aNd 5": ["lower", "both"],
            "Floor is not null": ["upper", "both"],
            "noT floor iS nULl oR Floor = 4": ["lower", "upper", "both"],
            "FLOOR > 0": [],
        },
    )


@every_front
@pytest.mark.parametrize("blank", ["", " \t "])
def test_a_blank_selector_is_none(connect: Connect, backend: Backend, blank: str) -> None:
    """[7]"""
    context = connect(client_id=backend.name("client"))
    topic, queue = context.create_topic(backend.name()), context.create_queue(backend.name())
    shared = context.create_shared_consumer(context.create_topic(backend.name()), "us", blank)
    context.create_durable_consumer(topic, "box").close()
    consumer = context.create_consumer(topic, blank)
    for destination in (topic, queue, inner_destination(shared)):
        send_numbers(context, destination, 2)
    assert listed(context, queue, blank) == ["0", "1"]
    for each in (consumer, shared, context.create_consumer(queue, blank)):
        assert texts(each, 2) == ["0", "1"]
    kept = context.create_durable_consumer(topic, "box", blank)  # no other selector than none
    assert texts(kept, 2) == ["0", "1"]


def inner_destination(consumer: Any) -> Any:
    return getattr(consumer, "_consumer", consumer).destination


@every_front
def test_these_headers_are_selected_by(connect: Connect, backend: Backend) -> None:
    """[8]"""
    some = Messages(connect(), backend)
    expected = {
        "JMSDeliveryMode = 'NON_PERSISTENT'": ["light"],
        "JMSDeliveryMode = 'PERSISTENT'": ["heavy"],
        "JMSDeliveryMode IN ('PERSISTENT', 'x')": ["heavy"],
        "JMSPriority >= 7": ["heavy"],
        "JMSPriority = 4": ["light"],
        "JMSCorrelationID = 'c-1'": ["heavy"],
        "JMSCorrelationID IS NULL": ["light"],
        "JMSType LIKE 'al%'": ["heavy"],
        "JMSTimestamp > 1500000000000": ["light", "heavy"],
        "JMSMessageID LIKE 'ID:%'": ["light", "heavy"],
    }
    some.select(*expected)
    some.send("light", {}, delivery_mode=DeliveryMode.NON_PERSISTENT)
    some.send("heavy", {}, priority=7, correlation_id="c-1", type="alarm")
    found = some.found()
    assert {selector: sorted(names) for selector, names in found.items()} == {
        selector: sorted(names) for selector, names in expected.items()
    }


@every_front
@pytest.mark.parametrize(
    "header", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime"]
)
def test_other_headers_are_not_selected_by(connect: Connect, backend: Backend, header: str) -> None:
    """[8]"""
    context = connect()
    with pytest.raises(InvalidSelectorError, match=header):
        context.create_consumer(context.create_topic(backend.name()), f"{header} IS NOT NULL")


@every_front
def test_a_message_is_selected_by_the_id_that_it_shows(connect: Connect, backend: Backend) -> None:
    """[9]"""
    context = connect()
    queue = context.create_queue(backend.name())
    send_numbers(context, queue, 5)
    shown = {message.text: message.id for message in context.create_browser(queue)}
    made = context.create_text_message("made by the program")
    context.create_producer().send(queue, made)
    for text, identity in [*shown.items(), ("made by the program", made.id)]:
        selector = f"JMSMessageID = '{identity}'"
        assert listed(context, queue, selector) == [text]
    consumer = context.create_consumer(queue, f"JMSMessageID = '{shown['3']}'")
    message = received(consumer)
    assert (message.text, message.id) == ("3", shown["3"])
    consumer.close()
    assert listed(context, queue) == ["0", "1", "2", "4", "made by the program"]


@every_front
def test_a_topics_message_is_selected_by_the_id_that_it_will_have(
    connect: Connect, backend: Backend
) -> None:
    """[9]: a program can know it, for its messages are numbered."""
    context = connect()
    topic = context.create_topic(backend.name())
    first = context.create_text_message("first")
    context.create_producer().send(topic, first)
    session, _, number = first.id.rpartition(".")
    later = f"{session}.{int(number) + 2}"
    consumer = context.create_consumer(topic, f"JMSMessageID = '{later}'")
    send(context, topic, "second", "third", "fourth")
    message = received(consumer)
    assert (message.text, message.id) == ("third", later)


WRONG = "floor > > 3"


@every_front
def test_a_wrong_selector_is_refused_with_its_place(connect: Connect, backend: Backend) -> None:
    """[10]"""
    context = connect(client_id=backend.name("client"))
    topic, queue = context.create_topic(backend.name()), context.create_queue(backend.name())
    context.create_durable_consumer(topic, "box", "floor > 3").close()
    context.create_producer().send(topic, "kept", properties={"floor": 4})
    for create in (
        lambda: context.create_consumer(topic, WRONG),
        lambda: context.create_consumer(queue, WRONG),
        lambda: context.create_durable_consumer(topic, "box", WRONG),
        lambda: context.create_durable_consumer(topic, "new", WRONG),
        lambda: context.create_shared_consumer(topic, "us", WRONG),
        lambda: context.create_shared_durable_consumer(topic, "all of us", WRONG),
        lambda: context.create_browser(queue, WRONG),
    ):
        with pytest.raises(InvalidSelectorError, match="wrong at position 9") as caught:
            create()
        assert caught.value.happened == "no"
    with pytest.raises(InvalidSelectorError, match="surrogate"):
        context.create_consumer(topic, "a = '\ud800'")
    kept = context.create_durable_consumer(topic, "box", "floor > 3")
    assert texts(kept, 1) == ["kept"]
    with pytest.raises(InvalidDestinationError, match="new"):
        context.unsubscribe("new")  # nothing was made


@every_front
def test_competing_consumers_select_from_a_queue(connect: Connect, backend: Backend) -> None:
    """Each message goes to one who wants it; what nobody wants stays."""
    context, others = connect(), connect()
    queue = context.create_queue(backend.name())
    seen: Results[tuple[str, str]] = Results()
    low, high = context.create_consumer(queue, "n < 20"), others.create_consumer(queue, "n >= 10")
    low.set_message_listener(lambda message: seen.put(("low", message.text)))
    high.set_message_listener(lambda message: seen.put(("high", message.text)))
    producer = context.create_producer()
    for n in range(30):
        producer.send(queue, str(n), properties={"n": n})
    send(context, queue, "without a number")
    found = heard(seen, 30)
    assert sorted(int(text) for _, text in found) == list(range(30))
    for who, wants in (("low", range(20)), ("high", range(10, 30))):
        own = [int(text) for name, text in found if name == who]
        assert set(own) <= set(wants)
        assert own == sorted(own)
    high.close()
    low.close()
    assert seen.empty()
    assert listed(context, queue) == ["without a number"]
    assert texts(context.create_consumer(queue), 1) == ["without a number"]
