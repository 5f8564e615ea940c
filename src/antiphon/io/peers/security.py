"""Security of a channel: on loopback any process of this machine may talk to its processes;
elsewhere those with a certificate of the same authority.

Promise: with `Tls`, both sides of each connection speak TLS 1.3 and show a certificate that the
authority has signed, and every owner of one is trusted: names in certificates are not compared with
names of members. Without it, `check_plain` refuses addresses off loopback, unless the program
allows plaintext.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address

import msgspec

from antiphon.errors import ConfigurationError


class Tls(msgspec.Struct, frozen=True):
    """The files of mutual TLS, as PEM: this process's certificate and its private key, and the
    certificate of the authority that signs those of all members."""

    certificate: str
    key: str
    authority: str


class Contexts(msgspec.Struct, frozen=True):
    """The TLS of the side that listens, and of the side that dials."""

    listens: ssl.SSLContext
    dials: ssl.SSLContext


def contexts_of(tls: Tls) -> Contexts:
    """Return the TLS contexts for sockets. Raise `ConfigurationError` if the files make no
    sense."""
    return Contexts(_context(tls, ssl.PROTOCOL_TLS_SERVER), _context(tls, ssl.PROTOCOL_TLS_CLIENT))


def _context(tls: Tls, side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cafile=tls.authority)
    except OSError as error:
        raise ConfigurationError(f"tls: authority {tls.authority!r}: {error}") from None
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise ConfigurationError(
            f"tls: certificate {tls.certificate!r} with key {tls.key!r}: {error}"
        ) from None
    return context


def is_loopback(host: str) -> bool:
    """Return whether this host is this machine, and no other machine can reach it there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_plain(host: str) -> None:
    """Raise `ConfigurationError` if there is no plaintext to or from this host."""
    if not is_loopback(host):
        raise ConfigurationError(
            f"{host or 'all interfaces'}: off loopback a channel needs tls=Tls(certificate, key, "
            "authority), or plaintext=True if everybody who can reach it may read, send and join"
        )
