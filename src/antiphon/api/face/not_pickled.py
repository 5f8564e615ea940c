"""Objects that live in one process: they hold connections and threads."""

from __future__ import annotations

from typing import NoReturn


class NotPickled:
    """Something that refuses to be pickled, with a word that helps."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: connect inside the task")
