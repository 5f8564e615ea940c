"""The `antiphon` command: `commands.py` knows all of them, a file carries out one or a few."""

from antiphon.cli.commands import main

__all__ = ["main"]
