"""The headers of Membership: all frames are control frames without a body."""

from __future__ import annotations

from antiphon.model.peer_views import MemberId, ViewId
from antiphon.peers.layers.layer import Header
from antiphon.peers.membership.records import Decision, Known, Report


class Here(Header, frozen=True, array_like=True, tag=True):
    """The state of a process, which it sends to all others with each change, and now and then.

    `view`, `leader`, `primary`, `size`, `place`: the view that it is in, and its place there;
    `round`: the highest that it has seen; `prefers`: the coordinator that it prefers; `wants`: it
    wants a change, though the members stay the same; `leaving`: it wants to leave; `stalled`: the
    round of the change that it waits for without a result, or 0.
    """

    view: ViewId
    leader: MemberId
    primary: bool
    size: int
    place: int
    round: int
    prefers: MemberId
    wants: bool
    leaving: bool
    stalled: int


class Ask(Header, frozen=True, array_like=True, tag=True):
    """From the coordinator: take part in this change, with these, and in no older one any more."""

    change: ViewId
    present: tuple[MemberId, ...]


class Refused(Header, frozen=True, array_like=True, tag=True):
    """To the coordinator: not in this change. `round`: the highest that this process has seen."""

    change: ViewId
    round: int


class Told(Header, frozen=True, array_like=True, tag=True):
    """To the coordinator: this process is frozen, and this is its report."""

    change: ViewId
    report: Report


class Behind(Header, frozen=True, array_like=True, tag=True):
    """From the coordinator: the view that this process comes from is not the last primary one."""

    change: ViewId
    active: Known | None


class Decided(Header, frozen=True, array_like=True, tag=True):
    """From the coordinator: how the change ends, if all install it."""

    change: ViewId
    decision: Decision


class Fetch(Header, frozen=True, array_like=True, tag=True):
    """To the coordinator, and by it to a process that holds them: `process` lacks these frames."""

    change: ViewId
    process: MemberId
    view: ViewId
    stream: MemberId
    first: int
    last: int


class Frames(Header, frozen=True, array_like=True, tag=True):
    """The answer to `Fetch`, by way of the coordinator: as many as fit, from `first` on."""

    change: ViewId
    process: MemberId
    view: ViewId
    stream: MemberId
    first: int
    frames: tuple[bytes, ...]


class Installed(Header, frozen=True, array_like=True, tag=True):
    """To the coordinator: this process holds all frames of the change, and waits."""

    change: ViewId


class Show(Header, frozen=True, array_like=True, tag=True):
    """From the coordinator: all have installed it, show it."""

    change: ViewId


HEADERS: tuple[type[Header], ...] = (
    Here,
    Ask,
    Refused,
    Told,
    Behind,
    Decided,
    Fetch,
    Frames,
    Installed,
    Show,
)
