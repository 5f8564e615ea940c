"""`antiphon peers`: a cluster of peers, seen from outside. Its processes are found as they find
each other, and each is asked by itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from antiphon.errors import ConfigurationError, ConnectionLostError, FormatError, IllegalStateError
from antiphon.formats.peer_wire import Answer, Question
from antiphon.io.peers.asking import ask
from antiphon.io.peers.security import Tls
from antiphon.peers.discovery.discovery import Discovery
from antiphon.peers.discovery.urls import cluster_of
from antiphon.terminal.lines import say, say_json
from antiphon.terminal.screen import Screen, Table

ANSWER_S = 5.0
"""A process that does not answer within this time is shown as silent."""

REFORM_S = 15.0
"""How long `reform` waits for the primary view."""


class Cluster(NamedTuple):
    """The processes of a cluster, as they could be asked."""

    name: str
    answers: dict[str, dict[str, Any]]  # by address: the status
    silent: dict[str, str]  # by address: why there is none


def status(args: argparse.Namespace) -> int:
    """Return 1 unless a process is in a primary view."""
    found = look(args.url, _tls(args), args.plaintext)
    if args.json:
        say_json({"processes": list(found.answers.values()), "silent": found.silent})
    else:
        _show(found)
    return 0 if any(answer["primary"] for answer in found.answers.values()) else 1


def reform(args: argparse.Namespace) -> int:
    """Return 1 unless there is a primary view in the end."""
    tls = _tls(args)
    found = look(args.url, tls, args.plaintext)
    if not found.answers:
        raise ConnectionLostError(f"no process of {found.name!r} answers{_listed(found.silent)}")
    for address, process in found.answers.items():
        if process["primary"]:
            raise IllegalStateError(
                f"{process['name']} at {address} is in a primary view: {found.name!r} is as it "
                "should be; those who cannot reach it are cut off"
            )
    address = max(found.answers, key=lambda each: len(found.answers[each]["members"]))

    def about(what: str) -> Answer:
        return _ask(found.name, address, what, tls, args.plaintext)

    if not (answer := about("reform")).good:
        raise IllegalStateError(answer.text)
    return _wait(found.name, about, args.json)


def _wait(cluster: str, about: Callable[[str], Answer], as_json: bool) -> int:
    """Wait until the process that founds the cluster anew is in a primary view."""
    deadline = time.monotonic() + REFORM_S
    while time.monotonic() < deadline:
        answer: dict[str, Any] = json.loads(about("status").text)
        if answer["primary"]:
            if as_json:
                say_json({"reformed": cluster, "members": answer["members"]})
            else:
                say(f"{cluster} was founded anew: {' '.join(answer['members'])}")
            return 0
        time.sleep(0.1)
    raise IllegalStateError(f"{cluster!r} has no primary view after {REFORM_S:g} s")


def look(url: str, tls: Tls | None = None, plaintext: bool = False) -> Cluster:
    """Ask all processes of this URL that are found. Raise `ConfigurationError` if it is none."""
    cluster = cluster_of(url)
    answers, silent = {}, {}
    for address in sorted(asyncio.run(_addresses(cluster.discovery))):
        try:
            answer = _ask(cluster.name, address, "status", tls, plaintext)
        except (OSError, FormatError) as error:
            silent[address] = str(error) or type(error).__name__
        else:
            if answer.good:
                answers[address] = json.loads(answer.text)
            else:
                silent[address] = answer.text
    return Cluster(cluster.name, answers, silent)


async def _addresses(discovery: Discovery) -> Sequence[str]:
    try:
        return await discovery.look()
    finally:
        await discovery.leave(last=False)


def _ask(cluster: str, address: str, what: str, tls: Tls | None, plaintext: bool) -> Answer:
    return ask(address, Question(cluster, what), tls, plaintext, ANSWER_S)


def _tls(args: argparse.Namespace) -> Tls | None:
    files = [file for file in (args.certificate, args.key, args.authority) if file is not None]
    if len(files) in (1, 2):
        raise ConfigurationError("--certificate, --key and --authority go together")
    return Tls(*map(str, files)) if files else None


def _show(found: Cluster) -> None:
    table = Table("process", "address", "view", "connected to", "waits for")
    for address, answer in found.answers.items():
        kind = "primary" if answer["primary"] else "not primary"
        table.add_row(
            answer["name"],
            address,
            f"{' '.join(answer['members'])} ({kind})",
            " ".join(sorted(answer["connected"])),
            answer["waits_for"],
        )
    if found.answers:
        Screen().print(table)
    for address, why in found.silent.items():
        say(f"{address} does not answer: {why}")
    if not any(answer["primary"] for answer in found.answers.values()):
        say(f"{found.name} has no primary view")


def _listed(silent: dict[str, str]) -> str:
    return "".join(f"; {address}: {why}" for address, why in silent.items())
