"""What a relay hands out, and when."""

import asyncio
from typing import Any, cast

from antiphon.bench.relay import DATA, MEMBER, Relay


class Written:
    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def relay_with_member() -> tuple[Relay, Written, Written]:
    relay, source, member = Relay(None), Written(), Written()
    relay.connected(DATA, cast(asyncio.Transport, source))
    relay.connected(MEMBER, cast(asyncio.Transport, member))
    return relay, source, member


def count(n: int) -> bytes:
    return n.to_bytes(8, "little")


def test_a_follower_answers_what_it_has_and_waits_for_the_commit() -> None:
    relay, source, member = relay_with_member()
    relay.take(b"abc")
    relay.take(b"de")
    assert source.data == count(3) + count(5)
    assert member.data == b""
    relay.commit(3)
    assert member.data == b"abc"
    relay.commit(5)
    assert member.data == b"abcde"


def test_a_commit_may_come_before_the_data() -> None:
    relay, _, member = relay_with_member()
    relay.commit(5)
    relay.take(b"abc")
    relay.take(b"de")
    relay.take(b"f")
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
        relay.take(b"abc")
        assert (source.data, member.data) == (b"", b"")
        followers[1].counts.newest = 3
        relay.count()
        assert (source.data, member.data) == (count(3), b"abc")
        assert followers[0].data == b"abc"

    asyncio.run(main())


class _Follower(Written):
    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()


class Counts:
    newest = 0
