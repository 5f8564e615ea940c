"""A stream under many kills: `python -m tests.spark.support.soak_writing ROUNDS [SEED]`.

In each round the driver is killed at a step of a batch, and meanwhile servers are killed and
started again, one after the other. At the end each row must be there once.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from random import Random

import antiphon
from tests.process.support.cluster import Cluster
from tests.spark.support.stepping import STEPS, plan
from tests.spark.support.streams import Program, Reader, add_file, folders

WAIT_S = 120.0


def soak(rounds: int, chance: Random, folder: Path) -> None:
    with Cluster(folder / "cluster") as cluster:
        cluster.start()
        with antiphon.connect(cluster.url) as context:
            reader = Reader(context)
            add_file(folder / "files", 0)
            for batch in range(1, rounds + 1):
                add_file(folder / "files", batch)
                step = chance.choice(STEPS)
                program = Program(cluster.url, folder)
                plan(folder / "plan", step, batch, f"kill {program.group}")
                kills = _kill_servers(cluster, chance, program)
                assert program.end() == -signal.SIGKILL
                print(f"round {batch}: driver killed at {step}, {kills} servers", flush=True)
            assert Program(cluster.url, folder).end() == 0
            reader.check(rounds + 1)
    print(f"{len(reader.seen)} rows, each once")


def _kill_servers(cluster: Cluster, chance: Random, program: Program) -> int:
    """As long as the program runs; returns how many."""
    kills = 0
    while program.running:
        node = chance.choice(list(cluster.servers))
        cluster.kill(node)
        cluster.start(node)
        cluster.wait_whole(WAIT_S)
        kills += 1
    return kills


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as name:
        soak(int(sys.argv[1]), Random(seed), folders(Path(name)))
