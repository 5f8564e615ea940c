"""The import graph: a room knows only the rooms that its rule names, and pure rooms stay pure.

A room is a folder of the package (or one of the single modules at its top). The sources are read,
not imported, so an import inside a function counts like any other.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.import_graph import (
    SOURCE,
    circle,
    imports,
    modules_at_run_time,
    package_sources,
)

MODEL = {"errors", "model"}
WORDS = MODEL | {"model.selectors"}
BYTES = MODEL | {"formats", "formats.protocol"}
LOG = BYTES | {"log", "log.roles", "log.effects", "log.settings"}
MACHINE_ROOMS = {"broker.machine"} | {
    f"broker.machine.{room}" for room in ("sessions", "consumers", "queues", "groups")
}
MACHINE = BYTES | WORDS | MACHINE_ROOMS | {"log.effects"}
HOME = MACHINE | {"broker.dispatch", "broker.home", "log.clock"}
DRIVER = BYTES | MACHINE_ROOMS | {"broker.home", "journal", "journal.disk"}
NODE = {"log.node", "log.effects", "log.recovered", "log.settings", "log.state_machine"}
"""The log, as those see it who run one."""
API_WORDS = {"api.arguments", "api.modes", "api.signatures"}
VALUES = BYTES | API_WORDS | {"api.protocol", "api.messages"}
PROGRAMS = {"errors", "_names", "antiphon", "aio"}
"""What a program of a user may import."""
LAYERS = MODEL | {"peers.layers", "peers.membership", "peers.stack", "peers.whiteboard"}
PIPELINES = PROGRAMS | {"model", "formats", "spark", "terminal"}
SIMULATED = BYTES | {"checkers", "sim"}
CLUSTERS = SIMULATED | MACHINE_ROOMS | {"log.quorum", "log.effects"}
COMMANDS = {"*"}
"""Everything but `cli` and `lab`, which nobody imports."""

MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "_names": set(),
    "errors": set(),
    "model": MODEL,
    "model.selectors": WORDS,
    "formats": BYTES,
    "formats.protocol": BYTES,
    "log": LOG,
    "log.effects": BYTES,
    "log.roles": BYTES | {"log", "log.effects"},
    "log.settings": set(),
    "journal": BYTES | {"journal.disk", "log.effects", "log.recovered"},
    "journal.disk": MODEL,
    "broker": set(),
    "broker.machine": MACHINE,
    "broker.machine.sessions": MACHINE,
    "broker.machine.consumers": MACHINE,
    "broker.machine.queues": MACHINE,
    "broker.machine.groups": MACHINE,
    "broker.dispatch": MACHINE,
    "broker.home": HOME,
    "driver": DRIVER | NODE,
    "checkers": BYTES,
    "io": BYTES | {"journal.disk", "log.settings", "io.rules"},
    "io.rules": {"errors"},
    "io.peers": BYTES | {"io.frame_reader", "io.rules", "io.transport"},
    "server": DRIVER | NODE | {"_version", "driver", "io"},
    "api.arguments": MODEL,
    "api.modes": set(),
    "api.signatures": set(),
    "api.protocol": BYTES,
    "api.messages": VALUES,
    "api.group_standing": BYTES | {"api.protocol"},
    "api.tracing": VALUES | {"api.group_standing", "io.trace_file"},
    "api.connection": VALUES | {"api.tracing", "io.client_link"},
    "api.urls": VALUES | {"io.client_link", "io.config", "io.transport", "server.embedded"},
    "api.operations": VALUES | WORDS | {"api.group_standing", "api.tracing", "api.connection"},
    "api.options": VALUES | {"api.connection", "api.operations"},
    "api.waiting": VALUES | {"api.connection", "api.operations"},
    "api.face": VALUES | {"api.operations", "api.urls"},
    "api": VALUES
    | {"api.connection", "api.operations", "api.options", "api.urls", "api.waiting", "api.face"}
    | {"api.classic", "io.background_loop", "io.config", "io.line"},
    "api.classic": VALUES
    | {"_version", "api", "api.connection", "api.operations", "api.options", "api.face"},
    "antiphon": PROGRAMS
    | VALUES
    | {"_version", "api", "api.operations", "api.options", "api.face", "api.classic"},
    "aio": {"_names", "api"},
    "blocks": PROGRAMS | {"model", "blocks.errors", "blocks.pure", "blocks.threads", "blocks.aio"},
    "blocks.errors": {"errors"},
    "blocks.pure": MODEL | {"formats", "blocks.errors"},
    "blocks.targets": {"errors", "blocks.errors"},
    "blocks.operations": PROGRAMS | {"model", "blocks.errors", "blocks.pure"},
    "blocks.threads": PROGRAMS | {"model", "peers", "blocks.pure", "blocks.operations"},
    "blocks.aio": PROGRAMS | {"model", "blocks.pure", "blocks.operations"},
    "peers": LAYERS
    | VALUES
    | {"_names", "api.operations", "api.waiting", "api.face", "io.background_loop", "io.malloc"}
    | {"io.trace_file"}
    | {"peers.channel", "peers.discovery", "io.peers"},
    "peers.channel": LAYERS | {"formats", "api.protocol"},
    "peers.log": LAYERS
    | BYTES
    | {"api.protocol", "driver", "journal", "log.clock", "peers.channel"}
    | {"log.effects", "log.settings", "log.state_machine"},
    "peers.server": LAYERS
    | DRIVER
    | {"api.protocol", "driver", "log.settings"}
    | {"peers", "peers.channel", "peers.discovery", "peers.log"},
    "peers.embedded": {"errors", "peers.discovery", "peers.server", "server"},
    "peers.discovery": MODEL | {"aio", "io.transport"},
    "peers.layers": MODEL,
    "peers.membership": MODEL | {"peers.layers"},
    "peers.stack": MODEL | {"peers.layers", "peers.membership", "peers.whiteboard"},
    "peers.whiteboard": MODEL | {"peers.layers"},
    "sim": CLUSTERS
    | {"sim.cluster", "sim.programs", "sim.judges", "sim.services"}
    | {"broker.home", "journal", "log.settings"},
    "sim.cluster": CLUSTERS
    | NODE
    | {"sim.judges", "sim.programs", "broker.home", "driver", "journal", "journal.disk"}
    | {"log.replica"},
    "sim.peers": LAYERS | SIMULATED | {"formats", "peers.channel", "api.protocol"},
    "sim.peer_log": LAYERS
    | SIMULATED
    | {"api.protocol", "formats", "journal", "journal.disk", "log.effects", "log.settings"}
    | {"peers.channel", "peers.log", "sim.cluster", "sim.peers"},
    "sim.programs": CLUSTERS | {"sim.cluster", "sim.judges", "api.protocol"},
    "sim.judges": CLUSTERS | {"sim.cluster"},
    "sim.services": SIMULATED | {"sim.event_loop", "blocks.pure"},
    "sim.event_loop": set(),
    "spark": {"errors"},
    "spark.logs": PIPELINES,
    "spark.source": PIPELINES | {"api.messages", "spark.logs", "spark.archive"},
    "spark.archive": PIPELINES | {"spark.logs"},
    "spark.audit": PIPELINES | {"spark.traces", "spark.audit.channels"},
    "spark.audit.channels": PIPELINES | {"spark.audit", "spark.traces"},
    "spark.patterns": PIPELINES | {"spark.source"},
    "spark.traces": PIPELINES,
    "toolkits": PROGRAMS
    | {"blocks", "model", "peers", "toolkits"}
    | {"peers.channel", "peers.layers", "peers.stack"},
    "toolkits.gcom": PROGRAMS
    | LAYERS
    | {"formats", "io.background_loop", "io.peers", "io.transport"}
    | {"peers", "peers.discovery", "toolkits.gcom.settings", "toolkits.gcom.registry"},
    "toolkits.gcom.registry": MODEL | {"toolkits.gcom.settings"},
    "toolkits.gcom.settings": MODEL,
    "toolkits.jbora": PROGRAMS | {"peers", "toolkits.jbora.pure"},
    "toolkits.jbora.pure": {"errors"},
    "toolkits.jgroups": PROGRAMS
    | LAYERS
    | {"blocks", "blocks.operations", "blocks.pure", "blocks.threads", "peers", "toolkits"},
    "toolkits.objectgroups": PROGRAMS | {"blocks", "blocks.pure", "blocks.threads", "toolkits"},
    "toolkits.eternal": PROGRAMS | {"blocks", "toolkits", "toolkits.eternal.pure"},
    "toolkits.eternal.pure": {"errors", "formats", "blocks.pure"},
    "terminal": set(),
    "reports": {"antiphon", "terminal"},
    "pyspark_antiphon": {"spark.source"},
    "__main__": {"cli"},
    "cli": COMMANDS,
    "lab": set(),
    "lab.bench": COMMANDS | {"cli"},
    "lab.bench.channels": COMMANDS | {"lab.bench"},
    "lab.bench.rivals": COMMANDS | {"lab.bench"},
    "lab.chaos": COMMANDS | {"lab.chaos.channels"},
    "lab.chaos.channels": COMMANDS | {"lab.chaos"},
    "lab.demo": COMMANDS | {"lab.chaos", "lab.chaos.channels", "cli"},
    "lab.experiments": COMMANDS | {"lab.bench"},
    "lab.experiments.packing": COMMANDS | {"lab.experiments", "lab.bench"},
}
"""By room, or by single module: the rooms and single modules that it may import. A module that is
named here has a rule of its own, and whoever may import its folder may not for that reason import
it."""

PURE = (
    {"model", "model.selectors", "formats", "formats.protocol"}
    | {"log", "log.roles", "journal", "checkers"}
    | MACHINE_ROOMS
    | {"broker.dispatch", "broker.home"}
    | {"errors", "log.effects", "log.settings", "journal.disk"}
    | {"driver", "io.rules", "blocks.errors", "blocks.pure", "toolkits.eternal.pure"}
    | API_WORDS
    | {"api.protocol", "api.messages", "api.group_standing"}
    | {"peers.layers", "peers.membership", "peers.stack", "peers.channel", "peers.whiteboard"}
    | {"peers.log"}
    | {"toolkits.gcom.registry", "toolkits.gcom.settings", "toolkits.jbora.pure"}
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


FILE_LINES, FUNCTION_LINES = 600, 70


def test_no_file_and_no_function_is_long() -> None:
    assert [each for module, text in package_sources().items() for each in long(module, text)] == []


def test_a_planted_long_file_and_a_planted_long_function_are_found() -> None:
    lines = "    x = 1\n" * FUNCTION_LINES
    assert not list(long("x", f"def f():\n{lines}"))
    assert list(long("x", f"def f():\n{lines}    y = 1\n")) == ["x.f"]
    assert list(long("x", "y = 1\n" * (FILE_LINES + 1))) == ["x"]


def long(module: str, source: str) -> Iterator[str]:
    """Yield the names of a file and of its functions that are too long."""
    if source.count("\n") > FILE_LINES:
        yield module
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno > FUNCTION_LINES:
                yield f"{module}.{node.name}"


def test_a_pure_room_imports_pure_rooms_only() -> None:
    sources = package_sources()
    found = [
        f"{module} imports {imported}"
        for module, source in sources.items()
        if is_pure(module)
        for imported in imports(ast.parse(source), set(sources))
        if imported.split(".")[0] == "antiphon" and not is_pure(imported)
    ]
    assert found == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(package_modules()) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    assert circle(grouped(package_modules(), layer_of)) == []
    assert circle(grouped(package_modules(), folder_of)) == []


def test_a_planted_circle_of_modules_is_found() -> None:
    planted = {
        "antiphon.io.x": "from antiphon.io import y",
        "antiphon.io.y": "def late():\n    import antiphon.io.z",
        "antiphon.io.z": "import antiphon.io.x",
    }
    assert set(circle(modules_at_run_time(planted))) == set(planted)


def test_a_planted_circle_of_rooms_is_found() -> None:
    planted = {
        "antiphon.io.x": "import antiphon.server.y",
        "antiphon.server.y": "",
        "antiphon.server.z": "import antiphon.io.w",
        "antiphon.io.w": "",
        "antiphon.api.face.x": "import antiphon.api.waiting.y",
        "antiphon.api.waiting.y": "",
        "antiphon.api.waiting.z": "import antiphon.api.w",
        "antiphon.api.w": "import antiphon.api.face.v",
        "antiphon.api.face.v": "",
    }
    modules = modules_at_run_time(planted)
    assert circle(modules) == []
    assert set(circle(grouped(modules, folder_of))) == {"io", "server"}
    assert set(circle(grouped(modules, layer_of))) == {"api.face", "api.waiting", "api.w"}


def test_imports_for_types_alone_make_no_circle() -> None:
    planted = {
        "antiphon.io.x": "if TYPE_CHECKING:\n    import antiphon.io.y",
        "antiphon.io.y": "import antiphon.io.x",
    }
    assert circle(modules_at_run_time(planted)) == []


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
        ("antiphon.api.urls", "import antiphon.server.server", "may not import antiphon.server"),
        ("antiphon.api.sync", "import antiphon.server.embedded", "may not import antiphon.server"),
        ("antiphon.io.x", "import antiphon.journal.reading", "io may not import antiphon.journal"),
        ("antiphon.io.x", "import antiphon.log.node", "io may not import antiphon.log.node"),
        ("antiphon.broker.home.x", "import antiphon.log.settings", "may not import antiphon.log"),
        ("antiphon.api.messages.x", "import antiphon.api.connection", "may not import antiphon"),
        ("antiphon.peers.layers.x", "import antiphon.peers.stack.stack", "may not import"),
        ("antiphon.peers.channel.x", "import antiphon.io.peers.transport", "may not import"),
        ("antiphon.io.peers.x", "import antiphon.peers.stack.stack", "io.peers may not import"),
        ("antiphon.sim.peers.x", "import antiphon.broker.home.home", "sim.peers may not import"),
        ("antiphon.api.messages.x", "import threading", "pure, but imports threading"),
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
        ("antiphon.spark.logs.x", "import antiphon\nfrom antiphon.formats import trace"),
        ("antiphon.api.urls", "from antiphon.server.embedded import acquire"),
        ("antiphon.io.config", "from antiphon.log.settings import Settings"),
        ("antiphon.cli.x", "import antiphon.sim.run"),
    ],
)
def test_what_is_allowed_is_not_complained_about(module: str, source: str) -> None:
    assert violations({module: source}) == []


@cache
def package_modules() -> dict[str, set[str]]:
    return modules_at_run_time(package_sources())


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


def grouped(modules: Mapping[str, set[str]], group_of: Callable[[str], str]) -> dict[str, set[str]]:
    """Return which groups of modules each group imports."""
    groups: dict[str, set[str]] = {}
    for module, imported in modules.items():
        own = group_of(module)
        groups.setdefault(own, set()).update({group_of(other) for other in imported} - {own})
    return groups


def layer_of(module: str) -> str:
    """Return the room of a module, or the module itself if its folder has rooms in it: some of its
    modules stand above these rooms and put them together, others below them."""
    room = room_of(module)
    if room in MACHINE_ROOMS:  # one room in five folders: its state has a part in each
        return "broker.machine"
    has_rooms = any(other.startswith(f"{room}.") for other in MAY_IMPORT)
    return module.removeprefix("antiphon.") if has_rooms else room


def folder_of(module: str) -> str:
    """Return the folder at the top of the package that a module is in."""
    return module.removeprefix("antiphon.").split(".")[0]


def is_pure(module: str) -> bool:
    return room_of(module) in PURE


def may_import(module: str, imported: str) -> bool:
    own, other = room_of(module), room_of(imported)
    allowed = MAY_IMPORT[own]
    if other == own or other in allowed or imported.removeprefix("antiphon.") in allowed:
        return True
    return "*" in allowed and other.split(".")[0] not in {"cli", "lab"}


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
