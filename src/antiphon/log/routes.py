"""Ways around links that do not work: which servers hear each other, and which pass messages on.

A network can fail in part: a follower does not hear the leader, and others do; a leader is heard
and does not hear; of five servers one is the only one that reaches all. An election helps in none
of these cases, since each server that hears the leader keeps it, and it need not help in any, since
there may be no server that reaches all, or none with a log that the others would vote for. So
servers that cannot hear each other are connected through those that can: a message to one of them
travels in a `Via`, by the shortest known way. To the log it is a network that delays a little more,
which the log is made for: no decision depends on the beliefs of this module.

While all links work nothing is sent. A server *seeks* when it has not heard its leader itself for
half an `election_ms`; a leader when that is so of a member. As long as any server seeks, all send
each other with each heartbeat whom they hear (`Hears`), with the reports of others, so that they
come around, too. Reports age, also from hand to hand, and are forgotten.

Promises: as long as the links that work lead from each server of a majority to each other one,
whatever the number of steps, these servers work as if all their links did. A server that no other
one hears, or that hears no other one, is no worse off than without.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from antiphon.errors import FormatError
from antiphon.formats import frames
from antiphon.formats.entry import ANY, ReplicaId
from antiphon.formats.server_messages import Envelope, Hears, Relay, Via, View
from antiphon.log.effects import Effect, Persist, Relayed, Send, StorePart, Tail
from antiphon.log.replica import Replica

logger = logging.getLogger("antiphon.log.routes")

HOPS_MAX = 8
"""A message that was passed on this often is dropped: the servers on its way disagree about it."""

KEPT_HEARTBEATS = 6
"""A report of a server is believed for this many heartbeats at least: it comes by several steps,
each with a wait."""


class Known(NamedTuple):
    """The report of a server about itself."""

    at_ms: int  # by the clock here, less the time that it was under way
    view: View


class Routes:
    """One server's ways to the others; promises are the module's. It asks the replica whom it
    follows, and changes nothing there."""

    def __init__(self, replica: Replica, listed: dict[int, str], now_ms: int) -> None:
        settings = replica.settings
        self.heard: dict[int, int] = {}  # node -> when it was last heard, and not through another
        self.detours: dict[int, int] = {}  # node -> the node that passes messages on to it
        self._r = replica
        self._listed = frozenset(listed)
        self._began_ms = now_ms
        self._led_ms = now_ms  # when a leader was last heard
        self._patience_ms = settings.election_ms // 2
        self._period_ms = settings.heartbeat_ms
        self._kept_ms = max(settings.election_ms, KEPT_HEARTBEATS * settings.heartbeat_ms)
        self._known: dict[int, Known] = {}
        self._said_ms = now_ms - self._period_ms
        self.next_deadline_ms = now_ms + self._patience_ms

    # -- Whom this server hears, and whether that is enough --------------------------------------

    def tick(self, now_ms: int) -> list[Effect]:
        """Check whether a link is broken; if so, report to the others which servers this one
        hears."""
        if now_ms < self.next_deadline_ms:
            return []
        self._forget_old(now_ms)
        oldest_ms = now_ms - self._kept_ms  # also strangers: there may be ever more of them
        self.heard = {node: at_ms for node, at_ms in self.heard.items() if at_ms >= oldest_ms}
        silent_ms = self._silence(now_ms)
        seeks = silent_ms >= self._patience_ms
        if not (seeks or any(known.view.seeks for known in self._known.values())):
            self.next_deadline_ms = now_ms + self._patience_ms - silent_ms
            self._know({})
            return []
        if now_ms < self._said_ms + self._period_ms:
            self.next_deadline_ms = self._said_ms + self._period_ms
            return []
        self._said_ms = now_ms
        self.next_deadline_ms = now_ms + self._period_ms
        # Also those that it does not list: a newcomer does not know the whole cluster yet.
        lately = (n for n, at_ms in self.heard.items() if now_ms - at_ms < self._patience_ms)
        hears = tuple(sorted(lately))
        mine = View(self._r.id.node, 0, seeks, hears)
        told = [
            View(k.view.node, now_ms - k.at_ms, k.view.seeks, k.view.hears)
            for k in self._known.values()
        ]
        message = Hears((mine, *told))
        return [Send(ReplicaId(node, ANY), message) for node in self._peers()]

    def _silence(self, now_ms: int) -> int:
        """Return for how long this leader has not heard one of the others, or this follower its
        leader."""
        if self._r.leading is not None:
            self._led_ms = now_ms
            waits = [now_ms - self._last(id.node) for id in self._r.leading.others()]
            return max(waits, default=0)
        if self._r.leader_id is not None:
            self._led_ms = max(self._led_ms, self._last(self._r.leader_id.node))
        return now_ms - self._led_ms

    def _last(self, node: int) -> int:
        return self.heard.get(node, self._began_ms)

    def others_hear(self, node: int, now_ms: int) -> bool:
        """Return whether others have lately heard a server that is silent here: then only the link
        to it does not work."""
        silent = now_ms - self._last(node) >= self._patience_ms
        return silent and any(node in known.view.hears for known in self._known.values())

    def _peers(self) -> list[int]:
        members = {member.node for member in self._r.memberships.current.members}
        return sorted((members | self._listed) - {self._r.id.node})

    # -- Whom the others hear ---------------------------------------------------------------------

    def told(self, sender: ReplicaId, message: Hears, now_ms: int) -> list[Effect]:
        """Learn from another server, and say as much if that has not been done for a while."""
        if sender.node not in self._peers():
            return []
        for view in message.views:
            # A step costs half a heartbeat at least: so nothing goes around forever.
            at_ms = now_ms - max(0, view.age_ms) - (view.node != sender.node) * self._step_ms
            known = self._known.get(view.node)
            if view.node != self._r.id.node and (known is None or known.at_ms < at_ms):
                self._known[view.node] = Known(at_ms, view)
        self._forget_old(now_ms)
        self._know(self._find_detours())
        self.next_deadline_ms = min(self.next_deadline_ms, self._said_ms + self._period_ms)
        return self.tick(now_ms)

    @property
    def _step_ms(self) -> int:
        return self._period_ms // 2 + 1

    def _forget_old(self, now_ms: int) -> None:
        old = [n for n, known in self._known.items() if now_ms - known.at_ms > self._kept_ms]
        for node in old:
            del self._known[node]
        if old:
            self._know(self._find_detours())

    def _find_detours(self) -> dict[int, int]:
        """Return the first step of the shortest way to each server that does not hear this one."""
        me = self._r.id.node
        first = {n: n for n, known in sorted(self._known.items()) if me in known.view.hears}
        edge = list(first)
        for node in edge:  # which grows: those that were reached before come first
            for n, known in sorted(self._known.items()):
                if n not in first and node in known.view.hears:
                    first[n] = first[node]
                    edge.append(n)
        return {n: step for n, step in first.items() if n != step}

    def _know(self, detours: dict[int, int]) -> None:
        if detours != self.detours:
            ways = ", ".join(f"{node} through {step}" for node, step in detours.items())
            logger.info("%s reaches %s", self._r.id, ways or "everybody by itself")
            self.detours = detours

    # -- Passing on -------------------------------------------------------------------------------

    def around(self, effects: list[Effect]) -> list[Effect]:
        """Return the same effects, with messages to servers that do not hear this one on a
        detour."""
        return [self._around(effect) for effect in effects]

    def _around(self, effect: Effect) -> Effect:
        if isinstance(effect, Send):
            return self.on_its_way(effect)
        if isinstance(effect, Persist) and effect.then:
            tails: tuple[Tail, ...] = tuple(
                self.on_its_way(tail) if isinstance(tail, Send) else tail for tail in effect.then
            )
            return Persist(effect.records, tails)
        if isinstance(effect, StorePart):
            sends = tuple(self.on_its_way(send) for send in effect.then)
            return StorePart(effect.meta, effect.seq, effect.data, sends)
        return effect

    def on_its_way(self, send: Send) -> Send:
        """Send it to its receiver, or to a server that passes it on."""
        step = self.detours.get(send.to.node)
        if step is None or isinstance(send.message, Hears):
            return send
        body = frames.encode_message(send.message, frames.NEWEST)
        return Send(ReplicaId(step, ANY), Via(self._r.id, send.to, 1, body))

    def passed_on(self, via: Via) -> tuple[Envelope | None, list[Effect]]:
        """Return the message inside if it is for this server, otherwise the effects that pass it
        on."""
        if via.to.node == self._r.id.node:
            try:
                message = frames.decode_message(via.body)
            except FormatError as error:
                # Not the fault of the server that passed it on: that connection need not end.
                logger.warning("from %s, through others: %s", via.source, error)
                return None, []
            if isinstance(message, Relay):
                return None, [Relayed(message)]
            if isinstance(message, Via | Hears):
                return None, []  # no server sends such a thing
            return Envelope(via.source, via.to, message), []
        if not 0 < via.hops < HOPS_MAX:
            return None, []
        step = self.detours.get(via.to.node, via.to.node)
        onward = Via(via.source, via.to, via.hops + 1, via.body)
        return None, [Send(ReplicaId(step, ANY), onward)]
