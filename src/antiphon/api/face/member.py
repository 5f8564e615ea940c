"""Members of groups, as programs see them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from antiphon.api.face.consumer import ConsumerFace
from antiphon.api.messages.properties import PropertyValue
from antiphon.api.operations.member import MemberCore
from antiphon.model.conflicts import ConflictRelation
from antiphon.model.views import View


class MemberFace(ConsumerFace):
    """A member of a group (`join`): it gets the group's messages, its views (`ViewMessage`) and its
    suspicions (`SuspicionMessage`), in one order, the same for all members.

    It receives as a consumer does. Its loop ends after the view that removes it, which is delivered
    last. The end of its `with` block closes it.
    """

    _core: MemberCore

    @property
    def name(self) -> str:
        """Its name, unique in the group."""
        return self._core.name

    @property
    def view(self) -> View:
        """The current view: the last one that was delivered to this member."""
        return self._core.view

    @property
    @abstractmethod
    def initial_state(self) -> Any:
        """The state that this member takes over, as a readable binary stream; None if no member
        had one to hand out. It waits until the state is here; with asyncio, it is awaited.

        Raise `ConnectionLostError` if every member that had the state failed while handing it
        out. The stream is closed with the member."""

    @abstractmethod
    def multicast(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> Any:
        """Send a message to all members, and return when a majority of the servers has it.

        `tag` and `key`: the group's conflict relation decides by them which messages must be in one
        order. Raise the errors of `Producer.send`."""

    @abstractmethod
    def multicast_async(
        self,
        body: Any,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, PropertyValue] | None = None,
    ) -> Any:
        """Send a message to all members, and return a `SendFuture` as soon as there is room in the
        window of unanswered messages. The arguments are those of `multicast`. Raise the errors of
        `Producer.send_async`: an error of the servers is in the future."""

    @abstractmethod
    def remove(self, *names: str) -> Any:
        """Remove members from the group, as of the view that this member has: a member that joined
        later under one of these names is not meant, and a name that is not in the group is no
        error. Return when the request has its place in the order.

        Raise `ValueError` if one of them cannot be a name, and `IllegalStateError` if this member
        is closed or was removed itself."""

    @abstractmethod
    def invite(self, name: str, durable: bool = False) -> Any:
        """Make `name` a member before it joins. For a durable member the servers keep all messages
        from here on; another one is suspected until it joins. Raise `ValueError` if this cannot be
        a name, and `IllegalStateError` if this member is closed or was removed."""

    @abstractmethod
    def set_conflict(self, relation: ConflictRelation) -> Any:
        """Give the group another conflict relation, from this place of its order on. Raise
        `TypeError` if this is not one, and `IllegalStateError` if this member is closed or was
        removed."""

    @abstractmethod
    def leave(self) -> Any:
        """Leave the group, even if this member is durable, and close. Leaving twice is no error.
        Raise `IllegalStateError` in a forked process."""

    @abstractmethod
    def close(self) -> Any:
        """Close this member: a durable one becomes inactive and stays in the view, another one
        leaves the group. Loops end, and calls that wait for a message return None. Closing twice is
        no error. Raise `IllegalStateError` in a forked process."""
