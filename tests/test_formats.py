"""--format: the same numbers for the eye, for programs and for a page; completion; colours."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.cli.options import FORMATS
from mc.store import TABLES

SMALL: Final = """
title = "small | and *so* on"
replications = 5
[fixed]
rounds = 200
fault_start = 50
[[scenario]]
name = "healthy"
[[scenario]]
name = "outage"
fault_rounds = 40
[[policy]]
name = "two"
tries = [2]
[[policy]]
name = "three"
tries = [3]
[grid]
backoff_cap = [8, 32]
[[claim]]
text = "three tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["two", "three"]
at = {backoff_cap = 8}
relation = "<"
[[published]]
scenario = "outage"
policy = "three"
at = {backoff_cap = 8}
multiplier = 1.25
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    (folder / "small.toml").write_text(SMALL, "utf-8")
    return mc.run(folder / "small.toml", folder / "results").folder


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def printed(*arguments: str) -> str:
    code, out, err = invoke(*arguments)
    assert code == 0
    assert all("the same rows in" in line for line in err.splitlines()), "nothing but a remark"
    return out


# Tables of the folder -----------------------------------------------------------------------------


def test_json_has_every_number_of_every_table(results: Path) -> None:
    got = json.loads(printed("show", str(results), "--format", "json"))
    assert set(got) == {"title", "generator", "seed", "n_cells", "n_rows", "results", *TABLES}
    for name in TABLES:
        expected: pl.DataFrame = getattr(mc.load(results), name)
        frame = pl.DataFrame(got[name], infer_schema_length=None)
        assert_frame_equal(frame.select(expected.columns), expected, check_dtypes=False)


@pytest.mark.parametrize("name", TABLES)
def test_one_table_is_the_same_in_json_and_csv(results: Path, name: str) -> None:
    arguments = ["show", str(results), "--table", name, "--format"]
    records = json.loads(printed(*arguments, "json"))
    rows = list(csv.DictReader(io.StringIO(printed(*arguments, "csv"))))
    assert [list(row) for row in rows] == [list(record) for record in records]
    for row, record in zip(rows, records, strict=True):
        for key, text in row.items():
            value = record[key]
            got = type(value)(text) if isinstance(value, int | float) else text or None
            if isinstance(value, bool):
                got = {"true": True, "false": False}[text]
            expected = value
            assert got == expected, key


def test_csv_is_the_summary_with_the_place_of_each_cell(results: Path) -> None:
    got = pl.read_csv(io.StringIO(printed("show", str(results), "--format", "csv")))
    assert got.columns[:5] == ["cell", "scenario", "policy", "backoff_cap", "metric"]
    expected = mc.load(results).summary
    assert got["mean"].to_list() == expected["mean"].to_list()
    places = got.select("cell", "scenario", "policy", "backoff_cap").unique(maintain_order=True)
    cells = mc.load(results).cells.select(places.columns)
    assert_frame_equal(places, cells, check_dtypes=False)


def markdown_rows(text: str) -> list[list[str]]:
    """Entries of all tables, each row as wide as its head."""
    rows, n_columns = [], 0
    for line in text.splitlines():
        if not line.startswith("|"):
            n_columns = 0
            continue
        entries = [entry.strip() for entry in re.split(r"(?<!\\)\|", line)[1:-1]]
        n_columns = n_columns or len(entries)
        assert len(entries) == n_columns, line
        rows.append(entries)
    return rows


def test_markdown_shows_the_means_of_the_terminal(results: Path) -> None:
    text = printed("show", str(results), "--format", "markdown")
    assert text.startswith(r"**small \| and \*so\* on: 8 cells x 5 replications")
    table = printed("show", str(results))
    means = [line.split()[1:] for line in table.splitlines() if line.startswith("  mean")]
    rows = [row for row in markdown_rows(text) if "backoff" in row[0]]
    got = [[entry.split(" ")[0] for entry in row[2:]] for row in rows]
    assert got == means
    (figure,) = mc.load(results).summary["published_percentile"].drop_nulls()
    row = ["published (percentile)", "", "", f"1.25 ({figure:.1f} %)"]
    assert row in [row[:4] for row in markdown_rows(text)]
    (claim,) = [row for row in markdown_rows(text) if row[0].startswith("three tries")]
    assert claim[1:3] == ["open, about 160 decide", "100.0"]


FORMULAS: Final = ("=1+1", "+1", "-2+3", "@SUM(A1)")
"""Which spreadsheets run; tabs and returns have no place in a name."""


def test_names_are_neither_formulas_in_csv_nor_markup_in_markdown(tmp_path: Path) -> None:
    policies = "".join(f'[[policy]]\nname = "{name}"\n' for name in FORMULAS)
    text = 'title = "=2"\nreplications = 2\n' + policies
    text += '[[scenario]]\nname = "<script>x</script>&amp;"\n'
    text += '[[claim]]\ntext = "=3"\nscenario = "<script>x</script>&amp;"\nmetric = "calls"\n'
    text += f'policies = ["{FORMULAS[0]}", "{FORMULAS[1]}"]\nrelation = "="\n'
    (tmp_path / "hostile.toml").write_text(text, "utf-8")
    folder = mc.run(tmp_path / "hostile.toml", tmp_path / "results").folder
    commands = (
        ("show", str(folder)),
        ("show", str(folder), "--table", "cells"),
        ("status", str(folder)),
    )
    for command in commands:
        for row in csv.reader(io.StringIO(printed(*command, "--format", "csv"))):
            numbers = [entry for entry in row if re.fullmatch(r"-?[\d.e-]+", entry)]
            assert not [e for e in row if e[:1] in tuple("=+-@\t\r") and e not in numbers]
        assert "<" not in printed(*command, "--format", "markdown")
    names = pl.read_csv(io.StringIO(printed(*commands[1], "--format", "csv")))["policy"]
    assert names.to_list() == [f"'{name}" for name in FORMULAS]
    claims = printed("show", str(folder), "--table", "claims", "--format", "csv")
    (claim,) = csv.DictReader(io.StringIO(claims))
    assert (claim["text"], claim["relation"]) == ("'=3", "="), "a sign alone is no formula"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_in_markdown_has_a_row_for_each_line(results: Path, name: str) -> None:
    text = printed("show", str(results), "--format", "markdown", "--table", name)
    head, rule, *rows = markdown_rows(text)
    assert len(rows) == getattr(mc.load(results), name).height
    assert set(rule) == {"---:"}
    assert len(head) == len(rows[0])


def test_a_run_prints_in_the_same_formats(results: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL, "utf-8")
    for form in sorted(set(FORMATS) - {"table"}):  # for readers a run prints one screen
        _, got, _ = invoke("run", str(file), "--out", str(results), "--format", form)
        expected = printed("show", str(results), "--format", form)
        assert got == expected


# Figures ------------------------------------------------------------------------------------------


def commands(results: Path) -> dict[str, list[str]]:
    (results.parent / "more.toml").write_text(SMALL, "utf-8")
    file = str(results.parent / "more.toml")
    return {
        "status": ["status", str(results)],
        "verify": ["verify", str(results), "--seed", "1"],
        "plan": ["plan", file, "--out", str(results.parent / "more")],
        "check": ["check", file],
    }


EXPECTED: Final[dict[str, dict[str, Any]]] = {
    "status": {"state": "finished", "n_rows": 40, "n_done": 40, "n_missing": 0},
    "verify": {"ok": True, "n_rows": 40, "n_checked": 40, "n_wrong": 0, "n_faults": 0},
    "plan": {"n_cells": 8, "replications": 5, "n_rows": 40, "n_done": 0, "finished": False},
    "check": {"n_cells": 8, "n_rows": 40, "n_left_out": 0, "n_claims": 1, "n_published": 1},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_are_data_in_json_and_csv(results: Path, name: str) -> None:
    arguments = commands(results)[name]
    record = json.loads(printed(*arguments, "--format", "json"))
    expected = EXPECTED[name]
    got = {key: record[key] for key in expected}
    assert got == expected
    (row,) = csv.DictReader(io.StringIO(printed(*arguments, "--format", "csv")))
    got_texts = {key: row[key] for key in expected}
    assert got_texts == {key: str(value) for key, value in expected.items()}


@pytest.mark.parametrize("name", EXPECTED)
def test_figures_have_the_same_words_in_the_table_and_in_markdown(results: Path, name: str) -> None:
    arguments = commands(results)[name]
    rows = markdown_rows(printed(*arguments, "--format", "markdown"))
    table = printed(*arguments)
    got = [label for label, _ in rows[2:]]
    expected = re.findall(r"^  (\w[\w ]*?)  ", table, re.MULTILINE)
    assert got == expected


def test_differences_are_data(results: Path, tmp_path: Path) -> None:
    found = mc.verify(results, all_rows=True)
    assert found.ok
    (results.parent / "damaged").mkdir()
    for path in results.rglob("*"):
        target = results.parent / "damaged" / path.relative_to(results)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    claims = results.parent / "damaged" / "claims.parquet"
    claims.write_bytes(claims.read_bytes()[:-9])
    code, out, _ = invoke("verify", str(claims.parent), "--format", "json")
    assert code == 1
    record = json.loads(out)
    assert record["ok"] is False
    assert len(record["faults"]) == record["n_faults"] == 1


# Mistakes -----------------------------------------------------------------------------------------


MISTAKES: Final = {
    "a format": (["show", "x", "--format", "jsno"], 'got "jsno"; did you mean "json"?'),
    "a table": (["show", "x", "--table", "claim"], 'got "claim"; did you mean "claims"?'),
    "a command": (["stats"], "Did you mean 'status'?"),
    "an option": (["run", "x.toml", "--replication", "3"], "Possible options: --replications"),
    "a parameter": (["check", "x.toml", "--set", "budge=1"], 'did you mean "budget"?'),
    "a file": (["run", "xs.toml"], 'No such file or directory; did you mean "x.toml"?'),
    "a policy": (["check", "y.toml"], 'policy "tree" does not exist; did you mean "three"?'),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistyped_name_is_answered_with_the_nearest(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(SMALL, "utf-8")
    Path("y.toml").write_text(SMALL.replace('["two", "three"]', '["two", "tree"]'), "utf-8")
    arguments, suggestion = MISTAKES[what]
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert suggestion in err


def test_a_table_for_the_eye_has_no_room_for_all_columns(results: Path) -> None:
    code, out, err = invoke("show", str(results), "--table", "claims")
    assert (code, out) == (2, "")
    assert err.startswith("--table: needs --format json, csv or markdown")


# Shells and colours -------------------------------------------------------------------------------


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    environment = {
        "_RETRYSTORM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run(
        [str(Path(sys.executable).with_name("retrystorm"))],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_shell_completes_commands_options_and_values() -> None:
    lines = {
        "retrystorm ver": ["verify"],
        "retrystorm show --form": ["--format"],
        "retrystorm show --format js": ["json"],
        "retrystorm run x.toml --set backoff_": [
            "backoff_base=",
            "backoff_factor=",
            "backoff_cap=",
        ],
    }
    got = {line: completed(line) for line in lines}
    expected = lines
    assert got == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_completion_is_printed(shell: str) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("retrystorm"))],
        env=os.environ | {"_RETRYSTORM_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_RETRYSTORM_COMPLETE=complete_" in done.stdout


COLOUR: Final = re.compile(r"\x1b\[[\d;]*(3[0-8]|9[0-7])[\d;]*m")


def on_a_terminal(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment with what a terminal would be sent."""
    (tmp_path / "small.toml").write_text(SMALL, "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mc", "run", "small.toml", "--force"],
        cwd=tmp_path,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_no_color_is_heeded(tmp_path: Path) -> None:
    coloured = on_a_terminal(tmp_path)
    assert COLOUR.search(coloured.stderr)
    plain = on_a_terminal(tmp_path, NO_COLOR="1")
    assert not COLOUR.search(plain.stderr + plain.stdout)
