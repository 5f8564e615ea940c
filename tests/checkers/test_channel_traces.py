"""Traces of channels are read as the histories that they were written of."""

from msgspec.structs import replace

from antiphon.checkers import channel_traces
from antiphon.checkers.channel_traces import Cluster
from antiphon.checkers.peer_histories import Delivery, End, Sending
from antiphon.model.peer_views import Level, MemberId, ViewId
from tests.checkers.support.channel_rows import rows
from tests.checkers.support.peer_histories import Peers, life, three


def story() -> Peers:
    """Every kind of event: packs for all and for some, a crash, an end, and a merge."""
    h = three().send("a", Level.SAFE).receive("a b c", "a:1").deliver("a b c", "a:1", closing=True)
    h.send("b", Level.FIFO, to="c").deliver("c", "b:1").end("c")
    h.view(2, "a b", merged=(ViewId(1, life("a")),)).end("b", crashed=False)
    return h


def test_what_is_read_is_what_happened() -> None:
    h = story()
    read = channel_traces.histories(reversed(rows(h.events)))
    history = read.pop(Cluster("run", "c"))
    assert read == {}
    del history[MemberId("c", 101)]  # that it was started again says that it crashed
    assert history == h.events
    assert channel_traces.check(rows(h.events)) == []


def test_a_pack_stands_for_its_messages() -> None:
    view, *rest = rows(three().send("a").deliver("a", "a:1").events)
    packs = [replace(row, count=3) for row in rest if row.kind in ("send", "deliver")]
    history = channel_traces.histories([view, *packs])[Cluster("run", "c")]
    sent = [e.number for e in history[life("a")] if isinstance(e, Sending)]
    delivered = [e.number for e in history[life("a")] if isinstance(e, Delivery)]
    assert sent == delivered == [1, 2, 3]


def test_a_life_that_just_stops_goes_on() -> None:
    h = three().end("a", crashed=False)
    history = channel_traces.histories(rows(h.events))[Cluster("run", "c")]
    ends = {str(who): events[-1] for who, events in history.items() if isinstance(events[-1], End)}
    assert ends == {"a": End(crashed=False)}


def test_runs_and_clusters_have_nothing_to_do_with_each_other() -> None:
    h = three().send("a").deliver("a b c", "a:1")
    lost = [row for row in rows(h.events, cluster="d") if row.kind != "send"]
    both = [*rows(h.events), *rows(h.events, run="other"), *lost]
    assert {cluster for cluster, _ in channel_traces.check(both)} == {Cluster("run", "d")}


def test_what_must_happen_in_the_end_must_only_if_all_had_come_to_rest() -> None:
    events = rows(three().send("a").events)
    assert channel_traces.check(events) == []
    assert [f.rule for _, f in channel_traces.check(events, complete=True)] == ["own"]
