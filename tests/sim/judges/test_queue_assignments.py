"""The judge of queues: who may be given what."""

import pytest

from antiphon.broker.machine import events as ev
from antiphon.model.destinations import DEAD_LETTERS
from antiphon.sim.judges.queue_assignments import Division, Reader
from antiphon.sim.message_traits import PLAIN, Traits
from antiphon.sim.violations import ViolationError

ONE, OTHER = (1, 1), (2, 1)
QUEUE = "queue:q"


class Setting:
    """A queue with two consumers."""

    def __init__(self, queue: str = QUEUE) -> None:
        self.traits: dict[int, Traits] = {}
        self.gone: set[Reader] = set()
        self.division = Division(
            lambda position: self.traits.get(position, PLAIN), lambda reader: reader in self.gone
        )
        self.division.opens(ONE, queue, exclusive=False)
        self.division.opens(OTHER, queue, exclusive=False)

    def put(self, position: int, traits: Traits) -> None:
        self.traits[position] = traits
        self.division.accepted(position, traits)

    def give(
        self, reader: Reader, position: int, deliveries: int = 1, stamp: int = 50, last: int = 0
    ) -> None:
        event = ev.Assigned(*reader, position, last or position, deliveries)
        self.division.assigned(event, stamp)


@pytest.fixture
def setting() -> Setting:
    return Setting()


# -- Expiry ----------------------------------------------------------------------------------------


def test_assigned_before_it_expires(setting: Setting) -> None:
    setting.put(2, Traits(expires=51))
    setting.give(ONE, 1, last=3)


def test_assigned_after_it_has_expired(setting: Setting) -> None:
    setting.put(2, Traits(expires=50))
    with pytest.raises(ViolationError, match="assigned 2 at 50, which expired at 50"):
        setting.give(ONE, 1, last=3)


def test_nothing_about_a_dead_letter_is_special() -> None:
    setting = Setting(DEAD_LETTERS)
    setting.put(2, Traits(expires=50, group="g"))
    setting.give(ONE, 2)
    setting.give(OTHER, 2)


# -- Exclusive consumers ---------------------------------------------------------------------------


def test_an_exclusive_consumer_gets_everything(setting: Setting) -> None:
    sole = (3, 1)
    setting.division.opens(sole, QUEUE, exclusive=True)
    setting.give(ONE, 1)  # it may not be open yet
    setting.division.opened(sole)
    setting.give(sole, 2)
    with pytest.raises(ViolationError, match=r"alone, and .* gets something"):
        setting.give(ONE, 3)
    setting.gone.add(sole)
    setting.give(ONE, 3)


def test_of_several_exclusive_consumers_one_gets_everything(setting: Setting) -> None:
    for reader in ((3, 1), (4, 1)):
        setting.division.opens(reader, QUEUE, exclusive=True)
        setting.division.opened(reader)
    setting.give((4, 1), 1)


# -- Groups of messages ----------------------------------------------------------------------------


def test_a_group_goes_to_one_consumer(setting: Setting) -> None:
    for position in (1, 2, 3):
        setting.put(position, Traits(group="g"))
    setting.give(ONE, 1)
    setting.give(ONE, 2)
    with pytest.raises(ViolationError, match=r"assigned 3 of group 'g' to \(2, 1\)"):
        setting.give(OTHER, 3)


def test_a_group_is_free_when_its_consumer_is_gone(setting: Setting) -> None:
    for position in (1, 2, 3):
        setting.put(position, Traits(group="g"))
    setting.give(ONE, 1)
    setting.gone.add(ONE)
    setting.give(OTHER, 2)
    setting.gone.clear()
    with pytest.raises(ViolationError, match="whose group it is"):
        setting.give(ONE, 3)


def test_an_exclusive_consumer_takes_groups_over(setting: Setting) -> None:
    for position in (1, 2, 3):
        setting.put(position, Traits(group="g"))
    setting.give(ONE, 1)
    setting.division.opens((3, 1), QUEUE, exclusive=True)
    setting.give((3, 1), 2)
    setting.gone.add((3, 1))
    setting.give(OTHER, 3)


def test_a_message_before_the_last_one_may_wait_for_its_owner(setting: Setting) -> None:
    setting.put(1, Traits(group="g"))
    setting.put(2, Traits(group="g"))
    setting.put(3, Traits(group="g", closes=True))
    setting.put(4, Traits(group="g"))
    setting.give(ONE, 1)
    setting.give(OTHER, 4)
    setting.give(ONE, 2)


def test_a_group_ends_with_a_message_that_says_so(setting: Setting) -> None:
    setting.put(1, Traits(group="g"))
    setting.put(2, Traits(group="g", closes=True))
    setting.put(3, Traits(group="g"))
    setting.give(ONE, 1)
    setting.give(OTHER, 3)


def test_a_group_does_not_end_before_that_message(setting: Setting) -> None:
    setting.put(1, Traits(group="g"))
    setting.put(2, Traits(group="g"))
    setting.put(3, Traits(group="g", closes=True))
    setting.give(ONE, 1)
    with pytest.raises(ViolationError, match="whose group it is"):
        setting.give(OTHER, 2)
