"""The decisions of the replication manager, without processes: what is started where, and when."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.toolkits.eternal import ACTIVE, PASSIVE, Criteria
from antiphon.toolkits.eternal.pure.gateway import LOG, LOG_BYTES, IncomingRequestGateway
from antiphon.toolkits.eternal.pure.manager import FACTORY, FAULTS_KEPT, ManagerService
from antiphon.toolkits.eternal.pure.policy import ATTEMPTS, checked, choose

PLACES = ("a", "b", "c", "d")
GROUP = "stock"


class Domain:
    """The manager's service with its factories; members start and end as the test says. Each
    command and view goes to a second replica, too, and every state to a third."""

    def __init__(self, *places: str) -> None:
        self.manager, self._other = ManagerService(), ManagerService()
        self.replicas: tuple[str, ...] = ("first",)
        self._view = 0
        for place in places:
            self.come(place)

    def come(self, place: str) -> None:
        self.see(*self.replicas, FACTORY + place)
        self.do("offer", place, ("ledger",))

    def go(self, *places: str) -> None:
        self.see(*(one for one in self.replicas if one.removeprefix(FACTORY) not in places))

    def see(self, *replicas: str) -> None:
        self.replicas = replicas
        for manager in (self.manager, self._other):
            manager.viewed(replicas)
        self._compare()

    def do(self, *command: Any) -> None:
        for manager in (self.manager, self._other):
            manager.apply(command)
        self._compare()

    def create(self, initial: int = 3, minimum: int = 2, **criteria: Any) -> None:
        plain = tuple(Criteria(ACTIVE, initial, minimum, **criteria))
        self.do("create", GROUP, "ledger", plain)
        while self.manager.group(GROUP).starting:
            self.all_run()

    def all_run(self) -> None:
        self.report(*(order for place in self.manager.locations for order in self.orders(place)))

    def report(self, *members: str) -> None:
        self._view += 1
        self.do("view", GROUP, self.manager.group(GROUP).generation, self._view, members)

    def orders(self, place: str) -> dict[str, Any]:
        return self.manager.orders(place)

    @property
    def places(self) -> list[str]:
        return sorted(self.manager.group(GROUP).members.values())

    @property
    def starting(self) -> list[str]:
        return list(self.manager.group(GROUP).starting)

    @property
    def faults(self) -> list[tuple[str, str]]:
        return [(fault.kind, fault.name) for fault in self.manager.faults]

    def _compare(self) -> None:
        restored = ManagerService()
        restored.restore(self.manager.snapshot())
        assert restored.snapshot() == self.manager.snapshot() == self._other.snapshot()


def member_at(domain: Domain, place: str) -> str:
    (name,) = domain.orders(place)
    return name


# -- Where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offering", "taken", "loads", "failures", "chosen"),
    [
        ("abc", "", {}, {}, "a"),
        ("abc", "a", {}, {}, "b"),
        ("abc", "", {"a": 1, "b": 2}, {}, "c"),
        ("abc", "", {"a": 1, "b": 1, "c": 1}, {}, "a"),
        ("abc", "", {"b": 5, "c": 9}, {"a": 1}, "b"),
        ("ab", "b", {}, {"a": ATTEMPTS - 1}, "a"),
        ("ab", "b", {}, {"a": ATTEMPTS}, None),
        ("ab", "ab", {}, {}, None),
        ("", "", {}, {}, None),
    ],
)
def test_a_member_goes_where_starts_succeed_and_the_fewest_are(
    offering: str, taken: str, loads: dict[str, int], failures: dict[str, int], chosen: str | None
) -> None:
    assert choose(Criteria(), list(offering), list(taken), loads, failures) == chosen


def test_locations_that_are_listed_are_preferred_in_their_order_and_no_others_taken() -> None:
    criteria = Criteria(initial=2, locations=("c", "b"))
    assert choose(criteria, PLACES, (), {}, {}) == "c"
    assert choose(criteria, PLACES, ("c",), {}, {}) == "b"
    assert choose(criteria, PLACES, ("c", "b"), {}, {}) is None


@pytest.mark.parametrize(
    "criteria",
    [
        Criteria("warm"),
        Criteria(PASSIVE, 2, 3),
        Criteria(PASSIVE, 2, 0),
        Criteria(ACTIVE, 3, 1, ("a", "b")),
        Criteria(arguments=(b"bytes",)),
    ],
)
def test_criteria_that_cannot_be_met_are_refused(criteria: Criteria) -> None:
    with pytest.raises(ValueError, match=r"style|least|locations|arguments"):
        checked(criteria)


# -- When -----------------------------------------------------------------------------------------


def test_a_group_begins_with_one_founder_and_the_others_follow_it() -> None:
    domain = Domain(*PLACES)
    domain.do("create", GROUP, "ledger", tuple(Criteria()))
    assert domain.starting == ["a"]
    assert domain.orders("a")["stock.1"].founder
    domain.report("stock.1")
    assert domain.starting == ["b", "c"]
    assert not any(order.founder for place in "bc" for order in domain.orders(place).values())
    assert not domain.manager.is_complete(GROUP)
    domain.report("stock.1", "stock.2", "stock.3")
    assert domain.manager.is_complete(GROUP)
    assert (domain.places, domain.starting) == (["a", "b", "c"], [])


def test_members_of_several_groups_are_spread() -> None:
    domain = Domain(*PLACES)
    domain.create(2, 2)
    domain.do("create", "other", "ledger", tuple(Criteria(ACTIVE, 2, 2)))
    domain.do("view", "other", 2, 1, ("other.3",))
    assert [len(domain.orders(place)) for place in PLACES] == [1, 1, 1, 1]


def test_after_a_crash_there_is_the_minimum_again_and_not_more() -> None:
    domain = Domain(*PLACES)
    domain.create(3, 2)
    domain.do("ended", GROUP, member_at(domain, "a"), "killed")
    assert (domain.places, domain.starting) == (["b", "c"], [])
    domain.do("ended", GROUP, member_at(domain, "b"), "killed")
    assert (domain.places, domain.starting) == (["c"], ["a"])
    domain.all_run()
    assert domain.places == ["a", "c"]
    assert domain.faults == [("object", "stock.1"), ("object", "stock.2")]


def test_a_location_that_is_gone_takes_its_members_and_others_replace_them() -> None:
    domain = Domain(*PLACES)
    domain.create(3, 3)
    domain.go("a")
    assert (domain.places, domain.starting) == (["b", "c"], ["d"])
    assert domain.faults == [("location", "a"), ("object", "stock.1")]
    domain.all_run()
    domain.go("b")
    assert (domain.places, domain.starting) == (["c", "d"], [])  # there is no other
    domain.come("b")
    assert domain.starting == ["b"]


def test_a_factory_that_leaves_is_no_fault() -> None:
    domain = Domain(*PLACES)
    domain.create(3, 3)
    domain.do("withdraw", "a")
    domain.go("a")
    assert (domain.places, domain.starting) == (["b", "c"], ["d"])
    assert domain.faults == []


def test_an_offer_of_a_factory_that_is_gone_counts_for_nothing() -> None:
    domain = Domain("a")
    domain.do("offer", "b", ("ledger",))
    assert list(domain.manager.locations) == ["a"]


def test_a_member_that_its_group_has_removed_is_replaced() -> None:
    domain = Domain(*PLACES)
    domain.create(3, 3)
    hung = member_at(domain, "b")
    domain.report("stock.1", "stock.3")
    assert domain.faults == [("object", hung)]
    assert domain.starting == ["b"]  # the least loaded ones are b and d
    assert hung not in domain.orders("b")


def test_a_view_that_is_older_than_another_counts_for_nothing() -> None:
    domain = Domain(*PLACES)
    domain.create(3, 3)
    domain.do("view", GROUP, 1, 1, ("stock.1",))
    assert domain.places == ["a", "b", "c"]


def test_a_location_where_members_do_not_start_gets_no_more_of_them() -> None:
    domain = Domain("a", "b")
    domain.create(1, 1)
    domain.do("create", "other", "ledger", tuple(Criteria(ACTIVE, 2, 2)))
    tried = []
    while found := [name for place in "ab" for name in domain.orders(place) if name[:5] == "other"]:
        tried.append(domain.manager.group("other").starting)
        domain.do("ended", "other", found[0], "it cannot start")
    assert sorted(tried) == [("a",)] * ATTEMPTS + [("b",)] * ATTEMPTS
    assert not domain.manager.is_complete("other")
    domain.go("b")
    domain.come("b")  # it may be well now
    assert domain.manager.group("other").starting == ("b",)


def test_a_group_whose_members_have_all_failed_is_lost_and_does_not_start_over() -> None:
    domain = Domain(*PLACES)
    domain.create(2, 2)
    domain.go("a", "b")
    assert domain.manager.group(GROUP).lost
    assert domain.faults[-1] == ("group", GROUP)
    assert (domain.places, domain.starting) == ([], [])
    domain.come("e")
    assert domain.starting == []
    with pytest.raises(ValueError, match="no state"):
        domain.do("create member", GROUP, "c", "ledger", ())
    domain.do("delete", GROUP)
    domain.create(2, 2)
    assert len(domain.places) == 2


def test_a_founder_that_fails_before_it_runs_has_a_successor_that_is_a_founder() -> None:
    domain = Domain(*PLACES)
    domain.do("create", GROUP, "ledger", tuple(Criteria()))
    domain.do("ended", GROUP, "stock.1", "it cannot start")
    assert domain.starting == ["b"]
    assert domain.orders("b")["stock.2"].founder


# -- What programs ask for ------------------------------------------------------------------------


def test_members_are_created_added_and_removed_at_locations() -> None:
    domain = Domain(*PLACES)
    domain.create(2, 1)
    domain.do("create member", GROUP, "d", "ledger", ("special",))
    assert domain.orders("d")["stock.3"].arguments == ("special",)
    domain.all_run()
    domain.report("stock.1", "stock.2", "stock.3", "own")
    domain.do("add member", GROUP, "attic", "own")
    assert domain.places == ["a", "attic", "b", "d"]
    domain.do("remove member", GROUP, "b")
    assert domain.orders("b") == {}
    domain.report("stock.1", "stock.3")
    assert domain.places == ["a", "d"]
    assert domain.faults == [("object", "own")]


def test_a_member_that_is_removed_below_the_minimum_is_replaced_elsewhere() -> None:
    domain = Domain(*PLACES)
    domain.create(2, 2)
    domain.do("remove member", GROUP, "a")
    assert (domain.places, domain.starting) == (["b"], ["c"])
    assert domain.faults == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("create", GROUP, "ledger", tuple(Criteria())), "already"),
        (("create", "other", "ledger", tuple(Criteria(ACTIVE, 5, 2))), "4 locations can"),
        (("create", "an other", "ledger", tuple(Criteria())), "no blanks"),
        (("create member", GROUP, "d", "ledger", (b"",)), "arguments"),
        (("create", "other", "diary", tuple(Criteria())), "0 locations can .*: none"),
        (("create", "other", "ledger", tuple(Criteria("hot"))), "style"),
        (("delete", "other"), "no object group"),
        (("create member", GROUP, "a", "ledger", ()), "has a member"),
        (("create member", GROUP, "x", "ledger", ()), "makes no member"),
        (("create member", GROUP, "d", "diary", ()), "of type 'ledger'"),
        (("add member", GROUP, "attic", "own"), "not joined"),
        (("add member", GROUP, "attic", "stock.1"), "added already"),
        (("remove member", GROUP, "d"), "has no member"),
        (("dance",), "not a command"),
    ],
)
def test_what_is_not_possible_is_refused(command: tuple[Any, ...], why: str) -> None:
    domain = Domain(*PLACES)
    domain.create()
    with pytest.raises(ValueError, match=why):
        domain.manager.apply(command)


def test_the_last_member_is_not_removed() -> None:
    domain = Domain(*PLACES)
    domain.create(1, 1)
    with pytest.raises(ValueError, match="the last member"):
        domain.manager.apply(("remove member", GROUP, "a"))


def test_reports_about_a_deleted_group_count_for_nothing() -> None:
    domain = Domain(*PLACES)
    domain.create()
    domain.do("delete", GROUP)
    domain.do("ended", GROUP, "stock.1", "late")
    domain.do("view", GROUP, 1, 99, ("stock.2",))
    assert domain.manager.groups() == []
    assert all(domain.orders(place) == {} for place in PLACES)


def test_the_last_faults_are_kept_with_their_numbers() -> None:
    domain = Domain("a", "b")
    for _ in range(FAULTS_KEPT + 3):
        domain.manager.viewed(("first",))
        domain.manager.viewed(("first", FACTORY + "a"))
        domain.manager.apply(("offer", "a", ("ledger",)))
    numbers = [fault.number for fault in domain.manager.faults]
    assert numbers == list(range(numbers[-1] - FAULTS_KEPT + 1, numbers[-1] + 1))
    assert numbers[-1] > FAULTS_KEPT


def test_a_group_of_the_name_of_a_deleted_one_has_nothing_to_do_with_it() -> None:
    domain = Domain(*PLACES)
    domain.create(2, 1)
    domain.do("delete", GROUP)
    domain.create(2, 2)
    assert sorted(domain.manager.group(GROUP).members) == ["stock.3", "stock.4"]
    domain.do("view", GROUP, 1, 99, ("stock.1", "stock.2"))
    domain.do("ended", GROUP, "stock.1", "late")
    assert domain.places == ["a", "b"]
    assert domain.faults == []


# -- Gateway --------------------------------------------------------------------------------------


class Sum:
    def __init__(self) -> None:
        self.value = 0

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def register(self) -> str:
        return "done"

    def get_state(self) -> bytes:
        return str(self.value).encode()

    def set_state(self, state: bytes) -> None:
        self.value = int(state)


def call(gateway: IncomingRequestGateway, operation: str, *arguments: Any) -> Any:
    return gateway.apply((operation, arguments, {}))


def test_a_gateway_logs_requests_with_their_replies_and_hands_the_log_on() -> None:
    gateway = IncomingRequestGateway(Sum(), founder=True)
    assert [call(gateway, "add", 2), call(gateway, "add", 3)] == [2, 5]
    with pytest.raises(TypeError):
        call(gateway, "add", "x")
    copy = IncomingRequestGateway(Sum(), founder=False)
    copy.restore(gateway.snapshot())
    assert call(copy, LOG) == (("add", (2,), {}, 2), ("add", (3,), {}, 5))
    assert call(copy, "add", 1) == 6
    assert call(copy, "register") == "done"


def test_a_log_is_bounded() -> None:
    gateway = IncomingRequestGateway(Sum(), founder=True)
    for n in range(10_000):
        call(gateway, "add", n)
    assert 1000 < len(call(gateway, LOG)) < 10_000
    assert len(gateway.snapshot()) < LOG_BYTES * 1.2
    assert call(gateway, LOG)[-1][1] == (9999,)


@pytest.mark.parametrize("operation", ["get_state", "set_state", "_private", "no", "value"])
def test_a_gateway_calls_operations_alone(operation: str) -> None:
    gateway = IncomingRequestGateway(Sum(), founder=True)
    with pytest.raises(AttributeError, match=operation):
        call(gateway, operation)


def test_a_gateway_without_a_state_refuses_requests_and_hands_on_no_state() -> None:
    gateway = IncomingRequestGateway(Sum(), founder=False)
    with pytest.raises(RuntimeError, match="lost its state"):
        call(gateway, "add", 1)
    other = IncomingRequestGateway(Sum(), founder=False)
    other.restore(gateway.snapshot())
    with pytest.raises(RuntimeError, match="lost its state"):
        call(other, "add", 1)


def test_a_gateway_takes_over_no_state_of_another_generation() -> None:
    old = IncomingRequestGateway(Sum(), founder=True, generation=1)
    call(old, "add", 1)
    new = IncomingRequestGateway(Sum(), founder=True, generation=2)
    with pytest.raises(ValueError, match="an earlier group of this name"):
        new.restore(old.snapshot())
    assert call(new, "add", 1) == 1


@pytest.mark.parametrize("command", [None, ("add",), ("add", 1, {}), (1, (), {})])
def test_a_request_of_another_form_is_refused(command: Any) -> None:
    with pytest.raises(TypeError, match="a request is"):
        IncomingRequestGateway(Sum(), founder=True).apply(command)
