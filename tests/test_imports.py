"""The import graph: a layer knows only what DESIGN allows, and pure modules stay pure.

The sources are read, not imported, so an import inside a function counts like any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# Layer -> the layers it may import, besides itself. "antiphon" is the package's public face.
BASE = {"errors", "_version"}
SHOWN = {"output", "screen"}  # the only ones that print
CORE = BASE | {"formats"}
BROKER = CORE | {"core"}
IO = BROKER | {"broker"} | SHOWN
API = CORE | {"core", "io"}  # never the broker's insides
PUBLIC = BASE | {"antiphon", "aio", "api"}
EVERYTHING = IO | PUBLIC | {"io", "sim", "blocks", "spark", "console"}
MAY_IMPORT = {
    "_version": set(),
    "errors": set(),
    "output": set(),
    "screen": {"output"},
    "formats": BASE,
    "core": CORE,
    "broker": BROKER,
    "io": IO,
    "sim": IO,
    "api": API,
    "antiphon": BASE | {"aio", "api"},
    "aio": BASE | {"api"},
    "blocks": PUBLIC | {"formats"},
    "spark": PUBLIC | {"formats"} | SHOWN,
    "console": EVERYTHING - {"spark"},
    "bench": EVERYTHING,
    "chaos": EVERYTHING,
    "demo": EVERYTHING | {"chaos", "demo_member", "demo_report"},
    "demo_report": PUBLIC | {"demo_member", "spark"},
    "demo_member": PUBLIC | {"output"},
    "doctor": BASE | {"spark"} | SHOWN,
    "experiments": EVERYTHING | {"bench"},
    "trace_show": EVERYTHING,
    "group_cli": EVERYTHING,
    "pubsub_cli": PUBLIC | {"output"},
    "pyspark_antiphon": {"spark"},
    "__main__": {"cli"},
    "cli": EVERYTHING
    | {"bench", "chaos", "demo", "doctor", "experiments", "group_cli", "pubsub_cli", "trace_show"}
    | {"cli_bench", "cli_parts"},
    "cli_bench": {"api", "cli_parts"},
    "cli_parts": {"output", "spark"},
}

PURE_LAYERS = {"formats", "core", "broker"}
# Pure modules that stand in other layers; `sim` may import these too.
PURE_MODULES = (
    "antiphon.api.conversation",
    "antiphon.io.journal",
    "antiphon.blocks.calls",
    "antiphon.blocks.errors",
    "antiphon.blocks.passive",
    "antiphon.blocks.service",
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


def test_the_package_keeps_to_its_layers() -> None:
    assert violations(package_sources()) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("antiphon.core.x", "import antiphon.io.tcp", "core may not import antiphon.io.tcp"),
        ("antiphon.core.x", "from antiphon import cli", "core may not import antiphon.cli"),
        ("antiphon.io.x", "import antiphon.sim.net", "io may not import antiphon.sim.net"),
        ("antiphon.sim.x", "import antiphon.io.tcp", "sim may not import antiphon.io.tcp"),
        ("antiphon.api.x", "import antiphon.broker.q", "api may not import antiphon.broker.q"),
        ("antiphon.spark.x", "import antiphon.core.log", "spark may not import antiphon.core.log"),
        ("antiphon.blocks.x", "import antiphon.io.tcp", "blocks may not import antiphon.io.tcp"),
        ("antiphon.formats.x", "def f():\n import os.path", "pure, but imports os.path"),
        ("antiphon.broker.x", "from time import monotonic", "pure, but imports time"),
        ("antiphon.core.x", "import random\nrandom.random()", "pure, but uses random.random"),
        ("antiphon.core.x", "from random import choice", "pure, but uses random.choice"),
        ("antiphon.core.x", "from random import Random\nRandom()", "Random() without a seed"),
        ("antiphon.formats.x", "from uuid import uuid4", "pure, but uses uuid.uuid4"),
        ("antiphon.formats.x", "import uuid", "pure, but imports uuid"),
        ("antiphon.api.conversation_x", "import time", "pure, but imports time"),
        ("antiphon.formats.x", "open('f')", "pure, but calls open()"),
        ("antiphon.io.journal_x", "import os", "pure, but imports os"),
        ("antiphon.io.journal_x", "import antiphon.io.tcp", "pure, but imports antiphon.io.tcp"),
        ("antiphon.bench.x", "from rich.table import Table", "only antiphon.screen may import"),
        ("antiphon.bench.x", "import rich", "only antiphon.screen may import"),
        ("antiphon.io.x", "print(name)", "prints; call antiphon.output"),
        ("antiphon.io.x", "import sys\nsys.stdout.write(name)", "prints; call antiphon.output"),
        ("antiphon.screen", "print(name)", "prints; call antiphon.output"),
        ("antiphon.misplaced", "", "belongs to no layer"),
        ("antiphon.core.x", "from . import y", "relative import"),
    ],
)
def test_a_planted_bad_import_is_caught(module: str, source: str, complaint: str) -> None:
    (found,) = violations({module: source, "antiphon.cli": ""})
    assert module in found
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("antiphon.core.x", "from random import Random\ndef f(chance: Random): ..."),
        ("antiphon.core.x", "import random\nrandom.Random(7).random()"),
        ("antiphon.formats.x", "from uuid import UUID"),
        ("antiphon.sim.x", "import antiphon.api.conversation"),
        ("antiphon.sim.x", "import antiphon.io.journal_x"),
        ("antiphon.sim.x", "from antiphon.io import journal_x"),
        ("antiphon.io.journal_x", "from antiphon.formats import wire"),
        ("antiphon.io.tcp", "import os, socket"),
        ("antiphon.spark.x", "import antiphon\nfrom antiphon.formats import trace"),
        ("antiphon.cli", "import antiphon.sim.net"),
    ],
)
def test_what_is_allowed_is_not_complained_about(module: str, source: str) -> None:
    assert violations({"antiphon.io.journal_x": "", module: source}) == []


def package_sources() -> dict[str, str]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def violations(sources: dict[str, str]) -> list[str]:
    """One sentence for each thing a module imports or does against the rules."""
    return [
        f"{module}: {complaint}"
        for module, source in sources.items()
        for complaint in complaints(module, ast.parse(source), set(sources))
    ]


def complaints(module: str, tree: ast.Module, modules: set[str]) -> Iterator[str]:
    if layer_of(module) not in MAY_IMPORT:
        yield "belongs to no layer; give it one in MAY_IMPORT"
        return
    for imported in imports(tree, modules):
        if imported.startswith("."):
            yield "relative import; write it in full"
        elif imported.split(".")[0] == "antiphon" and not may_import(module, imported):
            yield f"{layer_of(module)} may not import {imported}"
        elif imported.split(".")[0] == "rich" and module != "antiphon.screen":
            yield f"only antiphon.screen may import {imported}: rich takes texts for markup"
        elif is_pure(module) and not is_pure_import(imported):
            yield f"is pure, but imports {imported}"
    if module != "antiphon.output" and any(map(prints, ast.walk(tree))):
        yield "prints; call antiphon.output, which makes harmless what comes from outside"
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


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def is_pure(module: str) -> bool:
    return layer_of(module) in PURE_LAYERS or module.startswith(PURE_MODULES)


def may_import(module: str, imported: str) -> bool:
    own, other = layer_of(module), layer_of(imported)
    return other == own or other in MAY_IMPORT[own] or (own == "sim" and is_pure(imported))


def is_pure_import(imported: str) -> bool:
    if imported.split(".")[0] == "antiphon":
        return is_pure(imported) or layer_of(imported) in BASE
    return imported.split(".")[0] not in IMPURE


def imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Full names of the imported modules; of `from a import b`, `a.b` if that is a module."""
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
