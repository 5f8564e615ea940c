"""Deliveries of views, and of a group's other events, to its members.

Promises: a member gets each event between the two messages where it stands in the order, and once;
a member that was removed gets the view that says so, and none after it. A member that waits for its
state learns at once which member it will come from: that is for no other member, and has no place
in the order.
"""

from __future__ import annotations

from antiphon.broker.dispatch.outlets import Tell
from antiphon.broker.dispatch.topic_cursors import TopicCursor
from antiphon.broker.machine.groups.group import Group
from antiphon.broker.machine.machine import Broker
from antiphon.formats import protocol as cw


class ViewDelivery:
    """The members of groups at one server, and which events they were sent (`TopicCursor.event`).

    Needs: `send` for a member before each message for it, and when it has caught up.
    """

    def __init__(self, broker: Broker, tell: Tell) -> None:
        self._broker = broker
        self._tell = tell

    def open(self, cursor: TopicCursor, seen: cw.Seen | None) -> bool:
        """Go on behind the events that this consumer, or its client elsewhere, has `seen`. Return
        whether it is in a group."""
        consumer = cursor.consumer
        group = self._broker.groups.get(consumer.destination)
        if group is None:
            return False
        acked = group.acked_by(consumer.session, consumer.number)
        cursor.event = max(acked, seen.event if seen is not None else 0)
        self.look_after_state(cursor, group)
        return True

    def send(self, cursor: TopicCursor, before: int) -> None:
        """Send a member the events before the message at this position that it was not sent."""
        consumer = cursor.consumer
        group = self._broker.groups.get(consumer.destination)
        if group is None or cursor.event >= group.serial:
            return
        last = group.last_for(consumer.session, consumer.number)
        for event in group.after(cursor.event):
            if event.position >= before or event.serial > last:
                return
            cursor.event = event.serial
            if group.concerns(event, consumer.session, consumer.number):
                self._tell(cursor.outlet.link, cw.Happened(consumer.number, event))

    def look_after_state(self, cursor: TopicCursor, group: Group) -> None:
        """Let a member that waits for its state get messages when it has it, and report at once
        whom to expect it from."""
        session, number = cursor.consumer.session, cursor.consumer.number
        member = group.member_of(session, number)
        cursor.waits = member is not None and member.needs_state
        if group.waits_in_vain(session, number):
            news = cw.StateComes(number, 0, 0, "")
        elif member is not None and member.needs_state and member.request:
            news = cw.StateComes(number, member.request, member.cut, member.provider)
        else:
            return
        if news != cursor.told:
            cursor.told = news
            self._tell(cursor.outlet.link, news)
