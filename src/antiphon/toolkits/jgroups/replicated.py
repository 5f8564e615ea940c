"""The notification bus and the replicated map of JGroups, over `blocks.NotificationBus` and
`blocks.ReplicatedTable`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import msgspec

from antiphon import blocks
from antiphon.blocks.threads.channel_ports import ChannelPlace
from antiphon.errors import ConfigurationError
from antiphon.toolkits.jgroups.attached import AttachedBlock
from antiphon.toolkits.jgroups.channel import JChannel
from antiphon.toolkits.jgroups.views import View


class Notification(msgspec.Struct):
    """A notification on a bus."""

    value: Any


class Consumer:
    """What a bus calls: subclass it."""

    def handle_notification(self, value: Any) -> object:
        """Take a notification."""

    def member_joined(self, member: str) -> object:
        """Note that a member has come."""

    def member_left(self, member: str) -> object:
        """Note that a member has gone."""


class _Stateful(AttachedBlock):
    """The common part: a block with a state, on a channel that it connects."""

    has_state = True

    def __init__(self, channel: JChannel, name: str) -> None:
        self._name = name
        super().__init__(channel)

    def start(self, timeout: float | None = 10.0) -> Self:
        """Connect the channel, if it is not connected, and take over the state of the others."""
        if not self.channel.is_connected:
            self.channel.connect(self._name, timeout)
        return self

    def stop(self) -> None:
        """Leave the group."""
        self.channel.disconnect()


class NotificationBus(_Stateful):
    """Notifications for all members of a group: values that an object message may have. A member
    that comes later gets the last one first."""

    def __init__(self, channel: JChannel, bus_name: str = "notifications") -> None:
        self._consumer = Consumer()
        self._members: tuple[str, ...] = ()
        super().__init__(channel, bus_name)

    def set_consumer(self, consumer: Consumer) -> Self:
        """Have `consumer` called, on a thread of the channel, and return the bus. Set it before
        `start`, so that it misses nothing."""
        self._consumer = consumer
        return self

    def send_notification(self, value: Any) -> None:
        """Send a notification to all members, this one included. Raise `IllegalStateError` if the
        bus is not started, and `MessageFormatError` if the value cannot be sent."""
        self._block.publish(Notification(value))

    @property
    def membership(self) -> tuple[str, ...]:
        """The members, the oldest first."""
        return self.channel.get_view().members

    def _made(self, place: ChannelPlace, cluster: str) -> blocks.NotificationBus:
        bus = blocks.NotificationBus(place, cluster, Notification)
        bus.subscribe(Notification, lambda sent: self._consumer.handle_notification(sent.value))
        return bus

    def viewed(self, view: View) -> None:
        before, self._members = self._members, view.members
        for member in before:
            if member not in view.members:
                self._consumer.member_left(member)
        for member in view.members:
            if member not in before:
                self._consumer.member_joined(member)


class ReplicatedHashMap(_Stateful):
    """A map of which each member has a copy: reading is local, and changes are made by all in one
    order. Keys and values are what an object message may have.

    Need: a stack with one order (SEQUENCER), without which copies would differ: raise
    `ConfigurationError`. Limits: what a part of the group that is not primary changes is lost when
    it merges, and so may be what a crashed member changed last; with
    `peers.total_uniform(primary_partition=True)` as stack changes wait there, and are kept.
    """

    def __init__(self, channel: JChannel, name: str = "map") -> None:
        if "total" not in channel.stack.gives:
            raise ConfigurationError(
                "a replicated map needs one order of all changes: add SEQUENCER to the stack"
            )
        super().__init__(channel, name)

    def _made(self, place: ChannelPlace, cluster: str) -> blocks.ReplicatedTable:
        return blocks.ReplicatedTable(place, cluster)

    def put(self, key: Any, value: Any) -> Any:
        """Set the value of a key in all copies, and return the value before, or None. The errors
        of all changes are those of `blocks.ReplicatedTable.put`."""
        return self._block.put(key, value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none, and return None; otherwise return its value."""
        while not self._block.replace(key, None, value):
            if (found := self._block.get(key)) is not None:
                return found
        return None

    def replace(self, key: Any, expected: Any, value: Any) -> bool:
        """Set the value of a key if it is `expected` now, and return whether it was."""
        return bool(self._block.replace(key, expected, value))

    def remove(self, key: Any) -> Any:
        """Remove a key from all copies, and return its value, or None."""
        return self._block.remove(key)

    def get(self, key: Any) -> Any:
        """Return the value of a key in this copy, or None."""
        return self._block.copy().get(key)

    def contains_key(self, key: Any) -> bool:
        """Return whether this copy has the key."""
        return key in self._block

    @property
    def size(self) -> int:
        """The number of keys in this copy."""
        return len(self._block)

    def copy(self) -> dict[Any, Any]:
        """Return this copy as it is now."""
        rows: dict[Any, Any] = self._block.copy()
        return rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._block)

    def __len__(self) -> int:
        return self.size

    def __contains__(self, key: object) -> bool:
        return self.contains_key(key)
