"""One process of a chaos run of channels, on the public API.

    python -m antiphon.lab.chaos.channels.program SPEC         SPEC: a `Spec` as JSON

It sends at all levels, to all and to some, receives, and writes down which view it has and what it
was handed (`Note`). If it loses its cluster it joins again. SIGTERM ends it in order. A file `calm`
in the folder of the traces makes it send nothing more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from hashlib import blake2b
from pathlib import Path
from random import Random

import msgspec

import antiphon
from antiphon.formats.channel_trace import life_text, view_text
from antiphon.model.peer_views import Level, PeerView
from antiphon.peers import Channel
from antiphon.peers.channel.views import View
from antiphon.peers.stack.stacks import total_uniform
from antiphon.terminal.lines import complain

CALM = "calm"
CONNECT_S = 45.0
"""Less than `Programs` waits for the end of a process, which may be connecting then."""
NO_ROOM_S = 0.2
RETRY_S = 0.2
TURN_S = 0.02
ALONE = 0.1
"""How often a message is for some members only."""
LARGE = 0.01
"""How often it has many bytes: `LARGE_BYTES`."""
LARGE_BYTES = 200_000


class Spec(msgspec.Struct, frozen=True):
    """The task of one process, as its command line has it."""

    name: str
    names: tuple[str, ...]  # the founders
    url: str
    listen: str
    folder: str
    run: str
    sends_per_s: float
    incarnation: int = 1


class Note(msgspec.Struct, frozen=True):
    """A process's report: its newest view, and how many messages its program was handed, with a
    digest of all (`digested`)."""

    life: str
    view: PeerView
    received: int
    digest: str
    calm: bool


def note_file(folder: Path, name: str) -> Path:
    """Return where a process writes its `Note`."""
    return folder / f"{name}.note"


def digested(digest: str, view: str, message: str) -> str:
    """Return the digest with one message more, which was delivered in this view."""
    return blake2b(f"{digest} {view} {message}".encode(), digest_size=16).hexdigest()


class Program:
    """One process, through all lives of its channel."""

    def __init__(self, spec: Spec, stop: threading.Event) -> None:
        self._spec = spec
        self._stop = stop
        self._chance = Random(f"{spec.run}/{spec.name}/{spec.incarnation}/{os.getpid()}")

    def run(self) -> None:
        """Take part until the process is asked to end."""
        while not self._stop.is_set():
            try:
                _Life(self._spec, self._stop, self._chance).run()
            except antiphon.JMSError as error:
                complain(f"{type(error).__name__}: {error}")
                self._stop.wait(RETRY_S)


class _Life:
    """One channel."""

    def __init__(self, spec: Spec, stop: threading.Event, chance: Random) -> None:
        self._spec = spec
        self._stop = stop
        self._chance = chance
        self._folder = Path(spec.folder)
        self._calm = (self._folder / CALM).exists()
        self._received = 0
        self._digest = ""
        self._noted: Note | None = None
        self._number = 0
        self._next_s = 0.0
        self._channel = Channel(
            total_uniform(spec.names), name=spec.name, listen=spec.listen, trace=spec.folder
        )

    def run(self) -> None:
        with self._channel as channel:
            channel.connect(self._spec.url, timeout=CONNECT_S)
            while not self._stop.is_set():
                message = channel.receive(timeout=TURN_S)
                if message is None:
                    self._calm = (self._folder / CALM).exists()
                elif not isinstance(message, antiphon.ViewMessage):
                    self._take(message)
                if not self._calm and time.monotonic() >= self._next_s:
                    self._send()
                self._note(idle=message is None)

    def _take(self, message: antiphon.Message) -> None:
        self._received += 1
        assert isinstance(message.view, View)
        view = view_text(message.view.id.change)  # type: ignore[attr-defined]
        self._digest = digested(self._digest, view, str(message.id).removeprefix("ID:"))

    def _send(self) -> None:
        chance = self._chance
        self._next_s = time.monotonic() + chance.expovariate(self._spec.sends_per_s)
        for _ in range(chance.choice((1, 1, 1, 4))):
            self._number += 1
            body = f"{self._spec.name}#{self._number}"
            if chance.random() < LARGE:
                body += "." * LARGE_BYTES
            members = self._channel.view.members
            to = chance.sample(members, 1) if chance.random() < ALONE else None
            order = chance.choice(list(Level)) if to is None else Level.FIFO
            try:
                self._channel.send(body, to=to, order=order, timeout=NO_ROOM_S)
            except antiphon.JMSError as error:
                if error.happened != "no" or self._channel.closed:
                    raise

    def _note(self, idle: bool) -> None:
        view = self._channel.view
        source = view._peer_view
        if self._noted is not None and self._noted.view == source and not (idle and self._calm):
            return
        me = next(one for one in view.processes if one.name == self._spec.name)
        note = Note(life_text(me), source, self._received, self._digest, self._calm)
        if note != self._noted:
            self._noted = note
            file = note_file(self._folder, self._spec.name)
            unfinished = file.with_suffix(".unfinished")
            unfinished.write_bytes(msgspec.json.encode(note))
            os.replace(unfinished, file)


def main(spec: str) -> None:
    """Run one process, as its command line has it."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Program(msgspec.json.decode(spec, type=Spec), stop).run()


if __name__ == "__main__":
    main(sys.argv[1])
