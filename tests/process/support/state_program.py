"""A member of a group that hands out or takes over a state, on the bare conversation.

    python state_program.py give|take|fail URLS NAME BYTES [STALL_AFTER]

`give` hands out BYTES whenever it is asked; with STALL_AFTER it sends that many chunks the second
time, and then no more. `fail` hands out a chunk and says that it cannot go on. `take` ends with the
whole state. All say what they do in JSON lines.
"""

import asyncio
import hashlib
import json
import resource
import secrets
import sys
import time
from random import Random
from typing import Any

from antiphon.api.protocol import conversation as conv
from antiphon.api.protocol import effects
from antiphon.api.protocol.state_transfer import Began, Chunk, Missing, Ready
from antiphon.formats import protocol as cw
from antiphon.io.client_link import ClientLink, dial
from antiphon.io.transport import parse_address

GROUP = "topic:state"
PATTERN = bytes(range(256)) * (cw.STATE_CHUNK_MAX // 256)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def say(**what: Any) -> None:
    print(json.dumps({**what, "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
    sys.stdout.flush()


class Program:
    def __init__(self, role: str, urls: list[str], name: str, size: int, stall: int) -> None:
        self.role, self.urls, self.name, self.size, self.stall = role, urls, name, size, stall
        self.c = conv.Conversation(
            secrets.randbits(62) + 1, secrets.token_bytes(16), Random(), now_ms(), conv.Terms()
        )
        self.link: ClientLink | None = None
        self.dials = 0
        self.hash = hashlib.blake2b()
        self.bytes = 0
        self.began = 0
        self.gave = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.done = asyncio.Event()

    async def run(self) -> None:
        member = cw.Join(self.c.next_consumer(), GROUP, 1000, self.name, provides=True)
        joined = self.c.join(member)
        joined.watch(lambda: say(joined=self.name, error=str(joined.error or "")))
        while not self.done.is_set():
            self.pump()
            await asyncio.sleep(0.005)

    def pump(self) -> None:
        now = now_ms()
        self.c.tick(now)
        while True:
            if (requests := self.c.flush(now)) and self.link is not None:
                self.link.send(requests)
            events = self.c.take_events()
            for event in events:
                self.carry_out(event)
            if not events and not requests:
                return

    def carry_out(self, event: effects.Event) -> None:
        if isinstance(event, effects.Dial):
            self.dials += 1
            self.tasks.append(asyncio.create_task(self.dial(self.dials)))
        elif isinstance(event, effects.HangUp):
            self.hang_up()
        elif isinstance(event, effects.Settled):
            event.ticket.tell()
        elif isinstance(event, effects.Arrived):
            self.c.acknowledge([cw.AckRow(event.consumer, 0, event.slice.last)], patient=True)
        elif isinstance(event, effects.Occurred):
            self.occurred(event)
        elif isinstance(event, Began):
            self.began += 1
            self.hash, self.bytes = hashlib.blake2b(), 0
            say(began=event.serial)
        elif isinstance(event, Chunk):
            self.hash.update(event.data)
            self.bytes += len(event.data)
            self.c.state_taken(event.consumer, event.serial, event.seq)
        elif isinstance(event, Ready):
            digest = self.hash.hexdigest()
            say(ready=self.bytes, digest=digest, began=self.began, position=event.position)
            if self.role == "take":
                self.done.set()
        elif isinstance(event, Missing):
            say(missing=event.serial)
        elif isinstance(event, effects.Over):
            say(over=str(event.error))
            self.done.set()

    def occurred(self, event: effects.Occurred) -> None:
        self.c.acknowledge([cw.AckRow(event.consumer, 0, 0, event.event.serial)], patient=True)
        if event.event.kind == cw.STATE and self.name in event.event.went:
            self.tasks.append(asyncio.create_task(self.give(event.consumer, event.event.serial)))

    async def give(self, consumer: int, serial: int) -> None:
        handout = self.c.hand_out(consumer, serial)
        say(asked=serial)
        left, chunks = self.size, 0
        while not handout.over:
            if not handout.has_room:
                freed = asyncio.Event()
                handout.room().watch(freed.set)
                await freed.wait()
                continue
            if self.stall and self.gave and chunks >= self.stall:
                say(stalled=chunks)
                return
            if self.role == "fail" and chunks:
                self.c.cannot_hand_out(handout, "as the test wants it")
            else:
                data = PATTERN[:left]
                left -= len(data)
                chunks += 1
                self.c.hand(handout, data, left == 0)
            self.pump()
        self.gave += 1
        say(gave=chunks)

    async def dial(self, number: int) -> None:
        url = self.urls[(number - 1) % len(self.urls)]
        try:
            link = await dial(
                parse_address(url.removeprefix("antiphon://")),
                lambda bodies: self.received(number, bodies),
                lambda error: self.lost(number, error),
            )
        except OSError as error:
            self.lost(number, error)
            return
        if number != self.dials:
            link.close()
            return
        self.link = link
        self.c.connected(now_ms())
        self.pump()

    def received(self, number: int, bodies: list[bytes]) -> None:
        if number == self.dials:
            for body in bodies:
                self.c.received(body, now_ms())
            self.pump()

    def lost(self, number: int, error: Exception | None) -> None:
        if number == self.dials:
            self.link = None
            self.c.lost(now_ms(), str(error))

    def hang_up(self) -> None:
        if self.link is not None:
            self.link.close()
        self.link = None
        self.dials += 1


def main() -> None:
    role, urls, name, size, *stall = sys.argv[1:]
    program = Program(role, urls.split(","), name, int(size), int(stall[0]) if stall else 0)
    asyncio.run(program.run())


if __name__ == "__main__":
    main()
