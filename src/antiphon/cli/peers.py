"""`antiphon peers`, and `antiphon group` with a `peer:` URL: a cluster of peers, seen from outside.
Its processes are found as they find each other, and each is asked by itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec

from antiphon.errors import ConfigurationError, ConnectionLostError, FormatError, IllegalStateError
from antiphon.formats import protocol as cw
from antiphon.formats.peer_wire import Answer, Question
from antiphon.io.peers.asking import ask
from antiphon.io.peers.security import Tls
from antiphon.peers.discovery.discovery import Discovery
from antiphon.peers.discovery.urls import Cluster, cluster_of
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Screen, Table

ANSWER_S = 5.0
"""A process that does not answer within this time is shown as silent."""

ASKED_AT_ONCE = 32
"""So many processes are asked together."""

REFORM_S = 15.0
"""How long `reform` waits for the primary view."""


class Access(NamedTuple):
    """How the processes of a cluster are asked."""

    cluster: str  # its name
    tls: Tls | None
    plaintext: bool

    def ask(self, address: str, what: str) -> Answer:
        question = Question(self.cluster, what)
        return ask(address, question, self.tls, self.plaintext, ANSWER_S)


class Found(NamedTuple):
    """The answers of a cluster's processes."""

    answers: dict[str, str]  # by address, in JSON
    silent: dict[str, str]  # by address: why there is none

    @property
    def objects(self) -> dict[str, dict[str, Any]]:
        return {address: json.loads(text) for address, text in self.answers.items()}


def status(args: argparse.Namespace) -> int:
    """Return 1 unless a process is in a primary view."""
    access, found = _looked(args)
    processes = found.objects
    if args.json:
        say_json({"processes": list(processes.values()), "silent": found.silent})
    else:
        _show(access.cluster, processes, found.silent)
    return 0 if any(process["primary"] for process in processes.values()) else 1


def reform(args: argparse.Namespace) -> int:
    """Return 1 unless there is a primary view in the end."""
    access, found = _looked(args)
    processes = found.objects
    if not processes:
        raise _nobody(access.cluster, found.silent)
    for address, process in processes.items():
        if process["primary"]:
            raise IllegalStateError(
                f"{process['name']} at {address} is in a primary view: {access.cluster!r} is as it "
                "should be; those who cannot reach it are cut off"
            )
    address = max(processes, key=lambda each: len(processes[each]["members"]))
    if not (answer := access.ask(address, "reform")).good:
        raise IllegalStateError(answer.text)
    return _wait(access, address, args.json)


def groups(url: str) -> tuple[cw.GroupStatus, ...]:
    """Return the groups of a cluster, as the server knows them that has applied most. Raise
    `ConnectionLostError` if none answers."""
    statuses, silent = servers(url)
    if not statuses:
        raise _nobody(cluster_of(url).name, silent)
    return max(statuses, key=lambda status: status.applied).groups


def servers(url: str) -> tuple[list[cw.Status], dict[str, str]]:
    """Return the status of each server inside a process of a cluster, and, by address, why others
    have told none."""
    cluster = cluster_of(url)
    found = _look(_access(cluster), cluster.discovery, "server")
    answers = found.answers.values()
    return [msgspec.json.decode(text, type=cw.Status) for text in answers], found.silent


def _nobody(cluster: str, silent: dict[str, str]) -> ConnectionLostError:
    listed = "".join(f"; {address}: {why}" for address, why in silent.items())
    return ConnectionLostError(f"no process of {cluster!r} answers{listed}")


def _wait(access: Access, address: str, as_json: bool) -> int:
    """Wait until the process that founds the cluster anew is in a primary view."""
    deadline = time.monotonic() + REFORM_S
    while time.monotonic() < deadline:
        answer: dict[str, Any] = json.loads(access.ask(address, "status").text)
        if answer["primary"]:
            if as_json:
                say_json({"reformed": access.cluster, "members": answer["members"]})
            else:
                say(f"{access.cluster} was founded anew: {' '.join(answer['members'])}")
            return 0
        time.sleep(0.1)
    raise IllegalStateError(f"{access.cluster!r} has no primary view after {REFORM_S:g} s")


def _looked(args: argparse.Namespace) -> tuple[Access, Found]:
    """Ask all processes of the cluster for their status."""
    tls = _tls(args)  # first: whether or not there is anybody to ask
    cluster = cluster_of(args.url)
    access = _access(cluster, tls, args.plaintext)
    return access, _look(access, cluster.discovery, "status")


def _access(cluster: Cluster, tls: Tls | None = None, plaintext: bool = False) -> Access:
    """Return how to ask a cluster: as the command's options say, or else as its URL does."""
    if tls is None and cluster.files:
        tls = Tls(*cluster.files)
    return Access(cluster.name, tls, plaintext or cluster.plaintext)


def _look(access: Access, discovery: Discovery, what: str) -> Found:
    """Ask all processes at once: those that stand still take `ANSWER_S` each."""
    addresses = sorted(asyncio.run(_addresses(discovery)))
    found = Found({}, {})
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = pool.map(lambda address: _answer(access, address, what), addresses)
        for address, answer in zip(addresses, answers, strict=True):
            (found.answers if answer.good else found.silent)[address] = answer.text
    return found


def _answer(access: Access, address: str, what: str) -> Answer:
    try:
        return access.ask(address, what)
    except (OSError, FormatError) as error:
        return Answer(False, str(error) or type(error).__name__)


async def _addresses(discovery: Discovery) -> Sequence[str]:
    try:
        return await discovery.look()
    finally:
        await discovery.leave(last=False)


def _tls(args: argparse.Namespace) -> Tls | None:
    files = [file for file in (args.certificate, args.key, args.authority) if file is not None]
    if len(files) in (1, 2):
        raise ConfigurationError("--certificate, --key and --authority go together")
    return Tls(*map(str, files)) if files else None


def _show(cluster: str, processes: dict[str, dict[str, Any]], silent: dict[str, str]) -> None:
    table = Table("process", "address", "view", "connected to", "waits for")
    for address, process in processes.items():
        kind = "primary" if process["primary"] else "not primary"
        table.add_row(
            process["name"],
            address,
            f"{' '.join(process['members'])} ({kind})",
            " ".join(sorted(process["connected"])),
            process["waits_for"],
        )
    if processes:
        Screen().print(table)
    for address, why in silent.items():
        say(f"{address} does not answer: {why}")
    if not any(process["primary"] for process in processes.values()):
        say(f"{cluster} has no primary view")
