"""The commands that draw: report, trace, and run, which ends with a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from folders import write
from reported import SMALL, SWEEP, VARIANTS
from typer.testing import CliRunner

import mc
from mc.cli import app


@pytest.fixture
def _reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETRYSTORM_NO_REPORT")


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("_reporting")
def test_a_run_ends_with_its_report_unless_told_not_to(tmp_path: Path) -> None:
    file, out = write(tmp_path, VARIANTS["one cell, no axis"]), tmp_path / "results"
    assert invoke("run", file, "--out", out, "--no-report").exit_code == 0
    assert not (out / "report.html").exists()
    got = invoke("run", file, "--out", out)
    assert got.exit_code == 0
    assert f"Report: {out / 'report.html'}" in got.stderr
    written = (out / "report.html").stat().st_mtime_ns
    again = invoke("run", file, "--out", out)
    assert again.exit_code == 0
    assert "drawing" not in again.stderr
    assert (out / "report.html").stat().st_mtime_ns == written
    more = invoke("run", file, "--out", out, "--replications", 20)
    assert "drawing the report" in more.stderr


def test_a_page_of_earlier_results_is_called_so_until_it_is_made_anew(tmp_path: Path) -> None:
    file, out = write(tmp_path, VARIANTS["one cell, no axis"]), tmp_path / "results"
    commands: tuple[tuple[Any, ...], ...] = (
        ("run", file, "--out", out, "--no-report", "--replications", 14),
        ("status", out),
        ("verify", out, "--seconds", 0),
    )
    message = f"report.html shows earlier results: `retrystorm report {out}` makes it anew"
    assert invoke("run", file, "--out", out, "--no-report").exit_code == 0
    assert message not in invoke("status", out).stderr  # there is none
    assert invoke("report", out).stdout == f"{out / 'report.html'}\n"
    for command in commands[1:]:
        assert message not in invoke(*command).stderr
    for command in commands:
        got = invoke(*command)
        assert got.exit_code == 0
        assert message in got.stderr
    assert invoke("report", out).exit_code == 0
    for command in commands:
        assert message not in invoke(*command).stderr


def test_png_files_are_for_those_who_ask(tmp_path: Path) -> None:
    file, out = write(tmp_path, VARIANTS["one cell, no axis"]), tmp_path / "results"
    assert invoke("run", file, "--out", out).exit_code == 0
    assert invoke("report", out).exit_code == 0
    assert not list((out / "figures").glob("*.png"))
    assert invoke("report", out, "--png").exit_code == 0
    assert list((out / "figures").glob("*.png"))


def test_a_folder_without_results_has_no_report(tmp_path: Path) -> None:
    got = invoke("report", tmp_path)
    assert got.exit_code == 2
    assert "no results here" in got.stderr
    assert not list(tmp_path.iterdir())


def test_trace_writes_a_table_and_a_picture(tmp_path: Path) -> None:
    file, out = write(tmp_path, SMALL), tmp_path / "storm.parquet"
    options = ["--scenario", "outage", "--policy", "nine tries", "--replication", 3]
    got = invoke("trace", file, *options, "--out", out)
    assert got.exit_code == 0, got.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        *("small.toml", "storm.parquet", "storm.png", "storm.svg")
    }
    rounds = pl.read_parquet(out)
    cell = mc.Cell(rounds=700, fault_rounds=60, tries=(3, 3))
    expected = mc.simulate([cell], replications=[3])["calls"].item()
    assert rounds["calls"].sum() == expected
    assert rounds["cell"].unique().to_list() == [1]
    first = out.with_suffix(".svg").read_bytes()
    assert invoke("trace", file, *options, "--out", out).exit_code == 0
    assert out.with_suffix(".svg").read_bytes() == first


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--scenario", "outag"], '--scenario "outag" does not exist; did you mean "outage"?'),
        (["--policy", "zzz"], '--policy "zzz" does not exist; there are "one try", "nine tries"'),
        (["--at", "budget=1"], "--at: budget is no axis"),
        (["--at", "budget"], "--at: must be name=value, got 'budget'"),
        (["--out", "x.csv"], "--out: must end with .parquet, got 'x.csv'"),
    ],
)
def test_trace_says_what_is_wrong_and_writes_nothing(
    options: list[str], expected: str, tmp_path: Path
) -> None:
    got = invoke("trace", write(tmp_path, SMALL), *options)
    assert got.exit_code == 2
    assert expected in got.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_trace_finds_a_value_on_an_axis_however_it_is_written(tmp_path: Path) -> None:
    file, out = write(tmp_path, SWEEP), tmp_path / "t.parquet"
    at = ["--at", "budget=none", "--at", "backoff_cap=4", "--at", "threshold=20"]
    assert invoke("trace", file, *at, "--out", out).exit_code == 0
    got = pl.read_parquet(out)["cell"].unique().to_list()
    expected = [1]  # of the axes budget, backoff_cap and threshold the last varies fastest
    assert got == expected


def test_neither_help_nor_a_run_without_report_imports_matplotlib(tmp_path: Path) -> None:
    file = write(tmp_path, VARIANTS["one cell, no axis"])
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom mc.cli import app\n"
        f"for line in (['--help'], ['run', {str(file)!r}, '--out', {str(tmp_path / 'r')!r}, "
        "'--no-report']):\n"
        "    assert CliRunner().invoke(app, line).exit_code == 0\n"
        "    print(sorted({'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    got = done.stdout.splitlines()
    expected = ["[]", "[]"]
    assert got == expected


def test_a_place_or_a_replication_that_cannot_be_is_told_before_a_trace_is_made(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, 'title = "x"\n[fixed]\nrounds = 9\n[grid]\ntries = [[1], [3, 3]]\n')
    for options, message in (
        (["--out", str(tmp_path / "none" / "x.parquet")], "must be in a folder that exists"),
        (["--replication", str(2**32)], f"must be < {2**32 - 1}, got {2**32}"),
    ):
        got = CliRunner().invoke(app, ["trace", str(file), *options])
        assert got.exit_code == 2
        assert message in got.stderr
    args = ["trace", str(file), "--out", str(tmp_path / "x.parquet"), "--at", "tries=3x3"]
    assert CliRunner().invoke(app, args).exit_code == 0
