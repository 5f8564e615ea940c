"""The Group Name System: from the name of a group to its leader and its settings."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from antiphon.errors import ConfigurationError, ConnectionLostError, FormatError
from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import Body
from antiphon.io.background_loop import background_loop
from antiphon.io.peers.asking import ask
from antiphon.io.peers.security import Tls, contexts_of
from antiphon.io.peers.transport import PeerTransport
from antiphon.io.transport import parse_address
from antiphon.model.peer_views import MemberId
from antiphon.toolkits.gcom.registry import Groups, Known, decide
from antiphon.toolkits.gcom.settings import (
    GroupSettings,
    Look,
    Request,
    decode_answer,
    decode_groups,
    decode_request,
    encode,
    encode_groups,
)

logger = logging.getLogger("antiphon.toolkits.gcom")

CLUSTER = "gcom.names"
"""By which questions to a name service are known from those to a member."""

ASK_S = 3.0
"""How long a name service, or a member, may take to answer."""

Outcome = TypeVar("Outcome")


class NameService:
    """The name service of groups, which all who want to join know by its address.

    `address` (`HOST:PORT`; port 0: any) is where it listens. `save`: the file that it keeps its
    groups in, and begins with; each change is on disk before it is answered, so a service that is
    started again, on the same file, knows what the one before knew. What has changed meanwhile it
    learns from the leaders, which tell of themselves twice a second. Groups go on without it.
    Without `save` it begins with nothing, and learns all from the leaders. `tls`, `plaintext`: as
    for `peers.Channel`.

    Limits: one service writes a file. A group whose members have all crashed stays known, as one
    cannot tell this from a partition: `remove` forgets it.

    Raises `ConfigurationError` if it cannot listen there, or the file is not one of a name service.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:1078",
        save: str | os.PathLike[str] | None = None,
        *,
        tls: Tls | None = None,
        plaintext: bool = False,
    ) -> None:
        self._file = None if save is None else Path(save)
        self._lock = threading.Lock()
        self._groups: Groups = {}
        if self._file is not None and self._file.exists():
            self._groups = _read(self._file, time.monotonic())
        check_address(address)
        me = MemberId("name service", secrets.randbits(62) + 1)
        own = wire.PeerHello(wire.MAGIC, wire.OLDEST, wire.NEWEST, CLUSTER, 0, "", me, "")
        contexts = None if tls is None else contexts_of(tls)
        self._transport = PeerTransport(own, _Desk(self), contexts, plaintext)
        try:
            self.address = _on_loop(self._listen(address))
        except OSError as error:
            raise ConfigurationError(f"no name service at {address!r}: {error}") from None
        self._closed = False

    async def _listen(self, address: str) -> str:
        return self._transport.listen((address,))

    @property
    def groups(self) -> dict[str, GroupSettings]:
        """The groups that it knows, by their names."""
        with self._lock:
            return {name: known.settings for name, known in self._groups.items()}

    def remove(self, group: str) -> None:
        """Forget a group: the next one that joins begins it anew. If it has members after all, its
        leader tells of itself again."""
        with self._lock:
            self._replace({name: one for name, one in self._groups.items() if name != group})

    def close(self) -> None:
        """Answer no more. Closing twice is no error."""
        if not self._closed:
            self._closed = True
            _on_loop(self._transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, request: Request) -> GroupSettings | None:
        """Carry out a request. Raise `OSError` if its outcome cannot be kept: then nothing has
        changed."""
        with self._lock:
            groups, answer = decide(self._groups, request, time.monotonic())
            self._replace(groups)
        return answer

    def _replace(self, groups: Groups) -> None:
        """Go on with these groups. Caller holds the lock."""
        if self._file is not None and _settings(groups) != _settings(self._groups):
            _write(self._file, groups)
        self._groups = groups


class _Desk:
    """Answers for a name service: `PeerHandler` to its transport, which has no peers."""

    def __init__(self, service: NameService) -> None:
        self._service = service

    def asked(self, what: str) -> wire.Answer:
        try:
            return wire.Answer(True, encode(self._service.answer(decode_request(what))))
        except (FormatError, OSError) as error:
            logger.warning("name service at %s: %s", self._service.address, error)
            return wire.Answer(False, str(error))

    def welcome(self, process: MemberId) -> wire.Refused | None:
        return wire.Refused("this is a name service, and a member of nothing", again=False)

    def linked(self, process: MemberId, address: str) -> None:
        """Never happens."""

    def unlinked(self, process: MemberId, goodbye: bool) -> None:
        """Never happens."""

    def arrived(self, process: MemberId, bodies: Sequence[Body]) -> None:
        """Never happens."""

    def refused(self, who: str, reason: str, again: bool) -> None:
        """Never happens: it dials nobody."""

    def turned_away(self, who: str, reason: str) -> None:
        """It is in the transport's log."""

    def unreachable(self, address: str) -> None:
        """Never happens."""

    def replaced(self, reason: str) -> None:
        """Never happens."""


# -- Asking ----------------------------------------------------------------------------------------


def lookup(
    address: str, group: str, *, tls: Tls | None = None, plaintext: bool = False
) -> GroupSettings | None:
    """Return the settings of a group, with its leader, as the name service at this address knows
    them; None: it knows no such group. The address may also be that of a member: then the settings
    are those that it has, with its own address.

    Raise `ConnectionLostError` if nobody answers, `ConfigurationError` for an address that is none,
    or is that of something else."""
    what = encode(Look(group))
    answer = _ask(address, wire.Question(CLUSTER, what), tls, plaintext)
    if answer.good:
        return _understood(address, answer.text)
    answer = _ask(address, wire.Question(group, "status"), tls, plaintext)
    if not answer.good:
        raise ConfigurationError(f"{address}: {answer.text}")
    try:
        described = dict(json.loads(answer.text)["layers"]["gcom"])
    except (ValueError, TypeError, KeyError):
        no_group = f"{address}: a member of {group!r}, which is no group of GCom"
        raise ConfigurationError(no_group) from None
    return _understood(address, json.dumps({**described, "name": group, "address": address}))


def request(
    address: str, what: Request, *, tls: Tls | None = None, plaintext: bool = False
) -> GroupSettings | None:
    """Have a name service carry out a request. Raise as `lookup` does."""
    answer = _ask(address, wire.Question(CLUSTER, encode(what)), tls, plaintext)
    if not answer.good:
        raise ConfigurationError(f"{address}: {answer.text}")
    return _understood(address, answer.text)


def check_address(address: str) -> tuple[str, int]:
    """Return the host and the port. Raise `ConfigurationError` for what is not an address."""
    try:
        host, port = parse_address(address)
        host.encode("idna")  # the system's calls leave a socket open if they cannot do it
    except (FormatError, UnicodeError) as error:
        raise ConfigurationError(f"{address!r}: {error}") from None
    if not host.isprintable():
        raise ConfigurationError(f"{address!r} has characters that no host has")
    return host, port


def _ask(address: str, question: wire.Question, tls: Tls | None, plaintext: bool) -> wire.Answer:
    check_address(address)
    try:
        return ask(address, question, tls, plaintext, ASK_S)
    except FormatError as error:
        raise ConfigurationError(f"{address!r}: {error}") from None
    except OSError as error:
        raise ConnectionLostError(f"nobody answers at {address}: {error}") from None


def _understood(address: str, text: str) -> GroupSettings | None:
    try:
        return decode_answer(text)
    except FormatError as error:
        raise ConfigurationError(f"{address}: {error}") from None


def _on_loop(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    return asyncio.run_coroutine_threadsafe(work, background_loop()).result()


# -- The file --------------------------------------------------------------------------------------


def _settings(groups: Groups) -> tuple[GroupSettings, ...]:
    return tuple(known.settings for known in groups.values())


def _read(file: Path, now_s: float) -> Groups:
    """Return the groups in a file. Their leaders have as much time to tell of themselves as if they
    had done so now."""
    try:
        settings = decode_groups(file.read_bytes())
    except (OSError, FormatError) as error:
        raise ConfigurationError(f"save={str(file)!r}: {error}") from None
    return {each.name: Known(each, now_s) for each in settings}


def _write(file: Path, groups: Groups) -> None:
    """Replace the file. A crash in here leaves the old one or the new one."""
    new = file.with_name(f"{file.name}.new")
    with new.open("wb") as out:
        out.write(encode_groups(_settings(groups)))
        out.flush()
        os.fsync(out.fileno())
    os.replace(new, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
