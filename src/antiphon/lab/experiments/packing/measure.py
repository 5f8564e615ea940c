"""The measurement behind `antiphon experiment packing` and `antiphon bench packing`.

Three servers without stable storage, three members, and a publisher for each packing policy
(`api/protocol/packing.py`), which send from JBora's sources (`lab/experiments/packing/plan.py`).
The policies take turns, round by round, so that other load on the machine affects all of them; hill
climbing has time to itself. The events of a run are handed on at once, so that those of two runs
are never in memory.

`cpu_percent` is that of the publisher and the server it is connected to, as a part of one core:
JBora's "replica" is a program and its daemon. `cpu_us` is the processor time of all processes for
one message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from antiphon.lab.bench.servers import Servers
from antiphon.lab.experiments.evaluation import Row
from antiphon.lab.experiments.packing.plan import MEMBERS, SERVERS, SOURCES, Plan
from antiphon.lab.experiments.processes import ClientProcesses, Done, Run
from antiphon.terminal.screen import Progress

WARM_S = 0.2
EVERY_S = 0.25
"""A point of a curve over time."""

Take = Callable[[str, str, Done], None]
"""With the names of the source and the policy."""


def measure(plan: Plan, take: Take) -> None:
    with (
        Progress() as progress,
        ExitStack() as stack,
    ):
        bar = progress.add_task("starting", total=len(plan.degrees))
        clients = ClientProcesses(stack, Servers(stack, SERVERS, "memory"))
        clients.grow(MEMBERS)
        for source in plan.degrees:
            progress.update(bar, description=source)
            _in_turns(clients, plan, source, take)
            with clients.publisher(plan.climbing) as work:
                run = Run(f"{source}-climbing", SOURCES[source], plan.climbing_s, watched=True)
                take(source, plan.climbing, work(run))
            progress.advance(bar)


def _in_turns(clients: ClientProcesses, plan: Plan, source: str, take: Take) -> None:
    with ExitStack() as stack:
        policies = plan.in_turns(source)
        works = {policy: stack.enter_context(clients.publisher(policy)) for policy in policies}
        for work in works.values():
            work(Run("warm", SOURCES[source], WARM_S))
        for number in range(plan.rounds):
            for policy, work in works.items():
                run = Run(f"{source}-{policy}-{number}", SOURCES[source], plan.seconds)
                take(source, policy, work(run))


def facts(source: str, policy: str, done: Done) -> Row:
    """Return the facts of a run, without the times of its messages."""
    messages = len(done.sent.times)
    seconds = max(d.times[-1] for d in done.delivered) - done.sent.times[0]
    return {
        "source": source,
        "policy": policy,
        "members": len(done.delivered),
        "sent": messages,
        "messages_per_pack": messages / max(1, done.packs),
        "cpu_us": done.cpu_s / messages * 1e6,
        "cpu_percent": (done.sent.cpu_s + done.leader_cpu_s) / seconds * 100,
    }
