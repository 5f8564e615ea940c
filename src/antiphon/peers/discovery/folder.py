"""A folder that the machines of a cluster share: `peer:file/DIR/NAME`.

Each process has a file with its address in it, and renews it whenever it looks; files that were not
renewed for long are those of the dead. The founding record is a file, too: who creates it founds
the cluster, and nobody else as long as it is there. It is removed by the last member that leaves a
primary view, by its creator if that founded nothing, or, if the members of a majority are gone for
good, by a person.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from antiphon.errors import FormatError
from antiphon.io.transport import parse_address
from antiphon.model.peer_views import MemberId

SUFFIX = ".peer"
RECORD = "founded"
DEAD_S = 60.0
"""A file that is this much older than the one renewed last is removed. Both times are of the
machine that has the folder."""


class Folder:
    """The processes of one cluster in a shared folder; see the module."""

    def __init__(self, folder: str, name: str) -> None:
        self.listen = ("127.0.0.1:0",)
        self.listed: tuple[str, ...] = ()
        self.founds = True
        self._folder = Path(folder) / name
        self._path = self._folder
        self._address = ""
        self._own_record = ""  # as this process writes it
        self._record = ""  # the founding record, as it was when this process looked last

    async def enter(self, member: MemberId, address: str) -> bool:
        """Make this process known; return whether it has created the founding record."""
        return await asyncio.to_thread(self._enter, member, address)

    def _enter(self, member: MemberId, address: str) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{member.incarnation:x}{SUFFIX}"  # names may contain slashes
        self._path, self._address = path, address
        self._renew()
        self._own_record = f"{member.name} at {address}, life {member.incarnation:x}\n"
        return self._claim()

    async def claim(self) -> bool:
        """Create the founding record, if it is gone."""
        return await asyncio.to_thread(self._claim)

    def _claim(self) -> bool:
        founds = self._create(self._own_record)
        self._record = self._own_record if founds else self._read_record()
        return founds

    def _create(self, record: str) -> bool:
        """Create the founding record; return whether there was none."""
        path = self._folder / RECORD
        try:
            file = path.open("x", encoding="utf-8")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # the disk is full, perhaps: this process founds nothing, and others may
            path.unlink(missing_ok=True)
            raise
        return True

    def _read_record(self) -> str:
        try:
            return (self._folder / RECORD).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    async def look(self) -> Sequence[str]:
        """Return the addresses of all that were alive lately."""
        return await asyncio.to_thread(self._looked)

    def _looked(self) -> Sequence[str]:
        if self._address:  # it takes part, and does not only look
            self._renew()
            self._record = self._read_record()
        found: list[tuple[float, Path, str]] = []
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            with suppress(FileNotFoundError):
                text = path.read_text(encoding="utf-8", errors="replace")
                found.append((path.stat().st_mtime, path, text))
        latest_s = max((renewed_s for renewed_s, *_ in found), default=0.0)
        addresses = []
        for renewed_s, path, address in found:
            if latest_s - renewed_s > DEAD_S:
                path.unlink(missing_ok=True)
            else:
                with suppress(FormatError):  # a damaged file keeps nobody out
                    parse_address(address)
                    addresses.append(address)
        return addresses

    async def leave(self, last: bool) -> None:
        """Remove this process's file, and with `last` the founding record that it knows."""
        await asyncio.to_thread(self._leave, last)

    def _leave(self, last: bool) -> None:
        if self._address:
            self._path.unlink(missing_ok=True)
        # Another one of the last may have removed the record, and a new process have founded: its
        # record stays.
        if last and self._record and self._record == self._read_record():
            (self._folder / RECORD).unlink(missing_ok=True)

    def _renew(self) -> None:
        """Write this process's file again: others may have removed it while it was paused."""
        new = self._path.with_suffix(".new")
        new.write_text(self._address, encoding="utf-8")
        new.replace(self._path)  # nobody sees half an address
