"""`antiphon experiment`: says what is missing before anything that needs it is imported."""

from __future__ import annotations

import argparse

from antiphon.spark import session


def groups(args: argparse.Namespace) -> int:
    session.require("antiphon experiment")
    from antiphon.experiments import groups

    return groups.run(args)


def packing(args: argparse.Namespace) -> int:
    session.require("antiphon experiment")
    from antiphon.experiments import packing

    return packing.run(args)
