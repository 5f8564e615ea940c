"""Channels of both fronts say something of themselves, and show transitional views."""

import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon import ViewMessage, peers
from antiphon.errors import IllegalStateError
from antiphon.peers.layers.views.notes import NOTE_MAX, Notes
from antiphon.peers.stack.stacks import transitional
from tests.peers.support.fronts import AwaitedChannel

pytestmark = pytest.mark.process

STACK = transitional(peers.Stack(*peers.TOTAL_UNIFORM.layers, Notes()))
WAIT_S = 10


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture(autouse=True, params=["blocking", "asyncio"])
def front(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setattr(peers, "Channel", AwaitedChannel)


@pytest.fixture
def channels() -> Iterator[tuple[peers.Channel, peers.Channel]]:
    with ExitStack() as stack:
        a, b = (stack.enter_context(peers.Channel(STACK, name=name)) for name in "ab")
        for channel in (a, b):
            channel.connect("notes")
        yield a, b


def until(channel: peers.Channel, notes: dict[str, str]) -> list[Any]:
    """Receive up to a view with these notes; return its and all former views."""
    views: list[Any] = []
    while not views or views[-1].transitional or views[-1].notes != notes:
        message = channel.receive(WAIT_S)
        assert isinstance(message, ViewMessage), views
        views.append(message.view)
    return views


def test_a_note_is_in_the_views_of_all(channels: tuple[peers.Channel, peers.Channel]) -> None:
    a, b = channels
    a.set_note("of a")
    for channel in channels:
        view = until(channel, {"a": "of a"})[-1]
        assert view.members == ("a", "b")
    b.set_note("of b")
    *_, passing, view = until(a, {"a": "of a", "b": "of b"})
    assert (passing.transitional, passing.members) == (True, ("a", "b"))
    assert passing.id < view.id
    assert view == channels[0].view
    b.close()
    *_, passing, view = until(a, {"a": "of a"})
    assert (passing.members, passing.primary, view.members) == (("a",), False, ("a",))


def test_views_with_notes_are_pickled(channels: tuple[peers.Channel, peers.Channel]) -> None:
    a, _ = channels
    a.set_note("of a")
    for view in until(a, {"a": "of a"}):
        copy = pickle.loads(pickle.dumps(view))
        assert (copy, copy.notes, copy.transitional) == (view, view.notes, view.transitional)
    assert "transitional" in repr(until_transitional(a))


def until_transitional(channel: peers.Channel) -> Any:
    channel.set_note("another one")
    message = channel.receive(WAIT_S)
    assert isinstance(message, ViewMessage)
    return message.view


def test_mistakes_with_notes_are_named(channels: tuple[peers.Channel, peers.Channel]) -> None:
    a, _ = channels
    with pytest.raises(TypeError, match="a note is a str"):
        a.set_note(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"a note has at most {NOTE_MAX} bytes"):
        a.set_note("x" * (NOTE_MAX + 1))
    with peers.Channel(peers.FIFO, name="c") as c:
        with pytest.raises(IllegalStateError, match="not connected"):
            c.set_note("")
        c.connect("others")
        with pytest.raises(IllegalStateError, match="no layer for notes"):
            c.set_note("")
