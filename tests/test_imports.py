"""The import graph: a room knows only the rooms that its rule names, and pure rooms stay pure.

A room is a folder of the package (or one of the single modules at its top). The sources are read,
not imported, so an import inside a function counts like any other.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

ERRORS = {"errors", "_version", "_names"}
WORDS = ERRORS | {"model", "model.selectors"}
BYTES = WORDS | {"formats", "formats.protocol"}
LOG = BYTES | {"log", "log.roles"}
JOURNAL = LOG | {"journal"}
MACHINE_ROOMS = {"broker.machine"} | {
    f"broker.machine.{room}" for room in ("sessions", "consumers", "queues", "groups")
}
MACHINE = LOG | MACHINE_ROOMS
HOME = MACHINE | {"broker.dispatch", "broker.home"}
DRIVER = JOURNAL | HOME | {"driver"}
SERVER = DRIVER | {"io", "server"}
CLIENT = BYTES | {"api.protocol", "api.messages", "api.operations"}
FRONTS = CLIENT | {"api", "api.face", "api.waiting"}
API = FRONTS | {"io", "api.classic"}
PROGRAMS = ERRORS | {"antiphon", "aio"}
"""What a program of a user may import."""
BLOCKS = PROGRAMS | WORDS | {"formats", "blocks", "blocks.pure"}
PEERS = BYTES | {"peers.layers", "peers.membership", "peers.stack"}
CHANNELS = PEERS | {"peers.channel", "peers.discovery", "io", "io.peers"}
PIPELINES = (
    PROGRAMS | BYTES | {"api.messages", "terminal", "spark", "spark.source", "spark.archive"}
)
SIMULATED = DRIVER | PEERS | {"checkers", "api.protocol", "blocks.pure"}
SIMULATION = {
    "sim",
    "sim.cluster",
    "sim.peers",
    "sim.programs",
    "sim.judges",
    "sim.services",
    "sim.event_loop",
}
COMMANDS = {"*"}
"""Everything but `cli` and `lab`, which nobody imports."""

MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "_names": set(),
    "errors": set(),
    "model": ERRORS,
    "model.selectors": WORDS,
    "formats": BYTES,
    "formats.protocol": BYTES,
    "log": LOG,
    "log.roles": LOG,
    "journal": LOG,
    "broker": set(),
    "broker.machine": MACHINE,
    "broker.machine.sessions": MACHINE,
    "broker.machine.consumers": MACHINE,
    "broker.machine.queues": MACHINE,
    "broker.machine.groups": MACHINE,
    "broker.dispatch": MACHINE,
    "broker.home": HOME,
    "driver": DRIVER,
    "checkers": BYTES,
    "io": BYTES | {"journal", "log", "io.rules"},
    "io.rules": ERRORS,
    "io.peers": BYTES | {"io"},
    "server": SERVER,
    "api": API | {"server"},
    "api.protocol": BYTES,
    "api.messages": CLIENT | {"api"},
    "api.operations": CLIENT | {"api"},
    "api.waiting": CLIENT | {"api"},
    "api.face": CLIENT | {"api"},
    "api.classic": API,
    "antiphon": PROGRAMS | API,
    "aio": ERRORS | {"api"},
    "blocks": BLOCKS | {"blocks.threads", "blocks.targets", "blocks.aio"},
    "blocks.pure": WORDS | {"formats", "blocks"},
    "blocks.targets": ERRORS | {"blocks"},
    "blocks.operations": BLOCKS,
    "blocks.threads": BLOCKS | {"blocks.operations"},
    "blocks.aio": BLOCKS | {"blocks.operations"},
    "peers": PROGRAMS | FRONTS | CHANNELS,
    "peers.channel": PEERS | {"api.protocol"},
    "peers.discovery": PROGRAMS | WORDS | {"io"},
    "peers.layers": PEERS,
    "peers.membership": PEERS,
    "peers.stack": PEERS,
    "sim": SIMULATED | SIMULATION,
    "sim.cluster": SIMULATED | SIMULATION,
    "sim.peers": SIMULATED | SIMULATION,
    "sim.programs": SIMULATED | SIMULATION,
    "sim.judges": SIMULATED | SIMULATION,
    "sim.services": SIMULATED | SIMULATION,
    "sim.event_loop": SIMULATION,
    "spark": PIPELINES,
    "spark.source": PIPELINES,
    "spark.archive": PIPELINES,
    "spark.audit": PIPELINES | {"spark.traces"},
    "spark.patterns": PIPELINES,
    "spark.traces": PIPELINES,
    "terminal": ERRORS,
    "reports": {"_version", "antiphon", "terminal"},
    "pyspark_antiphon": {"spark.source"},
    "__main__": {"cli"},
    "cli": COMMANDS,
    "lab": set(),
    "lab.bench": COMMANDS | {"lab", "cli"},
    "lab.bench.channels": COMMANDS | {"lab.bench", "cli"},
    "lab.bench.rivals": COMMANDS | {"lab.bench", "cli"},
    "lab.chaos": COMMANDS,
    "lab.demo": COMMANDS | {"lab.chaos", "cli"},
    "lab.experiments": COMMANDS | {"lab.bench"},
    "lab.experiments.packing": COMMANDS | {"lab.bench", "lab.experiments"},
}

PURE = (
    {"model", "model.selectors", "formats", "formats.protocol"}
    | {"log", "log.roles", "journal", "checkers"}
    | MACHINE_ROOMS
    | {"broker.dispatch", "broker.home"}
    | {"driver", "io.rules", "api.protocol", "blocks.pure"}
    | {"peers.layers", "peers.membership", "peers.stack", "peers.channel"}
)
IMPURE = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "pathlib",
    "secrets",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


def test_every_room_keeps_to_its_rule() -> None:
    assert violations(package_sources()) == []


def test_every_room_has_a_rule_and_every_rule_a_room() -> None:
    rooms = {room_of(module) for module in package_sources()}
    assert set(MAY_IMPORT) == rooms


def test_no_folder_of_the_sources_or_of_the_tests_is_crowded() -> None:
    tests = Path(__file__).parent
    modules = [*SOURCE.rglob("*.py"), *tests.rglob("*.py")]
    own = (path for path in modules if path.name not in ("__init__.py", "conftest.py"))
    count = Counter(path.parent.relative_to(tests.parent).as_posix() for path in own)
    assert {folder: modules for folder, modules in count.items() if modules > 16} == {}


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("antiphon.log.x", "import antiphon.io.tcp", "log may not import antiphon.io.tcp"),
        ("antiphon.log.x", "from antiphon import cli", "log may not import antiphon.cli"),
        ("antiphon.io.x", "import antiphon.sim.net", "io may not import antiphon.sim.net"),
        ("antiphon.io.x", "import antiphon.broker.home.x", "io may not import antiphon.broker"),
        ("antiphon.sim.x", "import antiphon.io.tcp", "sim may not import antiphon.io.tcp"),
        ("antiphon.api.x", "import antiphon.broker.home.q", "api may not import antiphon.broker"),
        ("antiphon.spark.x", "import antiphon.log.entries", "spark may not import antiphon.log"),
        ("antiphon.blocks.threads.x", "import antiphon.api.sync", "may not import antiphon.api"),
        (
            "antiphon.broker.machine.x",
            "import antiphon.broker.home.home",
            "broker.machine may not import antiphon.broker.home.home",
        ),
        (
            "antiphon.broker.dispatch.x",
            "import antiphon.broker.home.home",
            "broker.dispatch may not import antiphon.broker.home.home",
        ),
        (
            "antiphon.blocks.pure.x",
            "from antiphon.blocks.threads import host",
            "blocks.pure may not import antiphon.blocks.threads",
        ),
        ("antiphon.server.x", "import antiphon.lab.chaos.x", "may not import antiphon.lab"),
        ("antiphon.cli.x", "import antiphon.lab.chaos.x", "may not import antiphon.lab"),
        ("antiphon.formats.x", "def f():\n import os.path", "pure, but imports os.path"),
        ("antiphon.broker.home.x", "from time import monotonic", "pure, but imports time"),
        ("antiphon.log.x", "import random\nrandom.random()", "pure, but uses random.random"),
        ("antiphon.log.x", "from random import choice", "pure, but uses random.choice"),
        ("antiphon.log.x", "from random import Random\nRandom()", "Random() without a seed"),
        ("antiphon.formats.x", "from uuid import uuid4", "pure, but uses uuid.uuid4"),
        ("antiphon.formats.x", "import uuid", "pure, but imports uuid"),
        ("antiphon.api.protocol.x", "import time", "pure, but imports time"),
        ("antiphon.formats.x", "open('f')", "pure, but calls open()"),
        ("antiphon.journal.x", "import os", "pure, but imports os"),
        ("antiphon.driver.x", "import asyncio", "pure, but imports asyncio"),
        ("antiphon.driver.x", "import antiphon.server.x", "driver may not import antiphon.server"),
        ("antiphon.journal.x", "import antiphon.io.tcp", "journal may not import antiphon.io.tcp"),
        ("antiphon.lab.bench.x", "from rich.table import Table", "only antiphon.terminal.screen"),
        ("antiphon.lab.bench.x", "import rich", "only antiphon.terminal.screen may import"),
        ("antiphon.io.x", "print(name)", "prints; call antiphon.terminal.lines"),
        ("antiphon.io.x", "import sys\nsys.stdout.write(name)", "prints; call antiphon.terminal"),
        ("antiphon.terminal.screen", "print(name)", "prints; call antiphon.terminal.lines"),
        ("antiphon.misplaced", "", "belongs to no room"),
        ("antiphon.log.x", "from . import y", "relative import"),
    ],
)
def test_a_planted_bad_import_is_caught(module: str, source: str, complaint: str) -> None:
    (found,) = violations({module: source, "antiphon.cli": ""})
    assert module in found
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("antiphon.log.x", "from random import Random\ndef f(chance: Random): ..."),
        ("antiphon.log.x", "import random\nrandom.Random(7).random()"),
        ("antiphon.formats.x", "from uuid import UUID"),
        ("antiphon.sim.programs.x", "import antiphon.api.protocol.conversation"),
        ("antiphon.sim.cluster.x", "from antiphon.journal import journal"),
        ("antiphon.journal.x", "from antiphon.formats import frames"),
        ("antiphon.io.tcp", "import os, socket"),
        ("antiphon.spark.x", "import antiphon\nfrom antiphon.formats import trace"),
        ("antiphon.cli.x", "import antiphon.sim.run"),
    ],
)
def test_what_is_allowed_is_not_complained_about(module: str, source: str) -> None:
    assert violations({module: source}) == []


def package_sources() -> dict[str, str]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def violations(sources: dict[str, str]) -> list[str]:
    """Return one sentence for each thing that a module imports or does against the rules."""
    return [
        f"{module}: {complaint}"
        for module, source in sources.items()
        for complaint in complaints(module, ast.parse(source), set(sources))
    ]


def complaints(module: str, tree: ast.Module, modules: set[str]) -> Iterator[str]:
    if room_of(module) not in MAY_IMPORT:
        yield "belongs to no room; give it a rule in MAY_IMPORT"
        return
    for imported in imports(tree, modules):
        if imported.startswith("."):
            yield "relative import; write it in full"
        elif imported.split(".")[0] == "antiphon" and not may_import(module, imported):
            yield f"{room_of(module)} may not import {imported}"
        elif imported.split(".")[0] == "rich" and module != "antiphon.terminal.screen":
            yield f"only antiphon.terminal.screen may import {imported}: rich reads texts as markup"
        elif is_pure(module) and imported.split(".")[0] in IMPURE:
            yield f"is pure, but imports {imported}"
    if module != "antiphon.terminal.lines" and any(map(prints, ast.walk(tree))):
        yield "prints; call antiphon.terminal.lines, which escapes what comes from outside"
    if is_pure(module):
        yield from impure_uses(tree)


def prints(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="print")):
            return True
        case ast.Attribute(
            value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"),
            attr="write" | "writelines" | "buffer",
        ):
            return True
    return False


def room_of(module: str) -> str:
    """Return the room with the longest name that `module` is in: `broker.home` for
    `antiphon.broker.home.home`."""
    path = module.removeprefix("antiphon.")
    while path not in MAY_IMPORT and "." in path:
        path = path.rpartition(".")[0]
    return path


def is_pure(module: str) -> bool:
    return room_of(module) in PURE


def may_import(module: str, imported: str) -> bool:
    own, other = room_of(module), room_of(imported)
    allowed = MAY_IMPORT[own]
    if other == own or other in allowed:
        return True
    return "*" in allowed and other.split(".")[0] not in {"cli", "lab"}


def imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Yield the full names of the imported modules; for `from a import b`, `a.b` if that is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            full_names = (f"{origin}.{alias.name}" for alias in node.names)
            yield from {full if full in modules else origin for full in full_names}


def impure_uses(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="random", names=names):
                yield from (
                    f"is pure, but uses random.{n.name}" for n in names if n.name != "Random"
                )
            case ast.ImportFrom(module="uuid", names=names):
                yield from (f"is pure, but uses uuid.{n.name}" for n in names if n.name != "UUID")
            case ast.Import(names=names) if any(n.name == "uuid" for n in names):
                yield "is pure, but imports uuid"
            case ast.Attribute(value=ast.Name(id="random"), attr=name) if name != "Random":
                yield f"is pure, but uses random.{name}"
            case ast.Call(func=ast.Name(id="Random") | ast.Attribute(attr="Random"), args=[]):
                yield "is pure, but makes a Random() without a seed"
            case ast.Call(func=ast.Name(id="open")):
                yield "is pure, but calls open()"
