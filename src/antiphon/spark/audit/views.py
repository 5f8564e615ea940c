"""The audit of views and state cuts, which needs no messages.

Views of a group are one sequence (thesis 4.2.1, primary partition): a number means the same members
at the same place, for all members; a member that installs one installs the next one next; the first
one has the member itself; one that stays to the end knows the last one. No member is out of a view
because of a suspicion alone (6.5.2, docs/groups.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.spark.audit.findings import Finding
from antiphon.spark.audit.members import Member, View, World


def judge(world: World) -> Iterator[Finding]:
    """Yield the faults in the views of a group, from the views alone."""
    yield from _differing(world)
    for member in world.members:
        yield from _sequence(world, member)
        yield from _last(world, member)
        yield from _excluded(world, member)


def judge_cuts(world: World) -> Iterator[Finding]:
    """Yield state cuts that are before the first view of their member."""
    for member in world.members:
        if member.views and member.cuts and member.cuts[0][1] < member.views[0].position:
            yield Finding(
                "state",
                world,
                f"the state of {member.label} ends at {member.cuts[0][1]}, before its first view, "
                f"which stands at {member.views[0].position}",
                members=(member,),
            )


def _differing(world: World) -> Iterator[Finding]:
    """Yield one finding for each member whose view differs from that of most members."""
    told: dict[int, dict[tuple[tuple[str, ...], int], list[Member]]] = {}
    for member in world.members:
        for view in member.views:
            versions = told.setdefault(view.id, {})
            who = versions.setdefault((view.members, view.position), [])
            if member not in who:
                who.append(member)
    for number, versions in told.items():
        usual = max(versions, key=lambda version: len(versions[version]))
        for version, who in versions.items():
            if version != usual:
                for member in who:
                    yield _differs(world, number, usual, versions[usual][0], version, member)


def _differs(
    world: World,
    number: int,
    usual: tuple[tuple[str, ...], int],
    by: Member,
    version: tuple[tuple[str, ...], int],
    member: Member,
) -> Finding:
    what = f"is {_names(usual[0])} at {by.label} and {_names(version[0])} at {member.label}"
    if usual[0] == version[0]:
        what = f"stands at {usual[1]} at {by.label} and at {version[1]} at {member.label}"
    return Finding("views", world, f"view {number} {what}", members=(by, member), views=(number,))


def _sequence(world: World, member: Member) -> Iterator[Finding]:
    highest = 0
    before: View | None = None
    for view in member.views:
        if before is None:
            if member.name not in view.members:
                text = f"{member.label} is not in its own first view {view.id}"
                yield Finding("views", world, text, members=(member,), views=(view.id,))
        elif not _follows(before, view, highest):
            text = f"{member.label} installed view {view.id} after view {before.id}"
            views = (before.id, view.id)
            yield Finding("views", world, text, members=(member,), views=views)
        before, highest = view, max(highest, view.id)


def _follows(before: View, view: View, highest: int) -> bool:
    """Return whether a view may follow another one. A new life may begin with views that the last
    one had not acknowledged."""
    return view.id == before.id + 1 if view.life == before.life else view.id <= highest + 1


def _last(world: World, member: Member) -> Iterator[Finding]:
    last = max(m.last_view for m in world.members)
    if member.stays and member.last_view < last:
        text = f"the last view is {last}, and {member.label} stays in view {member.last_view}"
        views = (member.last_view, last)
        yield Finding("views", world, text, members=(member,), views=views)


def _excluded(world: World, member: Member) -> Iterator[Finding]:
    """Yield views without this member, which has not left, crashed or been removed."""
    if not member.views or member.name in world.removed:
        return
    if not member.durable and (member.crashes or member.name in world.suspected):
        return
    first = member.views[0].id
    without = [n for n, names in world.views.items() if n > first and member.name not in names]
    namesakes = sum(m.name == member.name for m in world.members)
    told_so = member.missed_itself or member.name not in member.views[-1].members
    stays = not member.gone and namesakes == 1
    if without and (told_so or stays):
        kind = "durable" if member.durable else "never suspected"
        text = f"{member.label} is {kind} and nobody removed it, but view {min(without)} lacks it"
        yield Finding("views", world, text, members=(member,), views=(min(without),))


def _names(members: tuple[str, ...]) -> str:
    return " ".join(members) or "empty"
