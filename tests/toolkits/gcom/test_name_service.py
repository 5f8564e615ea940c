"""The name service of GCom: its file, its leaders, and who is not wanted there."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon import peers
from antiphon.errors import ConfigurationError, ConnectionLostError, OutcomeUnknownError
from antiphon.formats.peer_wire import Question
from antiphon.io.peers.asking import ask
from antiphon.toolkits import gcom
from antiphon.toolkits.gcom.names import CLUSTER
from antiphon.toolkits.gcom.settings import encode_groups
from tests.process.support.peer_processes import free_addresses, wait_until
from tests.toolkits.gcom.conftest import App

pytestmark = pytest.mark.process


def test_lookup_at_the_name_service_and_at_a_member(
    names: gcom.NameService, stack: ExitStack
) -> None:
    assert gcom.lookup(names.address, "chat") is None
    b = gcom.Management(App(), names.address, "chat", ordering="total", name="b")
    a = gcom.Management(App(), names.address, "chat", name="a")
    stack.enter_context(b), stack.enter_context(a)
    known = gcom.GroupSettings("chat", "b", b.address, gcom.TOTAL, gcom.RELIABLE, names.address)
    assert gcom.lookup(names.address, "chat") == names.groups["chat"] == known
    at_a = gcom.lookup(a.address, "chat")
    assert at_a == gcom.GroupSettings(
        "chat", "b", a.address, gcom.TOTAL, gcom.RELIABLE, names.address
    )


def test_the_file_is_there_before_the_answer(names: gcom.NameService, tmp_path: Path) -> None:
    with (
        gcom.Management(App(), names.address, "chat", name="a"),
        gcom.NameService("127.0.0.1:0", save=tmp_path / "groups.json") as other,
    ):
        assert other.groups == names.groups


def test_without_its_file_it_learns_from_the_leaders(names: gcom.NameService) -> None:
    address = names.address
    with gcom.Management(App(), address, "chat", ordering="total", name="a"):
        names.close()
        with gcom.NameService(address) as empty:
            wait_until(lambda: "chat" in empty.groups, "the leader to tell of itself")
            assert empty.groups["chat"].ordering is gcom.TOTAL


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with gcom.NameService("127.0.0.1:0", save=folder / "groups.json") as names:
        folder.rmdir()
        with pytest.raises(ConfigurationError, match="No such file"):
            gcom.Management(App(), names.address, "chat")
        assert names.groups == {}


@pytest.mark.parametrize("content", ["", "{}", '[{"name": "chat"}]', "\0\0"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "groups.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"groups\.json.*not the groups"):
        gcom.NameService("127.0.0.1:0", save=file)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", "127.0.0.1:x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        gcom.NameService(address)
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        gcom.Management(App(), address, "chat")
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        gcom.lookup(address, "chat")


@pytest.mark.parametrize("host", ["a..b", "\0", "x" * 300])
def test_what_is_no_host_is_refused(host: str) -> None:
    address = f"{host}:1078"
    for attempt in (
        lambda: gcom.NameService(address, plaintext=True),
        lambda: gcom.Management(App(), address, "chat", plaintext=True),
        lambda: gcom.lookup(address, "chat", plaintext=True),
    ):
        with pytest.raises((ConfigurationError, ConnectionLostError)):
            attempt()


def test_an_address_that_is_taken_is_refused(names: gcom.NameService) -> None:
    with pytest.raises(ConfigurationError, match="no name service at"):
        gcom.NameService(names.address)


def test_plaintext_off_loopback_has_to_be_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="plaintext=True"):
        gcom.NameService("0.0.0.0:0")
    with gcom.NameService("0.0.0.0:0", plaintext=True) as names:
        names.close()


def test_strangers_change_nothing(names: gcom.NameService) -> None:
    host, port = names.address.split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        stranger.settimeout(10)
        while stranger.recv(1000):
            pass
    answer = ask(names.address, Question(CLUSTER, "garbage"), None, False, 5)
    assert not answer.good
    assert "not a request" in answer.text
    with peers.Channel(peers.FIFO) as channel, pytest.raises(ConfigurationError):
        channel.connect(f"peer:at/{names.address}/{CLUSTER}?min=2", timeout=5)
    assert gcom.lookup(names.address, "chat") is None


def test_a_crashed_group_is_forgotten_when_it_is_told_to_be(tmp_path: Path) -> None:
    """A leader that is known from the file, and dead."""
    (address,) = free_addresses(1)
    dead = gcom.GroupSettings("chat", "a", address, gcom.FIFO, gcom.BASIC)
    file = tmp_path / "groups.json"
    file.write_bytes(encode_groups((dead,)))
    with gcom.NameService("127.0.0.1:0", save=file) as names:
        with pytest.raises(
            OutcomeUnknownError, match=r"its leader a is not there.*remove"
        ) as error:
            gcom.Management(App(), names.address, "chat", timeout=0.5)
        assert error.value.happened == "no"
        names.remove("chat")
        with gcom.Management(App(), names.address, "chat", multicast=gcom.RELIABLE) as member:
            assert member.multicast is gcom.RELIABLE
