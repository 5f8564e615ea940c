"""`ActiveReplica`: a command has its effect once, and a new replica goes on where another is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.blocks.pure.service import (
    CLIENTS_MAX,
    ActiveReplica,
    ReplicatedService,
    Request,
    Requests,
    attempt,
    decode_outcome,
)
from antiphon.errors import FormatError, MessageFormatError
from antiphon.formats import values


class Adding(ReplicatedService):
    def __init__(self) -> None:
        self.value = 0
        self.members: tuple[str, ...] = ()

    def apply(self, command: Any) -> int:
        if command < 0:
            raise ValueError("less than nothing")
        self.value += command
        return self.value

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    def restore(self, data: bytes) -> None:
        self.value = int(data)

    def viewed(self, members: tuple[str, ...]) -> None:
        self.members = members


def submitted(replica: ActiveReplica, data: bytes) -> bytes:
    """The outcome of a request, applied at its place in the order if it is new."""
    request, outcome = replica.begin(data)
    if outcome is None:
        outcome = replica.finish(request, attempt(replica.service.apply, request.command))
    return outcome


def submit(replica: ActiveReplica, request: Request) -> Any:
    return decode_outcome(submitted(replica, request.encode())).get()


def test_a_command_is_applied_and_its_result_returned() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    assert [submit(replica, requests.next(n)) for n in (1, 2, 3)] == [1, 3, 6]


def test_a_request_that_comes_again_has_no_effect_and_the_same_result() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    first = requests.next(5)
    assert [submit(replica, first), submit(replica, requests.next(1))] == [5, 6]
    assert submit(replica, first) == 5
    assert submit(replica, requests.next(0)) == 6


def test_an_exception_is_a_result_too() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    request = requests.next(-1)
    for _ in range(2):
        with pytest.raises(ValueError, match="less than nothing"):
            submit(replica, request)


def test_a_request_that_comes_after_its_client_has_the_result_has_no_effect() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    first = requests.next(5)
    submit(replica, first)
    requests.done(first.number)
    assert submit(replica, requests.next(1)) == 6
    with pytest.raises(RuntimeError, match="has had the result"):
        submit(replica, first)
    assert submit(replica, requests.next(0)) == 6


def test_a_new_replica_knows_the_state_and_the_results() -> None:
    old, new, requests = ActiveReplica(Adding()), ActiveReplica(Adding()), Requests("me")
    asked = [requests.next(n) for n in (5, 7)]
    results = [submit(old, request) for request in asked]
    new.restore(old.snapshot())
    assert [submit(new, request) for request in asked] == results
    assert submit(new, requests.next(1)) == submit(old, Request("you", 1, 0, 1)) == 13


def test_results_are_kept_no_longer_than_they_may_be_asked_for() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    for n in range(100):
        request = requests.next(n)
        submit(replica, request)
        requests.done(request.number)
    assert len(replica.snapshot()) < 50
    for n in range(CLIENTS_MAX + 10):
        submit(replica, Request(f"client {n}", 1, 0, 1))
    assert len(values.decode(replica.snapshot())[0]) == CLIENTS_MAX


def test_requests_that_wait_together_are_all_remembered() -> None:
    replica, requests = ActiveReplica(Adding()), Requests("me")
    asked = [requests.next(1) for _ in range(3)]
    results = [submit(replica, request) for request in asked]
    requests.done(2)
    submit(replica, requests.next(1))
    assert submit(replica, asked[0]) == results[0]
    assert submit(replica, asked[2]) == results[2]


def test_the_service_knows_who_is_there() -> None:
    replica = ActiveReplica(Adding())
    replica.viewed(("ann", "bob"))
    service = replica.service
    assert isinstance(service, Adding)
    assert service.members == ("ann", "bob")


@pytest.mark.parametrize("data", [b"", b"\xc1", values.encode("text"), values.encode((1, 2, 3, 4))])
def test_what_is_no_request_or_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        submitted(ActiveReplica(Adding()), data)
    with pytest.raises(FormatError):
        ActiveReplica(Adding()).restore(data)


def test_a_command_that_cannot_travel_is_refused_where_it_is_submitted() -> None:
    with pytest.raises(MessageFormatError):
        Requests("me").next(object()).encode()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=40))
def test_replicas_agree_whatever_is_repeated_and_whoever_is_new(
    steps: list[tuple[int, int, bool]],
) -> None:
    one, two = ActiveReplica(Adding()), ActiveReplica(Adding())
    clients = [Requests(str(i)) for i in range(3)]
    sent: list[Request] = []
    total = 0
    for client, n, again in steps:
        if again and sent:
            request = sent[n % len(sent)]
        else:
            request = clients[client].next(n)
            sent.append(request)
            total += n
        assert submitted(one, request.encode()) == submitted(two, request.encode())
        if n == 0:
            fresh = ActiveReplica(Adding())
            fresh.restore(two.snapshot())
            two = fresh
    assert submit(one, Request("last", 1, 0, 0)) == total
