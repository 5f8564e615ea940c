"""The conversation of a program with its running stack: one channel, but for its threads, its
sockets and its clock.

    opening -> open -> leaving -> over

Promises: what is received is handed out in the order of the stack, views among it; a send that has
returned leaves in that order, or the conversation is over; whoever waits is woken by what it waits
for, or by the end. The first view, this process alone, is kept back (`show_alone`) as long as it
may still become another one before anything is received in it.

Threads: the program's may call the first part, the driver's thread the second one; methods that
need the lock say so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import cast

from antiphon.api.protocol.inbox_items import PeerColumns
from antiphon.api.protocol.ticket import Ticket
from antiphon.errors import FormatError, IllegalStateError, InvalidDestinationError, JMSError
from antiphon.formats.frames import LARGE_BYTES
from antiphon.model.peer_views import Level, MemberId, PeerView
from antiphon.peers.channel.inbox import Inbox, Item
from antiphon.peers.channel.outbox import Leaving, Outbox
from antiphon.peers.channel.states import States, StateWanted, TakingOver
from antiphon.peers.channel.views import Occurrence, View, names
from antiphon.peers.layers.layer import Changed, To
from antiphon.peers.layers.state import Arrived, Begins, Ended, HandOut
from antiphon.peers.layers.views.transitional import Passing, passing_view
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.peers.whiteboard.board import Board

logger = logging.getLogger("antiphon.peers.channel")

Address = str | MemberId
"""Of a member: its name, or its name with the number of its life."""


class Conversation:
    """One channel from `connect` to `close`; promises are the module's."""

    def __init__(self, me: MemberId, view: PeerView, cluster: str, destination: str) -> None:
        """`view`: the first one of the stack; `destination`: see `Outbox`."""
        self.me = me
        self.cluster = cluster
        self.inbox = Inbox()
        self.states = States()
        self.board = Board(me)
        self.joined = Ticket()  # it is in a view with others or in a primary one, or will not be
        self.ended = Ticket()  # it is over
        self.leaving = False  # the program wants it to end
        self.over = False
        self.has_been_primary = False  # it was shown a primary view
        self.has_ended_cluster = False  # it was the last one to leave
        self.error: JMSError | None = None  # why it is over, if the program did not want that
        self.members_min = 1  # `joined` waits for a view of so many
        self.note = ""  # what the program wants views to say of it
        self._outbox = Outbox(me, destination)
        self.try_put = self._outbox.put
        """As `put`, with one call less; it returns False also if the conversation is over."""

        self._view = view
        self._shown = View(view)
        self._hidden = True  # the present view was not handed out yet
        self._bells: set[Ticket] = set()
        self._settled: list[Ticket] = []

    # -- For the program -----------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The newest view, whether or not the program has received it."""
        return self._shown

    def addressed(self, to: Address | Iterable[Address] | None) -> To:
        """Return the processes that are meant, each once. Raises `TypeError` for what is no member,
        and `InvalidDestinationError` for a name that no member of the newest view has."""
        if to is None:
            return None
        if isinstance(to, str | MemberId):
            return (self._member(to),)
        if not isinstance(to, Iterable):
            raise TypeError(f"to is a member, several of them, or None for all, not {to!r}")
        # Once each: a layer sends what it is given to send as often as a member is named.
        return tuple(dict.fromkeys(map(self._member, to)))

    def _member(self, address: Address) -> MemberId:
        members = self._view.members
        if isinstance(address, MemberId):
            return address
        if not isinstance(address, str):
            raise TypeError(f"a member is its name, or a MemberId, not {address!r}")
        for member in members:
            if member.name == address:
                return member
        raise InvalidDestinationError(
            f"{address!r} is not a member of {self.cluster!r}: {' '.join(names(members))}"
        )

    def number_of(self, address: Address) -> int | None:
        """Return the number of a member on the whiteboard; None: it has written none that is here,
        or is not in the newest view. Raises `TypeError` for what is no member."""
        members = self._view.members
        if isinstance(address, str):
            named = (member for member in members if member.name == address)
            member = next(named, None)
        elif isinstance(address, MemberId):
            member = address if address in members else None
        else:
            raise TypeError(f"a member is its name, or a MemberId, not {address!r}")
        return None if member is None else self.board.number_of(member)

    def put(
        self, kind: int, body: bytes, extra: bytes, timestamp: int, to: To, level: Level
    ) -> bool:
        """Take a message to be sent; return False if there is no room. Raises why it cannot be.
        Caller holds the lock."""
        if self.over or self.leaving:
            raise self.why_not()
        return self._outbox.put(kind, body, extra, timestamp, to, level)

    def room(self) -> Ticket:
        """Return a ticket that is settled when there is room. Caller holds the lock."""
        return self._outbox.room()

    def take(self) -> Item | None:
        """Return what comes next; None: nothing is here."""
        return self.inbox.take()

    def hang_up(self, bell: Ticket) -> None:
        """Have a bell rung when something arrives, or it is over."""
        self._bells.add(bell)

    def take_down(self, bell: Ticket) -> None:
        """Have it rung no more."""
        self._bells.discard(bell)

    def end_state(self, taking: TakingOver) -> None:
        """Want no more of a state: what waits behind its place waits no more. Caller holds the
        lock."""
        self.states.end(taking)
        self._ring()

    def leave(self) -> None:
        """Leave, once what was sent has left. Caller holds the lock."""
        self.leaving = True
        self._outbox.shut()

    def why_not(self) -> JMSError:
        """Return why nothing can be sent or received."""
        if self.error is not None:
            return type(self.error)(*self.error.args, happened=self.error.happened)
        return IllegalStateError(f"the channel to {self.cluster!r} is closed")

    # -- For the driver ------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """Return whether something waits to leave. Needs no lock: whoever puts more in wakes the
        driver afterwards."""
        return self._outbox.has_unsent

    def next_leaving(self) -> Leaving | None:
        """Return the next pack for the stack. Caller holds the lock."""
        leaving = self._outbox.next()
        if (room := self._outbox.take_room()) is not None:
            self._settled.append(room)
        return leaving

    @property
    def all_left(self) -> bool:
        """Return whether everything that was sent has left, and come back in its order."""
        return self._outbox.is_empty

    @property
    def waits_for_order(self) -> bool:
        return self._outbox.is_ordering

    def delivered(self, delivered: Delivered) -> None:
        """Take what the stack hands out."""
        sender, body = delivered.sender, delivered.body
        if sender == self.me and delivered.level >= Level.AGREED:
            self._outbox.ordered()
        # A small one is quicker as bytes; a large one is not copied, but each message of it is when
        # the program takes it.
        pack = bytes(body) if len(body) <= LARGE_BYTES else cast(bytes, body)
        try:
            columns = PeerColumns(pack, sender.name, self._shown)
        except FormatError as error:
            # All members get the same bytes, and drop them alike.
            logger.warning("%s has sent what is not a pack: %s", sender, error)
            return
        self.show_alone()
        self.inbox.put(columns, len(pack))
        self._ring()

    def shown(self, shown: Shown) -> None:
        """Take a new view."""
        before, self._view = (() if self._hidden else self._view.members), shown.view
        self.has_been_primary |= shown.view.primary
        self._outbox.view_changed()
        notes = {member.name: note for member, note in shown.notes.items()}
        self._shown = View(shown.view, notes)
        self._hidden = False
        self._occur(before, shown.changed)
        count = len(shown.view.members)
        if count >= self.members_min and (shown.view.primary or count > 1):
            self.settle_joined()

    def passes(self, passing: Passing) -> None:
        """Take the transitional view at the end of the present one, if that was handed out."""
        if self._hidden:
            return
        view = View(passing_view(passing, self._view), self._shown.notes, transitional=True)
        left = tuple(one for one in self._view.members if one not in passing.together)
        self.inbox.put(Occurrence(view, (), names(left), names(passing.together), ()))
        self._ring()

    def told_of_state(self, event: HandOut | Begins | Arrived | Ended) -> None:
        """Take what the stack says of a state."""
        settled = None
        if isinstance(event, Arrived):
            settled = self.states.arrived(event.data)
        elif isinstance(event, Ended):
            settled = self.states.ended(event.outcome)
        elif isinstance(event, HandOut):
            self.inbox.put(StateWanted(event.place))
            self._ring()
        elif (place := self.states.begins(event)) is not None:
            self.inbox.put(place)
        if settled is not None:
            self._settled.append(settled)

    def show_alone(self) -> None:
        """Hand out the first view, in which this process is alone, if it still is the present
        one."""
        if self._hidden:
            self._hidden = False
            self._occur((), Changed((self.me,)))

    def stay_alone(self) -> None:
        """There is nobody to join for now. Whoever wants a larger view waits on."""
        if self.members_min <= 1:
            self.show_alone()
            self.settle_joined()

    def _occur(self, before: tuple[MemberId, ...], changed: Changed) -> None:
        after = self._view.members
        self.inbox.put(
            Occurrence(
                self._shown,
                names(tuple(member for member in after if member not in before)),
                names(tuple(member for member in before if member not in after)),
                names(changed.together),
                tuple(map(View, changed.merged)),
                changed.origin,
            )
        )
        self._ring()

    def settle_joined(self, error: JMSError | None = None) -> None:
        """The attempt to join has ended."""
        if not self.joined.done:
            self.joined.settle(error)
            self._settled.append(self.joined)

    def end(self, error: JMSError | None = None) -> None:
        """It is over: wake all who wait. Caller holds the lock."""
        if self.over:
            return
        self.over, self.error = True, error
        self.settle_joined(self.why_not())
        if (room := self._outbox.close()) is not None:
            self._settled.append(room)
        if (state := self.states.close(self.why_not())) is not None:
            self._settled.append(state)
        self.ended.settle()
        self._settled.append(self.ended)
        self._ring()

    def take_settled(self) -> list[Ticket]:
        """Return the tickets that were settled since the last call, for their watchers to be
        called without a lock."""
        settled, self._settled = self._settled, []
        return settled

    def _ring(self) -> None:
        bells = self._bells
        while bells:
            try:
                bell = bells.pop()
            except KeyError:  # it was taken down meanwhile
                return
            bell.settle()
            self._settled.append(bell)
