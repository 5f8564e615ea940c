"""`antiphon archive`: finished segments of a journal become Parquet, on Spark.

Promise: after any number of runs, even killed ones and several at a time, the archive has every
message of a topic up to its last position once; or it reports the positions that the journal had
dropped before. A run archives only segments that do not grow any more; later messages are in the
journal (`spark/archive/log.py: Joined` reads both). After a killed run the next one goes on from
its last manifest. Without new segments, Spark does not start.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from antiphon import LogSlice
from antiphon.errors import ConfigurationError, IllegalStateError
from antiphon.spark import session
from antiphon.spark.archive.files import ArchiveFiles, File, Manifest
from antiphon.spark.logs.journal_log import ALL_TOPICS, JournalLog
from antiphon.terminal.lines import say, say_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SLICE_MESSAGES = 1 << 20
STEP_POSITIONS = 1 << 25
"""Most messages of a manifest: a killed run loses no more work than that."""

TASKS_A_CORE = 3

Work = Callable[[JournalLog, Sequence[LogSlice], Path, str], list[File]]
"""A function that writes slices into a folder, for a run."""


class Report(NamedTuple):
    """The report of a run."""

    first: int  # positions; behind the last: there were no new messages
    last: int
    messages: int
    files: int
    bytes: int
    manifests: int
    missing: list[tuple[int, int]]  # positions that the journal does not have any more
    swept: int  # files of dead runs that it removed


# -- Planning -------------------------------------------------------------------------------------


def archive(journal: JournalLog, folder: Path, work: Work) -> Report:
    """Archive the finished segments that no manifest names yet, a manifest at a time.

    `work` writes the files. Raise, before creating any file, if there is no journal or if one of
    the folders is inside the other. A run that is killed at any moment leaves whole manifests
    alone: the next run removes the files that none of them names.
    """
    journal.bounds()  # raises if there is no journal
    _check_apart(Path(journal.folder), folder)
    store = ArchiveFiles(folder)
    done: list[Manifest] = []
    with store.run() as run:
        swept = store.sweep()
        while (step := _next_step(journal, store.manifests())) is not None:
            number, manifest, slices = step
            files = work(journal, slices, store.folder, run)
            _check(slices, files)
            manifest = msgspec.structs.replace(manifest, files=tuple(files))
            if store.publish(number, manifest, run):
                done.append(manifest)
            else:
                _remove(store.folder, files)  # another run was faster
    return _report(done, store.manifests(), swept)


def _check_apart(journal: Path, folder: Path) -> None:
    """Raise `ConfigurationError` if one folder is inside the other: a server's folder is its
    own."""
    ours, theirs = folder.resolve(), journal.resolve()
    if ours == theirs or ours in theirs.parents or theirs in ours.parents:
        raise ConfigurationError(
            f"the archive {str(folder)!r} and the journal {str(journal)!r} are in each other: "
            "give the archive a folder of its own, beside the journal"
        )


def _next_step(
    journal: JournalLog, manifests: list[Manifest]
) -> tuple[int, Manifest, list[LogSlice]] | None:
    first = manifests[-1].last + 1 if manifests else journal.bounds().first
    last = min(journal.sealed(), first + STEP_POSITIONS - 1)
    if last < first:
        return None
    missing = tuple((gap.first, gap.last) for gap in journal.missing(first, last))
    slices = journal.slices(ALL_TOPICS, first, last, SLICE_MESSAGES)
    return len(manifests) + 1, Manifest(first, last, (), missing), slices


def _check(slices: Sequence[LogSlice], files: Sequence[File]) -> None:
    wanted, written = sum(s.messages for s in slices), sum(file.rows for file in files)
    if wanted != written:
        raise IllegalStateError(f"{written} messages were written instead of {wanted}")


def _remove(folder: Path, files: Sequence[File]) -> None:
    for file in files:
        (folder / file.path).unlink()


def _report(done: list[Manifest], manifests: list[Manifest], swept: int) -> Report:
    behind = manifests[-1].last + 1 if manifests else 1
    files = [file for manifest in done for file in manifest.files]
    return Report(
        done[0].first if done else behind,
        done[-1].last if done else behind - 1,
        sum(file.rows for file in files),
        len(files),
        sum(file.bytes for file in files),
        len(done),
        [gap for manifest in done for gap in manifest.missing],
        swept,
    )


# -- Writing, in Spark's workers ------------------------------------------------------------------


def on_spark(spark: SparkSession) -> Work:
    """Return the work of a run as tasks of Spark, each with about as many messages."""

    def work(journal: JournalLog, slices: Sequence[LogSlice], folder: Path, run: str) -> list[File]:
        if not slices:
            return []
        tasks = min(len(slices), spark.sparkContext.defaultParallelism * TASKS_A_CORE)
        shares = _shares(slices, tasks)

        def write_shares(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                for number in batch["id"].to_pylist():
                    files = write_all(journal, shares[number], folder, run)
                    texts = [msgspec.json.encode(file).decode() for file in files]
                    yield pa.record_batch({"file": pa.array(texts, pa.string())})

        numbers = spark.range(0, tasks, 1, tasks)
        rows = numbers.mapInArrow(write_shares, "file string").collect()
        return [msgspec.json.decode(row["file"], type=File) for row in rows]

    return work


def write_all(
    journal: JournalLog, slices: Sequence[LogSlice], folder: Path, run: str
) -> list[File]:
    """Write these slices one after the other, and return their files."""
    from antiphon.spark.archive.parquet import write

    return [file for piece in slices for file in write(journal, piece, folder, run)]


def _shares(slices: Sequence[LogSlice], tasks: int) -> list[list[LogSlice]]:
    """Divide slices into shares of about as many messages."""
    shares: list[list[LogSlice]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for piece in sorted(slices, key=lambda one: -one.messages):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += piece.messages
    return shares


# -- The command ----------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon archive`, and return its exit code: 1 if messages are missing."""
    if not Path(args.journal).is_dir():
        say(f"there is no folder {args.journal}", error=True)
        return 2
    journal, folder = JournalLog(args.journal), Path(args.archive)
    report = archive(journal, folder, _LazySpark(args.master))
    _tell(report, args)
    return 1 if report.missing else 0


class _LazySpark:
    """Starts Spark when there are messages to write."""

    def __init__(self, master: str | None) -> None:
        self._master = master
        self._work: Work | None = None

    def __call__(
        self, journal: JournalLog, slices: Sequence[LogSlice], folder: Path, run: str
    ) -> list[File]:
        from antiphon.terminal.screen import Screen

        with Screen(stderr=True).doing("starting Spark") as doing:
            if self._work is None:
                self._work = on_spark(session.start("antiphon archive", self._master))
            messages = sum(piece.messages for piece in slices)
            doing(f"archiving {messages:,} messages")
            return self._work(journal, slices, folder, run)


def _tell(report: Report, args: argparse.Namespace) -> None:
    for first, last in report.missing:
        say(f"positions {first} to {last} are not in the journal any more", error=True)
    if args.json:
        say_json(report._asdict())
    elif report.manifests:
        say(
            f"archived {report.messages:,} messages, positions {report.first} to {report.last}, "
            f"in {report.files} files of {report.bytes:,} bytes"
        )
    else:
        say("nothing new: what is not archived is in segments that are still written")
