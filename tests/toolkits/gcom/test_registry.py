"""What the name service decides."""

from typing import Any

import pytest

from antiphon.errors import FormatError
from antiphon.toolkits.gcom.registry import FORGET_S, LEASE_S, Groups, decide
from antiphon.toolkits.gcom.settings import (
    Connect,
    GroupSettings,
    Lead,
    Leave,
    Look,
    Multicast,
    Ordering,
    Request,
    decode_answer,
    decode_groups,
    decode_request,
    encode,
    encode_groups,
)


def settings(leader: str, ordering: Ordering = Ordering.FIFO, group: str = "chat") -> GroupSettings:
    return GroupSettings(group, leader, f"{leader}:1", ordering, Multicast.BASIC)


class Service:
    """The decisions of a service, one after the other."""

    def __init__(self) -> None:
        self.groups: Groups = {}

    def ask(self, request: Request, now_s: float = 0.0) -> GroupSettings | None:
        self.groups, answer = decide(self.groups, request, now_s)
        return answer

    def leader(self, now_s: float = 0.0) -> str | None:
        found = self.ask(Look("chat"), now_s)
        return found and found.leader


@pytest.fixture
def service() -> Service:
    service = Service()
    service.ask(Connect(settings("a")))
    return service


def test_a_new_group_gets_the_settings_of_who_creates_it() -> None:
    service = Service()
    assert service.ask(Look("chat")) is None
    assert service.ask(Connect(settings("a"))) == settings("a")
    assert service.ask(Look("chat")) == settings("a")
    assert service.ask(Look("other")) is None


def test_the_settings_of_a_group_win(service: Service) -> None:
    assert service.ask(Connect(settings("b", Ordering.TOTAL))) == settings("a")
    assert service.leader() == "a"


def test_a_leader_with_the_former_one_in_its_view_takes_over_at_once(service: Service) -> None:
    assert service.ask(Lead(settings("b"), ("a", "b"))) == settings("b")
    assert service.leader() == "b"


def test_a_leader_without_it_waits_until_the_former_one_is_silent(service: Service) -> None:
    service.ask(Lead(settings("a"), ("a", "b")), 1.0)
    claim = Lead(settings("b"), ("b",))
    assert service.ask(claim, 1.0 + LEASE_S - 0.1) == settings("a")
    assert service.ask(claim, 1.0 + LEASE_S) == settings("b")
    assert service.leader() == "b"


def test_of_two_sides_of_a_partition_the_known_one_stays(service: Service) -> None:
    for step in range(20):
        service.ask(Lead(settings("a"), ("a",)), step * 0.5)
        assert service.ask(Lead(settings("b"), ("b", "c")), step * 0.5) == settings("a")


def test_a_service_without_its_groups_learns_them_from_the_leaders() -> None:
    service = Service()
    assert service.ask(Lead(settings("c", Ordering.CAUSAL), ("c",))) == settings(
        "c", Ordering.CAUSAL
    )
    assert service.ask(Look("chat")) == settings("c", Ordering.CAUSAL)


def test_a_leader_that_leaves_gives_way(service: Service) -> None:
    service.ask(Leave("chat", "a", last=False))
    assert service.leader() == "a"
    assert service.ask(Lead(settings("b"), ("b",))) == settings("b")
    assert service.leader(FORGET_S) == "b"


def test_a_group_ends_with_its_last_member(service: Service) -> None:
    service.ask(Leave("chat", "a", last=True))
    assert service.leader() is None
    assert service.ask(Connect(settings("b"))) == settings("b")


def test_a_group_whose_members_leave_at_once_ends(service: Service) -> None:
    service.ask(Leave("chat", "a", last=False), 1.0)
    assert service.leader(1.0 + FORGET_S - 0.1) == "a"
    assert service.leader(1.0 + FORGET_S) is None
    assert service.ask(Connect(settings("b")), 1.0 + FORGET_S) == settings("b")


def test_only_the_leader_ends_a_group(service: Service) -> None:
    service.ask(Leave("chat", "b", last=True))
    assert service.leader() == "a"
    service.ask(Leave("other", "a", last=True))
    assert service.leader() == "a"


def test_groups_have_nothing_to_do_with_each_other(service: Service) -> None:
    service.ask(Connect(settings("b", group="other")))
    service.ask(Leave("chat", "a", last=True))
    assert service.ask(Look("other")) == settings("b", group="other")


@pytest.mark.parametrize(
    "request_",
    [
        Look("chat"),
        Connect(settings("a")),
        Lead(settings("a"), ("a", "b")),
        Leave("chat", "a", last=True),
    ],
)
def test_requests_travel_as_text(request_: Request) -> None:
    assert decode_request(encode(request_)) == request_


def test_answers_and_files() -> None:
    assert decode_answer(encode(settings("a"))) == settings("a")
    assert decode_answer(encode(None)) is None
    groups = (settings("a"), settings("b", Ordering.CAUSAL_TOTAL, "other"))
    assert decode_groups(encode_groups(groups)) == groups


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type": "Steal"}', "[" * 5000, '{"type": 1}'])
def test_what_is_no_request_is_refused(text: str) -> None:
    decoders: list[Any] = [decode_request, decode_answer, lambda t: decode_groups(f"1{t}".encode())]
    for decode in decoders:
        with pytest.raises(FormatError):
            decode(text)
