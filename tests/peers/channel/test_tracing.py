"""Traces say what a channel's stack was given and gave back, before anybody else can know."""

from antiphon.checkers import channel_traces
from antiphon.checkers.channel_traces import Cluster
from antiphon.checkers.peer_histories import Delivery, End, Receipt, Sending, Showing
from antiphon.errors import ConnectionLostError
from antiphon.formats.channel_trace import ChannelEvent, ChannelReading, encode_header, life_text
from antiphon.model.peer_views import Level, ViewId
from antiphon.peers.channel.tracing import traced
from antiphon.peers.layers.reliable import Reliable
from antiphon.peers.layers.safe import Safe
from antiphon.peers.layers.total import Total
from antiphon.peers.stack.stack import Stack
from tests.peers.support.channels import Process
from tests.peers.support.scripted import Scripted


def events_of(process: Process) -> list[ChannelEvent]:
    return list(ChannelReading(encode_header() + b"".join(process.written)))


def pair() -> tuple[Process, Process]:
    """Two processes in one view, with traces, whose safe messages wait for both."""
    layers = (Reliable(), Scripted(), Safe(), Total())
    a, b = (Process(name, *layers, traces=True) for name in "ab")
    view = a.join(b)
    b.join(a, view)
    return a, b


def exchange(a: Process, b: Process) -> None:
    """Have both hear everything that either says."""
    for _ in range(5):
        for process, other in ((a, b), (b, a)):
            sent, other.sent = other.sent, []
            process.driver.arrived(other.me, [data for _, data in sent], process.now_ms)
            process.advance(100)


def test_a_trace_has_what_happened() -> None:
    a, b = pair()
    a.put("one")
    b.put("two", level=Level.SAFE)
    a.put("for b", to="b", level=Level.FIFO)
    exchange(a, b)
    read = channel_traces.histories([*events_of(a), *events_of(b)])[Cluster("run", "c")]
    view = ViewId(1, a.me)
    assert [event for event in read[b.me] if isinstance(event, Sending | Receipt | Showing)] == [
        Showing(a.running.view, (b.me,)),
        Sending(1, Level.SAFE),
        Receipt(b.me, 1, view),
    ]
    assert sorted(event for event in read[b.me] if isinstance(event, Delivery)) == [
        Delivery(a.me, 1, Level.AGREED, view),
        Delivery(a.me, 2, Level.FIFO, view),
        Delivery(b.me, 1, Level.SAFE, view),
    ]
    assert channel_traces.check([*events_of(a), *events_of(b)], complete=True) == []


def test_an_end_is_the_last_row() -> None:
    a, _ = pair()
    a.driver.fail(ConnectionLostError("gone"))
    a.driver.fail(ConnectionLostError("gone"))
    read = channel_traces.histories(events_of(a))[Cluster("run", "c")]
    assert [event for event in read[a.me] if isinstance(event, End)] == [End(crashed=False)]
    assert events_of(a)[-1].kind == "end"


def test_rows_are_written_before_what_follows_from_them_leaves() -> None:
    """A process that is killed has said nothing to the others that its trace does not say."""
    a, b = pair()
    a.put("mine", level=Level.SAFE)
    assert a.written_at_flush == len(a.written)
    b.receive_from(a)
    b.advance(100)
    assert b.sent, "b acknowledges"
    assert "receive" in [event.kind for event in events_of(b)]
    assert b.written_at_flush == len(b.written)


def test_what_belongs_to_the_end_of_a_view_says_so() -> None:
    a, _ = pair()
    a.put("mine", level=Level.SAFE)
    a.close_view()
    delivered = [event for event in events_of(a) if event.kind == "deliver"]
    assert [(event.sender, event.closing) for event in delivered] == [(life_text(a.me), True)]


def test_a_stack_is_the_same_with_a_trace_as_without() -> None:
    stack = Stack(Reliable(), Scripted(), Safe(), Total())
    with_trace = traced(stack, Process("a", traces=True).trace)  # type: ignore[arg-type]
    assert with_trace.digest == stack.digest
    assert "receipts" in str(with_trace)
    plain = Stack(Reliable(), Scripted(), Total())
    assert traced(plain, Process("a", traces=True).trace) == plain  # type: ignore[arg-type]
