"""The README is true: its commands run, and print what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from refresh_readme import NotFoundError, renewed
from shown import README, ROOT, fences, make_home, missing, output_of, shown_runs

from mc.model import METRICS

TEXT: Final = README.read_text("utf-8")
FENCES: Final = fences(README)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("readme"))


@cache
def printed(command: str, home: Path) -> str:
    """What a command prints, which is run once."""
    code = 2 if "mistakes" in command else 0
    return output_of(["-m", "mc", *shlex.split(command)], home, code)


@pytest.mark.parametrize(("command", "shown"), shown_runs())
def test_a_command_prints_what_the_readme_shows(command: str, shown: str, home: Path) -> None:
    assert missing(shown, printed(command, home)) is None


def test_the_readme_shows_all_that_is_tested_here() -> None:
    got = {language: sum(name == language for name, _ in FENCES) for language, _ in FENCES}
    expected = {"sh": 7, "text": 8, "toml": 4, "python": 2, "sql": 1, "r": 1}
    assert got == expected
    assert len(shown_runs()) == 8


@pytest.mark.parametrize("name", ["precise.toml", "claims.toml"])
def test_an_experiment_of_the_readme_can_be_planned(name: str, home: Path) -> None:
    assert "Nothing was written." in output_of(["-m", "mc", "plan", name], home)


def test_the_python_of_the_readme_runs(home: Path) -> None:
    printed("run experiments/lesson.toml", home)
    for language, text in FENCES:
        if language == "python":
            done = subprocess.run(
                [sys.executable, "-c", text], cwd=home, capture_output=True, text=True, check=False
            )
            assert done.stderr == ""
            assert done.returncode == 0


def test_the_sql_of_the_readme_runs(home: Path) -> None:
    import duckdb

    printed("run experiments/lesson.toml", home)
    (sql,) = (text for language, text in FENCES if language == "sql")
    with duckdb.connect() as connection:
        got = connection.execute(sql.replace("results/", f"{home}/results/")).fetchall()
    assert len(got) == 7


def test_the_command_that_passes_the_tests_is_what_ci_runs() -> None:
    (command,) = (text for language, text in FENCES if language == "sh" and "pytest" in text)
    assert command.strip() in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize("table", ["cells", "summary", "comparisons", "claims"])
def test_the_results_that_are_shown_are_those_of_the_command(home: Path, table: str) -> None:
    printed("run experiments/lesson.toml", home)
    shown = ROOT / "results" / "lesson" / f"{table}.parquet"
    got = pl.read_parquet(shown)
    expected = pl.read_parquet(home / "results" / "lesson" / f"{table}.parquet")
    assert_frame_equal(got, expected)


def test_the_table_of_metrics_names_each_with_its_unit() -> None:
    _, _, text = TEXT.partition("| metric | unit | meaning |\n|---|---|---|\n")
    got = []
    for line in text.partition("\n\n")[0].split("\n"):
        names, units, _ = (part.strip() for part in line.strip("|").split("|"))
        listed = units.split(", ")
        got += [
            (name.strip("`"), listed.pop(0) if len(listed) > 1 else listed[0])
            for name in names.split(", ")
        ]
    expected = [(name, metric.unit) for name, metric in METRICS.items()]
    assert sorted(got) == sorted(expected)


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"\]\((results/[^)]+)\)", TEXT)
    assert pictures
    assert all((ROOT / picture).exists() for picture in pictures)


OUTPUT: Final = """
outage
            calls  peak
one layer
  mean       12.5   3.1
  ±           0.2
three layers
  mean       99.1   3.0
Results: here
"""


def test_a_block_is_renewed_by_the_first_and_the_last_lines_of_its_parts() -> None:
    shown = "outage\n   calls  peak\n...\nthree layers\n  mean  7  8\n...\nResults: here\n"
    got = renewed(shown, OUTPUT)
    expected = (
        "outage\n            calls  peak\n...\nthree layers\n  mean       99.1   3.0\n...\n"
        "Results: here\n"
    )
    assert got == expected
    assert missing(shown, OUTPUT) == "outage\n   calls  peak"
    assert missing(got, OUTPUT) is None
    with pytest.raises(NotFoundError, match="two layers"):
        renewed("outage\n...\ntwo layers\n", OUTPUT)
