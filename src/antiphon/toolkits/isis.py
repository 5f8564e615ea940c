"""Isis: process groups in the primary partition, whose broadcasts collect replies.

What the original promised, and what keeps it here:

- *Sites* run Isis, and programs connect to it (`isis_remote_init`): a program is a process of a
  cluster of `antiphon.peers`, and says which site it is at. A site is up while a process of it is.
- Groups in the primary partition (`pg_join`, `pg_leave`): the cluster shows primary views alone;
  who is cut off gets nothing, and its broadcasts wait, until it is back.
- `fbcast`, `cbcast` and `abcast`: the levels `fifo`, `causal` and `agreed`. `gbcast` is ordered
  with everything, and so conflicts with every other broadcast: it is the last thing that all
  members receive in a view, which ends for it. `bcast` is `abcast`.
- Replies: a broadcast goes to an *entry*, a routine that each recipient declares under a number,
  and returns as many replies as are wanted (`nwanted`: a number, `ALL` or `MAJORITY`). Who leaves
  is not waited for (`_isis/replies.py`).
- Four kinds of groups. *Peer groups*: all are members. *Client/server groups*: who is no member
  broadcasts to the group, or to one member (`address.only(member)`), and may become a client
  (`pg_client`). *Diffusion groups*: a member broadcasts to members and clients
  (`address.diffusion`); members reply. *Hierarchical groups*: `hg_join` makes a leaf group of the
  one that all join, and `hg_leaf` finds the leaf that has a part of the data.
- Subgroups that begin with all their members in one view (`pg_subgroup`).
- Monitors of members and of sites (`pg_monitor`, `sv_monitor`, `sv_watch`), and their ends.

Routines are called on one thread of the program, in the order of what they tell. One that waits for
the replies of a group that it is a member of would wait for itself, and is refused.

Left out: credentials of clients, for certificates say who may take part (`peers.Tls`); format
strings, for values have types here (those of MessagePack); tasks, for a program has threads; the
state transfer among the options of `pg_join`, for which there is `peers.Channel.get_state`;
hierarchies of more than two levels; the long form `bcast_l`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antiphon.errors import IllegalStateError, InvalidDestinationError
from antiphon.toolkits._groups.directory import GroupView
from antiphon.toolkits._groups.process import checked
from antiphon.toolkits._isis.broadcasts import Address, Broadcasts
from antiphon.toolkits._isis.core import CLIENTS, MEMBERS, SITES, Core, Message
from antiphon.toolkits._isis.hierarchies import leaf_for, leaf_of_key
from antiphon.toolkits._isis.replies import ALL, MAJORITY, Reply

LEFT_OUT = {
    "bcast_l": "the long form, whose options the thesis does not describe",
}
"""Names of the original that are not here, each with the reason."""

__all__ = [
    "ALL",
    "LEFT_OUT",
    "MAJORITY",
    "W_FAIL",
    "W_RECOVER",
    "Address",
    "Isis",
    "Message",
    "Reply",
    "SiteView",
    "View",
    "isis_remote_init",
]

W_FAIL, W_RECOVER = "fail", "recover"
"""What `sv_watch` waits for: that a site has no process any more, or has one again."""

View = GroupView

Routine = Callable[..., object]


class SiteView(NamedTuple):
    """The sites that are up, each with its processes."""

    sites: dict[str, tuple[str, ...]]


def isis_remote_init(
    cluster: str = "peer:isis",
    name: str | None = None,
    site: str | None = None,
    timeout: float | None = 10.0,
    **options: Any,
) -> Isis:
    """Connect to Isis, and return the program's place in it. `cluster` is one of
    `peers.Channel.connect`, `options` are those of `peers.Channel`; `site` is the machine's name
    if none is given. Raise what `connect` raises."""
    return Isis(cluster, name, site or socket.gethostname(), timeout, options)


class Isis(Broadcasts):
    """A program's place in Isis. All methods may be called on any thread; those that wait have a
    `timeout` in seconds, and raise `OutcomeUnknownError` after it."""

    def __init__(
        self,
        cluster: str,
        name: str | None,
        site: str,
        timeout: float | None,
        options: dict[str, Any],
    ) -> None:
        self.site = site
        self._core = Core(name, cluster, timeout, options)
        self._core.looks = self._assign
        self._leaf_sizes: dict[str, int] = {}  # by hierarchical group that is being joined
        self._core.process.join(f"{SITES}{site}")
        self._core.start()
        self._await_place(f"{SITES}{site}", timeout)

    @property
    def name(self) -> str:
        """By which the others know this process."""
        return self._core.process.name

    def close(self) -> None:
        """Leave all groups, and Isis."""
        self._core.close()

    def __enter__(self) -> Isis:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _await_place(self, group: str, timeout: float | None) -> None:
        """Wait until this process is in a group of the cluster."""
        self._core.wait(
            lambda: self._core.is_known_in(group),
            timeout,
            lambda: f"{self.name!r} is not in {group!r} yet",
        )

    # -- Sites -----------------------------------------------------------------------------------

    def site_getview(self) -> SiteView:
        """Return the sites that are up, as the routines were told."""
        sites = {
            group.removeprefix(SITES): view.members
            for group, view in sorted(self._core.views.items())
            if group.startswith(SITES)
        }
        return SiteView(sites)

    def sv_monitor(self, routine: Routine, arg: Any = None) -> int:
        """Have `routine(site_view, arg)` called whenever a site has come or gone; return the number
        of the monitor."""

        def changed(view: GroupView) -> None:
            if view.group.startswith(SITES) and (_failed(view) or _recovered(view)):
                routine(self.site_getview(), arg)

        return self._monitor(changed)

    def sv_watch(self, sid: str, event: str, routine: Routine, arg: Any = None) -> int:
        """Have `routine(sid, event, arg)` called once, when that site fails (`W_FAIL`) or is up
        again (`W_RECOVER`); return the number of the watch."""
        if event not in _HAS_COME:
            raise ValueError(f"{event!r} is not W_FAIL or W_RECOVER")

        def changed(view: GroupView) -> None:
            if view.group == f"{SITES}{sid}" and _HAS_COME[event](view):
                self._core.monitors.pop(number, None)
                routine(sid, event, arg)

        number = self._monitor(changed)
        return number

    # -- Groups ----------------------------------------------------------------------------------

    def pg_join(
        self, gname: str, pg_monitor: Routine | None = None, timeout: float | None = 10.0
    ) -> Address:
        """Join a group, and return its address once this process is a member. `pg_monitor` is
        called with each of its views, from the first one on, and None."""
        address = Address(checked(gname))
        if pg_monitor is not None:
            self.pg_monitor(address, pg_monitor)
        self._core.process.join(f"{MEMBERS}{gname}")
        self._await_place(f"{MEMBERS}{gname}", timeout)
        return address

    def pg_subgroup(
        self,
        gaddr: Address,
        sname: str,
        incarn: int,
        members: Sequence[str],
        timeout: float | None = 10.0,
    ) -> Address:
        """Make a group of some members of one that this process is in, and return its address: its
        first view has all of them that are still there. `incarn`, if not 0, is part of its name.
        Raise `IllegalStateError` if this process is not in the group, `ValueError` for a member
        that is not, or if there is none."""
        present = self._core.members(f"{MEMBERS}{gaddr.group}")
        if self.name not in present:
            raise IllegalStateError(f"{self.name!r} is not in the group {gaddr.group!r}")
        if strangers := [one for one in members if one not in present]:
            raise ValueError(f"not in the group {gaddr.group!r}: {', '.join(strangers)}")
        if not members:
            raise ValueError("a subgroup needs a member to begin with")
        address = Address(f"{checked(sname)}.{incarn}" if incarn else checked(sname))
        self._core.process.grant(f"{MEMBERS}{address.group}", members)
        self._core.wait(
            lambda: bool(self._core.members(f"{MEMBERS}{address.group}")),
            timeout,
            lambda: f"the group {address.group!r} has not begun",
        )
        return address

    def pg_leave(self, gaddr: Address) -> None:
        """Leave a group; the view without this process is the last one of it. Raise
        `IllegalStateError` if this process is not in it."""
        self._core.process.leave(f"{MEMBERS}{gaddr.group}")

    def pg_client(self, gaddr: Address, timeout: float | None = 10.0) -> None:
        """Become a client of a group: what its members broadcast to their clients comes here."""
        self._core.process.join(f"{CLIENTS}{gaddr.group}")
        self._await_place(f"{CLIENTS}{gaddr.group}", timeout)

    def pg_getview(self, gaddr: Address) -> View:
        """Return a group's view, as the routines were told; one without members if there is no such
        group."""
        view = self._core.views.get(f"{MEMBERS}{gaddr.group}")
        return _plain(view) if view else View(gaddr.group, 0, (), (), (), (), True)

    def pg_monitor(self, gaddr: Address, routine: Routine, arg: Any = None) -> int:
        """Have `routine(view, arg)` called with each new view of a group; return the number of the
        monitor."""

        def changed(view: GroupView) -> None:
            if view.group == f"{MEMBERS}{gaddr.group}":
                routine(_plain(view), arg)

        return self._monitor(changed)

    def _monitor(self, changed: Callable[[GroupView], object]) -> int:
        number = next(self._core.numbers)
        self._core.monitors[number] = changed
        return number

    def sv_monitor_cancel(self, monitor: int) -> None:
        """End a monitor or watch, by its number. Raise `ValueError` if there is none."""
        if self._core.monitors.pop(monitor, None) is None:
            raise ValueError(f"there is no monitor {monitor}")

    sv_watch_cancel = pg_monitor_cancel = sv_monitor_cancel

    # -- Hierarchical groups ---------------------------------------------------------------------

    def hg_join(self, gname: str, leaf_size: int, timeout: float | None = 10.0) -> Address:
        """Join a hierarchical group, and return the address of the leaf group that this process
        belongs to from now on: the first one with fewer than `leaf_size` members, or a new one. All
        members are in the group `gname` itself, too."""
        if leaf_size < 1:
            raise ValueError(f"a leaf has 1 member or more, not {leaf_size}")
        self._leaf_sizes[checked(gname)] = leaf_size
        self.pg_join(gname, timeout=timeout)
        self._core.wait(
            lambda: self._own_leaf(gname) is not None, timeout, lambda: "it is in no leaf yet"
        )
        return Address(str(self._own_leaf(gname)))

    def hg_leaf(self, gname: str, key: str) -> Address:
        """Return the leaf group that has the data of this key. While leaves come and go, keys move.
        Raise `InvalidDestinationError` if there is none."""
        leaves = self._leaves(gname)
        if not leaves:
            raise InvalidDestinationError(f"the hierarchical group {gname!r} has no leaf")
        return Address(leaf_of_key(key, leaves))

    def _leaves(self, gname: str) -> dict[str, tuple[str, ...]]:
        """Return the leaves that there are, with their members."""
        prefix = f"{MEMBERS}{gname}/"
        groups = self._core.process.directory.groups()
        found = (group for group in groups if group.startswith(prefix))
        return {group.removeprefix(MEMBERS): self._core.members(group) for group in found}

    def _own_leaf(self, gname: str) -> str | None:
        leaves = self._leaves(gname)
        return next((leaf for leaf, members in leaves.items() if self.name in members), None)

    def _assign(self, view: GroupView) -> None:
        """Go to a leaf when this process has joined a hierarchical group."""
        gname = view.group.removeprefix(MEMBERS)
        if gname in self._leaf_sizes and self.name in view.joined:
            size = self._leaf_sizes.pop(gname)
            leaf = leaf_for(self.name, gname, view.members, self._leaves(gname), size)
            self._core.process.join(f"{MEMBERS}{leaf}")


def _plain(view: GroupView) -> View:
    return view._replace(group=view.group.removeprefix(MEMBERS))


def _failed(site: GroupView) -> bool:
    """Return whether all processes that were at a site are gone."""
    return bool(site.left) and site.joined == site.members


def _recovered(site: GroupView) -> bool:
    """Return whether all processes that are at a site have come."""
    return bool(site.members) and site.joined == site.members


_HAS_COME = {W_FAIL: _failed, W_RECOVER: _recovered}
