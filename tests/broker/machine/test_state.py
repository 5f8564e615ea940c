"""Whatever is in the state is written by the methods of its own class, or by its own module.

The sources are read, as in `tests/test_imports.py`: so it is not only true of what tests run.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import antiphon.broker.machine
from antiphon.broker.machine.machine import Broker

BROKER = Path(antiphon.broker.machine.__file__).parents[1]
MACHINE = BROKER / "machine"

CHANGES = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
    *("remove", "setdefault", "sort", "take", "take_first", "update"),
}
"""The methods of lists, dicts, sets and ranges that change them."""


class Write(NamedTuple):
    """An attribute that is changed: `receiver.attribute = ...`, `del receiver.attribute[...]`,
    `receiver.attribute.append(...)` and the like."""

    line: int
    receiver: str  # as it stands in the source
    attribute: str
    method: str  # that changes it; empty: it is assigned to, or something in it is


def writes(tree: ast.AST) -> Iterator[Write]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                pass
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                targets = [target]
            case ast.For(target=target) | ast.withitem(optional_vars=ast.expr() as target):
                targets = [target]
            case ast.Call(func=ast.Attribute(attr="heappush" | "heappop" | "heapify"), args=args):
                targets = args[:1]
            case ast.Call(func=ast.Attribute(value=changed, attr=method)) if method in CHANGES:
                yield from _to(changed, method)
                continue
            case _:
                continue
        for target in targets:
            yield from _to(target)


def _to(target: ast.expr, method: str = "") -> Iterator[Write]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _to(one, method)
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    if isinstance(target, ast.Attribute):
        yield Write(target.lineno, ast.unparse(target.value), target.attr, method)


def declared(tree: ast.Module) -> set[str]:
    """Return the attributes of the classes in this module."""
    found = {w.attribute for w in writes(tree) if w.receiver == "self" and not w.method}
    for one in ast.walk(tree):
        if isinstance(one, ast.ClassDef):
            fields = (line.target for line in one.body if isinstance(line, ast.AnnAssign))
            found |= {field.id for field in fields if isinstance(field, ast.Name)}
    return found


def methods_of_parts() -> dict[str, set[str]]:
    """Return for each part of the state the methods that its own class has."""
    return {
        name: {method for method in vars(type(part)) if not method.startswith("__")}
        for name, part in vars(Broker()).items()
        if inspect.getmodule(type(part)).__name__.startswith(antiphon.broker.machine.__name__)
    }


def foreign(source: str) -> list[str]:
    """Return what this module of the machine writes to that is not of its own classes."""
    tree = ast.parse(source)
    own, parts = declared(tree), methods_of_parts()
    return [
        f"{w.line}: {w.receiver}.{w.attribute}"
        for w in writes(tree)
        if w.receiver != "self"
        and w.attribute not in own
        and w.method not in parts.get(w.attribute, ())
    ]


@pytest.mark.parametrize(
    "path", sorted(MACHINE.rglob("*.py")), ids=lambda p: str(p.relative_to(MACHINE))
)
def test_what_is_in_the_state_is_written_by_its_own_class(path: Path) -> None:
    assert foreign(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "path",
    sorted({*BROKER.rglob("*.py"), *(BROKER.parent / "sim").rglob("*.py")} - {*MACHINE.rglob("*")}),
    ids=lambda p: str(p.relative_to(BROKER.parent)),
)
def test_nobody_else_writes_to_the_state(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [w for w in writes(tree) if re.search(r"\b_?broker\b", w.receiver)]
    assert [w for w in inside if w.method not in methods_of_parts().get(w.attribute, ())] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("b.position += 1", "b.position"),
        ("session.phase = after", "session.phase"),
        ("member.late, member.acked = 1, 2", "member.late"),
        ("session.consumers[3] = consumer", "session.consumers"),
        ("del b.producers[name]", "b.producers"),
        ("b.producers.pop(name)", "b.producers"),
        ("b.pending.delayed[3] = parked", "b.pending.delayed"),
        ("b.groups.unsettled[name] = None", "b.groups.unsettled"),
        ("group.departed.append(member)", "group.departed"),
        ("queue.takers[key].assigned.clear()", "queue.takers[key].assigned"),
        ("taker.assigned.take(1, 2)", "taker.assigned"),
        ("for session.node in nodes: pass", "session.node"),
        ("heapq.heappush(queue.held, span)", "queue.held"),
        ("b.queues[name].reasons.add(1, 2, why)", "b.queues[name].reasons"),
    ],
)
def test_a_planted_write_is_found(line: str, found: str) -> None:
    assert foreign(line)[0] == f"1: {found}"


@pytest.mark.parametrize(
    "line",
    [
        "b.topics.add(subscription)",
        "b.deadlines.add(3, SESSION, 7)",
        "b.groups.touch(name)",
        "found.append(b.position)",
        "known = b.producers.get(name)",
        "class A:\n def f(self): self.x = 1\n def g(self, other): other.x = 2",
    ],
)
def test_what_is_allowed_is_not_complained_about(line: str) -> None:
    assert foreign(line) == []


def test_the_parts_of_the_state_are_known() -> None:
    assert {"sessions", "topics", "queues", "groups", "pending"} <= set(methods_of_parts())
