"""Calls to a group in JGroups' words, over the dispatchers of `antiphon.blocks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

from antiphon import blocks
from antiphon.blocks import ALL, FIRST, MAJORITY, NONE, TooFewRepliesError
from antiphon.blocks.operations.channel_messages import ORDER, TO
from antiphon.blocks.pure.scripts import run
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.toolkits.jgroups.attached import AttachedBlock
from antiphon.toolkits.jgroups.channel import JChannel
from antiphon.toolkits.jgroups.messages import Flag, Message, order_of

TIMEOUT_S = 10.0


class RequestOptions(NamedTuple):
    """How many replies a call waits for, a number or as `GET_ALL` and the others say, and how
    long: `GET_ALL(1.0)`. `flags`: those of its message."""

    replies: Any
    timeout: float | None = TIMEOUT_S
    flags: Flag = Flag(0)

    def __call__(self, timeout: float | None) -> RequestOptions:
        """Return these options with a timeout, in seconds."""
        return self._replace(timeout=timeout)

    def set_flags(self, *flags: Flag) -> RequestOptions:
        """Return these options with flags. RSVP is refused: the replies tell who has the call."""
        asked = Message().set_flag(*flags).flags
        if Flag.RSVP in asked:
            raise ValueError("RSVP is not for calls: their replies tell who has them")
        return self._replace(flags=self.flags | asked)


GET_FIRST = RequestOptions(FIRST)
GET_ALL = RequestOptions(ALL)
"""Those that are asked, and do not leave."""
GET_MAJORITY = RequestOptions(MAJORITY)
"""More than half."""
GET_NONE = RequestOptions(NONE)


class RspList(dict[str, Any]):
    """Replies by member; the exception of a handler is its reply. `complete`: as many as were
    wanted have come."""

    def __init__(self, replies: dict[str, Any], complete: bool) -> None:
        super().__init__(replies)
        self.complete = complete

    @property
    def results(self) -> list[Any]:
        """The replies that are no exceptions."""
        return [value for value in self.values() if not isinstance(value, Exception)]

    @property
    def first(self) -> Any:
        """The first reply that is no exception; None: there is none."""
        return next(iter(self.results), None)


class _Dispatcher(AttachedBlock):
    """The common part of both dispatchers."""

    has_state = False

    def _asked(self, dests: Iterable[str] | None, options: RequestOptions) -> dict[str, str] | None:
        """Return the properties of a call; None: it is for nobody."""
        properties: dict[str, str] = {}
        order = order_of(options.flags)
        if order is not None:
            properties[ORDER] = order
        if Flag.DONT_LOOPBACK in options.flags:
            members = self.channel.get_view().members if dests is None else dests
            dests = [member for member in members if member != self.channel.address]
        if dests is not None:
            properties[TO] = " ".join(dests)
            return properties if properties[TO] else None
        return properties


def replied(call: Callable[[], dict[str, Any]]) -> RspList:
    """Return the replies to a call, even if they are too few after its time. Raise the other
    errors of the call."""
    try:
        return RspList(call(), True)
    except TooFewRepliesError as error:
        return RspList(error.replies, False)


def only(replies: RspList, dest: str) -> Any:
    """Return the reply of one member, or raise its exception. Raise `TimeoutError` if there is
    none."""
    if dest not in replies:
        raise TimeoutError(f"{dest} has not replied")
    if isinstance(replies[dest], Exception):
        raise replies[dest]
    return replies[dest]


class MessageDispatcher(_Dispatcher):
    """Asks members, and replies to them. `handler` gets each `Message`; its result or exception is
    the reply. Without one, this member replies None."""

    def __init__(self, channel: JChannel, handler: Callable[[Message], Any] | None = None) -> None:
        self._handler = handler
        super().__init__(channel)

    def set_request_handler(self, handler: Callable[[Message], Any]) -> Self:
        """Have calls handled by `handler` from now on, and return the dispatcher."""
        self._handler = handler
        return self

    def _made(self, place: ChannelPlace, cluster: str) -> blocks.MessageDispatcher:
        return blocks.MessageDispatcher(place, cluster, self._handle)

    def _handle(self, body: Any) -> Any:
        if self._handler is None:
            return None
        sender, payload = body
        return self._handler(Message(None, sender, payload))

    def cast_message(
        self, dests: Iterable[str] | None, payload: Any, options: RequestOptions = GET_ALL
    ) -> RspList:
        """Send a payload to all members (None) or to some, and return their replies. Raise the
        errors of `blocks.GroupClient.call`, but for too few replies."""
        properties = self._asked(dests, options)
        if properties is None:
            return RspList({}, True)
        block, body = self._block, (self.channel.address, payload)
        return replied(lambda: block.call(body, options.replies, options.timeout, properties))

    def send_message(self, dest: str, payload: Any, options: RequestOptions = GET_FIRST) -> Any:
        """Send a payload to one member, and return its reply, or raise its exception."""
        replies = self.cast_message([dest], payload, options)
        return None if options.replies == NONE else only(replies, dest)


class _Rpc(blocks.RpcDispatcher):
    def call_some(
        self, method: str, args: tuple[Any, ...], options: RequestOptions, properties: Any
    ) -> dict[str, Any]:
        return run(self._calling(method, args, {}, *options[:2], properties))


class RpcDispatcher(_Dispatcher):
    """Calls public methods of an object of which each member has one.

    Limit: methods run on a thread of their own, one after the other; what they change has no place
    in a state that the channel's receiver hands out."""

    def __init__(self, channel: JChannel, server_object: object) -> None:
        self._object = server_object
        super().__init__(channel)

    def _made(self, place: ChannelPlace, cluster: str) -> _Rpc:
        return _Rpc(place, cluster, self._object)

    def call_remote_methods(
        self,
        dests: Iterable[str] | None,
        method: str,
        *args: Any,
        options: RequestOptions = GET_ALL,
    ) -> RspList:
        """Call a method on the objects of all members (None) or of some, and return their results.
        Raise the errors of `blocks.RpcClient.call`, but for too few replies."""
        properties = self._asked(dests, options)
        if properties is None:
            return RspList({}, True)
        block = self._block
        return replied(lambda: block.call_some(method, args, options, properties))

    def call_remote_method(
        self, dest: str, method: str, *args: Any, options: RequestOptions = GET_FIRST
    ) -> Any:
        """Call a method on one member's object, and return its result, or raise its exception."""
        replies = self.call_remote_methods([dest], method, *args, options=options)
        return None if options.replies == NONE else only(replies, dest)
