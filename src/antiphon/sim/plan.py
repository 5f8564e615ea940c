"""The plan of a seed: the cluster, the mixture of faults, and when each strikes.

Swarm testing: a seed first decides which kinds of fault exist at all in its world, then how strong
they are. The plan is a plain value: a shrinker takes pieces out of it and runs it again.
"""

from __future__ import annotations

from random import Random

import msgspec

from antiphon.broker.home.settings import HomeSettings
from antiphon.formats.frames import NEWEST
from antiphon.log.settings import Settings
from antiphon.model.destinations import DEAD_LETTERS
from antiphon.model.redelivery import Redelivery
from antiphon.sim.message_traits import Flavour
from antiphon.sim.roles import MAILBOX, Membership, Role, Transacting
from antiphon.sim.seeds import stream
from antiphon.sim.topology import SHAPES

LEADER = 0
"""A fault's target: the server that leads when it strikes."""

SECOND_US = 1_000_000
LARGE_BYTES = 20_000
"""The size of a large pack: a thin link takes a second for it."""


class Fault(msgspec.Struct, frozen=True):
    """One planned fault of a server, a link or a program."""

    at_us: int
    kind: str
    target: int  # a server's number, or LEADER
    for_us: int  # its length, or the time until the restart
    detail: int  # further choices, by kind


class Messaging(msgspec.Struct, frozen=True):
    """Programs that use the cluster, and the faults of their connections."""

    roles: tuple[Role, ...]
    breaks: float  # how often a connection breaks while a server sends
    repeats: float  # how often a frame comes twice
    silent: float  # how often the other end does not learn that a process has died
    home: HomeSettings
    faults: tuple[Fault, ...]  # targets are programs
    stalls: float = 0.0  # how often a program stops reading when a frame comes
    groups: dict[str, int] = {}  # and after how many ms they remove suspects


class Plan(msgspec.Struct, frozen=True):
    """A whole run as a value: cluster, programs, faults, and the seed of everything else."""

    seed: int
    listed: dict[int, str]
    spares: int  # servers that can be added
    volatile: bool
    settings: Settings
    segment_bytes: int
    retain: int | None
    loss: float
    duplication: float
    delay_us: tuple[int, int]
    straggle: float  # how often a message takes a hundred times as long
    sync_us: tuple[int, int]
    rates: dict[int, float]  # how fast each server's clock runs
    wire_versions: dict[int, int]
    encode: bool  # messages go through the wire format instead of by reference
    duration_us: int
    clients: int
    operations: int
    reads_us: int  # between two reads, on average
    faults: tuple[Fault, ...]
    messaging: Messaging | None = None  # None: a log by itself
    local: bool = False  # servers keep acknowledgements of topics to themselves for a while
    partial: str = ""  # which links of the core stay cut in the end (`sim/topology.py`)
    bandwidth: int = 0  # bytes in a millisecond on each link between servers; 0: no limit
    large: float = 0.0  # how often a client's pack is large
    all_return: bool = False  # in the end; otherwise, with `local`, absent servers are removed


KINDS = {
    # kind: how often relative to others
    "kill": 4,
    "power": 3,
    "crash-in-effects": 4,
    "power-all": 1,
    "pause": 3,
    "isolate": 4,
    "partition": 3,
    "one-way": 3,
    "clog": 2,
    "flip": 2,
    "misdirect": 1,
    "end-cut": 1,
    "end-zeroed": 1,
    "end-emptied": 1,
    "end-deleted": 1,
    "end-older": 1,
    "end-torn": 1,
    "wipe": 1,
    "sync-failure": 1,
    "full": 2,
    "slow-disk": 2,
    "clock-jump": 2,
    "transfer": 3,
    "add": 2,
    "add-unreachable": 2,
    "remove": 2,
}
_ON_DISK = {
    *("power", "power-all", "sync-failure", "slow-disk", "flip", "misdirect", "wipe"),
    *("end-cut", "end-zeroed", "end-emptied", "end-deleted", "end-older", "end-torn"),
}


PROGRAM_KINDS = {
    "program-kill": 4,
    "program-pause": 2,
    "program-cut": 4,
    "program-dead-line": 3,
    "home-cut": 1,
}
"""With local contexts there is also `home-kill`."""


def draw_plan(seed: int) -> Plan:
    plan = _with_partial_partitions(stream(seed, "partial"), _draw_plan(seed))
    plan = _with_starts_without_room(stream(seed, "full-at-start"), plan)
    plan = _with_little_room(stream(seed, "little-room"), plan)
    plan = _with_slow_readers(stream(seed, "slow-readers"), plan)
    return _with_orderly_ends(stream(seed, "orderly-ends"), plan)


def _with_orderly_ends(random: Random, plan: Plan) -> Plan:
    """Let operators end servers in order amid the load, and start them again."""
    calm = not plan.faults and not plan.local
    if plan.messaging is None or calm or random.random() < 0.6:
        return plan
    return _with_more_faults(random, plan, "end-in-order", (5_000, 700_000, 4_000_000))


def _with_slow_readers(random: Random, plan: Plan) -> Plan:
    """Let programs stop reading in some worlds, where a server keeps little for them: a few packs,
    and often less than a home has on their way at a time."""
    if plan.messaging is None or random.random() < 0.8:
        return plan
    home = plan.messaging.home
    home = msgspec.structs.replace(home, unread_bytes=random.choice((600, 1_500)))
    stalls = random.choice((0.02, 0.1))
    messaging = msgspec.structs.replace(plan.messaging, home=home, stalls=stalls)
    return msgspec.structs.replace(plan, messaging=messaging)


def _with_starts_without_room(random: Random, plan: Plan) -> Plan:
    if plan.volatile or not plan.faults or random.random() < 0.8:
        return plan
    return _with_more_faults(random, plan, "full-at-start", (100_000, 700_000, 2_000_000))


def _with_little_room(random: Random, plan: Plan) -> Plan:
    if plan.volatile or not plan.faults or random.random() < 0.5:
        return plan
    return _with_more_faults(random, plan, "little-room", (0,))


def _with_partial_partitions(random: Random, plan: Plan) -> Plan:
    """Add links that stay cut. They have a stream of their own, so that seeds keep their
    meaning."""
    if len(plan.listed) + plan.spares < 3 or min(plan.wire_versions.values()) < NEWEST:
        return plan
    if random.random() < 0.4:
        plan = msgspec.structs.replace(plan, partial=random.choice(SHAPES))
    if not plan.faults or random.random() < 0.6:
        return plan
    return _with_more_faults(random, plan, "partial", (700_000, 2_000_000, 6_000_000))


def _with_more_faults(random: Random, plan: Plan, kind: str, lasts_us: tuple[int, ...]) -> Plan:
    times = [random.randrange(plan.duration_us) for _ in range(random.choice((1, 3, 6)))]
    more = [
        Fault(
            at_us,
            kind,
            LEADER if random.random() < 0.6 else random.choice(sorted(plan.rates)),
            random.choice(lasts_us),
            random.getrandbits(30),
        )
        for at_us in times
    ]
    faults = tuple(sorted([*plan.faults, *more], key=lambda f: f.at_us))
    return msgspec.structs.replace(plan, faults=faults)


def _draw_plan(seed: int) -> Plan:
    plan = _draw_log_plan(seed)
    random = stream(seed, "messaging")
    if random.random() < 0.5:
        return _with_thin_links(plan)
    messaging = _draw_messaging(random, plan.duration_us)
    random = stream(seed, "groups")
    if random.random() < 0.5:
        messaging = _with_groups(random, messaging, plan.duration_us)
    random = stream(seed, "kinds")
    if random.random() < 0.5:
        messaging = _with_kinds(random, messaging)
    random = stream(seed, "transactions")
    if random.random() < 0.5:
        messaging = _with_transactions(random, messaging, plan.duration_us)
    plan = msgspec.structs.replace(plan, messaging=messaging)
    random = stream(seed, "contexts")
    if plan.volatile or random.random() < 0.6:
        return plan
    return _with_local_contexts(random, plan, messaging)


def _with_thin_links(plan: Plan) -> Plan:
    """Add thin links in some worlds: clients send large packs, and later messages wait for them."""
    random = stream(plan.seed, "bandwidth")
    if random.random() < 0.8:
        return plan
    large_bytes, inflight_bytes = random.choice((1_000, LARGE_BYTES)), random.choice((1, 1 << 20))
    settings = msgspec.structs.replace(
        plan.settings,
        large_bytes=large_bytes,
        inflight_max_bytes=inflight_bytes,
        piece_bytes=stream(plan.seed, "pieces").choice((300, 256 << 10)),
    )
    bandwidth, large = random.choice((20, 100, 1000)), random.choice((0.1, 0.5))
    return msgspec.structs.replace(plan, settings=settings, bandwidth=bandwidth, large=large)


def _draw_messaging(random: Random, duration_us: int) -> Messaging:
    roles = [_draw_role(random, publishes=True)]
    roles += [
        _draw_role(random, publishes=random.random() < 0.5)
        for _ in range(random.choice((1, 2, 3, 5)))
    ]
    faults = _draw_program_faults(random, range(len(roles)), duration_us)
    return Messaging(
        roles=tuple(roles),
        breaks=random.choice((0.0, 0.0, 0.01, 0.05)),
        repeats=random.choice((0.0, 0.0, 0.05, 0.3)),
        silent=random.choice((0.0, 0.3, 0.7)),
        home=HomeSettings(
            heartbeat_ms=random.choice((200, 500, 1000)),
            renew_ms=random.choice((200, 1000)),
            client_window_bytes=random.choice((200, 8 << 20)),
            window_bytes=random.choice((500, 64 << 20)),
            delivery_bytes=random.choice((1, 500, 256 << 10)),
            slow_quota=random.choice((2, 100_000)),
        ),
        faults=tuple(faults),
    )


def _draw_program_faults(random: Random, targets: range, duration_us: int) -> list[Fault]:
    kinds = [kind for kind in PROGRAM_KINDS if random.random() < 0.6]
    faults: list[Fault] = []
    if kinds:
        weights = [PROGRAM_KINDS[kind] for kind in kinds]
        for at_us in sorted(
            random.randrange(duration_us) for _ in range(random.choice((2, 8, 30)))
        ):
            kind = random.choices(kinds, weights)[0]
            for_us = random.choice((5_000, 100_000, 1_000_000, 5_000_000))
            target, detail = random.choice(targets), random.getrandbits(30)
            faults.append(Fault(at_us, kind, target, for_us, detail))
    return faults


GROUPS = ("topic:g", "topic:h")


def _with_groups(random: Random, m: Messaging, duration_us: int) -> Messaging:
    """Add members to the present programs, some of which publish to the groups, too."""
    groups = {
        name: random.choice((0, 300, 2_000, 60_000)) for name in GROUPS[: random.choice((1, 1, 2))]
    }
    roles = []
    for role in m.roles:
        if role.publishes and random.random() < 0.5:
            role = msgspec.structs.replace(role, to=(*role.to, *groups))
        roles.append(role)
    first = len(roles)
    roles += [_draw_member(random, tuple(groups)) for _ in range(random.choice((2, 3, 3, 5)))]
    faults = _draw_program_faults(random, range(first, len(roles)), duration_us)
    return msgspec.structs.replace(
        m,
        roles=tuple(roles),
        faults=tuple(sorted([*m.faults, *faults], key=lambda f: f.at_us)),
        groups=groups,
    )


def _draw_member(random: Random, groups: tuple[str, ...]) -> Role:
    mine = tuple(random.sample(groups, random.randrange(1, len(groups) + 1)))
    role = _draw_role(random, publishes=random.random() < 0.6)
    return msgspec.structs.replace(
        role,
        to=mine,
        consumes=(),
        durable=False,
        member=Membership(
            groups=mine,
            durable=random.random() < 0.5,
            removes_suspects=random.choice((0.0, 0.3, 1.0)),
            ruthless=random.choice((0.0, 0.0, 0.02)),
            invites=random.choice((0.0, 0.0, 0.02)),
            changes=random.choice((0.0, 0.0, 0.05)),
            provides=random.random() < 0.6,
            fails=random.choice((0.0, 0.0, 0.3)),
        ),
    )


def _with_kinds(random: Random, m: Messaging) -> Messaging:
    """Give programs special messages, and make other kinds of consumers of them."""
    flavour = Flavour(
        ranked=random.choice((0.0, 0.3, 0.8)),
        mortal=random.choice((0.0, 0.1, 0.5)),
        delayed=random.choice((0.0, 0.1, 0.5)),
        grouped=random.choice((0.0, 0.3, 1.0)),
    )
    exclusive, shares = random.choice((0.0, 0.2)), random.choice((0.0, 0.5, 1.0))
    roles = [
        msgspec.structs.replace(
            role,
            flavour=flavour if random.random() < 0.7 else Flavour(),
            exclusive=random.random() < exclusive,
            shares=random.random() < shares,
        )
        for role in m.roles
    ]
    roles += _draw_rivals(random, flavour)
    home = m.home
    if random.random() < 0.4:
        times = random.choice((1, 2, 3))
        quick = Redelivery(delay_ms=30 * times, factor=3.0, most_ms=1000)
        home = msgspec.structs.replace(home, deliveries_max=times, redelivery=quick)
        undertaker = _draw_role(random, publishes=False)
        roles.append(msgspec.structs.replace(undertaker, consumes=(DEAD_LETTERS,)))
    return msgspec.structs.replace(m, roles=tuple(roles), home=home)


def _draw_rivals(random: Random, flavour: Flavour) -> list[Role]:
    """Draw programs that share the messages of one destination, and one that feeds it."""
    prize = random.choice((*QUEUES, *TOPICS[:2]))
    durable = random.random() < 0.5
    exclusive = random.choice((0.0, 0.0, 0.5))
    rivals = [
        msgspec.structs.replace(
            _draw_role(random, publishes=False),
            consumes=(prize,),
            durable=durable,
            shares=True,
            exclusive=random.random() < exclusive,
        )
        for _ in range(random.choice((2, 3)))
    ]
    feeder = msgspec.structs.replace(
        _draw_role(random, publishes=True), to=(prize,), consumes=(), flavour=flavour
    )
    return [*rivals, feeder]


SOURCES = ("queue:in", "queue:jn", "topic:in")


def _with_transactions(random: Random, m: Messaging, duration_us: int) -> Messaging:
    """Add programs: some that feed queues and a topic, some that turn each message there into one
    for another destination, and one that gets those."""
    first = len(m.roles)
    sources = random.sample(SOURCES, random.choice((1, 2, 2)))
    flavour = m.roles[0].flavour
    feeder = msgspec.structs.replace(
        _draw_role(random, publishes=True),
        to=tuple(sources),
        persistent=True,
        consumes=(),
        flavour=msgspec.structs.replace(flavour, mortal=0.0),
    )
    to = ("queue:out", "topic:out", *m.groups)
    transactors = [
        msgspec.structs.replace(_draw_transactor(random, sources, to), flavour=flavour)
        for _ in range(random.choice((1, 2, 3)))
    ]
    getter = msgspec.structs.replace(
        _draw_role(random, publishes=False), consumes=("queue:out", "topic:out")
    )
    roles = (*m.roles, feeder, *transactors, getter)
    faults = _draw_program_faults(random, range(first + 1, len(roles) - 1), duration_us)
    return msgspec.structs.replace(
        m,
        roles=roles,
        faults=tuple(sorted([*m.faults, *faults], key=lambda f: f.at_us)),
    )


def _draw_transactor(random: Random, sources: list[str], to: tuple[str, ...]) -> Role:
    role = _draw_role(random, publishes=random.random() < 0.3)
    return msgspec.structs.replace(
        role,
        publishes=min(role.publishes, 5),
        to=(*to, MAILBOX) if random.random() < 0.4 else to,
        named=False,
        consumes=tuple(random.sample(sources, random.randrange(1, len(sources) + 1))),
        durable=True,
        transacts=Transacting(
            size=random.choice((1, 3, 10)),
            rolls_back=random.choice((0.0, 0.1, 0.5)),
            stages=random.choice((0.0, 0.1, 0.5)),
            tokens=random.choice((0.0, 0.5)),
            gives=random.choice((0.0, 0.1)),
        ),
    )


def _with_local_contexts(random: Random, plan: Plan, m: Messaging) -> Plan:
    """Aim faults at servers while they alone know acknowledgements: add subscribers, and kill their
    servers; often without other faults, so that the others notice and wait."""
    first = len(m.roles) + 1
    subscribers = [_draw_subscriber(random) for _ in range(random.choice((1, 2, 3)))]
    roles = (*m.roles, _draw_source(random), *subscribers)
    times = sorted(random.randrange(plan.duration_us) for _ in range(random.choice((2, 6, 12))))
    deaths = [
        Fault(
            at_us,
            "home-kill",
            random.randrange(first, len(roles)),
            random.choice((5_000, 300_000, 4_000_000, 6_000_000)),
            random.getrandbits(30),
        )
        for at_us in times
    ]
    faults = tuple(sorted([*m.faults, *deaths], key=lambda f: f.at_us))
    if random.random() < 0.6:
        plan = msgspec.structs.replace(plan, faults=(), loss=0.0, duplication=0.0)
    return msgspec.structs.replace(
        plan,
        messaging=msgspec.structs.replace(m, roles=roles, faults=faults),
        local=True,
        all_return=random.random() < 0.5,
    )


def _draw_source(random: Random) -> Role:
    """Draw a program that sends all the time."""
    return msgspec.structs.replace(
        _draw_role(random, publishes=True), publishes=100, to=TOPICS, consumes=(), think_us=5_000
    )


def _draw_subscriber(random: Random) -> Role:
    """Draw a subscriber that keeps up, so that it acknowledges all the time."""
    return msgspec.structs.replace(
        _draw_role(random, publishes=False),
        consumes=(random.choice((*TOPICS, "topic:>")),),
        durable=random.random() < 0.7,
        ack_every=random.choice((1, 1, 3)),
        think_us=random.choice((100, 2_000)),
    )


TOPICS = ("topic:a", "topic:a.b", "topic:c")
QUEUES = ("queue:q", "queue:r")
TEMPORARY = ("temp-queue:", "temp-topic:")


def _draw_role(random: Random, *, publishes: bool) -> Role:
    sources = (*TOPICS, *QUEUES, *QUEUES, *TEMPORARY, "topic:a.*", "topic:>")
    consumers = 0 if publishes and random.random() < 0.7 else random.choice((1, 1, 2))
    consumes = tuple(random.choice(sources) for _ in range(consumers))
    to = random.sample((*TOPICS, *QUEUES), random.choice((1, 2, 5)))
    if random.random() < 0.5:
        to.append(MAILBOX)
    return Role(
        publishes=random.choice((5, 20, 60)) if publishes else 0,
        to=tuple(to),
        persistent=random.random() < 0.8,
        named=publishes and random.random() < 0.3,
        consumes=consumes,
        durable=random.random() < 0.6,
        prefetch=random.choice((1, 2, 7, 100)),
        ack_every=random.choice((1, 1, 3, 10)),
        individually=random.random() < 0.5,
        slow=random.choice(("spill", "spill", "spill", "disconnect")),
        lease_ms=random.choice((300, 2_000, 8_000)),
        think_us=random.choice((100, 2_000, 20_000)),
        restless=random.choice((0.0, 0.0, 0.02, 0.1)),
    )


def _draw_log_plan(seed: int) -> Plan:
    random = stream(seed, "plan")
    size = random.choice((1, 2, 3, 3, 3, 3, 3, 5, 5))
    volatile = size > 1 and random.random() < 0.3
    spares = random.choice((0, 0, 1, 2))
    numbers = range(1, size + spares + 1)
    duration_us = random.randrange(6, 16) * SECOND_US
    drift = random.choice((0.0, 0.0, 0.02, 0.1))
    mixed = random.random() < 0.3
    low = random.choice((100, 500, 2_000))
    return Plan(
        seed=seed,
        listed={n: f"node-{n}" for n in range(1, size + 1)},
        spares=spares,
        volatile=volatile,
        settings=_draw_settings(random, volatile),
        segment_bytes=random.choice((600, 2_000, 8_000)),
        retain=random.choice((None, 20, 100)),
        loss=random.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.5)),
        delay_us=(low, low * random.choice((2, 5, 20))),
        straggle=random.choice((0.0, 0.0, 0.01, 0.05)),
        sync_us=random.choice(((100, 300), (500, 5_000), (5_000, 40_000))),
        rates={n: 1.0 + random.uniform(-drift, drift) for n in numbers},
        wire_versions={n: random.choice((1, NEWEST)) if mixed else NEWEST for n in numbers},
        encode=mixed or random.random() < 0.1,
        duration_us=duration_us,
        clients=random.choice((1, 2, 4)),
        operations=random.choice((10, 30, 60)),
        reads_us=random.choice((10_000, 50_000, 500_000)),
        faults=_draw_faults(random, size, spares, volatile, duration_us),
    )


def _draw_settings(random: Random, volatile: bool) -> Settings:
    # Impatient servers elect all the time: that is where logs diverge.
    heartbeat_ms, election_ms = random.choice(((50, 400), (50, 400), (20, 100), (10, 30)))
    return Settings(
        heartbeat_ms=heartbeat_ms,
        election_ms=election_ms,
        election_max_ms=election_ms * 8,
        inflight_max=random.choice((1, 2, 8, 64)),
        append_max_bytes=random.choice((1, 200, 5_000)),
        uncommitted_max_bytes=random.choice((500, 1 << 20)),
        cache_max_bytes=random.choice((0, 500, 1 << 20)),
        snapshot_every_entries=random.choice((8, 25, 1_000)),
        volatile=volatile,
    )


def _draw_faults(
    random: Random, size: int, spares: int, volatile: bool, duration_us: int
) -> tuple[Fault, ...]:
    kinds = [
        kind for kind in KINDS if random.random() < 0.5 and not (volatile and kind in _ON_DISK)
    ]
    if not kinds:
        return ()
    weights = [KINDS[kind] for kind in kinds]
    count = random.choice((3, 8, 20, 40, 100))
    # The first faults may fall into the founding, the last ones into their own healing.
    times = sorted(random.randrange(duration_us) for _ in range(count))
    return tuple(
        Fault(
            at_us,
            random.choices(kinds, weights)[0],
            LEADER if random.random() < 0.3 else random.randrange(1, size + spares + 1),
            random.choice((5_000, 100_000, 700_000, 2_000_000, 6_000_000)),
            random.getrandbits(30),
        )
        for at_us in times
    )
