"""A simulated program as a member of a group: it joins, handles messages and views, removes
suspects, leaves and comes back.

Everything that its application sees goes into the trace by which the run is judged in the end
(`checkers/groups.py`). Some rules are checked at once: a view is the same everywhere, a message
comes in the view in which it was ordered, an acknowledged message does not come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox, Slice
from antiphon.api.protocol.inbox_items import GroupColumns, Notice, admission
from antiphon.api.protocol.requests import Acknowledgement, Request
from antiphon.api.protocol.state_transfer import Ready, StateEvent
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Extra, Outgoing, decode_extra, encode_extra
from antiphon.formats.pack import CONTROL
from antiphon.formats.trace import Kind
from antiphon.model.conflicts import ConflictRelation
from antiphon.sim.judges.message_ledger import Window
from antiphon.sim.programs.member_state import Giver, Replica, Taker
from antiphon.sim.violations import ViolationError

if TYPE_CHECKING:
    from antiphon.sim.programs.program import SimProgram

MS = 1000
RELATIONS = (ConflictRelation.ATOMIC, ConflictRelation.RELIABLE_ATOMIC, ConflictRelation.RELIABLE)
TAGS = (None, "rbcast", "abcast")
KEYS = (None, "x", "y")


def tagged(program: SimProgram) -> bytes:
    """The headers of a message for a group."""
    random = program.random
    return encode_extra(Extra(tag=random.choice(TAGS), key=random.choice(KEYS)))


def _may_yet(refusal: str) -> bool:
    """Return whether a name that is refused now may be free later."""
    return "live member" in refusal or "alone knows how far" in refusal


class SimMember:
    """A program's membership in one group: it joins, handles messages and events, takes over and
    hands out states, and comes back after it was removed."""

    def __init__(self, program: SimProgram, conversation: Conversation, group: str) -> None:
        assert program.role.member is not None
        self.group = group
        self.number = conversation.next_consumer()
        self.joined = False
        self._program = program
        self._world = program.world
        self._role = program.role
        self._how = program.role.member
        self._conversation = conversation
        self._random = program.random
        self._inbox = Inbox(self.number, False, self._role.prefetch)
        self._window = Window(self._role.prefetch)
        self._view: tuple[str, ...] = ()
        self._view_id = 0
        self._untold = 0  # handled since the last acknowledgement
        self._busy = False
        self._over = False
        if not self._how.durable:
            program.replicas.pop(group, None)
        self._replica = program.replicas.setdefault(group, Replica())
        self._taker = Taker(self._replica, lambda: self._world.ledger.positions_of(group))
        self._waits = False  # for a state
        self._untraced_state = False  # the state is here, and the application gets its view first
        self._gives = 0  # the request for its state that it grants next
        # Some only use the group, and never remove or invite members.
        after_ms = self._world.remove_after_ms(group) if program.number % 2 else -1
        conversation.request(cw.CreateGroup(group, "", after_ms))
        asked = cw.Join(
            self.number,
            group,
            self._role.prefetch,
            program.name,
            self._how.durable,
            self._how.provides,
            remove_after_ms=after_ms,
        )
        request = conversation.join(asked)
        request.watch(lambda: self._answered(request))

    def _answered(self, request: Request) -> None:
        if self._over or self._conversation.over:
            return
        if request.error is None:
            self.joined = True
            if admission(request.value, request.data).waits_for_state and not self._taker.known:
                self._waits = True
                self._inbox.wait_for_state()
            self._trace("join", sender=self._program.name, durable=self._how.durable)
            self._go_on()  # events come before the answer
        elif isinstance(request.error, IllegalStateError) and _may_yet(str(request.error)):
            self._over = True
            self._come_back()  # its former life is not suspected yet, or its server is away
        else:
            raise ViolationError(f"{self._program.name} cannot join {self.group}: {request.error}")

    def _come_back(self) -> None:
        pause = self._random.choice((1, 300, 2_000)) if self._world.core is None else 50
        self._world.at(pause * MS, self._program.rejoin, self._program.lives, self.group)

    def _trace(self, kind: Kind, **fields: Any) -> None:
        self._world.trace(self._program, kind, self.group, **fields)

    @property
    def is_in(self) -> bool:
        """Return whether it has joined, and has neither left nor learnt of its removal."""
        return self.joined and not self._over

    def settled(self) -> bool:
        """Return whether it is a member, and has handled all that came."""
        waits = self._waits or self._untraced_state or self._inbox.ready
        return self.joined and not self._over and not waits

    # -- Handling ------------------------------------------------------------------------------

    def arrive(self, slice_: Slice) -> None:
        self._window.arrived(slice_.first, slice_.last)
        self._inbox.arrive(slice_)
        self._go_on()

    def occur(self, event: cw.GroupEvent) -> None:
        if event.kind == cw.RELATION:
            self._trace("conflict", relation=event.relation, position=event.position)
        self._inbox.occur(event)
        self._go_on()

    def complete(self) -> None:
        """Do nothing: it does not browse."""

    def state(self, event: StateEvent) -> None:
        """Take an event of the state that it takes over."""
        if self._over:
            return
        self._taker.event(event, self._conversation)
        if self._taker.known:
            self._waits = False
            self._inbox.state_is_known(event.serial if isinstance(event, Ready) else 0)
        self._untraced_state = self._untraced_state or isinstance(event, Ready)
        self._go_on()

    def _trace_state(self) -> None:
        if self._untraced_state:
            self._untraced_state = False
            self._trace("state", position=self._taker.cut)

    def _provide(self) -> None:
        """Hand out its state, if it was asked for that, and has handled everything before the
        request."""
        request = self._inbox.request
        if request is None or self._program.name not in request.went:
            return
        if self._gives != request.serial:
            self._gives = request.serial
            handout = self._conversation.hand_out(self.number, request.serial)
            if self._random.random() < self._how.fails:
                self._conversation.cannot_hand_out(handout, "it has no mind to")
            Giver(self._replica, self._conversation, handout, lambda: self._provided(request))

    def _provided(self, request: cw.GroupEvent) -> None:
        if not self._over and self._inbox.request is request:
            self._inbox.pass_request(request.serial)
            self._program.acks_wait(self)
            self._go_on()

    def dropped(self, error: JMSError) -> None:
        """Take the end of its consumer: another life has its place, or it was removed while it was
        away."""
        if not self._over:
            self._world.note(0, f"{self._program.name} is dropped from {self.group}: {error}")
            self.end()
            self._come_back()

    def _go_on(self) -> None:
        something = (self._inbox.ready and not self._waits) or self._untraced_state
        if something and self.joined and not self._busy and not self._over:
            self._busy = True
            think = self._random.randrange(1, 2 * self._role.think_us)
            self._world.at(think, self._handle)

    def _handle(self) -> None:
        self._busy = False
        if self._over:
            return
        if self._program.paused_until_us > self._world.now_us:
            self._go_on()
            return
        taken = self._inbox.take()
        if taken is not None:
            slice_, index = taken
            if isinstance(slice_.columns, Notice):
                self._told(slice_.columns.event, slice_.again)
            else:
                self._got(slice_, index)
        if not self._over:
            self._trace_state()
            self._handled()
            self._provide()
            self._go_on()
        self._program.step()

    def _got(self, slice_: Slice, index: int) -> None:
        self._trace_state()
        columns, position = slice_.columns, slice_.start + index
        assert isinstance(columns, GroupColumns)
        extra = decode_extra(columns.extra(index))
        ledger, body = self._world.ledger, columns.body(index)
        if ledger.bodies.get(position) != body or ledger.destinations[position] != self.group:
            raise ViolationError(f"{self._program.name} got {body!r} at {position}, which is not")
        if columns.view_id != ledger.views[position]:
            raise ViolationError(f"{position} is of view {ledger.views[position]}, not as it says")
        if position in self._program.confirmed:
            raise ViolationError(
                f"{self._program.name} got {position} again, which it had acknowledged"
            )
        if position <= self._taker.cut:
            raise ViolationError(f"{self._program.name} got {position}, which is in its state")
        self._replica.positions.add(position)
        ledger.deliveries += 1
        self._trace(
            "deliver",
            message=body.decode(),
            position=position,
            view_id=columns.view_id,
            redelivered=slice_.deliveries > 1,
            tag=extra.tag,
            key=extra.key,
        )

    def _told(self, event: cw.GroupEvent, again: bool) -> None:
        fields = {"position": event.position, "redelivered": again}
        if event.kind == cw.VIEW:
            self._world.same_view(self.group, event)
            self._view, self._view_id = event.members, event.view
            if self._program.name in event.came:
                self._replica.begin(event.view, event.position, self._taker.cut)
            self._trace("view", view_id=event.view, members=event.members, **fields)
            if self._program.name not in event.members:
                self._removed()
        elif event.kind == cw.SUSPICION:
            if event.came:
                self._trace("suspect", members=event.came, **fields)
            if event.went:
                self._trace("withdraw", members=event.went, **fields)
            if event.came and not again and self._now_and_then(self._how.removes_suspects):
                self._remove(event.came)

    def _removed(self) -> None:
        self._inbox.acknowledge_all()
        self.report()
        self.close()
        self._come_back()

    def _now_and_then(self, probability: float) -> bool:
        return self._world.core is None and self._random.random() < probability

    def _handled(self) -> None:
        self._untold += 1
        more = bool(self._inbox.ready) and self._world.core is None
        if self._untold < self._role.ack_every and more:
            return
        self._untold = 0
        if self._role.ack_every > 1 and self._now_and_then(0.05):
            self._inbox.recover()
            return
        self._inbox.acknowledge_all()
        if self._inbox.enough:
            self.report()
        else:
            self._program.acks_wait(self)

    def report(self) -> None:
        rows = self._inbox.take_rows()
        if not rows or self._conversation.over:
            return
        for row in rows:
            self._window.acknowledges(row)
        done = [p for p in self._world.ledger.positions_of(self.group) if p <= rows[0].last]
        ack = self._conversation.acknowledge(rows)
        ack.watch(lambda: self._acknowledged(ack, done))

    def _acknowledged(self, ack: Acknowledgement, done: list[int]) -> None:
        ack.looked_at = True
        if ack.error is None and self._conversation.session not in self._world.ledger.forgotten:
            self._program.confirmed.update(done)

    def finish(self) -> None:
        if self.joined and not self._over:
            self._inbox.acknowledge_all()
            self.report()

    # -- Requests to the group -----------------------------------------------------------------

    def work(self) -> None:
        """Make some request that members can make. Called now and then."""
        if not self.joined or self._over or not self._view:
            return
        how, random = self._how, self._random
        if self._now_and_then(how.ruthless):
            self._remove((random.choice(self._view),))
        if self._now_and_then(how.invites):
            name, durable = random.choice(self._world.members(self.group))
            kind = "durable" if durable else "nondurable"
            self._control(JMS_join_process=name, JMS_subscription=kind)
        if self._now_and_then(how.changes):
            relation = random.choice(RELATIONS).to_json().encode()
            self._control(relation, JMS_set_conflict="")

    def _remove(self, names: tuple[str, ...]) -> None:
        if self._control(JMS_remove=" ".join(names), JMS_in_view=self._view_id):
            self._trace("remove", members=names)

    def _control(self, body: bytes = b"", **properties: str | int) -> bool:
        extra = encode_extra(Extra(properties=dict(properties)))
        message = Outgoing(TEXT, body, extra, self._world.now_us // MS)
        return self._program.send_control(self, CONTROL, message)

    # -- The end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Note that it is not a member any more, or not an active one."""
        if self.joined and not self._over:
            self._trace_state()
            self._trace("leave")
        self.forget()

    def forget(self) -> None:
        """Forget its state, for the program is gone."""
        self._over = True

    def close(self) -> None:
        """Close; a durable one stays a member."""
        back = self.shut()
        self._conversation.close_consumer(self.number, self._inbox.kept(), back)

    def shut(self) -> list[cw.Kept]:
        """Handle nothing more; return the messages that were about to come again."""
        self.report()
        self.end()
        return self._inbox.close()

    def last_words(self) -> list[cw.Kept]:
        """Return the messages that the application has seen and not acknowledged, for the session
        closes."""
        return [*self.shut(), *self._inbox.kept()]

    def leave(self) -> None:
        self.report()
        self._conversation.leave(self.number)
        self.end()

    def close_or_leave(self) -> None:
        """Close or leave, and come back."""
        if self.joined and not self._over:
            if self._random.random() < 0.5:
                self.close()
            else:
                self.leave()
            self._come_back()
