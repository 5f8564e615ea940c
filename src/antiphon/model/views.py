"""Views of groups, as servers count them and programs see them."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """The members of a group from one point of its order up to the next change.

    Promise: all members of the group see the same views, numbered 1, 2, 3 and so on (`id`), each at
    the same place between the messages. `members`: their names in the order in which they joined;
    empty if the view is so old that it is not known here any more. `primary`: whether the group can
    go on deciding; always True of the groups that servers keep.
    """

    id: int
    members: tuple[str, ...]
    primary: bool = True

    def __str__(self) -> str:
        return f"{self.id}: {' '.join(self.members)}"
