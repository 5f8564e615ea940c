"""Judges a chaos run: compares the traces of its programs with the promises.

It reads traces alone and believes no server. The promises: a message that was acknowledged to its
sender is accepted; accepted messages have one position in one order, those of a sender in the order
in which they were sent and without a gap; a durable subscription and a queue get every message for
them, a subscription in order; nothing comes twice unless it is marked as redelivered, and a message
that is known to be acknowledged never comes again.

A message counts as accepted if it reached any program: each message is for one that must get it.

Two judges look at the group: its specification (`checkers/groups.py`), and the judge of who is a
member when, which shares no model with it (`checkers/memberships.py`).

For transfers between accounts (`coin_program.py`): each coin is there once in the end, and has
moved as often as programs have seen or were answered; no transfer of a coin has happened twice; a
coin that a committed transfer has taken never comes again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from antiphon.checkers import groups, memberships
from antiphon.formats.trace import TraceEvent
from antiphon.model.destinations import is_queue, matcher

SHOWN_MAX = 5
GROUP = "topic:crowd"
ACCOUNTS = "accounts"
COINS = 20


def judge_group(events: Iterable[TraceEvent]) -> list[str]:
    """Return the violations of the group. `events`: of all processes, while they are still
    members."""
    own = [event for event in events if event.group == GROUP or event.kind == "crash"]
    return [*map(str, groups.check(own)), *map(str, memberships.check(own))]


def judge_accounts(events: Iterable[TraceEvent], found: list[str]) -> list[str]:
    """Return the violations of transfers. `found`: the coins that are in the accounts when all have
    stopped."""
    mine = sorted((e for e in events if e.group == ACCOUNTS), key=lambda e: e.at)
    return [*_look_at_coins(mine, found), *_look_at_transfers(mine)]


def _look_at_coins(events: list[TraceEvent], found: list[str]) -> Iterator[str]:
    committed = {event.session for event in events if event.kind == "acknowledge"}
    moves = dict.fromkeys(map(str, range(COINS)), 0)  # that a program has seen, or was answered
    for event in events:
        if event.kind == "deliver" or (event.kind == "send" and event.session in committed):
            coin, _, moved = event.message.partition("@")
            moves[coin] = max(moves.get(coin, 0), int(moved))
    places = [message.partition("@") for message in found]
    for coin, times in Counter(coin for coin, _, _ in places).items():
        if times > 1:
            yield f"coin {coin} is there {times} times"
    last = {coin: int(moved) for coin, _, moved in places}
    for coin, most in moves.items():
        if last.get(coin, -1) < most:
            yield f"coin {coin} is lost: it was moved {most} times, and is at {last.get(coin)}"


def _look_at_transfers(events: list[TraceEvent]) -> Iterator[str]:
    places: dict[str, int] = {}  # of each coin, after each of its moves
    taken: dict[str, list[str]] = defaultdict(list)  # by transfer
    certain: dict[str, str] = {}  # -> by which transfer it was taken for good
    for event in events:
        if event.kind == "deliver":
            coin, again = event.message, event.message in places
            if places.setdefault(coin, event.position) != event.position:
                yield f"{coin} was made twice: {places[coin]}, {event.position}"
            elif coin in certain:
                yield f"{coin} comes to {event.session} again, and {certain[coin]} has taken it"
            elif again and not event.redelivered:
                yield f"{coin} comes to {event.session} twice, and it is not marked"
            taken[event.session].append(coin)
        elif event.kind == "acknowledge":
            certain.update(dict.fromkeys(taken[event.session], event.session))


class Reading:
    """A queue, a durable subscription, or one session's non-durable one; through all consumers."""

    def __init__(self, name: str, expected: list[int], complete: bool) -> None:
        self.name = name
        self.expected = expected  # positions that are for it, rising
        self.complete = complete  # whether it must have all of them in the end
        self.seen: set[int] = set()
        self.certain: set[int] = set()  # known to be acknowledged
        self.reached: dict[str, int] = {}  # by session: the last position in order
        self.open: dict[str, list[int]] = defaultdict(list)  # by session: not acknowledged yet


class Judge:
    """Judges the messages of a run by the events of all programs."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        """`events` of all processes."""
        plain = (event for event in events if event.group not in (GROUP, ACCOUNTS))
        self._events = sorted(plain, key=lambda e: (e.at, e.process, e.incarnation, e.seq))
        self._destinations: dict[str, str] = {}  # message -> where it was sent
        self._positions: dict[str, int] = {}  # message -> its place in the order
        self._readings: dict[str, Reading] = {}
        self.violations: list[str] = []
        self._count: Counter[str] = Counter()
        self.longest_pause_s = 0.0  # without an acknowledgement to any sender
        self._look_at_sending()
        self._look_at_the_order()
        self._look_at_deliveries()
        self._look_at_the_end()

    def counts(self) -> dict[str, int]:
        return {name: self._count[name] for name in ("sent", "acknowledged", "delivered", "again")}

    def _complain(self, what: str) -> None:
        self.violations.append(what)

    # -- Sending ---------------------------------------------------------------------------------

    def _look_at_sending(self) -> None:
        last_s = None
        for event in self._events:
            if event.kind == "send":
                self._count["sent"] += 1
                # A named producer that died may send a number again, elsewhere, if it was not
                # accepted. So the last one counts.
                self._destinations[event.message] = event.group
            elif event.kind == "sent":
                self._count["acknowledged"] += 1
                if last_s is not None:
                    self.longest_pause_s = max(self.longest_pause_s, event.at - last_s)
                last_s = event.at

    # -- The order -------------------------------------------------------------------------------

    def _look_at_the_order(self) -> None:
        at_position: dict[int, str] = {}
        for event in self._events:
            if event.kind != "deliver":
                continue
            if event.message not in self._destinations:
                self._complain(f"{event.process} got {event.message!r}, which nobody sent")
                continue
            position = self._positions.setdefault(event.message, event.position)
            if position != event.position:
                self._complain(f"{event.message} is accepted twice: {position}, {event.position}")
            there = at_position.setdefault(event.position, event.message)
            if there != event.message:
                self._complain(f"at position {event.position} is {there}, and {event.message}")
        self._look_at_senders()
        for event in self._events:
            if event.kind == "sent" and event.message not in self._positions:
                self._complain(f"{event.message} was acknowledged to its sender, and is lost")

    def _look_at_senders(self) -> None:
        by_sender: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for message, position in self._positions.items():
            sender, _, digits = message.rpartition("#")
            by_sender[sender].append((int(digits), position))
        for sender, numbered in by_sender.items():
            numbered.sort()
            for i, (number, position) in enumerate(numbered):
                if number != i + 1:
                    self._complain(f"{sender}#{i + 1} is lost, and {sender}#{number} is there")
                    break
                if i and position < numbered[i - 1][1]:
                    self._complain(f"{sender}#{number} stands before {sender}#{number - 1}")
                    break

    # -- Deliveries ------------------------------------------------------------------------------

    def _look_at_deliveries(self) -> None:
        for event in self._events:
            if event.kind == "join" and (event.durable or is_queue(event.group)):
                self._reading_of(event)
            elif event.kind == "deliver" and event.message in self._positions:
                self._delivered(self._reading_of(event), event)
            elif event.kind == "acknowledge":
                for reading in self._readings.values():
                    reading.certain.update(reading.open.pop(event.session, ()))

    def _reading_of(self, event: TraceEvent) -> Reading:
        if is_queue(event.group):
            name = event.group
        elif event.durable:
            name = f"{event.process}'s {event.group}"
        else:
            name = f"{event.session}'s {event.group}"
        reading = self._readings.get(name)
        if reading is None:
            expected = self._expected(event.group)
            complete = event.durable or is_queue(event.group)
            if not complete:  # it began some time
                expected = expected[bisect_left(expected, event.position) :]
            reading = self._readings[name] = Reading(name, expected, complete)
        return reading

    def _expected(self, pattern: str) -> list[int]:
        matches = matcher(pattern)
        return sorted(
            position
            for message, position in self._positions.items()
            if matches(self._destinations[message])
        )

    def _delivered(self, reading: Reading, event: TraceEvent) -> None:
        position, name = event.position, reading.name
        at = bisect_left(reading.expected, position)
        if at == len(reading.expected) or reading.expected[at] != position:
            self._complain(f"{name} got {event.message}, which is not for it")
            return
        self._count["delivered"] += 1
        self._count["again"] += event.redelivered
        if position in reading.certain:
            self._complain(f"{name} got {event.message} again, which it had acknowledged")
        elif position in reading.seen and not event.redelivered:
            self._complain(f"{name} got {event.message} twice, and it is not marked")
        if not is_queue(event.group):
            self._in_order(reading, event, at)
        reading.seen.add(position)
        reading.open[event.session].append(position)

    def _in_order(self, reading: Reading, event: TraceEvent, at: int) -> None:
        """Check that no earlier message for this reading is missing."""
        after = bisect_right(reading.expected, reading.reached.get(event.session, 0))
        missed = [p for p in reading.expected[after:at] if p not in reading.seen]
        if missed:
            self._complain(
                f"{reading.name} got {event.message} at {event.position}, and had not got "
                f"{missed[:SHOWN_MAX]} before it"
            )
        reading.reached[event.session] = max(reading.reached.get(event.session, 0), event.position)

    # -- The end ---------------------------------------------------------------------------------

    def _look_at_the_end(self) -> None:
        for reading in self._readings.values():
            missing = [p for p in reading.expected if p not in reading.seen]
            if reading.complete and missing:
                self._complain(
                    f"{reading.name} never got {len(missing)} messages, for instance at positions "
                    f"{missing[:SHOWN_MAX]}"
                )
