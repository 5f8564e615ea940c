"""Members of groups, but for waiting: the additions to consumers, for both fronts.

A member's requests to its group (`remove`, `invite`, `set_conflict`) are messages with properties,
as in plain JMS (thesis, tables 4.2 and 6.5); `producer.py` knows them by these.
"""

from __future__ import annotations

from functools import partial
from types import EllipsisType
from typing import IO, TYPE_CHECKING, Any

from antiphon.api import arguments
from antiphon.api.messages.destinations import Topic
from antiphon.api.messages.headers import SendHeaders
from antiphon.api.messages.message import Message
from antiphon.api.operations.consumer import ConsumerCore
from antiphon.api.operations.front import Job, MessageListener, WorkerPool
from antiphon.api.operations.initial_state import InitialState, StateProvider, handing_out
from antiphon.api.operations.producer import (
    INVITE,
    REMOVE,
    SET_CONFLICT,
    SUBSCRIPTION,
    ProducerCore,
)
from antiphon.api.operations.scripts import Pause, Script
from antiphon.api.operations.worker_schedule import Item, Scheduler
from antiphon.api.protocol.conversation import Conversation
from antiphon.api.protocol.inbox import Inbox
from antiphon.api.protocol.inbox_items import Notice, admission
from antiphon.api.protocol.requests import Request
from antiphon.api.protocol.state_transfer import Missing, Ready, StateEvent
from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.formats.columns import decode_extra
from antiphon.formats.protocol import Join, Kept
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.destinations import is_pattern
from antiphon.model.views import View

if TYPE_CHECKING:
    from antiphon.api.operations.context import ContextCore

NAME_WAIT_S = 1.5
"""A little more than servers wait before they suspect a member whose connection is lost."""

NAME_RETRY_S = 0.1
WORKERS_MAX = 1000
AS_IT_IS, NEVER = -1, 0
SECONDS_MAX = 1e9


class MemberCore(ConsumerCore):
    """One member of a group: its state, its workers, and its requests to the group."""

    def __init__(self, context: ContextCore, destination: Topic, inbox: Inbox) -> None:
        super().__init__(context, destination, inbox)
        self.producer = ProducerCore(context, None)
        self._workers = 1
        self._provider: StateProvider | None = None
        self._schedule_of = Scheduler(ConflictRelation.ATOMIC)
        self._relation = ""  # of the last message in the schedule
        self._jobs: dict[int, Item] = {}  # that the pool has, by the message's key
        self._pool: WorkerPool
        self._initial = InitialState(waits=True)
        self._provides = False  # it hands out its state just now
        self._leaves = False  # it leaves the group, durable or not

    @property
    def name(self) -> str:
        """Its name, unique in the group."""
        return self.standing.name

    @property
    def view(self) -> View:
        """The current view: the last one that was delivered."""
        assert self.standing.view is not None
        return self.standing.view

    # -- Joining and leaving ----------------------------------------------------------------------

    def prepare(self, durable: bool, workers: int, provider: StateProvider | None) -> None:
        """Set the options with which it joins, before anything can arrive."""
        self.durable = durable
        self._workers = workers
        self._provider = provider
        if workers > 1:
            self._pool = self._context.front.new_pool(workers)

    def opened(self, request: Request) -> None:
        super().opened(request)
        admitted = admission(request.value, request.data)
        self._schedule_of = Scheduler(admitted.relation)
        with self._lock:
            if not admitted.waits_for_state:
                self._initial.known.settle()
            elif not self._initial.known.done:
                self.inbox.wait_for_state()

    def request_to_join(self, name: str | None) -> Join:
        """Return the request to join, which repeats the options that this program gave the
        group."""
        asked = self._connection.asked_of_groups.get(self.destination.text, ("", AS_IT_IS))
        return Join(
            self.inbox.consumer,
            self.destination.text,
            self.inbox.prefetch,
            name or "",
            self.durable,
            self._provider is not None,
            relation=asked[0],
            remove_after_ms=asked[1],
        )

    def leaving_group(self) -> Script[None]:
        """Close, and leave the group."""
        self._leaves = True
        yield from self.closing()

    @property
    def stays_member(self) -> bool:
        return super().stays_member and not self._leaves

    def _goodbye(self, conversation: Conversation, back: list[Kept]) -> Request:
        if self._leaves and self.standing.removed is None and self._dropped is None:
            return conversation.leave(self.inbox.consumer)
        return super()._goodbye(conversation, back)

    # -- State ------------------------------------------------------------------------------------

    def state(self, event: StateEvent) -> None:
        """Take the next event of the state that this member takes over."""
        with self._lock:
            if self.unusable:
                return
            stored = self._initial.take(event)
            if stored is not None:
                self._connection.do(
                    lambda c: c.state_taken(event.consumer, event.serial, stored.seq)
                )
            elif isinstance(event, Ready):
                if self._trace is not None:
                    self._trace.add("state", group=self.destination.text, position=event.position)
                self.inbox.state_is_known(event.serial)
            elif isinstance(event, Missing):
                self.inbox.state_is_known()
        self.stir()

    def stir(self) -> None:
        """Wake waiting calls, including those for the state, which must learn that it will not
        come."""
        if self.unusable and not self._initial.known.done:
            self._initial.known.settle(self._why_not())
        if self._initial.known.done:
            self._initial.known.tell()
        super().stir()

    def shut(self) -> None:
        super().shut()
        self._initial.close()

    def knowing_state(self) -> Script[IO[bytes] | None]:
        """Wait until the state is here, or it is certain that there is none."""
        if self.unusable:
            raise self._why_not()
        yield Pause(self._initial.known)
        return self._initial.stream()

    @property
    def must_provide(self) -> bool:
        request = self.inbox.request
        return (
            request is not None
            and self.name in request.went
            and not self._provides
            and self._schedule_of.idle
        )

    def providing(self) -> Script[None]:
        """Hand out the present state, in which all messages before the request for it are
        handled."""
        with self._lock:
            if not self.must_provide or self.unusable:
                return
            request = self.inbox.request
            self._provides = True
        assert request is not None
        error = None
        try:
            if self._provider is not None:
                number = self.inbox.consumer
                error = yield from handing_out(self._connection, number, request, self._provider)
        finally:
            with self._lock:
                self._provides = False
                self.inbox.pass_request(request.serial)
                self._acknowledged()
        if error is not None:
            complaint = IllegalStateError(
                f"the state provider of {self.name!r} in {self.destination} raised {error!r}; "
                "another member is asked"
            )
            complaint.__cause__ = error
            self._context.complain(complaint)
        self.stir()

    # -- Workers ----------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._jobs) or super().busy

    def turn(self) -> tuple[MessageListener, Message] | None:
        if self._workers == 1:
            return super().turn()
        self._scheduled = False
        self._begin_jobs()
        return None

    def _begin_jobs(self) -> None:
        """Have the pool handle the messages that may be handled now."""
        begun = []
        with self._lock:
            listener = self._listener
            if listener is None or self.unusable or not self._connection.started:
                return
            self._fill_schedule()
            while len(self._jobs) < self._workers and (item := self._schedule_of.start()):
                slice_, index = item.content
                self._jobs[slice_.start + index] = item
                again = slice_.part(index, index + 1)
                again.deliveries += item.retries
                begun.append((item, self._message(again, index)))
        for item, message in begun:
            self._pool.submit(Job(self, item, listener, message))

    def _fill_schedule(self) -> None:
        """Move all arrived messages into the schedule. Caller holds the lock."""
        while (taken := self.inbox.take()) is not None:
            if self.inbox.relation != self._relation:
                self._relation = self.inbox.relation
                self._schedule_of.change(ConflictRelation.from_json(self._relation))
            columns, index = taken[0].columns, taken[1]
            if isinstance(columns, Notice):
                self._schedule_of.add(taken, barrier=True)
            else:
                extra = decode_extra(columns.extra(index))
                self._schedule_of.add(taken, extra.tag, extra.key)

    def worked(self, item: Item, message: Message, error: BaseException | None) -> None:
        """Take the end of a listener's call on a worker: it has returned, or raised `error`."""
        limit = self.redelivery.deliveries or 0
        again = error is not None and message.delivery_count < limit
        with self._lock:
            del self._jobs[message._key()]
            if error is None:
                for slice_, index in self._schedule_of.done(item):
                    if self.inbox.acknowledge(slice_.start + index):
                        self._acknowledged()
            elif self.closed:
                self._context.give_back([self])
            elif again:
                wait_ms = self.redelivery.wait_ms(message.delivery_count)
                self._connection.after(wait_ms, partial(self._once_more, item))
        if error is not None:
            self._complain(message, error, again)
        self._context.rested()
        self._begin_jobs()
        if self.must_provide:
            self._schedule()

    def _once_more(self, item: Item) -> None:
        """Handle a message again whose wait is over; messages that conflict with it have waited,
        too."""
        with self._lock:
            self._schedule_of.again(item)
        self._begin_jobs()

    def recover(self, waits: bool) -> None:
        """Hand out the program's open messages again. With workers these are only those that it
        handles."""
        if self._workers == 1:
            super().recover(waits)

    def going(self, give_back: bool) -> Script[None]:
        with self._lock:
            for slice_, index in self._schedule_of.not_begun():
                self.inbox.put_back(slice_.start + index)
        yield from super().going(give_back)

    def in_hand(self) -> set[int]:
        return super().in_hand() | self._jobs.keys()

    # -- Requests to the group --------------------------------------------------------------------

    def removing(self, names: tuple[str, ...]) -> Script[None]:
        if names:
            yield from self._telling("", {REMOVE: _joined(names)})

    def inviting(self, name: str, durable: bool) -> Script[None]:
        kind = "durable" if durable else "nondurable"
        yield from self._telling("", {INVITE: _joined((name,)), SUBSCRIPTION: kind})

    def setting_conflict(self, relation: ConflictRelation) -> Script[None]:
        if not isinstance(relation, ConflictRelation):
            raise TypeError(f"a ConflictRelation is needed, not {relation!r}")
        yield from self._telling(relation.to_json(), {SET_CONFLICT: ""})

    def _telling(self, body: str, properties: dict[str, Any]) -> Script[None]:
        if self.unusable:
            raise self._why_not()
        headers: SendHeaders = {"properties": properties}
        yield from self.producer.sending(self.destination, body, headers)


def _joined(names: tuple[str, ...]) -> str:
    for name in names:
        check_name(name)
    return " ".join(names)


def check_name(name: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable() or " " in name:
        raise ValueError(f"{name!r} is not a name of a member: printable characters, no blanks")


def check_joinable(group: Topic, name: str | None, durable: bool, workers: int) -> None:
    if not isinstance(group, Topic) or is_pattern(group.name):
        raise InvalidDestinationError(f"{group!r} is not a group: create_group(name) makes one")
    if name is not None:
        check_name(name)
    elif durable:
        raise ValueError("a durable member needs a name, by which it is known when it is back")
    if not isinstance(workers, int) or not 1 <= workers <= WORKERS_MAX:
        raise ValueError(f"workers is a number from 1 to {WORKERS_MAX}, not {workers!r}")


def remove_after_ms(seconds: float | EllipsisType | None) -> int:
    if seconds is None:
        return NEVER
    if isinstance(seconds, EllipsisType):
        return AS_IT_IS
    if not 0 < arguments.seconds("remove_after", seconds) <= SECONDS_MAX:
        raise ValueError(
            f"remove_after is a number of seconds above 0, or None for never, not {seconds!r}"
        )
    return max(1, round(seconds * 1000))
