"""What is printed and drawn of a finished run: times in seconds, rates per second.

Tables of the folder keep rounds, and so does what is printed of an experiment with published
figures, which are in rounds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from folders import run
from reported import Page
from typer.testing import CliRunner

import mc
from mc.cli import app

IN_UNITS: Final = """
title = "units"
replications = 60
[fixed]
round = "20 ms"
rounds = "12 s"
arrivals_per_second = "60/s"
capacity = "100/s"
fault_start = "1 s"
fault_rounds = "2 s"
tries = [3, 3]
[grid]
backoff_cap = ["40 ms", "1.2 s"]
backoff_base = [["100 ms", "20 ms"], ["40 ms", "40 ms"]]
[[claim]]
text = "a small storm"
metric = "window_rate"
relation = "<"
value = "100/s"
at = {backoff_cap = "1200 ms", backoff_base = ["40 ms", "40 ms"]}
"""

PER_SECOND: Final = 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("units") / "results"
    run(IN_UNITS, folder)
    mc.report(folder)
    return folder


def printed(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def mean(folder: Path, cell: int, metric: str) -> float:
    value: float = mc.load(folder).summary.filter(cell=cell, metric=metric)["mean"].item()
    return value


def test_show_has_seconds_and_says_so(folder: Path) -> None:
    lines = printed("show", folder).splitlines()
    units = [line.split() for line in lines if set(line.split()) <= {"/s", "s"} and line]
    assert ["/s", "/s"] in units
    assert ["s", "s", "/s", "s"] in units
    table = next(i for i, line in enumerate(lines) if line.startswith("default: "))
    (first,) = (line for line in lines[table:][:8] if line.split()[0] == "mean" and "." in line)
    got = float(first.split()[3])
    assert got == pytest.approx(mean(folder, 0, "wait_max") / PER_SECOND, rel=1e-2)


def test_cells_are_called_as_the_file_calls_them(folder: Path) -> None:
    name = "backoff_cap 1.2 s, backoff_base [100 ms, 20 ms]"
    for arguments in (
        ("show", folder),
        ("show", folder, "--format", "markdown"),
        ("best", folder, "--metric", "drain"),
        ("frontier", folder, "calls", "dropped"),
        ("compare", folder, "backoff_cap=1.2 s", "backoff_cap=40 ms"),
    ):
        assert name in printed(*arguments).replace("\\", "")
    assert name in Page((folder / "report.html").read_text("utf-8")).read


@pytest.mark.parametrize("text", ["1.2 s", "1200 ms", "60", "60.0"])
def test_a_cell_is_found_by_its_value_however_it_is_written(folder: Path, text: str) -> None:
    found = mc.best(folder, "calls", where=[f"backoff_cap={text}"])
    assert set(found["backoff_cap"]) == {60}
    found = mc.best(folder, "calls", where=["backoff_base=[100 ms, 20 ms]"])
    assert set(found["backoff_base"]) == {"[5.0, 1.0]"}


def test_what_no_cell_has_is_refused_in_the_users_unit(folder: Path) -> None:
    result = CliRunner().invoke(
        app, ["best", str(folder), "--metric", "calls", "--where", "backoff_cap=2 s"]
    )
    assert result.exit_code == 2
    assert result.stderr.endswith(
        "no cell has backoff_cap = 2 s; backoff_cap is one of 40 ms, 1.2 s\n"
    )


def test_a_condition_may_have_a_unit(folder: Path) -> None:
    in_units = mc.best(folder, "calls", subject_to=["window_rate <= 150/s", "wait_max < 1.5 s"])
    in_rounds = mc.best(folder, "calls", subject_to=["window_rate <= 3", "wait_max < 75"])
    assert in_units.equals(in_rounds)
    with pytest.raises(mc.decisions.QuestionError, match=r"a number \(rounds\), got '1,5 s'"):
        mc.best(folder, "calls", subject_to=["wait_max < 1,5 s"])


def asked(folder: Path, condition: str) -> tuple[str, list[str]]:
    """The condition as it is echoed, and what is said of it."""
    said: list[str] = []
    results = mc.load(folder)
    found = mc.decisions.condition(condition, results, said.append)
    assert mc.best(folder, "calls", subject_to=condition)["feasible"].len() > 0
    return found.text(results.manifest["experiment"]), said


@pytest.mark.parametrize(
    ("condition", "echo"),
    [
        ("peak <= 3 x capacity", "peak <= 3 x capacity"),
        ("peak <= 3 x", "peak <= 3 x capacity"),
        ("peak < 450 calls/s", "peak < 450 calls/s"),
        ("peak < 9 calls/round", "peak < 450 calls/s"),
        ("second_peak <= 3 x capacity", "second_peak <= 3 x capacity"),
        ("times_usual <= 2 x usual", "times_usual <= 2 x usual"),
        ("times_usual <= 2", "times_usual <= 2 x usual"),
        ("multiplier <= 3 calls/request", "multiplier <= 3 calls/request"),
        ("dropped <= 300 requests", "dropped <= 300 requests"),
        ("late_share < 1 %", "late_share < 1 %"),
        ("drain <= 5 s", "drain <= 5 s"),
        ("drain <= 250 rounds", "drain <= 5 s"),
    ],
)
def test_a_condition_is_read_and_echoed_with_its_unit(
    folder: Path, condition: str, echo: str
) -> None:
    assert asked(folder, condition) == (echo, [])


@pytest.mark.parametrize(
    ("condition", "echo"),
    [
        ("peak <= 2", "peak <= 100 calls/s"),
        ("drain <= 5", "drain <= 0.1 s"),
        ("failed_share <= 5", "failed_share <= 500 %"),
    ],
)
def test_a_number_without_its_unit_is_not_silently_misread(
    folder: Path, condition: str, echo: str
) -> None:
    told, [said] = asked(folder, condition)
    assert told == echo
    assert said.startswith(f"{condition} is taken as {echo}")
    assert ("peak <= 2 x capacity" in said) == condition.startswith("peak")
    printed = CliRunner().invoke(
        app, ["best", str(folder), "--metric", "calls", "--subject-to", condition]
    )
    assert said in printed.stderr
    assert f"subject to {echo}" in printed.stdout


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("late < 1 %", "late_share is in such a unit"),
        ("dropped < 1 %", "failed_share is in such a unit"),
        ("calls <= 2 x capacity", "calls is no multiple of that"),
        ("peak <= 2 x usual", "peak is no multiple of that"),
    ],
)
def test_a_condition_in_another_metrics_unit_names_that(
    folder: Path, condition: str, message: str
) -> None:
    with pytest.raises(mc.decisions.QuestionError, match=message):
        mc.best(folder, "calls", subject_to=condition)


def test_a_peak_over_the_capacity_is_judged_by_the_capacity_of_each_cell(folder: Path) -> None:
    cells = mc.load(folder).cells
    [capacity] = set(cells["capacity"])
    over = mc.best(folder, "calls", subject_to=["peak <= 1.5 x capacity"])
    rounds = mc.best(folder, "calls", subject_to=[f"peak <= {1.5 * capacity} calls/round"])
    assert over["feasible"].equals(rounds["feasible"])
    assert over["peak_x_capacity"].to_list() == pytest.approx((rounds["peak"] / capacity).to_list())


def test_best_frontier_and_compare_are_in_seconds(folder: Path) -> None:
    expected = PER_SECOND * mean(folder, 0, "window_rate")
    for arguments in (
        ("best", folder, "--metric", "window_rate"),
        ("frontier", folder, "window_rate", "dropped"),
    ):
        numbers = re.findall(r" (\d+\.?\d*)", printed(*arguments))
        assert any(float(n) == pytest.approx(expected, abs=1) for n in numbers)
    assert "window_rate, calls/s" in printed("best", folder, "--metric", "window_rate")
    assert "window_rate, calls/s" in printed("compare", folder, "0", "1")
    raw = json.loads(printed("best", folder, "--metric", "window_rate", "--format", "json"))
    assert raw[0]["mean"] == pytest.approx(mean(folder, 0, "window_rate"))


def test_the_page_is_in_seconds(folder: Path) -> None:
    page = Page((folder / "report.html").read_text("utf-8"))
    assert "window rate (calls/s)" in page.read
    assert "100 calls/s" in page.read  # the number of the claim
    assert not re.search(
        r"calls/round|\d rounds", page.read.partition("The experiment as it was")[0]
    )
    storm = (folder / "figures" / "storm-1.svg").read_text("utf-8")
    assert "calls/s" in storm
    assert "calls/round" not in storm


def test_published_figures_are_read_in_rounds_as_they_are_given(tmp_path: Path) -> None:
    text = (
        IN_UNITS
        + "[[published]]\npeak = 7\n"
        + 'at = {backoff_cap = "40 ms", backoff_base = ["40 ms", "40 ms"]}\n'
    )
    run(text, tmp_path / "results")
    assert " /s " not in printed("show", tmp_path / "results")


def test_cells_with_rounds_of_several_lengths_are_read_in_rounds(tmp_path: Path) -> None:
    text = (
        'title = "x"\nreplications = 3\n[fixed]\nrounds = 100\nfault_rounds = 9\nfault_start = 5\n'
    )
    run(text + "[grid]\nrounds_per_second = [50, 100]\n", tmp_path / "results")
    assert " /s " not in printed("show", tmp_path / "results")


def test_a_trace_is_chosen_by_a_value_with_a_unit(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(IN_UNITS, "utf-8")
    out = tmp_path / "trace.parquet"
    at = ("--at", "backoff_cap=1200 ms", "--at", "backoff_base=[40 ms, 40 ms]")
    assert "of 1 cell" in printed("trace", file, *at, "--out", out)
    picture = out.with_suffix(".svg").read_text("utf-8")
    assert "backoff_cap 1.2 s" in picture
    assert "calls/round" not in picture


def test_a_budget_that_is_a_table_is_named_in_units(tmp_path: Path) -> None:
    fixed = "[fixed]\nrounds = 300\nfault_start = 50\nfault_rounds = 30\ntries = [3]\n"
    grid = '[grid]\nbudget = ["none", {kind = "finagle", ttl = "5 s"}]\nbackoff_base = [1, 9]\n'
    run(f'title = "b"\nreplications = 40\n{fixed}{grid}', tmp_path / "results")
    name = "finagle(ttl 5 s, min_retries_per_sec 10/s, percent_can_retry 20 %)"
    assert f"budget {name}" in printed("show", tmp_path / "results")
    found = mc.best(tmp_path / "results", "calls", where=[f"budget={name}"])
    assert found.height == 2
