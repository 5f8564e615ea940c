"""Members come and go, connections and relays are lost, and still everybody's state is right.

Real homes and real conversations on a log that is a list. What a member has handled is a run of
messages without a gap; that run is its state, and what it hands out. Who takes a state over goes on
exactly behind it, and a state begins no later than its taker's join. Who has to do without begins
with its join, even if it was removed meanwhile.
"""

from collections import deque
from random import Random

import msgspec
import pytest

from antiphon.api.protocol import conversation as conv
from antiphon.api.protocol import effects
from antiphon.api.protocol.state_transfer import Began, Chunk, Handout, Missing, Ready
from antiphon.formats import protocol as cw
from antiphon.formats.columns import TEXT, Extra, Outgoing, encode_extra
from antiphon.formats.pack import CONTROL
from tests.broker.support.homes import Client, Homes

GROUP = "topic:g"
STEPS = 150
QUIET_MS = 120_000


class Program:
    """A member, its conversation, and the application behind it."""

    def __init__(self, homes: Homes, name: str, chance: Random) -> None:
        self.homes, self.name, self.chance = homes, name, chance
        self.c = conv.Conversation(
            chance.getrandbits(62) + 1, bytes(16), chance, homes.now_ms, conv.Terms(lease_ms=8000)
        )
        self.consumer = self.c.next_consumer()
        self.link: Client | None = None
        self.heard = 0
        self.over = False
        self.raises = chance.random() < 0.1
        self.waiting = True  # for the answer to its join, or for a state
        self.asked = 0  # the request whose state it waits for
        self.queue: deque[int | cw.GroupEvent] = deque()  # positions, requests, its removal
        self.origin: int | None = None  # the position of the view with which it joined
        self.run: tuple[int, int] | None = None  # what it has handled, first and last
        self.chunks: list[bytes] = []
        self.untaken: list[Chunk] = []
        self.handout: Handout | None = None
        self.left: list[bytes] = []  # to be handed out
        join = cw.Join(self.consumer, GROUP, 5, name, provides=True)
        self.joined = self.c.join(join)
        self.joined.watch(self.on_joined)

    def on_joined(self) -> None:
        if self.joined.error is not None:
            self.over = True
        elif not msgspec.msgpack.decode(self.joined.data)[3]:
            self.waiting = False

    # -- Between conversation and home -------------------------------------------------------------

    def pump(self) -> bool:
        """True: something has happened."""
        self.c.tick(self.homes.now_ms)
        out: list[object] = [*self.c.flush(self.homes.now_ms)]
        if self.link is not None:
            for request in out:
                self.link.take(cw.encode(request))
            news, self.heard = self.link.heard[self.heard :], len(self.link.heard)
            for answer in news:
                self.c.received(cw.encode(answer), self.homes.now_ms)
            out += news
            if self.link is not None and self.link.cut is not None:
                self.lose()
        events = self.c.take_events()
        for event in events:
            self.carry_out(event)
        return bool(out or events)

    def lose(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.break_off()
            self.c.lost(self.homes.now_ms, "the test wants it")

    def carry_out(self, event: effects.Event) -> None:
        if isinstance(event, effects.Dial):
            self.link = self.homes.connect(self.chance.choice(list(self.homes.servers)))
            self.heard = 0
            self.c.connected(self.homes.now_ms)
        elif isinstance(event, effects.HangUp):
            link, self.link = self.link, None
            if link is not None:
                link.break_off()
        elif isinstance(event, effects.Settled):
            event.ticket.tell()
        elif isinstance(event, effects.Arrived):
            self.queue += range(event.slice.first, event.slice.last + 1)
        elif isinstance(event, effects.Occurred):
            if event.event.kind == cw.VIEW and self.name in event.event.came:
                self.origin = event.event.position
            if event.event.kind in (cw.STATE, cw.VIEW) and self.name in event.event.went:
                self.queue.append(event.event)
        elif isinstance(event, effects.Over | effects.Dropped):
            self.over = True
        elif isinstance(event, Began):
            assert self.run is None, f"{self.name} has handled messages, and gets a state"
            self.asked, self.waiting = event.serial, True
            self.chunks, self.untaken = [], []
        elif isinstance(event, Chunk):
            assert event.serial == self.asked
            self.untaken.append(event)
        elif isinstance(event, Ready):
            assert event.serial == self.asked
            first, last = msgspec.msgpack.decode(b"".join(self.chunks))
            assert last == event.position, f"a state up to {last} is cut at {event.position}"
            self.run = (first, last)
            self.waiting = False
        elif isinstance(event, Missing) and self.waiting:
            assert self.run is None
            self.waiting = False

    # -- The application ---------------------------------------------------------------------------

    def work(self) -> None:
        for chunk in self.untaken[:2]:
            self.chunks.append(chunk.data)
            self.c.state_taken(self.consumer, chunk.serial, chunk.seq)
            self.untaken.remove(chunk)
        if self.handout is not None:
            self.hand()
        elif self.queue and not self.waiting and not self.over and not self.c.over:
            self.handle(self.queue.popleft())

    def has(self) -> tuple[int, int]:
        """All of these messages, first and last. It was told of its join before any of them."""
        assert self.origin is not None
        first, last = self.run or (self.origin + 1, self.origin)
        assert first <= self.origin + 1, f"{self.name} joined at {self.origin}, and has {self.run}"
        return first, last

    def handle(self, one: int | cw.GroupEvent) -> None:
        first, last = self.has()
        if isinstance(one, int):
            assert one == last + 1, f"{self.name} gets {one} after {last}"
            self.run = (first, one)
            self.c.acknowledge([cw.AckRow(self.consumer, 0, one)], patient=True)
            return
        assert last == one.position, f"{self.name} has all up to {last}, and gets {one}"
        if one.kind == cw.VIEW:
            self.over = True  # removed
            return
        self.handout = self.c.hand_out(self.consumer, one.serial)
        text = msgspec.msgpack.encode((first, last))
        self.left = [text[:1], *(b"" for _ in range(self.chance.randrange(40))), text[1:]]

    def hand(self) -> None:
        handout = self.handout
        assert handout is not None
        if handout.over:
            self.handout = None
        elif self.raises and len(self.left) < 3:
            self.c.cannot_hand_out(handout, "as the test wants it")
        elif handout.has_room:
            data = self.left.pop(0)
            self.c.hand(handout, data, not self.left)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.homes = Homes(3)
        self.programs: list[Program] = []
        self.names = 0

    def add(self) -> None:
        self.names += 1
        self.programs.append(Program(self.homes, f"m{self.names}", self.chance))

    def step(self) -> None:
        homes, chance = self.homes, self.chance
        one = chance.choice(self.programs)
        what = chance.random()
        if what < 0.3 and one.c.attached:
            one.c.send(one.c.stream, GROUP, 0, Outgoing(TEXT, b"m", b"", 1))
        elif what < 0.36:
            one.lose()
        elif what < 0.40 and len(self.programs) < 6:
            self.add()
        elif what < 0.43 and one.c.attached and not one.over:
            one.c.leave(one.consumer)
            one.over = True
        elif what < 0.44 and one.c.attached:
            self.remove(one, chance.choice(self.programs).name)
        elif what < 0.46:
            homes.lose_relays = not homes.lose_relays
        elif what < 0.50:
            homes.servers[chance.choice((2, 3))].lags ^= True
        elif what < 0.52:
            homes.new_leader(chance.choice((1, 2, 3)))
        elif what < 0.60:
            homes.wait(chance.choice((250, 1000, 3000)))
        self.turn()

    def remove(self, one: Program, name: str) -> None:
        extra = encode_extra(Extra(properties={"JMS_remove": name}))
        one.c.send(one.c.stream, GROUP, CONTROL, Outgoing(TEXT, b"", extra, 1))

    def turn(self) -> None:
        """Everybody does a little."""
        for program in list(self.programs):
            program.pump()
            program.work()
            program.pump()
        self.homes.settle()
        gone = [p for p in self.programs if p.c.over]
        self.programs = [p for p in self.programs if not p.c.over] or gone[:1]
        if all(p.over for p in self.programs):
            self.add()

    def come_to_rest(self) -> None:
        self.homes.lose_relays = False
        for server in self.homes.servers.values():
            server.lags = False
        end = self.homes.now_ms + QUIET_MS
        while self.homes.now_ms < end and not self.rests():
            for _ in range(30):
                self.turn()
            self.homes.wait(500)

    def rests(self) -> bool:
        position = self.homes.servers[1].broker.position
        alive = [p for p in self.programs if not p.over]
        return all(
            p.c.attached and p.joined.done and not p.waiting and not p.queue and p.handout is None
            for p in alive
        ) and all(p.has()[1] == position for p in alive)

    def story(self) -> str:
        group = self.homes.servers[1].broker.groups.get(GROUP)
        members = list(group.members.values()) if group else []
        return "\n".join(
            [
                *(str(m) for m in members),
                *(
                    f"{p.name} over={p.over} attached={p.c.attached} waiting={p.waiting} "
                    f"asked={p.asked} queue={list(p.queue)} run={p.run} out={p.handout is not None}"
                    for p in self.programs
                ),
                f"position {self.homes.servers[1].broker.position}, {self.homes.now_ms} ms",
            ]
        )


def play(seed: int) -> World:
    world = World(seed)
    for _ in range(3):
        world.add()
    for _ in range(STEPS):
        world.step()
    world.come_to_rest()
    assert world.rests(), f"seed {seed}\n{world.story()}"
    return world


@pytest.mark.parametrize("seed", range(40))
def test_every_state_fits_what_follows(seed: int) -> None:
    play(seed)
