"""What a program sent, was handed and was told, written down as it happens (`formats/trace.py`).

Promise: every event is handed to the kernel before the application sees what it tells of, so
`kill -9` loses none. Who reads the files of all programs can judge whether groups keep what they
promise (`core/group_spec.py`).

A file is one life of one process: `DIR/<run>-<process>-<incarnation>.trace`, where the run is the
name of the folder and the process is the client id, or else the name of the first member that it
joins as, or else the number of its session. While a file is locked its process lives; who comes
with the same name meanwhile is another process, who comes later is its next incarnation.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from antiphon.api.group_messages import SuspicionMessage, ViewMessage
from antiphon.api.message import Message, View
from antiphon.api.modes import DeliveryMode
from antiphon.api.standing import Standing
from antiphon.formats.client_wire import AckRow
from antiphon.formats.trace import Kind, TraceEvent, encode_event, encode_header

try:
    import fcntl
except ImportError:  # not everywhere; then every earlier life counts as over
    fcntl = None  # type: ignore[assignment]


class Trace:
    def __init__(self, folder: str, client_id: str, session: int) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._folder.resolve().name
        self._process = client_id  # empty: not known yet
        self._session = f"{session:x}"
        self._incarnation = 0
        self._file: int | None = None
        self._closed = False
        self._seq = 0
        self._created: list[dict[str, Any]] = []  # groups
        self._delivered: dict[tuple[str, int], int] = {}  # by group and view, so far
        # By group: each sender's last message that came since something was sent there. So a clock
        # tells what is new in it, and costs no more than the deliveries do.
        self._heard: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    # -- What happens ---------------------------------------------------------------------------

    def sends(
        self, kind: Kind, destination: str, message: str, sequence: int, persistent: bool
    ) -> None:
        """`send`: the call; `sent`: the acknowledgement. `sequence` is -1 if the message need not
        come after the one that was sent before it."""
        with self._lock:
            heard = self._heard.pop(destination, {}) if kind == "send" else {}
        self.add(
            kind,
            group=destination,
            message=message,
            sender=self._session,
            sender_seq=sequence,
            persistent=persistent,
            clock=heard,
        )

    def joined(self, group: str, name: str, durable: bool) -> None:
        if not self._process:
            self._process = name
        self.add("join", group=group, sender=name, durable=durable)

    def handed_out(self, destination: str, message: Message, standing: Standing) -> None:
        """A consumer gives this to the application now."""
        where: dict[str, Any] = {
            "group": destination,
            "position": message.position,
            "redelivered": message.redelivered,
        }
        if isinstance(message, ViewMessage):
            self.add("view", view_id=message.view.id, members=message.view.members, **where)
            if standing.name in message.joined:  # so from here on it knows the relation
                relation = standing.relation.to_json()
                self.add("group", group=destination, position=message.position, relation=relation)
        elif isinstance(message, SuspicionMessage):
            if message.suspects:
                self.add("suspect", members=message.suspects, **where)
            if message.withdrawn:
                self.add("withdraw", members=message.withdrawn, **where)
        else:
            self._delivers(destination, message, message.view, where)

    def _delivers(
        self, destination: str, message: Message, view: View | None, where: dict[str, Any]
    ) -> None:
        view_id = 0 if view is None else view.id
        index = self._delivered.get((destination, view_id), 0)
        self._delivered[destination, view_id] = index + 1
        sender, _, sequence = str(message.id).removeprefix("ID:").rpartition(".")
        if view is not None:
            with self._lock:
                self._heard.setdefault(destination, {})[sender] = int(sequence)
        self.add(
            "deliver",
            didx=index,
            message=str(message.id),
            sender=sender,
            sender_seq=int(sequence),
            view_id=view_id,
            tag=message.tag,
            key=message.key,
            persistent=message.delivery_mode is DeliveryMode.PERSISTENT,
            **where,
        )

    def acknowledges(self, destination: str, rows: Iterable[AckRow]) -> None:
        for row in rows:
            self.add("acknowledge", group=destination, position=row.last)

    def created(self, group: str, relation: str) -> None:
        """Written down with the next event, which may tell whose trace this is."""
        with self._lock:
            self._created.append({"group": group, "relation": relation})

    def add(self, kind: Kind, **columns: Any) -> None:
        with self._lock:
            if self._closed:
                return
            if self._file is None:
                self._open()
            created, self._created = self._created, []
            for group in created:
                self._write("group", group)
            self._write(kind, columns)

    def _write(self, kind: Kind, columns: dict[str, Any]) -> None:
        assert self._file is not None
        self._seq += 1
        event = TraceEvent(
            run=self._run,
            process=self._process,
            incarnation=self._incarnation,
            seq=self._seq,
            kind=kind,
            session=self._session,
            at=time.monotonic(),  # one clock for all processes of a machine
            **columns,
        )
        os.write(self._file, encode_event(event))

    # -- Files ----------------------------------------------------------------------------------

    def _open(self) -> None:
        self._process = self._process or self._session
        if self._lives():
            self._process = f"{self._process}.{self._session}"
        for incarnation in count(1):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
                self._file = os.open(self._path(incarnation), flags, 0o644)
            except FileExistsError:
                continue
            self._incarnation = incarnation
            break
        assert self._file is not None
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, encode_header())

    def _path(self, incarnation: int) -> Path:
        process = quote(self._process, safe="")
        return self._folder / f"{self._run}-{process}-{incarnation}.trace"

    def _lives(self) -> bool:
        """Somebody else is this process now."""
        for incarnation in count(1):
            path = self._path(incarnation)
            if not path.exists():
                return False
            if _is_locked(path):
                return True
        raise AssertionError

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None


def _is_locked(path: Path) -> bool:
    if fcntl is None:
        return False
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
