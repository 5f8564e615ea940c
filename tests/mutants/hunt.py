"""Simulate seeds with whatever source is on the path until one fails: `hunt.py FIRST COUNT`."""

import sys

from antiphon.sim.run import run_seed

first, count = int(sys.argv[1]), int(sys.argv[2])
for number, seed in enumerate(range(first, first + count), start=1):
    result = run_seed(seed)
    if result.violation:
        print(f"sim, {number} seeds: {result.violation}")
        sys.exit(1)
print(f"sim, {count} seeds: nothing found")
