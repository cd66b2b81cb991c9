"""The scorecard, and the screen with which a run ends: whatever the experiment, one screen."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.cli.result_tables import of_a_run
from mc.cli.screen import MAX_LINES, screen
from mc.decisions.scorecard import MOST_LINES, Score, scorecards
from mc.model.digits import (
    format_estimate,
    half_width,
    known_digits,
    range_ends,
    share_ends,
    short_estimate,
)
from mc.statistics.intervals import share_interval

POLICIES = """
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
[[policy]]
name = "nine"
tries = [3, 3]
"""

OUTAGE = """
[[scenario]]
name = "healthy"
[[scenario]]
name = "outage"
fault_start = 100
fault_rounds = 60
"""


def run(text: str, n: int = 60, rounds: int = 400) -> mc.Results:
    Path("x.toml").write_text(
        f'title = "x"\nreplications = {n}\n[fixed]\nrounds = {rounds}\n{text}', "utf-8"
    )
    return mc.run("x.toml", out="out", force=Path("out").exists())


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def lines(results: mc.Results, width: int = 100) -> list[str]:
    """The lines as they are printed."""
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        for text in screen(results, Path("x.toml"), width):
            console.print(text, crop=False)
    return captured.get().splitlines()


# Numbers ------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_summary_in_readers_units() -> None:
    results = run(OUTAGE + POLICIES)
    card = scorecards(results)[1]
    assert card.scenario == "outage"
    assert [line.name for line in card.lines] == ["none", "three", "nine"]
    factors = {"%": 100.0, "s": 0.01, "x": 1.0}
    for line in card.lines:
        [cell] = line.cells
        for column, score in zip(card.columns, line.scores, strict=True):
            [expected] = results.summary.filter(cell=cell, metric=column.metric).to_dicts()
            factor = 1 / 6 if column.metric == "peak" else factors[column.unit]
            assert score is not None
            assert score.mean == pytest.approx(factor * expected["mean"])
            assert score.low == pytest.approx(factor * expected["p05"])
            half = half_width(expected)
            if half is None:
                assert score.half_width == (0 if expected["min"] == expected["max"] else None)
            else:
                assert score.half_width == pytest.approx(factor * half)


def test_the_best_of_a_column_is_what_best_says() -> None:
    results = run(OUTAGE + POLICIES)
    for card in scorecards(results):
        where = [f"scenario={card.scenario}"]
        for i, column in enumerate(card.columns):
            ranked = mc.best(results, column.metric, where=where)
            expected = set(ranked.filter("best")["cell"])
            if len(expected) == len(card.lines):
                expected = set()  # all are equal: none is marked
            got = {line.cells[0] for line in card.lines if (s := line.scores[i]) and s.is_best}
            assert got == expected


@pytest.mark.parametrize("half", [1e-4, 0.0099, 0.01, 0.043, 0.95, 3.2, 40.0])
@pytest.mark.parametrize("mean", [0.0, 0.012, 0.9996, 1.0, 20.1144, 49.0, 7632.4])
def test_printed_digits_promise_no_more_than_the_interval(mean: float, half: float) -> None:
    text, error = short_estimate(mean, half).split("±")
    assert float(error) >= 0.5 * half
    assert abs(float(text) - mean) <= float(error) / 2 + 1e-9
    assert len(text.replace(".", "").strip("0")) <= 4
    assert len(text.partition(".")[2]) == len(error.partition(".")[2]) <= 3
    known, _, error = known_digits(mean, half).partition("±")
    if not known.startswith("<"):
        place = -len(known.partition(".")[2])
        assert half <= (float(error) if error else 10.0**place)
        assert abs(float(known) - mean) <= 0.5 * 10.0**place + 1e-9


@pytest.mark.parametrize("n_digits", [2, 3])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 0.031), (0.9865, 1.0134), (1.07, 1.13), (16.8, 23.6), (34.8, 36.4), (8.8, 9.14)],
)
def test_the_ends_of_a_range_can_be_told_apart(low: float, high: float, n_digits: int) -> None:
    texts = range_ends(low, high, n_digits)
    ends = [float(text) for text in texts]
    assert ends[0] < ends[1]
    decimals = len(texts[1].partition(".")[2])
    assert ends == [pytest.approx(low, abs=0.5 * 0.1**decimals), round(high, decimals)]
    assert decimals <= 2 or n_digits == 2


@pytest.mark.parametrize("n", [40, 300, 10_000])
@pytest.mark.parametrize("n_fail", [0, 1, 2, 25])
def test_a_share_of_runs_has_an_interval_within_0_and_100(n: int, n_fail: int) -> None:
    low, high = (100 * float(end) for end in share_interval(n - n_fail, n))
    texts = share_ends(low, high).split("–")
    ends = [float(text) for text in texts]
    assert 0 <= ends[0] <= low
    assert high <= ends[1] <= 100
    assert ends[1] - ends[0] <= 1.5 * (high - low), "rounded outwards, and by little"


# Sweeps -------------------------------------------------------------------------------------------

SWEEP = OUTAGE + POLICIES + "[grid]\nbackoff_base = [1, 2, 4, 8]\nbudget = ['none', 0.1, 0.3]\n"


def test_a_sweep_shows_the_frontier_and_every_policy() -> None:
    results = run(SWEEP)
    for card in scorecards(results):
        load = next(c.metric for c in card.columns if c.metric in ("times_usual", "multiplier"))
        where = [f"scenario={card.scenario}"]
        frontier = mc.frontier(results, "failed_share", load, where=where)
        assert card.is_sweep
        assert card.n_cells == 36
        assert len(card.lines) <= MOST_LINES
        surely = frontier.filter(group_on="yes")["group"].n_unique()
        assert card.on_frontier == surely
        policy = dict(results.cells.select("cell", "policy").iter_rows())
        assert {policy[cell] for line in card.lines for cell in line.cells} == set(policy.values())
        beaten = set(frontier.filter(group_on="no")["cell"])
        on = [line for line in card.lines if not beaten & set(line.cells)]
        assert on, "no cell of the frontier is shown"
        for line in card.lines:  # equal cells share a line
            groups = frontier.filter(pl.col("cell").is_in(list(line.cells)))["group"]
            assert groups.n_unique() == 1


def test_an_axis_on_which_it_depends_whether_runs_recover_is_not_folded() -> None:
    """Two tries of 200/s are more than 300/s: without cancelling the queue never empties."""
    results = run(
        "rounds_per_second = 10\narrivals_per_second = 200\ncapacity = 30\nqueue = 1000\n"
        "timeout = 10\ntries = [2]\nfault_start = 50\nfault_rounds = 50\n"
        "[grid]\nbackoff_base = [1, 2, 3, 4, 5, 6, 7]\ncancel = [false, true]\n",
        n=40,
        rounds=300,
    )
    [card] = scorecards(results)
    assert card.flips == ("cancel",)
    column = [column.metric for column in card.columns].index("recovered")
    shares = {line.place["cancel"]: line.scores[column].mean for line in card.lines}  # type: ignore[union-attr]
    assert shares == {"false": 0, "true": 100}
    n_left = 14 - sum(len(line.cells) for line in card.lines)
    assert card.caption.startswith(f"14 cells, {n_left} not shown; least failures for their load")
    assert card.caption.endswith("pairs that differ in cancel alone, of which one recovers.")
    [stuck] = [line for line in card.lines if line.place["cancel"] == "false"]
    assert stuck.undecided > 0.001
    assert any("false †" in line or "† " in line for line in lines(results))


def test_a_mean_of_few_runs_is_not_printed() -> None:
    """Of the runs that have such a number; of all of them it may be exact without an interval."""
    known = Score(3.57, 0.25, 0.1, None, 0.94, 188, is_best=False, of_runs=False)
    alone = known._replace(half_width=None)
    assert known.is_known
    assert (alone.text, alone.n_of) == ("–", "188 of 200")
    assert known._replace(n=2, share=0.01).known() == "–"
    assert alone._replace(mean=0.0, half_width=0.0, share=1.0).text == "0"
    assert alone._replace(share=1.0).text == "≈3.57"


@pytest.mark.parametrize("n_digits", [2, 3])
@pytest.mark.parametrize("half", [None, 0.02, 0.14, 1.3, 13.0])
@pytest.mark.parametrize(
    ("mean", "low", "high"),
    [
        (54.5, 52.1, 57.3),
        (55.3, 52.8, 58.2),
        (2.41, 2.22, 2.71),
        (3.02, 2.93, 3.04),
        (14.75, 11.9, 17.2),
        (10.8, 10.2, 18.4),
        (1240.0, 1150.4, 1318.0),
    ],
)
def test_a_mean_is_printed_within_its_range_and_with_as_many_digits(
    mean: float, low: float, high: float, half: float | None, n_digits: int
) -> None:
    score = Score(mean, half, low, high, 1.0, 12, is_best=False, of_runs=False)
    ends = score.ends(n_digits)
    places = [len(end.partition(".")[2]) for end in ends]
    for text in (score.known(ends), score.text):
        number, _, error = text.removeprefix("≈").partition("±")
        assert float(ends[0]) <= float(number) <= float(ends[1]) or half == 13
        assert error or len(number.partition(".")[2]) >= min(places) or n_digits == 3
        assert text.startswith("≈") == (half is None)
    number, _, error = score.known(ends).partition("±")
    last = 0.1 ** len(number.partition(".")[2])
    assert half is None or half <= (float(error) if error else last + 1e-12)


def test_cells_on_a_line_are_named_by_what_they_have_in_common() -> None:
    results = run(SWEEP)
    by_cell = {line["cell"]: line for line in results.cells.to_dicts()}
    for card in scorecards(results):
        assert len({line.name for line in card.lines}) == len(card.lines)
        for line in card.lines:
            for name, text in line.place.items():
                values = {str(by_cell[cell][name]) for cell in line.cells}
                if name == "policy":  # all of them are named
                    assert set(text.split(" = ")) == values or set(text.split(", ")) == values
                else:
                    assert len(values) == 1


def test_a_folder_of_histograms_has_a_scorecard_without_marks() -> None:
    text = f'title = "x"\nreplications = 60\nkeep = "histograms"\n[fixed]\nrounds = 400\n{SWEEP}'
    Path("x.toml").write_text(text, "utf-8")
    results = mc.run("x.toml", out="out")
    for card in scorecards(results):
        assert card.on_frontier is None
        assert not any(s.is_best for line in card.lines for s in line.scores if s)
    assert len(lines(results)) <= MAX_LINES


# One screen ---------------------------------------------------------------------------------------


def test_a_scenario_in_which_all_policies_agree_is_one_sentence() -> None:
    printed = lines(run(OUTAGE + POLICIES))
    [sentence] = [line for line in printed if line.startswith("healthy")]
    assert sentence.startswith("healthy: all 3 agree: ")
    assert "% of requests fail" in sentence


def scenarios(n: int) -> str:
    return "".join(
        f'[[scenario]]\nname = "outage {i} of a name that is rather long"\nfault_start = 100\n'
        f"fault_rounds = {20 + i}\n"
        for i in range(n)
    )


def many_policies(n: int) -> str:
    return "".join(f'[[policy]]\nname = "policy {i}"\ntries = [{i + 1}]\n' for i in range(n))


CLAIM = """
[[claim]]
text = "this claim is false, and told at a length that no line of a terminal has room for, so cut"
metric = "calls"
scenario = "outage 0 of a name that is rather long"
policies = ["policy 0", "policy 1"]
relation = ">"
"""


@pytest.mark.parametrize("n", [1, 60])
@pytest.mark.parametrize(
    "text",
    [
        OUTAGE + POLICIES,
        SWEEP,
        scenarios(30) + many_policies(2),
        scenarios(2) + many_policies(11) + 12 * CLAIM,
        many_policies(45),
        "tries = [3]\nfault_start = 100\nfault_rounds = 60\n",
    ],
    ids=["plain", "sweep", "scenarios", "claims", "policies", "alone"],
)
def test_a_run_ends_with_one_screen(text: str, n: int) -> None:
    results = run(text, n)
    n_policies = results.cells["policy"].n_unique()
    for width in (80, 100, 160):
        printed = lines(results, width)
        # where there are more policies than lines each has a line all the same
        assert len(printed) <= max(MAX_LINES - 2, n_policies * math.ceil(100 / width) + 12)
        commands = [line for line in printed if line.startswith("retrystorm ")]
        assert 1 <= len(commands) <= 3
        asked = [line for line in commands if line.startswith(("retrystorm best", "retrystorm fr"))]
        assert (len(asked) > 0) == (n >= 30 and results.cells.height > 1), "it can be answered"
        assert all(len(line) <= width for line in printed if line not in commands)
        told = " ".join(" ".join(printed).split())
        if f"all {n_policies} agree" not in told:
            missing = [p for p in results.cells["policy"].unique() if p not in told]
            assert missing in ([], ["default"])


def test_a_closed_loop_is_asked_about_the_load_that_it_has() -> None:
    """Nobody knows its usual rate, so nothing is so many times as much."""
    results = run(
        "fault_start = 100\nfault_rounds = 60\ntraffic = {workers = 20, think = 10}\n" + POLICIES
    )
    assert results.summary.filter(metric="times_usual")["n"].max() in (None, 0)
    [best] = [line for line in lines(results) if line.startswith("retrystorm best ")]
    assert '"multiplier <= 2"' in best
    _, condition = best.split("--subject-to ")
    assert mc.best(results, "dropped", subject_to=[condition.split('"')[1]]).height == 3


def test_an_open_claim_says_how_many_replications_decide_it() -> None:
    claim_of_three = '[[claim]]\ntext = "all"\nmetric = "calls"\npolicies = ["none", "three"]\n'
    results = run(f'{OUTAGE}{POLICIES}{claim_of_three}scenario = "outage"\nrelation = "<"\n', 20)
    [claim] = results.claims.to_dicts()
    assert claim["verdict"] == "open"
    for width in (80, 100):
        [line] = [line for line in lines(results, width) if line.startswith("  open")]
        assert line.endswith(f"in 100.0 %, about {claim['n_to_decide']:,} decide")
        assert len(line) == width


def test_a_mean_in_the_table_of_show_lies_between_the_ends_below_it() -> None:
    estimate = {"n": 60, "share_defined": 1.0, "mean": 1.2747, "p05": 1.2621, "p95": 1.2934}
    low, high = (of_a_run(estimate, end, 1) for end in ("p05", "p95"))
    assert (low, high) == ("1.26", "1.29")


def test_what_has_no_room_is_named_with_the_command_that_prints_it() -> None:
    """Where calls wait, whether runs come back takes the place of who is late."""
    text = "queue = 60\ncapacity = 6\ntimeout = 12\nthreshold = 5\n" + OUTAGE + POLICIES
    results = run(text, rounds=800)
    [card] = [card for card in scorecards(results) if card.scenario == "outage"]
    assert "late_share" in card.left_out
    assert "late_share" not in {column.metric for column in card.columns}
    said = " ".join(lines(results))
    assert f"no room for {' and '.join(card.left_out)}: show --metric NAME" in said
    shown = CliRunner().invoke(app, ["show", "out", "--metric", "late_share"])
    assert shown.exit_code == 0, shown.stderr
    [mean] = results.summary.filter(cell=card.lines[2].cells[0], metric="late_share")["mean"]
    assert format_estimate(mean, None)[0][:4] in shown.stdout
    assert "multi-" not in shown.stdout
    csv = CliRunner().invoke(app, ["show", "out", "--metric", "late_share", "--format", "csv"])
    assert csv.stdout.count("late_share") == results.cells.height
    wrong = CliRunner().invoke(app, ["show", "out", "--metric", "late_shar"])
    assert wrong.exit_code == 2
    assert 'did you mean "late_share"?' in wrong.stderr
