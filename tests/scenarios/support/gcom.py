"""Scenarios about groups of GCom: processes with the stacks of the toolkit, connections that break,
and a name service whose decisions are the toolkit's.

What is shown is what members tell each other of crashes, which views and messages they are given,
and what the name service is asked. A program that leads tells the name service of itself when it
gets a view, and with each command.
"""

from __future__ import annotations

from antiphon.peers.membership.member import Left
from antiphon.peers.stack.running import Delivered, Shown
from antiphon.toolkits.gcom.crashes import MemberCrash
from antiphon.toolkits.gcom.registry import Groups, Known, decide
from antiphon.toolkits.gcom.settings import (
    Connect,
    GroupSettings,
    Lead,
    Leave,
    Look,
    Multicast,
    Ordering,
    Request,
)
from antiphon.toolkits.gcom.stack import stack_of
from tests.peers.support.mesh import Mesh, Process
from tests.scenarios.support.cluster import ScenarioError

GROUP = "chat"
CALM_MS = 400
"""A command is done after this time: a change of the view that follows a lost connection, too."""


class ScriptedGcom:
    """One name service, and one group."""

    def __init__(self) -> None:
        self._mesh = Mesh()
        self._mesh.dropped = self._passes
        self._half: tuple[str, str, bytes] | None = None
        self._groups: Groups = {}
        self._file: tuple[GroupSettings, ...] = ()
        self._is_up = False
        self._seen: dict[str, int] = {}
        self._told: list[str] = []

    def do(self, command: str) -> list[str]:
        verb, *words = command.split()
        method = getattr(self, f"_do_{verb}", None)
        if method is None:
            raise ScenarioError(f"no such command: {verb}")
        method(*words)
        self._mesh.until(lambda: self._look(), CALM_MS)
        self._lead()
        told, self._told = self._told, []
        return told

    # -- The name service ------------------------------------------------------------------------

    def _do_names(self, how: str = "start") -> None:
        """Start the name service, or end it: `names crash`."""
        self._is_up = how == "start"
        now_s = self._mesh.now_ms / 1000
        self._groups = {each.name: Known(each, now_s) for each in self._file}
        if not self._is_up:
            return
        for each in self._file:
            self._told.append(f"names: has in its file that {each.leader} leads {each.name}")

    def _ask(self, request: Request) -> GroupSettings | None:
        if not self._is_up:
            return None
        before = self._settings()
        self._groups, answer = decide(self._groups, request, self._mesh.now_ms / 1000)
        if self._settings() != before:
            self._file = self._settings()
            led = [f"{each.name} is led by {each.leader}" for each in self._file]
            self._told.append(f"names: {', '.join(led) or 'no group any more'}")
        return answer

    def _settings(self) -> tuple[GroupSettings, ...]:
        return tuple(known.settings for known in self._groups.values())

    def _lead(self) -> None:
        """Have the members that lead tell the name service."""
        for process in self._mesh.living():
            if process.view.leader == process.me:
                names = tuple(member.name for member in process.view.members)
                self._ask(Lead(self._settings_of(process.name), names))

    def _settings_of(self, name: str) -> GroupSettings:
        layers = {layer.name: layer for layer in self._mesh.stack.layers}
        described = layers["gcom"].options()
        ordering, multicast = Ordering(described["ordering"]), Multicast(described["multicast"])
        return GroupSettings(GROUP, name, name, ordering, multicast)

    # -- Members ---------------------------------------------------------------------------------

    def _do_join(self, name: str, ordering: str = "fifo", multicast: str = "reliable") -> None:
        """Create the group, or join it."""
        found = self._ask(Look(GROUP))
        if not self._is_up:
            raise ScenarioError("the name service is down: name a member, `via b a`")
        if found is None:
            stack = stack_of(Ordering(ordering), Multicast(multicast))
            self._mesh.stack = stack
            self._start(name, None)
            self._told.append(f"{name}: creates {GROUP}, {ordering}, {multicast}")
            self._ask(Connect(self._settings_of(name)))
        else:
            kind = f"{found.ordering.value}, {found.multicast.value}"
            self._told.append(f"{name}: joins {GROUP}, {kind}, by {found.leader}")
            self._start(name, found.leader)

    def _do_via(self, name: str, member: str) -> None:
        """Join by the address of a member."""
        found = self._settings_of(member)
        kind = f"{found.ordering.value}, {found.multicast.value}"
        self._told.append(f"{name}: joins {GROUP}, {kind}, by {member}")
        self._start(name, member)

    def _start(self, name: str, by: str | None) -> None:
        """Start a process that knows the address of one other one."""
        mesh = self._mesh
        unknown = {frozenset((name, other.name)) for other in mesh.living() if other.name != by}
        parted, mesh.parted = mesh.parted, mesh.parted | unknown
        mesh.start(name)
        mesh.parted = parted
        self._seen[name] = 0

    def _do_send(self, name: str, *words: str) -> None:
        self._mesh.send(name, " ".join(words))

    def _do_half(self, name: str, only: str, *words: str) -> None:
        """A member crashes while it is sending: one other member has got the message."""
        text = " ".join(words)
        self._half = name, only, text.encode()
        self._mesh.send(name, text)
        self._mesh.run(2)
        self._do_crash(name)

    def _do_leave(self, name: str) -> None:
        view = self._member(name).view
        if view.leader.name == name:
            self._ask(Leave(GROUP, name, len(view.members) == 1))
        self._mesh.leave(name)

    def _do_crash(self, *names: str) -> None:
        for name in names:
            self._mesh.kill(name)

    def _member(self, name: str) -> Process:
        process = self._mesh.processes.get(name)
        if process is None or not process.alive:
            raise ScenarioError(f"no member {name}")
        return process

    # -- The network -----------------------------------------------------------------------------

    def _do_part(self, *sides: str) -> None:
        """Break the connections between sides, as `ab cd`."""
        self._mesh.part(*sides)

    def _do_heal(self) -> None:
        self._mesh.heal()

    def _do_wait(self, seconds: str) -> None:
        self._mesh.run(int(float(seconds) * 1000))

    def _passes(self, source: str, target: str, data: bytes) -> bool:
        """Tell what members say of crashes; return whether this frame is lost."""
        codec = self._mesh.processes[source].running.layers[0].codec
        frame = codec.decode(data)
        crash = frame.top(MemberCrash)
        names = () if crash is None else tuple(one.name for one in crash.processes)
        if names and names != (target,):
            have = "has" if len(names) == 1 else "have"
            self._told.append(f"{source} tells {target}: {' '.join(names)} {have} crashed")
        name, only, text = self._half or ("", "", b"?")
        return source == name and target != only and bytes(frame.body) == text

    # -- What is shown ---------------------------------------------------------------------------

    def _look(self) -> bool:
        """Take what the programs were given, in the order of time; return False: wait on."""
        for name, process in sorted(self._mesh.processes.items()):
            for event in process.told[self._seen[name] :]:
                self._seen[name] += 1
                if isinstance(event, Shown):
                    names = " ".join(member.name for member in event.view.members)
                    self._told.append(f"{name}: view ({names}), led by {event.view.leader}")
                elif isinstance(event, Delivered):
                    text = bytes(event.body).decode()
                    self._told.append(f"{name}: {text!r} from {event.sender}")
                elif isinstance(event, Left):
                    self._told.append(f"{name}: has left")
        return False
