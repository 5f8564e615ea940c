"""Public classes name as their module the package where users find them, not the file.

So their names are short in error texts and `help()`, and their pickles outlive moves of modules.
"""

import sys
from collections.abc import Iterable

PACKAGES = {
    *("antiphon", "antiphon.aio", "antiphon.blocks", "antiphon.blocks.aio"),
    *("antiphon.peers", "antiphon.peers.aio"),
}


def adopt(package: str, names: Iterable[str]) -> None:
    """Set the module of the classes with these names to the package, except those of another
    package."""
    module = sys.modules[package]
    for name in names:
        public = getattr(module, name)
        if isinstance(public, type) and public.__module__ not in PACKAGES:
            public.__module__ = package
