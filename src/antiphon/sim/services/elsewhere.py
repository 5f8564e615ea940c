"""The same runs in other processes, with the same results if the service is deterministic.

Every one has another PYTHONHASHSEED, so that sets of text have another order, another environment,
time zone and language, and works in another folder. None of that can be changed within a process.
Their hash seeds are always the same, so a difference is found again.

Another process finds the service by its name: it must be a class or a function at the top of a
module, or of a program that begins its work behind `if __name__ == "__main__":`, as for
`multiprocessing`; or a `functools.partial` of one.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pickle
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

from antiphon.sim.event_loop.guard import guarded
from antiphon.sim.services.group_world import MakeService, Plan, differ, shown
from antiphon.sim.services.one_run import Ran, run
from antiphon.sim.services.states import restored_difference

PROCESSES = 4
"""Two processes have the same order of two words half of the time."""

MAIN = "__main__"
IMPORTED_MAIN = "__mp_main__"
"""The name of a program that is loaded as a module, as in `multiprocessing`."""

_ZONES = ("UTC0", "AAA-14", "BBB12", "CCC-5:45")
_LANGUAGES = ("C", "C.UTF-8", "de_CH.UTF-8", "tr_TR.UTF-8")


class CannotLoad(Exception):  # noqa: N818
    """Another process does not find the service, for the reason in the text."""


class _Wanted(NamedTuple):
    """The first message to a process: the service, and where its code is."""

    pickled: bytes  # the service
    modules: tuple[tuple[str, str], ...]  # with the user's code: name, file
    folder: str  # where it works


class Elsewhere:
    """The other processes."""

    def __init__(self, service: MakeService, modules: Sequence[ModuleType]) -> None:
        """Start the processes. Raise `CannotLoad` if they do not find the service."""
        wanted = _wanted(service, modules)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for number in range(PROCESSES):
                self._processes.append(_started(number))
                folder = os.path.abspath(os.sep) if number % 2 else os.getcwd()
                _send(self._processes[-1], wanted._replace(folder=folder))
            for process in self._processes:
                if trouble := _receive(process):
                    raise CannotLoad(trouble)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, plan: Plan) -> list[Ran]:
        for process in self._processes:
            _send(process, plan)
        return [_receive(process) for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def _wanted(service: MakeService, modules: Sequence[ModuleType]) -> _Wanted:
    try:
        pickled = pickle.dumps(service)
    except Exception as error:
        raise CannotLoad(str(error)) from error
    files = []
    for module in modules:
        file = getattr(module, "__file__", None) or ""
        if module.__name__ == MAIN and not _is_importable_program(file):
            raise CannotLoad(f'{file or "the program"} has no if __name__ == "__main__":')
        files.append((module.__name__, file))
    return _Wanted(pickled, tuple(files), "")


def _is_importable_program(file: str) -> bool:
    """Return whether loading the program again does not do its work again."""
    try:
        program = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(isinstance(part, ast.If) and _is_for_main(part.test) for part in program.body)


def _is_for_main(test: ast.expr) -> bool:
    """Return whether it compares `__name__` with `"__main__"`, in any spelling."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = {ast.unparse(left), ast.unparse(right)}
            return sides == {"__name__", repr(MAIN)}
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_is_for_main, values))
        case _:
            return False


def _started(number: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    language = _LANGUAGES[number]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(number + 1)}
    environment |= {"TZ": _ZONES[number], "LANG": language, "LC_ALL": language}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "antiphon.sim.services.elsewhere"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:  # for instance in a program with an embedded Python
        raise CannotLoad(f"no other Python can be started: {error}") from error


def _send(process: subprocess.Popen[bytes], what: Any) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(what, process.stdin)
        process.stdin.flush()
    except BrokenPipeError:
        raise _ended(process) from None


def _receive(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    try:
        return pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise _ended(process) from None


def _ended(process: subprocess.Popen[bytes]) -> CannotLoad:
    return CannotLoad(f"the other process ended: exit {process.wait()}")


# -- Findings --------------------------------------------------------------------------------------


def difference(service: MakeService, found: Sequence[Ran]) -> str:
    """Return how the outcomes of the first process and another one differ, for runs without a
    finding in this one; empty if all agree."""
    first, *others = found
    for number, other in enumerate(others, 2):
        if told := _difference(service, first, other):
            return (
                f"processes differ: {told} in a process with PYTHONHASHSEED=1 and in one with "
                f"PYTHONHASHSEED={number}: look for the order of a set, a hash of text, an "
                "address, the time zone, the language, a file"
            )
    return (
        f"processes differ: in others than this one: {first.violation}" if first.violation else ""
    )


def _difference(service: MakeService, one: Ran, other: Ran) -> str:
    for mine, its in zip(one.outcomes, other.outcomes, strict=False):
        if differ(mine.outcome, its.outcome):
            return f"{mine.command!r} came to {shown(mine.outcome)} and to {shown(its.outcome)}"
    if one.violation != other.violation:
        lines = [(ran.violation or "nothing is wrong").split("\n")[0] for ran in (one, other)]
        return f"what was found is: {lines[0]}; and: {lines[1]};"
    with guarded():
        return restored_difference(service, one.state, other.state)


# -- In the other process --------------------------------------------------------------------------


def main() -> None:
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # the user's code may use them to read and print
        os.dup2(nothing, descriptor)

    def answer(what: Any) -> None:
        pickle.dump(what, answers)
        answers.flush()

    wanted: _Wanted = pickle.load(requests)
    try:
        modules = [_load(name, file) for name, file in wanted.modules]
        service: MakeService = pickle.loads(wanted.pickled)
    except BaseException as error:
        answer(f"{type(error).__name__}: {error}")
        return
    os.chdir(wanted.folder)
    answer("")
    while True:
        try:
            plan = pickle.load(requests)
        except EOFError:
            return
        answer(run(service, plan, modules)._replace(story=[], history=[]))


def _load(name: str, file: str) -> ModuleType:
    if name == MAIN:
        loaded = ModuleType(IMPORTED_MAIN)
        vars(loaded).update(runpy.run_path(file, run_name=IMPORTED_MAIN))
        sys.modules[MAIN] = sys.modules[IMPORTED_MAIN] = loaded
        return loaded
    try:
        return importlib.import_module(name)
    except ImportError:
        _found_packages(name)
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _found_packages(name: str) -> None:
    """Add empty packages, where a module was loaded from its file alone, as pytest may do."""
    parts = name.split(".")[:-1]
    for end in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = []
        sys.modules.setdefault(package.__name__, package)


if __name__ == "__main__":
    main()
