"""`antiphon demo`: a replicated table that loses a server and a member, and nothing else.

Three servers on this machine; a table with three replicas, which are the members of a group, each a
process; two writers, which compare every answer with the right one. The server that leads is
killed as by a crash, then the oldest member; the others suspect and remove it. Both come back: the
server with its journal, the member with the table that the others hand it. At the end the replicas
must hold the same, and three judges check by the traces of all programs that the group kept its
promises: `checkers/groups.py`, `checkers/memberships.py`, and the audit on Spark, which also draws
a chart of the run (`lab/demo/report.py`); otherwise exit code 1. Without Spark there are two.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import antiphon
from antiphon.checkers import groups, memberships
from antiphon.cli.cluster import ClusterStatus, look
from antiphon.errors import IllegalStateError, JMSError
from antiphon.formats.trace import TraceEvent
from antiphon.lab.chaos.recorder import read_traces
from antiphon.lab.demo.member import GROUP
from antiphon.reports.charts import Mark
from antiphon.server.local_cluster import LocalCluster, undisturbed
from antiphon.terminal.lines import say
from antiphon.terminal.screen import Columns, Group, Screen, Table, live, styled

MEMBERS = ("replica-1", "replica-2", "replica-3")
WRITERS = ("writer-1", "writer-2")
TRACES = "traces"
JUDGED = "judged"
"""The traces as both judges get them."""

KEYS = 50  # of each writer
PAUSE_S = 0.005  # of a writer, between two writes
Found = TypeVar("Found")

CALM_S = 2.0  # between one kill or start and the next
WAIT_S = 20.0


class Asker:
    """Sends requests to the table, and gets the members' answers."""

    def __init__(self, url: str, name: str, traces: Path) -> None:
        self._ctx = antiphon.connect(url, client_id=name, trace=str(traces))
        self._group = self._ctx.create_group(GROUP)
        self._producer = self._ctx.create_producer()
        self._queue = self._ctx.create_temporary_queue()
        self._answers = self._ctx.create_consumer(self._queue)

    def ask(self, request: dict[str, Any], members: int = 1) -> dict[str, Any]:
        """Return the answers of the first `members` members, by name."""
        message = self._ctx.create_map_message(request)
        self._producer.send(self._group, message, reply_to=self._queue)
        found: dict[str, Any] = {}
        until = time.monotonic() + WAIT_S
        while len(found) < members:
            reply = self._answers.receive(timeout=max(0.0, until - time.monotonic()))
            if reply is None:
                raise IllegalStateError(f"{len(found)} members answer {request}, not {members}")
            if reply.correlation_id == message.id:
                found[reply.body["member"]] = reply.body["answer"]
        return found

    def close(self) -> None:
        self._ctx.close()


class Writer(threading.Thread):
    """Writes 1, 2, 3 ... under keys of its own, and checks every answer."""

    def __init__(self, url: str, name: str, traces: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.wrote = 0
        self.error: JMSError | None = None
        self.wrong: list[str] = []
        self.longest_s = 0.0  # that a write took
        self.table: dict[str, int] = {}  # as it must be, of its keys
        self._stop_asked = threading.Event()
        self._url = url
        self._traces = traces

    def run(self) -> None:
        try:
            with closing(Asker(self._url, self.name, self._traces)) as asker:
                while not self._stop_asked.wait(PAUSE_S):
                    self._write(asker, f"{self.name}/{self.wrote % KEYS}", self.wrote + 1)
        except JMSError as error:
            self.error = error

    def _write(self, asker: Asker, key: str, value: int) -> None:
        began = time.monotonic()
        ((member, before),) = asker.ask({"key": key, "value": value}).items()
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        if before != self.table.get(key):
            self.wrong.append(
                f"{member} says that {key} was {before}, and it was {self.table.get(key)}"
            )
        self.table[key] = value
        self.wrote += 1

    def ask_to_stop(self) -> None:
        self._stop_asked.set()


class Members:
    """The processes that hold the table, and their reports. Leaving the `with` block ends them."""

    def __init__(self, url_of: Callable[[str], str], folder: Path) -> None:
        """`url_of`: what each of them connects to, by its name."""
        self.view = 0
        self.members: tuple[str, ...] = ()  # of that view
        self.say: Callable[[str], None] = lambda _: None
        self._url_of = url_of
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._known: set[object] = set()  # reports that are shown already
        self._lock = threading.Lock()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)

    def start(self, name: str) -> None:
        arguments = [self._url_of(name), name, str(self._folder / TRACES)]
        with undisturbed(), (self._folder / f"{name}.log").open("ab") as log:
            process = self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "antiphon.lab.demo.member", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo, which ends them
            )
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def kill(self, name: str) -> None:
        """`kill -9`: as a crash."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    @property
    def running(self) -> int:
        return len(self._running)

    def complaints(self) -> list[str]:
        return [f"{name} has ended" for name, p in self._running.items() if p.poll() is not None]

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._lock:
                    self._heard(json.loads(line))

    def _heard(self, what: dict[str, Any]) -> None:
        """Show a report once, although all members send the same."""
        match what:
            case {"view": id, "members": members, "joined": joined, "left": left}:
                if self.view < id:
                    self.view, self.members = id, tuple(members)
                    changes = [f"{name} joined" for name in joined if name not in left]
                    changes += [f"{name} left" for name in left if name not in joined]
                    self.say(f"view {id}: {' '.join(members)} ({', '.join(changes)})")
            case {"suspicion": id, "suspects": suspects, "withdrawn": withdrawn}:
                if id not in self._known:
                    self._known.add(id)
                    for name in suspects:
                        self.say(f"{name} is suspected; the others remove it")
                    for name in withdrawn:
                        self.say(f"{name} is not suspected any more")
            case {"table_of": name, "pairs": pairs}:
                self.say(f"{name} has got the table, {pairs} pairs, at its place in the order")


class Display(Generic[Found]):
    """The display: on a terminal a table that changes, elsewhere a line for each event."""

    def __init__(
        self,
        look: Callable[[], Found],
        drawn: Callable[[Found], Table],
        members: Members,
        writers: list[Writer],
    ) -> None:
        """`look`: see how those are doing that the table is kept by; `drawn`: as a table."""
        self._look = look
        self._drawn = drawn
        self._members = members
        self._writers = writers
        self._screen = Screen()
        self._began = time.monotonic()
        self.happened: list[Mark] = []  # kills and starts by the demo, on the traces' clock
        self._events: list[str] = []
        self._found: Found | None = None
        self._lock = threading.Lock()
        self._live = live(self._screen) if self._screen.is_terminal else None

    def __enter__(self) -> Display[Found]:
        self._members.say = self.say
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, event: str) -> None:
        with self._lock:
            line = f"{time.monotonic() - self._began:5.1f} s  {event}"
            self._events.append(line)
            if self._live is None:
                say(line, flush=True)
            self._refresh()

    def did(self, what: str, event: str) -> None:
        """Note a kill or a start; `what` in a word or two."""
        self.happened.append(Mark(time.monotonic(), what))
        self.say(event)

    def watch(self, until: Callable[[Found], bool], what: str) -> Found:
        """Show how it goes until the condition holds, which it must in time."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            found = self._look()
            with self._lock:
                self._found = found
                self._refresh()
            if until(found):
                return found
            if complaints := self._complaints():
                raise IllegalStateError("; ".join(complaints))
            time.sleep(0.1)
        raise IllegalStateError(f"waited {WAIT_S:g} s without success: {what}")

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.watch(lambda _: time.monotonic() > end, "time passes")

    def _complaints(self) -> list[str]:
        errors = [f"{w.name}: {w.error}" for w in self._writers if w.error is not None]
        return errors + self._members.complaints()

    def _refresh(self) -> None:
        if self._live is not None and self._found is not None:
            tables = Columns([self._drawn(self._found), self._programs()], padding=(0, 4))
            self._live.update(Group(tables, *map(styled, self._events)))

    def _programs(self) -> Table:
        table = Table("program", "")
        for name in MEMBERS:
            table.add_row(name, "a member" if name in self._members.members else "")
        for writer in self._writers:
            table.add_row(writer.name, f"{writer.wrote} writes")
        return table


def _nodes(cluster: LocalCluster, found: ClusterStatus) -> Table:
    table = Table("node", "role", "epoch", "messages")
    for node in cluster.servers:
        status = found.answers.get(node)
        facts = (status.role, status.epoch, status.position) if status else ("down", "", "")
        table.add_row(str(node), *map(str, facts))
    return table


def perform(folder: Path) -> tuple[dict[str, Any], list[Mark]]:
    """Run the demo; return its findings, as for `--json`, and its kills and starts."""
    with LocalCluster(3, folder) as cluster, Members(lambda _: cluster.url, folder) as members:
        cluster.start()
        writers = [Writer(cluster.url, writer, folder / TRACES) for writer in WRITERS]
        drawn = partial(_nodes, cluster)
        with Display(partial(look, cluster.url), drawn, members, writers) as display:
            display.say(f"three servers run: {cluster.url}")
            begin(display, members, writers)
            server = _lose_the_leader(display, cluster, writers)
            member = lose_a_member(display, members)
            _get_them_back(display, cluster, members, server, member)
            return end(display, cluster.url, writers, folder), display.happened


def begin(
    display: Display[Any], members: Members, writers: list[Writer], at_once: bool = False
) -> None:
    """Start the members, one after the other or at once, and then the writers."""
    for name in MEMBERS:
        members.start(name)
        if not at_once:
            display.watch(lambda _: len(members.members) == members.running, "a member joins")
    display.watch(lambda _: len(members.members) == members.running, "all members join")
    for writer in writers:
        writer.start()
    display.say("a table with three replicas; two writers write to it, and check each answer")
    display.pause(CALM_S)


def _lose_the_leader(
    display: Display[ClusterStatus], cluster: LocalCluster, writers: list[Writer]
) -> int:
    found = display.watch(lambda found: found.leader is not None, "a leader")
    assert found.leader is not None
    victim = cluster.servers[found.leader]
    before = [writer.wrote for writer in writers]
    victim.kill()
    display.did(
        f"kill -9 node {victim.node}",
        f"kill -9 node {victim.node}, the leader, after {sum(before)} writes",
    )
    found = display.watch(lambda found: found.leader not in (None, victim.node), "a new leader")
    display.say(f"node {found.leader} leads epoch {found.epoch}")
    # Two: the one that was under way may have been accepted before the kill.
    display.watch(
        lambda _: all(w.wrote >= n + 2 for w, n in zip(writers, before, strict=True)),
        "writes are answered again",
    )
    longest_s = max(writer.longest_s for writer in writers)
    display.say(f"a write took {longest_s * 1000:.0f} ms at most; no writer got an error")
    display.pause(CALM_S)
    return victim.node


def lose_a_member(display: Display[Any], members: Members) -> str:
    victim = members.members[0]
    members.kill(victim)
    display.did(f"kill -9 {victim}", f"kill -9 {victim}, the oldest member; the writers go on")
    display.watch(lambda _: victim not in members.members, f"{victim} is removed")
    display.pause(CALM_S)
    return victim


def _get_them_back(
    display: Display[ClusterStatus], cluster: LocalCluster, members: Members, node: int, name: str
) -> None:
    cluster.start(node)
    display.did(f"node {node} is back", f"node {node} is back, with its journal")
    get_it_back(display, members, name)

    def caught_up(found: ClusterStatus) -> bool:
        leading, status = found.leading, found.answers.get(node)
        return bool(leading and status and status.position >= leading.position - 100)

    found = display.watch(caught_up, f"node {node} catches up")
    display.say(f"node {node} has caught up: message {found.answers[node].position}")
    display.pause(CALM_S)


def get_it_back(display: Display[Any], members: Members, name: str) -> None:
    """Start a member again."""
    members.start(name)
    display.watch(lambda _: name in members.members, f"{name} is back")


def end(display: Display[Any], url: str, writers: list[Writer], folder: Path) -> dict[str, Any]:
    for writer in writers:
        writer.ask_to_stop()
    for writer in writers:
        writer.join()
    # The last request is at one place in the order too: all answers are of the same moment.
    with closing(Asker(url, "judge", folder / TRACES)) as judge:
        tables = judge.ask({}, members=len(MEMBERS))
    shutil.copytree(folder / TRACES, folder / JUDGED)
    about = ("", f"topic:{GROUP}")  # the answers are in the traces too, and are not judged here
    events = [event for event in read_traces(folder / JUDGED) if event.group in about]
    wrong = [*what_is_wrong(writers, tables), *what_is_broken(events)]
    for complaint in wrong:
        display.say(f"FAILED: {complaint}")
    found = {
        "writes": sum(writer.wrote for writer in writers),
        "longest_write_ms": round(max(writer.longest_s for writer in writers) * 1000),
        "events": len(events),
        "violations": wrong,
    }
    if wrong:
        return found
    processes = {event.process for event in events}
    display.say(f"{found['writes']} writes, each answered as it must be")
    display.say(f"the three replicas hold the same {len(json.loads(tables[MEMBERS[0]]))} pairs")
    display.say(
        f"the traces of {len(processes)} programs, {len(events)} events, keep P1 to P5, views "
        "and suspicion"
    )
    return found


def what_is_broken(events: list[TraceEvent]) -> list[str]:
    """Return the promises of the group that these events break, as two judges see it."""
    return [*map(str, groups.check(events)), *map(str, memberships.check(events))]


def what_is_wrong(writers: list[Writer], tables: dict[str, str]) -> list[str]:
    """Return complaints about the results. `tables`: of each member, as JSON."""
    wrong = [f"{w.name}: {w.error}" for w in writers if w.error is not None]
    wrong += [complaint for writer in writers for complaint in writer.wrong]
    right = {key: value for writer in writers for key, value in writer.table.items()}
    for member, table in sorted(tables.items()):
        found = json.loads(table)
        different = [k for k in sorted(right | found) if right.get(k) != found.get(k)]
        if different:
            wrong.append(f"the table of {member} is wrong in {len(different)} pairs: {different}")
    return wrong
