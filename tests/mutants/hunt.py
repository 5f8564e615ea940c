"""Simulate seeds with whatever source is on the path until one fails: `hunt.py FIRST COUNT`.

With `programs` behind it, only seeds that have programs count; with `groups`, only those whose
programs are members of groups; with `local`, only those with local contexts; with `log`, only seeds
without programs; with `peers`, channels are simulated, and with `peer-logs` the servers on them.
Ends with `FOUND`, which nothing else does: that a source cannot even be run proves nothing.
"""

import sys
from typing import Any

from antiphon.sim.peer_log import run as log_run
from antiphon.sim.peer_log import world as logs
from antiphon.sim.peers import plan as channels
from antiphon.sim.peers import run as channel_run
from antiphon.sim.plan import draw_plan
from antiphon.sim.run import run_plan

FOUND = 42

first, count = int(sys.argv[1]), int(sys.argv[2])
which = sys.argv[3:]
seed, number = first, 0
kinds: dict[str, tuple[Any, Any]] = {
    "peers": (channels.draw_plan, channel_run.run_plan),
    "peer-logs": (logs.draw_log_plan, log_run.run_plan),
}
draw, run = kinds.get(" ".join(which), (draw_plan, run_plan))
while number < count:
    plan = draw(seed)
    seed += 1
    if which == ["programs"] and plan.messaging is None:
        continue
    if which == ["groups"] and (plan.messaging is None or not plan.messaging.groups):
        continue
    if which == ["log"] and plan.messaging is not None:
        continue
    if which == ["local"] and not plan.local:
        continue
    number += 1
    result = run(plan)
    if result.violation:
        print(f"sim, {number} seeds, {seed - 1}: {result.violation}")
        sys.exit(FOUND)
print(f"sim, {count} seeds: nothing found")
