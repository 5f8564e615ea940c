"""Members of object groups, and their clients."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import antiphon
from antiphon.blocks import Replica, ServiceClient
from antiphon.errors import (
    ConnectionLostError,
    IllegalStateError,
    JMSError,
    OutcomeUnknownError,
)
from antiphon.toolkits._closing import Closing
from antiphon.toolkits.eternal.pure.gateway import (
    LOG,
    Checkpointable,
    IncomingRequestGateway,
    Logged,
)
from antiphon.toolkits.eternal.pure.groups import ObjectGroup, Order
from antiphon.toolkits.eternal.pure.policy import ACTIVE, PASSIVE
from antiphon.toolkits.eternal.replication_manager import MANAGERS, REMOVE_AFTER_S, Reference

TIMEOUT_S = 10.0
"""Seconds that calls wait without a timeout of their own."""

FAREWELL_S = 2.0
"""Seconds that a member that leaves waits for the manager."""

LEAVING_S = 10.0
"""Seconds that a founder waits for members of an earlier group of the same name to leave."""

AGAIN_S = 0.2
"""Seconds until it tries again."""

LEAVE_S = 4.0
"""Seconds that a member has to leave when its factory ends it, or is gone: if most others of its
group or of the cluster are gone, too, it cannot leave in order."""


class Member(Closing):
    """A member of an object group, in this process: an object behind a gateway, which tells the
    manager of the views of the group.

    Factories run theirs with `serve`. A program makes one itself to add it to a group in which
    members run (`ReplicationManager.add_member`): it gives the `group` as the manager returned it.
    Or it gives a name, for a group that the manager does not care for, and says who is the
    `founder`. `name`: of the member. Opening raises `IllegalStateError` if no member hands it the
    state.
    """

    def __init__(
        self,
        ctx: antiphon.Context,
        group: Reference,
        target: Checkpointable,
        name: str | None = None,
        *,
        style: str = ACTIVE,
        founder: bool = False,
        generation: int = 0,
    ) -> None:
        if isinstance(group, ObjectGroup):
            generation, style = group.generation, group.criteria.style
        self.group = group if isinstance(group, str) else group.name
        self._generation = generation
        gateway = IncomingRequestGateway(target, founder, self._generation)
        topic = ctx.create_group(self.group, remove_after=REMOVE_AFTER_S)
        open_replica = partial(Replica, ctx, topic, gateway, name=name, passive=style == PASSIVE)
        self._replica = _when_others_have_left(open_replica) if founder else open_replica()
        if not self._replica.look(lambda gateway: gateway.has_state):
            self._replica.close()
            raise IllegalStateError(f"no member of {self.group} has its state")
        self._manager = ServiceClient(ctx, MANAGERS)
        self._report()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def name(self) -> str:
        """The name of this member."""
        return self._replica.name

    def wait(self) -> None:
        """Wait until this is not a member any more."""
        self._watcher.join()

    def close(self) -> None:
        """Tell the manager, and leave the group. Closing twice is no error."""
        if self._replica.is_member:  # one that was removed has failed
            with suppress(JMSError):  # otherwise it knows by the group's next view
                self._manager.call(("ended", self.group, self.name, ""), FAREWELL_S)
        self._replica.close()
        self._manager.close()

    def _watch(self) -> None:
        """Report each view in which this is the oldest member."""
        try:
            while True:
                self._replica.wait_until(lambda _: self._replica.view != self._reported)
                if self._replica.view.members[:1] == (self.name,):
                    self._report()
                else:
                    self._reported = self._replica.view
        except JMSError:
            return  # this is not a member any more

    def _report(self) -> None:
        """Report the present view, until the manager knows it."""
        while True:
            view = self._replica.view
            try:
                report = ("view", self.group, self._generation, view.id, view.members)
                self._manager.call(report)
            except OutcomeUnknownError:
                continue
            self._reported = view
            return


def _when_others_have_left(
    open_replica: Callable[[], Replica[IncomingRequestGateway]],
) -> Replica[IncomingRequestGateway]:
    """Open the replica of a founder. Members of a deleted group of the same name may still be
    leaving: as long as they are there it cannot join."""
    deadline = time.monotonic() + LEAVING_S
    while True:
        try:
            return open_replica()
        except (IllegalStateError, ConnectionLostError):
            if time.monotonic() > deadline:
                raise
            time.sleep(AGAIN_S)


class ObjectRequestGateway(Closing):
    """The client's side of an object group: `proxy()` looks like one object.

    Each request is carried out once. If the members that have it fail, it goes to others, and the
    program notices nothing but the time.
    """

    def __init__(self, ctx: antiphon.Context, group: Reference) -> None:
        self._client = ServiceClient(ctx, group if isinstance(group, str) else group.name)

    def call(
        self, operation: str, /, *arguments: Any, timeout: float | None = TIMEOUT_S, **named: Any
    ) -> Any:
        """Call an operation, and return its reply, or raise what it raised. Raise
        `OutcomeUnknownError` if no member has replied in time: it may still take effect."""
        return self._client.call((operation, arguments, named), timeout)

    def proxy(self, timeout: float | None = TIMEOUT_S) -> Any:
        """Return the group as one object, whose methods are its operations."""
        return _Proxy(
            lambda operation, *args, **named: self._client.call((operation, args, named), timeout)
        )

    def request_log(self, timeout: float | None = TIMEOUT_S) -> list[Logged]:
        """Return the last requests that the group has carried out, with their replies."""
        return [Logged(*entry) for entry in self._client.call((LOG, (), {}), timeout)]

    def close(self) -> None:
        """Close the client. Closing twice is no error."""
        self._client.close()


class _Proxy:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        return lambda *arguments, **named: self._call(operation, *arguments, **named)


def serve(make: Callable[..., Checkpointable], order: str) -> None:
    """Run one member as its factory has ordered it, until the factory ends it or is gone, with the
    object that `make` returns for the criteria's arguments. `order` is the last argument with which
    the factory has started this program. Exit with the reason if it cannot run or was removed."""
    fields = json.loads(order)
    given = Order(*fields["order"])
    ending = threading.Event()
    opened: list[Member] = []
    threading.Thread(target=_end_with_factory, args=(ending, opened), daemon=True).start()
    try:
        with (
            antiphon.connect(fields["url"]) as ctx,
            Member(
                *(ctx, given.group, make(*given.arguments), given.member),
                style=given.style,
                founder=given.founder,
                generation=given.generation,
            ) as member,
        ):
            opened.append(member)
            member.wait()
    except JMSError as error:
        sys.exit(f"{given.member}: {error}")
    if not ending.is_set():
        sys.exit(f"{given.member} was removed from its group")


def _end_with_factory(ending: threading.Event, opened: list[Member]) -> None:
    """Close the member when the factory closes the standard input, or ends. End the process if it
    is not open yet, or cannot leave: it may wait for others that are gone, too."""
    sys.stdin.read()
    ending.set()
    if not opened:
        os._exit(1)
    timer = threading.Timer(LEAVE_S, os._exit, (1,))
    timer.daemon = True
    timer.start()
    opened[0].close()
