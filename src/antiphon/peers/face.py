"""A channel, as programs see it: every public call with its promise, once for both fronts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from antiphon.api.face.not_pickled import NotPickled
from antiphon.api.operations.front import MessageListener
from antiphon.model.peer_views import Level, MemberId
from antiphon.peers.channel.views import View
from antiphon.peers.operations import ChannelCore


class ChannelFace(NotPickled, ABC):
    """A process's place in a cluster of peers, which order messages and agree on views among
    themselves, without a server.

    `stack`: which promises the channel keeps; all members of a cluster run the same one. `name`: by
    which the others know this process, unique in the cluster, 1024 bytes at most; without one it
    gets one. `listen` (`HOST:PORT`): where the others reach it; without it the cluster's URL says
    where. `tls`: the certificates with which the members trust each other; without it a channel
    only works on loopback, unless `plaintext` allows everybody who can reach it to read, send and
    join. `allow_pickle`: bodies may be any objects; only between programs that trust each other.
    `trace`: a folder into which the process writes what it sends, gets and is shown, for `antiphon
    trace check` and `antiphon audit`; it costs a write to a file for each input. `state`: a
    function that returns the state of this program, as bytes or as an iterable of bytes, for others
    to take over (`get_state`). It is called where the program receives: inside `receive`, a loop or
    the listener's thread, once all that came before is handled; it may not receive itself.

    What is received (`receive`, a loop, a listener) are messages, and between them the views, as
    `ViewMessage`, in the order that the stack promises. The program has to receive: if too much
    waits for it, the others get no leave to send more, and after half a minute in which it takes
    nothing it leaves the cluster, and its calls raise `ConnectionLostError`.
    """

    _core: ChannelCore

    @property
    def name(self) -> str:
        """By which the other members know this process."""
        return self._core.settings.name

    @property
    def address(self) -> str:
        """Where the others reach this process; empty before `connect`."""
        process = self._core.process
        return "" if process is None else process.address

    @property
    def view(self) -> View:
        """The newest view, which this program may not have received yet. Raise `IllegalStateError`
        before `connect`."""
        return self._core.view

    @property
    def closed(self) -> bool:
        """Whether nothing is sent or received any more: it was closed, or its cluster is lost."""
        process = self._core.process
        return self._core.closed or (process is not None and process.conversation.over)

    @abstractmethod
    def connect(self, cluster: str, timeout: float | None = 10.0) -> Any:
        """Join a cluster, or begin it, and return once this process is in a view with those that it
        has found; at once, if it has found nobody.

        `cluster`: `peer:NAME`, or its name alone, for processes of this machine;
        `peer://HOST:PORT,HOST:PORT/NAME` for a list of addresses, of which each process listens at
        one; `peer:file/DIR/NAME` for a folder that machines share; `peer:at/HOST:PORT/NAME` for
        those that one of them knows; `peer:dns/SERVICE:PORT/NAME` for a name in DNS;
        `peer:mdns/NAME` for a local network; `peer:antiphon://HOST:PORT/NAME` for an Antiphon
        server as name service. With `?min=N` behind it, the call waits for a view of N members.

        Raise `ConfigurationError` for a URL or certificates that make no sense, or if those that it
        found refuse it, because they run another stack for instance; `OutcomeUnknownError` if it
        was in no such view within `timeout` seconds. Then the channel is closed. A channel is
        connected once."""

    @abstractmethod
    def send(
        self,
        body: Any,
        to: str | MemberId | Iterable[str | MemberId] | None = None,
        order: Level | str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a message, and return when the stack has it or will have it: this process receives
        what it sends as the others do.

        `to`: all members (None), or some, or one, by name, each once; what is sent to a member that
        is gone when it would leave is dropped. `order`: how much order it asks for, as a `Level` or
        its name: "none", "fifo", "causal", "agreed" or "safe"; without one, "agreed" for all,
        "fifo" for some. Wait while the stack cannot take more: because the view is changing, or
        because a member is slow.

        Raise `OutcomeUnknownError` with `happened="no"` if there was no room within `timeout`
        seconds: it names the process that everybody waits for. Raise `InvalidDestinationError` for
        the name of nobody in the view, `IllegalStateError` if the channel is not connected, and
        `ConnectionLostError` if it lost its cluster."""

    @abstractmethod
    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message or view; None if none came within `timeout` seconds, or if the
        channel was closed meanwhile.

        `timeout`: None waits without limit, 0 does not wait. Raise `IllegalStateError` if the
        channel is not connected, is closed or has a listener, and `ConnectionLostError`, after
        everything that was received, if it lost its cluster. With asyncio, a `receive` that is
        cancelled takes no message."""

    @abstractmethod
    def receive_no_wait(self) -> Any:
        """Return the next message or view, or None if none is here: `receive(0)`."""

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have each message and view handed to `listener`, one at a time; None: to nobody. It is
        called on a thread of its own; with asyncio in a task, and may be a coroutine. What it
        raises is logged. Raise `IllegalStateError` if the channel is not open."""
        self._core.set_message_listener(listener)

    def set_note(self, note: str) -> None:
        """Have the views from now on say this of this process, in `View.notes`: a text of 64 KiB at
        most, "" for none. All members get a new view for it, before which all have received the
        same messages. It returns at once; of notes that follow each other quickly the last one may
        be the only one that views show.

        Raise `IllegalStateError` if the channel is not connected, or its stack has no layer
        `Notes`; `ValueError` if the text is longer."""
        self._core.set_note(note)

    @abstractmethod
    def get_state(self, timeout: float | None = None) -> Any:
        """Take over the state of the cluster: return it as a readable binary stream, as the `state`
        function of another member returned it at one place in what all receive; None if no member
        has one: then this program's own is the one that others take over. What this program
        receives next continues from that place: messages before it are in the state, and dropped,
        but views are not; those behind it wait until the state is here.

        Call it after `connect`, and whenever a view shows that the primary one went on without this
        process. The place is where a new view begins, with the same members if nobody comes or
        goes. The state comes, in parts, from the oldest member of the primary view that has one
        because it founded the cluster or took it over; without such a member, from the oldest. If
        it ends or fails half-way, all of it comes from the next one, as of a later place. Outside a
        primary view a member that has a state is waited for. The stream is the program's to close.

        Raise `OutcomeUnknownError` with `happened="no"` if it is not here within `timeout` seconds:
        then nothing was dropped. Raise `ConnectionLostError` if every member that had a state is
        gone or failed, or the channel has lost its cluster; `IllegalStateError` if the channel is
        not connected, takes over a state already, or its stack has no layer `State`."""

    def put_value(self, value: int) -> None:
        """Write this process's number on the whiteboard, for a stack that has one
        (`total_uniform(whiteboard=True)`). The others read it with `get_value`, this process at
        once and they soon: it travels with what is sent to them anyway, and while nothing else is,
        a quarter of a second later. It has no order with messages, and whoever reads misses what
        was soon replaced, but never sees an older number after a newer one.

        Raise `TypeError` or `ValueError` for what is not an int of 64 bits; `IllegalStateError` if
        the channel is not connected or its stack has no layer `Whiteboard`."""
        self._core.put_value(value)

    def get_value(self, member: str | MemberId) -> int | None:
        """Return the number that a member of the newest view has on the whiteboard, as far as it
        has arrived; None if it has written none, or is not a member. Errors: see `put_value`."""
        return self._core.get_value(member)

    @abstractmethod
    def status(self) -> Any:
        """Return how the channel is doing, for people: its view, its connections, for whom it
        waits, and what each layer says of itself."""

    @abstractmethod
    def close(self) -> Any:
        """Leave the cluster: what was sent before leaves, the others get a view without this
        process, and then, or after some seconds at most, this returns. Calls that wait for a
        message return None, loops end. Closing twice is no error."""
