"""Reports of suspended tasks: a line for each, with what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ASYNCIO = str(Path(asyncio.__file__).parent)


def lines(tasks: Iterable[asyncio.Task[Any]]) -> str:
    told = [f"  {task.get_name()} waits {_what(task)}" for task in tasks]
    return "\n".join(told) or "  nobody: there are no tasks"


def _what(task: asyncio.Task[Any]) -> str:
    frames = list(_frames(task.get_coro()))
    own = [frame for frame in frames if not _is_asyncio(frame)]
    calls = [frame.f_code.co_qualname for frame in frames if _is_asyncio(frame)]
    public = [call for call in calls if _is_public(call)]
    what = f"asyncio.{public[-1]}" if public else _future(getattr(task, "_fut_waiter", None))
    return f"for {what}{_place(own[-1]) if own else ''}"


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames from the task's coroutine inwards, each awaiting the next."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return
        yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _is_asyncio(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(ASYNCIO)


def _is_public(qualified: str) -> bool:
    return all(not part.startswith("_") or part.startswith("__") for part in qualified.split("."))


def _future(future: Any) -> str:
    if future is None:
        return "its turn"
    if isinstance(future, asyncio.Task):
        return f"the end of {future.get_name()}"
    return "asyncio.gather" if "Gathering" in type(future).__name__ else "a future"


def _place(frame: FrameType) -> str:
    file = Path(frame.f_code.co_filename).name
    return f", at {file}:{frame.f_lineno} in {frame.f_code.co_qualname}"
