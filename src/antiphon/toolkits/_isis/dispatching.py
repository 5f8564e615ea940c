"""A thread that handles events one at a time, with room for some that wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from antiphon.toolkits._groups.process import logger

WAITING_MAX = 10_000
"""So many events may wait; then whoever puts waits, too."""

Item = TypeVar("Item")


class Dispatcher(Generic[Item]):
    """Handles items in their order on a thread of its own. What `handle` raises is logged. While a
    handler waits for something that only comes behind other items (`waiting`), any number of them
    may wait."""

    def __init__(self, handle: Callable[[Item], object], name: str) -> None:
        self._handle = handle
        self._name = name
        self._items: deque[Item] = deque()
        self._news = threading.Condition()
        self._closed = False
        self._waits = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is called by a handler."""
        return threading.current_thread() is self._thread

    def put(self, item: Item) -> None:
        """Have an item handled; wait for room."""
        with self._news:
            self._news.wait_for(
                lambda: self._closed or self._waits or len(self._items) < WAITING_MAX
            )
            self._items.append(item)
            self._news.notify_all()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The handler waits inside this."""
        if not self.is_here:
            yield
            return
        with self._news:
            self._waits = True
            self._news.notify_all()
        try:
            yield
        finally:
            self._waits = False

    def close(self) -> None:
        """Drop what waits, and end once the handler has returned."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if not self.is_here:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._closed or self._items)
                if self._closed:
                    return
                item = self._items.popleft()
                self._news.notify_all()
            try:
                self._handle(item)
            except Exception:
                logger.exception("%s: a routine raised", self._name)
