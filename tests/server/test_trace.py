"""The trace that a server writes of a connection. (Of whole clusters: the same name in process.)"""

import logging
import os
from pathlib import Path

import pytest

from antiphon.broker.machine.consumers.consumer import Consumer
from antiphon.broker.machine.machine import Broker
from antiphon.broker.machine.sessions.session import Session
from antiphon.errors import ConfigurationError
from antiphon.formats import columns, pack
from antiphon.formats import protocol as cw
from antiphon.formats.trace import TraceEvent, decode
from antiphon.server.trace import ServerTrace

SESSION = 0x5F
QUEUE = "queue:q"


def packed(sequence: int, count: int, session: int = SESSION) -> bytes:
    body, flags = columns.encode([columns.Outgoing(1, b"x", b"", 0)] * count)
    return pack.encode(QUEUE, count, body, session, sequence, flags=flags)


@pytest.fixture
def broker() -> Broker:
    broker = Broker(None)
    session = broker.sessions[SESSION] = Session(SESSION, b"", "", 1000)
    session.consumers[1] = Consumer(SESSION, 1, QUEUE, 10, "block", None)
    return broker


def attach(trace: ServerTrace, link: int, attachment: int) -> None:
    trace.asked(link, cw.Attach(SESSION, b"", attachment > 1, attachment, "", 1000, (), ()))
    trace.told(link, cw.Attached(SESSION, attachment, (), (), 1000, 1000))


def written(folder: Path) -> list[TraceEvent]:
    events, torn = decode((folder / f"{folder.name}-node-1-1.trace").read_bytes())
    assert not torn
    return events


def test_what_may_have_been_sent_on_an_earlier_connection_is_marked(
    broker: Broker, tmp_path: Path
) -> None:
    trace = ServerTrace(str(tmp_path), 1, broker)
    attach(trace, 1, 1)
    trace.told(1, cw.Deliver(1, 1, 0, 1, packed(1, 3)))
    broker.position = 3
    trace.lost(1)
    attach(trace, 2, 2)
    trace.told(2, cw.Deliver(1, 3, 0, 1, packed(3, 2)))
    rows = [e for e in written(tmp_path) if e.kind == "deliver"]
    assert [(e.incarnation, e.seq, e.didx, e.position, e.redelivered) for e in rows] == [
        (1, 1, 0, 1, False),
        (1, 2, 1, 2, False),
        (1, 3, 2, 3, False),
        (2, 1, 0, 3, True),
        (2, 2, 1, 4, False),
    ]
    assert rows[0].message == "ID:5f.1"
    assert {e.process for e in rows} == {"5f"}


def test_what_is_sent_is_written_down_if_it_is_the_sessions_own(
    broker: Broker, tmp_path: Path
) -> None:
    trace = ServerTrace(str(tmp_path), 1, broker)
    trace.asked(1, cw.Publish(packed(1, 1)))  # it is not attached
    attach(trace, 1, 1)
    trace.asked(1, cw.Publish(packed(1, 2)))
    trace.asked(1, cw.Publish(packed(1, 2, session=7)))
    trace.asked(1, cw.Publish(packed(1, 2)[:-1]))
    assert [(e.kind, e.message, e.sender, e.sender_seq) for e in written(tmp_path)] == [
        ("send", "ID:5f.1", "5f", 1),
        ("send", "ID:5f.2", "5f", 2),
    ]


def test_what_a_client_says_wrongly_ends_neither_the_trace_nor_the_server(
    broker: Broker, tmp_path: Path
) -> None:
    trace = ServerTrace(str(tmp_path), 1, broker)
    attach(trace, 1, 1)
    trace.asked(1, cw.Publish(packed((1 << 64) - 1, 2)))  # which is refused
    body, flags = columns.encode([columns.Outgoing(1, b"x", b"\xc1", 0)])
    trace.told(1, cw.Deliver(1, 1, 0, 1, pack.encode(QUEUE, 1, body, SESSION, 1, flags=flags)))
    (row,) = written(tmp_path)
    assert (row.kind, row.message, row.tag) == ("deliver", "ID:5f.1", None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it needs a disk that is full")
def test_a_trace_that_cannot_be_written_ends_and_says_so(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = ServerTrace(str(tmp_path), 1, broker)
    attach(trace, 1, 1)
    assert trace._file is not None
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), trace._file._file)
    with caplog.at_level(logging.ERROR):
        trace.asked(1, cw.Publish(packed(1, 1)))
        trace.asked(1, cw.Publish(packed(2, 1)))
    (record,) = caplog.records
    assert "the trace ends here, for it cannot be written: No space left" in record.getMessage()


def test_a_folder_that_cannot_be_made(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="no trace can be written to"):
        ServerTrace(str(tmp_path / "file"), 1, broker)
