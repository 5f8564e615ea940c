"""The judge of transactions: a history in which one is halved must be told from one in which all
are whole."""

import pytest

from antiphon.broker.machine import events as ev
from antiphon.errors import ConnectionLostError, TransactionRolledBackError
from antiphon.formats.protocol import Result
from antiphon.sim.judges.transactions import Deal, Deals, Input
from antiphon.sim.violations import ViolationError

SESSION = 7


class History:
    """Entries, one after the other."""

    def __init__(self) -> None:
        self.deals = Deals()
        self.over: set[int] = set()  # messages that the servers have no need of any more
        self.stamp = 0
        self._position = 100
        self._requests = 0

    def deal(self, name: str, *bodies: str, delays: tuple[int, ...] = ()) -> Deal:
        deal = Deal(name)
        for i, body in enumerate(bodies):
            self.deals.sends(deal, body.encode(), delays[i] if delays else 0)
        self._requests += 1
        self.deals.asks(deal, SESSION, self._requests)
        return deal

    def receives(self, deal: Deal, position: int) -> None:
        deal.inputs.append(Input("queue:q", position, lambda: position in self.over))

    def entry(
        self,
        deal: Deal | None,
        *visible: str,
        value: int = 1,
        code: str = "",
        handle: str = "",
        gap: int = 0,
    ) -> None:
        """One at which this is answered, and these become visible."""
        self.stamp += 1
        if deal is not None:
            request = next(n for (_, n), d in self.deals._asked.items() if d is deal)
            result = Result(request, code, "", value, handle.encode())
            self.deals.answered(ev.Answered(SESSION, result))
        for body in visible:
            self._position += 1 + gap
            self.deals.accepted(self._position, body.encode(), self.stamp)
        self.deals.applied(self.stamp)


@pytest.fixture
def history() -> History:
    return History()


def test_a_good_history_passes(history: History) -> None:
    one, other = history.deal("one", "a", "b"), history.deal("other", "c")
    history.receives(one, 5)
    history.over.add(5)
    history.entry(one, "a", "b")
    history.deals.told(one, None, 1)
    history.entry(None)
    history.entry(other, "c")
    history.entry(one)  # answered again
    assert history.deals.outcomes == {"committed": 2}


def test_half_of_it_is_visible(history: History) -> None:
    deal = history.deal("one", "a", "b")
    with pytest.raises(ViolationError, match="committed at one entry"):
        history.entry(deal, "a")


def test_in_another_order(history: History) -> None:
    deal = history.deal("one", "a", "b")
    with pytest.raises(ViolationError, match="committed at one entry"):
        history.entry(deal, "b", "a")


def test_something_stands_in_between(history: History) -> None:
    deal = history.deal("one", "a", "b")
    with pytest.raises(ViolationError, match="not one after the other"):
        history.entry(deal, "a", "b", gap=1)


def test_visible_without_a_commit(history: History) -> None:
    history.deal("one", "a")
    with pytest.raises(ViolationError, match=r"committed at one entry: \[\]"):
        history.entry(None, "a")


def test_visible_though_it_was_refused(history: History) -> None:
    deal = history.deal("one", "a")
    deal.lends = True
    with pytest.raises(ViolationError, match=r"committed at one entry: \[\]"):
        history.entry(deal, "a", code="TransactionRolledBackError")


def test_dropped_though_somebody_waits_for_it(history: History) -> None:
    ended = {"temp-queue:2.1"}
    history.deals.has_ended = ended.__contains__
    one, two = history.deal("one", "a", "b"), history.deal("two", "c", "d")
    for deal in (one, two):
        deal.risky[deal.bodies[0]] = "temp-queue:2.1"
    history.entry(one, "b")
    assert history.deals.outcomes["dropped"] == 1
    ended.clear()
    with pytest.raises(ViolationError, match="committed at one entry"):
        history.entry(two, "d")


def test_refused_because_nobody_waits_for_it(history: History) -> None:
    deal = history.deal("one", "a")
    deal.risky[b"a"] = "temp-queue:2.1"
    with pytest.raises(ViolationError, match="nothing is wrong"):
        history.entry(deal, code="TransactionRolledBackError")


def test_refused_for_no_reason(history: History) -> None:
    deal = history.deal("one", "a")
    with pytest.raises(ViolationError, match="nothing is wrong"):
        history.entry(deal, code="TransactionRolledBackError")


def test_refused_and_its_input_is_gone(history: History) -> None:
    deal = history.deal("one", "a")
    deal.handles = ("nothing",)
    history.receives(deal, 5)
    history.over.add(5)
    with pytest.raises(ViolationError, match="has lost 5"):
        history.entry(deal, code="TransactionRolledBackError")


def test_committed_and_its_input_is_still_there(history: History) -> None:
    deal = history.deal("one", "a")
    history.receives(deal, 5)
    with pytest.raises(ViolationError, match="still has 5"):
        history.entry(deal, "a")


def test_an_input_is_used_twice(history: History) -> None:
    for name in ("one", "other"):
        history.receives(history.deal(name, name), 5)
    history.over.add(5)
    one, other = (deal for deal in history.deals._asked.values())
    history.entry(one, "one")
    with pytest.raises(ViolationError, match="is used by one and by other"):
        history.entry(other, "other")


# -- Tokens ----------------------------------------------------------------------------------------


def test_a_token_that_was_committed_makes_a_deal_void(history: History) -> None:
    one, other = history.deal("one", "a"), history.deal("other", "b")
    one.token = other.token = "t"
    history.entry(one, "a")
    history.entry(other, value=0)
    history.deals.told(other, None, 0)
    assert history.deals.outcomes == {"committed": 1, "void": 1}


def test_a_token_is_forgotten(history: History) -> None:
    one, other = history.deal("one", "a"), history.deal("other", "b")
    one.token = other.token = "t"
    history.entry(one, "a")
    with pytest.raises(ViolationError, match="its token is t"):
        history.entry(other, "b")


def test_a_token_that_nobody_has_used_makes_a_deal_void(history: History) -> None:
    deal = history.deal("one", "a")
    with pytest.raises(ViolationError, match="is answered 0"):
        history.entry(deal, value=0)


def test_a_void_deal_has_inputs(history: History) -> None:
    one, other = history.deal("one", "a"), history.deal("other", "b")
    one.token = other.token = "t"
    history.receives(other, 5)
    history.entry(one, "a")
    with pytest.raises(ViolationError, match="has inputs, and is void"):
        history.entry(other, value=0)


# -- Handles ---------------------------------------------------------------------------------------


def test_what_is_staged_is_committed_by_its_handle(history: History) -> None:
    staged, other = history.deal("staged", "a"), history.deal("other", "b")
    staged.stages, other.handles = True, ("h",)
    history.entry(staged, handle="h")
    assert history.deals.handles == {"h"}
    history.entry(other, "b", "a")
    assert history.deals.handles == set()


def test_staging_makes_nothing_visible(history: History) -> None:
    staged = history.deal("staged", "a")
    staged.stages = True
    with pytest.raises(ViolationError, match=r"committed at one entry: \[\]"):
        history.entry(staged, "a", handle="h")


def test_a_handle_is_good_once(history: History) -> None:
    staged, one, other = (history.deal(name, name) for name in ("staged", "one", "other"))
    staged.stages = True
    one.handles = other.handles = ("h",)
    history.entry(staged, handle="h")
    history.entry(one, "one", "staged")
    history.entry(other, code="TransactionRolledBackError")
    with pytest.raises(ViolationError, match="nothing is wrong"):
        history.entry(history.deal("last"), code="TransactionRolledBackError")


# -- Delays ----------------------------------------------------------------------------------------


def test_what_is_delayed_comes_later(history: History) -> None:
    deal = history.deal("one", "a", "b", delays=(0, 2))
    history.entry(deal, "a")
    assert history.deals.hidden() == [b"b"]
    history.entry(None)
    history.entry(None, "b")
    assert history.deals.hidden() == []


def test_what_is_delayed_comes_too_early(history: History) -> None:
    deal = history.deal("one", "a", "b", delays=(0, 2))
    history.entry(deal, "a")
    with pytest.raises(ViolationError, match="is delayed to 3"):
        history.entry(None, "b")


# -- What the program is told ----------------------------------------------------------------------


def test_told_and_not_so(history: History) -> None:
    deal = history.deal("one", "a")
    with pytest.raises(ViolationError, match="was told 1, and what happened is None"):
        history.deals.told(deal, None, 1)


def test_told_another_value(history: History) -> None:
    deal = history.deal("one", "a")
    history.entry(deal, "a")
    with pytest.raises(ViolationError, match="was told 0"):
        history.deals.told(deal, None, 0)


def test_told_that_it_was_rolled_back(history: History) -> None:
    deal = history.deal("one", "a")
    history.entry(deal, "a")
    history.deals.told(deal, ConnectionLostError(""), 0)  # who knows
    with pytest.raises(ViolationError, match="is committed, and was told"):
        history.deals.told(deal, TransactionRolledBackError(""), 0)
