"""A channel beside a bare star and our servers: how slices become figures, and a short run."""

import json
from queue import SimpleQueue

import pytest

from antiphon import cli
from antiphon.formats import columns, pack
from antiphon.formats.columns import BYTES
from antiphon.lab.bench.channels.speed import MEASURES, SYSTEMS, Turns, figures, ratios
from antiphon.lab.bench.channels.star import _bodies_of
from antiphon.lab.bench.processes import Part, Slice


def turns(*seconds: float, cpu_s: float = 1.0, delay_ms: int = 1, packs: int = 0) -> Turns:
    """A million messages in each of these seconds; two members, the second one later by 1 ms."""
    sent = [ms * 1_000_000 for ms in range(4)]
    floods = [
        Slice(
            [Part(1_000_000, 0, 0, 0.0, [])],
            [Part(1_000_000, 0, round(s * 1e9), cpu_s, []) for _ in range(2)],
            packs=packs,
        )
        for s in seconds
    ]
    arrivals = [[at + (delay_ms + late) * 1_000_000 for at in sent] for late in range(2)]
    light = Slice([Part(4, 0, 0, 0.0, sent)], [Part(4, 0, 0, 0.0, times) for times in arrivals])
    return Turns(floods, [light] * len(seconds))


def test_figures_are_those_of_all_processes_with_their_spread() -> None:
    found = figures(turns(1.0, 4.0, 2.0, cpu_s=1.5, packs=2000))
    assert found["messages_per_s"] == {"median": 500_000, "lowest": 250_000, "highest": 1_000_000}
    assert found["cpu_s_per_million"]["median"] == 3.0
    assert (found["first_ms_p50"]["median"], found["last_ms_p50"]["median"]) == (1.0, 2.0)
    assert found["messages_per_pack"] == 500


def test_ratios_are_taken_round_by_round() -> None:
    found = ratios(
        {
            "channel": turns(2.0, 4.0, cpu_s=3.0, delay_ms=2),
            "star": turns(1.0, 1.0, delay_ms=1),
            "servers": turns(4.0, 4.0, cpu_s=2.0, delay_ms=4),
        }
    )
    assert found["of_star"] == {"median": 0.38, "lowest": 0.25, "highest": 0.5}
    assert found["of_servers"]["highest"] == 2.0
    assert found["cpu_of_servers"]["median"] == 1.5
    assert found["p50_of_servers"]["median"] == 0.5


@pytest.mark.parametrize("chunk", [1, 3, 100, 10_000])
def test_the_middle_cuts_packs_out_of_chunks_of_any_size(chunk: int) -> None:
    data, sent = b"", [bytes([n]) * n for n in range(1, 30)]
    for first in range(0, len(sent), 7):
        some = sent[first : first + 7]
        body, flags = columns.encode_columns(bytes((BYTES,)) * len(some), some, [0] * len(some))
        one = pack.encode("topic:bench", len(some), body, 1, first + 1, 0, flags)
        data += len(one).to_bytes(4, "little") + one
    chunks: SimpleQueue[bytes] = SimpleQueue()
    for at in range(0, len(data), chunk):
        chunks.put(data[at : at + chunk])
    bodies = _bodies_of(chunks)
    assert [next(bodies) for _ in sent] == sent


@pytest.mark.process
def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = "bench channels speed --sizes 1000 --rounds 1 --seconds 0.3 --rate 500 --json"
    assert cli.main(line.split()) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (report["processes"], report["rate"]) == (3, 500)
    (run,) = report["runs"]
    assert run["size"] == 1000
    for system in SYSTEMS:
        for figure in ("messages_per_s", "cpu_s_per_million", "first_ms_p50", "last_ms_p99"):
            assert run[system][figure]["median"] > 0, (system, figure)
    assert run["channel"]["messages_per_pack"] > 1
    for measure in MEASURES:
        for other in SYSTEMS[1:]:
            assert run[f"{measure}of_{other}"]["median"] > 0
