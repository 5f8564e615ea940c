"""The bodies of map and stream messages that can only be read: a dict and a list that refuse to be
changed."""

from __future__ import annotations

from typing import Any, NoReturn

from antiphon.errors import MessageNotWriteableError


def _refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
    raise MessageNotWriteableError(
        "the body of a message that was received, or reset, is read-only: change a copy, or call "
        "clear_body() first"
    )


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses every change; its copies and pickles are plain dicts."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list that refuses every change; its copies and pickles are plain lists."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = _refuse
    remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)
