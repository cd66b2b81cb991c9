"""The README is true: its commands run, and print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from mc.cli import app
from mc.model import METRICS

ROOT: Final = Path(__file__).parents[1]
README: Final = (ROOT / "README.md").read_text("utf-8")
FENCES: Final = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shown_runs() -> list[tuple[str, str]]:
    """Each `retrystorm` command of the README, and the output shown for it."""
    runs, command = [], ""
    for language, text in FENCES:
        if language == "sh":
            found = re.search(r"retrystorm ((?:run|best) .+)\n", text)
            command = found.group(1) if found else ""
        elif language == "text" and command:
            runs.append((command, text))
    return runs


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the experiments, and those that the README shows, named in their first line."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    for language, text in FENCES:
        if language == "toml":
            (folder / text.split()[1]).write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def output_of(home: Path) -> Callable[[str], str]:
    """Run a command beside the experiments, each once; give what it prints."""

    @cache
    def run(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mc", *shlex.split(command)],
            cwd=home,
            env=os.environ | {"COLUMNS": "80"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (2 if "mistakes" in command else 0), done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def results(home: Path, output_of: Callable[[str], str]) -> Path:
    """Give the results folder of the lesson."""
    output_of("run experiments/lesson.toml")
    return home / "results" / "lesson"


@pytest.mark.parametrize(("command", "shown"), shown_runs())
def test_a_command_prints_what_the_readme_shows(
    command: str, shown: str, output_of: Callable[[str], str]
) -> None:
    if command.startswith("best"):
        output_of("run brownout.toml")  # whose results it reads
    got = "\n".join(line.rstrip() for line in output_of(command).split("\n"))
    for part in shown.split("...\n"):
        expected = "\n".join(line.rstrip() for line in part.strip("\n").split("\n"))
        _, found, got = got.partition(expected)  # the parts follow one another
        assert found == expected


def test_the_readme_shows_all_that_is_tested_here() -> None:
    got = {language: sum(name == language for name, _ in FENCES) for language, _ in FENCES}
    expected = {"sh": 7, "text": 7, "toml": 4, "python": 2, "sql": 1, "r": 1}
    assert got == expected
    assert len(shown_runs()) == 7


@pytest.mark.parametrize("name", ["precise.toml", "claims.toml"])
def test_an_experiment_of_the_readme_can_be_planned(name: str, home: Path) -> None:
    planned = CliRunner().invoke(app, ["plan", str(home / name)], catch_exceptions=False)
    assert "Nothing was written." in planned.stdout


@pytest.mark.usefixtures("results")
def test_the_python_of_the_readme_runs(home: Path) -> None:
    for language, text in FENCES:
        if language == "python":
            done = subprocess.run(
                [sys.executable, "-c", text], cwd=home, capture_output=True, text=True, check=False
            )
            assert done.stderr == ""
            assert done.returncode == 0


@pytest.mark.usefixtures("results")
def test_the_sql_of_the_readme_runs(home: Path) -> None:
    import duckdb

    (sql,) = (text for language, text in FENCES if language == "sql")
    with duckdb.connect() as connection:
        got = connection.execute(sql.replace("results/", f"{home}/results/")).fetchall()
    assert len(got) == 6


def test_the_command_that_passes_the_tests_is_what_ci_runs() -> None:
    (command,) = (text for language, text in FENCES if language == "sh" and "pytest" in text)
    assert command.strip() in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize("table", ["cells", "summary", "comparisons", "claims"])
def test_the_results_that_are_shown_are_those_of_the_command(results: Path, table: str) -> None:
    shown = ROOT / "results" / "lesson" / f"{table}.parquet"
    got = pl.read_parquet(shown)
    expected = pl.read_parquet(results / f"{table}.parquet")
    assert_frame_equal(got, expected)


def test_the_table_of_metrics_names_each_with_its_unit() -> None:
    _, _, text = README.partition("| metric | unit | meaning |\n|---|---|---|\n")
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
    pictures = re.findall(r"\]\((results/[^)]+)\)", README)
    assert pictures
    assert all((ROOT / picture).exists() for picture in pictures)
