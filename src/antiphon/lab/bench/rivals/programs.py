"""Finds the servers of other systems, or fetches them without root.

A program on `PATH` is taken, or one next to this Python, where wheels put programs. Otherwise, with
`fetch`, the distribution's package and the packages that it needs and that are not installed are
unpacked into the user's cache (`~/.cache/antiphon/peers`), once; nothing is installed. A program
that cannot be had is a `ResourceAllocationError` with the reason and a way to get it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from antiphon.errors import ResourceAllocationError
from antiphon.spark.java import cache_folder

INSTALLED = "/usr/lib/rabbitmq/bin"
"""Comes before `PATH`: Debian's scripts of RabbitMQ's name there work for its own user alone."""

_WITHIN = ("usr/lib/rabbitmq/bin", "usr/bin")
_ERLANG = "usr/lib/erlang"


class Program(NamedTuple):
    """A program of another system, and how to start it."""

    path: str
    env: dict[str, str]  # its environment


def find(name: str, package: str, fetch: bool) -> Program:
    """Return the program `name`; `package` is the distribution's package that has it."""
    folders = [INSTALLED, os.environ.get("PATH", ""), str(Path(sys.executable).parent)]
    if found := shutil.which(name, path=os.pathsep.join(folders)):
        return Program(found, dict(os.environ))
    root = cache_folder() / "peers" / package
    if fetch and not root.exists():
        _fetch(package, root)
    if found := shutil.which(name, path=_paths(root)):
        return Program(found, _env(root))
    raise ResourceAllocationError(
        f"there is no {name} on PATH; install it, or fetch the distribution's package {package} "
        "with --fetch"
    )


def _paths(root: Path) -> str:
    return os.pathsep.join(str(root / folder) for folder in _WITHIN)


def _env(root: Path) -> dict[str, str]:
    libraries = os.pathsep.join(map(str, root.glob("usr/lib/*-linux-gnu*")))
    path = os.pathsep.join([_paths(root), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "LD_LIBRARY_PATH": libraries}


def _fetch(package: str, root: Path) -> None:
    """Fetch all or nothing: a folder that exists is complete."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ResourceAllocationError(
            f"--fetch knows Debian's packages only, and here is no apt-get; install {package} "
            "so that its programs are on PATH"
        )
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        packages, unpacked = Path(folder, "packages"), Path(folder, "unpacked")
        packages.mkdir()
        _run(packages, "apt-get", "download", *_missing(package))
        for file in sorted(packages.glob("*.deb")):
            _run(packages, "dpkg-deb", "-x", str(file), str(unpacked))
        _move_erlang(unpacked, root)
        unpacked.rename(root)


def _missing(package: str) -> list[str]:
    """Return the package and those that it needs and that are not installed."""
    plan = _run(Path.cwd(), "apt-get", "install", "-s", "--no-install-recommends", package)
    return [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]


def _move_erlang(unpacked: Path, root: Path) -> None:
    """Correct the folder that Erlang's starter believes it is in."""
    starter = unpacked / _ERLANG / "bin" / "erl"
    if starter.exists():
        text = starter.read_text()
        starter.write_text(text.replace(f"ROOTDIR=/{_ERLANG}", f"ROOTDIR={root / _ERLANG}"))


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise ResourceAllocationError(
            f"{' '.join(command[:2])} failed ({said}); if its lists are old or empty, run "
            "apt-get update as root"
        )
    return done.stdout
