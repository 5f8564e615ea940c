"""Connections between the processes of a channel, with real sockets."""

import asyncio
import gc
import logging
import socket
import struct
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import ConfigurationError
from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import Body, frame
from antiphon.io.peers import connection, transport
from antiphon.io.peers.asking import ask
from antiphon.io.peers.security import Contexts, Tls, contexts_of
from antiphon.io.peers.transport import PeerTransport
from antiphon.model.peer_views import MemberId
from tests.peers.support.certificates import Authority

pytestmark = pytest.mark.process

HOST = "127.0.0.1"


class Peer:
    """A transport, and what it has reported."""

    def __init__(
        self, name: str, cluster: str = "c", digest: int = 7, tls: Contexts | None = None
    ) -> None:
        self.id = MemberId(name, 1)
        self.told: list[tuple[Any, ...]] = []
        self.frames: list[tuple[str, bytes]] = []
        self.refusals: list[str] = []
        self.turned: list[str] = []  # away
        self.unwelcome: set[str] = set()
        own = wire.PeerHello(
            wire.MAGIC, wire.OLDEST, wire.NEWEST, cluster, digest, f"stack {digest}", self.id, ""
        )
        self.transport = PeerTransport(own, self, tls, plaintext=False)
        self.address = self.transport.listen([f"{HOST}:0"])

    def welcome(self, process: MemberId) -> wire.Refused | None:
        unwelcome = process.name in self.unwelcome
        return wire.Refused("not now", again=True, replaced=True) if unwelcome else None

    def linked(self, process: MemberId, address: str) -> None:
        self.told.append(("linked", process.name, address))

    def unlinked(self, process: MemberId, goodbye: bool) -> None:
        self.told.append(("unlinked", process.name, goodbye))

    def arrived(self, process: MemberId, bodies: Sequence[Body]) -> None:
        self.frames += [(process.name, bytes(body)) for body in bodies]

    def refused(self, who: str, reason: str, again: bool) -> None:
        self.refusals.append(reason)

    def turned_away(self, who: str, reason: str) -> None:
        self.turned.append(f"{who}: {reason}")

    def asked(self, what: str) -> wire.Answer:
        return wire.Answer(True, f"{self.id} is asked: {what}")

    def unreachable(self, address: str) -> None:
        self.told.append(("unreachable", address))

    def replaced(self, reason: str) -> None:
        self.told.append(("replaced", reason))

    def dial(self, other: "Peer", keep: bool = False) -> None:
        self.transport.dial(other.address, keep)

    def send(self, data: bytes, *to: "Peer") -> None:
        self.transport.send([other.id for other in to], data[:3], data[3:])
        self.transport.flush()

    def knows(self, *others: "Peer") -> bool:
        return set(self.transport.linked) == {other.id for other in others}


@asynccontextmanager
async def peers(*names: str, **options: Any) -> AsyncIterator[list[Peer]]:
    """Transports that listen, and know nobody."""
    found = [Peer(name, **options) for name in names]
    try:
        yield found
    finally:
        await asyncio.gather(*(peer.transport.close() for peer in found))


async def eventually(condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_frames_arrive_in_order_at_all_that_are_meant() -> None:
    async def test() -> None:
        async with peers("a", "b", "c") as (a, b, c):
            a.dial(b)
            a.dial(c)
            await eventually(lambda: a.knows(b, c) and b.knows(a))
            for i in range(1000):
                a.send(b"%d" % i, b, c)
            a.send(b"for c", c)
            b.send(bytes(3 << 20), a)
            await eventually(lambda: len(c.frames) == 1001 and len(b.frames) == 1000 and a.frames)
            assert b.frames == [("a", b"%d" % i) for i in range(1000)]
            assert c.frames[-1] == ("a", b"for c")
            assert a.frames == [("b", bytes(3 << 20))]

    run(test)


def test_a_link_is_reported_with_an_address_before_its_frames() -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            assert a.told == [("linked", "b", b.address)]
            assert b.told == [("linked", "a", a.address)]

    run(test)


@pytest.mark.parametrize("times", range(5))
def test_two_that_dial_each_other_at_once_keep_one_connection(times: int) -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b, keep=True)
            b.dial(a, keep=True)
            await eventually(lambda: a.knows(b) and b.knows(a))

            def have_arrived() -> bool:
                a.send(b"to b", b)  # again and again: what is under way on the connection that is
                b.send(b"to a", a)  # given up is lost
                return bool(a.frames and b.frames)

            await eventually(have_arrived)
            await asyncio.sleep(0.2)  # a second connection would have come by now
            assert a.transport.counts()["connections"] == 1
            assert a.transport.counts()["strangers"] == b.transport.counts()["strangers"] == 0
            assert [word for word, *_ in a.told + b.told] == ["linked", "linked"]

    run(test)


def test_everybody_dials_everybody() -> None:
    async def test() -> None:
        async with peers(*"abcdef") as found:
            for peer in found:
                for other in found:
                    peer.dial(other, keep=True)
            await eventually(lambda: all(len(peer.transport.linked) == 5 for peer in found))
            assert not any("unlinked" in told for peer in found for told in peer.told)

    run(test)


def test_the_goodbye_of_a_process_is_told_from_its_crash() -> None:
    async def test() -> None:
        async with peers("a", "b", "c") as (a, b, c):
            a.dial(b)
            a.dial(c)
            await eventually(lambda: a.knows(b, c))
            await b.transport.close()
            await eventually(lambda: ("unlinked", "b", True) in a.told)
            c.transport._links[a.id].abort("crash")
            await eventually(lambda: ("unlinked", "c", False) in a.told)

    run(test)


def test_a_lost_connection_is_dialled_again() -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            b.transport._links[a.id].abort("crash")
            await eventually(lambda: a.told.count(("linked", "b", b.address)) == 2)
            await eventually(lambda: b.knows(a))

    run(test)


def test_an_address_that_is_kept_is_dialled_until_somebody_is_there() -> None:
    async def test() -> None:
        async with peers("a") as (a,):
            with socket.create_server((HOST, 0)) as taken:
                address = f"{HOST}:{taken.getsockname()[1]}"
            a.transport.dial(address, keep=True)
            await a.transport.first_attempts(5)
            async with peers("b") as (b,):
                late = PeerTransport(b.transport.own, b, None, False)
                late.own = wire.PeerHello(
                    *("antiphon peer", 1, 1, "c", 7, "stack 7", MemberId("late", 1), "")
                )
                assert late.listen([address]) == address
                await eventually(lambda: "late" in [p.name for p in a.transport.linked])
                await late.close()

    run(test)


def test_an_address_that_is_forgotten_is_not() -> None:
    async def test() -> None:
        async with peers("a") as (a,):
            a.transport.dial(f"{HOST}:1", keep=True)
            await a.transport.first_attempts(5)
            assert a.transport.counts()["dialling"] == 1
            a.transport.forget(f"{HOST}:1")
            await eventually(lambda: a.transport.counts()["dialling"] == 0)

    run(test)


def test_who_dials_itself_notices() -> None:
    async def test() -> None:
        async with peers("a") as (a,):
            port = a.address.rpartition(":")[2]
            a.transport.dial(f"localhost:{port}", keep=True)
            await eventually(lambda: a.transport.counts()["dialling"] == 0)
            assert a.told == a.refusals == []

    run(test)


def test_other_clusters_and_stacks_are_refused_at_both_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with peers("a") as (a,):
            for other, complaint in (
                (Peer("b", cluster="d"), "belongs to the cluster"),
                (Peer("b", digest=8), "runs another stack"),
            ):
                caplog.clear()
                a.turned.clear()
                other.dial(a)
                await eventually(lambda: a.turned and other.refusals)  # noqa: B023
                assert complaint in a.turned[0]
                assert complaint in other.refusals[0]
                assert a.turned[0].startswith("b: ")
                assert a.refusals == other.turned == []
                assert [r.levelno for r in caplog.records].count(logging.WARNING) >= 2
                assert a.told == other.told == []
                await other.transport.close()

    run(test)


def test_who_is_not_welcome_comes_in_when_it_is() -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.unwelcome.add("b")
            b.dial(a, keep=True)
            await eventually(lambda: b.refusals)
            assert "not now" in b.refusals[0]
            assert ("replaced", "not now") in b.told
            a.unwelcome.clear()
            await eventually(lambda: a.knows(b))

    run(test)


def test_garbage_ends_its_connection_and_no_other() -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b))
            hello = wire.encode_hello(b.transport.own)
            for greeting in (
                b"GET / HTTP/1.1\r\n\r\n",
                struct.pack("<II", 1 << 30, 0),
                frame(b"\x00" * 100),
                frame(hello[:-3]),
                frame(hello) + frame(b"\xff" + b"\x91\xa5Ready") + b"garbage that is no frame",
                frame(wire.encode_word(wire.Goodbye())),
                frame(hello) + frame(wire.encode_word(wire.Question("c", "status"))),
            ):
                assert await answer(a.address, greeting) is not None
            a.send(b"still there", b)
            await eventually(lambda: b.frames == [("a", b"still there")])

    run(test)


def test_a_program_that_does_not_take_part_gets_an_answer_and_nothing_else() -> None:
    async def test() -> None:
        async with peers("a") as (a,):

            async def asked(cluster: str) -> wire.Answer:
                question = wire.Question(cluster, "status")
                return await asyncio.to_thread(ask, a.address, question, None, False, 10.0)

            assert await asked("c") == wire.Answer(True, "a is asked: status")
            other = "a belongs to the cluster 'c', not to 'd'"
            assert await asked("d") == wire.Answer(False, other)
            await eventually(lambda: a.transport.counts()["strangers"] == 0)
            assert a.told == []

    run(test)


async def answer(address: str, greeting: bytes) -> bytes:
    """Say this, and return everything that comes back before the other side hangs up."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(greeting)
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.05)

    async def test() -> None:
        async with peers("a") as (a,):
            assert await answer(a.address, b"") == b""
            assert a.transport.counts()["strangers"] == 0

    run(test)


@pytest.mark.parametrize("turns", range(8))
def test_no_socket_is_left_of_who_comes_while_it_closes(turns: int) -> None:
    async def test() -> None:
        peer = Peer("a")
        host, port = peer.address.split(":")
        callers = [socket.create_connection((host, int(port))) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await peer.transport.close()
        for caller in callers:
            caller.close()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        run(test)
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


def test_of_too_many_strangers_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STRANGERS_MAX", 3)

    async def test() -> None:
        async with peers("a", "b") as (a, b):
            host, port = a.address.split(":")
            writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(5)]
            await eventually(lambda: a.transport.counts()["strangers"] == 3)
            b.dial(a)
            await eventually(lambda: a.knows(b))
            for writer in writers:
                writer.close()

    run(test)


def test_a_goodbye_to_a_connection_that_is_gone_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other side has given it up for another one, which has not come yet: uvloop would raise
    for a write to it."""
    uvloop = pytest.importorskip("uvloop")
    monkeypatch.setattr(transport, "DOUBLED_S", 60.0)

    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            gone = a.transport._links[b.id]
            b.transport._links[a.id].double()
            await gone.lost
            assert a.knows(b)
            await a.transport.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


def test_a_large_frame_without_room_is_dropped_and_small_ones_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "QUEUE_BYTES", 1 << 20)

    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            for size in (900_000, 200_000, 1000, 100_000):
                a.transport.send([b.id], b"%7d" % size, bytes(size))
            a.transport.flush()
            a.send(b"...end", b)
            await eventually(lambda: b.frames and b.frames[-1][1] == b"...end")
            assert [int(data[:7]) for _, data in b.frames[:-1]] == [900_000, 1000, 100_000]
            assert a.transport.counts()["dropped"] == 1

    run(test)


def test_a_process_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "QUEUE_BYTES", 1 << 20)

    async def test() -> None:
        async with peers("a", "b") as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            b.transport._links[a.id]._socket.pause_reading()  # type: ignore[union-attr]
            for _ in range(1000):
                a.send(bytes(64 << 10), b)
                if not a.knows(b):
                    break
                await asyncio.sleep(0)
            await eventually(lambda: ("unlinked", "b", False) in a.told)

    run(test)


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def test_members_with_certificates_of_one_authority_are_connected(authority: Authority) -> None:
    async def test() -> None:
        async with peers("a", "b", tls=contexts_of(authority.issue("a"))) as (a, b):
            a.dial(b)
            await eventually(lambda: a.knows(b) and b.knows(a))
            a.send(b"secret", b)
            b.send(bytes(1 << 20), a)
            await eventually(lambda: a.frames and b.frames)

    run(test)


def test_certificates_of_another_authority_are_refused(
    authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    ours = authority.issue("a")
    mixed = Tls(stranger.issue("b").certificate, stranger.issue("b").key, ours.authority)

    async def test() -> None:
        caplog.set_level(logging.INFO)
        a, b = Peer("a", tls=contexts_of(ours)), Peer("b", tls=contexts_of(mixed))
        b.dial(a)
        await eventually(lambda: "refused a connection" in caplog.text)
        await eventually(lambda: b.refusals and "not signed the certificate" in b.refusals[0])
        assert a.told == b.told == []
        await a.transport.close()
        await b.transport.close()

    run(test)


def test_plaintext_to_a_port_with_tls_is_refused(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        caplog.set_level(logging.INFO)
        a, b = Peer("a", tls=contexts_of(authority.issue("a"))), Peer("b")
        b.dial(a)
        await eventually(lambda: "refused a connection" in caplog.text)
        await eventually(lambda: b.refusals and "it hung up during the" in b.refusals[0])
        assert a.told == b.told == []
        await a.transport.close()
        await b.transport.close()

    run(test)


def test_of_an_address_where_nobody_is_it_is_said_that_nobody_is_there() -> None:
    async def test() -> None:
        async with peers("a", "b") as (a, b):
            await b.transport.close()
            a.dial(b)
            await eventually(lambda: ("unreachable", b.address) in a.told)
            assert a.refusals == []

    run(test)


def test_plaintext_off_loopback_has_to_be_asked_for() -> None:
    async def test() -> None:
        async with peers("a") as (a,):
            with pytest.raises(ConfigurationError, match="off loopback"):
                a.transport.dial("192.0.2.7:7", keep=True)
            other = PeerTransport(a.transport.own, a, None, plaintext=False)
            with pytest.raises(ConfigurationError, match="off loopback"):
                other.listen(["0.0.0.0:0"])
            allowed = PeerTransport(a.transport.own, a, None, plaintext=True)
            assert allowed.listen(["0.0.0.0:0"]).startswith("0.0.0.0:")
            await allowed.close()

    run(test)


def test_files_that_make_no_sense_are_refused(authority: Authority, tmp_path: Path) -> None:
    good = authority.issue("a")
    with pytest.raises(ConfigurationError, match="authority"):
        contexts_of(Tls(good.certificate, good.key, str(tmp_path / "none")))
    with pytest.raises(ConfigurationError, match="certificate"):
        contexts_of(Tls(good.certificate, authority.issue("b").key, good.authority))
