"""`antiphon group URL NAME`: shows a running group, from outside.

It asks the servers every second and is not a member, so the group does not notice. On a terminal a
table that changes; elsewhere a line for each view and each suspicion; with `--json` one object for
each look. Of several views within a second it shows the last one.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec

from antiphon.api.sync import connect
from antiphon.cli import peers
from antiphon.cli.cluster import known_groups, look
from antiphon.errors import ConfigurationError, ConnectionLostError, InvalidDestinationError
from antiphon.formats import protocol as cw
from antiphon.peers.discovery.urls import SCHEME
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Group, Screen, Table, live

LOOK_EVERY_S = 1.0
NEWS_SHOWN = 12


class Watch:
    """Finds the differences between two reports of a group."""

    def __init__(self) -> None:
        self.per_s = 0.0  # messages
        self._last: cw.GroupStatus | None = None
        self._looked_s = 0.0

    def look(self, group: cw.GroupStatus, now_s: float) -> list[str]:
        last, self._last = self._last, group
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if last is None:
            return [_view(group), *_suspicions(set(), group)]
        self.per_s = max(0, group.messages - last.messages) / passed_s if passed_s > 0 else 0.0
        news = []
        if group.view_id != last.view_id:
            news.append(_view(group, _changes(last, group)))
        before = {m.name for m in last.members if m.suspected}
        back = before & {m.name for m in group.members if not m.suspected}
        return [*news, *_suspicions(before, group), *(f"{n} is back" for n in sorted(back))]


def _view(group: cw.GroupStatus, changes: str = "") -> str:
    members = " ".join(member.name for member in group.members) or "nobody"
    return f"view {group.view_id}: {members}{changes}"


def _changes(last: cw.GroupStatus, group: cw.GroupStatus) -> str:
    # A name with another first view is another member.
    old = {(m.name, m.joined) for m in last.members}
    new = {(m.name, m.joined) for m in group.members}
    joined = [f"{name} joined" for name, _ in sorted(new - old)]
    left = [f"{name} left" for name, _ in sorted(old - new)]
    return f" ({', '.join(joined + left)})" if joined or left else ""


def _suspicions(before: set[str], group: cw.GroupStatus) -> list[str]:
    return [
        f"{member.name} is suspected: {member.why}"
        for member in group.members
        if member.suspected and member.name not in before
    ]


def run(args: argparse.Namespace) -> int:
    if args.delete:
        return _delete(args)
    if args.force:
        raise ConfigurationError("--force goes with --delete")
    watch = Watch()
    group = find(args.url, args.name)
    try:
        if args.json:
            _print_json(args, watch, group)
        elif Screen().is_terminal:
            _show(args, watch, group)
        else:
            _print_news(args, watch, group)
    except KeyboardInterrupt:
        pass
    return 0


def _delete(args: argparse.Namespace) -> int:
    with connect(args.url) as ctx:
        ctx.delete_group(args.name, force=args.force)
    if args.json:
        say_json({"deleted": args.name})
    else:
        say(f"group {args.name} was deleted")
    return 0


def find(url: str, name: str) -> cw.GroupStatus:
    """Return a group; raise `InvalidDestinationError` if there is none of that name."""
    known = peers.groups(url) if url.startswith(SCHEME) else known_groups(look(url))
    groups = {group.name: group for group in known}
    if name not in groups:
        others = ", ".join(sorted(groups)) or "none"
        raise InvalidDestinationError(f"there is no group {name!r}. Groups that exist: {others}")
    return groups[name]


def _next(args: argparse.Namespace, last: cw.GroupStatus) -> tuple[cw.GroupStatus, str]:
    """Return the group after `LOOK_EVERY_S`, and the reason if no server could be asked."""
    time.sleep(LOOK_EVERY_S)
    try:
        return find(args.url, args.name), ""
    except ConnectionLostError as error:
        return last, str(error)
    except InvalidDestinationError:  # the last member has left
        return msgspec.structs.replace(last, members=()), "the group is over"


def _print_json(args: argparse.Namespace, watch: Watch, group: cw.GroupStatus) -> None:
    trouble = ""
    while True:
        watch.look(group, time.monotonic())
        say_json(as_json(group, watch.per_s, trouble), flush=True)
        group, trouble = _next(args, group)


def as_json(group: cw.GroupStatus, per_s: float, trouble: str = "") -> dict[str, Any]:
    members = [
        {field: getattr(member, field) for field in member.__struct_fields__}
        for member in group.members
    ]
    return {
        "name": group.name,
        "view_id": group.view_id,
        "members": members,
        "suspects": [member.name for member in group.members if member.suspected],
        "remove_after_ms": group.remove_after_ms,
        "messages": group.messages,
        "messages_per_s": round(per_s, 1),
        "trouble": trouble,
    }


def _print_news(args: argparse.Namespace, watch: Watch, group: cw.GroupStatus) -> None:
    said = ""
    while True:
        for line in watch.look(group, time.monotonic()):
            say(line, flush=True)
        group, trouble = _next(args, group)
        if trouble and trouble != said:
            say(trouble, flush=True)
        said = trouble


def _show(args: argparse.Namespace, watch: Watch, group: cw.GroupStatus) -> None:
    news: list[str] = []
    trouble = ""
    with live(Screen()) as shown:
        while True:
            clock = time.strftime("%H:%M:%S")
            news += [f"{clock}  {line}" for line in watch.look(group, time.monotonic())]
            del news[:-NEWS_SHOWN]
            shown.update(Group(_table(group, watch.per_s), *news, trouble))
            group, trouble = _next(args, group)


def _table(group: cw.GroupStatus, per_s: float) -> Table:
    title = f"{group.name}, view {group.view_id}: {group.messages:,} messages, {per_s:,.0f}/s"
    table = Table("member", "kind", "since view", "at node", "behind", "not told", "", title=title)
    for member in group.members:
        notes = [member.why] if member.why else []
        if member.state_from:
            notes.append(f"waits for the state, from {member.state_from}")
        table.add_row(
            f"{member.name} (suspected)" if member.suspected else member.name,
            "durable" if member.durable else "",
            str(member.joined),
            str(member.node or ""),
            f"{member.behind:,}" if member.behind else "",
            f"{member.events:,}" if member.events else "",
            "; ".join(notes),
        )
    return table
