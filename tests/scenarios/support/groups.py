"""Scenarios about groups: servers on one log, clients that do what the script says.

The log is a list that all servers apply in order; how it becomes one is told by the scenarios of
the folder above. What is shown is what clients hear, in the order in which each one hears it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import Columns, Extra, Outgoing, decode_extra, encode_extra
from tests.broker.support.homes import TOKEN, Client, Homes
from tests.scenarios.support.cluster import ScenarioError

PREFETCH = 100


class Actor:
    """One client, through all of its connections."""

    def __init__(self, name: str, session: int, lease_ms: int) -> None:
        self.name = name
        self.client_id = name
        self.session = session
        self.lease_ms = lease_ms
        self.attempt = 0
        self.link: Client | None = None
        self.told = 0  # of what the link heard
        self.sequence = 0
        self.unanswered: list[tuple[str, cw.Publish]] = []
        self.requests = 0
        self.acks = 0
        self.consumers: dict[str, int] = {}  # group -> number
        self.groups: dict[int, str] = {}
        self.seen: dict[int, tuple[int, int]] = {}  # consumer -> position, event

    @property
    def connection(self) -> Client:
        if self.link is None:
            raise ScenarioError(f"{self.name} has no connection")
        return self.link


class ScriptedGroups:
    def __init__(self) -> None:
        self._homes = Homes()
        self._actors: dict[str, Actor] = {}

    def do(self, command: str) -> list[str]:
        verb, *words = command.split()
        method = getattr(self, f"_do_{verb}", None)
        if method is None:
            raise ScenarioError(f"no such command: {verb}")
        told: list[str] = method(*words) or []
        self._homes.settle()
        return told + self._news()

    def _actor(self, name: str) -> Actor:
        if name not in self._actors:
            raise ScenarioError(f"no client {name}")
        return self._actors[name]

    # -- Servers and time ----------------------------------------------------------------------

    def _do_servers(self, *numbers: str) -> None:
        self._homes = Homes(len(numbers))

    def _do_wait(self, seconds: str) -> None:
        self._homes.wait(int(float(seconds) * 1000))

    def _do_kill(self, number: str) -> None:
        """A server is gone; its clients notice, and nobody else is told."""
        server = self._homes.servers.pop(int(number))
        for actor in self._actors.values():
            if actor.link is not None and actor.link.server is server:
                self._lose(actor)
        if self._homes.leader == server.node:
            self._homes.new_leader(min(self._homes.servers))

    def _do_hold(self) -> None:
        """What servers order is not delivered to any of them yet."""
        self._homes.paused = True

    def _do_lag(self, number: str) -> None:
        self._homes.servers[int(number)].lags = True

    def _do_order(self, *numbers: str) -> None:
        """What was ordered is delivered to all servers, or to those that lag."""
        self._homes.paused = False
        for number in numbers:
            self._homes.servers[int(number)].lags = False

    # -- Connections ---------------------------------------------------------------------------

    def _do_client(self, name: str, number: str, lease: str = "10") -> None:
        actor = Actor(name, len(self._actors) + 1, int(float(lease) * 1000))
        self._actors[name] = actor
        self._connect(actor, int(number))

    def _do_again(self, name: str, number: str) -> None:
        """The program runs again, and knows nothing of its former life."""
        old = self._actor(name)
        self._lose(old)
        actor = self._actors[name] = Actor(name, len(self._actors) + 100, old.lease_ms)
        self._connect(actor, int(number))

    def _do_reconnect(self, name: str, number: str) -> None:
        actor = self._actor(name)
        self._connect(actor, int(number))
        for _, publish in actor.unanswered:
            actor.connection.say(publish)

    def _connect(self, actor: Actor, number: int) -> None:
        actor.link = self._homes.connect(number)
        actor.told = 0
        actor.attempt += 1
        seen = self._seen_by(actor)
        actor.link.say(
            cw.Attach(
                actor.session,
                TOKEN,
                actor.attempt > 1,
                actor.attempt,
                actor.client_id,
                actor.lease_ms,
                ((0, actor.sequence + 1 - len(actor.unanswered)),),
                seen,
            )
        )

    def _seen_by(self, actor: Actor) -> tuple[cw.Seen, ...]:
        return tuple(cw.Seen(c, at, (), event) for c, (at, event) in actor.seen.items())

    def _lose(self, actor: Actor) -> None:
        if actor.link is not None and actor.link.server.node in self._homes.servers:
            actor.link.lose()
        actor.link = None

    def _do_cut(self, name: str) -> list[str]:
        """The connection breaks; the server notices."""
        news = self._news()
        self._lose(self._actor(name))
        return news

    # -- Members -------------------------------------------------------------------------------

    def _ask(self, actor: Actor, body: cw.Body) -> None:
        actor.requests += 1
        actor.connection.say(cw.Control(actor.requests, body))

    def _do_group(self, name: str, group: str, remove_after: str) -> None:
        after_ms = int(float(remove_after) * 1000)
        self._ask(self._actor(name), cw.CreateGroup(f"topic:{group}", "", after_ms))

    def _do_join(self, name: str, group: str, *how: str) -> None:
        actor = self._actor(name)
        number = len(actor.groups) + 1
        actor.consumers[group], actor.groups[number] = number, group
        actor.seen[number] = (0, 0)
        asked = next((word[3:] for word in how if word.startswith("as=")), name)
        self._ask(actor, cw.Join(number, f"topic:{group}", PREFETCH, asked, "durable" in how))

    def _do_subscribe(self, name: str, group: str) -> None:
        """The plain JMS call."""
        actor = self._actor(name)
        number = len(actor.groups) + 1
        actor.consumers[group], actor.groups[number] = number, group
        actor.seen[number] = (0, 0)
        self._ask(actor, cw.OpenConsumer(number, f"topic:{group}", PREFETCH))

    def _do_leave(self, name: str, group: str) -> None:
        actor = self._actor(name)
        self._ask(actor, cw.Leave(actor.consumers[group]))
        actor.seen.pop(actor.consumers.pop(group))

    def _do_close(self, name: str, group: str) -> None:
        actor = self._actor(name)
        self._ask(actor, cw.CloseConsumer(actor.consumers[group]))
        actor.seen.pop(actor.consumers.pop(group))

    def _do_unsubscribe(self, name: str, group: str, member: str) -> None:
        self._ask(self._actor(name), cw.Unsubscribe(member, f"topic:{group}"))

    def _do_acknowledge(self, name: str, group: str) -> None:
        actor = self._actor(name)
        number = actor.consumers[group]
        position, event = actor.seen[number]
        actor.acks += 1
        actor.connection.say(cw.Ack(actor.acks, (cw.AckRow(number, 0, position, event),)))

    # -- Messages ------------------------------------------------------------------------------

    def _do_publish(self, name: str, group: str, *words: str) -> None:
        """Words with `=` are properties; those that begin with JMS_ are for the group itself."""
        properties: dict[str, Any] = {}
        for word in words:
            key, sign, value = word.partition("=")
            if sign:
                is_number = value.isdecimal()
                properties[key] = int(value) if is_number else value.replace(",", " ")
        text = " ".join(word for word in words if "=" not in word)
        is_control = any(key.startswith("JMS_") for key in properties)
        actor = self._actor(name)
        actor.sequence += 1
        extra = encode_extra(Extra(properties=properties))
        body, flags = columns.encode([Outgoing(columns.TEXT, text.encode(), extra, 0)])
        flags |= pack.CONTROL if is_control else 0
        payload = pack.encode(f"topic:{group}", 1, body, actor.session, actor.sequence, 0, flags)
        actor.unanswered.append((" ".join(words), cw.Publish(payload)))
        actor.connection.say(cw.Publish(payload))

    # -- What is heard -------------------------------------------------------------------------

    def _news(self) -> list[str]:
        lines = []
        for actor in self._actors.values():
            if actor.link is not None:
                news = actor.link.heard[actor.told :]
                actor.told += len(news)
                for answer in news:
                    lines += [f"{actor.name}: {line}" for line in self._told(actor, answer)]
        return lines

    def _told(self, actor: Actor, answer: cw.Answer) -> list[str]:
        match answer:
            case cw.Attached(attachment=number):
                return [f"attached, for the {_nth(number)} time"]
            case cw.Published():
                done = [words for words, _ in actor.unanswered]
                actor.unanswered.clear()
                return [f"{words!r} is published" for words in done]
            case cw.NotPublished(text=text):
                actor.unanswered.clear()
                return [f"refused: {text}"]
            case cw.Result():
                return _told_result(answer)
            case cw.Happened(consumer, event):
                actor.seen[consumer] = (actor.seen[consumer][0], event.serial)
                return [f"{self._where(actor, consumer)}{_told_event(event)}"]
            case cw.Deliver():
                return list(self._told_messages(actor, answer))
            case cw.ConsumerEnded(consumer, _, text):
                actor.seen.pop(consumer, None)
                return [f"{self._where(actor, consumer)}ended: {text}"]
            case cw.Acked():
                return ["its acknowledgement is certain"]
            case cw.Ended(code, text):
                return [f"session ended: {code} {text}".rstrip()]
        return []

    def _where(self, actor: Actor, consumer: int) -> str:
        """The group, if there are several."""
        return f"{actor.groups[consumer]}: " if len(set(actor.groups.values())) > 1 else ""

    def _told_messages(self, actor: Actor, m: cw.Deliver) -> Any:
        found = Columns(m.pack)
        for i in range(found.count):
            text = found.body(i).decode()
            again = f", delivery {m.deliveries}" if m.deliveries > 1 else ""
            extra = decode_extra(found.extra(i))
            properties = "".join(f" {k}={v}" for k, v in extra.properties.items())
            where = self._where(actor, m.consumer)
            yield f"{where}message {text!r}{properties} in view {m.view}{again}"
        last = m.position + found.count - 1
        actor.seen[m.consumer] = (last, actor.seen[m.consumer][1])


def _told_result(answer: cw.Result) -> list[str]:
    if answer.code:
        return [f"{answer.code}: {answer.text}"]
    if answer.data[:1] == b"{":
        return []
    if answer.data:
        return [f"is member {msgspec.msgpack.decode(answer.data)[0]} in view {answer.value}"]
    return ["done"]


def _told_event(event: cw.GroupEvent) -> str:
    if event.kind == cw.VIEW:
        properties = [("JMS_join", event.came), ("JMS_leave", event.went)]
        what = f"JMS_view={event.view} ({' '.join(event.members)})"
    elif event.kind == cw.SUSPICION:
        properties = [("JMS_suspect", event.came), ("JMS_withdraw", event.went)]
        what = "suspicion"
    else:
        properties, what = [], f"conflict relation {event.relation}"
    named = "".join(f" {key}={' '.join(names)!r}" for key, names in properties if names)
    return what + named


def _nth(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
