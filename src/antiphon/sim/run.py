"""One seed, from beginning to verdict."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec

from antiphon.formats.entry import ClusterMember
from antiphon.journal.snapshots import OWN_SNAPSHOT
from antiphon.journal.transfer import INCOMING
from antiphon.log.quorum import majority
from antiphon.sim.cluster.lost_end import lose_end, tear_end
from antiphon.sim.cluster.server import RETRY_FULL_US, SimServer
from antiphon.sim.cluster.server_with_clients import SimHome
from antiphon.sim.cluster.world import (
    FOREVER_US,
    LIVENESS_US,
    OUTSIDE_TIMES,
    World,
    memberships_ahead,
)
from antiphon.sim.messaging_world import MessagingWorld
from antiphon.sim.plan import LEADER, Fault, Plan, draw_plan
from antiphon.sim.seeds import stream
from antiphon.sim.story import Event
from antiphon.sim.topology import SHAPES, draw_cuts
from antiphon.sim.violations import ViolationError, violation_of

LOSSY = 0.2
"""A core gets more time if the network loses more of the messages than this."""

PATIENT_MS = 400
"""From this `election_ms` on, a message that is lost by chance causes no election."""

STEADY_US = 5_000_000
STEADY_ELECTIONS = 2
"""Most leaders that may be elected in that time: a leader outside of the core can still be cut
off."""


class Result(msgspec.Struct):
    """The outcome of one run; `violation` is empty if all promises were kept."""

    seed: int
    events: int
    deliveries: int
    faults: dict[str, int]
    trace_hash: int
    violation: str = ""


def run_seed(seed: int) -> Result:
    return run_plan(draw_plan(seed))


def run_plan(plan: Plan, story: list[Event] | None = None) -> Result:
    return run_world(make_world(plan, story))


def make_world(plan: Plan, story: list[Event] | None = None) -> World:
    return World(plan, story) if plan.messaging is None else MessagingWorld(plan, story)


def run_world(world: World) -> Result:
    violation = violation_of(world, lambda: _run(world))
    return Result(
        world.seed,
        world.events,
        world.oracle.deliveries,
        dict(sorted(world.faults.items())),
        world.trace_hash,
        violation,
    )


def _run(world: World) -> None:
    plan = world.plan
    for number in plan.listed:
        world.servers[number].start()
    for fault in plan.faults:
        world.at(fault.at_us, _strike, world, fault)
    world.begin()
    world.at(plan.reads_us, world.read_now_and_then)
    world.run_until(plan.duration_us)
    if _choose_core(world):
        _finish_in_time(world)
        _stay_calm(world)
        for server in world.core_members():
            server.log.write()  # as for a reader: a journal in memory may write later
            world.oracle.nothing_lost(server, partial(world.needs, server))


def _finish_in_time(world: World) -> None:
    """Run until all is done. The core has its time for that, and more if it is led from outside,
    over links that lose messages: then chance decides how long it takes."""
    patience_us = _patience_us(world.plan)
    world.run_until(world.plan.duration_us + patience_us, world.live)
    if not world.live() and world.is_led_over_lossy_links():
        world.faults["led from outside"] += 1
        world.events_max *= OUTSIDE_TIMES
        world.run_until(world.plan.duration_us + OUTSIDE_TIMES * patience_us, world.live)
    if not world.live():
        raise ViolationError(f"the core is not live: {world.why_not_live()}")


def _patience_us(plan: Plan) -> int:
    """Return how long the core may take. A message that is lost on its way to the leader is
    proposed again after up to 8 s, and on a detour of two steps half of them may be lost each
    time."""
    return LIVENESS_US * (2 if plan.loss > LOSSY else 1)


def _stay_calm(world: World) -> None:
    """Check that elections are rare once all is done, though some links are cut for good."""
    if not world.plan.partial or world.plan.settings.election_ms < PATIENT_MS:
        return
    before = world.newest_epoch()
    world.run_until(world.now_us + STEADY_US)
    if world.newest_epoch() > before + STEADY_ELECTIONS:
        raise ViolationError(
            f"elections do not end: epoch {before}, and {world.newest_epoch()} "
            f"{STEADY_US / 1e6:g} s later"
        )


# -- Faults ----------------------------------------------------------------------------------------


def _strike(world: World, fault: Fault) -> None:
    if world.core is not None:
        return
    server = world.leader() if fault.target == LEADER else world.servers[fault.target]
    if server is not None and _FAULTS[fault.kind](world, server, fault):
        world.faults[fault.kind] += 1
        world.note(server.number, f"!! {fault.kind} for {fault.for_us / 1e6:.3f} s")


def _die(world: World, server: SimServer, fault: Fault, power: bool) -> bool:
    """Crash a server, which loses its memory in memory mode, and before the founding is stored."""
    if not server.alive:
        return False
    forgets = world.plan.volatile or server.node.replica.stored == 0
    if forgets and not world.may_lose(server):
        return False
    server.crash(power)
    world.at(fault.for_us, server.start)
    return True


def _kill(world: World, server: SimServer, fault: Fault) -> bool:
    return _die(world, server, fault, power=False)


def _power(world: World, server: SimServer, fault: Fault) -> bool:
    return _die(world, server, fault, power=True)


def _power_all(world: World, server: SimServer, fault: Fault) -> bool:
    """Cut the power of all servers at once: everything acknowledged must be on the disks."""
    died = [_die(world, s, fault, power=True) for s in world.servers.values()]
    return any(died)


def _crash_in_effects(world: World, server: SimServer, fault: Fault) -> bool:
    if not server.alive or server.node.replica.stored == 0 or world.plan.volatile:
        return False
    server.crash_after_effects = fault.detail % 8
    world.at(fault.for_us + 1_000_000, server.start)
    return True


def _end_in_order(world: World, server: SimServer, fault: Fault) -> bool:
    """Let an operator end a server, or all of them together. What is in memory goes with it."""
    servers = world.servers.values() if fault.detail % 5 == 0 else [server]
    ending = [each for each in servers if _may_end(world, each)]
    for each in ending:
        assert isinstance(each, SimHome)
        power = fault.detail % 2 == 0
        world.on_server(each, each.lives, each.end_in_order, fault.for_us, power)
    return bool(ending)


def _may_end(world: World, server: SimServer) -> bool:
    if not server.alive or server.node.replica.stored == 0:
        return False
    if world.plan.volatile:
        if server.id in world.lost or not world.may_lose(server):
            return False
        world.lost.add(server.id)  # from now on: others must not die meanwhile
    return True


def _pause(world: World, server: SimServer, fault: Fault) -> bool:
    if server.alive:
        server.pause(fault.for_us)
    return server.alive


def _cut(world: World, sources: set[int], targets: set[int], fault: Fault) -> bool:
    until = FOREVER_US if fault.detail % 11 == 0 else world.now_us + fault.for_us
    for source in sources:
        for target in targets - sources:
            world.blocked[source, target] = until
    return True


def _isolate(world: World, server: SimServer, fault: Fault) -> bool:
    """Cut one server off: deaf, mute, or both."""
    others = set(world.servers) - {server.number}
    if fault.detail % 3 != 0:
        _cut(world, others, {server.number}, fault)
    if fault.detail % 3 != 1:
        _cut(world, {server.number}, others, fault)
    return True


def _partition(world: World, server: SimServer, fault: Fault) -> bool:
    one = {n for n in world.servers if fault.detail >> n & 1}
    other = set(world.servers) - one
    _cut(world, one, other, fault)
    return _cut(world, other, one, fault)


def _one_way(world: World, server: SimServer, fault: Fault) -> bool:
    """Cut some directed links: neither symmetric nor transitive."""
    random = Random(fault.detail)
    for source in world.servers:
        for target in world.servers:
            if source != target and random.random() < 0.3:
                _cut(world, {source}, {target}, fault)
    return True


def _partial(world: World, server: SimServer, fault: Fault) -> bool:
    """Let some servers not hear each other; all are reached through others."""
    random = Random(fault.detail)
    servers = list(world.servers)
    shape = random.choice(SHAPES)
    for source, target in sorted(draw_cuts(random, servers, shape, server.number)):
        _cut(world, {source}, {target}, fault)
    return True


def _clog(world: World, server: SimServer, fault: Fault) -> bool:
    for target in world.servers:
        if fault.detail >> target & 1:
            world.slow[server.number, target] = world.now_us + fault.for_us
    return True


def _damage(world: World, server: SimServer, fault: Fault) -> bool:
    """Damage a disk, once for each incarnation: a second flip could hide the first one's
    evidence."""
    if not hasattr(server, "node") or server.id in world.lost or len(world.plan.listed) == 1:
        return False
    if not world.oracle.committed or not world.may_lose(server):
        return False  # a server with unknown losses founds no cluster, as it should
    where = server.disk.flip_bit() if fault.kind == "flip" else server.disk.misdirect()
    if where:
        world.lost.add(server.id)
        server.damaged = True
        world.note(server.number, f"damaged: {where}")
        server.crash(power=fault.detail % 2 == 0)
        world.at(fault.for_us, server.start)
    return bool(where)


def _lose_end(world: World, server: SimServer, fault: Fault) -> bool:
    """Take an end away from the synced part. A power failure takes back the newest note; then the
    one that the disk still has decides."""
    if len(world.plan.listed) == 1:
        return _lose_end_alone(world, server, fault)
    if not hasattr(server, "node") or server.id in world.lost:
        return False
    if not world.oracle.committed or not world.may_lose(server):
        return False
    server.crash(power=fault.detail % 2 == 0)
    where = lose_end(server.disk, Random(fault.detail), fault.kind)
    if where:
        world.lost.add(server.id)
        server.damaged, server.misses = True, where
        world.note(server.number, f"damaged: {where}, {fault.kind}")
    world.at(fault.for_us, server.start)
    return bool(where)


def _lose_end_alone(world: World, server: SimServer, fault: Fault) -> bool:
    """Take an end from a server that runs alone: it refuses to start, and leaves its files as they
    are, until a backup is restored."""
    if server.number not in world.plan.listed or not hasattr(server, "node"):
        return False
    server.crash(power=fault.detail % 2 == 0)
    backup = server.disk.contents()
    where = lose_end(server.disk, Random(fault.detail), fault.kind)
    if where:
        bad = server.disk.contents()
        server.damaged, server.misses = True, where
        server.start()
        if where not in server.refuses_to_start or server.disk.contents() != bad:
            raise ViolationError(f"server {server.number} starts alone, and {where} is damaged")
        server.disk.put_all(backup)
        server.damaged, server.misses, server.refuses_to_start = False, "", ""
    world.at(fault.for_us, server.start)
    return bool(where)


def _tear_end(world: World, server: SimServer, fault: Fault) -> bool:
    """Take an end away above the synced part: a torn tail, even for a server that runs alone."""
    if not server.alive or server.node.replica.stored == 0:
        return False
    server.crash(power=False)
    where = tear_end(server.disk, Random(fault.detail))
    world.at(fault.for_us, server.start)
    return bool(where)


def _wipe(world: World, server: SimServer, fault: Fault) -> bool:
    if not hasattr(server, "node") or not world.oracle.committed or not world.may_lose(server):
        return False
    if len(world.plan.listed) == 1 and server.number in world.plan.listed:
        return False  # with an empty disk and alone in its list, it would found a cluster
    server.crash(power=True)
    world.lost.add(server.id)
    server.damaged, server.misses = True, ""
    server.disk.wipe()
    world.at(fault.for_us, server.start)
    return True


def _sync_failure(world: World, server: SimServer, fault: Fault) -> bool:
    if server.alive and server.node.replica.stored > 0:
        server.disk.fail_next_sync = True
        world.at(fault.for_us + 1_000_000, server.start)
        return True
    return False


def _full(world: World, server: SimServer, fault: Fault) -> bool:
    server.disk.full = True
    world.at(fault.for_us, _room_again, world, server)
    return True


def _full_at_start(world: World, server: SimServer, fault: Fault) -> bool:
    """Let a server die, and find no room when it is started again."""
    if world.plan.volatile or not server.alive:
        return False
    soon = msgspec.structs.replace(fault, for_us=fault.for_us // 3)
    return _die(world, server, soon, power=fault.detail % 2 == 0) and _full(world, server, fault)


def _little_room(world: World, server: SimServer, fault: Fault) -> bool:
    """Refuse the next few writes to some files, while small writes find room: to a snapshot that
    comes in, at any server, to one that is taken here, or to the rows below it."""
    if world.plan.volatile:
        return False
    file = (INCOMING, OWN_SNAPSHOT, ".idx")[fault.detail % 3]
    for disk in [s.disk for s in world.servers.values()] if file == INCOMING else [server.disk]:
        disk.refuse(file, 1 + fault.detail % 4)
    return True


def _room_again(world: World, server: SimServer) -> None:
    server.disk.full = False
    world.at(2 * RETRY_FULL_US, _expect_start, server, server.lives)


def _expect_start(server: SimServer, life: int) -> None:
    """Check that the server has tried to start since there was room, whatever the outcome."""
    if server.waits_for_room and server.lives == life:
        raise ViolationError(f"{server.number} waits for room to start, and there is room")


def _slow_disk(world: World, server: SimServer, fault: Fault) -> bool:
    world.slow_disks[server.number] = world.now_us + fault.for_us
    return True


def _clock_jump(world: World, server: SimServer, fault: Fault) -> bool:
    server.wall_offset_ms += fault.detail % 20_000_000 - 10_000_000
    if server.alive:
        server.node.set_wall_offset(server.wall_offset_ms)
    return True


def _transfer(world: World, server: SimServer, fault: Fault) -> bool:
    leader = world.leader()
    if leader is None:
        return False
    world.on_server(leader, leader.lives, leader.transfer, server.number)
    return True


def _add(world: World, server: SimServer, fault: Fault) -> bool:
    """Tell the leader to add a spare server; `add-unreachable` never starts it by itself."""
    leader = world.leader()
    spares = [s for n, s in world.servers.items() if n not in world.plan.listed]
    if leader is None or not spares:
        return False
    server = spares[fault.detail % len(spares)]
    member = ClusterMember(server.number, 0, False, f"node-{server.number}")
    world.on_server(leader, leader.lives, leader.change, member)
    if fault.kind == "add":
        world.at(fault.for_us, server.start)
    return True


def _remove(world: World, server: SimServer, fault: Fault) -> bool:
    """Ask for a removal, even if servers are down: the leader must refuse to lose the majority."""
    leader = world.leader()
    if leader is None:
        return False
    world.on_server(leader, leader.lives, _ask_to_remove, world, leader, server.number)
    if fault.detail % 4 == 0:
        # Another operator's request at the same moment, perhaps for a server that does not exist.
        other = fault.detail % (len(world.servers) + 1) + 1
        world.on_server(leader, leader.lives, _ask_to_remove, world, leader, other)
    return True


def _ask_to_remove(world: World, leader: SimServer, node: int) -> None:
    # The leader cannot know whose memory is lost: the failure model has to prevent it.
    smaller = leader.node.replica.memberships.current.without(node).voters
    if len(smaller) > 1 and sum(v not in world.lost for v in smaller) >= majority(smaller):
        leader.change(node)


_FAULTS = {
    "kill": _kill,
    "power": _power,
    "power-all": _power_all,
    "crash-in-effects": _crash_in_effects,
    "end-in-order": _end_in_order,
    "pause": _pause,
    "isolate": _isolate,
    "partition": _partition,
    "one-way": _one_way,
    "partial": _partial,
    "clog": _clog,
    "flip": _damage,
    "misdirect": _damage,
    "end-cut": _lose_end,
    "end-zeroed": _lose_end,
    "end-emptied": _lose_end,
    "end-deleted": _lose_end,
    "end-older": _lose_end,
    "end-torn": _tear_end,
    "wipe": _wipe,
    "sync-failure": _sync_failure,
    "full": _full,
    "full-at-start": _full_at_start,
    "little-room": _little_room,
    "slow-disk": _slow_disk,
    "clock-jump": _clock_jump,
    "transfer": _transfer,
    "add": _add,
    "add-unreachable": _add,
    "remove": _remove,
}


# -- The core --------------------------------------------------------------------------------------


def _choose_core(world: World) -> bool:
    """Choose a random set of servers that is a majority in every membership that any server holds,
    or will hold when a removal that is under way is decided. It is healed; the others stay as they
    are, or worse, for good."""
    random = stream(world.seed, "core")
    holders = [
        r
        for r in world.replicas.values()
        if r.id not in world.lost and r.memberships.current.voters
    ]
    ahead = [membership for r in holders for membership in memberships_ahead(r)]
    memberships = [membership.voters for membership in ahead]
    # A server that catches up will count, too.
    memberships += [tuple(m.id for m in membership.members) for membership in ahead]
    numbers = sorted(world.servers)
    candidates = [n for n in numbers if hasattr(world.servers[n], "node") or n in world.plan.listed]
    intact = {v for voters in memberships for v in voters if v not in world.lost}
    order = random.sample(candidates, len(candidates))
    core: set[int] = set()
    for number in order:
        # The others cannot know a founding that only its founder has stored.
        enough = any(r.id.node in core for r in holders) and all(
            sum(v.node in core and v in intact for v in voters) >= majority(voters)
            for voters in memberships
        )
        few = len(core & world.plan.listed.keys()) < min(3, len(world.plan.listed))
        enough = enough and not (world.plan.partial and few)
        if enough and not world.plan.all_return:
            break
        core.add(number)
    world.core = frozenset(core)
    _heal(world, random)
    return True


def _cut_partially(world: World) -> None:
    """Cut links in the core for good: it must work as if all its links did."""
    assert world.core is not None
    # Only servers in the list know each other from the beginning.
    core = sorted(world.core & world.plan.listed.keys())
    if world.plan.partial and len(core) > 2:
        random = stream(world.seed, "partial core")
        for link in sorted(draw_cuts(random, core, world.plan.partial, random.choice(core))):
            # A new server is admitted through one that it lists, and knows no other way.
            if all(hasattr(s := world.servers[n], "node") and s.node.replica.stored for n in link):
                world.blocked[link] = FOREVER_US
        world.faults[f"core {world.plan.partial}"] += 1


def _heal(world: World, random: Random) -> None:
    assert world.core is not None
    core = world.core
    world.note(0, f"the faults stop for {sorted(core)}")
    for a in world.servers:
        for b in world.servers:
            if a == b:
                continue
            if a in core and b in core:
                world.blocked.pop((a, b), None)
                world.slow.pop((a, b), None)
            elif random.random() < 0.5:
                world.blocked[a, b] = FOREVER_US
    _cut_partially(world)
    world.calm()
    for number, server in world.servers.items():
        if number in core:
            server.disk.full = False
            server.disk.fail_next_sync = False
            server.crash_after_effects = None
            world.slow_disks.pop(number, None)
            if server.paused_until_us > world.now_us:
                server.paused_until_us = world.now_us
            server.start()
        elif random.random() < 0.3 and world.may_lose(server):
            server.crash(power=False)
