"""The report of a world with a queue: useful work, the queue, and where a storm comes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from reported import Page

import mc
from mc.reports import maps
from mc.reports.style import style
from mc.reports.view import View

STUCK: Final = """
title = "Stuck"
replications = 60
[fixed]
rounds = 500
rounds_per_second = 10
capacity = "300/s"
fault_start = "5 s"
fault_rounds = "5 s"
queue = 3000
timeout = "1 s"
jitter = "none"
backoff_base = "1 s"
backoff_cap = "1 s"
tries = [3]
[grid]
arrivals_per_second = [60, 280]
cancel = [false, true]
budget = ["none", 5]
"""


@pytest.fixture(scope="module")
def stuck(drawn: Callable[[str], Path]) -> Path:
    return drawn(STUCK)


def test_useful_work_and_the_queue_are_those_of_the_replications(stuck: Path) -> None:
    table = pl.read_parquet(stuck / "figures" / "storm.parquet").filter(cell=0)
    cell = mc.Cell(
        rounds=500,
        rounds_per_second=10,
        capacity=30,
        fault_start=50,
        fault_rounds=50,
        queue=3000,
        timeout=10,
        jitter="none",
        backoff_base=10,
        backoff_cap=10,
        tries=(3,),
        arrivals_per_second=60,
    )
    rounds = mc.trace(cell, replications=60, seed=mc.load(stuck).manifest["seed"])
    step, start = table["rounds"][0], table["round"][0]
    for column, of_trace in (("useful", "successful"), ("queued", "queued")):
        numbers = rounds[of_trace].to_numpy().reshape(60, 500)
        means = numbers[:, start : start + step * table.height].reshape(60, -1, step).mean(axis=2)
        got = table[column].to_list()
        expected = [sorted(at)[29] for at in means.T.tolist()]  # of 60 the 30th
        assert got == pytest.approx(expected)


def test_every_cell_drawn_has_a_panel_of_its_queue(stuck: Path) -> None:
    svg = (stuck / "figures" / "storm-1.svg").read_text()
    n_chosen = len(View(mc.load(stuck)).scenarios[0].chosen)
    assert svg.count("<svg ") - 1 == 2 * n_chosen  # one is the file
    assert svg.count("queue</text>") == n_chosen
    assert "useful work" in Page((stuck / "report.html").read_text("utf-8")).read


def test_the_map_of_recovery_goes_from_never_to_always(stuck: Path) -> None:
    (scenario,) = View(mc.load(stuck)).scenarios
    planned = maps.plan_maps(scenario, "recovered")
    assert (stuck / "figures" / "sweep-1-recovered.svg").exists()
    with style():
        drawing = maps.draw_maps(scenario, planned, "recovered")
    for figure in drawing.panels:
        norm = figure.axes[0].collections[0].norm
        assert norm is not None
        assert (norm.vmin, norm.vmax) == (0, 100)


def test_the_recovery_of_single_runs_is_that_of_those_that_recovered(stuck: Path) -> None:
    bars = pl.read_parquet(stuck / "figures" / "distribution.parquet").filter(metric="recovery")
    counted = bars.group_by("cell").agg(pl.col("replications").sum())
    recovered = mc.load(stuck).summary.filter(metric="recovered").select("cell", "mean")
    joined = counted.join(recovered, on="cell")
    got = joined["replications"].to_list()
    expected = (60 * joined["mean"]).round().cast(pl.Int64).to_list()
    assert got == expected
    assert len(got) > 1


RARELY_BACK: Final = """
title = "Rarely back"
seed = 3
replications = 40
[fixed]
rounds = 800
rounds_per_second = 20
arrivals_per_second = 14.4
capacity = "30/s"
fault_start = "5 s"
fault_rounds = "5 s"
queue = 400
timeout = "500 ms"
tries = [2]
"""


def test_recoveries_that_are_few_are_drawn_and_counted(drawn: Callable[[str], Path]) -> None:
    folder = drawn(RARELY_BACK)
    known = mc.load(folder).scan().select("recovery").collect()["recovery"].drop_nulls()
    bars = pl.read_parquet(folder / "figures" / "distribution.parquet").filter(metric="recovery")
    got = bars["replications"].sum()
    expected = known.len()
    assert 0 < expected < 10  # of 40: more than three quarters never come back
    assert got == expected
