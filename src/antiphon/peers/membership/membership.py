"""Membership as a layer: when a change of the view begins, and with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, cast

from antiphon.errors import ConfigurationError
from antiphon.model.peer_views import MemberId, PeerView
from antiphon.peers.layers.detector import Detector
from antiphon.peers.layers.fragment import came_ms_of
from antiphon.peers.layers.layer import (
    Down,
    Effect,
    Frame,
    Freeze,
    Header,
    Layer,
    Streams,
    Up,
)
from antiphon.peers.membership.candidates import LEADS, Lead, followers, preferred, ranking
from antiphon.peers.membership.coordinator import ATTEMPTS_MAX, Coordinator
from antiphon.peers.membership.member import Left, Member
from antiphon.peers.membership.messages import (
    HEADERS,
    Ask,
    Behind,
    Decided,
    Fetch,
    Frames,
    Here,
    Installed,
    Refused,
    Show,
    Told,
)
from antiphon.peers.membership.phases import Phase
from antiphon.peers.membership.shelf import NoStreams, Shelf

__all__ = ["Left", "Membership"]

GATHER_MS = 50
"""Suspects, and processes that knock, are gathered for so long before a change begins..."""
GATHER_MAX_MS = 200
"""... and at most for so long, if there are always more."""
PATIENCE_MS = 500
"""How long another coordinator that is alive may take to do what seems to be necessary."""
COMPLAIN_MS = 1200
"""A coordinator that has done nothing for so long, though this process wants it to, is passed
over: more than twice `PATIENCE_MS`, which it may have spent on another one..."""
SKIP_MS = 3000
"""... for so long."""
STUCK_MS = 4000
"""A change that makes no step for so long is stuck."""
HERE_MS = 1000
"""How often a process says again what it is."""
ANNOUNCE_MS = 5
"""It says what is new at most so often."""
LEAVE_MS = 5000
"""A process that wants to leave ends after this time, also without a view that says so."""


class Membership(Layer):
    """Views: who belongs together, which view is primary, and which frames belong to which view.

    Promise: processes that show the same two views one after the other have handed out the same
    frames in between. Primary views that are shown form one chain, and what was handed out in one
    of them by processes that go on without the majority is a prefix of what the majority has handed
    out (JBora's prefix delivery; see `decision.py`). Processes that hear each other come into one
    view. `primary_partition`: only primary views are shown; without one, sending waits.

    `names`: those who found the group, all together, by their names or all by the addresses at
    which they listen (`listens`); the group has its primary view from then on. Without names, a
    process that holds the founding record does, alone (`found`). `lead`: who coordinates.

    Needs: the opinions of `Detector`, and the streams of `Reliable`, without which views promise
    nothing of frames. Limits: when a quorum of the last primary view is gone for good, there is
    never another one, until a process is told to found the group anew (`found`). With whoever is
    there it begins another chain then; if the others were alive after all, there are two.
    """

    name = "membership"
    gives = frozenset({"views"})
    needs = frozenset({"opinions"})
    headers = HEADERS

    def __init__(
        self,
        names: Sequence[str] = (),
        lead: Lead = "hears",
        primary_partition: bool = False,
    ) -> None:
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise ConfigurationError(f"the founders are a list of names, not {names!r}")
        if len(set(names)) < len(names):
            raise ConfigurationError(f"a name is twice among the founders: {', '.join(names)}")
        if lead not in LEADS:
            raise ConfigurationError(f"{lead!r} does not say who leads: {', '.join(LEADS)}")
        self._names = tuple(names)
        self._lead: Lead = lead
        self._hides = primary_partition
        self._news: dict[MemberId, Here] = {}
        self._ended: set[MemberId] = set()  # members of the present view that said goodbye
        self._looked_version = -1
        self._dirty = True
        self._here: Here | None = None
        self._here_ms = 0
        self._announce_ms = 0
        self._skipped: dict[MemberId, int] = {}
        self._unhappy_ms: int | None = None
        self._wanted: frozenset[MemberId] = frozenset()
        self._wanted_ms = 0
        self._wanting_ms: int | None = None
        self._leave_ms: int | None = None
        self._look_ms: int | None = None

    def options(self) -> Mapping[str, Any]:
        return {
            "names": self._names,
            "lead": self._lead,
            "primary_partition": self._hides,
        }

    def bind(self, me: MemberId, view: PeerView, below: Sequence[Layer], random: Random) -> None:
        super().bind(me, view, below, random)
        self._detector = next(layer for layer in below if isinstance(layer, Detector))
        self._came_ms = came_ms_of(below)
        streams = next((layer for layer in below if "reliable" in layer.gives), None)
        shelf = Shelf(cast(Streams, streams) if streams else NoStreams())
        self._member = Member(me, view, shelf, self.stack, self._hides)
        self._coordinator = Coordinator(me, self.stack, self._names)

    def start(self, now_ms: int) -> Sequence[Effect]:
        self._look_ms = now_ms
        return (Freeze(),) if self._hides else ()

    @property
    def formed(self) -> PeerView:
        """The last view that was formed with this process; it may be hidden."""
        return self._member.formed

    @property
    def hidden(self) -> PeerView | None:
        """The view that this process is in, if it is hidden, because it is not primary."""
        return self._member.formed if self._member.phase is Phase.WAITING else None

    # -- Inputs --------------------------------------------------------------------------------

    def linked(self, process: MemberId, address: str, now_ms: int) -> Sequence[Effect]:
        self._dirty = True
        return self._say([process])

    def unlinked(self, process: MemberId, goodbye: bool, now_ms: int) -> Sequence[Effect]:
        self._dirty = True
        if goodbye:
            self._news.pop(process, None)
            members = self._member.formed.members
            self._ended = {one for one in (*self._ended, process) if one in members}
        return ()

    def suspected(self, process: MemberId, why: str, now_ms: int) -> Sequence[Effect]:
        self._dirty = True
        return () if why else self._say([process])

    def found(self, now_ms: int) -> Sequence[Effect]:
        self._member.founder = self._dirty = True
        return ()

    def change(self, now_ms: int) -> Sequence[Effect]:
        self._member.wants_change = self._dirty = True
        return ()

    def listens(self, address: str, now_ms: int) -> Sequence[Effect]:
        if address in self._names:
            self._member.place = address
        return ()

    def leave(self, now_ms: int) -> Sequence[Effect]:
        self._member.leaving = self._dirty = True
        self._leave_ms = now_ms + LEAVE_MS
        return ()

    def up(self, frame: Frame, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        header = frame.headers[-1] if frame.headers else None
        if not isinstance(header, HEADERS):
            return (Up(frame, sender),)
        self._dirty = True
        return self._take(header, sender, now_ms)

    def _take(self, header: Header, sender: MemberId, now_ms: int) -> Sequence[Effect]:
        member, coordinator = self._member, self._coordinator
        match header:
            case Here():
                return self._hear(header, sender)
            case Ask():
                willing = sender == self.me or (self._here and self._here.prefers == sender)
                return member.asked(header, sender, bool(willing), now_ms)
            case Refused():
                return coordinator.refused(header, sender, now_ms)
            case Told():
                return coordinator.told(header, sender, now_ms)
            case Behind():
                return member.behind(header, now_ms)
            case Decided():
                return member.decided(header, sender, now_ms)
            case Fetch() if header.change.coordinator == self.me and header.process == sender:
                return coordinator.fetch(header, sender)
            case Fetch():
                return member.read(header, sender)
            case Frames() if header.process == self.me:
                return member.fetched(header, now_ms)
            case Frames():
                return coordinator.frames(header)
            case Installed():
                return coordinator.installed(header, sender)
            case Show():
                return member.show(header, now_ms)
        return ()

    def _hear(self, here: Here, sender: MemberId) -> Sequence[Effect]:
        self._member.seen_round = max(self._member.seen_round, here.round)
        if sender == self.me:
            return ()
        known = self._news.get(sender)
        self._news[sender] = here
        return () if known else self._say([sender])

    # -- What the others know of this process --------------------------------------------------

    def _say(self, to: Sequence[MemberId]) -> list[Effect]:
        if self._here is None or not to:
            return []
        return [Down(Frame(b"", (self._here,), control=True), tuple(to))]

    def _describe(self, prefers: MemberId, now_ms: int) -> Here:
        view = self._member.formed
        return Here(
            view.id,
            view.leader,
            view.primary,
            len(view.members),
            view.members.index(self.me),
            self._member.seen_round,
            prefers,
            self._member.wants,
            self._member.leaving,
            self._stalled(now_ms),
        )

    def _stalled(self, now_ms: int) -> int:
        """Return the round of the change under way if its coordinator has not been heard of for
        `PATIENCE_MS`: it may have given up, and take its view for as it should be."""
        member = self._member
        if member.phase in (Phase.IN_VIEW, Phase.WAITING):
            return 0
        at_ms = member.progress_ms + PATIENCE_MS
        if now_ms < at_ms:
            self._wake(at_ms)
            return 0
        return member.promised.round

    # -- What to do ----------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Sequence[Effect]:
        if self._member.phase is Phase.OUT:
            return ()
        self._member.comes(self._came_ms(self._member.promised.coordinator))
        effects = [*self._member.tick(now_ms), *self._coordinator.tick(now_ms)]
        if self._is_due(now_ms):
            effects += self._look(now_ms)
        if now_ms >= self._here_ms:
            self._here_ms = now_ms + HERE_MS
            effects += self._say(self._detector.heard())
        return effects

    def _is_due(self, now_ms: int) -> bool:
        return (
            self._dirty
            or self._detector.version != self._looked_version
            or self._coordinator.is_late(now_ms)
            or (self._look_ms is not None and now_ms >= self._look_ms)
        )

    def next_deadline_ms(self) -> int | None:
        if self._member.phase is Phase.OUT:
            return None
        if self._dirty or self._detector.version != self._looked_version:
            return 0
        due = (
            self._here_ms,
            self._look_ms,
            self._member.next_deadline_ms(),
            self._coordinator.next_deadline_ms(),
        )
        return min([at for at in due if at is not None])

    def _look(self, now_ms: int) -> list[Effect]:
        """Form an opinion of who coordinates; begin a change if it is this process, and one is
        wanted."""
        self._dirty, self._looked_version = False, self._detector.version
        self._look_ms = None
        self._skipped = {one: until for one, until in self._skipped.items() if until > now_ms}
        for until in self._skipped.values():
            self._wake(until)
        prefers = self._prefer(now_ms)
        nobody = prefers is None or not self._mutual()
        if self._member.leaving and (nobody or now_ms >= (self._leave_ms or 0)):
            return self._member.left(now_ms, self._ends())
        assert prefers is not None
        effects = self._announce(prefers, now_ms)
        self._complain(prefers, now_ms)
        return effects + self._coordinate(prefers, now_ms)

    def _ends(self) -> bool:
        """Whether the group ends when this process leaves. A member that has crashed, or cannot be
        heard, might go on."""
        formed = self._member.formed
        return formed.primary and all(
            one == self.me or one in self._ended or (one in self._news and self._news[one].leaving)
            for one in formed.members
        )

    def _mutual(self) -> list[MemberId]:
        return [process for process in self._detector.mutual() if process in self._news]

    @property
    def _founds(self) -> bool:
        """Whether this process has to found the group: by itself, before anything else."""
        member = self._member
        return member.founder and not member.formed.primary and not member.leaving

    def _prefer(self, now_ms: int) -> MemberId | None:
        if self._founds:
            return self.me
        news = {**self._news, self.me: self._here or self._describe(self.me, now_ms)}
        # Asked only for those that want to coordinate. For all it would be much work in a large
        # group, whenever anything changes in who hears whom.
        key = ranking(self._lead, news, lambda process: len(self._detector.hears(process)))
        heard = [process for process in self._mutual() if process not in self._skipped]
        return preferred(self.me, heard, news, key)

    def _announce(self, prefers: MemberId, now_ms: int) -> list[Effect]:
        """Say what is new of this process; not at once if it has said something just now. Opinions
        depend on each other: answered at once, each would change the next one's."""
        here = self._describe(prefers, now_ms)
        if here == self._here:
            return []
        if now_ms < self._announce_ms:
            self._wake(self._announce_ms)
            return []
        self._here = here
        self._announce_ms = now_ms + ANNOUNCE_MS
        return self._say(self._detector.heard())

    def _complain(self, prefers: MemberId, now_ms: int) -> None:
        """Pass over a coordinator that does nothing."""
        member = self._member
        frozen = member.phase not in (Phase.IN_VIEW, Phase.WAITING)
        if prefers == self.me or (not frozen and member.formed.leader == prefers):
            self._unhappy_ms = None
            return
        if self._unhappy_ms is None:
            self._unhappy_ms = now_ms
        patience = STUCK_MS if frozen and member.promised.coordinator == prefers else COMPLAIN_MS
        until = max(self._unhappy_ms, member.progress_ms) + patience
        if now_ms >= until:
            self._skipped[prefers] = now_ms + SKIP_MS
            self._unhappy_ms = None
            self._dirty = True
        else:
            self._wake(until)

    def _coordinate(self, prefers: MemberId, now_ms: int) -> list[Effect]:
        if self._coordinator.attempt is not None:
            return self._go_on(prefers, now_ms)
        if prefers != self.me:
            self._wanting_ms = None
            return []
        waves = self._waves()
        wanted = frozenset(process for wave in waves for process in wave)
        if self._is_calm(wanted):
            self._wanting_ms = None
            self._coordinator.refusals.clear()
            return []
        if self._wanting_ms is None:
            self._wanting_ms = self._wanted_ms = now_ms
            self._wanted = wanted
        elif wanted != self._wanted:
            self._wanted, self._wanted_ms = wanted, now_ms
        begin_ms = max(self._begin_ms(wanted), self._coordinator.again_ms)
        if now_ms < begin_ms and not self._founds:
            self._wake(begin_ms)
            return []
        return self._begin(waves, now_ms)

    def _begin(self, waves: Sequence[Sequence[MemberId]], now_ms: int) -> list[Effect]:
        self._wanting_ms = None
        return self._coordinator.begin(waves, self._member.seen_round, now_ms)

    def _waves(self) -> list[list[MemberId]]:
        """Return whom to ask: first those who may refuse, this process last."""
        if self._founds:
            return [[self.me]]
        news = self._news
        members = self._member.formed.members
        mutual = [one for one in self._mutual() if not news[one].leaving or one in members]
        refused = self._coordinator.refusals
        refusing = {process for process, count in refused.items() if count >= ATTEMPTS_MAX}
        sure, unsure = followers(self.me, mutual, news, refusing)
        return [unsure, sure, [self.me]]

    def _is_calm(self, wanted: frozenset[MemberId]) -> bool:
        """Whether the view is as it should be."""
        member = self._member
        if member.phase not in (Phase.IN_VIEW, Phase.WAITING):
            return False
        formed = member.formed
        if member.wants or any(self._wants_more(self._news[one]) for one in wanted - {self.me}):
            return False
        if formed.leader != self.me:
            return wanted == {self.me} and self._stands(formed.leader)
        return wanted.union(filter(self._stays, formed.members)) == frozenset(formed.members)

    def _wants_more(self, here: Here) -> bool:
        """Whether another process needs a change: it is also in a later view, without this one, or
        waits for one that was given up."""
        formed = self._member.formed.id
        return here.leaving or here.wants or here.view > formed or here.stalled > formed.round

    def _stands(self, process: MemberId) -> bool:
        """Whether another process is there, and wants to coordinate."""
        here = self._news.get(process)
        return here is not None and here.prefers == process and process in self._mutual()

    def _stays(self, process: MemberId) -> bool:
        """Whether another process has this view, and wants to coordinate, but nobody follows it:
        the others have passed over it. So it stays until one of them follows it again."""
        if not self._stands(process) or self._news[process].view != self._member.formed.id:
            return False
        others = (here for one, here in self._news.items() if one != process)
        return not any(here.prefers == process for here in others)

    def _begin_ms(self, wanted: frozenset[MemberId]) -> int:
        """Return when to begin: soon if somebody has come or gone, later if a coordinator that is
        alive should do it, or members want to go elsewhere."""
        assert self._wanting_ms is not None
        member, mutual = self._member, set(self._mutual())
        leader = member.formed.leader
        is_led = self._stands(leader) and not self._news[leader].leaving
        is_torn = any(one in mutual and one not in wanted for one in member.formed.members)
        if (is_led or is_torn) and member.phase in (Phase.IN_VIEW, Phase.WAITING):
            return self._wanting_ms + PATIENCE_MS
        return min(self._wanted_ms + GATHER_MS, self._wanting_ms + GATHER_MAX_MS)

    def _go_on(self, prefers: MemberId, now_ms: int) -> list[Effect]:
        """Look after the change under way: without those who are gone it begins again."""
        coordinator = self._coordinator
        attempt = coordinator.attempt
        assert attempt is not None
        there = {*self._mutual(), self.me}
        if prefers != self.me:
            if coordinator.is_late(now_ms) or not there.issuperset(attempt.present):
                coordinator.give_up()
                self._dirty = True
            return []
        if there.issuperset(attempt.present) and not coordinator.is_late(now_ms):
            return []
        late = set(attempt.awaited()) if coordinator.is_late(now_ms) else set()
        coordinator.give_up()
        waves = [[one for one in wave if one not in late] for wave in self._waves()[:-1]]
        return self._begin([*waves, [self.me]], now_ms)

    def _wake(self, at_ms: int) -> None:
        self._look_ms = at_ms if self._look_ms is None else min(at_ms, self._look_ms)

    def status(self) -> Mapping[str, Any]:
        member, attempt = self._member, self._coordinator.attempt
        return {
            "view": str(member.formed),
            "primary": member.formed.primary,
            "phase": member.phase.value,
            "prefers": str(self._here.prefers) if self._here else None,
            "coordinates": str(attempt.change) if attempt else None,
            "waits for": [str(process) for process in attempt.awaited()] if attempt else [],
            "changes": self._coordinator.changes,
        }
