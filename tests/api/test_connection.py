"""A connection and its port, on a real loop, with servers that are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.api import connection as module
from antiphon.api.connection import Connection, ConnectionPort, Options, now_ms
from antiphon.api.protocol.attaching import Terms
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats import protocol as cw

AWAY = ConnectionRefusedError("refused")


class Link:
    waiting_bytes = 0

    def __init__(self) -> None:
        self.sent: list[cw.Request] = []
        self.closed = False

    def send(self, requests: list[cw.Request]) -> None:
        self.sent += requests

    def close(self) -> None:
        self.closed = True


class Route:
    """Servers that let everybody in, unless `error` is set, once `open` is."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.dialled: list[str] = []
        self.given_up = 0
        self.links: list[Link] = []
        self.on_bodies: Callable[[Sequence[Any]], None]
        self.on_lost: Callable[[Exception | None], None]
        self.may_release = asyncio.Event()
        self.may_release.set()
        self.release_fails = False
        self.released = False

    def next(self) -> str:
        return f"server-{len(self.dialled) + 1}:1"

    async def dial(self, at: str, on_bodies: Any, on_lost: Any) -> Link:
        self.dialled.append(at)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.error is not None:
            raise self.error
        self.on_bodies, self.on_lost = on_bodies, on_lost
        self.links.append(Link())
        return self.links[-1]

    async def release(self) -> None:
        await self.may_release.wait()
        if self.release_fails:
            raise OSError("says the test")
        self.released = True


class User:
    """A context, as its connection sees it."""

    def __init__(self) -> None:
        self.ends: list[JMSError | None] = []
        self.complaints: list[JMSError] = []
        self.forks = 0

    def ended(self, error: JMSError | None) -> None:
        self.ends.append(error)

    def complain(self, error: JMSError) -> None:
        self.complaints.append(error)

    def forked(self) -> None:
        self.forks += 1


class Driver:
    """Records what a port asks of its driver."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def pump(self, now: int) -> None:
        self._add("pump", now)

    def timer_fired(self, now: int) -> None:
        self._add("timer", now)

    def connected(self, attempt: int, link: Any, now: int) -> None:
        self._add("connected", now, attempt, link)

    def dial_failed(self, attempt: int, error: Exception, now: int) -> None:
        self._add("failed", now, attempt, error)

    def arrived(self, attempt: int, bodies: Sequence[Any], now: int) -> None:
        self._add("arrived", now, attempt, bodies)

    def link_ended(self, attempt: int, error: Exception | None, now: int) -> None:
        self._add("ended", now, attempt, error)

    def _add(self, name: str, now: int, *args: Any) -> None:
        assert abs(now - now_ms()) < 60_000
        self.calls.append((name, *args))


class Owner:
    """Stands for the connection whose port it is."""

    def __init__(self) -> None:
        self.driver = Driver()

    def over(self, error: JMSError | None) -> None: ...
    def complain(self, error: JMSError) -> None: ...


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what is waited for sets no event
            await asyncio.sleep(0)


def port_on(route: Route) -> tuple[ConnectionPort, Driver]:
    loop = asyncio.get_running_loop()
    owner: Any = Owner()
    return ConnectionPort(owner, loop, loop.call_soon, route), owner.driver


def connection_on(route: Route, **options: Any) -> Connection:
    loop = asyncio.get_running_loop()
    return Connection(loop, loop.call_soon, route, Terms(), Options(**options))


# -- The port --------------------------------------------------------------------------------------


def test_what_arrives_is_passed_on_with_the_number_of_its_attempt() -> None:
    async def main() -> None:
        route = Route()
        port, driver = port_on(route)
        assert port.dial(7, "") == "server-1:1"
        await eventually(lambda: bool(driver.calls))
        route.on_bodies([b"one", b"two"])
        route.on_lost(AWAY)
        assert driver.calls == [
            ("connected", 7, route.links[0]),
            ("arrived", 7, [b"one", b"two"]),
            ("ended", 7, AWAY),
        ]

    run(main())


def test_it_dials_where_the_conversation_wants() -> None:
    async def main() -> None:
        route = Route()
        port, driver = port_on(route)
        assert port.dial(1, "there:1") == "there:1"
        await eventually(lambda: bool(driver.calls))
        assert route.dialled == ["there:1"]

    run(main())


@pytest.mark.parametrize("error", [AWAY, IllegalStateError("it has failed")])
def test_a_failed_attempt_is_passed_on_whatever_its_error(error: Exception) -> None:
    async def main() -> None:
        route = Route()
        route.error = error
        port, driver = port_on(route)
        port.dial(1, "")
        await eventually(lambda: bool(driver.calls))
        assert driver.calls == [("failed", 1, error)]

    run(main())


def test_an_attempt_that_is_given_up_ends_and_nothing_is_passed_on() -> None:
    async def main() -> None:
        route = Route()
        route.open.clear()
        port, driver = port_on(route)
        port.stop_dialling()  # there is none
        port.dial(1, "")
        await eventually(lambda: bool(route.dialled))
        port.stop_dialling()
        await eventually(lambda: route.given_up == 1)
        assert driver.calls == []

    run(main())


def test_it_is_woken_in_a_later_turn() -> None:
    async def main() -> None:
        port, driver = port_on(Route())
        port.wake()
        assert driver.calls == []
        await eventually(lambda: driver.calls == [("pump",)])

    run(main())


def test_a_timer_takes_the_place_of_the_one_before() -> None:
    async def main() -> None:
        port, driver = port_on(Route())
        rings = asyncio.Event()
        port.set_timer(now_ms(), now_ms())
        port.set_timer(now_ms() + 3_600_000, now_ms())
        asyncio.get_running_loop().call_later(0.01, rings.set)  # behind the first time
        await rings.wait()
        assert driver.calls == []
        port.set_timer(now_ms() - 5, now_ms())  # it is late already
        await eventually(lambda: driver.calls == [("timer",)])
        port.set_timer(now_ms(), now_ms())
        port.cancel_timer()
        rings.clear()
        asyncio.get_running_loop().call_later(0.01, rings.set)
        await rings.wait()
        assert driver.calls == [("timer",)]

    run(main())


# -- The connection --------------------------------------------------------------------------------


def test_the_end_is_told_to_all_contexts_and_the_servers_are_let_go() -> None:
    async def main() -> None:
        route = Route()
        route.may_release.clear()
        connection = connection_on(route)
        connection.users += [User(), User()]
        error = IllegalStateError("over")
        connection.over(error)
        assert [user.ends for user in connection.users] == [[error], [error]]  # type: ignore[attr-defined]
        told: list[bool] = []
        connection.released.watch(lambda: told.append(route.released))
        assert not connection.released.done
        route.may_release.set()
        await eventually(lambda: told == [True])

    run(main())


def test_a_context_that_leaves_when_it_hears_of_the_end_does_not_hide_it_from_the_next() -> None:
    class Leaves(User):
        def ended(self, error: JMSError | None) -> None:
            super().ended(error)
            connection.users.remove(self)

    async def main() -> None:
        nonlocal connection
        connection = connection_on(Route())
        users = [Leaves(), Leaves()]
        connection.users += users
        connection.over(None)
        assert [user.ends for user in users] == [[None], [None]]
        await eventually(lambda: connection.released.done)

    connection: Connection
    run(main())


def test_nothing_is_left_even_if_the_servers_do_not_end_well(tmp_path: Path) -> None:
    async def main() -> None:
        route = Route()
        route.release_fails = True
        connection = connection_on(route, trace=str(tmp_path))
        connection.over(None)
        await eventually(lambda: connection.released.done)
        assert connection.trace is not None
        assert connection.trace._closed
        assert connection._releasing is not None
        with pytest.raises(OSError, match="says the test"):
            await connection._releasing

    run(main())


@pytest.mark.parametrize(
    ("error", "receives", "crashes"),
    [
        (IllegalStateError("lost"), True, 1),
        (IllegalStateError("lost"), False, 0),
        (None, True, 0),
    ],
)
def test_a_session_that_is_lost_is_a_crash_to_those_in_its_groups(
    tmp_path: Path, error: JMSError | None, receives: bool, crashes: int
) -> None:
    async def main() -> None:
        connection = connection_on(Route(), trace=str(tmp_path))
        recorded: list[str] = []
        assert connection.trace is not None
        connection.trace.add = lambda kind, **_: recorded.append(kind)  # type: ignore[method-assign]
        if receives:
            receiver: Any = object()
            connection.receivers[1] = receiver
        connection.over(error)
        assert recorded == ["crash"] * crashes
        await eventually(lambda: connection.released.done)

    run(main())


def test_an_error_that_no_caller_gets_goes_to_the_context_that_owns_the_connection() -> None:
    async def main() -> None:
        connection = connection_on(Route())
        first, second = User(), User()
        connection.users += [first, second]
        error = IllegalStateError("neglected")
        connection.complain(error)
        assert (first.complaints, second.complaints) == ([error], [])

    run(main())


def test_what_is_to_be_done_later_is() -> None:
    async def main() -> None:
        connection = connection_on(Route())
        done: list[int] = []
        began = now_ms()
        connection.after(50, lambda: done.append(now_ms()))
        await eventually(lambda: bool(done))
        assert done[0] >= began + 49

    run(main())


def test_in_the_child_of_a_fork_every_context_hears_of_it() -> None:
    async def main() -> None:
        connections = [connection_on(Route()), connection_on(Route())]
        users = [User(), User(), User()]
        connections[0].users += users[:2]
        connections[1].users += users[2:]
        module._forked()
        assert [user.forks for user in users] == [1, 1, 1]

    run(main())


def test_a_server_that_hangs_up_is_left_for_the_next_one_until_one_says_that_none_will_do() -> None:
    async def main() -> None:
        route = Route()
        connection = connection_on(route)
        connection.users.append(User())
        connection.wake()
        await eventually(lambda: len(route.links) == 1)
        await eventually(lambda: any(isinstance(r, cw.Attach) for r in route.links[0].sent))
        route.on_lost(AWAY)
        await eventually(lambda: len(route.links) == 2)
        assert route.dialled == ["server-1:1", "server-2:1"]
        route.error = IllegalStateError("enough")
        route.on_lost(AWAY)
        await eventually(lambda: connection.released.done)
        assert str(connection.conversation.ready.error) == "enough"

    run(main())
