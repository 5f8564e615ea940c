"""Counter, lock, election and barrier: among real members, and the services without them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from antiphon import View
from antiphon.blocks import (
    Barrier,
    Counter,
    LeaderElection,
    Lock,
    NotificationBus,
    ReplicatedTable,
    Semaphore,
)
from antiphon.blocks.pure.block import Heard
from antiphon.blocks.pure.coordination import (
    BarrierService,
    CounterService,
    ElectionService,
    SemaphoreBlock,
    SemaphoreService,
)
from antiphon.blocks.pure.scripts import Script
from antiphon.blocks.pure.service import ReplicatedService, Requests
from antiphon.errors import FormatError, IllegalStateError, OutcomeUnknownError
from antiphon.formats import values
from tests.api.support.backends import abandon
from tests.api.support.fronts import PATIENCE_S
from tests.api.support.steps import heard, in_thread, until
from tests.blocks.conftest import Connect
from tests.blocks.support.steps import buried, remove

GROUP = "together"
Start = Callable[..., Any]


@pytest.fixture
def start(connect: Connect) -> Iterator[Start]:
    """One of a kind, in a program of its own."""
    with ExitStack() as stack:

        def start(kind: Any, name: str | None = None, *arguments: Any) -> Any:
            made = kind(connect(), GROUP, *arguments, name=name)
            stack.callback(made.close)
            return made

        yield start


def copied(service: ReplicatedService, fresh: Any) -> Any:
    fresh.restore(service.snapshot())
    return fresh


# -- Counter ---------------------------------------------------------------------------------------


def test_everybody_who_adds_gets_another_value(start: Start) -> None:
    counters = [start(Counter), start(Counter)]
    together = threading.Barrier(4)

    def work(counter: Counter) -> list[int]:
        together.wait(PATIENCE_S)
        return [counter.add() for _ in range(10)]

    working = [in_thread(lambda c=counter: work(c)) for counter in counters * 2]
    values = [value for done in working for value in heard(done, 1)[0]]
    assert sorted(values) == list(range(1, 41))
    assert [counter.value for counter in counters] == [40, 40]


def test_a_counter_is_set_and_counts_down(start: Start) -> None:
    one = start(Counter)
    one.set(10)
    two = start(Counter)
    assert [two.add(-3), one.value, two.value] == [7, 7, 7]
    with pytest.raises(ValueError, match="a counter does not know"):
        one.add("much")
    assert copied(one._service, CounterService()).value == 7


# -- Lock: the service -----------------------------------------------------------------------------


def lock_of(*members: str) -> SemaphoreService:
    lock = SemaphoreService(1)
    lock.viewed(members)
    return lock


def acquire(lock: SemaphoreService, position: int, member: str, wish: str = "1") -> None:
    lock.position = position
    lock.apply(("acquire", member, wish))


def test_a_lock_has_one_holder_and_is_granted_in_order() -> None:
    lock = lock_of("ann", "bob")
    for position, (member, wish) in enumerate((("ann", "1"), ("bob", "1"), ("ann", "2")), 1):
        acquire(lock, position, member, wish)
    fences = []
    for member, wish in (("ann", "1"), ("bob", "1"), ("ann", "2")):
        holders = [one[:2] for one in lock.line if lock.holds(*one[:2])]
        assert holders == [(member, wish)]
        fences.append(lock.holds(member, wish))
        assert lock.apply(("release", member, wish)) is True
    assert fences == [1, 2, 3]
    assert lock.apply(("release", "ann", "2")) is False


def test_a_wish_that_is_given_up_is_not_granted() -> None:
    lock = lock_of("ann", "bob", "cid")
    for position, member in enumerate(("ann", "bob", "cid"), 7):
        acquire(lock, position, member)
    assert lock.apply(("release", "bob", "1")) is False  # it was not the holder
    assert lock.holds("ann", "1") == 7
    lock.apply(("release", "ann", "1"))
    assert lock.holds("cid", "1") == 9


def test_a_holder_that_has_left_makes_room_and_the_fence_grows() -> None:
    lock = lock_of("ann", "bob")
    acquire(lock, 1, "ann")
    acquire(lock, 2, "bob")
    lock.viewed(("bob",))
    assert lock.holds("bob", "1") == 2
    lock.viewed(("bob", "cid"))
    assert lock.holds("bob", "1") == 2


def test_a_wish_of_somebody_who_was_removed_before_it_came_is_not_granted() -> None:
    lock = lock_of("bob")
    acquire(lock, 1, "ann")
    acquire(lock, 2, "bob")
    assert (lock.holds("ann", "1"), lock.holds("bob", "1")) == (0, 2)


def test_a_new_replica_knows_the_line_and_the_fence() -> None:
    lock = lock_of("ann", "bob")
    for position, member in enumerate(("ann", "bob"), 1):
        acquire(lock, position, member)
    lock.apply(("release", "ann", "1"))
    other = copied(lock, SemaphoreService(1))
    for one in (lock, other):
        acquire(one, 4, "ann", "2")
        assert one.holds("bob", "1") == 2
        one.viewed(("ann",))
        assert one.holds("ann", "2") == 4
    assert other.snapshot() == lock.snapshot()


def test_a_new_replica_does_not_take_the_lock_from_who_came_after_it() -> None:
    """It is told of its own view after it was given a state of later."""
    lock, service = SemaphoreService(1), SemaphoreService(1)
    old, new = SemaphoreBlock(lock), SemaphoreBlock(service)
    for view in (View(1, ("ann",)), View(2, ("ann", "new")), View(3, ("ann", "new", "cid"))):
        list(old.viewed(view, 0.0))
    acquire(lock, 1, "cid")
    acquire(lock, 2, "new")
    new.restore(old.snapshot())
    list(new.viewed(View(2, ("ann", "new")), 0.0))
    assert service.holds("cid", "1") == 1
    assert service.holds("new", "1") == 0


def test_replicas_that_know_different_things_agree_on_the_fence() -> None:
    """One joined between two commands, and was told nothing of what had been before."""
    requests = Requests("all")
    old, new = SemaphoreService(1), SemaphoreService(1)
    old_block, new_block = SemaphoreBlock(old), SemaphoreBlock(new)

    def hear(blocks: list[SemaphoreBlock], position: int, *command: str) -> None:
        message = Heard(requests.next(command).encode(), position=position)
        for block in blocks:
            list(block.heard(message, 0.0))

    list(old_block.viewed(View(1, ("ann", "bob")), 0.0))
    hear([old_block], 5, "acquire", "ann", "1")
    both = [old_block, new_block]
    for block in both:
        list(block.viewed(View(2, ("ann", "bob", "new")), 0.0))
    hear(both, 8, "acquire", "bob", "1")
    hear(both, 9, "release", "ann", "1")
    assert (old.holds("bob", "1"), new.holds("bob", "1")) == (8, 8)
    list(new_block.viewed(View(3, ("new",)), 0.0))
    hear([new_block], 12, "acquire", "new", "1")
    assert new.holds("new", "1") == 12


def test_a_lock_does_not_know_everything() -> None:
    with pytest.raises(ValueError, match="a lock does not know"):
        SemaphoreService(1).apply(("steal", "ann"))
    with pytest.raises(FormatError, match="no state of a lock"):
        SemaphoreService(1).restore(values.encode("none"))


# -- Lock: among members ---------------------------------------------------------------------------


def waits_in_line(lock: Lock, count: int) -> None:
    lock.wait_until(lambda service: len(service.line) == count, PATIENCE_S)


def test_a_lock_is_granted_in_the_order_of_asking(start: Start) -> None:
    locks = [start(Lock, name) for name in ("ann", "bob", "cid")]
    fences = [locks[0].acquire()]
    waiting = []
    for count, lock in enumerate(locks[1:], 2):
        waiting.append(in_thread(lock.acquire))
        waits_in_line(lock, count)
    assert [lock.held for lock in locks] == [True, False, False]
    for holder, granted in zip(locks, waiting, strict=False):
        assert granted.empty()
        holder.release()
        assert not holder.held
        fences += heard(granted, 1)
    assert fences == sorted(set(fences))
    locks[2].release()


def test_a_lock_is_held_by_one_at_a_time(start: Start) -> None:
    locks = [start(Lock), start(Lock)]
    inside: list[int] = []
    most = []

    def work(lock: Lock) -> None:
        for _ in range(3):
            with lock.hold() as fence:
                inside.append(fence)
                most.append(len(inside))
                inside.remove(fence)

    for done in [in_thread(lambda one=lock: work(one)) for lock in locks * 2]:
        assert heard(done, 1) == [None]
    assert most == [1] * 12


def test_who_leaves_or_is_removed_holds_nothing_any_more(start: Start, connect: Connect) -> None:
    ann, bob, cid = (start(Lock, name) for name in ("ann", "bob", "cid"))
    ann.acquire()
    waiting = in_thread(bob.acquire)
    waits_in_line(bob, 2)
    ann.close()
    assert heard(waiting, 1) == [2]
    assert (ann.held, bob.held) == (False, True)
    remove(connect(), GROUP, "bob")
    assert cid.acquire(PATIENCE_S) == 3
    until(lambda: not bob.held)
    with pytest.raises(IllegalStateError, match="bob is not a member of the group any more"):
        bob.release()
    cid.release()
    assert bob.acquire(PATIENCE_S) > 3  # it has joined again


def test_who_waits_and_is_closed_is_told(start: Start) -> None:
    ann, bob = start(Lock, "ann"), start(Lock, "bob")
    ann.acquire()
    waiting = in_thread(bob.acquire)
    waits_in_line(bob, 2)
    bob.close()
    (error,) = heard(waiting, 1)
    assert isinstance(error, IllegalStateError)
    waits_in_line(ann, 1)


def test_another_of_the_same_name_does_not_hold_what_the_dead_one_held(
    start: Start, connect: Connect
) -> None:
    dying = connect()
    group = dying.create_group(GROUP, remove_after=None)
    bob = start(Lock, "bob")
    Lock(dying, group, name="ann").acquire()
    waiting = in_thread(bob.acquire)
    waits_in_line(bob, 2)
    abandon(dying)
    start(Lock, "ann")
    assert heard(waiting, 1) == [2]
    buried(dying)


@pytest.mark.parametrize("timeout", [0, 0.1])
def test_who_waits_no_longer_gives_up_its_place(start: Start, timeout: float) -> None:
    ann, bob = start(Lock, "ann"), start(Lock, "bob")
    ann.acquire()
    with pytest.raises(TimeoutError):
        bob.acquire(timeout)
    with pytest.raises(TimeoutError, match=r"not granted within 0\.1 s"):
        bob.acquire(0.1)
    waits_in_line(ann, 1)
    ann.release()
    assert bob.acquire(PATIENCE_S) > 1  # the wish that it gave up may have been granted in between
    waits_in_line(bob, 1)
    bob.release()
    waits_in_line(ann, 0)


def test_only_who_holds_a_lock_releases_it(start: Start) -> None:
    ann, bob = start(Lock), start(Lock)
    ann.acquire()
    with pytest.raises(RuntimeError, match="not held here"):
        bob.release()
    ann.release()
    with pytest.raises(RuntimeError, match="not held here"):
        ann.release()


def test_a_lock_is_released_with_its_block(start: Start) -> None:
    one = start(Lock)
    with pytest.raises(ZeroDivisionError), one.hold(timeout=PATIENCE_S) as fence:
        print(1 // (fence - one.held))
    assert not one.held
    assert one.acquire(PATIENCE_S) > fence


def test_who_comes_later_waits_for_the_holder(start: Start) -> None:
    ann = start(Lock, "ann")
    ann.acquire()
    bob = start(Lock, "bob")
    with pytest.raises(TimeoutError):
        bob.acquire(0.05)
    ann.release()
    assert bob.acquire(PATIENCE_S) > 1  # the wish that it gave up may have been granted in between


# -- Groups of others ------------------------------------------------------------------------------


@dataclass
class Fire:
    floor: int


KINDS: dict[str, Callable[[Any, str], Any]] = {
    "Counter": Counter,
    "Lock": Lock,
    "LeaderElection": LeaderElection,
    "Barrier": lambda ctx, group: Barrier(ctx, group, 1),
    "ReplicatedTable": ReplicatedTable,
    "NotificationBus": lambda ctx, group: NotificationBus(ctx, group, Fire),
    "a member": lambda ctx, group: ctx.join(ctx.create_group(group), state_provider=lambda: b"1"),
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a member"])
def test_a_group_of_another_kind_is_told_as_such(connect: Connect, kind: str) -> None:
    ctx = connect()
    for number, (other, make) in enumerate(KINDS.items()):
        if other == kind:
            continue
        with make(ctx, f"g{number}") as first:
            if other == "a member":
                first.set_message_listener(lambda message: None)
            with pytest.raises(IllegalStateError) as error:
                KINDS[kind](ctx, f"g{number}")
        for part in ("cannot take over the state", f"'g{number}'", "it is that of something else"):
            assert part in str(error.value), (kind, other)


# -- Lock: its own `with` block --------------------------------------------------------------------


def test_a_with_block_holds_the_lock(connect: Connect) -> None:
    """A new one each time, as one object of several threads, and again and again."""
    shared, contexts = Lock(connect(), GROUP), [connect(), connect()]
    inside: list[int] = []
    seen: list[tuple[int, int]] = []

    def work(new_lock: Callable[[], Lock]) -> None:
        for _ in range(3):
            with new_lock() as lock:
                inside.append(lock.fence)
                seen.append((len(inside), lock.fence))
                assert lock.held
                inside.remove(lock.fence)

    made: list[Callable[[], Lock]] = [lambda c=ctx: Lock(c, GROUP) for ctx in contexts]
    working = [in_thread(lambda one=new: work(one)) for new in [*made, *[lambda: shared] * 2]]
    assert [heard(done, 1) for done in working] == [[None]] * 4
    assert {number for number, _ in seen} == {1}
    fences = [fence for _, fence in seen]
    assert fences == sorted(set(fences))  # though the group may have been empty in between
    assert len(fences) == 12
    assert not shared.is_member


def test_a_with_block_waits_for_the_lock_and_leaves_the_group(start: Start) -> None:
    ann, bob = start(Lock, "ann"), start(Lock, "bob")
    ann.acquire()
    entering = in_thread(bob.__enter__)
    waits_in_line(ann, 2)
    assert entering.empty()
    ann.release()
    assert heard(entering, 1) == [bob]
    assert bob.held
    bob.__exit__(None, None, None)
    waits_in_line(ann, 0)
    until(lambda: ann.view.members == ("ann",))


def test_the_fence_grows_over_a_group_that_was_empty_in_between(connect: Connect) -> None:
    ctx, fences = connect(), []

    def wait_and_close(lock: Lock) -> None:
        fences.append(lock.acquire())
        lock.close()

    for _ in range(3):
        with Lock(ctx, GROUP) as first:
            fences.append(first.fence)
            waiting = [in_thread(lambda: wait_and_close(Lock(ctx, GROUP))) for _ in range(3)]
            waits_in_line(first, 4)
        assert [heard(done, 1) for done in waiting] == [[None]] * 3
    assert fences == sorted(set(fences))
    assert len(fences) == 12


def test_the_fence_grows_over_a_state_that_was_lost(start: Start) -> None:
    """Who comes waits for the state, and meanwhile others acquire the lock, and go."""

    def broken() -> bytes:
        raise RuntimeError("no memory left")

    ann, bob = start(Lock, "ann"), start(Lock, "bob")
    for one in (ann, bob):
        one._service.snapshot = broken
    fences = [ann.acquire()]
    cid = start(Lock, "cid")
    acquired = in_thread(bob.acquire)
    waits_in_line(ann, 2)
    ann.release()
    fences += heard(acquired, 1)
    ann.close()
    bob.release()
    bob.close()
    fences.append(cid.acquire())
    assert fences == sorted(set(fences))


def test_who_loses_the_lock_in_its_with_block_is_told(start: Start, connect: Connect) -> None:
    ann, outside = start(Lock, "ann"), connect()

    def lose(then: Exception | None = None) -> None:
        remove(outside, GROUP, "ann")
        until(lambda: not ann.held)
        if then is not None:
            raise then

    with pytest.raises(IllegalStateError, match="the Lock was lost before it was released"), ann:
        lose()
    with pytest.raises(ZeroDivisionError), ann:  # it joins again; and the block's error counts
        lose(ZeroDivisionError())
    with ann:
        assert ann.held
        ann.close()
    with pytest.raises(IllegalStateError, match="the Lock was closed: make another one"), ann:
        pass


def test_who_is_interrupted_at_a_with_block_leaves(start: Start, connect: Connect) -> None:
    ann = start(Lock, "ann")
    ann.acquire()
    ctx = connect()
    bob = Lock(ctx, GROUP, name="bob")
    entering = in_thread(bob.__enter__)
    waits_in_line(ann, 2)
    ctx.close()
    (error,) = heard(entering, 1)
    assert isinstance(error, IllegalStateError | OutcomeUnknownError)  # as far as it had come
    waits_in_line(ann, 1)
    assert not bob._inside


def test_a_lock_that_nobody_has_is_acquired_without_waiting(start: Start) -> None:
    ann = start(Lock)
    assert ann.acquire(timeout=0) == ann.fence == 1
    ann.release()
    assert ann.fence == 0


def test_a_thread_releases_what_it_has_acquired_itself(start: Start) -> None:
    semaphore = start(Semaphore, None, 2)
    own = semaphore.acquire()
    done = in_thread(semaphore.acquire)
    assert heard(done, 1) == [own + 1]
    assert semaphore.fence == own
    semaphore.release()
    assert semaphore.fence == own + 1  # that of the other thread is left, and any may release it
    semaphore.release()
    assert not semaphore.held


# -- Semaphore -------------------------------------------------------------------------------------


def test_a_semaphore_has_so_many_holders() -> None:
    semaphore = SemaphoreService(2)
    semaphore.viewed(("ann", "bob", "cid"))
    for position, member in enumerate(("ann", "bob", "cid"), 11):
        acquire(semaphore, position, member)
    other = copied(semaphore, SemaphoreService(2))
    for one in (semaphore, other):
        assert [one.holds(member, "1") for member in ("ann", "bob", "cid")] == [11, 12, 0]
        assert one.apply(("release", "bob", "1")) is True
        assert [one.holds(member, "1") for member in ("ann", "bob", "cid")] == [11, 0, 13]
        one.viewed(("bob", "cid"))
        acquire(one, 21, "bob", "2")
        assert [one.holds("cid", "1"), one.holds("bob", "2")] == [13, 21]
    with pytest.raises(ValueError, match="has 2 permits, not 1"):
        copied(semaphore, SemaphoreService(1))
    for permits in (0, -1, True, "2"):
        with pytest.raises(ValueError, match="at least one permit"):
            SemaphoreService(permits)  # type: ignore[arg-type]


def test_a_semaphore_among_members(connect: Connect) -> None:
    contexts = [connect() for _ in range(4)]
    inside, seen, free = [0], [], threading.Lock()

    def work(ctx: Any) -> None:
        for _ in range(3):
            with Semaphore(ctx, GROUP, 2) as semaphore:
                with free:
                    inside[0] += 1
                    seen.append(inside[0])
                assert semaphore.held
                with free:
                    inside[0] -= 1

    for done in [in_thread(lambda one=ctx: work(one)) for ctx in contexts]:
        assert heard(done, 1) == [None]
    assert len(seen) == 12
    assert set(seen) <= {1, 2}
    third = Semaphore(contexts[2], GROUP, 2)
    with (
        Semaphore(contexts[0], GROUP, 2),
        Semaphore(contexts[1], GROUP, 2),
        pytest.raises(TimeoutError, match="not granted within 0 s: others hold it"),
    ):
        third.acquire(0)


# -- Election --------------------------------------------------------------------------------------


def test_who_has_been_there_longest_leads() -> None:
    election = ElectionService()
    for members in ((), ("ann",), ("ann", "bob"), ("ann", "bob", "cid"), ("bob", "cid"), ("cid",)):
        election.viewed(members)
        assert (election.leader, election.terms) == {
            (): ("", 0),
            ("bob", "cid"): ("bob", 2),
            ("cid",): ("cid", 3),
        }.get(members, ("ann", 1))


def test_who_resigns_stands_at_the_end_of_the_line() -> None:
    election = ElectionService()
    election.viewed(("ann", "bob", "cid"))
    assert election.apply(("resign", "ann")) == "bob"
    other = copied(election, ElectionService())
    for one in (election, other):
        assert one.apply(("resign", "cid")) == "bob"  # which did not lead
        assert one.apply(("resign", "dee")) == "bob"
        one.viewed(("ann", "bob", "cid", "dee"))
        assert (one.leader, one.terms) == ("bob", 2)
        one.viewed(("ann", "cid", "dee"))
        assert (one.leader, one.terms, one.line) == ("ann", 3, ["ann", "cid", "dee"])
    with pytest.raises(ValueError, match="an election does not know"):
        election.apply(("vote", "ann"))


def test_when_the_leader_leaves_another_one_leads(start: Start) -> None:
    ann, bob, cid = (start(LeaderElection, name) for name in ("ann", "bob", "cid"))
    assert ann.wait_to_lead(PATIENCE_S) == ann.term == 1
    assert (ann.is_leader, cid.is_leader, cid.leader) == (True, False, "ann")
    waiting = in_thread(bob.wait_to_lead)
    ann.close()
    assert not ann.is_leader
    assert heard(waiting, 1) == [2]
    cid.wait_until(lambda election: election.leader == "bob", PATIENCE_S)


def test_a_leader_that_resigns_lets_another_one_lead(start: Start) -> None:
    ann = start(LeaderElection, "ann")
    ann.wait_to_lead(PATIENCE_S)
    ann.resign()
    assert (ann.is_leader, ann.term) == (True, 1)  # there is nobody else
    bob = start(LeaderElection, "bob")
    ann.wait_until(lambda election: "bob" in election.line, PATIENCE_S)
    ann.resign()
    assert not ann.is_leader
    assert bob.wait_to_lead(PATIENCE_S) == 2
    cid = start(LeaderElection, "cid")  # the state says who leads, not the age
    assert (cid.leader, cid.term) == ("bob", 2)
    with pytest.raises(TimeoutError):
        cid.wait_to_lead(0.05)


def test_a_with_block_of_an_election_begins_when_this_one_leads(
    connect: Connect,
) -> None:
    ann, bob = (LeaderElection(connect(), GROUP, name=name) for name in ("ann", "bob"))
    for leader, other in ((ann, bob), (bob, ann)) * 2:
        with leader:
            assert leader.is_leader
            entering = in_thread(other.__enter__)
            until(lambda: len(leader.view.members) == 2)  # noqa: B023
            assert entering.empty()
        assert heard(entering, 1) == [other]
        assert (other.is_leader, leader.is_member) == (True, False)
        other.__exit__(None, None, None)


def test_a_leader_that_is_removed_in_its_with_block_is_told(start: Start, connect: Connect) -> None:
    ann, outside = start(LeaderElection, "ann"), connect()

    def lose() -> None:
        remove(outside, GROUP, "ann")
        until(lambda: not ann.is_leader)

    with pytest.raises(IllegalStateError, match="the LeaderElection was lost"), ann:
        lose()
    with ann:
        assert ann.is_leader
        ann.close()
    with pytest.raises(IllegalStateError, match="was closed: make another one"), ann:
        pass


def test_a_leader_that_was_removed_does_not_lead(start: Start, connect: Connect) -> None:
    ann, bob = start(LeaderElection, "ann"), start(LeaderElection, "bob")
    ann.wait_to_lead(PATIENCE_S)
    remove(connect(), GROUP, "ann")
    assert bob.wait_to_lead(PATIENCE_S) == 2
    until(lambda: not ann.is_leader)
    with pytest.raises(IllegalStateError):
        ann.resign()


# -- Barrier ---------------------------------------------------------------------------------------


def test_a_barrier_opens_for_so_many_and_is_closed_again(start: Start) -> None:
    barriers = [start(Barrier, name, 3) for name in ("ann", "bob", "cid")]
    for turn in (1, 2, 3):
        waiting = [in_thread(barrier.wait) for barrier in barriers[:2]]
        barriers[2].wait_until(lambda service: len(service.there) == 2, PATIENCE_S)
        assert all(one.empty() for one in waiting)
        assert barriers[2].wait(PATIENCE_S) == turn
        assert [heard(one, 1) for one in waiting] == [[turn], [turn]]


def test_who_has_waited_too_long_is_not_counted(start: Start) -> None:
    ann, bob = start(Barrier, "ann", 2), start(Barrier, "bob", 2)
    for timeout in (0.1, 0):
        with pytest.raises(TimeoutError, match="has not opened within"):
            ann.wait(timeout)
    with pytest.raises(TimeoutError, match="has not opened within"):
        bob.wait(0.1)
    waiting = in_thread(bob.wait)
    assert ann.wait(PATIENCE_S) == 1
    assert heard(waiting, 1) == [1]


def test_a_barrier_that_opens_at_the_last_moment_has_opened(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = start(Barrier, "ann", 2), start(Barrier, "bob", 2)

    def too_late(what: object, timeout: float | None) -> Script[None]:
        yield from ()
        assert bob.wait(PATIENCE_S) == 1
        raise TimeoutError

    monkeypatch.setattr(ann, "_waiting_until", too_late)
    assert ann.wait(1) == 1


def test_who_leaves_is_not_counted(start: Start, connect: Connect) -> None:
    ann, bob, cid = (start(Barrier, name, 2) for name in ("ann", "bob", "cid"))
    for gone in (ann, bob):
        waiting = in_thread(gone.wait)
        cid.wait_until(lambda service: len(service.there) == 1, PATIENCE_S)
        if gone is ann:
            ann.close()
        else:
            remove(connect(), GROUP, "bob")
        (error,) = heard(waiting, 1)
        assert isinstance(error, IllegalStateError)
        cid.wait_until(lambda service: not service.there, PATIENCE_S)
    with pytest.raises(TimeoutError):
        cid.wait(0.05)


def test_who_has_left_does_not_stand_at_the_barrier() -> None:
    barrier = BarrierService(2)
    barrier.viewed(("ann", "bob", "cid"))
    barrier.apply(("arrive", "ann"))
    barrier.viewed(("bob", "cid"))
    barrier.apply(("arrive", "bob"))
    assert (barrier.there, barrier.opened) == (["bob"], 0)


def test_who_was_removed_before_its_arrival_came_is_not_counted() -> None:
    barrier = BarrierService(2)
    barrier.viewed(("ann", "bob"))
    barrier.apply(("arrive", "ann"))
    barrier.apply(("arrive", "gone"))
    other = copied(barrier, BarrierService(2))
    for one in (barrier, other):
        assert (one.there, one.opened) == (["ann"], 0)
        one.apply(("arrive", "bob"))
        assert (one.there, one.opened) == ([], 1)
    with pytest.raises(ValueError, match="a barrier does not know"):
        barrier.apply(("open",))


def test_a_barrier_is_for_at_least_one_and_the_same_number_for_all(
    start: Start, connect: Connect
) -> None:
    ctx = connect()
    with pytest.raises(ValueError, match="at least one must come"):
        Barrier(ctx, GROUP, 0)
    start(Barrier, "ann", 2)
    sessions = len(ctx._core.connection.users)
    with pytest.raises(IllegalStateError, match="this barrier is for 2, not for 3"):
        Barrier(ctx, GROUP, 3)
    assert len(ctx._core.connection.users) == sessions
