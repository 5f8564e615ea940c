"""Objects that live in one process: they hold connections and threads."""

from __future__ import annotations

from typing import NoReturn


class NotPickled:
    """An object that refuses to be pickled, with an error text that helps."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: connect inside the task")
