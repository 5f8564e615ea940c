"""Processes of GCom for tests: a name service and members, all of one group."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.toolkits import gcom
from antiphon.toolkits.gcom.settings import Multicast, Ordering
from antiphon.toolkits.gcom.stack import stack_of
from tests.peers.support.mesh import Mesh
from tests.process.support.peer_processes import Peer, wait_until


def group(*names: str, multicast: Multicast = Multicast.RELIABLE) -> Mesh:
    """Return simulated processes that run a group's stack, all in one view."""
    mesh = Mesh(*stack_of(Ordering.FIFO, multicast).layers)
    mesh.start(*names)
    assert mesh.until(mesh.together(*names, primary=False))
    return mesh


class Member(Peer):
    """One process (`program.py`)."""

    def wait_led(self, leader: str, *members: str) -> None:
        """Wait until it is in a view of these, with this leader."""
        wanted = {"members": sorted(members), "leader": leader}
        wait_until(lambda: self.ask(view=True) == wanted, f"{self.name} to be in {wanted}")

    @property
    def address(self) -> str:
        """Return where others reach it, once it says so."""
        address: str = self.said("address")["address"]
        return address


class Town:
    """The processes of a test."""

    def __init__(self, folder: Path) -> None:
        self.save = folder / "groups.json"
        self._folder = folder
        self._all: list[Member] = []
        self._starts = 0

    def names(self, address: str = "127.0.0.1:0") -> Member:
        """Start the name service, on the file of the one before."""
        service = self._begin(name="names", address=address, save=str(self.save))
        service.said("address")
        return service

    def join(self, name: str, address: str, **settings: str) -> Member:
        """Start a member, by the address of the name service or of a member, and wait until it has
        joined."""
        member = self._begin(name=name, join=address, **settings)
        joined = member.said("joined")
        assert joined["joined"], joined
        return member

    def _begin(self, **options: Any) -> Member:
        self._starts += 1
        log = self._folder / f"{options['name']}-{self._starts}.log"
        options["program"] = "tests.toolkits.gcom.program"
        member = Member(options, dict(os.environ), log)
        self._all.append(member)
        return member

    def end(self) -> None:
        for member in self._all:
            member.end()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.end()


class App(gcom.Client):
    """A program in the test's own process."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def deliver(self, message: Any) -> None:
        self.got.append(message)

    def wait(self, *messages: Any) -> None:
        """Wait until it has been given all of these."""
        wait_until(lambda: set(messages) <= set(self.got), f"{messages}, got {self.got}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What a test opens, to be closed with it."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def names(tmp_path: Path) -> Iterator[gcom.NameService]:
    with gcom.NameService("127.0.0.1:0", save=tmp_path / "groups.json") as names:
        yield names
