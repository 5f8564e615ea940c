"""A question to one process of a cluster, by a program that does not take part."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack

from antiphon.errors import FormatError
from antiphon.formats import peer_wire as wire
from antiphon.formats.frames import FRAME_MAX, frame
from antiphon.io.frame_reader import FrameReader
from antiphon.io.peers.security import Tls, check_plain, contexts_of
from antiphon.io.transport import parse_address


def ask(
    address: str, question: wire.Question, tls: Tls | None, plaintext: bool, timeout: float
) -> wire.Answer:
    """Return the answer of the process at this address. Raise `OSError` if no process answers
    within `timeout` seconds, `FormatError` if it is not a process of a channel, and
    `ConfigurationError` if it would be plaintext off loopback."""
    host, port = parse_address(address)
    if tls is None and not plaintext:
        check_plain(host)
    with ExitStack() as stack:
        sock = stack.enter_context(socket.create_connection((host, port), timeout))
        if tls is not None:
            sock = stack.enter_context(contexts_of(tls).dials.wrap_socket(sock))
        sock.sendall(frame(wire.encode_word(question)))
        return _answer(sock)


def _answer(sock: socket.socket | ssl.SSLSocket) -> wire.Answer:
    reader = FrameReader(FRAME_MAX)
    while (count := sock.recv_into(reader.room())) > 0:
        for body in reader.arrived(count):
            word = wire.decode_word(body)
            if isinstance(word, wire.Answer):
                return word
            raise FormatError(f"not an answer, but {type(word).__name__}")
    raise ConnectionResetError("it has closed the connection without an answer")
