"""Isis over channels with real sockets, in one process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import (
    IllegalStateError,
    InvalidDestinationError,
    OutcomeUnknownError,
)
from antiphon.toolkits import isis
from antiphon.toolkits.isis import ALL, MAJORITY, W_FAIL, W_RECOVER, Address, Isis, Message
from tests.api.support.steps import in_thread
from tests.process.support.peer_processes import wait_until
from tests.toolkits.support.at_once import at_once

pytestmark = pytest.mark.process

WAIT_S = 20
ASK = 1
GROUP = Address("g")


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


Start = Callable[..., Isis]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda name, site="here": stack.enter_context(
            isis.isis_remote_init(name=name, site=site)
        )


class Heard:
    """Keeps what routines get; `echo` replies with the name of the program and the values."""

    def __init__(self, program: Isis) -> None:
        self.program = program
        self.told: list[Any] = []
        self.news = threading.Condition()

    def tell(self, what: Any) -> None:
        with self.news:
            self.told.append(what)
            self.news.notify_all()

    def echo(self, message: Message) -> None:
        self.tell(message.values[0])
        self.program.reply(message, self.program.name, *message.values)

    def view(self, view: isis.View, arg: Any) -> None:
        self.tell(view.members)

    def wait(self, condition: Callable[[list[Any]], bool]) -> list[Any]:
        with self.news:
            assert self.news.wait_for(lambda: condition(self.told), WAIT_S), self.told
            return self.told


def members(start: Start, names: str) -> list[Heard]:
    """Start programs that are all in the group, and echo what comes to an entry."""
    heard = [Heard(start(name)) for name in names]
    for one in heard:
        one.program.isis_entry(ASK, one.echo)
        one.program.pg_join("g")
    for one in heard:
        wait_until(
            lambda one=one: one.program.pg_getview(GROUP).members == tuple(names), "all members"
        )
    return heard


@pytest.mark.parametrize("bcast", ["fbcast", "cbcast", "abcast", "gbcast", "bcast"])
def test_a_broadcast_collects_the_replies_that_are_wanted(start: Start, bcast: str) -> None:
    a, b, c = members(start, "abc")
    outside = start("x")
    for sender in (a.program, outside):
        call = getattr(sender, bcast)
        replies = call(GROUP, ASK, "hello", 7, nwanted=ALL, timeout=WAIT_S)
        assert sorted(replies) == [(name, (name, "hello", 7)) for name in "abc"]
        assert len(call(GROUP, ASK, "1", nwanted=1, timeout=WAIT_S)) in (1, 2, 3)
        assert len(call(GROUP, ASK, "2", nwanted=MAJORITY, timeout=WAIT_S)) in (2, 3)
        assert call(GROUP, ASK, "last") == []
    for one in (a, b, c):
        told = one.wait(lambda told: told.count("last") == 2)
        assert sorted(told) == sorted(["hello", "1", "2", "last"] * 2)


def test_a_client_chooses_one_member(start: Start) -> None:
    a, b = members(start, "ab")
    client = start("x")
    one = client.abcast(GROUP.only("b"), ASK, "hello", nwanted=ALL, timeout=WAIT_S)
    assert one == [("b", ("b", "hello"))]
    assert (a.told, b.told) == ([], ["hello"])


def test_a_diffusion_goes_to_clients_too_and_members_reply(start: Start) -> None:
    a, b = members(start, "ab")
    client = Heard(start("x"))
    client.program.isis_entry(ASK, client.echo)
    client.program.pg_client(GROUP)
    a.program.abcast(GROUP, ASK, "for members")
    replies = a.program.abcast(GROUP.diffusion, ASK, "for all", nwanted=ALL, timeout=WAIT_S)
    assert sorted(reply.sender for reply in replies) == ["a", "b"]
    assert client.wait(lambda told: "for all" in told) == ["for all"]
    assert client.program.pg_getview(GROUP).members == ("a", "b")
    assert b.wait(lambda told: "for all" in told) == ["for members", "for all"]


def test_who_leaves_or_is_closed_is_not_waited_for(start: Start) -> None:
    a, b, c = members(start, "abc")
    for one in (b, c):
        one.program.isis_entry(2, lambda message: None)  # which never replies
    a.program.isis_entry(2, lambda message: a.program.reply(message, "a"))
    asking = in_thread(lambda: a.program.cbcast(GROUP, 2, nwanted=ALL, timeout=WAIT_S))
    b.program.pg_leave(GROUP)
    c.program.close()
    assert asking.get(timeout=WAIT_S) == [("a", ("a",))]
    b.program.pg_join("g")
    with pytest.raises(OutcomeUnknownError, match="b of 'g' has not replied; 1 have"):
        a.program.cbcast(GROUP, 2, nwanted=ALL, timeout=0.2)


def test_null_replies_errors_and_entries_that_are_not_there(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    a, b, c = members(start, "abc")

    def fail(message: Message) -> None:
        raise RuntimeError("planted")

    a.program.isis_entry(2, a.program.nullreply)
    b.program.isis_entry(2, fail)
    assert a.program.abcast(GROUP, 2, nwanted=ALL, timeout=WAIT_S) == []
    assert "planted" in caplog.text
    assert "c has no entry 2" in caplog.text
    assert len(c.program.abcast(GROUP, ASK, "on", nwanted=ALL, timeout=WAIT_S)) == 3


def test_a_reply_may_come_later_from_another_thread(start: Start) -> None:
    a, b = members(start, "ab")
    kept: list[Message] = []
    b.program.isis_entry(2, kept.append)
    asking = in_thread(lambda: a.program.fbcast(GROUP.only("b"), 2, "x", nwanted=1, timeout=WAIT_S))
    wait_until(lambda: kept != [], "the question")
    b.program.reply(kept[0], "late")
    assert asking.get(timeout=WAIT_S) == [("b", ("late",))]


def test_a_routine_may_wait_for_others_but_not_for_itself(start: Start) -> None:
    a, b = members(start, "ab")
    answers: list[Any] = []

    def ask(message: Message) -> None:
        for address in (GROUP.only("b"), GROUP):
            try:
                answers.append(a.program.abcast(address, ASK, "x", nwanted=ALL, timeout=WAIT_S))
            except IllegalStateError as error:
                answers.append(str(error))

    a.program.isis_entry(2, ask)
    b.program.abcast(GROUP.only("a"), 2)
    wait_until(lambda: len(answers) == 2, "both")
    assert answers[0] == [("b", ("b", "x"))]
    assert answers[1].startswith("a routine of a member of 'g' cannot wait for replies of 'g'")


def test_gbcast_is_ordered_with_everything(start: Start) -> None:
    """The others are broadcast in no common order; each gbcast is at one place among them all."""
    heard = members(start, "abc")

    def sender(one: Heard) -> Callable[[int], object]:
        def send(i: int) -> None:
            name = one.program.name
            if name == "c":
                one.program.gbcast(GROUP, ASK, "mark")
            for number in range(10):
                bcast = one.program.fbcast if number % 2 else one.program.cbcast
                bcast(GROUP, ASK, f"{name}{i}.{number}")

        return send

    at_once(10, *map(sender, heard))
    told = [one.wait(lambda told: len(told) == 310) for one in heard]
    assert told[0].count("mark") == 10
    assert marked(told[0]) == marked(told[1]) == marked(told[2])


def marked(told: list[str]) -> list[list[str]]:
    """Return the broadcasts between the marks, without their order."""
    parts: list[list[str]] = [[]]
    for one in told:
        if one == "mark":
            parts.append([])
        else:
            parts[-1].append(one)
    return [sorted(part) for part in parts]


def test_abcast_is_one_order(start: Start) -> None:
    heard = members(start, "abc")
    at_once(40, *[lambda i, p=one.program: p.abcast(GROUP, ASK, f"{p.name}{i}") for one in heard])
    a, b, c = (one.wait(lambda told: len(told) == 120) for one in heard)
    assert a == b == c


def test_a_subgroup_begins_with_all_its_members(start: Start) -> None:
    a, b, c, d = members(start, "abcd")
    address = Address("sub.2")
    for one in (a, c, d):
        one.program.pg_monitor(address, one.view)
    assert a.program.pg_subgroup(GROUP, "sub", 2, ["a", "c", "d"]) == address
    for one in (a, c, d):
        assert one.wait(bool) == [("a", "c", "d")]
    replies = b.program.abcast(address, ASK, "hello", nwanted=ALL, timeout=WAIT_S)
    assert sorted(reply.sender for reply in replies) == ["a", "c", "d"]
    c.program.pg_leave(address)
    for one in (a, d):
        assert one.wait(lambda told: ("a", "d") in told)[0] == ("a", "c", "d")
    with pytest.raises(ValueError, match="not in the group 'g': x"):
        a.program.pg_subgroup(GROUP, "sub", 0, ["x"])
    with pytest.raises(ValueError, match="needs a member"):
        a.program.pg_subgroup(GROUP, "sub", 0, [])
    with pytest.raises(IllegalStateError, match="'x' is not in the group 'g'"):
        start("x").pg_subgroup(GROUP, "sub", 0, ["a"])


def test_monitors_of_members(start: Start) -> None:
    a = Heard(start("a"))
    a.program.pg_join("g", pg_monitor=a.view)
    b = Heard(start("b"))
    number = b.program.pg_monitor(GROUP, b.view, "arg")  # it is no member
    c = start("c")
    c.pg_join("g")
    assert b.wait(lambda told: told != []) == [("a", "c")]
    b.program.pg_monitor_cancel(number)
    c.close()
    assert a.wait(lambda told: len(told) == 3) == [("a",), ("a", "c"), ("a",)]
    wait_until(lambda: b.program.pg_getview(GROUP).members == ("a",), "the view")
    assert b.told == [("a", "c")]
    with pytest.raises(ValueError, match="there is no monitor"):
        b.program.pg_monitor_cancel(number)


def test_monitors_of_sites(start: Start) -> None:
    a = Heard(start("a", "paris"))
    a.program.sv_monitor(lambda view, arg: a.tell((arg, sorted(view.sites))), "sites")
    a.program.sv_watch("rome", W_FAIL, lambda *event: a.tell(event), "gone")
    a.program.sv_watch("rome", W_RECOVER, lambda *event: a.tell(event), "there")
    b, c = start("b", "rome"), start("c", "rome")
    assert a.wait(lambda told: len(told) >= 2) == [
        ("sites", ["paris", "rome"]),
        ("rome", W_RECOVER, "there"),
    ]
    wait_until(lambda: a.program.site_getview().sites.get("rome") == ("b", "c"), "both")
    b.close()  # the site is still up
    wait_until(lambda: a.program.site_getview().sites.get("rome") == ("c",), "one")
    assert len(a.told) == 2
    c.close()
    assert a.wait(lambda told: len(told) >= 4)[2:] == [
        ("sites", ["paris"]),
        ("rome", W_FAIL, "gone"),
    ]
    start("d", "rome")
    assert a.wait(lambda told: len(told) >= 5)[4:] == [("sites", ["paris", "rome"])]  # no watch
    with pytest.raises(ValueError, match="not W_FAIL or W_RECOVER"):
        a.program.sv_watch("rome", "sleep", print)


def test_a_hierarchical_group_divides_its_members_and_data(start: Start) -> None:
    programs = [start(name) for name in "abcde"]
    leaves = [program.hg_join("h", leaf_size=2) for program in programs]
    assert [leaf.group for leaf in leaves] == ["h/0", "h/0", "h/1", "h/1", "h/2"]
    keys = [f"key {i}" for i in range(30)]
    outside = start("x")
    found = [outside.hg_leaf("h", key) for key in keys]
    assert set(found) == {Address(f"h/{i}") for i in range(3)}
    assert found == [programs[0].hg_leaf("h", key) for key in keys]
    for program in programs:
        program.isis_entry(ASK, lambda message, p=program: p.reply(message, p.name))
    replies = outside.abcast(Address("h/1"), ASK, nwanted=ALL, timeout=WAIT_S)
    assert sorted(reply.sender for reply in replies) == ["c", "d"]
    with pytest.raises(InvalidDestinationError, match="'none' has no leaf"):
        outside.hg_leaf("none", "")
    with pytest.raises(ValueError, match="a leaf has 1 member or more"):
        outside.hg_join("h", 0)


def test_who_waits_is_told_when_its_program_leaves(start: Start) -> None:
    a, b = members(start, "ab")
    kept: list[Message] = []
    b.program.isis_entry(2, kept.append)
    asking = in_thread(lambda: a.program.abcast(GROUP.only("b"), 2, nwanted=1, timeout=WAIT_S))
    wait_until(lambda: kept != [], "the question")
    a.program.close()
    error = asking.get(timeout=WAIT_S)
    assert isinstance(error, IllegalStateError)
    assert "'a' has left Isis" in str(error)
