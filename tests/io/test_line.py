"""Asking servers without a session, from scripted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    MessagesGoneError,
    OutcomeUnknownError,
)
from antiphon.formats import protocol as cw
from antiphon.io import line
from antiphon.io.line import Asker, Line
from antiphon.io.rules import attempts

Say = Callable[[cw.Request], list[cw.Answer] | None]
"""What a server answers; None: it hangs up."""


class ScriptedRoute:
    """Servers by their addresses, tried in order. It counts the lines to each."""

    def __init__(self, **servers: Say) -> None:
        self.servers = servers
        self.dialled: list[str] = []
        self.open = 0
        self.released = False

    def next(self) -> str:
        return [*self.servers][len(self.dialled) % len(self.servers)]

    async def dial(self, at: str, on_bodies: Any, on_lost: Any) -> Any:
        self.dialled.append(at)
        self.open += 1
        return ScriptedLink(self, self.servers[at], on_bodies, on_lost)

    async def release(self) -> None:
        self.released = True


class ScriptedLink:
    waiting_bytes = 0

    def __init__(self, route: ScriptedRoute, say: Say, on_bodies: Any, on_lost: Any) -> None:
        self._route, self._say = route, say
        self._on_bodies, self._on_lost = on_bodies, on_lost

    def send(self, requests: list[cw.Request]) -> None:
        for request in requests:
            answers = self._say(request)
            if answers is None:
                self._on_lost(None)
            else:
                self._on_bodies([cw.encode(answer) for answer in answers])

    def close(self) -> None:
        self._route.open -= 1


def answers(position: int) -> Say:
    return lambda _: [cw.Barrier(1, position)]


def hangs_up(_: cw.Request) -> None:
    return None


def is_silent(_: cw.Request) -> list[cw.Answer]:
    return []


def refuses(code: str) -> Say:
    return lambda _: [cw.Refused("it makes no sense", code)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PATIENCE_S", 0.2)
    monkeypatch.setattr(attempts, "REDIAL_S", 0.0)


def barrier(asker: Asker) -> int:
    return asker.ask("the end", lambda line: line.ask(cw.AskBarrier(1), cw.Barrier)).position


def test_the_line_to_a_server_that_answers_is_kept() -> None:
    route = ScriptedRoute(a=answers(7))
    asker = Asker(route, 1, 1.0)
    assert (barrier(asker), barrier(asker)) == (7, 7)
    assert route.dialled == ["a"]
    asker.close()
    assert route.released
    with pytest.raises(IllegalStateError, match="closed"):
        barrier(asker)


def test_a_server_that_fails_is_left_for_the_next_one() -> None:
    route = ScriptedRoute(a=hangs_up, b=is_silent, c=answers(7))
    asker = Asker(route, 3, 5.0)
    assert barrier(asker) == 7
    assert route.dialled == ["a", "b", "c"]
    asker.close()


def test_each_server_is_tried_before_the_call_gives_up() -> None:
    """Even if all the time is over with the first one."""
    route = ScriptedRoute(a=is_silent, b=is_silent, c=hangs_up, d=answers(7))
    asker = Asker(route, 4, 0.2)
    assert barrier(asker) == 7


def test_the_error_says_what_became_of_each_server() -> None:
    asker = Asker(ScriptedRoute(a=is_silent, b=hangs_up), 2, 0.05)
    with pytest.raises((OutcomeUnknownError, ConnectionLostError)) as caught:
        barrier(asker)
    text = str(caught.value)
    assert text.startswith("the end: no server has made progress for 0.05 s")
    assert "a: nothing came for" in text
    assert "b: the connection was lost" in text


@pytest.mark.parametrize(
    ("code", "kind"), [("", IllegalStateError), ("SecurityError", Exception), ("New", Exception)]
)
def test_a_refusal_is_raised_at_once(code: str, kind: type[Exception]) -> None:
    route = ScriptedRoute(a=refuses(code), b=answers(7))
    with pytest.raises(kind, match="it makes no sense"):
        barrier(Asker(route, 2, 5.0))
    assert route.dialled == ["a"]


def test_messages_are_gone_when_no_server_has_them() -> None:
    route = ScriptedRoute(a=refuses("MessagesGoneError"), b=answers(7))
    assert barrier(Asker(route, 2, 5.0)) == 7
    route = ScriptedRoute(a=refuses("MessagesGoneError"), b=refuses("MessagesGoneError"))
    with pytest.raises(MessagesGoneError):
        barrier(Asker(route, 2, 5.0))
    assert route.dialled == ["a", "b"]


def test_a_line_is_closed_with_its_block() -> None:
    route = ScriptedRoute(a=answers(7))
    with Line(route, 1.0) as one:
        assert one.ask(cw.AskBarrier(1), cw.Barrier) == cw.Barrier(1, 7)
    line.on_the_loop(route.release(), 1.0)  # behind what was posted to the loop
    assert route.open == 0
