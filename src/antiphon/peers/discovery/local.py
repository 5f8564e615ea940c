"""The processes of one machine, by a name: `peer:NAME`.

Each has a file in a folder of the user's, with its address in it, and a lock on that file for as
long as it lives: so the system knows, and with it everybody here, which of them are alive, however
they ended. A process that enters while nobody is alive founds the cluster, and says so in a record,
which goes when the cluster ends; all enter one after the other.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from antiphon.errors import ConfigurationError
from antiphon.model.peer_views import MemberId

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".peer"
RECORD = "founded"


class Local:
    """The processes of one cluster on this machine; see the module."""

    def __init__(self, name: str) -> None:
        if fcntl is None:
            raise ConfigurationError(
                f"peer:{name} needs file locks that this system does not have: list addresses, "
                f"peer://HOST:PORT,HOST:PORT/{name}"
            )
        self.listen = ("127.0.0.1:0",)
        self.listed: tuple[str, ...] = ()
        self.founds = True
        self._folder = runtime_folder() / name
        self._own = -1  # the file that this process has locked
        self._path: Path | None = None
        self._known = ""  # the record, as this process saw it last

    async def enter(self, member: MemberId, address: str) -> bool:
        """Make this process known; return whether it is the only one."""
        # In a thread: a process that was stopped in here keeps others waiting.
        return await asyncio.to_thread(self._enter, member, address)

    def _enter(self, member: MemberId, address: str) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            is_first = not self._living()
            path = self._folder / f"{member.incarnation:x}{SUFFIX}"  # names may contain slashes
            self._own = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            self._path = path
            fcntl.flock(self._own, fcntl.LOCK_EX)
            os.write(self._own, address.encode())
            return self._found() if is_first else self._claim_alone()

    async def claim(self) -> bool:
        """Found the cluster, if the one that was here has ended."""
        return await asyncio.to_thread(self._claim)

    def _claim(self) -> bool:
        with self._alone():
            return self._claim_alone()

    def _claim_alone(self) -> bool:
        self._known = self._read_record()
        return not self._known and self._found()

    def _found(self) -> bool:
        assert self._path is not None
        self._known = self._path.name
        (self._folder / RECORD).write_text(self._known, encoding="utf-8")
        return True

    def _read_record(self) -> str:
        try:
            return (self._folder / RECORD).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    async def look(self) -> Sequence[str]:
        """Return the addresses of the others that live."""
        return await asyncio.to_thread(self._looked)

    def _looked(self) -> Sequence[str]:
        if not self._folder.exists():
            return ()
        with self._alone():
            return self._living()

    async def leave(self, last: bool) -> None:
        """Remove this process's file, and with `last` the record, unless somebody has founded the
        cluster again since."""
        await asyncio.to_thread(self._leave, last)

    def _leave(self, last: bool) -> None:
        if self._path is not None and self._own >= 0:
            with self._alone():
                if last and self._known == self._read_record():
                    (self._folder / RECORD).unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)
            os.close(self._own)
            self._own = -1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only one process at a time is in here."""
        with (self._folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _living(self) -> list[str]:
        """Return the addresses of the others, and remove the files of the dead."""
        addresses = []
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path == self._path:
                continue
            with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    addresses.append(file.read())
                else:
                    path.unlink()
        return addresses


def runtime_folder() -> Path:
    """Return the folder of this user's local clusters, which nobody else may enter. Raises
    `ConfigurationError` if somebody else has made it."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.access(given, os.W_OK):
        folder = Path(given) / "antiphon"
    else:
        folder = Path(tempfile.gettempdir()) / f"antiphon-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ConfigurationError(f"{folder} is not a folder that only this user may enter")
    return folder
