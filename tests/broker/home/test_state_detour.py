"""A state finds its way between two servers that cannot reach each other."""

from antiphon.formats import protocol as cw
from tests.broker.support.homes import Client, Homes

GROUP = "topic:g"


def member(homes: Homes, session: int, node: int, name: str) -> Client:
    client = homes.attached(session, node)
    client.say(cw.Control(1, cw.Join(1, GROUP, 100, name, False, True)))
    return client


def states(homes: Homes) -> tuple[Client, Client]:
    """Who hands out a state, and who waits for it; the leader is a third one."""
    homes.apart = {2, 3}
    return member(homes, 1, 2, "gives"), member(homes, 2, 3, "takes")


def request(taker: Client) -> int:
    told: list[cw.StateComes] = taker.told(cw.StateComes)
    return told[-1].serial


def ask_again(taker: Client, number: int) -> int:
    taker.say(cw.Control(number, cw.AskState(1, request(taker), False)))
    return request(taker)


def test_a_state_that_does_not_come_straight_comes_by_way_of_the_leader() -> None:
    homes = Homes(3)
    provider, taker = states(homes)
    provider.say(cw.StateChunk(1, request(taker), 1, b"lost", True))
    assert taker.told(cw.StateChunk) == []
    serial = ask_again(taker, 2)
    provider.say(cw.StateChunk(1, serial, 1, b"a", False))
    taker.say(cw.StateTaken(1, serial, 1))
    assert taker.told(cw.StateChunk) == [cw.StateChunk(1, serial, 1, b"a", False)]
    assert provider.told(cw.StateTaken) == [cw.StateTaken(1, serial, 1)]


def test_a_detour_that_does_not_help_is_not_taken_for_ever() -> None:
    homes = Homes(3)
    provider, taker = states(homes)
    ask_again(taker, 2)
    serial = ask_again(taker, 3)
    homes.apart = {1, 2}  # now it is the leader that the provider's server cannot reach
    provider.say(cw.StateChunk(1, serial, 1, b"a", True))
    assert taker.told(cw.StateChunk) == [cw.StateChunk(1, serial, 1, b"a", True)]


def test_who_is_no_leader_passes_nothing_on() -> None:
    """So nothing goes in circles between servers that have different ideas of who is where."""
    homes = Homes(3)
    _, taker = states(homes)
    body = cw.encode(cw.StateChunk(1, request(taker), 1, b"a", True))
    homes.servers[2].home.relayed(2, 1, body)
    assert homes.servers[2].home.take() == []


def test_what_is_for_an_earlier_connection_is_not_passed_on() -> None:
    homes = Homes(3)
    _, taker = states(homes)
    body = cw.encode(cw.StateChunk(1, request(taker), 1, b"a", True))
    homes.servers[1].home.relayed(2, 7, body)
    assert homes.servers[1].home.take() == []
