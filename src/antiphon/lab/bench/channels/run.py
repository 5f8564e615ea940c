"""`antiphon bench channels`: what is measured of channels, by its name on the command line."""

from __future__ import annotations

import argparse

from antiphon.lab.bench.channels import growth, speed, views

MEASUREMENTS = {"speed": speed.run, "views": views.run, "members": growth.run}


def run(args: argparse.Namespace) -> int:
    """Measure what is asked for."""
    return MEASUREMENTS[args.what](args)
