"""The lesson from its experiment file to its results folder, as a user runs it: one command.

Checks what no part can show alone. Means are compared with closed forms at 200 replications: each
of the 11 passes at |z| <= 5. A z over 200 replications is close to normal, so a fresh seed would
fail one of them about once in 100,000 runs (two-sided tail of 5.7e-7 each, somewhat more for the
skewed counts). The seed is fixed, so nothing flakes.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pytest
from samples import interval_of_share
from scipy import stats

import mc
from mc.cli.screen import MAX_LINES, WIDTH

LESSON: Final = Path(__file__).parent.parent / "experiments" / "lesson.toml"
N: Final = 200
RATE: Final = 0.9722
MAX_Z: Final = 5.0

ENVIRONMENT: Final = os.environ | {"COLUMNS": str(WIDTH)}
"""readline, which pytest imports, may tell its children of 80."""

OUTAGE: Final = "outage (1 s)"
DEGRADATION: Final = "degradation (10 s)"
POLICIES: Final = [
    "no retries",
    "gateway only (3)",
    "two layers (3x3)",
    "three layers (3x3x3)",
    "three layers + budget 0.30",
    "three layers + budget 0.10",
    "three layers, nested",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lesson")


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in an empty folder."""
    command = [sys.executable, "-m", "mc", "run", str(LESSON), "--replications", str(N)]
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def results(folder: Path, done: subprocess.CompletedProcess[str]) -> mc.Results:
    assert done.returncode == 0, done.stderr
    return mc.load(folder / "results" / "lesson")


def test_the_command_writes_its_results_folder_and_nothing_else(
    folder: Path, results: mc.Results
) -> None:
    got = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".parquet"}
    expected = {"results", "results/lesson", "results/lesson/manifest.json"}
    assert got == expected | {"results/lesson/replications"}
    assert results.complete
    assert results.replications.height == 21 * N


def test_stdout_is_one_screen_with_every_scenario_every_policy_and_every_verdict(
    done: subprocess.CompletedProcess[str], results: mc.Results
) -> None:
    lines = done.stdout.splitlines()
    assert len(lines) + len(("drawing the report", "Report: ...")) <= MAX_LINES
    assert max(map(len, lines)) <= WIDTH
    for scenario in ("healthy", OUTAGE, DEGRADATION):
        assert any(line.startswith(scenario) for line in lines)
    for policy in POLICIES:
        assert any(policy in line for line in lines)
    [counted] = [line for line in lines if line.startswith("Claims: ")]
    got = {int(n) for n in re.findall(r"\d+", counted)}
    expected = set(results.claims["verdict"].value_counts()["count"])
    assert got == expected
    assert any(line.startswith("retrystorm show results/lesson") for line in lines)


def test_stderr_has_no_more_than_progress(done: subprocess.CompletedProcess[str]) -> None:
    lines = done.stderr.splitlines()
    progress = re.compile(r"[\d,]+ of [\d,]+ rows(, .+ left)?")
    others = ("compiling the kernel", "a budget that never forgets")
    assert all(progress.fullmatch(line) or any(o in line for o in others) for line in lines)


def test_the_same_command_again_says_the_same_and_changes_nothing(
    folder: Path, done: subprocess.CompletedProcess[str], results: mc.Results
) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    again = subprocess.run(
        done.args, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert again.stdout == done.stdout
    assert "nothing to do" in again.stderr
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


def test_both_identities_hold_in_every_row(results: mc.Results) -> None:
    rows = results.replications
    outcomes = rows["successful"] + rows["dropped"] + rows["in_flight"]
    assert (rows["requests"] == outcomes).all()
    assert (rows["calls"] == rows["primary"] + rows["retries"]).all()
    assert (rows["requests"] == rows["primary"]).all()


def test_every_policy_sees_the_same_traffic(results: mc.Results) -> None:
    differing = results.replications.group_by("replication").agg(pl.col("requests").n_unique())
    assert differing["requests"].to_list() == [1] * N


def test_the_bounds_stand_in_the_table_of_cells(results: mc.Results) -> None:
    """734 rounds, not the lesson's 793: no wait follows the last attempt, none is ceiling + 1."""
    cells = results.cells.filter(scenario=OUTAGE)
    got = list(cells.select("policy", "max_attempts", "longest_wait").iter_rows())
    attempts = [1, 3, 9, 27, 27, 27, 27]
    waits = [sum(min(32, 2 * 2**n) for n in range(r - 1)) for r in attempts[:-1]]
    waits.append(3 * (3 * 6 + 6) + 6)  # nested: a layer waits 2 and 4 between its three calls
    expected = list(zip(POLICIES, attempts, waits, strict=True))
    assert got == expected
    assert waits[3] == 734
    joined = results.replications.join(results.cells, on="cell")
    assert (joined["wait_max"] <= joined["longest_wait"]).all()


def window_rate(attempts: int, n_rounds: int = 100) -> float:
    """Mean calls per round of an outage in which every call fails.

    A request that arrives j rounds before the end makes the attempts k whose time S_k, a sum of
    k waits, is at most j: the mean is rate / n_rounds * sum over j and k of P(S_k <= j). What an
    overflow before the window carries into it is less than a thousandth of a call.
    """
    at = np.zeros(n_rounds)  # distribution of S_k, cut off at the end of the window
    at[0] = 1.0
    calls = 0.0
    for k in range(attempts):
        calls += at.cumsum().sum()
        ceiling = min(32, 2 * 2**k)
        wait = np.zeros(n_rounds)
        wait[1 : ceiling + 1] = 1 / ceiling
        at = np.convolve(at, wait)[:n_rounds]
    return float(RATE * calls / n_rounds)


def overflow(capacity: int) -> float:
    """Mean of (N - capacity)+ for N Poisson with the arrivals of a round."""
    n = np.arange(capacity + 1, 60)
    return float(((n - capacity) * stats.poisson.pmf(n, RATE)).sum())


def expectations() -> list[tuple[str, str, str, float]]:
    p_peak = stats.poisson.cdf(np.arange(60), RATE) ** 4000  # P(peak <= m) without retries
    served_and_failed = 0.025 * (RATE - overflow(6))
    return [
        ("healthy", "no retries", "requests", RATE * 4000),
        ("healthy", "no retries", "multiplier", 1.0),
        ("healthy", "no retries", "peak", float((1 - p_peak).sum())),
        ("healthy", "no retries", "dropped", 4000 * (served_and_failed + overflow(6))),
        (OUTAGE, "no retries", "window_rate", RATE),
        (OUTAGE, "no retries", "dropped", 100 * RATE + 3900 * overflow(6)),
        (OUTAGE, "gateway only (3)", "window_rate", window_rate(3)),
        (OUTAGE, "two layers (3x3)", "window_rate", window_rate(9)),
        (OUTAGE, "three layers (3x3x3)", "window_rate", window_rate(27)),
        (OUTAGE, "three layers (3x3x3)", "times_usual", window_rate(27) / RATE),
        (DEGRADATION, "no retries", "dropped", 1000 * overflow(1) + 3000 * overflow(6)),
    ]


def test_the_closed_forms_are_those_of_the_literature() -> None:
    """Figures that were computed elsewhere to six digits, so that no formula drifts unseen."""
    got = [window_rate(3), window_rate(9), window_rate(27), expectations()[-1][-1]]
    expected = [2.86313, 6.20359, 6.33752, 350.688]
    assert got == pytest.approx(expected, rel=3e-6)


@pytest.mark.parametrize(("scenario", "policy", "metric", "expected"), expectations())
def test_the_means_agree_with_closed_forms(
    results: mc.Results, scenario: str, policy: str, metric: str, expected: float
) -> None:
    cell = results.cells.filter(scenario=scenario, policy=policy)["cell"].item()
    estimate = results.summary.filter(cell=cell, metric=metric).row(0, named=True)
    assert estimate["n"] == N
    got = estimate["mean"]
    if estimate["mcse"] == 0.0:
        assert got == expected
    else:
        assert abs(got - expected) / estimate["mcse"] <= MAX_Z


def test_the_published_figures_are_placed_in_their_distributions(results: mc.Results) -> None:
    published = results.summary.filter(pl.col("published").is_not_null())
    # 5 figures for each of 5 policies, 7 for each of 2 x 5, and 3 of the sensitivity row
    assert published.height == 25 + 70 + 3
    named = published.join(results.cells.select("cell", "scenario", "policy"), on="cell")
    line = named.filter(scenario=OUTAGE, policy=POLICIES[4], metric="dropped").row(0, named=True)
    values = results.replications.filter(cell=line["cell"])["dropped"].to_list()
    got = line["published_percentile"]
    below, equal = sum(value < 103 for value in values), values.count(103)
    expected = 100 * (below + equal / 2) / N
    assert line["published"] == 103
    assert math.isclose(got, expected)


def test_a_claim_is_judged_replication_by_replication(results: mc.Results) -> None:
    claim = results.claims.filter(pl.col("text") == "the storm grows with every layer").row(
        0, named=True
    )
    cells = [
        results.cells.filter(scenario=OUTAGE, policy=policy)["cell"].item()
        for policy in POLICIES[:4]
    ]
    rows = results.replications
    calls = [rows.filter(cell=cell)["window_calls"] for cell in cells]
    holds = (calls[0] < calls[1]) & (calls[1] < calls[2]) & (calls[2] < calls[3])
    assert claim["n_holds"] == holds.sum()
    low, high = interval_of_share(int(holds.sum()), N)
    assert math.isclose(claim["share_low"], low)
    assert math.isclose(claim["share_high"], high)
    # 200 replications are too few for so many claims together, at every look
    assert claim["verdict"] == "open"
    assert claim["n_to_decide"] > N
