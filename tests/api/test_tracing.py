"""Traces that programs write: what is in them, and that they satisfy the judge of groups."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import antiphon
from antiphon import ConflictRelation
from antiphon.checkers import groups
from antiphon.formats.trace import TraceEvent, decode

URL = "embedded:traced"
WHERE = "topic:g"


def read(folder: Path) -> list[TraceEvent]:
    events: list[TraceEvent] = []
    for path in sorted(folder.iterdir()):
        found, torn = decode(path.read_bytes())
        assert torn == 0
        events += found
    return events


def take(member: Any, count: int) -> None:
    for _ in range(count):
        assert member.receive(20) is not None


def test_what_is_sent_in_a_transaction_is_sent_when_it_is_committed(tmp_path: Path) -> None:
    mode = antiphon.SESSION_TRANSACTED
    with (
        antiphon.connect(URL, trace=str(tmp_path)) as one,
        antiphon.connect(URL, session_mode=mode, trace=str(tmp_path), client_id="teller") as two,
    ):
        group = one.create_group("transacted")
        member, producer = one.join(group, "a"), two.create_producer()
        producer.send(group, "in vain")
        two.rollback()
        producer.send(group, "first")
        two.commit(token="t")
        producer.send(group, "again")
        two.commit(token="t")
        take(member, 2)
    events = [e for e in read(tmp_path) if e.process == "teller"]
    assert [e.kind for e in events if e.kind in ("send", "sent")] == ["send"] * 2 + ["sent", "send"]
    assert {e.sender_seq for e in events if e.kind == "send"} == {-1}  # its place comes later
    assert groups.check(read(tmp_path)) == []


def test_a_run_of_two_programs_is_told_and_judged(tmp_path: Path) -> None:
    folder = tmp_path / "run7"
    with (
        antiphon.connect(URL, trace=str(folder)) as one,
        antiphon.connect(URL, trace=str(folder), client_id="two/2") as two,
    ):
        group = one.create_group("g", conflict=ConflictRelation.RELIABLE_ATOMIC)
        a, b = one.join(group, "a"), two.join(group, "b", durable=True)
        for n in range(10):
            a.multicast(n, tag="rbcast", key=str(n))
        b.set_conflict(ConflictRelation.ATOMIC)
        b.multicast("end")
        take(a, 13)
        for n, _ in enumerate(b):
            if n == 11:
                break
        a.remove("b")
        take(a, 1)
        assert isinstance(b.receive(20), antiphon.ViewMessage)
    assert {path.name for path in folder.iterdir()} == {"run7-a-1.trace", "run7-two%2F2-1.trace"}
    events = read(folder)
    assert groups.check(events) == []
    mine = [e for e in events if e.process == "a"]
    assert [e.seq for e in mine] == list(range(1, len(mine) + 1))
    kinds = Counter(e.kind for e in mine)
    del kinds["acknowledge"]
    assert kinds == {
        "group": 2,
        "join": 1,
        "send": 10,
        "sent": 10,
        "view": 3,
        "deliver": 11,
        "conflict": 1,
        "remove": 1,
        "leave": 1,
    }
    first = next(e for e in mine if e.kind == "deliver")
    sent = next(e for e in mine if e.kind == "sent")
    assert (first.message, first.sender, first.sender_seq) == (sent.message, sent.sender, 1)
    assert (first.group, first.view_id, first.didx) == (WHERE, 2, 0)
    assert (first.tag, first.key, first.persistent) == ("rbcast", "0", True)
    last = [e for e in mine if e.kind == "deliver"][-1]
    assert last.didx == 10
    assert next(e for e in mine if e.kind == "remove").members == ("b",)


def test_everything_that_is_sent_is_told(tmp_path: Path) -> None:
    """Mere bodies, too, which take a shorter way otherwise."""
    with antiphon.connect(URL, trace=str(tmp_path), client_id="outside") as ctx:
        producer, group = ctx.create_producer(), ctx.create_topic("told")
        for _ in range(3):
            producer.send(group, "plain")
        producer.send_async(group, b"plain").result()
    kinds = [event.kind for event in read(tmp_path)]
    assert sorted(kinds) == ["send"] * 4 + ["sent"] * 4


def test_a_message_tells_what_its_sender_had_been_given(tmp_path: Path) -> None:
    with (
        antiphon.connect(URL, trace=str(tmp_path)) as one,
        antiphon.connect(URL, trace=str(tmp_path)) as two,
    ):
        group = one.create_group("clocks")
        a, b = one.join(group, "a"), two.join(group, "b")
        a.multicast("1")
        a.multicast("2")
        take(b, 3)
        b.multicast("3")
        b.multicast("4")
    sends = {e.process: [] for e in read(tmp_path)}
    for event in read(tmp_path):
        if event.kind == "send":
            sends[event.process].append(event)
    assert [e.clock for e in sends["a"]] == [{}, {}]
    first, second = sends["b"]
    assert first.clock == {sends["a"][-1].sender: sends["a"][-1].sender_seq}
    assert second.clock == {}  # nothing new


def test_the_judge_sees_what_is_missing(tmp_path: Path) -> None:
    with antiphon.connect(URL, trace=str(tmp_path)) as one:
        group = one.create_group("g")
        a, b = one.join(group, "a"), antiphon.connect(URL, trace=str(tmp_path))
        with b, b.join(group, "b") as member:
            a.multicast("x")
            take(a, 3)
            take(member, 2)
    events = read(tmp_path)
    assert groups.check(events) == []
    spoilt = [e for e in events if not (e.process == "b" and e.kind in ("deliver", "leave"))]
    assert {v.rule for v in groups.check(spoilt)} == {"P2"}
    spoilt = [e for e in events if e.kind != "send" and e.kind != "sent"]
    assert {v.rule for v in groups.check(spoilt)} == {"P3"}


def test_a_process_that_is_back_is_the_next_incarnation(tmp_path: Path) -> None:
    with antiphon.connect(URL) as keeper:
        group = keeper.create_group("g")
        for _ in range(2):
            with antiphon.connect(URL, trace=str(tmp_path)) as one:
                one.join(group, "a", durable=True)
        with (
            antiphon.connect(URL, trace=str(tmp_path)) as one,
            antiphon.connect(URL, trace=str(tmp_path)) as two,
        ):
            one.join(group, "a", durable=True)
            other = keeper.create_group("h")
            two.join(other, "a")
    names = sorted(path.name for path in tmp_path.iterdir())
    run = tmp_path.name
    assert names[:3] == [f"{run}-a-{n}.trace" for n in (1, 2, 3)]
    assert names[3].startswith(f"{run}-a.")  # another process, at the same time
    assert [e.kind for e in read(tmp_path) if e.kind == "crash"] == ["crash"] * 3


PROGRAM = """
import sys, os, antiphon
ctx = antiphon.connect("embedded:", trace=sys.argv[1])
me = ctx.join(ctx.create_group("g"), "a")
me.multicast("x")
for message in me:
    if message.body == "x":
        os.kill(os.getpid(), 9)
"""


def test_a_killed_program_has_written_what_it_saw(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=False)
    assert run.returncode == -9
    kinds = [e.kind for e in read(tmp_path)]
    assert kinds[-1] == "deliver"
    assert {"join", "view", "send", "sent"} < set(kinds)
