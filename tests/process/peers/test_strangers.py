"""Whoever does not belong to a cluster of real processes: it learns why, and disturbs nobody."""

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import frame
from antiphon.io.peers.security import Tls
from antiphon.model.peer_views import MemberId
from tests.peers.support.certificates import Authority
from tests.process.support.peer_processes import Peer, Peers, free_addresses, peers_in

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"))


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    with peers_in(tmp_path) as peers:
        yield peers


def files(tls: Tls) -> list[str]:
    return [tls.certificate, tls.key, tls.authority]


def heard(sock: socket.socket) -> bytes:
    """Return what comes before the other side hangs up."""
    try:
        return sock.recv(1000)
    except OSError:
        return b""


def untroubled(*peers: Peer) -> None:
    """Check that these go on as if nothing had been."""
    names = [peer.name for peer in peers]
    peers[0].send("still here")
    for peer in peers:
        peer.wait_bodies({"still here"})
        assert sorted(peer.views[-1]["view"]) == names
        assert peer.views[-1]["primary"]


def refused(peers: Peers, name: str, **options: Any) -> str:
    """Start a process that is not let in, and return what it is told."""
    said = peers.begin(name, timeout=3.0, **options).said("connected")
    assert (said["error"], said["happened"]) == ("ConfigurationError", "no"), said
    text: str = said["text"]
    return text


# -- TLS ------------------------------------------------------------------------------------------


def test_with_certificates_of_one_authority_they_meet(peers: Peers, authority: Authority) -> None:
    a = peers.begin("a", tls=files(authority.issue("one")))
    b = peers.begin("b", tls=files(authority.issue("two")))  # the names in them do not matter
    for peer in (a, b):
        peer.wait_view("a", "b", primary=True)
    untroubled(a, b)


def test_a_certificate_of_another_authority_is_refused(
    peers: Peers, authority: Authority, other_authority: Authority
) -> None:
    tls = files(authority.issue("one"))
    group = peers.group("a", "b", tls=tls)
    wrong = files(other_authority.issue("one"))
    assert "certificate verify failed" in refused(peers, "c", tls=wrong)
    # One that trusts them, and shows them a certificate of an authority that they do not know.
    disguised = [*wrong[:2], tls[2]]
    assert "perhaps its authority has not signed the certificate of this process" in refused(
        peers, "d", tls=disguised
    )
    untroubled(*group)


def test_without_a_certificate_nobody_gets_in(peers: Peers, authority: Authority) -> None:
    group = peers.group("a", "b", tls=files(authority.issue("one")))
    host, port = group[0].said("connected")["address"].split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), 10) as sock,
        context.wrap_socket(sock) as stranger,
    ):
        # In TLS 1.3 the dialling side is done before the other one looks at its certificate.
        assert heard(stranger) == b""
    untroubled(*group)


def test_plaintext_against_tls_says_so_at_both_ends(peers: Peers, authority: Authority) -> None:
    group = peers.group("a", "b", tls=files(authority.issue("one")))
    assert "it hung up during the handshake" in refused(peers, "c")
    untroubled(*group)


def test_tls_against_plaintext_says_so(peers: Peers, authority: Authority) -> None:
    group = peers.group("a", "b")
    text = refused(peers, "c", tls=files(authority.issue("one")))
    assert "perhaps it speaks plaintext" in text
    untroubled(*group)


def test_off_loopback_plaintext_must_be_asked_for(peers: Peers) -> None:
    text = refused(peers, "a", listen="0.0.0.0:0")
    assert "off loopback a channel needs tls=Tls(certificate, key, authority)" in text
    a = peers.join("a", listen="0.0.0.0:0", plaintext=True)
    assert a.wait_view("a")["primary"]


# -- Others ---------------------------------------------------------------------------------------


def test_another_stack_is_refused_with_both_printed(peers: Peers) -> None:
    group = peers.group("a", "b")
    text = refused(peers, "c", stack="fifo")
    assert "runs another stack" in text
    assert "All members of a cluster need the same" in text
    untroubled(*group)


def test_another_cluster_at_a_listed_address_is_named(peers: Peers) -> None:
    (address,) = free_addresses(1)
    a = peers.join("a", listen=address)
    url = f"peer://{address},{free_addresses(1)[0]}/d"
    assert "a belongs to the cluster 'c', not to 'd'" in refused(peers, "b", url=url)
    untroubled(a)


def test_another_version_is_refused_with_both_numbers(peers: Peers) -> None:
    group = peers.group("a", "b")
    host, port = group[0].said("connected")["address"].split(":")
    hello = wire.PeerHello(wire.MAGIC, 8, 9, "c", 0, "", MemberId("new", 1), "127.0.0.1:1")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(frame(wire.encode_hello(hello)))
        answer = b""
        while chunk := sock.recv(1 << 16):
            answer += chunk
    assert f"a speaks {wire.OLDEST} to {wire.NEWEST}, new speaks 8 to 9".encode() in answer
    untroubled(*group)


def test_garbage_on_the_port_ends_its_connection_and_no_other(peers: Peers) -> None:
    group = peers.group("a", "b")
    host, port = group[0].said("connected")["address"].split(":")
    for garbage in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        struct.pack("<II", 1 << 31, 0) + b"much is announced",
        frame(b"\xc1" * 4000),
        b"",
    ):
        with socket.create_connection((host, int(port)), 10) as sock:
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
            assert heard(sock) == b""
    untroubled(*group)
