"""Scenarios about queues, topics and transactions: servers on one log, and clients.

Servers, time and connections are those of the scenarios about groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.columns import PRIORITY, Columns, Extra, Outgoing, encode_extra
from antiphon.model.redelivery import Redelivery
from tests.scenarios.support import groups
from tests.scenarios.support.cluster import ScenarioError
from tests.scenarios.support.groups import PREFETCH, Actor

Heard = dict[str, tuple[int, int]]  # text of a message -> its position and delivery


class ScriptedMessaging(groups.ScriptedGroups):
    """Clients that send to queues and topics, consume, and acknowledge, as the script says."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[tuple[str, int], Heard] = {}  # by client and consumer: not acknowledged
        self._staged: dict[str, list[cw.Sent]] = {}  # by client

    def _seen_by(self, actor: Actor) -> tuple[cw.Seen, ...]:
        return tuple(
            cw.Seen(consumer, at, _ranges(self._unacknowledged(actor, consumer).values()))
            for consumer, (at, _) in actor.seen.items()
        )

    def _unacknowledged(self, actor: Actor, consumer: int) -> Heard:
        return self._heard.setdefault((actor.name, consumer), {})

    def _do_anonymous(self, name: str, number: str) -> None:
        """A client without a client id."""
        actor = self._actors[name] = Actor(name, len(self._actors) + 1, 10_000)
        actor.client_id = ""
        self._connect(actor, int(number))

    # -- Consumers -----------------------------------------------------------------------------

    def _do_consume(self, name: str, destination: str, *how: str) -> None:
        """Options are words: `selector=color='red'` has commas for blanks."""
        actor = self._actor(name)
        given = dict(_option(word) for word in how)
        number = len(actor.groups) + 1
        actor.consumers[destination], actor.groups[number] = number, destination
        actor.seen[number] = (0, 0)
        prefetch = int(given.pop("prefetch", PREFETCH))
        options: dict[str, Any] = {key: value is True or value for key, value in given.items()}
        if "selector" in options:
            options["selector"] = options["selector"].replace(",", " ")
        if "deliveries" in options:
            most = int(options.pop("deliveries"))
            options["redelivery"] = Redelivery(deliveries=most)
        self._ask(actor, cw.OpenConsumer(number, destination, prefetch, **options))

    def _do_close(self, name: str, destination: str, *seen: str) -> None:
        """In order: these messages were seen by the program, or all that were heard."""
        actor = self._actor(name)
        number = actor.consumers.pop(destination)
        heard = self._unacknowledged(actor, number)
        found = [heard[text] for text in seen or tuple(heard)]
        back = tuple(cw.Kept(number, at, at, deliveries) for at, deliveries in found)
        heard.clear()
        actor.seen.pop(number)
        self._ask(actor, cw.CloseConsumer(number, back=back))

    def _do_unsubscribe(self, name: str, subscription: str) -> None:
        self._ask(self._actor(name), cw.Unsubscribe(subscription))

    def _do_acknowledge(self, name: str, destination: str, *texts: str) -> None:
        """These messages, or all that were heard."""
        actor = self._actor(name)
        self._acknowledge(actor, self._rows(actor, destination, *texts))

    def _do_fail(self, name: str, destination: str, text: str, wait: str = "0") -> None:
        """Handling this message has failed; it comes again after so many seconds."""
        actor = self._actor(name)
        number = actor.consumers[destination]
        at, deliveries = self._unacknowledged(actor, number).pop(text)
        wait_ms = int(float(wait) * 1000)
        row = cw.AckRow(number, at, at, kind=cw.FAILED, deliveries=deliveries, wait=wait_ms)
        self._acknowledge(actor, (row,))

    def _acknowledge(self, actor: Actor, rows: tuple[cw.AckRow, ...]) -> None:
        actor.acks += 1
        actor.connection.say(cw.Ack(actor.acks, rows))

    def _rows(self, actor: Actor, destination: str, *texts: str) -> tuple[cw.AckRow, ...]:
        number = actor.consumers[destination]
        heard = self._unacknowledged(actor, number)
        found = [heard.pop(text) for text in texts or tuple(heard)]
        return tuple(cw.AckRow(number, first, last) for first, last in _ranges(found))

    # -- Messages ------------------------------------------------------------------------------

    def _do_send(self, name: str, destination: str, *words: str) -> None:
        """Each word is a message, of one pack; those with `=` are headers and properties."""
        self._send(self._actor(name), destination, words)

    def _do_stage(self, name: str, destination: str, *words: str) -> None:
        """The same in a transaction."""
        actor = self._actor(name)
        first, last = self._send(actor, destination, words, pack.STAGED)
        self._staged.setdefault(name, []).append((0, first, last))

    def _do_commit(self, name: str, *destinations: str) -> None:
        """What was staged, and the acknowledgements of what was heard from these destinations."""
        actor = self._actor(name)
        token = next((word[6:] for word in destinations if word.startswith("token=")), "")
        received = [word for word in destinations if "=" not in word]
        rows = tuple(row for one in received for row in self._rows(actor, one))
        self._ask(actor, cw.Commit(rows, tuple(self._staged.pop(name, ())), token))

    def _do_rollback(self, name: str) -> None:
        self._ask(self._actor(name), cw.Discard(tuple(self._staged.pop(name, ()))))

    def _send(
        self, actor: Actor, destination: str, words: tuple[str, ...], flags: int = 0
    ) -> tuple[int, int]:
        given = dict(_option(word) for word in words if "=" in word)
        texts = [word for word in words if "=" not in word]
        if not texts:
            raise ScenarioError("nothing to send")
        extra, special = _extra(given)
        encoded = encode_extra(extra)
        messages = [Outgoing(columns.TEXT, text.encode(), encoded, 0) for text in texts]
        body, found = columns.encode(messages)
        first = actor.sequence + 1
        actor.sequence += len(texts)
        payload = pack.encode(
            destination, len(texts), body, actor.session, first, 0, flags | found | special
        )
        actor.unanswered.append((" ".join(texts), cw.Publish(payload)))
        actor.connection.say(cw.Publish(payload))
        return first, actor.sequence

    # -- What is heard -------------------------------------------------------------------------

    def _told(self, actor: Actor, answer: cw.Answer) -> list[str]:
        match answer:
            case cw.Result(code="", data=b""):
                return ["done"]
            case cw.Browsed():
                return ["that was all"]
        return super()._told(actor, answer)

    def _told_messages(self, actor: Actor, m: cw.Deliver) -> Iterator[str]:
        found = Columns(m.pack)
        heard = self._unacknowledged(actor, m.consumer)
        for i in range(found.count):
            text = found.body(i).decode()
            heard[text] = (m.position + i, m.deliveries)
            again = f", delivery {m.deliveries}" if m.deliveries > 1 else ""
            reason = f", dead: {m.reason}" if m.reason else ""
            yield f"{self._where(actor, m.consumer)}message {text!r}{again}{reason}"
        actor.seen[m.consumer] = (m.position + found.count - 1, 0)


def _option(word: str) -> tuple[str, Any]:
    key, sign, value = word.partition("=")
    return key, value if sign else True


def _extra(given: dict[str, Any]) -> tuple[Extra, int]:
    """Headers and properties of messages, and the flags of a pack that has them."""
    ms = {key: int(float(given.pop(key)) * 1000) for key in ("ttl", "delay") if key in given}
    priority = int(given.pop("priority", PRIORITY))
    if "group" in given:
        given["JMSXGroupID"] = given.pop("group")
    extra = Extra(
        given, priority=priority, time_to_live=ms.get("ttl", 0), delivery_delay=ms.get("delay", 0)
    )
    special = priority != PRIORITY or "ttl" in ms or "JMSXGroupID" in given
    return extra, (pack.SPECIAL if special else 0) | (pack.DELAYED if "delay" in ms else 0)


def _ranges(found: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Positions, each with something, as ranges."""
    ranges: list[tuple[int, int]] = []
    for at, _ in sorted(found):
        if ranges and ranges[-1][1] + 1 == at:
            ranges[-1] = (ranges[-1][0], at)
        else:
            ranges.append((at, at))
    return tuple(ranges)
