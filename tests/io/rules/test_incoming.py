"""Which of the connections that come in may stay, and what they may cost together."""

import pytest

from antiphon.errors import FormatError
from antiphon.io.rules import incoming
from antiphon.io.rules.incoming import Incoming


class Connection:
    def __init__(self) -> None:
        self.reason: str | None = None  # why it was ended

    def end(self, reason: str = "") -> None:
        self.reason = reason


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "UNIDENTIFIED_MAX", 2)
    monkeypatch.setattr(incoming, "CLIENTS_MAX", 2)
    monkeypatch.setattr(incoming, "BEGUN_BYTES", 100)


def some(count: int) -> list[Connection]:
    return [Connection() for _ in range(count)]


def test_of_too_many_that_say_nothing_the_oldest_goes() -> None:
    all_ = Incoming[Connection]()
    a, b, c, d = some(4)
    all_.arrived(a)
    all_.arrived(b)
    all_.identified(a)  # it has made its request, and does not count any more
    all_.arrived(c)
    assert b.reason is None
    all_.arrived(d)
    assert b.reason is not None
    assert "have not said what they want" in b.reason
    assert [*all_.unidentified] == [c, d]
    assert a.reason is None


def test_of_too_many_clients_the_oldest_without_a_session_goes() -> None:
    all_ = Incoming[Connection]()
    a, b, c, d = some(4)
    for client in (a, b):
        all_.is_client(client)
    all_.attached(a)
    all_.is_client(c)
    assert b.reason is not None
    assert b.reason.endswith("it has no session")
    assert all_.clients == {a, c}
    all_.attached(c)
    with pytest.raises(FormatError, match="no more are taken"):
        all_.is_client(d)
    assert all_.clients == {a, c}
    assert a.reason is c.reason is None


def test_one_that_has_left_does_not_count() -> None:
    all_ = Incoming[Connection]()
    a, b, c = some(3)
    for client in (a, b):
        all_.is_client(client)
        all_.attached(client)
    all_.left(a)
    all_.is_client(c)
    assert all_.clients == {b, c}
    assert b.reason is None


def test_what_strangers_have_begun_is_bounded_for_all_of_them() -> None:
    all_ = Incoming[Connection]()
    a, b, c = some(3)
    all_.begun(a, 60)
    all_.begun(b, 10)
    all_.begun(b, 40)  # more of the same frame
    assert a.reason is None
    all_.begun(c, 1)
    assert a.reason is not None
    assert "its frame is the oldest" in a.reason
    assert b.reason is c.reason is None


def test_a_frame_that_is_whole_makes_room() -> None:
    all_ = Incoming[Connection]()
    a, b = some(2)
    all_.begun(a, 60)
    all_.whole(a)
    all_.begun(b, 100)
    all_.whole(b)
    all_.begun(a, 100)
    assert a.reason is b.reason is None


def test_a_session_makes_room() -> None:
    all_ = Incoming[Connection]()
    a, b = some(2)
    all_.is_client(a)
    all_.begun(a, 60)
    all_.attached(a)
    all_.begun(b, 100)
    assert a.reason is b.reason is None


def test_a_single_stranger_may_begin_more() -> None:
    all_ = Incoming[Connection]()
    (a,) = some(1)
    all_.begun(a, 1000)
    assert a.reason is None
