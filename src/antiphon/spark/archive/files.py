"""The files of an archive: Parquet, and the manifests that list the valid ones.

    topic=prices/day=2026-11-15/1-5000-c41f5b21-8e07d1f3.parquet    messages of a topic
    manifests/00000001.json                                         what the first run has done
    runs/c41f5b21                                                   held by a run while it writes

Promise: a file that no manifest names is not part of the archive. Manifests are numbered, and each
begins at the position behind the one before it. A run publishes one by a link, which fails if its
number is taken, after all its files are on the disk: of two runs that archive the same only one
counts.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from antiphon.errors import FormatError, UnknownVersionError

VERSION = 1
NAME_BYTES_MAX = 200
"""Most bytes of the name of a topic's folder; file systems take 255."""

_ESCAPED = set("\"#%'*/:=?\\{}[]^\x7f")
"""Characters that are quoted in the names of such folders, as Spark does."""


class Group(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a file that can be read by themselves."""

    first: int
    last: int
    rows: int


class File(msgspec.Struct, frozen=True):
    """A Parquet file with messages of one topic, as a manifest lists it."""

    path: str  # from the archive's folder
    topic: str
    first: int  # positions
    last: int
    rows: int
    bytes: int
    first_stamp: int  # ms
    last_stamp: int
    groups: tuple[Group, ...]


class Manifest(msgspec.Struct, frozen=True):
    """The record of what one run has archived: all messages of topics at these positions."""

    first: int
    last: int
    files: tuple[File, ...]
    missing: tuple[tuple[int, int], ...] = ()  # positions that the journal had dropped before
    version: int = VERSION


class ArchiveFiles:
    """The folder of an archive: its manifests, the files that they name, and files of dead runs.

    Any number of readers and runs may use it at once, on one file system that has links and locks
    (`flock`). A manifest is published once or not at all, and never changes.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._manifests = self.folder / "manifests"
        self._runs = self.folder / "runs"

    # -- Reading ----------------------------------------------------------------------------------

    def manifests(self) -> list[Manifest]:
        """Return the manifests in order. Raise `FormatError` if they do not fit together."""
        found: list[Manifest] = []
        while (path := self._manifest(len(found) + 1)).exists():
            manifest = _decode(path)
            if found and manifest.first != found[-1].last + 1:
                raise FormatError(
                    f"{path} begins with position {manifest.first}, and the manifest before it "
                    f"ends with {found[-1].last}"
                )
            found.append(manifest)
        return found

    def _manifest(self, number: int) -> Path:
        return self._manifests / f"{number:08d}.json"

    # -- Writing ----------------------------------------------------------------------------------

    @contextmanager
    def run(self) -> Iterator[str]:
        """Begin a run, and yield its name. Inside the `with` block, other runs do not remove its
        files."""
        for folder in (self._manifests, self._runs):
            folder.mkdir(parents=True, exist_ok=True)
        name = secrets.token_hex(4)
        new = self._runs / f".{name}"
        with new.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            new.rename(self._runs / name)  # held before others see it
            try:
                yield name
            finally:
                (self._runs / name).unlink()

    def publish(self, number: int, manifest: Manifest, run: str) -> bool:
        """Publish a manifest, whose files are synced already. Return False if another run was
        first."""
        for folder in _folders(self.folder, manifest.files):
            _sync(folder)
        new = self._manifests / f".{number}-{run}"
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest)))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, self._manifest(number))
        except FileExistsError:
            return False
        finally:
            new.unlink()
        _sync(self._manifests)
        return True

    def sweep(self) -> int:
        """Remove the files of dead runs; return how many."""
        left = [path for path in self._written() if not self._is_held(_run_of(path))]
        # Read after finding dead runs: one that has ended since has published before.
        named = {self.folder / file.path for m in self.manifests() for file in m.files}
        dead = [path for path in left if path not in named]
        for path in dead:
            path.unlink(missing_ok=True)
        for path in self._runs.glob("[!.]*"):
            if not self._is_held(path.name):
                path.unlink(missing_ok=True)
        return len(dead)

    def _written(self) -> list[Path]:
        drafts = self._manifests.glob(".*-*")
        return [*self.folder.glob("topic=*/day=*/*-*-*-*.parquet"), *drafts]

    def _is_held(self, run: str) -> bool:
        with suppress(FileNotFoundError), (self._runs / run).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _decode(path: Path) -> Manifest:
    data = path.read_bytes()
    try:
        version = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("version")
        if version is not None and msgspec.json.decode(version, type=int) > VERSION:
            raise UnknownVersionError(
                f"{path} is of version {bytes(version).decode()}; this program reads {VERSION}"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a manifest of an archive: {error}") from None


def file_path(topic: str, day: str, first: int, last: int, run: str) -> str:
    """Return the path of a file with messages of a topic; never the same one twice."""
    unique = secrets.token_hex(4)
    return f"topic={quoted(topic)}/day={day}/{first}-{last}-{run}-{unique}.parquet"


def quoted(topic: str) -> str:
    """Return a topic's name as that of a folder. Readers take the name from the manifest."""
    name = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in topic)
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    beginning = name.encode()[: NAME_BYTES_MAX - 20].decode(errors="ignore")
    return f"{beginning}~{sha256(topic.encode()).hexdigest()[:16]}"


def _run_of(path: Path) -> str:
    return path.name.split("-")[1 if path.name.startswith(".") else 2]


def _folders(root: Path, files: Iterable[File]) -> list[Path]:
    """Return the folders in which a run may have made entries for these files."""
    days = {(root / file.path).parent for file in files}
    return sorted({*days, *(day.parent for day in days), root, root.parent})


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
