"""Where the servers that we are measured beside come from, without root.

What is on `PATH` is taken, or beside this Python: wheels put programs there. Otherwise, if `fetch`
is asked for, the distribution's package and all it needs that is not installed are unpacked into
the user's cache (`~/.cache/antiphon/peers`), once; nothing is installed. A program that cannot be
had is a `ResourceAllocationError` that says why, and how to get it.
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
"""Before `PATH`: what Debian has there under RabbitMQ's name is for its own user alone."""

_WITHIN = ("usr/lib/rabbitmq/bin", "usr/bin")
_ERLANG = "usr/lib/erlang"


class Program(NamedTuple):
    path: str
    env: dict[str, str]  # what to start it with


def find(name: str, package: str, fetch: bool) -> Program:
    """The program `name`; `package` is what a distribution calls where it is in."""
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
    """All or nothing: what is there is whole."""
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
    """It, and what it needs that is not installed."""
    plan = _run(Path.cwd(), "apt-get", "install", "-s", "--no-install-recommends", package)
    return [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]


def _move_erlang(unpacked: Path, root: Path) -> None:
    """Erlang's starter names the folder that it thinks to be in."""
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
