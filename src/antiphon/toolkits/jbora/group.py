"""A server's place in a group, as JBora has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from antiphon import Message, ObjectMessage, ViewMessage, peers
from antiphon.errors import IllegalStateError, JMSError
from antiphon.toolkits.jbora.flow import Flow
from antiphon.toolkits.jbora.pure.events import LocalCall, View, ViewChange
from antiphon.toolkits.jbora.pure.exchange import Exchange

STATE = "jbora_state"
"""The property of messages that carry a propagated state: the id of the view that it is for."""

Event: TypeAlias = Message | ViewChange | LocalCall
StateFunction: TypeAlias = Callable[[Sequence[Event]], Any]


class Group:
    """A server's place in a group of servers.

    One thread of the server loops around `receive`, and handles what the group delivers and what
    the other threads ask for (`local_call`). All calls but `receive` and `propagate` may come from
    any thread.

    `cluster`: the group's URL, see `antiphon.peers.Channel.connect`; `name`: of this server, unique
    in the group; the rest as `Channel` has it.
    """

    def __init__(
        self,
        cluster: str,
        name: str | None = None,
        *,
        listen: str | None = None,
        tls: peers.Tls | None = None,
        plaintext: bool = False,
        trace: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._make: Callable[[], peers.Channel] = lambda: peers.Channel(
            peers.total_uniform(whiteboard=True),
            name=name,
            listen=listen,
            tls=tls,
            plaintext=plaintext,
            trace=trace,
        )
        self._place: _Place | None = None
        self._view: View | None = None
        self._exchange = Exchange()
        self.whiteboard = Whiteboard(self)

    # -- Membership ------------------------------------------------------------------------------

    def join(self, timeout: float | None = 10.0) -> None:
        """Join the group, or begin it. The first event is the view in which this server is.

        Raise what `Channel.connect` raises, and `IllegalStateError` if it has joined already. Who
        has left may join again, as a new member of the same name.
        """
        if self._place is not None:
            raise IllegalStateError(f"this server has joined {self._cluster!r} already")
        channel = self._make()
        channel.connect(self._cluster, timeout)
        self._view, self._exchange = None, Exchange()
        self._place = _Place(channel)

    def leave(self) -> None:
        """Leave the group, and return when the others have let this server go. What it has sent
        leaves before; what it has not received is dropped. A `receive` that waits returns None,
        local calls that wait raise `IllegalStateError`. Leaving twice is no error."""
        place, self._place = self._place, None
        if place is not None:
            place.leave()

    @property
    def name(self) -> str:
        """The name of this server in the group."""
        return self._joined.channel.name

    @property
    def view(self) -> View:
        """The view that this server has received last."""
        if self._view is None:
            raise IllegalStateError("this server has received no view yet")
        return self._view

    def is_primary(self, view: View | None = None) -> bool:
        """Return whether a view is the primary one; without one, the view received last. Of all
        views at a time at most one is."""
        return (view or self.view).primary

    # -- Messages --------------------------------------------------------------------------------

    def multicast(self, body: Any, timeout: float | None = None) -> None:
        """Send a message to all members, this one among them: all deliver it at the same place
        among all messages. `body`: what `Channel.send` takes, which also says when this waits and
        what it raises."""
        self._joined.channel.send(body, timeout=timeout)

    def receive(self, timeout: float | None = None) -> Event | None:
        """Return the next message, view change or local call; None if none came within `timeout`
        seconds, or if the server left meanwhile. One thread at a time may receive.

        Raise `IllegalStateError` if the server has not joined, and `ConnectionLostError`, after
        everything that was received, if it has lost its group.
        """
        flow = self._joined.flow
        until = None if timeout is None else time.monotonic() + timeout
        while (event := flow.take(timeout)) is not None:
            if not self._is_state(event):
                return self._seen(event)
            timeout = None if until is None else max(0.0, until - time.monotonic())
        return None

    def _seen(self, event: Any) -> Event:
        """Return an event as the program gets it."""
        if isinstance(event, ViewMessage):
            self._view = _view_of(event)
            self._exchange.begin(self._view)
            return ViewChange(self._view)
        assert isinstance(event, Message | LocalCall)
        return event

    def _is_state(self, event: Any) -> bool:
        """Return whether an event is a propagated state, which is kept."""
        if not isinstance(event, Message) or STATE not in event.properties:
            return False
        assert event.sender is not None
        self._exchange.take(event.sender, str(event.properties[STATE]), event.body)
        return True

    # -- States ----------------------------------------------------------------------------------

    def propagate(self, state: Any | StateFunction) -> tuple[dict[str, Any], list[Event]]:
        """Give all members of the view this server's state, and wait until each one has given its
        own. Return them by name, and the events that came meanwhile, for the program to handle.

        All members call this whenever a view is `expanded`. If the view changes first, it begins
        again, with the members of the new one: all states that are returned were sent in one view,
        the last one that this server has received. For states of some kilobytes.

        `state`: a body. If the exchange begins again it is sent as it was, so a member that came in
        between lacks what messages before it would have changed. A function is called each time the
        state is sent, with the events since the last time. It handles them, and returns the state
        that includes them; they are not returned again.

        Raise `IllegalStateError` if the server has not joined or leaves meanwhile, and
        `ConnectionLostError` if it has lost its group.
        """
        events: list[Event] = []
        while True:
            body = state
            if callable(state):
                body = state(tuple(events))
                events.clear()
            self._send_state(body)
            if self._collect_states(events):
                return self._exchange.complete(), events

    def _send_state(self, body: Any) -> None:
        """Send a state to all, for the view that was received last."""
        _ = self.view  # raises if there is none
        message = ObjectMessage(body)
        message.properties[STATE] = self._exchange.view_id
        self._joined.channel.send(message)

    def _collect_states(self, events: list[Event]) -> bool:
        """Wait for the states of the view, or for another view; return whether all states are
        there. Other events are added to the list."""
        flow = self._joined.flow
        while not self._exchange.is_complete:
            event = flow.take(None)
            if event is None:
                raise self._not_joined
            if not self._is_state(event):
                events.append(self._seen(event))
                if isinstance(event, ViewMessage):
                    return False
        return True

    # -- Threads of this server ------------------------------------------------------------------

    def local_call(self, body: Any, timeout: float | None = None) -> Any:
        """Put a call into the flow of events of this server, and return the response that the
        thread which receives it gives (`local_respond`). `body`: anything; it stays in this
        process. Not for the thread that receives: it would wait for itself.

        Raise `OutcomeUnknownError` without a response within `timeout` seconds: with
        `happened="no"` the call was not received, and will not be. Raise `IllegalStateError` if the
        server has not joined or leaves meanwhile, `ConnectionLostError` if it has lost its group.
        """
        return self._joined.flow.call(LocalCall(body), timeout)

    def local_respond(self, call: LocalCall, response: Any = None) -> None:
        """Have a local call return this response, in the thread that waits for it; it may have
        given up. Raise `IllegalStateError` if the call has one already."""
        if not isinstance(call, LocalCall):
            raise TypeError(f"a LocalCall that was received is needed, not {call!r}")
        place = self._place
        if place is not None:  # whoever leaves has ended all calls
            place.flow.respond(call, response)

    # -- Inside ----------------------------------------------------------------------------------

    @property
    def _joined(self) -> _Place:
        if self._place is None:
            raise self._not_joined
        return self._place

    @property
    def _not_joined(self) -> IllegalStateError:
        return IllegalStateError(f"this server is not in {self._cluster!r}: call join() first")


class Whiteboard:
    """A table of integers with one element for each member, which the members read and write
    without waiting. A new value travels with what is sent anyway (`Channel.put_value`)."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def put_value(self, value: int) -> None:
        """Set this server's own element; it is read here at once."""
        self._group._joined.channel.put_value(value)

    def get_value(self, member: str | peers.MemberId) -> int | None:
        """Return the newest value of a member's element that has come; None: it has set none, or
        is not in the view."""
        return self._group._joined.channel.get_value(member)


class _Place:
    """A server's channel, from joining to leaving, and the thread that empties it."""

    def __init__(self, channel: peers.Channel) -> None:
        self.channel = channel
        self.flow = Flow()
        self._thread = threading.Thread(target=self._receive, name="jbora", daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        try:
            for event in self.channel:
                if not self.flow.put(event):
                    return
        except JMSError as error:
            self.flow.lose(error)

    def leave(self) -> None:
        self.flow.leave(IllegalStateError("this server has left its group", happened="unknown"))
        self.channel.close()
        self._thread.join()


def _view_of(message: ViewMessage) -> View:
    view = message.view
    came = message.joined, message.left, message.together
    return View(view.id, tuple(view.members), bool(view.primary), *came)
