"""What a server receives, besides messages."""

from __future__ import annotations

from typing import Any, NamedTuple


class View(NamedTuple):
    """The members of a group up to the next change. `id`: rises at each member, and no two views
    have the same; `members`: the names, the oldest member first; `joined` and `left`: in comparison
    with the view before; `together`: the members that come from the same view as this process, and
    were given the same messages."""

    id: int
    members: tuple[str, ...]
    primary: bool
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    together: tuple[str, ...] = ()

    @property
    def expanded(self) -> bool:
        """Whether members have come, or come back, from elsewhere; it is the same at all members of
        more than one, who all call `propagate` then."""
        return bool(self.joined) or len(self.together) < len(self.members)


class ViewChange(NamedTuple):
    """The group has another view."""

    view: View


class LocalCall:
    """A call of a thread of this process (`Group.local_call`), which waits for the response."""

    __match_args__ = ("body",)

    def __init__(self, body: Any) -> None:
        self.body = body
        self.responded = False

    def __repr__(self) -> str:
        return f"<LocalCall {self.body!r}>"
