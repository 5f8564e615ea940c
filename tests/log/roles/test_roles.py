"""Every role meets every input: nothing crashes, roles change as the table says, promises are kept.

One replica, and everything that others may tell it, true or late; only what no correct server can
send is left out (`lie`). First each role that can be built meets each input once; then walks of
chance go on from there. Together they take every row of the table.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from antiphon.formats.entry import (
    ClusterMember,
    Entry,
    Kind,
    Membership,
    ReplicaId,
    SnapshotMeta,
    encode_membership,
)
from antiphon.formats.journal import Promise
from antiphon.formats.server_messages import (
    Append,
    Appended,
    AppendNamed,
    Ask,
    Envelope,
    Forward,
    ForwardNamed,
    Found,
    Hears,
    Knock,
    Message,
    PartTaken,
    Piece,
    PieceTaken,
    ReadAnswer,
    ReadRequest,
    Refused,
    Relay,
    RequestVote,
    SnapshotPart,
    TimeoutNow,
    Unwelcome,
    Via,
    Vote,
    Welcome,
)
from antiphon.formats.server_messages import Promise as FoundingPromise
from antiphon.log.effects import (
    Deliver,
    Effect,
    EntriesStored,
    Install,
    Persist,
    Send,
    VoteStored,
)
from antiphon.log.pieces import name_of
from antiphon.log.recovered import Recovered
from antiphon.log.replica import Replica, Silent, Unbinding
from antiphon.log.roles.election import Election
from antiphon.log.roles.transitions import KNOCKS, TRANSITIONS, Cause, Role, next_role
from antiphon.log.settings import Settings

MEMBERS = Membership(7, tuple(ClusterMember(n, n * 10, True, f"{n}") for n in (1, 2, 3)))
WITHOUT_ME = MEMBERS.without(1)
AS_LEARNER = MEMBERS.with_member(ClusterMember(1, 10, False, "1"))
ME, TWO, THREE = (member.id for member in MEMBERS.members)
STRANGER, FORMER = ReplicaId(9, 90), ReplicaId(2, 19)
LISTED = {1: "1", 2: "2", 3: "3"}
EPOCH = 2

Step = Callable[["Subject"], None]


class Subject:
    """A replica with its disk and its driver, which checks each effect against the promises."""

    def __init__(self, recovered: Recovered, *, volatile: bool = False) -> None:
        self.taken: set[tuple[Role, Cause]] = set()
        self.now_ms = 0
        settings = Settings(volatile=volatile)
        self.replica = Replica(1, LISTED, recovered, settings, Random(1), 0)
        self.role = self.replica.role
        self.become = self.replica.election.become
        self.replica.election.become = self.changes  # type: ignore[method-assign]
        self.unsynced: list[EntriesStored | VoteStored] = []
        self.install: SnapshotMeta | None = None
        self.votes: dict[int, ReplicaId | None] = {recovered.promise.epoch: recovered.promise.vote}
        self.written = recovered.promise
        self.delivered = self.replica.delivered
        self.epoch = self.replica.epoch

    def changes(self, cause: Cause) -> None:
        self.taken.add((self.role, cause))
        self.role = next_role(self.role, cause)
        self.become(cause)
        assert self.replica.role is self.role

    def hear(self, message: Message, sender: ReplicaId = TWO) -> None:
        if not lie(self.replica, sender, message):
            self.now_ms += 1
            self.check(self.replica.receive(Envelope(sender, ME, message), self.now_ms))

    def do(self, effects: list[Effect]) -> None:
        self.check(effects)

    def sync(self) -> None:
        """The disk has everything that was written."""
        tails, self.unsynced = self.unsynced, []
        for tail in tails:
            self.check(self.replica.stored_back(tail, self.now_ms))

    def check(self, effects: list[Effect]) -> None:
        r = self.replica
        for effect in effects:
            self.check_effect(effect)
        assert r.role is self.role, "the role changed, and no cause was given"
        assert (r.leading is not None) == (r.role is Role.LEADER)
        assert r.newcomer is not None or r.role is not Role.NEWCOMER
        assert r.newcomer is None or r.role is not Role.LEADER
        if r.role is Role.LEADER:
            assert r.leader_id == r.id
        if r.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            assert r.leader_id is None
        if r.impaired:
            assert r.role in (Role.NEWCOMER, Role.FOLLOWER)
        assert r.epoch >= self.epoch, "an epoch never falls"
        self.epoch = r.epoch
        assert self.votes.setdefault(r.epoch, r.vote) in (None, r.vote), "a vote never changes"
        self.votes[r.epoch] = r.vote
        assert r.delivered <= r.commit <= r.log.last
        assert r.stored <= r.log.last

    def check_effect(self, effect: Effect) -> None:
        r = self.replica
        if isinstance(effect, Send):
            self.check_message(effect.message, r.stored, None)
        elif isinstance(effect, Persist):
            for record in effect.records:
                self.written = record if isinstance(record, Promise) else self.written
            last = max([e.index for e in effect.records if isinstance(e, Entry)], default=r.stored)
            for tail in effect.then:
                if isinstance(tail, Send):
                    self.check_message(tail.message, max(r.stored, last), tail.to)
                elif isinstance(tail, EntriesStored | VoteStored):
                    self.unsynced.append(tail)
        elif isinstance(effect, Deliver):
            for entry in effect.entries:
                assert entry.index == self.delivered + 1, "each entry once, and in order"
                self.delivered = entry.index
        elif isinstance(effect, Install):
            self.install = effect.meta

    def check_message(self, message: Message, held: int, voted: ReplicaId | None) -> None:
        if isinstance(message, Appended):
            assert message.match <= held, "acknowledges what is neither on disk nor written with it"
        elif isinstance(message, Vote) and message.granted and not message.pre:
            assert self.written == Promise(message.epoch, voted), "grants what is not written"


def lie(r: Replica, sender: ReplicaId, m: Message) -> bool:
    """Whether no correct server can have sent this: a second leader in an epoch, or one whose log
    contradicts what is committed."""
    if isinstance(m, AppendNamed):
        m = m.append
    second = r.role is Role.LEADER or r.leader_id not in (None, sender)
    if isinstance(m, Append | SnapshotPart) and m.epoch == r.epoch and second:
        return True
    if isinstance(m, Append):
        places = [(m.prev_index, m.prev_epoch), *((e.index, e.epoch) for e in m.entries)]
        return any(
            index <= r.commit and r.log.epoch_at(index) not in (None, epoch)
            for index, epoch in places
        )
    if isinstance(m, Appended):
        return r.role is Role.LEADER and m.epoch == r.epoch and m.match > r.log.last
    return False


# -- The roles, as they come about -----------------------------------------------------------------


def recovered(last: int = 3) -> Recovered:
    return Recovered(
        10, Promise(EPOCH, None), runs=((1, 1), (2, 2)), last=last, memberships=((1, MEMBERS),)
    )


def newcomer() -> Subject:
    return Subject(Recovered(10))


def follower() -> Subject:
    return Subject(recovered())


def follower_of_two() -> Subject:
    subject = follower()
    subject.hear(append((3, 2)))
    return subject


def counting_follower_in_memory() -> Subject:
    subject = Subject(recovered(), volatile=True)
    subject.hear(append((3, 2)))
    return subject


def impaired() -> Subject:
    subject = follower_of_two()
    subject.do(subject.replica.impair("full", subject.now_ms))
    return subject


def installing() -> Subject:
    subject = follower_of_two()
    subject.hear(part(EPOCH))
    assert subject.install is not None
    return subject


def pre_candidate() -> Subject:
    subject = follower()
    silence(subject)
    assert subject.role is Role.PRE_CANDIDATE
    return subject


def candidate() -> Subject:
    subject = pre_candidate()
    subject.hear(Vote(EPOCH + 1, True, True))
    assert subject.role is Role.CANDIDATE
    return subject


def leader() -> Subject:
    subject = candidate()
    subject.sync()
    subject.hear(Vote(EPOCH + 1, True, False))
    assert subject.role is Role.LEADER
    return subject


def leader_that_knows() -> Subject:
    subject = leader()
    subject.sync()
    subject.hear(Appended(EPOCH + 1, 4, 0))
    assert subject.replica.commit == 4
    return subject


def leader_that_removes() -> Subject:
    subject = leader_that_knows()
    subject.do(subject.replica.change(3, subject.now_ms))
    return subject


def leader_that_hands_over() -> Subject:
    subject = leader_that_knows()
    subject.do(subject.replica.transfer(2, subject.now_ms))
    return subject


def knocking() -> Subject:
    subject = follower()
    subject.hear(Unwelcome("not a member"))
    assert subject.role is Role.NEWCOMER
    return subject


def unwelcome_pre_candidate() -> Subject:
    """Knocking, though the membership in its log names it."""
    subject = knocking()
    silence(subject)
    assert subject.role is Role.PRE_CANDIDATE
    return subject


def unwelcome_candidate() -> Subject:
    subject = unwelcome_pre_candidate()
    subject.hear(Vote(EPOCH + 1, True, True))
    assert subject.role is Role.CANDIDATE
    return subject


def removed_by_its_log() -> Subject:
    """Knocking, and its own removal is in its log, not committed."""
    subject = follower()
    subject.hear(append((3, 2), membership(4, WITHOUT_ME)))
    silence(subject)
    subject.hear(Unwelcome("not a member"))
    assert subject.role is Role.NEWCOMER
    return subject


def removed_and_led() -> Subject:
    subject = removed_by_its_log()
    subject.hear(append((3, 2)))
    assert subject.role is Role.NEWCOMER
    assert subject.replica.leader_id == TWO
    return subject


def knocking_pre_candidate() -> Subject:
    subject = removed_by_its_log()
    silence(subject)
    assert subject.role is Role.PRE_CANDIDATE
    assert subject.replica.newcomer is not None
    return subject


def knocking_candidate() -> Subject:
    subject = knocking_pre_candidate()
    subject.hear(Vote(EPOCH + 1, True, True))
    subject.hear(Vote(EPOCH + 1, True, True), THREE)
    assert subject.role is Role.CANDIDATE
    assert subject.replica.newcomer is not None
    return subject


SUBJECTS = [
    newcomer,
    follower,
    follower_of_two,
    counting_follower_in_memory,
    impaired,
    installing,
    pre_candidate,
    candidate,
    leader,
    leader_that_knows,
    leader_that_removes,
    leader_that_hands_over,
    knocking,
    unwelcome_pre_candidate,
    unwelcome_candidate,
    removed_by_its_log,
    removed_and_led,
    knocking_pre_candidate,
    knocking_candidate,
]


# -- The inputs ------------------------------------------------------------------------------------


def entry(index: int, epoch: int) -> Entry:
    return Entry(index, epoch, 0, Kind.PACK, b"")


def membership(index: int, value: Membership, epoch: int = EPOCH) -> Entry:
    return Entry(index, epoch, 0, Kind.MEMBERSHIP, encode_membership(value))


def append(prev: tuple[int, int], *entries: Entry, epoch: int = EPOCH, commit: int = 2) -> Append:
    return Append(epoch, *prev, entries, commit, 1, 3)


def part(epoch: int, seq: int = 0, last: bool = True) -> SnapshotPart:
    return SnapshotPart(epoch, 1, SnapshotMeta(8, EPOCH, 5, MEMBERS), seq, b"", last)


def messages(epoch: int) -> Iterator[Message]:
    """Yield every kind of message, with what may be in it, from a server in this epoch."""
    for granted in (True, False):
        yield Vote(epoch, granted, True)
        yield Vote(epoch, granted, False)
        for forced in (True, False):
            yield RequestVote(epoch, 9, EPOCH, granted, forced)
            yield RequestVote(epoch, 2, EPOCH, granted, forced)
    yield append((0, 0), epoch=epoch)
    yield append((3, 2), epoch=epoch)
    yield append((9, 2), epoch=epoch)
    if epoch >= EPOCH:
        yield append((3, 2), entry(4, epoch), epoch=epoch, commit=4)
        yield append((2, 2), entry(3, epoch), epoch=epoch)
        for value in (MEMBERS, WITHOUT_ME, AS_LEARNER):
            yield append((3, 2), membership(4, value, epoch), epoch=epoch)
        named = Entry(4, epoch, 0, Kind.PACK, name_of(b"pack"))
        yield AppendNamed(append((3, 2), named, epoch=epoch), (0,))
        yield AppendNamed(append((3, 2), named, epoch=epoch), (7,))
    for match in (0, 3, 4):
        yield Appended(epoch, match, 1)
    yield Refused(epoch, 3, 2, 2, 1)
    yield Refused(epoch, 0, 0, 0, 1)
    yield part(epoch)
    yield part(epoch, 0, last=False)
    yield part(epoch, 1)
    for seq in (-1, 0):
        yield PartTaken(epoch, 1, seq)
    yield TimeoutNow(epoch)


WITHOUT_EPOCH: list[Message] = [
    Forward((b"pack",)),
    Piece(name_of(b"pack"), 0, b"pack"),
    Piece(name_of(b"pack"), 4, b"beyond"),
    PieceTaken(name_of(b"pack"), 4),
    ForwardNamed((name_of(b"pack"),), (0,)),
    ReadRequest(1),
    ReadAnswer(1, 3),
    ReadAnswer(1, -1),
    Knock(STRANGER, 0),
    Knock(FORMER, 0),
    Knock(FORMER, 5),
    Knock(TWO, 0),
    Welcome(0),
    Welcome(5),
    Unwelcome("not a member"),
    Ask(3, (1, 2, 3)),
    Ask(3, (1, 2)),
    FoundingPromise(3, (1, 2, 3)),
    Found(3, MEMBERS),
]


def silence(subject: Subject) -> None:
    """Nobody is heard until it is time to act."""
    subject.now_ms = max(subject.now_ms, subject.replica.election.quiet_until_ms)
    subject.do(subject.replica.tick(subject.now_ms))


def beat(subject: Subject) -> None:
    subject.now_ms = max(subject.now_ms, subject.replica.next_deadline_ms())
    subject.do(subject.replica.tick(subject.now_ms))


def install(subject: Subject) -> None:
    meta, subject.install = subject.install, None
    if meta is not None:
        subject.delivered = meta.index
        subject.do(subject.replica.installed(meta, subject.now_ms))


def install_fails(subject: Subject) -> None:
    if subject.install is not None:
        subject.install = None
        subject.replica.following.drop_incoming()


def found(subject: Subject) -> None:
    """The others agree to a founding, whoever asks."""
    nonce = getattr(subject.replica.newcomer, "_nonce", 0)
    subject.hear(FoundingPromise(nonce, (1, 2, 3)), TWO)
    subject.hear(FoundingPromise(nonce, (1, 2, 3)), THREE)


def doors() -> dict[str, Step]:
    def door(call: Callable[[Replica, int], list[Effect]]) -> Step:
        return lambda subject: subject.do(call(subject.replica, subject.now_ms))

    added = ClusterMember(4, 0, True, "4")
    return {
        "silence": silence,
        "the next deadline": beat,
        "the disk syncs": lambda subject: subject.sync(),
        "the snapshot is installed": install,
        "the snapshot cannot be installed": install_fails,
        "the others agree to a founding": found,
        "the disk is full": door(lambda r, now: r.impair("full", now)),
        "the disk has room": door(lambda r, now: r.impair("", now)),
        "node 2 ended": door(lambda r, now: r.gone(2, now)),
        "a part comes": door(lambda r, now: r.alive(TWO, now)),
        "a program proposes": door(lambda r, now: r.propose((b"pack",), now)),
        "a program reads": door(lambda r, now: r.read(1, now)),
        "to node 2": door(lambda r, now: r.transfer(2, now)),
        "add node 4": door(lambda r, now: r.change(added, now)),
        "remove node 3": door(lambda r, now: r.change(3, now)),
        "remove node 1": door(lambda r, now: r.change(1, now)),
        "nothing to read": door(lambda r, now: r.entries_read(TWO, 1, (), now)),
        "no snapshot": door(lambda r, now: r.part_read(TWO, None, 0, b"", False, now)),
    }


def inputs() -> dict[str, Step]:
    found = doors()
    for sender in (TWO, THREE, STRANGER, FORMER):
        everything = [*WITHOUT_EPOCH]
        for epoch in (EPOCH - 1, EPOCH, EPOCH + 1, EPOCH + 2):
            everything += messages(epoch)
        for m in everything:
            found[f"{sender}: {m}"] = lambda subject, m=m, by=sender: subject.hear(m, by)
    return found


INPUTS = inputs()


def test_every_message_of_the_log_is_among_the_inputs() -> None:
    named = {type(m) for m in [*messages(EPOCH), *WITHOUT_EPOCH]}
    assert set(follower().replica._handlers) == named


@pytest.mark.parametrize("build", SUBJECTS, ids=lambda build: build.__name__)
def test_every_role_takes_every_input(build: Callable[[], Subject]) -> None:
    for step in INPUTS.values():
        subject = build()
        step(subject)
        subject.sync()


def test_walks_take_every_row_of_the_table_and_no_other() -> None:
    # With every append: so the code does not even look at the table.
    taken = {(Role.FOLLOWER, Cause.LEADER_HEARD)}
    for seed in range(5000):
        if seed >= 600 and taken == set(TRANSITIONS):
            break
        chance = Random(seed)
        subject = chance.choice(SUBJECTS)()
        names = []
        try:
            for _ in range(25):
                # A third of the steps are the replica's own, or those of its disk.
                own = chance.random() < 0.33
                names.append(chance.choice(DOORS if own else ALL))
                INPUTS[names[-1]](subject)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {names}") from error
        taken |= subject.taken
    assert taken == set(TRANSITIONS)


DOORS = sorted(doors())
ALL = sorted(INPUTS)


def test_whoever_knocks_is_no_leader_and_a_newcomer_knocks() -> None:
    for (role, cause), to in TRANSITIONS.items():
        knocks = KNOCKS.get(cause)
        assert (to, knocks) != (Role.LEADER, True)
        assert to is not Role.NEWCOMER or knocks is not False
        assert to is not Role.LEADER or knocks is False, f"{role} leads and may knock"


def test_a_message_that_may_promise_something_is_not_sent_at_once() -> None:
    of_the_log = set(get_args(Message)) - {Relay, Hears, Via}
    assert of_the_log - set(get_args(Unbinding)) == {Vote, Appended}
    assert Send not in get_args(Silent)
    assert Persist not in get_args(Silent)


def test_an_impossible_cause_is_refused() -> None:
    with pytest.raises(AssertionError, match="a leader cannot change because"):
        next_role(Role.LEADER, Cause.LEADER_HEARD)


def assignments(source: str) -> Iterator[tuple[str, str]]:
    """Yield the function and the attribute of every assignment `x.attribute = ...` in it."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign | ast.AugAssign):
                targets = [node.target]
            for target in targets:
                each = target.elts if isinstance(target, ast.Tuple) else [target]
                yield from ((function.name, t.attr) for t in each if isinstance(t, ast.Attribute))


def test_only_an_election_changes_the_role_and_what_belongs_to_it() -> None:
    log = Path(__import__("antiphon.log.replica").__file__).parent / "log"
    writers: dict[str, set[str]] = {}
    for path in log.rglob("*.py"):
        for function, attribute in assignments(path.read_text(encoding="utf-8")):
            writers.setdefault(attribute, set()).add(f"{path.stem}.{function}")
    begins = {"replica.__init__", "election.begin"}
    for attribute in ("role", "leading", "newcomer"):
        assert writers[attribute] - begins == {"election.become"}
    for attribute in ("epoch", "vote", "leader_id", "removed", "impaired"):
        others = writers[attribute] - begins
        assert {writer.partition(".")[0] for writer in others} == {"election"}, attribute
    assert Election.become.__doc__
