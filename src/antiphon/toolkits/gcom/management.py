"""The group management module, and the interface of programs that use it."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Any, Self, TypeVar, cast

from msgspec.structs import replace

from antiphon import ViewMessage
from antiphon.errors import (
    ConfigurationError,
    ConnectionLostError,
    JMSError,
    OutcomeUnknownError,
)
from antiphon.io.peers.security import Tls
from antiphon.io.transport import format_address
from antiphon.peers import Channel, View
from antiphon.peers.discovery.name_service import own_host
from antiphon.toolkits.gcom.names import check_address, lookup, request
from antiphon.toolkits.gcom.settings import (
    Connect,
    GroupSettings,
    Lead,
    Leave,
    Multicast,
    Ordering,
)
from antiphon.toolkits.gcom.stack import stack_of

logger = logging.getLogger("antiphon.toolkits.gcom")

TELL_S = 0.5
"""How often a leader tells the name service of itself."""

ATTEMPT_S = 3.0
"""How long one attempt to join through the leader may take, before the name service is asked
again: perhaps there is another leader by then."""

PAUSE_S = 0.1
"""The pause between two attempts."""

Choice = TypeVar("Choice", bound=StrEnum)


class Client(ABC):
    """A program that uses a group."""

    @abstractmethod
    def deliver(self, message: Any) -> None:
        """Take the next message of the group. Called on a thread of the group's, one message at a
        time; what it raises is logged."""


class Management:
    """A program's place in a group: it creates the group, or joins it, and is in it when this call
    returns.

    `client`: what the messages of the group are handed to, this program's own among them.
    `address`: of the name service, or, while that is down, of any member (`Management.address`
    there). `group`: its name, without blanks and slashes. `ordering`, `multicast`: what the group
    promises if it is new; those of a group that exists win. `name`: of this member, unique in the
    group; the highest one leads. Without one it is a random UUID. `listen` (`HOST:PORT`): where the
    others reach it; without it, where the name service would. `tls`, `plaintext`, `allow_pickle`:
    as for `peers.Channel`. `timeout`: how long joining may take.

    Raises `ConnectionLostError` if nobody answers at the address, `OutcomeUnknownError` if the
    leader, or the member, did not let this process in in time, and `ConfigurationError` for
    arguments that make no sense.
    """

    def __init__(
        self,
        client: Client,
        address: str,
        group: str,
        *,
        ordering: Ordering | str = Ordering.FIFO,
        multicast: Multicast | str = Multicast.RELIABLE,
        name: str | None = None,
        listen: str | None = None,
        tls: Tls | None = None,
        plaintext: bool = False,
        allow_pickle: bool = False,
        timeout: float = 10.0,
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"a Client is needed, which has deliver(message), not {client!r}")
        if not group or "/" in group or "?" in group:
            raise ConfigurationError(f"{group!r} is not the name of a group")
        ordering, multicast = _one_of(Ordering, ordering), _one_of(Multicast, multicast)
        self._client = client
        self._tls = tls
        self._plaintext = plaintext
        self._allow_pickle = allow_pickle
        self._news = threading.Condition()
        self._view: View | None = None
        self._closed = False
        self._listen = listen or format_address((own_host(*check_address(address)), 0))
        wanted = GroupSettings(group, name or str(uuid.uuid4()), "", ordering, multicast, address)
        self._channel, self._own = self._enter(wanted, address, time.monotonic() + timeout)
        self._reporter = threading.Thread(target=self._tell, name=f"gcom {self.name}", daemon=True)
        self._reporter.start()

    # -- For the program -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of this member."""
        return self._channel.name

    @property
    def address(self) -> str:
        """Where others reach this member: by this address they can join without name service."""
        return self._channel.address

    @property
    def ordering(self) -> Ordering:
        """In which order the members of the group are given its messages."""
        return self._own.ordering

    @property
    def multicast(self) -> Multicast:
        """Who gets a message whose sender crashes."""
        return self._own.multicast

    @property
    def view(self) -> View:
        """The members of the group, as this one was told last."""
        with self._news:
            assert self._view is not None
            return self._view

    @property
    def leader(self) -> str:
        """The name of the leader: the highest one of the view."""
        return self.view.leader

    def send(self, message: Any) -> None:
        """Send a message to all members, this one too. Wait while there is no room. Raise
        `IllegalStateError` if this member is closed, and `ConnectionLostError` if it lost its
        group."""
        self._channel.send(message)

    def close(self) -> None:
        """Leave the group: what was sent before leaves, the others get a view without this member.
        Closing twice is no error."""
        with self._news:
            if self._closed:
                return
            self._closed = True
            self._news.notify_all()
        self._reporter.join()
        if self._leads():
            self._request(Leave(self._own.name, self.name, len(self._channel.view.members) == 1))
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- Joining ---------------------------------------------------------------------------------

    def _enter(
        self, wanted: GroupSettings, address: str, deadline_s: float
    ) -> tuple[Channel, GroupSettings]:
        """Create the group or join it; return its settings with this process's place in it."""
        while True:
            found = lookup(address, wanted.name, tls=self._tls, plaintext=self._plaintext)
            try:
                if found is None:
                    return self._create(wanted, address)
                return self._join(wanted, found, address, deadline_s)
            except OutcomeUnknownError as error:
                if time.monotonic() >= deadline_s:
                    raise OutcomeUnknownError(
                        f"{wanted.leader} was not let into {wanted.name!r} in time: {error}. If "
                        "all its members have crashed, NameService.remove forgets it",
                        happened="no",
                    ) from None
            time.sleep(PAUSE_S)

    def _create(self, wanted: GroupSettings, address: str) -> tuple[Channel, GroupSettings]:
        """Create the group. Raise `OutcomeUnknownError` if another process was faster."""
        channel = self._opened(wanted, "peer:at", wanted.leader, time.monotonic() + ATTEMPT_S)
        own = replace(wanted, address=channel.address)
        found = None
        try:
            found = request(address, Connect(own), tls=self._tls, plaintext=self._plaintext)
        finally:
            if found != own:
                channel.close()
        if found != own:
            raise OutcomeUnknownError("somebody else has just created it", happened="no")
        return channel, own

    def _join(
        self, wanted: GroupSettings, found: GroupSettings, address: str, deadline_s: float
    ) -> tuple[Channel, GroupSettings]:
        """Join a group. Raise `OutcomeUnknownError` if its leader did not let this process in."""
        if found.address != address:
            found = self._leader_says(found)
        end_s = min(time.monotonic() + ATTEMPT_S, deadline_s)
        own = replace(found, leader=wanted.leader, names=found.names or wanted.names)
        channel = self._opened(own, f"peer:at/{found.address}", found.leader, end_s)
        return channel, replace(own, address=channel.address)

    def _leader_says(self, found: GroupSettings) -> GroupSettings:
        """Return the settings as the leader has them that the name service knows."""
        try:
            said = lookup(found.address, found.name, tls=self._tls, plaintext=self._plaintext)
        except (ConnectionLostError, ConfigurationError) as error:
            gone = f"its leader {found.leader} is not there: {error}"
            raise OutcomeUnknownError(gone, happened="no") from None
        assert said is not None  # a member knows its group
        return said

    def _opened(self, own: GroupSettings, place: str, leader: str, end_s: float) -> Channel:
        """Return a channel whose events come to this object, once it is in a view with this leader.
        Raise `OutcomeUnknownError` if it is not by then."""
        self._view = None
        channel = Channel(
            stack_of(own.ordering, own.multicast, own.names),
            name=own.leader,
            listen=self._listen,
            tls=self._tls,
            plaintext=self._plaintext,
            allow_pickle=self._allow_pickle,
        )
        members_min = 1 if leader == own.leader else 2
        channel.connect(f"{place}/{own.name}?min={members_min}", _until(end_s))
        channel.set_message_listener(self._receive)
        with self._news:
            is_with = self._news.wait_for(lambda: self._is_with(leader), _until(end_s))
        if not is_with:
            channel.close()
            raise OutcomeUnknownError(f"there was no view with {leader}", happened="no")
        return channel

    def _is_with(self, leader: str) -> bool:
        return self._view is not None and leader in self._view.members

    # -- On other threads ------------------------------------------------------------------------

    def _receive(self, event: Any) -> None:
        """Take a message, or a view, in their order."""
        if isinstance(event, ViewMessage):
            with self._news:
                self._view = cast(View, event.view)
                self._news.notify_all()
        else:
            self._client.deliver(event.body)

    def _tell(self) -> None:
        """Tell the name service of this process whenever it leads, until it is closed."""
        while True:
            if self._leads():
                self._request(Lead(self._own, self._channel.view.members))
            with self._news:
                if self._closed or self._news.wait_for(lambda: self._closed, TELL_S):
                    return

    def _leads(self) -> bool:
        """Whether this process leads the newest view, which the program may not have come to."""
        return not self._channel.closed and self._channel.view.leader == self.name

    def _request(self, what: Lead | Leave) -> None:
        """Tell the name service; it may be down, and is told again if this process still leads."""
        try:
            request(self._own.names, what, tls=self._tls, plaintext=self._plaintext)
        except JMSError as error:
            logger.debug("%s: %s", self.name, error)


def _until(end_s: float) -> float:
    return max(0.0, end_s - time.monotonic())


def _one_of(kind: type[Choice], value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(each.value for each in kind)
        raise ConfigurationError(f"{value!r} is not one of {names}") from None
