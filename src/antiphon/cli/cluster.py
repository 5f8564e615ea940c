"""`antiphon cluster`: start servers on this machine, look at a cluster, change it."""

from __future__ import annotations

import argparse
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.errors import ConnectionLostError, IllegalStateError, JMSError
from antiphon.formats import protocol as cw
from antiphon.formats.entry import ANY
from antiphon.io.transport import Address, format_address
from antiphon.log.quorum import majority
from antiphon.server.admin_client import AdminClient, line_to
from antiphon.server.local_cluster import LocalCluster
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Screen, Table

LOOK_S = 1.0
CHANGE_S = 15.0
ANSWER_S = 5.0
"""More than `Settings.election_max_ms`, within which the leader decides about a removal."""


# -- Up --------------------------------------------------------------------------------------------


def up(args: argparse.Namespace) -> int:
    """Run servers as processes, until Ctrl-C or SIGTERM; return 1 if one of them ended by
    itself."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        folder = Path(args.data or stack.enter_context(tempfile.TemporaryDirectory("-antiphon")))
        folder.mkdir(parents=True, exist_ok=True)
        cluster = stack.enter_context(
            LocalCluster(args.servers, folder, args.storage, args.contexts, args.trace)
        )
        cluster.start()
        if args.json:
            nodes = [{"node": s.node, "url": s.url} for s in cluster.servers.values()]
            say_json({"url": cluster.url, "data": str(folder), "nodes": nodes}, flush=True)
        else:
            say(f"data and logs are in {folder}; Ctrl-C ends all servers")
            say(cluster.url, flush=True)
        return _watch(cluster, stop, args.json)


def _watch(cluster: LocalCluster, stop: threading.Event, as_json: bool) -> int:
    gone: set[int] = set()
    while not stop.wait(0.2):
        for server in cluster.servers.values():
            if not server.running and server.node not in gone:
                gone.add(server.node)
                say(f"node {server.node} has ended; see {server.log}", error=True)
                if as_json:
                    say_json({"ended": server.node, "log": str(server.log)}, flush=True)
        if len(gone) == len(cluster.servers):
            break
    return 1 if gone else 0


# -- Status ----------------------------------------------------------------------------------------


class ClusterStatus(NamedTuple):
    """The answers of all servers, put together."""

    leader: int | None
    epoch: int
    answers: dict[int, cw.Status]
    unreachable: tuple[int, ...]
    trouble: tuple[str, ...]

    @property
    def down(self) -> tuple[str, ...]:
        """The members of the cluster that take no part in it, a sentence each."""
        if not self.answers:
            return ()
        known = max(self.answers.values(), key=lambda status: status.applied)
        members = {member.node: member.address for member in known.membership.members}
        away = [
            f"node {node} is down: nobody answers at {members[node]}"
            for node in self.unreachable
            if node in members
        ]
        return (*away, *_troubles(self.answers, members))

    @property
    def leading(self) -> cw.Status | None:
        return self.answers[self.leader] if self.leader is not None else None


def look(url: str, timeout: float = LOOK_S) -> ClusterStatus:
    """Ask one server for the members, then all of them. Raise `ConnectionLostError` if none
    answers."""
    first = AdminClient(url, timeout=timeout).status()
    found = _ask_all(first.addresses)
    answers = {node: status for node, status in sorted(found.items()) if status is not None}
    answers.setdefault(first.id.node, first)
    epoch = max(status.epoch for status in answers.values())
    leaders = [n for n, s in answers.items() if s.role == "leader" and s.epoch == epoch]
    leader = leaders[0] if leaders else None
    unreachable = tuple(node for node in sorted(found) if node not in answers)
    trouble = () if leaders else tuple(_why_no_leader(answers, unreachable))
    return ClusterStatus(leader, epoch, answers, unreachable, trouble)


def _troubles(answers: dict[int, cw.Status], members: Collection[int]) -> Iterator[str]:
    for node, status in answers.items():
        if status.trouble and node in members:
            yield f"node {node} is in trouble: {'; '.join(status.trouble)}"


def _ask_all(addresses: dict[int, str]) -> dict[int, cw.Status | None]:
    """Ask these servers and all others that they name: a newcomer knows fewer than the others
    do."""
    found: dict[int, cw.Status | None] = {}
    while addresses:
        with ThreadPoolExecutor(len(addresses)) as pool:
            found |= zip(addresses, pool.map(_ask, addresses.values()), strict=True)
        known = {n: a for s in found.values() if s is not None for n, a in s.addresses.items()}
        addresses = {node: address for node, address in known.items() if node not in found}
    return found


def _ask(address: str) -> cw.Status | None:
    try:
        with line_to(address, LOOK_S) as line:
            return line.ask(cw.AskStatus(), cw.Status)
    except (OSError, JMSError):
        return None


def _why_no_leader(answers: dict[int, cw.Status], unreachable: tuple[int, ...]) -> Iterable[str]:
    membership = max(answers.values(), key=lambda status: status.applied).membership
    voters = membership.voters
    lost = [v.node for v in voters if v.node in answers and answers[v.node].id != v]
    away = [v.node for v in voters if v.node in unreachable]
    if voters and len(voters) - len(lost) < majority(voters):
        yield (
            f"nodes {_list(lost)} came back without their data: a majority is lost for "
            "good, and the rest cannot go on without it"
        )
    elif voters and len(voters) - len(lost) - len(away) < majority(voters):
        yield f"no majority can be reached: nodes {_list([*lost, *away])} are away"


def _list(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))


def status(args: argparse.Namespace) -> int:
    """Return 1 if there is no leader, or a server is down or in trouble: a cluster that tolerates
    one failure less than it should is not well."""
    try:
        found = look(args.url)
    except ConnectionLostError as error:
        found = ClusterStatus(None, 0, {}, (), (str(error),))
    if args.json:
        say_json(_as_json(found))
    else:
        _show(found, args.counters)
    return 1 if found.leader is None or found.down else 0


_EXPECTED = "was added, and has not come yet; it does not count before it has caught up"


def _as_json(found: ClusterStatus) -> dict[str, Any]:
    nodes = [_node_as_json(status) for status in found.answers.values()]
    members = found.leading.membership.members if found.leading is not None else ()
    expected = [m.node for m in members if m.incarnation == ANY]
    nodes += [
        {
            "node": node,
            "role": "unreachable",
            "committed": None,
            "pid": None,
            "trouble": [_EXPECTED] if node in expected else [],
            "counts": {},
        }
        for node in found.unreachable
    ]
    return {
        "leader": found.leader,
        "epoch": found.epoch,
        "nodes": sorted(nodes, key=lambda node: int(node["node"])),
        "groups": [_group_as_json(group) for group in known_groups(found)],
        "trouble": [*found.trouble, *found.down],
    }


def known_groups(found: ClusterStatus) -> tuple[cw.GroupStatus, ...]:
    """Return the groups as the server knows them that has applied most."""
    statuses = found.answers.values()
    return max(statuses, key=lambda s: s.applied).groups if statuses else ()


def _group_as_json(group: cw.GroupStatus) -> dict[str, Any]:
    return {
        "name": group.name,
        "view_id": group.view_id,
        "members": [member.name for member in group.members],
        "suspects": [member.name for member in group.members if member.suspected],
    }


def _node_as_json(status: cw.Status) -> dict[str, Any]:
    return {
        "node": status.id.node,
        "role": _role(status),
        "committed": status.committed,
        "pid": status.pid,
        "position": status.position,
        "trouble": list(status.trouble),
        "counts": status.counts,
    }


def _role(status: cw.Status) -> str:
    member = status.membership.member(status.id.node)
    learner = member is not None and member.id == status.id and not member.voter
    return "learner" if learner else status.role


def _show(found: ClusterStatus, counters: bool) -> None:
    table = Table(title=f"leader {found.leader or 'none'}, epoch {found.epoch}")
    for column in ("node", "role", "committed", "position", "pid", "trouble"):
        table.add_column(column)
    for node in _as_json(found)["nodes"]:
        cells = (node.get(column) for column in ("node", "role", "committed", "position", "pid"))
        table.add_row(*("" if c is None else str(c) for c in cells), "; ".join(node["trouble"]))
    screen = Screen()
    screen.print(table)
    if groups := known_groups(found):
        screen.print(_groups_table(groups))
    if counters and any(status.counts for status in found.answers.values()):
        screen.print(_counts_table(found.answers))
    for line in (*found.trouble, *found.down):
        screen.print(line, soft_wrap=True)


def _groups_table(groups: tuple[cw.GroupStatus, ...]) -> Table:
    table = Table("group", "view", "members", "suspects", title="groups")
    for group in map(_group_as_json, groups):
        names = (" ".join(group["members"]), " ".join(group["suspects"]))
        table.add_row(group["name"], str(group["view_id"]), *names)
    return table


def _counts_table(answers: dict[int, cw.Status]) -> Table:
    """Return a table with a row for each count of each component, a column for each node."""
    table = Table(title="counts")
    table.add_column("component")
    table.add_column("count")
    for node in answers:
        table.add_column(f"node {node}", justify="right")
    # A dict, not a set: components stay in the order in which a message passes them.
    rows = {
        (component, name): None
        for status in answers.values()
        for component, counts in status.counts.items()
        for name in counts
    }
    shown = ""
    for component, name in rows:
        values = (status.counts.get(component, {}).get(name) for status in answers.values())
        cells = ("" if value is None else f"{value:,}" for value in values)
        table.add_row("" if component == shown else component, name, *cells)
        shown = component
    return table


# -- Change ----------------------------------------------------------------------------------------


def change(args: argparse.Namespace) -> int:
    """Carry out changes one after the other, and wait for each."""
    for node in args.nodes:
        say(_carry_out(args.url, _STEPS[args.change](node, args.url)))
    if args.json:
        numbers = [node if isinstance(node, int) else node[0] for node in args.nodes]
        say_json({"change": args.change, "nodes": numbers})
    return 0


class Step(NamedTuple):
    """One change of the cluster, and how to see it in the leader's status."""

    request: cw.Change
    happened: Callable[[cw.Status], bool]
    success: str
    already: str = ""  # the message if it had happened before; empty: then it is a mistake


def _add(node_address: tuple[int, Address], url: str) -> Step:
    node, address = node_address[0], format_address(node_address[1])

    def happened(status: cw.Status) -> bool:
        member = status.membership.member(node)
        return member is not None and member.address == address

    return Step(
        cw.Add(node, address),
        happened,
        f"node {node} was added; it counts once it runs at {address} and has caught up. Until then "
        f"`antiphon cluster remove {url} {node}` takes that back",
        f"node {node} at {address} had been added before; nothing was changed",
    )


def _remove(node: int, _: str) -> Step:
    return Step(
        cw.Remove(node),
        lambda status: status.membership.member(node) is None,
        f"node {node} was removed",
    )


def _transfer(node: int, _: str) -> Step:
    success = f"node {node} leads"
    return Step(cw.Transfer(node), lambda status: status.id.node == node, success, success)


_STEPS: dict[str, Callable[[Any, str], Step]] = {
    "add": _add,
    "remove": _remove,
    "transfer": _transfer,
}


def _carry_out(url: str, step: Step) -> str:
    """Return a message when it has happened. Raise `IllegalStateError` if the leader refuses, or if
    it has not happened within `CHANGE_S`."""
    deadline = time.monotonic() + CHANGE_S
    told, why = False, ""
    while True:
        leading = look(url).leading
        if leading is not None and (told or step.already) and step.happened(leading):
            AdminClient(url).barrier()  # the leader's status may show what is not committed yet
            return step.success if told else step.already
        if time.monotonic() > deadline:
            raise IllegalStateError(
                f"{step.request} has not happened within {CHANGE_S:g} s"
                f"{', but still may' if told else ''}: {why or 'no server leads'}. See `antiphon "
                "cluster status`",
                happened="unknown" if told else "no",
            )
        if leading is not None:
            answer = _tell(leading.addresses[leading.id.node], step.request)
            if isinstance(answer, cw.Refused) and not (told and _has_happened(url, step)):
                raise IllegalStateError(answer.reason)
            told = told or answer in (None, cw.Asked())
            why = getattr(answer, "waiting", "") or "the leader has not said that it is agreed"
        time.sleep(0.2)


def _has_happened(url: str, step: Step) -> bool:
    leading = look(url).leading
    return leading is not None and step.happened(leading)


def _tell(address: str, request: cw.Change) -> cw.Answer | None:
    """Ask for a change. If this is not the leader after all, nothing happens. None: the server has
    not answered, and may have received the request."""
    try:
        line = line_to(address, ANSWER_S)
    except OSError as error:
        return cw.Asked(f"the leader cannot be reached ({error})")
    with line:
        try:
            return line.ask(request, cw.Asked)
        except OSError:
            return None
        except JMSError as refusal:
            return cw.Refused(str(refusal))
