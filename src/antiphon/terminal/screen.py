"""Tables, progress bars and other moving output of a terminal: the only place that imports rich.

Promise: no text is markup. rich takes `[red]`, `[/y]` and `:warning:` in a plain text for styles
and pictures, and passes control characters on; here a text is shown as it is, but for the
characters that `lines.harmless` escapes. A style is given apart from the text (`styled`).

A screen that is not a terminal is wide: a program that reads it cuts lines by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as _Progress
from rich.status import Status
from rich.table import Table
from rich.text import Text

from antiphon.terminal.lines import harmless

__all__ = ["Columns", "Group", "Progress", "Screen", "Table", "live", "styled", "track"]

WIDTH = 160

Item = TypeVar("Item")


class Screen(Console):
    """Where to print; every text that rich is given comes to `render_str`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        if not self.is_terminal:
            self.width = WIDTH

    def render_str(self, text: str, **options: Any) -> Text:
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(harmless(text), **options | plain)

    @contextmanager
    def doing(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a text while the block runs; the block may change it by the function that it
        gets."""
        with Status(styled(text), console=self) as status:
            yield lambda text: status.update(styled(text))


def styled(text: str, style: str = "") -> Text:
    return Text(harmless(text), style)


def live(screen: Screen) -> Live:
    """Return a display whose `update` replaces what it shows."""
    return Live(console=screen)


class Progress(_Progress):
    """A bar for each task, on stderr; with `counted` it shows the numbers of done and of all
    items."""

    def __init__(
        self, *, counted: bool = False, transient: bool = True, disable: bool = False
    ) -> None:
        done = MofNCompleteColumn() if counted else TaskProgressColumn()
        columns = (_Description(), BarColumn(), done, TimeRemainingColumn())
        screen = Screen(stderr=True)
        super().__init__(*columns, console=screen, transient=transient, disable=disable)


class _Description(ProgressColumn):
    def render(self, task: Task) -> RenderableType:
        return styled(task.description, "progress.description")


def track(
    items: Iterable[Item], what: str, *, total: float | None = None, disable: bool = False
) -> Iterator[Item]:
    """Yield the items one by one, and show a bar meanwhile."""
    with Progress(transient=False, disable=disable) as progress:
        yield from progress.track(items, total=total, description=what)
