"""How turns become figures, ratios and losses; what is said of peers that are not there."""

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from antiphon import cli
from antiphon.errors import IllegalStateError, ResourceAllocationError
from antiphon.lab.bench.processes import Part, Slice
from antiphon.lab.bench.rivals import programs as peers_programs
from antiphon.lab.bench.rivals import run as peers
from antiphon.lab.bench.rivals.common import OUTSTANDING, Contender, Gathering, load
from antiphon.lab.bench.rivals.report import DURABLE, MEMORY, Turns, figures, losses, show


def contender(name: str, synced: str = "no") -> Contender:
    return Contender(name, "total", "1 of 3", synced, "an API", cast(Any, None))


def flood(per_s: int) -> Slice:
    """Of a second: 1 + 3 * 2 + 2.5 + 0.5 seconds of processor time."""
    members = [Part(per_s, 0, 10**9, 2.0, []) for _ in range(3)]
    return Slice([Part(per_s, 0, 10**9, 1.0, [])], members, 2.5, 0.5)


def light(delay_ms: int) -> Slice:
    """The first member has each message after so long, the others later."""
    sent = [ms * 10**6 for ms in range(100)]
    members = [
        Part(100, 0, 10**9, 0.0, [at + (delay_ms + later) * 10**6 for at in sent])
        for later in (5, 0, 9)
    ]
    return Slice([Part(100, 0, 10**9, 0.0, sent)], members)


def turns(one: Contender, rates: list[int], delays_ms: list[int]) -> Turns:
    return Turns(one, [flood(rate) for rate in rates], [light(delay) for delay in delays_ms])


def run_of(*all_turns: Turns) -> dict[str, Any]:
    turned = {one.contender.name: one for one in all_turns}
    return {"size": 100, "systems": figures(turned)}


OUR_TURNS = (
    turns(contender(MEMORY), [1000, 4000, 2000], [3, 2, 4]),
    turns(contender(DURABLE, "yes"), [500, 1000, 1000], [6, 6, 6]),
)


def test_a_figure_is_the_median_of_the_rounds_with_its_spread() -> None:
    ours = run_of(*OUR_TURNS)["systems"][0]
    assert ours["messages_per_s"] == {"median": 2000, "lowest": 1000, "highest": 4000}
    assert ours["latency_p50_ms"] == {"median": 3, "lowest": 2, "highest": 4}
    assert ours["latency_p99_ms"] == {"median": 3, "lowest": 2, "highest": 4}


def test_processor_time_is_that_of_all_processes() -> None:
    ours = run_of(*OUR_TURNS)["systems"][0]
    assert ours["cpu_s_per_million"] == {"median": 5000, "lowest": 2500, "highest": 10_000}


def test_a_peer_is_beside_the_antiphon_that_promises_no_less_round_by_round() -> None:
    loose = turns(contender("Loose"), [100, 100, 1000], [3, 3, 3])
    strict = turns(contender("Strict", "yes"), [100, 100, 1000], [3, 3, 3])
    *_, of_loose, of_strict = run_of(*OUR_TURNS, loose, strict)["systems"]
    assert (of_loose["beside"], of_loose["times"]) == (MEMORY, 10)  # of 10, 40, 2
    assert (of_strict["beside"], of_strict["times"]) == (DURABLE, 5)  # of 5, 10, 1


def test_every_figure_that_is_better_than_ours_is_told() -> None:
    quick = turns(contender("Quick"), [100, 100, 100], [1, 1, 1])
    fast = turns(contender("Fast", "yes"), [4000, 4000, 4000], [9, 9, 9])
    assert losses([run_of(*OUR_TURNS, quick, fast)]) == [
        f"100 bytes, first delivery, p50 ms: Quick 1, {MEMORY} 3",
        f"100 bytes, first delivery, p99 ms: Quick 1, {MEMORY} 3",
        f"100 bytes, messages/s: Fast 4,000, {DURABLE} 1,000",
        f"100 bytes, CPU s per million: Fast 2,500, {DURABLE} 10,000",
    ]


def test_a_peer_that_lost_messages_has_no_figures_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leaky = Turns(contender("Leaky"), [flood(9)], [light(1)], "lost 7")
    run = run_of(*OUR_TURNS, leaky)
    assert run["systems"][-1] == {"name": "Leaky", "failed": "lost 7"}
    assert not losses([run])
    show({"promises": [], "left_out": {"Absent": "not here"}, "runs": [run], "losses": []})
    told = capsys.readouterr().out
    for text in ("Leaky", "lost 7", "Absent: not here", "nowhere in this run"):
        assert text in told


@pytest.mark.parametrize("size", [1, 100, 1000, 10_000])
def test_a_peer_has_at_most_so_many_messages_on_their_way(size: int) -> None:
    assert OUTSTANDING * 0.9 < load(size).window + load(size).block <= OUTSTANDING


def test_a_gathering_sender_hands_on_so_many_and_the_rest_when_flushed() -> None:
    told: list[object] = []
    sender = Gathering(told.append, lambda: told.append("settled"))
    sender.per_pack = 2
    for body in (b"a", b"b", b"c"):
        sender.send(body)
    sender.flush(None)
    assert told == [[b"a", b"b"], [b"c"], "settled"]


# -- Peers that are not there ----------------------------------------------------------------------


def test_without_its_client_a_peer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "antiphon.lab.bench.rivals.nats", raising=False)
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.setattr(peers, "PEERS", {"NATS": "antiphon.lab.bench.rivals.nats"})
    found, left_out = peers.gather(fetch=False)
    assert not found
    assert "pip install 'antiphon[peers]'" in left_out["NATS"]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without anything; the folder on its `PATH`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr(peers_programs, "INSTALLED", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python" / "python"))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return programs


def program(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh -e\nPATH=/usr/bin:/bin\n{text}\n")
    file.chmod(0o755)
    return file


def test_a_server_that_is_not_here_is_an_error_that_says_how_to_get_it(bare: Path) -> None:
    with pytest.raises(ResourceAllocationError, match=r"no redis-server on PATH; .* with --fetch"):
        peers_programs.find("redis-server", "redis-server", fetch=False)
    with pytest.raises(ResourceAllocationError, match="here is no apt-get; install redis-server"):
        peers_programs.find("redis-server", "redis-server", fetch=True)


def test_what_is_on_the_path_is_taken(bare: Path) -> None:
    file = program(bare, "redis-server")
    found = peers_programs.find("redis-server", "redis-server", fetch=False)
    assert found == (str(file), dict(os.environ))


@pytest.mark.process
def test_packages_are_fetched_once_and_erlang_knows_where_it_is(bare: Path) -> None:
    """With an `apt-get` and a `dpkg-deb` of our own."""
    program(
        bare,
        "apt-get",
        'echo $1 >> "$0.calls"\n'
        'case $1 in install) echo "Inst rabbit (1)"; echo "Conf rabbit (1)";; '
        'download) touch "$2.deb";; esac',
    )
    program(
        bare,
        "dpkg-deb",
        'for file in usr/bin/rabbit usr/lib/erlang/bin/erl; do mkdir -p "$3/${file%/*}"; '
        'echo "ROOTDIR=/usr/lib/erlang" > "$3/$file"; chmod +x "$3/$file"; done',
    )
    for _ in range(2):
        found = peers_programs.find("rabbit", "rabbit", fetch=True)
    root = Path(found.path).parents[2]
    assert root == peers_programs.cache_folder() / "peers" / "rabbit"
    assert str(root / "usr/bin") in found.env["PATH"]
    assert (root / "usr/lib/erlang/bin/erl").read_text() == f"ROOTDIR={root}/usr/lib/erlang\n"
    assert (bare / "apt-get.calls").read_text().split() == ["install", "download"]


@pytest.mark.process
def test_packages_that_cannot_be_fetched_leave_nothing_behind(bare: Path) -> None:
    program(bare, "apt-get", "echo 'E: Unable to locate package rabbit' >&2; exit 100")
    program(bare, "dpkg-deb")
    with pytest.raises(ResourceAllocationError, match=r"Unable to locate .* apt-get update"):
        peers_programs.find("rabbit", "rabbit", fetch=True)
    assert list((peers_programs.cache_folder() / "peers").iterdir()) == []


# -- Real ones -------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Antiphon with few processes: here it is about the others."""
    monkeypatch.setattr(peers, "SERVERS", 1)
    monkeypatch.setattr(peers, "MEMBERS", 1)


def measured(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    line = "bench peers --sizes 100 --rounds 1 --seconds 0.3 --json"
    assert cli.main(line.split()) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return report


def check(system: dict[str, Any]) -> None:
    assert "failed" not in system, system
    for figure in ("messages_per_s", "latency_p50_ms", "latency_p99_ms", "cpu_s_per_million"):
        assert system[figure]["median"] > 0


@pytest.mark.process
@pytest.mark.usefixtures("small")
@pytest.mark.timeout(240)  # three nodes of RabbitMQ take their time to start
@pytest.mark.parametrize("peer", peers.PEERS)
def test_antiphon_beside_a_peer(
    peer: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PEERS", {peer: peers.PEERS[peer]})
    found, left_out = peers.gather(fetch=False)
    if left_out:
        pytest.skip(left_out[peer])
    report = measured(capsys)
    (run,) = report["runs"]
    names = [MEMORY, DURABLE, *(one.name for one in found)]
    assert [system["name"] for system in run["systems"]] == names
    assert [promises["name"] for promises in report["promises"]] == names
    for system in run["systems"]:
        check(system)


@pytest.mark.process
@pytest.mark.usefixtures("small")
def test_a_peer_that_fails_is_reported_and_antiphon_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise IllegalStateError("the members had counted 1 of 2 messages")

    failing = contender("Failing")._replace(open=cast(Any, fail))
    monkeypatch.setattr(peers, "gather", lambda fetch: ([failing], {"Absent": "not here"}))
    report = measured(capsys)
    *ours, failed = report["runs"][0]["systems"]
    for system in ours:
        check(system)
    assert "counted 1 of 2" in failed["failed"]
    assert report["left_out"] == {"Absent": "not here"}
