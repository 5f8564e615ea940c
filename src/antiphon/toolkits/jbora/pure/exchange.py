"""The exchange of states in a view."""

from __future__ import annotations

from typing import Any

from antiphon.toolkits.jbora.pure.events import View


class Exchange:
    """The states that the members of a view have propagated.

    Promise: it is complete with a state of each member, and all of them were sent in the view that
    this process was shown last. States sent in an earlier view are discarded.

    Need: states of a view come in the same order at all members, and views between them, as the
    group's messages do. Then all who go on to the next view have completed the exchange, or none.
    """

    def __init__(self) -> None:
        self._view: View | None = None
        self._states: dict[str, Any] = {}

    def begin(self, view: View) -> None:
        """Take a new view: what came before counts no more."""
        self._view = view
        self._states = {}

    def take(self, sender: str, view_id: str, state: Any) -> None:
        """Take the state of a member, which had been shown the view with this id when it sent it. A
        member that is quicker than this process may have sent it before this one wants it."""
        if self._view is not None and view_id == self.view_id:
            self._states[sender] = state

    @property
    def view_id(self) -> str:
        """The id of the view, as states carry it."""
        assert self._view is not None
        return str(int(self._view.id))

    @property
    def is_complete(self) -> bool:
        return self._view is not None and self._states.keys() >= set(self._view.members)

    def complete(self) -> dict[str, Any]:
        """Return the state of each member, by name, the oldest first, and begin again."""
        assert self._view is not None
        states, self._states = self._states, {}
        return {name: states[name] for name in self._view.members}
