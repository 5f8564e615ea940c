"""Which connections from other servers stay."""

import pytest

from antiphon.errors import FormatError
from antiphon.io.rules import servers
from antiphon.io.rules.servers import SILENT_S, Servers


class Connection:
    def __init__(self) -> None:
        self.spoke = True
        self.ended = False
        self.aborted = False

    def end(self, reason: str = "") -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = self.aborted = True


def test_the_newest_connection_counts_and_the_older_one_ends() -> None:
    all_ = Servers[Connection]({2})
    older, newer = Connection(), Connection()
    all_.came(2, older)
    all_.came(2, newer)
    assert older.aborted
    assert not newer.ended
    all_.left(older)
    assert all_.newest == {2: newer}
    all_.left(newer)
    assert all_.newest == {}


def test_a_server_is_here_while_its_connection_is() -> None:
    all_ = Servers[Connection]({2})
    connection = Connection()
    assert not all_.is_here(2)
    all_.came(2, connection)
    assert all_.is_here(2)
    connection.end()  # and it is not reported lost yet
    assert not all_.is_here(2)


def test_one_that_is_not_listed_and_says_nothing_goes() -> None:
    all_ = Servers[Connection]({2})
    listed, stranger, talker = Connection(), Connection(), Connection()
    for node, connection in ((2, listed), (7, stranger), (8, talker)):
        all_.came(node, connection)
    all_.sweep(100.0)
    all_.sweep(100.0 + SILENT_S)
    assert not stranger.ended
    talker.spoke = True
    all_.sweep(100.1 + SILENT_S)
    assert stranger.ended
    assert not talker.ended
    assert not listed.ended
    all_.sweep(100.2 + 2 * SILENT_S)
    assert talker.ended
    assert not listed.ended


def test_one_that_is_listed_meanwhile_stays() -> None:
    listed = {2}
    all_ = Servers[Connection](listed)
    connection = Connection()
    all_.came(7, connection)
    all_.sweep(0.0)
    listed.add(7)
    all_.sweep(2 * SILENT_S)
    assert not connection.ended


def test_of_too_many_one_that_is_not_listed_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SERVERS_MAX", 2)
    all_ = Servers[Connection]({1, 2, 3})
    first, stranger, second, third = (Connection() for _ in range(4))
    all_.came(1, first)
    all_.came(7, stranger)
    all_.came(2, second)
    assert stranger.ended
    assert all_.newest == {1: first, 2: second}
    with pytest.raises(FormatError, match="no more are taken"):
        all_.came(3, third)
    all_.came(2, third)  # in the place of another one
    assert not first.ended


def test_nothing_is_kept_of_those_that_have_gone() -> None:
    all_ = Servers[Connection](set())
    for node in range(10):
        connection = Connection()
        all_.came(node, connection)
        all_.sweep(0.0)
        all_.left(connection)
    assert not all_.newest
    assert not all_._heard_s
