"""Shorter rounds: the same system, and other results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.model import Cell
from mc.model.budgets import Ratio
from mc.model.digits import percent
from mc.runner.shorter import SHOWN, _conclusion, with_shorter_rounds

DEGRADATION: Final = """
title = "rounds of 20 ms"
replications = 2000
[fixed]
rounds = 2000
rounds_per_second = 50
capacity = 12
fault_start = 250
fault_rounds = 500
fault_capacity = 2
"""
"""The lesson's degradation: 100 of 600 calls a second are served for 10 s."""

CELL: Final = Cell(
    rounds=2000, rounds_per_second=50, capacity=12, fault_start=250, fault_rounds=500,
    fault_capacity=2,
)  # fmt: skip
"""The same."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rounds.toml"
    path.write_text(DEGRADATION, "utf-8")
    return path


def test_every_time_and_capacity_is_converted() -> None:
    cell = Cell(
        capacity=7, fault_rounds=10, tries=(3, 3), backoff_cap=(8, 9.5), deadline=40,
        budget=Ratio(0.3, "run", 500), first_wait=1,
    )  # fmt: skip
    expected = Cell(
        rounds=8000, rounds_per_second=200, capacity=3.5, fault_start=1000, fault_rounds=20,
        tries=(3, 3), backoff_base=4, backoff_cap=(16, 19), deadline=80,
        budget=Ratio(0.3, "run", 1000), first_wait=2, threshold=40,
    )  # fmt: skip
    got = with_shorter_rounds(cell, times=2)
    assert got == expected


def test_more_is_dropped_with_shorter_rounds(file: Path) -> None:
    """254 drops with rounds of 20 ms, and 351 with rounds of 10 ms: by the closed form 350.69.

    The intervals of the test are six standard errors wide.
    """
    found = mc.sensitivity(file, replications=1000).means
    assert set(found["metric"]) == set(SHOWN) - {"recovery", "recovered"}  # without a queue
    line = found.filter(metric="dropped").row(0, named=True)
    assert line["mean"] == pytest.approx(254, abs=4)
    assert line["shorter_rounds"] == pytest.approx(350.69, abs=4)
    assert line["low"] < 350.69 - 254 < line["high"]
    assert line["change"] == pytest.approx(0.38, abs=0.03)
    same = found.filter(metric="calls").row(0, named=True)
    assert same["low"] < 0 < same["high"], "without retries as many calls"


@pytest.mark.parametrize(
    ("length", "drops"), [("10 ms", 351), ("20 ms", 254), ("40 ms", 180), ("100 ms", 111)]
)
def test_the_same_system_drops_less_in_longer_rounds(
    tmp_path: Path, length: str, drops: int
) -> None:
    """The lesson's degradation without retries; a fresh seed is 5 off in one case of 100,000."""
    text = f"""title = "x"
    [fixed]
    round = "{length}"
    rounds = "40 s"
    fault_start = "5 s"
    fault_rounds = "10 s"
    fault_capacity = "100/s"
    capacity = "600/s"
    """
    file = tmp_path / "x.toml"
    file.write_text(text, "utf-8")
    [point] = mc.experiment.read(file).points
    got = mc.simulate([point.parameters], replications=400, seed=1)["dropped"].mean()
    assert got == pytest.approx(drops, abs=5)


def test_the_command_prints_both_results_and_writes_nothing(file: Path) -> None:
    before = list(file.parent.iterdir())
    runner = CliRunner()
    shown = runner.invoke(app, ["sensitivity", str(file), "--replications", "300"])
    assert shown.exit_code == 0, shown.output
    (line,) = [line.split() for line in shown.stdout.splitlines() if "dropped" in line]
    assert len(line) == 6
    told = runner.invoke(
        app, ["sensitivity", str(file), "--replications", "300", "--format", "json"]
    )
    data = json.loads(told.stdout)
    assert line[1] == f"{next(d for d in data if d['metric'] == 'dropped')['mean']:.4g}"
    assert list(file.parent.iterdir()) == before


def test_it_says_what_of_the_answer_stays_the_same(file: Path) -> None:
    """Without retries a third more fails; a rate is the same, though per round it is half."""
    policies = """
[[policy]]
name = "once"
[[policy]]
name = "thrice"
tries = [3]
[[claim]]
text = "few are dropped"
metric = "dropped"
policies = ["once"]
relation = "<"
value = 330
[[claim]]
text = "a small storm"
metric = "window_rate"
policies = ["once"]
relation = "<"
value = "200/s"
"""
    file.write_text(DEGRADATION + policies, "utf-8")
    found = mc.sensitivity(file, replications=400)
    assert found.claims["verdict"].to_list() == ["holds", "holds"]
    assert found.claims["verdict_shorter"].to_list() == ["depends on the seed", "holds"]
    got = found.conclusion
    same = "With shorter rounds the same: the order in failures, the order in the storm, what fails"
    assert got.startswith(same)
    assert '1 of 2 verdicts, "few are dropped" (holds, then depends on the seed)' in got
    assert "By more than 10 % change: peak (by up to +" in got
    assert "failed_share (by up to +" in got


def test_cells_that_change_places_are_named() -> None:
    """The errors are a hundredth of the differences, or, for the third cell, a hundred times."""
    means = pl.DataFrame(
        {
            "cell": [0, 1, 2],
            "scenario": ["outage"] * 3,
            "policy": ["a", "b", "c"],
            "metric": ["failed_share"] * 3,
            "mean": [0.1, 0.2, 0.3],
            "shorter_rounds": [0.3, 0.2, 0.1],
            "mcse": [0.001, 0.001, 10.0],
            "mcse_shorter": [0.001, 0.001, 10.0],
            "change": [2.0, 0.0, -0.7],
            "low": [0.19, -0.01, None],
            "high": [0.21, 0.01, None],
        }
    )
    got = _conclusion(means, pl.DataFrame())
    assert "Not the same: in failures a and b (outage) surely change places." in got
    assert "failed_share (by up to +200 % in 1 of 3 cells)" in got


def test_the_two_samples_share_no_draws(file: Path) -> None:
    """With one seed the first half of a run would have the same: calls correlate by 0.6."""
    found = mc.sensitivity(file, replications=300, seed=5).means
    n_shorter = mc.simulate([with_shorter_rounds(CELL, times=2)], replications=300, seed=6)[
        "dropped"
    ]
    line = found.filter(metric="dropped").row(0, named=True)
    assert line["shorter_rounds"] == pytest.approx(n_shorter.mean())


def test_a_capacity_that_is_no_whole_number_is_said(file: Path) -> None:
    told: list[str] = []
    mc.sensitivity(file, replications=2, say=told.append)
    assert told == []
    mc.sensitivity(file, replications=2, overrides={"fault_capacity": "1"}, say=told.append)
    [sentence] = told
    assert "0.5 calls a round: rounds serve 0 or 1" in sentence


def test_what_does_not_come_within_the_run_is_said(tmp_path: Path) -> None:
    """Half of the runs never drain, and none with rounds half as long, which serve 1 or none."""
    path = tmp_path / "drain.toml"
    path.write_text(
        'title = "x"\n[fixed]\nrounds = 1500\ncapacity = 1\nfault_start = 200\n'
        "fault_rounds = 100\ntries = [9]\n",
        "utf-8",
    )
    line = mc.sensitivity(path, replications=200).means.row(
        by_predicate=pl.col("metric") == "drain", named=True
    )
    assert 0.4 < line["share_defined"] < 0.7
    assert line["shorter_rounds_share_defined"] == 0
    assert (line["shorter_rounds"], line["difference"]) == (None, None)
    shown = CliRunner().invoke(app, ["sensitivity", str(path), "--replications", "200"])
    assert f"in {percent(line['share_defined'])} %" in shown.stdout


def test_a_recovery_that_hangs_on_rounding_is_said_first(tmp_path: Path) -> None:
    """A deadline that equals the time-out: at 10 ms a fifth of the retries come in time, or 2 %."""
    path = tmp_path / "tie.toml"
    path.write_text(
        """title = "x"
        replications = 4
        [fixed]
        arrivals_per_second = "120/s"
        capacity = "500/s"
        queue = 375
        rounds = "100 s"
        fault_start = "2 s"
        fault_rounds = "20 s"
        fault_capacity = "75/s"
        backoff_base = "50 ms"
        backoff_cap = "500 ms"
        timeout = "250 ms"
        tries = [3, 3, 3]
        deadline = ["1 s", "500 ms", "250 ms"]
        """,
        "utf-8",
    )
    found = mc.sensitivity(path)
    assert found.times == 10
    assert found.conclusion.startswith(
        "Whether runs recover depends on the length of a round: with rounds as given, and with "
        "shorter ones, 0 and 4 of 4 in the only cell. "
    )
    assert "failed_share (by up to -" in found.conclusion
    safe = mc.sensitivity(path, overrides={"deadline": "[100, 50, 20]"})
    assert safe.times == 2
    assert "recover depends" not in safe.conclusion


def test_the_peak_is_that_of_a_round(file: Path) -> None:
    """In a tenth of a round meets its capacity what came by chance: more than on average."""
    peak = mc.sensitivity(file, replications=30).means.filter(metric="peak").row(0, named=True)
    assert peak["unit"] == "x capacity"
    assert peak["shorter_rounds"] > 1.2 * peak["mean"]
