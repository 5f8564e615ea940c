"""Carry out a plan of faults, undo all of them, wait until everything is delivered, and judge."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from antiphon.io.transport import format_address
from antiphon.lab.chaos.coin_program import LEFT, RIGHT, find_coins
from antiphon.lab.chaos.command import (
    Report,
    carry_out,
    show_faults,
    show_violations,
    strike,
)
from antiphon.lab.chaos.faults import FaultInjector
from antiphon.lab.chaos.faulty_links import Links
from antiphon.lab.chaos.judge import ACCOUNTS, GROUP, SHOWN_MAX, Judge, judge_accounts, judge_group
from antiphon.lab.chaos.member import CALM, state_file
from antiphon.lab.chaos.plan import draw_plan
from antiphon.lab.chaos.processes import Programs, Servers
from antiphon.lab.chaos.program import Spec
from antiphon.terminal.lines import say

TOPICS = ("topic:chaos.a", "topic:chaos.b")
QUEUE = "queue:chaos"
EVERYWHERE = (*TOPICS, QUEUE)
REPAIR_S = 60.0


def run(args: argparse.Namespace) -> int:
    """Carry out `antiphon chaos`, and return its exit code: 1 if there are violations."""
    if args.peers is not None:
        from antiphon.lab.chaos.channels import run as of_channels

        return of_channels.run(args)

    def chaos(seed: int, folder: Path) -> Report:
        servers = Servers(args.servers, folder, args.storage, args.contexts)
        return Chaos(seed, args.seconds, servers, folder).run()

    return carry_out(args, chaos, _print)


def _print(report: Report) -> None:
    show_faults(report)
    group = report["group"]
    facts = (
        f"{report['acknowledged']} messages were acknowledged to their senders, "
        f"{report['deliveries']} delivered, {report['redelivered']} of these marked redelivered; "
        f"the longest pause was {report['longest_pause_ms']} ms. In the group {group['deliver']} "
        f"messages were delivered, {group['view']} views, {group['suspect']} suspicions. "
        f"{report['transfers']} transfers between accounts were committed"
    )
    say(facts)
    none = "nothing was lost, nothing came twice unmarked, nothing out of order"
    show_violations(report, 4 * SHOWN_MAX, none)


class Chaos:
    """One run: processes, faults, and the judgement."""

    def __init__(self, seed: int, seconds: float, servers: Servers, folder: Path) -> None:
        self._seed = seed
        self._seconds = seconds
        self._folder = folder
        shape = (len(servers.servers), servers.storage, servers.contexts)
        self._plan = draw_plan(seed, seconds, *shape)
        self._servers = servers
        self._complaints: list[str] = []
        self._began = time.monotonic()

    def run(self) -> dict[str, Any]:
        addresses = {node: server.address for node, server in self._servers.servers.items()}
        with Links(addresses) as self._links, self._servers:
            self._servers.connect_by(self._links)
            self._servers.start()
            with Programs(self._cast(), self._folder) as self._programs:
                injector = FaultInjector(self._servers, self._links, self._programs, self._say)
                self._begin()
                strike(self._plan, self._seconds, injector.inject)
                injector.repair()
                self._say("everything is repaired")
                self._finish()
        events = self._programs.events()
        judge = Judge(events)
        counts = judge.counts()
        return {
            "seed": self._seed,
            "seconds": round(time.monotonic() - self._began, 1),
            "servers": len(self._servers.servers),
            "storage": self._servers.storage,
            "contexts": self._servers.contexts,
            "faults": dict(sorted(injector.injected.items())),
            "sent": counts["sent"],
            "acknowledged": counts["acknowledged"],
            "deliveries": counts["delivered"],
            "redelivered": counts["again"],
            "longest_pause_ms": round(judge.longest_pause_s * 1000),
            "group": {
                kind: sum(event.kind == kind and event.group == GROUP for event in events)
                for kind in ("view", "suspect", "withdraw", "remove", "sent", "deliver")
            },
            "transfers": sum(e.kind == "acknowledge" and e.group == ACCOUNTS for e in events),
            "violations": [*judge.violations, *self._complaints],
        }

    @property
    def _url(self) -> str:
        """The URL by which programs find the servers."""
        links = self._links.to_programs.values()
        return "antiphon://" + ",".join(format_address(link.address) for link in links)

    def _cast(self) -> list[Spec]:
        def spec(role: Any, name: str, **rest: Any) -> Spec:
            return Spec(role, name, self._url, str(self._folder), str(self._seed), 1, **rest)

        return [
            spec("acknowledging", "mailbox", consumes="topic:chaos.>", durable=True),
            spec("listening", "archive", consumes=TOPICS[0], durable=True),
            spec("listening", "watcher", consumes="topic:chaos.*"),
            spec("acknowledging", "worker-1", consumes=QUEUE),
            spec("listening", "worker-2", consumes=QUEUE),
            spec("member", "member-1", consumes=GROUP),
            spec("member", "member-2", consumes=GROUP),
            spec("member", "member-3", consumes=GROUP),
            spec("member", "member-4", consumes=GROUP, durable=True),
            spec("outsider", "outsider", to=(GROUP,)),
            spec("coins", "coins-1", consumes=LEFT, to=(RIGHT,)),
            spec("coins", "coins-2", consumes=RIGHT, to=(LEFT,)),
            spec("coins", "coins-3", consumes=LEFT, to=(RIGHT,)),
            spec("publisher", "counter", to=EVERYWHERE, named=True),
            spec("publisher", "chatter", to=EVERYWHERE),
        ]

    @property
    def _publishers(self) -> list[str]:
        specs = self._programs.specs.items()
        return [name for name, spec in specs if spec.role in ("publisher", "outsider")]

    @property
    def _consumers(self) -> list[str]:
        return [name for name in self._programs.specs if name not in self._publishers]

    def _say(self, what: str) -> None:
        line = f"{time.monotonic() - self._began:5.1f} s  {what}"
        say(line, flush=True)

    # -- The course of a run ---------------------------------------------------------------------

    def _begin(self) -> None:
        """Start subscriptions first: they do not get earlier messages."""
        for name in self._consumers:
            self._programs.start(name)
        self._wait(lambda: self._programs.at_work(*self._consumers), "the consumers subscribe")
        for name in self._publishers:
            self._programs.start(name)
        self._say(f"{len(self._servers.servers)} servers and {len(self._programs.specs)} programs")

    def _finish(self) -> None:
        self._wait(
            lambda: self._programs.at_work(*self._programs.specs), "all programs make progress"
        )
        (self._folder / CALM).touch()
        self._complaints += self._programs.end(*self._publishers)
        self._say("the publishers have their answers")
        self._wait(self._all_are_back, "all consumers are connected and make progress")
        # A message that the judge misses now may still come; any other violation stays.
        self._until(lambda: not Judge(self._programs.events()).violations)
        self._until(lambda: not judge_group(self._programs.events()))
        self._complaints += judge_group(self._programs.events())
        self._wait(self._replicas_agree, "all replicas in the group have the same state")
        self._complaints += self._programs.end(*self._consumers)
        self._wait(self._servers.agree, "the servers agree")
        self._wait(
            lambda: self._servers.counted("broker", "sessions") == 0,
            "the servers have forgotten the programs",
        )
        self._say("the programs are gone")
        self._complaints += judge_accounts(self._programs.events(), find_coins(self._url))

    def _replicas_agree(self) -> bool:
        specs = self._programs.specs.values()
        replicas = [spec.name for spec in specs if spec.role == "member" and not spec.durable]
        files = [state_file(self._folder, name) for name in replicas]
        return all(file.exists() for file in files) and len({f.read_text() for f in files}) == 1

    def _all_are_back(self) -> bool:
        return (
            self._servers.counted("dispatcher", "consumers") == len(self._consumers)
            and self._servers.counted("dispatcher", "lagging", "unacknowledged") == 0
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not self._until(condition):
            self._complaints.append(f"waited {REPAIR_S:g} s without success: {what}")

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Return whether a condition came to hold in time."""
        deadline = time.monotonic() + REPAIR_S
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True
