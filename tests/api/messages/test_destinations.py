"""Topics and queues as values."""

import copy
import pickle
from typing import Any

import pytest

from antiphon.api.messages.destinations import (
    Destination,
    Queue,
    Temporary,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    check_sendable,
)
from antiphon.errors import IllegalStateError, InvalidDestinationError

ALL = [Topic("a.b"), Queue("a.b"), TemporaryTopic("5f.1"), TemporaryQueue("5f.1")]


def test_they_are_written_and_parsed() -> None:
    assert [str(each) for each in ALL] == [
        "topic:a.b",
        "queue:a.b",
        "temp-topic:5f.1",
        "temp-queue:5f.1",
    ]
    parsed = [Destination.parse(str(each)) for each in ALL]
    assert parsed == ALL
    assert [type(each) for each in parsed] == [type(each) for each in ALL]
    assert [each.name for each in parsed] == ["a.b", "a.b", "5f.1", "5f.1"]


def test_they_are_equal_by_kind_and_name() -> None:
    assert len({*ALL, *map(copy.copy, ALL)}) == 4
    assert Topic("a") != Queue("a")
    assert Topic("a") != "topic:a"
    assert TemporaryQueue("5f.1", Recorder()) == TemporaryQueue("5f.1")


def test_a_temporary_queue_is_a_queue() -> None:
    assert isinstance(ALL[3], Queue)
    assert isinstance(ALL[2], Topic)
    assert [isinstance(each, Temporary) for each in ALL] == [False, False, True, True]


@pytest.mark.parametrize("attribute", ["name", "text", "other"])
def test_they_cannot_be_changed(attribute: str) -> None:
    for each in ALL:
        with pytest.raises(AttributeError):
            setattr(each, attribute, "b")


@pytest.mark.parametrize("name", ["", "a b", "a..b", 5, None])
def test_a_wrong_name_is_refused_at_once(name: Any) -> None:
    for kind in (Topic, Queue, TemporaryTopic, TemporaryQueue):
        with pytest.raises(InvalidDestinationError):
            kind(name)


def test_only_a_topic_has_wildcards_and_nobody_sends_to_them() -> None:
    with pytest.raises(InvalidDestinationError, match="only topics"):
        Queue("a.*")
    for pattern in ("a.*", ">"):
        with pytest.raises(InvalidDestinationError, match="many topics"):
            check_sendable(Topic(pattern))
    for each in ALL:
        check_sendable(each)


def test_they_pickle() -> None:
    assert pickle.loads(pickle.dumps(ALL)) == ALL


class Recorder:
    """A context that takes note of what it is asked to delete."""

    def __init__(self) -> None:
        self.deleted: list[Temporary] = []

    def delete_temporary(self, destination: Temporary) -> str:
        self.deleted.append(destination)
        return "done"


def test_a_temporary_destination_is_deleted_by_its_context() -> None:
    context = Recorder()
    queue = TemporaryQueue("5f.1", context)
    assert queue.delete() == "done"
    assert context.deleted == [queue]


def test_elsewhere_a_temporary_destination_cannot_be_deleted() -> None:
    context = Recorder()
    for other in (pickle.loads(pickle.dumps(ALL[3])), Destination.parse("temp-topic:5f.1")):
        with pytest.raises(IllegalStateError, match="not created here"):
            other.delete()
    assert context.deleted == []
