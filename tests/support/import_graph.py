"""What the modules of the package import, read from their sources."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def package_sources() -> dict[str, str]:
    """Return the source of each module by its full name."""
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def imports(tree: ast.AST, modules: Iterable[str]) -> Iterator[str]:
    """Yield the full names of the imported modules; for `from a import b`, `a.b` if that is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            full_names = (f"{origin}.{alias.name}" for alias in node.names)
            yield from {full if full in modules else origin for full in full_names}


def modules_at_run_time(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which of these modules each of them imports when it is loaded or called: not what it
    imports for its types alone, nor the packages that it is in."""
    return {
        module: set(imports(_WithoutTypes().visit(ast.parse(source)), sources)) & set(sources)
        for module, source in sources.items()
    }


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return nodes that lead to each other, in order, the first again as the last; [] if there are
    none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


class _WithoutTypes(ast.NodeTransformer):
    """Removes what stands below `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> list[ast.stmt] | ast.AST:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)
