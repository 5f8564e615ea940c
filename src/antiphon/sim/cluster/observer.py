"""Observers of a simulated world, which do not change it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from antiphon.formats import trace
from antiphon.formats.entry import SnapshotMeta
from antiphon.formats.trace import Kind, TraceEvent
from antiphon.log.effects import Applied

if TYPE_CHECKING:
    from antiphon.sim.cluster.server import SimServer

GROUP = "log"


class Client(Protocol):
    """A sender."""

    number: int
    lives: int
    world: Any


class Message(NamedTuple):
    """The name of a message in a trace."""

    session: int
    sequence: int
    producer: int = 0
    persistent: bool = True

    @property
    def name(self) -> str:
        return f"{self.session}.{self.producer}/{self.sequence}"


class Observer:
    """The base of observers: it watches, and does nothing."""

    def delivered(self, server: SimServer, applied: Applied) -> None: ...

    def started(self, server: SimServer) -> None: ...

    def crashed(self, server: SimServer) -> None: ...

    def installed(self, server: SimServer, meta: SnapshotMeta) -> None: ...

    def sends(self, client: Client, message: Message) -> None: ...

    def sent(self, client: Client, message: Message) -> None: ...


class TraceWriter(Observer):
    """Writes a delivery trace: a file for each life of each process, as real ones do."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        self._run = run
        self._events: dict[tuple[str, int], list[bytes]] = {}
        self._delivered: dict[tuple[str, int], int] = {}

    def delivered(self, server: SimServer, applied: Applied) -> None:
        process = (f"server-{server.number}", server.lives)
        for a in applied.accepted:
            for i in range(a.count):
                index = self._delivered.get(process, 0) + 1
                self._delivered[process] = index
                self._add(
                    process,
                    "deliver",
                    server.world.now_us,
                    didx=index,
                    position=a.position + i,
                    message=Message(a.session, a.sequence + i, a.producer).name,
                    sender=f"client-{a.session}",
                    sender_seq=a.sequence + i,
                    view_id=0,
                    session=str(a.session),
                    persistent=True,
                )

    def started(self, server: SimServer) -> None:
        if server.lives > 1:
            self._add((f"server-{server.number}", server.lives), "recover", server.world.now_us)

    def crashed(self, server: SimServer) -> None:
        self._add((f"server-{server.number}", server.lives), "crash", server.world.now_us)

    def installed(self, server: SimServer, meta: SnapshotMeta) -> None:
        self._add(
            (f"server-{server.number}", server.lives),
            "state",
            server.world.now_us,
            position=server.machine.position,
        )

    def sends(self, client: Client, message: Message) -> None:
        self._client(client, "send", message)

    def sent(self, client: Client, message: Message) -> None:
        self._client(client, "sent", message)

    def _client(self, client: Client, kind: Kind, message: Message) -> None:
        self._add(
            (f"client-{client.number}", client.lives),
            kind,
            client.world.now_us,
            message=message.name,
            sender=f"client-{message.session}",
            sender_seq=message.sequence,
            session=str(message.session),
            persistent=message.persistent,
        )

    def _add(self, process: tuple[str, int], kind: Kind, now_us: int, **fields: Any) -> None:
        events = self._events.setdefault(process, [trace.encode_header()])
        event = TraceEvent(
            run=self._run,
            process=process[0],
            incarnation=process[1],
            seq=len(events),
            kind=kind,
            group=GROUP,
            at=now_us / 1e6,
            **fields,
        )
        events.append(trace.encode_event(event))

    def members(self, traces: list[TraceEvent]) -> None:
        """Add the group events that programs saw."""
        for event in traces:
            life = (event.process, event.incarnation)
            self._events.setdefault(life, [trace.encode_header()]).append(trace.encode_event(event))

    def write(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for (process, incarnation), events in self._events.items():
            name = f"{self._run}-{process}-{incarnation}.trace"
            (self._directory / name).write_bytes(b"".join(events))
