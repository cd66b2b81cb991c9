"""The README is true: its commands run, and print what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from refresh_readme import NotFoundError, renewed
from shown import (
    README,
    RESULTS,
    ROOT,
    WALKTHROUGH,
    fences,
    make_home,
    missing,
    output_of,
    shown_runs,
)
from typer.testing import CliRunner

from mc.cli import app
from mc.decisions.scorecard import _columns
from mc.model import METRICS

TEXT: Final = README.read_text("utf-8")
FENCES: Final = fences(README)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("readme"))


@pytest.fixture(scope="module")
def printed(home: Path) -> Callable[[str], str]:
    """Run a command beside the experiments, each once; give what it prints."""

    @cache
    def run(command: str) -> str:
        return output_of(["-m", "mc", *shlex.split(command)], home)

    return run


@pytest.fixture(scope="module")
def results(home: Path, printed: Callable[[str], str]) -> Path:
    """Give the results folder of the lesson."""
    printed("run experiments/lesson.toml")
    return home / "results" / "lesson"


@pytest.mark.parametrize(("command", "shown"), shown_runs())
def test_a_command_prints_what_the_readme_shows(
    command: str, shown: str, printed: Callable[[str], str]
) -> None:
    if command.startswith("best"):
        printed("run brownout.toml")  # whose results it reads
    output = printed(command)
    assert missing(shown, output) is None
    # an answer that the calm before the fault decides is no example
    assert "saves up in the calm" not in output or "lesson" in command


def test_the_readmes_show_all_that_is_tested_here() -> None:
    languages = [name for path in (README, RESULTS) for name, _ in fences(path)]
    got = {language: languages.count(language) for language in languages}
    expected = {"sh": 7, "text": 4, "toml": 1, "python": 3, "sql": 1, "r": 1}
    assert got == expected
    assert len(shown_runs()) == 4


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 200


def test_links_between_readmes_lead_somewhere() -> None:
    for path in (README, WALKTHROUGH, RESULTS, ROOT / "mc" / "README.md"):
        for target, _, anchor in re.findall(r"\]\((?!http)([^)#]+)(#([^)]+))?\)", path.read_text()):
            found = path.parent / target
            assert found.exists(), f"{path}: {target}"
            if anchor:
                heads = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads]
                assert anchor in slugs, f"{path}: #{anchor}"


@pytest.mark.parametrize("name", ["precise.toml", "claims.toml"])
def test_an_experiment_of_the_readme_can_be_planned(name: str, home: Path) -> None:
    planned = CliRunner().invoke(app, ["plan", str(home / name)], catch_exceptions=False)
    assert "Nothing was written." in planned.stdout


@pytest.mark.usefixtures("results")
def test_the_python_of_the_readme_runs(home: Path) -> None:
    for language, text in (*FENCES, *fences(RESULTS)):
        if language == "python":
            done = subprocess.run(
                [sys.executable, "-c", text], cwd=home, capture_output=True, text=True, check=False
            )
            assert done.stderr == ""
            assert done.returncode == 0


@pytest.mark.usefixtures("results")
def test_the_sql_of_the_readme_runs(home: Path) -> None:
    import duckdb

    (sql,) = (text for language, text in fences(RESULTS) if language == "sql")
    with duckdb.connect() as connection:
        got = connection.execute(sql.replace("results/", f"{home}/results/")).fetchall()
    assert len(got) == 7


def test_the_command_that_passes_the_tests_is_what_ci_runs() -> None:
    (command,) = (text for language, text in FENCES if language == "sh" and "pytest" in text)
    assert command.strip() in (ROOT / ".ci" / "run").read_text("utf-8")


def test_the_table_of_metrics_names_each_with_its_unit() -> None:
    _, _, text = RESULTS.read_text("utf-8").partition(
        "| metric | unit | meaning |\n|---|---|---|\n"
    )
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


def test_what_is_printed_is_traced_to_the_columns_of_the_rows() -> None:
    _, _, text = RESULTS.read_text("utf-8").partition("| printed | metric | in the rows |\n")
    lines = [line.strip("| ").split(" | ") for line in text.partition("\n\n")[0].splitlines()[1:]]
    formulas = {line[-2].strip("|` "): line[-1] for line in lines}
    for metric in METRICS.values():
        if metric.is_ratio:
            assert f"`{metric.counter}` / " in formulas[metric.name]
            assert metric.per is None or f"/ `{metric.per}`" in formulas[metric.name]
    heads = {line[-2].strip("`"): line[0] for line in lines}
    for name, head in _columns():
        assert heads[name].startswith(" ".join(head.split())), name


def test_the_pictures_of_the_readme_are_there() -> None:
    pictures = re.findall(r"\]\((results/[^)]+\.svg)\)", TEXT)
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
