"""Which bytes a relay passes on, and when."""

import asyncio
from ctypes import c_uint64
from typing import Any, cast

from antiphon.lab.bench.bare_relay import Relay, Source


class Written:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


class End(Written):
    """A connection on which data comes, and what was answered on it."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self._source = relay.add_source(cast(asyncio.Transport, self))

    def send(self, data: bytes) -> None:
        self._relay.take(data, self._source)


def relay_with_member() -> tuple[Relay, End, Written]:
    relay, member = Relay(None, c_uint64()), Written()
    relay.add_member(cast(asyncio.Transport, member))
    return relay, End(relay), member


def packed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def count(n: int) -> bytes:
    return n.to_bytes(8, "little")


def test_a_follower_answers_what_it_has_and_waits_for_the_commit() -> None:
    relay, source, member = relay_with_member()
    source.send(b"abc")
    source.send(b"de")
    assert source.data == count(3) + count(5)
    assert member.data == b""
    relay.commit(3)
    assert member.data == b"abc"
    relay.commit(5)
    assert member.data == b"abcde"


def test_a_commit_may_come_before_the_data() -> None:
    relay, source, member = relay_with_member()
    relay.commit(5)
    source.send(b"abc")
    source.send(b"de")
    source.send(b"f")
    assert member.data == b"abcde"


def test_a_leader_commits_what_a_majority_has() -> None:
    async def main() -> None:
        relay, source, member = relay_with_member()
        await relay.lead([])
        followers: list[Any] = []
        for _ in range(2):
            follower = _Follower()
            followers.append(follower)
            relay._followers.append(cast(Any, follower))
        source.send(b"abc")
        assert (source.data, member.data) == (b"", b"")
        followers[1].counts.newest = 3
        relay.count()
        assert (source.data, member.data) == (count(3), b"abc")
        assert followers[0].data == b"abc"

    asyncio.run(main())


def test_packs_of_two_publishers_stay_whole_and_each_is_answered_its_own() -> None:
    relay, one, member = relay_with_member()
    other = End(relay)
    first, second = packed(b"first"), packed(b"second")
    one.send(first[:6])
    other.send(second)
    assert (one.data, other.data) == (b"", count(len(second)))
    one.send(first[6:])
    assert one.data == count(len(first))
    relay.commit(len(first + second))
    assert member.data == second + first


def test_packs_are_whole_however_the_bytes_arrive() -> None:
    source = Source(Written().write)
    data = packed(b"one") + packed(b"") + packed(b"three")
    found = [source.whole_packs(data[at : at + 1]) for at in range(len(data))]
    assert [whole for whole in found if whole] == [packed(b"one"), packed(b""), packed(b"three")]
    assert source.whole_packs(data + b"\1") == data


class _Follower(Written):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()


class Counts:
    newest = 0
