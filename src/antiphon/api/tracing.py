"""The trace of a program: the messages that it sends and gets, written down as it happens.

Promise: every event is handed to the kernel before the program sees its message or answer, so `kill
-9` loses none. From the files of all programs together (`formats/trace.py`) judges decide whether
groups kept their promises (`checkers/groups.py`).

A file is one life of one process (`io/trace_file.py`), which is named by the client id, or else by
the first member that it joins as, or else by the number of its session.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from antiphon.api.group_standing import Standing
from antiphon.api.messages.group_messages import SuspicionMessage, ViewMessage
from antiphon.api.messages.message import Message
from antiphon.api.modes import DeliveryMode
from antiphon.errors import ConfigurationError
from antiphon.formats.protocol import AckRow
from antiphon.formats.trace import Kind, TraceEvent, encode_event
from antiphon.io.trace_file import TraceFile, run_of
from antiphon.model.views import View


class Trace:
    """The trace file of one connection; calls may come from any thread."""

    def __init__(self, folder: str, client_id: str, session: int) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"trace: no folder {folder!r}: {error.strerror}") from None
        self._run = run_of(self._folder)
        self._process = client_id  # empty: not known yet
        self._session = f"{session:x}"
        self._file: TraceFile | None = None
        self._closed = False
        self._seq = 0
        self._created: list[dict[str, Any]] = []  # groups
        self._delivered: dict[tuple[str, int], int] = {}  # by group and view, so far
        # By group: each sender's last message that came since this program last sent there. So a
        # clock has only its news, and costs no more than the deliveries do.
        self._heard: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    # -- Events ---------------------------------------------------------------------------------

    def sends(
        self, kind: Kind, destination: str, message: str, sequence: int, persistent: bool
    ) -> None:
        """Record a call (`send`) or its acknowledgement (`sent`). `sequence` is -1 if the message
        need not come after the one that was sent before it."""
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
        """Record a message that a consumer hands to the application now."""
        where: dict[str, Any] = {
            "group": destination,
            "position": message.position,
            "redelivered": message.redelivered,
        }
        if isinstance(message, ViewMessage):
            self.add("view", view_id=message.view.id, members=message.view.members, **where)
            if standing.name in message.joined:  # from here on it knows the relation
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
        """Record a new group, with the next event: that one may have the name of this process."""
        with self._lock:
            self._created.append({"group": group, "relation": relation})

    def add(self, kind: Kind, **columns: Any) -> None:
        with self._lock:
            if self._closed:
                return
            if self._file is None:
                self._file = self._open()
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
            incarnation=self._file.incarnation,
            seq=self._seq,
            kind=kind,
            session=self._session,
            at=time.monotonic(),  # one clock for all processes of a machine
            **columns,
        )
        self._file.write(encode_event(event))

    # -- The file ------------------------------------------------------------------------------

    def _open(self) -> TraceFile:
        process = self._process or self._session
        file = TraceFile(self._folder, process, f"{process}.{self._session}")
        self._process = file.process
        return file

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
                self._file = None
