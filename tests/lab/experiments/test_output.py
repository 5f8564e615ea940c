"""The report of an experiment's figures, without measuring anything."""

from pathlib import Path

import pytest

from antiphon.errors import IllegalStateError
from antiphon.lab.experiments import groups
from antiphon.lab.experiments.evaluation import Row
from antiphon.lab.experiments.output import Output
from antiphon.lab.experiments.packing import report
from antiphon.lab.experiments.processes import Look


def a_row(contexts: str, servers: int, members: int, **columns: float) -> Row:
    where = {"contexts": contexts, "servers": servers, "members": members, "call": "send"}
    return {**where, "early_p50_ms": 1.0, "messages_per_s": 1.0, **columns}


def test_ratios_are_of_like_with_like() -> None:
    rows = [
        a_row("replicated", 3, 1, early_p50_ms=2.0),
        a_row("local", 3, 1, early_p50_ms=4.0),
        a_row("replicated", 5, 30, early_p50_ms=9.0, messages_per_s=3),
        a_row("local", 5, 30, early_p50_ms=3.0, messages_per_s=2),
        a_row("local", 3, 30, messages_per_s=1),
        a_row("replicated", 3, 2, early_p50_ms=100.0),  # has nothing beside it
    ]
    found = [here for _, _, here in groups.beside_published(rows, groups.Plan())]
    assert found[0] == "3.00"  # of 0.5 and 3
    assert found[1] == "1.50"
    assert found[-1] == "2.00"


def test_what_was_not_measured_is_not_made_up() -> None:
    rows = [a_row("replicated", 3, 1)]
    found = [here for _, _, here in groups.beside_published(rows, groups.Plan())]
    assert found.count("not measured") == 3


def test_a_lost_message_is_counted_for_each_member_that_lacks_it() -> None:
    assert groups.with_losses({"sent": 10, "members": 3, "deliveries": 28})["lost"] == 2


def test_the_best_fixed_degree_may_be_none() -> None:
    rows = [
        {"source": "s", "policy": policy, "messages_per_s": rate}
        for policy, rate in (("off", 5.0), ("fixed=2", 4.0), ("adaptive", 9.0))
    ]
    best = report.best_fixed(rows, "s")
    assert (best["policy"], report.degree(best)) == ("off", 1)
    rows[1]["messages_per_s"] = 6.0
    assert report.degree(report.best_fixed(rows, "s")) == 2


def test_a_figure_is_the_median_of_its_rounds() -> None:
    rounds = [
        {"run": f"s-off-{n}", "source": "s", "policy": "off", "messages_per_s": rate, "lost": 1}
        for n, rate in enumerate((1.0, 9.0, 2.0))
    ]
    assert report.medians(rounds) == [
        {"source": "s", "policy": "off", "messages_per_s": 2.0, "lost": 3, "rates": [1.0, 9.0, 2.0]}
    ]


def test_a_ratio_is_that_within_a_round() -> None:
    ours = {"messages_per_s": 4.0, "rates": [2.0, 4.0, 40.0]}
    theirs = {"messages_per_s": 2.0, "rates": [1.0, 4.0, 20.0]}
    assert report.ratio(ours, theirs) == 2.0
    alone = {"messages_per_s": 3.0, "rates": [3.0]}
    assert report.ratio(alone, theirs) == 1.5


def test_packs_over_time() -> None:
    looks = [Look(10.0, 0, 100), Look(10.5, 50, 110), Look(11.0, 50, 110), Look(11.5, 80, 120)]
    assert report.pack_sizes(looks, 10.0) == [(0.5, 5.0), (1.5, 3.0)]


def test_an_earlier_experiment_is_not_mixed_with_this_one(tmp_path: Path) -> None:
    Output(str(tmp_path), "one")
    with pytest.raises(IllegalStateError, match="name another folder with --out"):
        Output(str(tmp_path), "two")
