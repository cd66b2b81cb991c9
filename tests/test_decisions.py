"""Questions put to a results folder: answers against the rows, and what cannot be asked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray
from polars.testing import assert_frame_equal
from scipy import stats
from typer.testing import CliRunner

import mc
from mc import experiment as experiments
from mc import store
from mc.cli import app
from mc.cli.questions import mean_and_error
from mc.decisions import QuestionError
from mc.decisions.comparing import _together
from mc.decisions.scorecard import scorecards
from mc.runner import choose
from mc.statistics import with_ratios
from mc.statistics.best import UNDECIDED, YES
from mc.statistics.intervals import share_interval
from mc.store import FolderError

SWEEP = """
title = "A sweep"
replications = 400
[fixed]
rounds = 400
fault_start = 100
tries = [3, 3]
chain = "flattened"
[[scenario]]
name = "short, sharp"
fault_rounds = 50
[[scenario]]
name = "long"
fault_rounds = 100
fault_capacity = 1
[[policy]]
name = "eager"
[[policy]]
name = "patient = better?"
backoff_base = 8
[grid]
budget = ["none", 0.1, 0.3]
"""

BROWNOUT = """
title = "Brownout at checkout"
replications = 30
[fixed]
arrivals_per_second = 150
fault_rounds = 2000
fault_capacity = 1
tries = [3, 3]
chain = "flattened"
[grid]
budget = [0.1, 0.3]
backoff_cap = [32, 256]
"""

BOUND = "times_usual <= 1.5"
"""Half of the cells have more."""

runner = CliRunner()


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the sweep once: cells 0 .. 5 are short, 6 .. 11 long."""
    return run(tmp_path_factory.mktemp("sweep"), SWEEP)


def run(folder: Path, text: str) -> Path:
    """Run an experiment that is given as text."""
    file = folder / "sweep.toml"
    file.write_text(text)
    return mc.run(file, folder / "out", jobs=1).folder


def values(folder: Path, cell: int, metric: str = "dropped") -> NDArray[np.int64]:
    """Take the values of a cell in the order of its replications."""
    rows = mc.load(folder).replications.filter(pl.col("cell") == cell)
    return rows.sort("replication")[metric].to_numpy()


# --- compare --------------------------------------------------------------------------------


def test_any_two_cells_are_compared_as_scipy_compares_pairs(sweep: Path) -> None:
    got = mc.compare(sweep, "4", "7", ["dropped"]).row(0, named=True)
    x, y = values(sweep, 4), values(sweep, 7)
    interval = stats.ttest_rel(x, y).confidence_interval(0.95)
    expected = {
        "left": 4,
        "right": 7,
        "n": 400,
        "mean_difference": np.mean(x - y),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "relative_change": x.mean() / y.mean() - 1,
        "share_less": np.mean(x < y),
        "share_greater": np.mean(x > y),
    }
    # scipy rounds at every step
    assert {name: got[name] for name in expected} == pytest.approx(expected, rel=1e-9)


def test_intervals_together_are_those_of_bonferroni(sweep: Path) -> None:
    asked = (sweep, "patient = better?", "eager", ["dropped", "calls"])
    alone, got = mc.compare(*asked), mc.compare(*asked, together=True)
    m = got.height
    assert m > 2
    for one, line in zip(alone.to_dicts(), got.to_dicts(), strict=True):
        assert (one["ci_low"] is None) == (line["ci_low"] is None)
        if one["ci_low"] is not None:
            half = stats.t.ppf(1 - 0.025 / m, line["n"] - 1) * line["mcse"]
            expected = line["mean_difference"] - half, line["mean_difference"] + half
            assert (line["ci_low"], line["ci_high"]) == pytest.approx(expected)
    out = runner.invoke(app, ["compare", *map(str, asked[:3]), "--metric", "calls", "--together"])
    n = got.filter(metric="calls").height
    assert f"(all {n} differences together)" in " ".join(out.output.split())


def test_intervals_together_cover_together() -> None:
    """Of ten independent differences, the worst case but for rounding.

    By Bonferroni's inequality at least 95 % of experiments have all ten right, 95.1 % here; of a
    thousand fresh ones fewer than 93 % do in 2 of 1,000 tries by luck. Each alone: in 60 %.
    """
    rng, m, n = np.random.default_rng(8), 10, 100
    covered = dict.fromkeys(("alone", "together"), 0)
    for _ in range(1000):
        x = rng.normal(size=(m, n))
        mean, mcse = x.mean(axis=1), x.std(axis=1, ddof=1) / n**0.5
        half = stats.t.ppf(0.975, n - 1) * mcse
        lines = pl.DataFrame(
            {"n": [n] * m, "mean_difference": mean, "mcse": mcse}
            | {"ci_low": mean - half, "ci_high": mean + half}
        )
        for level, of in (("alone", lines), ("together", _together(lines))):
            covered[level] += int(((of["ci_low"] <= 0) & (of["ci_high"] >= 0)).all())
    assert covered["together"] >= 930
    assert covered["alone"] < 700


def test_a_cell_is_named_by_its_number_and_one_text_needs_no_list(sweep: Path) -> None:
    expected = mc.compare(sweep, "7", "6", ["dropped"], ["scenario=long"])
    got = mc.compare(sweep, 7, 6, "dropped", "scenario=long")
    assert_frame_equal(got, expected)
    one = mc.best(sweep, "dropped", subject_to=BOUND, per="policy", where="budget=0.1")
    lists = mc.best(sweep, "dropped", subject_to=[BOUND], per=["policy"], where=["budget=0.1"])
    assert_frame_equal(one, lists)
    with pytest.raises(QuestionError, match="cell 99 does not exist"):
        mc.frontier(sweep, "dropped", "calls", where=99)


def test_cells_are_paired_by_all_that_neither_side_fixes(sweep: Path) -> None:
    found = mc.compare(sweep, "budget=0.1", "budget=none", ["calls"])
    got = found.select("left", "right").rows()
    expected = [(1, 0), (4, 3), (7, 6), (10, 9)]
    assert sorted(got) == expected
    found = mc.compare(sweep, "patient = better?", "eager", ["calls"], where=["scenario=long"])
    got = found.select("left", "right").rows()
    expected = [(9, 6), (10, 7), (11, 8)]
    assert sorted(got) == expected


def test_conditions_may_have_values_with_commas_and_equal_signs(sweep: Path) -> None:
    left = "scenario=short, sharp,policy=patient = better?,budget=0.3"
    found = mc.compare(sweep, left, "scenario=short, sharp,policy=eager,budget=0.3", ["calls"])
    assert found.select("left", "right").rows() == [(5, 2)]
    got = found["left_name"].item(), found["right_name"].item()
    expected = ("short, sharp, patient = better?, budget 0.3", "short, sharp, eager, budget 0.3")
    assert got == expected


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("eagr", "eager", 'policy "eagr" does not exist; did you mean "eager"?'),
        ("99", "1", "cell 99 does not exist; there are 0 .. 11"),
        ("budgt=0.1", "eager", '"budgt" is not a coordinate; did you mean "budget"?'),
        ("budget=0.2", "eager", "no cell has budget = 0.2; budget is one of none 0.1 0.3"),
        ("budget=much", "eager", "no cell has budget = much"),
        ("eager", "eager", '"eager" and "eager" mean the same cells'),
        ("budget=0.1", "eager", '"eager" means several cells'),
    ],
)
def test_a_comparison_that_makes_no_sense_is_refused(
    sweep: Path, left: str, right: str, message: str
) -> None:
    if message.startswith('"eager" means'):
        with pytest.raises(QuestionError):
            mc.compare(sweep, left, right)
        return
    with pytest.raises(QuestionError) as error:
        mc.compare(sweep, left, right)
    assert str(error.value).startswith(message)


# --- the tables of a sweep ---------------------------------------------------------------------


def test_estimates_name_their_cells_and_group_by_no_budget(sweep: Path) -> None:
    results = mc.load(sweep)
    cells = results.cells.select("cell", "scenario", "policy", "budget", "budget_text")
    for name in ("summary", "comparisons"):
        table = pl.read_parquet(sweep / f"{name}.parquet")
        assert table.columns[:5] == cells.columns
        named = table.select("cell").join(cells, on="cell", maintain_order="left")
        assert_frame_equal(table.select(cells.columns), named)
    frame = pd.read_parquet(sweep / "summary.parquet")
    assert len(frame.groupby(["policy", "budget_text"])) == 2 * 3
    assert set(frame["budget_text"]) == {"none", "0.1", "0.3"}
    assert mc.verify(sweep, all_rows=True).ok


def test_a_folder_of_an_older_version_is_read_with_the_names_of_its_cells(
    sweep: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(sweep, tmp_path / "older"))
    names = ["scenario", "policy", "budget", "budget_text"]
    older = pl.read_parquet(folder / "summary.parquet").drop(names)
    manifest = mc.load(folder).manifest
    manifest["tables"]["summary"] = store.write_table(folder, "summary", older)
    store.write_manifest(folder, manifest)
    assert_frame_equal(mc.load(folder).summary, mc.load(sweep).summary)


def test_rows_are_printed_with_the_names_of_their_cells(sweep: Path) -> None:
    options = ("--table", "replications", "--format", "csv")
    printed = runner.invoke(app, ["show", str(sweep), *options]).stdout
    got = pl.read_csv(printed.encode(), infer_schema_length=None)
    rows = with_ratios(mc.load(sweep).replications, mc.load(sweep).cells)
    assert {"times_usual", "failed_share"} <= {*rows.columns}
    assert got.columns[:5] == ["cell", "scenario", "policy", "budget", "budget_text"]
    assert_frame_equal(got.select(rows.columns), rows, check_dtypes=False)
    results = mc.load(sweep)
    expected = results.named(results.replications)
    lazily = results.named(results.scan()).collect()
    assert_frame_equal(lazily, expected, check_row_order=False)
    assert_frame_equal(results.named(expected.lazy()).collect(), expected)


def test_a_notebook_shows_means_by_the_names_of_cells(sweep: Path) -> None:
    shown = mc.load(sweep)._repr_html_()
    assert shown.count("<tr>") == 1 + 12
    assert "<td>patient = better?</td><td>none</td>" in shown
    mean = mc.load(sweep).summary.filter(cell=0, metric="calls")["mean"].item()
    assert f"<td>{str(mean)[:4]}" in shown


# --- best -----------------------------------------------------------------------------------


def test_the_best_is_the_cell_with_the_fewest_drops_among_the_feasible(sweep: Path) -> None:
    found = mc.best(sweep, "dropped", subject_to=[BOUND], where=["scenario=long"])
    means = {cell: values(sweep, cell).mean() for cell in found["cell"]}
    assert found["mean"].to_list() == pytest.approx(list(means.values()))
    feasible = found.filter(pl.col("feasible") == "yes")["cell"].to_list()
    summary = mc.load(sweep).summary.filter(pl.col("metric") == "times_usual")
    low = summary.filter(pl.col("mean") <= 1.5)["cell"].to_list()
    assert set(feasible) <= set(low)
    assert 0 < len(feasible) < found.height
    got = found.filter("best")["cell"].to_list()
    expected = [min(feasible, key=means.__getitem__)]
    assert got == expected


def test_cells_that_are_not_feasible_have_no_difference(sweep: Path) -> None:
    found = mc.best(sweep, "dropped", subject_to=[BOUND])
    out = found.filter(pl.col("feasible") == "no")
    assert out.height > 0
    assert out.select("difference", "low", "high").null_count().row(0) == (out.height,) * 3
    assert not out["candidate"].any()


def test_cells_that_are_equal_in_every_replication_count_as_one(tmp_path: Path) -> None:
    same = SWEEP.replace("backoff_base = 8", "threshold = 3")  # changes no drop
    folder = run(tmp_path, same)
    found = mc.best(folder, "dropped", where=["scenario=long"])
    pairs = found.group_by("budget", maintain_order=True).agg(
        pl.exclude("cell", "policy").n_unique()
    )
    assert set(pairs.drop("budget", "scenario").row(0)) == {1}
    assert found.filter("best").height == 2
    text = runner.invoke(app, ["best", str(folder), "--metric", "dropped"]).stdout
    assert "Best: eager, budget none = patient = better?, budget none." in " ".join(text.split())
    assert "may be best" not in text, "the winner is called what it is"
    frontier = mc.frontier(folder, "dropped", "calls", where=["scenario=long"])
    assert frontier["group"].value_counts()["count"].to_list() == [2, 2, 2]
    assert UNDECIDED not in frontier["group_on"].to_list()
    alone = frontier.with_columns(on=pl.col("on").replace(UNDECIDED, YES))
    assert alone["on"].to_list() == frontier["group_on"].to_list()
    assert YES not in frontier["on"].to_list(), "one of two equal ones may be beaten by the other"
    shown = runner.invoke(app, ["frontier", str(folder), "dropped", "calls"]).stdout
    assert "one of these" in shown
    assert "= patient = better?" in shown
    assert "equal in all 400 replications" in shown
    asked = ["frontier", str(folder), "dropped", "calls", "--per", "all"]
    many = runner.invoke(app, asked, env={"COLUMNS": "200"}).stdout
    lines = [line for line in many.splitlines() if "equal cells)" in line]
    assert len(lines) >= 6, "each pair is one entry, named by what its cells have in common"
    assert many.count("eager = patient = better?") >= 6, "every policy is named"


@pytest.mark.parametrize(
    "command", [("best", "--metric", "dropped"), ("frontier", "dropped", "calls")]
)
def test_a_terminal_shows_ten_cells_of_a_question_and_says_how_many_there_are(
    sweep: Path, command: tuple[str, ...]
) -> None:
    def printed(*options: str) -> str:
        name, *rest = command
        done = runner.invoke(app, [name, str(sweep), *rest, "--per", "all", *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    def n_entries(text: str) -> int:
        return len(re.findall(r"^ (?:short, sharp|long), ", text, re.MULTILINE))

    few, all_of_them = printed(), printed("--all")
    assert n_entries(few) == 10
    assert "2 more; --all lists every cell." in few
    assert n_entries(all_of_them) == 12
    assert "more;" not in all_of_them
    assert len(json.loads(printed("--format", "json"))) == 12
    standing = {"best": "best", "frontier": "yes|undecided"}[command[0]]
    first = next(line for line in few.splitlines() if line.startswith((" short", " long")))
    assert re.search(standing, first), "the best come first"


def test_the_lessons_equal_budgets_are_not_surely_on_the_frontier(tmp_path: Path) -> None:
    """README's brownout after 30 runs: the longer of two caps is hardly ever reached, and worse.

    Equal in all 30 in most of such runs; then either may be the better one.
    """
    folder = run(tmp_path, BROWNOUT)
    found = mc.frontier(folder, "dropped", "times_usual")
    equal = found.filter(pl.len().over("group") > 1)
    assert equal.height >= 2
    assert YES not in equal["on"].to_list()


def test_each_value_of_an_axis_is_a_question_of_its_own(sweep: Path) -> None:
    found = mc.best(sweep, "dropped", per=["scenario", "budget"])
    got = found.group_by("scenario", "budget", maintain_order=True).len()["len"].to_list()
    assert got == [2] * 6
    largest = mc.best(sweep, "dropped", goal="max", per=["scenario", "budget"])
    both = found.filter("best").join(largest.filter("best"), on="cell")
    assert both.height == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "dropd"}, 'metric "dropd" does not exist; did you mean "dropped"?'),
        ({"subject_to": ["times_usual = 2"]}, 'a condition must be like "times_usual <= 2"'),
        ({"subject_to": ["times_usual <= x"]}, 'a condition must be like "times_usual <= 2"'),
        ({"subject_to": ["peek <= 2"]}, 'metric "peek" does not exist; did you mean "peak"?'),
        ({"per": ["budgt"]}, '"budgt" is not a coordinate; did you mean "budget"?'),
        ({"per": ["scenario", "policy", "budget"]}, "there is a single cell for each"),
        ({"where": ["policy=eager", "policy=patient = better?"]}, "no cell satisfies"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    sweep: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(QuestionError) as error:
        mc.best(sweep, **({"metric": "dropped"} | options))
    assert str(error.value).startswith(message)


def test_what_did_not_come_within_the_run_is_as_long_as_the_run(tmp_path: Path) -> None:
    """The mean of the others alone would be the better the less often it comes."""
    # so late a fault that not every replication has drained when the run ends
    late = SWEEP.replace("fault_start = 100", "fault_start = 282")
    folder = run(tmp_path, late)
    said: list[str] = []
    found = mc.best(folder, "drain", where=["scenario=long", "budget=none"], say=said.append)
    assert found["n"].to_list() == [400] * found.height
    rows = mc.load(folder).replications
    for cell, mean in found.select("cell", "mean").iter_rows():
        drain = rows.filter(cell=cell)["drain"]
        assert drain.null_count() > 0
        assert mean == pytest.approx(drain.fill_null(400).mean(), rel=1e-12)  # rounds of the run
    (message,) = said
    assert "of 400 replications it did not come within the run in some cell" in message


def test_thirty_replications_are_needed(tmp_path: Path) -> None:
    folder = run(tmp_path, SWEEP.replace("replications = 400", "replications = 29"))
    with pytest.raises(QuestionError, match="at least 30 replications are needed"):
        mc.best(folder, "dropped")


# --- frontier -------------------------------------------------------------------------------


def test_the_frontier_holds_the_cells_that_no_other_beats(sweep: Path) -> None:
    found = mc.frontier(sweep, "calls", "wait_max", per=[])
    points = {
        line["cell"]: (line["calls"], line["wait_max"]) for line in found.iter_rows(named=True)
    }
    for line in found.iter_rows(named=True):
        x, y = points[line["cell"]]
        beaten = [c for c, (a, b) in points.items() if a <= x and b <= y and (a, b) != (x, y)]
        if line["on"] == "yes":
            assert beaten == []
        if line["on"] == "no":
            assert line["dominated_by"] in beaten
    assert {"yes", "no"} <= set(found["on"])
    got = found["calls_half_width"][0]
    x = values(sweep, found["cell"][0], "calls")
    expected = stats.t.ppf(0.975, 399) * stats.sem(x)
    assert got == pytest.approx(expected)


def test_means_have_the_intervals_of_the_summary_or_none(sweep: Path) -> None:
    summary = mc.load(sweep).summary
    half = (pl.col("ci_high") - pl.col("ci_low")) / 2
    for metric in ("dropped", "late_share"):
        expected = summary.filter(metric=metric).select(half).to_series().to_list()
        assert None in expected or metric == "dropped"
        found = mc.frontier(sweep, metric, "calls", per=[]).sort("cell")
        assert found[f"{metric}_half_width"].to_list() == pytest.approx(expected)
        found = mc.best(sweep, metric, per=[], subject_to=["calls > 0"]).sort("cell")
        assert found["mean_half_width"].to_list() == pytest.approx(expected)
        assert found["calls_half_width"].null_count() == 0


def test_a_bound_for_the_worst_case_is_called_one(tmp_path: Path) -> None:
    """The longer of two caps is hardly ever reached: in 30 runs most pairs differ too seldom."""
    folder = run(tmp_path, BROWNOUT.replace("[32, 256]", "[32, 64, 256]"))
    found = mc.best(folder, "dropped", per=["budget"])
    bounds = found.filter("is_bound")
    assert bounds.height > 0
    assert (bounds["n_needed"].drop_nulls() > 30).all()
    is_open = pl.col("candidate") & ~pl.col("best")
    assert found.filter(~pl.col("is_bound"), ~is_open)["n_needed"].drop_nulls().is_empty()
    shown = runner.invoke(app, ["best", str(folder), "--metric", "dropped", "--per", "budget"])
    assert "too few" in shown.stdout


def test_a_frontier_needs_two_metrics(sweep: Path) -> None:
    with pytest.raises(QuestionError, match="two different metrics"):
        mc.frontier(sweep, "dropped", "dropped")


# --- where histograms are kept --------------------------------------------------------------


def test_histograms_know_the_pairs_with_the_baseline_and_no_others(tmp_path: Path) -> None:
    kept = run(tmp_path, 'keep = "histograms"\n' + SWEEP)
    found = mc.compare(kept, "patient = better?", "eager")
    got = found.drop("left_name", "right_name", "left", "right")
    rows = tmp_path / "rows"
    rows.mkdir()
    expected = mc.compare(run(rows, SWEEP), "patient = better?", "eager")
    assert got.equals(expected.drop("left_name", "right_name", "left", "right"))
    with pytest.raises(FolderError, match=r'baseline "eager", which stands right'):
        mc.compare(kept, "budget=0.1", "budget=none")
    with pytest.raises(FolderError, match="keeps histograms, not rows"):
        mc.best(kept, "dropped")


# --- on the command line --------------------------------------------------------------------


def test_a_share_of_runs_is_printed_with_the_ends_of_its_interval() -> None:
    low, high = (float(end) for end in share_interval(36, 40))
    assert mean_and_error("recovered", 0.9, max(0.9 - low, high - 0.9), 40) == ("0.90", "0.76–0.97")
    # a mean over places is no share of n: what 0 and 1 leave of its interval
    assert mean_and_error("recovered", 0.95, 0.1, 40) == ("0.95", "0.85–1.00")
    assert mean_and_error("calls", 0.9, 0.14, 40) == ("0.90", "0.14")
    assert mean_and_error("recovered", 0.9, None, 40) == ("0.9", "")


def test_the_commands_answer_in_words(sweep: Path) -> None:
    asked = ["--metric", "dropped", "--subject-to", BOUND, "--where", "scenario=long"]
    best = runner.invoke(app, ["best", str(sweep), *asked])
    assert best.exit_code == 0, best.output
    winner = mc.best(sweep, "dropped", subject_to=[BOUND], where=["scenario=long"]).filter("best")
    name = f"{winner['policy'].item()}, budget {winner['budget'].item():g}"
    assert f"Best: {name}." in best.stdout
    frontier = runner.invoke(app, ["frontier", str(sweep), "dropped", "window_rate"])
    assert frontier.exit_code == 0
    assert "beaten by" in frontier.stdout
    compared = runner.invoke(app, ["compare", str(sweep), "budget=0.1", "budget=none"])
    assert compared.exit_code == 0
    assert "short, sharp, eager, budget 0.1  -  short, sharp, eager, budget none" in compared.stdout
    assert max(map(len, (best.stdout + frontier.stdout).splitlines())) <= 80


def test_the_commands_answer_programs(sweep: Path) -> None:
    asked = ["--metric", "dropped", "--format", "json"]
    best = runner.invoke(app, ["best", str(sweep), *asked])
    got = json.loads(best.stdout)
    assert len(got) == 12
    names = {"cell", "scenario", "policy", "budget", "budget_text", "mean", "candidate"}
    assert names <= got[0].keys()
    compared = runner.invoke(app, ["compare", str(sweep), "1", "0", *asked])
    got = json.loads(compared.stdout)
    assert [line["metric"] for line in got] == ["dropped"]


def test_undecided_requests_are_said_wherever_drops_are(tmp_path: Path) -> None:
    """27 tries drop nothing, and leave requests waiting: they are best of none, and it is said."""
    file = tmp_path / "late.toml"
    file.write_text(
        'title = "late"\nreplications = 40\n[fixed]\nrounds = 620\nfault_start = 100\n'
        "fault_rounds = 500\nfault_capacity = 1\nbackoff_cap = 320\n"
        '[[policy]]\nname = "none"\n[[policy]]\nname = "27"\ntries = [27]\n'
        '[[policy]]\nname = "3"\ntries = [3]\n'
    )
    checked = runner.invoke(app, ["check", str(file)])
    assert "a request may wait longer than the run goes on after the fault" in checked.stderr
    out = str(tmp_path / "late")
    ran = runner.invoke(app, ["run", str(file), "--out", out])
    told = "are undecided when the runs end, neither successful nor dropped, in 1 of 3 cells: "
    asked = {
        "best": ["--metric", "dropped"],
        "frontier": ["failed_share", "multiplier"],
        "compare": ["27", "none", "--metric", "dropped"],
    }
    for command, arguments in asked.items():
        assert told in runner.invoke(app, [command, out, *arguments]).stderr, command
    assert told in ran.stdout
    for command in ("show", "methods"):
        printed = runner.invoke(app, [command, out]).stdout
        assert told in " ".join(printed.split()), command
    calls = runner.invoke(app, ["best", out, "--metric", "calls"])
    assert told not in calls.stderr, "every call was counted"

    ranked = {line["policy"]: line for line in mc.best(out, "dropped").iter_rows(named=True)}
    assert ranked["27"]["mean"] < ranked["3"]["mean"] < ranked["none"]["mean"]
    got = {policy: (line["feasible"], line["best"]) for policy, line in ranked.items()}
    expected = {"none": ("yes", False), "27": ("undecided requests", False), "3": ("yes", True)}
    assert got == expected
    assert mc.best(out, "calls")["feasible"].to_list() == ["yes"] * 3
    on = mc.frontier(out, "failed_share", "multiplier")
    assert on.select("policy", "on").rows() == [
        *(("none", "yes"), ("27", "undecided requests"), ("3", "yes")),
    ]
    [card] = scorecards(mc.load(out))
    failed = [column.metric for column in card.columns].index("failed_share")
    best = [line.name for line in card.lines if (s := line.scores[failed]) and s.is_best]
    assert best == ["3"]
    printed = runner.invoke(app, ["best", out, "--metric", "dropped"]).stdout
    assert "Best: 3. Not compared, for their undecided requests: 27." in printed


def test_a_mistake_exits_2_and_prints_nothing_on_stdout(sweep: Path, tmp_path: Path) -> None:
    asked = [
        ["compare", str(sweep), "eagr", "eager"],
        ["best", str(sweep), "--metric", "dropd"],
        ["best", str(sweep), "--metric", "dropped", "--goal", "mini"],
        ["frontier", str(sweep), "dropped", "drops"],
        ["frontier", str(tmp_path), "dropped", "calls"],
    ]
    for arguments in asked:
        result = runner.invoke(app, arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert result.stderr.strip()


# --- one answer for all scenarios -----------------------------------------------------------


def test_across_scenarios_the_mean_counts_and_a_condition_must_hold_in_each(sweep: Path) -> None:
    found = mc.best(sweep, "dropped", subject_to=[BOUND], across=["scenario"])
    assert found.height == 6
    assert "cell" not in found.columns
    results = mc.load(sweep)
    means = results.summary.join(results.cells, on="cell")
    for line in found.iter_rows(named=True):
        own = means.filter(
            pl.col("policy") == line["policy"], pl.col("budget").eq_missing(line["budget"])
        )
        dropped = own.filter(pl.col("metric") == "dropped")["mean"]
        times = own.filter(pl.col("metric") == "times_usual")["mean"]
        assert line["mean"] == pytest.approx(dropped.mean())
        assert line["times_usual"] == pytest.approx(times.max())
        assert line["feasible"] in {"undecided", "yes" if (times <= 1.5).all() else "no"}
    possible = found.filter(pl.col("feasible") != "no")
    assert 0 < possible.height < 6
    got = found.filter("candidate")["mean"].min()
    expected = possible["mean"].min()
    assert got == expected


def test_a_scenario_without_a_window_has_no_say_in_a_metric_of_the_window(tmp_path: Path) -> None:
    healthy = '[[scenario]]\nname = "healthy"\n[[scenario]]\nname = "short, sharp"'
    folder = run(tmp_path, SWEEP.replace('[[scenario]]\nname = "short, sharp"', healthy, 1))
    messages: list[str] = []
    found = mc.best(folder, "dropped", subject_to=[BOUND], say=messages.append)
    assert set(found["scenario"]) == {"short, sharp", "long"}
    assert messages == ['healthy: no answer, for "times_usual" is undefined without a fault window']
    messages.clear()
    found = mc.best(folder, "dropped", subject_to=[BOUND], across=["scenario"], say=messages.append)
    assert found.height == 6
    assert messages == ["healthy: times_usual is undefined, it is left out there"]
    with pytest.raises(QuestionError, match="healthy: no answer"):
        mc.best(folder, "times_usual", where=["scenario=healthy"])


def test_a_cell_that_one_scenario_lacks_does_not_compete_across_them(tmp_path: Path) -> None:
    without = SWEEP + '[[exclude]]\nscenario = "long"\nbudget = 0.3\n'
    messages: list[str] = []
    found = mc.best(run(tmp_path, without), "dropped", across=["scenario"], say=messages.append)
    assert found["budget"].to_list() == [None, 0.1] * 2
    assert messages == ["2 cells left out, not in every scenario"]


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_a_condition_needs_a_finite_number(sweep: Path, number: str) -> None:
    with pytest.raises(QuestionError, match="a condition must be like"):
        mc.best(sweep, "dropped", subject_to=[f"times_usual <= {number}"])


def test_a_coordinate_that_is_given_twice_counts_once(sweep: Path) -> None:
    args = ["best", str(sweep), "--metric", "dropped", "--per", "scenario"]
    got = runner.invoke(app, [*args, "--per", "scenario"])
    assert got.exit_code == 0
    assert got.stdout == runner.invoke(app, args).stdout
    assert mc.best(sweep, "dropped", per=["policy", "policy"]).equals(
        mc.best(sweep, "dropped", per=["policy"])
    )


def test_attempts_are_named_as_in_the_file_or_as_in_the_tables(tmp_path: Path) -> None:
    text = 'title = "x"\nreplications = 40\n[fixed]\nrounds = 50\n[grid]\ntries = [[1], [3, 3]]\n'
    folder = run(tmp_path, text)
    got = mc.compare(folder, "tries=[3, 3]", "tries=1", ["calls"])
    assert got.equals(mc.compare(folder, "tries=3x3", "tries=[1]", ["calls"]))
    assert got[0, "left_name"] == "tries 3x3"
    with pytest.raises(QuestionError, match="tries is one of 1 3x3"):
        mc.compare(folder, "tries=9", "tries=1")


def test_a_value_of_a_range_is_named_by_the_six_digits_that_tables_show(tmp_path: Path) -> None:
    text = (
        'title = "x"\nreplications = 40\n[fixed]\nrounds = 50\n[grid]\n'
        'budget = {from = 0.01, to = 1, steps = 7, scale = "log"}\n'
    )
    folder = run(tmp_path, text)
    got = mc.compare(folder, "budget=0.0215443", "budget=1", ["calls"])
    assert got["left"].to_list() == [1]
    assert got.equals(mc.compare(folder, "budget=0.021544346900318836", "6", ["calls"]))
    with pytest.raises(QuestionError, match=r"no cell has budget = 0.02154;.* 0.464159 1$"):
        mc.compare(folder, "budget=0.02154", "6")
    experiment = experiments.read(tmp_path / "sweep.toml")
    for written in ("0.0215443", "0.021544346900318836"):
        assert [point.cell for point in choose(experiment, at={"budget": written})] == [1]


SMALL = 'title = "x"\nreplications = 30\n[fixed]\nrounds = 100\ntries = [3]\n'


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize(
    "command",
    [
        ["best", "--metric", "failed_share"]
        + [
            f"--subject-to={name} >= 0" for name in ("calls", "multiplier", "late_share", "retries")
        ],
        ["frontier", "failed_share", "multiplier"],
    ],
)
def test_names_of_cells_on_many_axes_can_be_read_on_a_narrow_screen(
    tmp_path: Path, command: list[str], width: int
) -> None:
    """They are not folded into a column of a few characters, nor numbers from their errors."""
    axes = '[grid]\nbackoff_base = [1, 2]\nbackoff_cap = [32, 64]\njitter = ["full", "none"]\n'
    folder = run(tmp_path, SMALL + axes)
    name, *options = command
    shown = runner.invoke(app, [name, str(folder), *options], env={"COLUMNS": str(width)})
    assert shown.exit_code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= width
    words = {word for word in shown.stdout.split() if word.startswith(("back", "jit"))}
    assert words == {"backoff_base", "backoff_cap", "jitter"}, "no word is torn"
    assert not re.search(r"±\s*$", shown.stdout, re.MULTILINE)
    if width == 200:
        assert "\u2500" in shown.stdout, "where there is room it is a table"


def test_a_value_that_is_called_none_is_found(tmp_path: Path) -> None:
    axes = '[grid]\njitter = ["full", "none"]\nbudget = ["none", 0.1]\n'
    folder = run(tmp_path, SMALL + axes)
    found = mc.best(folder, "calls", where=["jitter=none"])
    assert set(found["jitter"]) == {"none"}
    assert mc.best(folder, "calls", where=["budget=none"])["budget"].null_count() == 2
