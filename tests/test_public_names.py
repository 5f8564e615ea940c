"""What programs see is pinned: names, members, signatures, docstrings, and where classes belong.

`public_names.txt` lists all of it, a line a name. After a change that is meant to be, renew it with
`.venv/bin/python -m tests.test_public_names`, and read the difference.
"""

from __future__ import annotations

import ast
import enum
import inspect
import pickle
import pickletools
import re
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest

import antiphon
import antiphon.blocks
import antiphon.blocks.targets.http
import antiphon.blocks.targets.postgres
import antiphon.peers
import antiphon.sim
import antiphon.sim.pytest_plugin
import antiphon.spark
import antiphon.spark.patterns
import antiphon.spark.session
import antiphon.toolkits.eternal
import antiphon.toolkits.gcom
import antiphon.toolkits.isis
import antiphon.toolkits.jbora
import antiphon.toolkits.jgroups
import antiphon.toolkits.objectgroups
import antiphon.toolkits.phoenix
import antiphon.toolkits.transis
from antiphon.api.face.producer import SendFutureFace
from antiphon.api.messages import headers
from antiphon.api.messages.message import _TextHeader
from antiphon.api.messages.sending import outgoing
from antiphon.api.operations.producer import split
from antiphon.model import redelivery

LIST = Path(__file__).with_name("public_names.txt")
HEAVY = {"numpy", "pandas", "pyarrow", "pyspark"}

PACKAGES = (
    antiphon,
    antiphon.aio,
    antiphon.blocks,
    antiphon.blocks.aio,
    antiphon.peers,
    antiphon.peers.aio,
    antiphon.sim,
    antiphon.sim.pytest_plugin,
    antiphon.spark,
    antiphon.spark.session,
    antiphon.spark.patterns,
    antiphon.blocks.targets.http,
    antiphon.blocks.targets.postgres,
    antiphon.toolkits.eternal,
    antiphon.toolkits.gcom,
    antiphon.toolkits.isis,
    antiphon.toolkits.jbora,
    antiphon.toolkits.jgroups,
    antiphon.toolkits.objectgroups,
    antiphon.toolkits.phoenix,
    antiphon.toolkits.transis,
)
PROTOCOLS = {
    *("__aenter__", "__aexit__", "__aiter__", "__await__", "__call__", "__contains__"),
    *("__delitem__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__setitem__"),
}
"""What programs call without naming it."""

INHERITED = (
    *(object, Exception, TimeoutError, tuple, int, str, dict),
    *(enum.IntEnum, msgspec.Struct, MutableMapping),
)
"""Classes of others, whose members are described elsewhere."""


def test_the_public_names_are_these() -> None:
    """If this is meant to be, renew the list: see above."""
    assert LIST.read_text(encoding="utf-8").splitlines() == list(lines())


# -- The list -------------------------------------------------------------------------------------


def lines(*packages: ModuleType) -> Iterator[str]:
    for package in packages or PACKAGES:
        yield f"module {package.__name__}"
        for name in public_names(package):
            yield from described(f"{package.__name__}.{name}", getattr(package, name))
    if not packages:
        yield f"The servers' defaults of a queue: {redelivery.DEFAULT}"


def public_names(package: ModuleType) -> list[str]:
    if hasattr(package, "__all__"):
        return sorted(package.__all__)
    return sorted(
        name
        for name, value in vars(package).items()
        if isinstance(value, type | FunctionType) and name[0] != "_"
        if value.__module__ == package.__name__
    )


def described(path: str, public: Any) -> Iterator[str]:
    if isinstance(public, ModuleType):
        yield f"{path} is a module"
    elif isinstance(public, type):
        base = public_base(public)
        yield f"class {path}" if base is None else f"class {path}({base.__name__})"
        inherited = set() if base is None else set(member_lines(base))
        yield from (line for line in member_lines(public) if line not in inherited)
    else:
        yield shown(path, public)


def public_base(cls: type) -> type | None:
    return next((base for base in cls.__mro__[1:] if is_public(base)), None)


def is_public(cls: type) -> bool:
    return cls.__module__ in {package.__name__ for package in PACKAGES}


def member_lines(cls: type) -> list[str]:
    types = annotations(cls)
    found = sorted(members(cls).items())
    return [f"    {shown(name, member, types.get(name))}" for name, member in found]


def annotations(cls: type) -> dict[str, str]:
    """The types of its attributes, as its source has them."""
    found = {}
    for base in reversed(cls.__mro__):
        for name, annotation in vars(base).get("__annotations__", {}).items():
            found[name] = str(getattr(annotation, "__forward_arg__", annotation))
    return found


def members(cls: type) -> dict[str, Any]:
    """What a program may use of this class, by name."""
    theirs = {name for base in INHERITED if issubclass(cls, base) for name in dir(base)}
    if issubclass(cls, enum.Enum):
        theirs |= PROTOCOLS  # of its metaclass, and another one with each Python
    names = {name for name in dir(cls) if name[0] != "_" or name in PROTOCOLS} - theirs
    names |= {name for name in annotations(cls) if name[0] != "_"}
    found = {name: inspect.getattr_static(cls, name, NO_VALUE) for name in sorted(names)}
    constructor = inspect.getattr_static(cls, "__init__")
    if inspect.isfunction(constructor) and not is_made_by_calls(cls):
        found["__init__"] = constructor
    return found


NO_VALUE = object()


def is_made_by_calls(cls: type) -> bool:
    """Whether programs get objects of this class from calls alone, and do not construct them."""
    doc = getattr(inspect.getattr_static(cls, "__init__"), "__doc__", "") or ""
    return doc.startswith("Not for programs") or issubclass(cls, LIGHT)


LIGHT = SendFutureFace
"""Made for each message: its constructor is in C, and cannot say that it is not for programs."""


def shown(name: str, member: Any, annotation: str | None = None) -> str:
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if isinstance(member, property):
        return f"{name}: {returned(member)}{'' if member.fset is None else ', settable'}"
    if isinstance(member, _TextHeader):
        return f"{name}: str | None, settable"
    if inspect.isfunction(member):
        waits = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
        return f"{'async ' if waits else ''}{name}{signature(member)}"
    typed = name if annotation is None else f"{name}: {annotation}"
    if member is NO_VALUE or inspect.isdatadescriptor(member):
        return typed
    return f"{typed} = {member.value!r}" if isinstance(member, enum.Enum) else f"{typed} = {member}"


def returned(member: property) -> str:
    if not inspect.isfunction(member.fget):
        return "Any"
    return str(inspect.signature(member.fget).return_annotation)


class Raw(str):
    """An annotation as it is written in the code."""

    def __repr__(self) -> str:
        return str(self)


def signature(function: Any) -> str:
    found = inspect.signature(function)
    raw = [p.replace(annotation=unquoted(p.annotation)) for p in found.parameters.values()]
    raw = [p for p in raw if p.name != "self"]
    return str(found.replace(parameters=raw, return_annotation=unquoted(found.return_annotation)))


def unquoted(annotation: Any) -> Any:
    return Raw(annotation) if isinstance(annotation, str) else annotation


def test_the_list_has_types_and_defaults() -> None:
    """Of options, headers and fields too, and what aliases stand for."""
    text = LIST.read_text(encoding="utf-8")
    for excerpt in (
        "connect(url: str | None = None, *, client_id: str | None = None, ",
        "connect_timeout: float = 10.0",
        "priority: int | None = 4",
        "redelivery_delay: float | None = None",
        "    members: tuple[str, ...]",
        "antiphon.SlowPolicy = typing.Literal['spill', 'disconnect', 'drop']",
        "module antiphon.sim.pytest_plugin",
    ):
        assert excerpt in text
    assert "Unpack[" not in text


def test_headers_that_are_left_out_are_those_of_the_list() -> None:
    given = headers.DEFAULT_HEADERS.copy()
    assert split(given)[0] == split({})[0] == 0
    assert outgoing("x", now_ms=0, **split(given)[1]) == outgoing("x", now_ms=0)
    assert given.keys() == headers.SendHeaders.__annotations__.keys()


# -- What must be true of all of it ---------------------------------------------------------------


def everything() -> Iterator[Any]:
    for package in PACKAGES:
        yield pytest.param(package, id=package.__name__)
        for name in public_names(package):
            public = getattr(package, name)
            if isinstance(public, type) or inspect.isroutine(public):
                yield pytest.param(public, id=f"{package.__name__}.{name}")
            if isinstance(public, type):
                yield from members_to_describe(public, f"{package.__name__}.{name}")


def members_to_describe(cls: type, path: str) -> Iterator[Any]:
    for name, member in sorted(members(cls).items()):
        if name in PROTOCOLS or name == "__init__":
            continue
        if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
            yield pytest.param(getattr(cls, name), id=f"{path}.{name}")


@pytest.mark.parametrize("public", list(everything()))
def test_all_that_is_public_has_a_docstring(public: Any) -> None:
    text = inspect.getdoc(public)
    assert text, "say what it promises, what its arguments are, and what it raises"
    assert len(text.split()) > 1, text


def test_every_module_has_a_docstring() -> None:
    sources = sorted((Path(__file__).parent.parent / "src").rglob("*.py"))
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sources}
    assert [path for path, tree in modules.items() if not ast.get_docstring(tree)] == []


def test_every_class_has_a_docstring() -> None:
    """But for those of the fronts, which have the texts that both share, and inner ones."""
    package = Path(__file__).parent.parent / "src/antiphon"
    without = [
        f"{path.relative_to(package)}: {node.name}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name[0] != "_" and not ast.get_docstring(node)
        if not str(path.relative_to(package)).startswith(FRONT_FILES)
    ]
    assert without == []


FRONT_FILES = (
    *("api/sync.py", "api/aio.py", "blocks/threads/", "blocks/aio/"),
    *("peers/sync.py", "peers/aio.py"),
)

PYTHONS = {
    *("Any", "AsyncIterator", "Awaitable", "BaseException", "Callable", "ClassVar", "Ellipsis"),
    *("EllipsisType", "False", "Opened"),
    *("Generator", "IO", "Iterable", "Iterator", "Literal", "Mapping", "None", "Optional", "Self"),
    *("Sequence", "TracebackType", "True", "Unpack"),
}


def test_types_in_signatures_are_exported() -> None:
    exported = {name for package in PACKAGES for name in public_names(package)}
    hints = [line for package in PACKAGES[:2] for line in lines(package) if re.search("[(:]", line)]
    used = {
        name
        for line in hints
        if not line.startswith("class ")
        for name in re.findall(r"(?<![\w.'<])[A-Z]\w*", without_values(line))
    }
    assert used - exported - PYTHONS == set()


def without_values(line: str) -> str:
    line = re.sub(r" = [^,)]*", "", line)
    return line.partition("(")[2] or line.partition(": ")[2]


def asks_a_server(member: Any) -> bool:
    """Whether this call, or property, of the asyncio front waits for an answer."""
    if isinstance(member, property):
        return returned(member).startswith("Awaitable")
    if not inspect.isfunction(member):
        return False
    opens = str(inspect.signature(member).return_annotation).startswith("Opening")
    return opens or inspect.iscoroutinefunction(member)


CLASSIC_OR_LOG = (
    *(antiphon.ConnectionFactory, antiphon.Connection, antiphon.Session, antiphon.LogReader),
    *(antiphon.MessageProducer, antiphon.MessageConsumer),
)
"""They have no counterpart for asyncio, by which one sees what asks a server."""

ASKS_NO_SERVER = re.compile("__init__|create_(.*_)?message|create_topic|set_message_listener")


def calls_that_may_fail() -> Iterator[Any]:
    """All that talks to a server, and reads and writes of messages by type."""
    yield pytest.param(antiphon.aio.connect, id="connect")
    for package in (antiphon, antiphon.aio, antiphon.blocks.aio):
        for name in public_names(package):
            cls = getattr(package, name)
            for member_name, member in (
                sorted(members(cls).items()) if isinstance(cls, type) else ()
            ):
                if member_name not in PROTOCOLS and may_fail(cls, member_name, member):
                    described_as = f"{package.__name__}.{name}.{member_name}"
                    yield pytest.param(getattr(cls, member_name), id=described_as)


def may_fail(cls: type, name: str, member: Any) -> bool:
    if issubclass(cls, antiphon.Message):
        return bool(re.match("read_|write_|[gs]et_(?!object)", name))
    if issubclass(cls, CLASSIC_OR_LOG):
        return inspect.isfunction(member) and not ASKS_NO_SERVER.fullmatch(name)
    return asks_a_server(member)


@pytest.mark.parametrize("call", list(calls_that_may_fail()))
def test_calls_that_may_fail_say_with_what(call: Any) -> None:
    text = " ".join((inspect.getdoc(call) or "").split())
    assert re.search(r"\b[Rr]aises?\b|\bas `[\w.]+` does", text), text


def test_both_fronts_have_the_same_options() -> None:
    """`connect` is a function: each front has its own text."""
    blocking, awaiting = (inspect.getdoc(f.connect) or "" for f in (antiphon, antiphon.aio))
    (options,) = [part for part in blocking.split("\n\n") if part.startswith("Options")]
    assert options in awaiting
    assert blocking.rpartition("\n\n")[2] in awaiting
    for name in antiphon.ConnectOptions.__annotations__:
        assert f"`{name}`" in options


FRONTS = [
    (antiphon, antiphon.aio),
    (antiphon.blocks, antiphon.blocks.aio),
    (antiphon.peers, antiphon.peers.aio),
]
ASYNC = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}
ONE_FRONT_ALONE = {"ReplicatedTable": {"__aiter__", "__iter__", "__setitem__"}}
"""Members, by class, that only one front has, in addition to `__await__`. A table's own copy is
looked at without waiting, in both; `table[key] = value` cannot be awaited."""


def classes_of_both() -> Iterator[Any]:
    for blocking, awaiting in FRONTS:
        for name in awaiting.__all__:
            if isinstance(getattr(blocking, name, None), type):
                pair = getattr(blocking, name), getattr(awaiting, name)
                yield pytest.param(*pair, id=f"{awaiting.__name__}.{name}")


@pytest.mark.parametrize(("blocking", "awaiting"), list(classes_of_both()))
def test_both_fronts_have_the_same_members(blocking: type, awaiting: type) -> None:
    names = {ASYNC.get(name, name) for name in members(blocking)}
    alone = names ^ (members(awaiting).keys() - {"__await__"})
    assert alone == ONE_FRONT_ALONE.get(blocking.__name__, set())


@pytest.mark.parametrize(("blocking", "awaiting"), list(classes_of_both()))
def test_both_fronts_say_the_same(blocking: type, awaiting: type) -> None:
    """One text for both: what is written twice is true once."""
    differ = {
        name
        for name in members(blocking).keys() & members(awaiting).keys() - PROTOCOLS
        if inspect.getdoc(getattr(blocking, name)) != inspect.getdoc(getattr(awaiting, name))
    }
    assert differ == WRITTEN_TWICE.get(blocking.__name__, set())


WRITTEN_TWICE = {"SendFuture": {"add_done_callback"}}
"""Callbacks run on a thread, or on the event loop."""


# -- Where classes belong -------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES[:6], ids=lambda package: package.__name__)
def test_classes_belong_to_the_package_that_exports_them(package: ModuleType) -> None:
    found = [getattr(package, name) for name in package.__all__]
    homes = {cls.__name__: cls.__module__ for cls in found if isinstance(cls, type)}
    assert set(homes.values()) == {package.__name__}, homes


def picklable() -> Iterator[Any]:
    written = antiphon.BytesMessage()
    written.write_int(7)
    text = antiphon.TextMessage("Fire!")
    text.properties["floor"] = 4
    text.reply_to = antiphon.Queue("answers")
    view = antiphon.View(3, ("a", "b"))
    queue = antiphon.Context.create_queue(None, "q", deliveries=3)  # type: ignore[arg-type]
    yield from (antiphon.Topic("t"), queue, antiphon.Group("g"), view, written, text)
    yield antiphon.MapMessage({"a": 1})
    yield antiphon.ViewMessage(view, ("b",))
    yield antiphon.SuspicionMessage(("b",))
    yield antiphon.ConflictRelation.RELIABLE_ATOMIC
    yield antiphon.IllegalStateError("closed")
    yield antiphon.SessionMode.AUTO_ACKNOWLEDGE
    yield from (antiphon.LogBounds(1, 2), antiphon.LogSlice("t", 1, 2, 2))
    yield antiphon.LogPack(1, 2, 0, b"")
    with antiphon.connect("embedded:") as ctx, ctx.join(ctx.create_group("g"), "a") as member:
        member.multicast(text)
        yield from (member.receive(10), member.receive(10))


@pytest.mark.parametrize("value", list(picklable()), ids=lambda value: type(value).__name__)
def test_pickles_name_public_classes_alone(value: Any) -> None:
    """So they can be read when modules have moved."""
    data = pickle.dumps(value, protocol=4)
    strings = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    modules = {text for text in strings if re.fullmatch(r"antiphon(\.\w+)*", text)}
    assert modules <= {"antiphon"}
    assert isinstance(value, type(pickle.loads(data)))


def test_nothing_internal_is_seen_in_objects() -> None:
    """`ctx.<TAB>` shows attributes of objects, too."""
    with antiphon.connect("embedded:") as ctx, ctx.join(ctx.create_group("g"), "a") as member:
        queue = ctx.create_queue("q")
        connection = antiphon.ConnectionFactory("embedded:").create_connection()
        objects = [
            *(ctx, member, queue, connection, ctx.create_producer(), ctx.create_consumer(queue)),
            *(ctx.create_browser(queue), ctx.create_text_message("x"), member.receive(10)),
            connection.create_session(),
        ]
        for one in objects:
            seen = {name for name in dir(one) if name[0] != "_"}
            assert seen <= set(dir(type(one))) | members(type(one)).keys(), type(one)
        connection.close()


# -- Importing stays light ------------------------------------------------------------------------


def test_every_public_name_exists() -> None:
    for package in PACKAGES[:7]:
        assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_importing_antiphon_loads_nothing_heavy() -> None:
    assert modules_loaded_by("import antiphon") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    ask_for_help = (
        "import antiphon.cli\ntry: antiphon.cli.main(['--help'])\nexcept SystemExit: pass"
    )
    assert modules_loaded_by(ask_for_help) & HEAVY == set()


def modules_loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running `code`."""
    report = f"{code}\nimport sys\nprint('loaded', *{{name.split('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(run.stdout.splitlines()[-1].split()[1:])


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
