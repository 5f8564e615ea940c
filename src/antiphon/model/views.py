"""Views of groups, as servers count them and programs see them."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """The members of a group from one point of its order up to the next change.

    Promise: all members of the group see the same views, numbered 1, 2, 3 and so on, each at the
    same place between the messages.
    """

    id: int
    members: tuple[str, ...]  # in the order in which they joined; empty: not known here any more
    primary: bool = True  # always, of the groups that servers keep

    def __str__(self) -> str:
        return f"{self.id}: {' '.join(self.members)}"
