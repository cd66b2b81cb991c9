"""The command line: what it prints and where, and one clear message for every mistake."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numba
import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app, stderr
from mc.cli.references import SOURCES

EXPERIMENTS: Final = Path(__file__).parent.parent / "experiments"

SMALL: Final = """
title = "small"
replications = 5
[fixed]
rounds = 200
[[scenario]]
name = "healthy"
[[scenario]]
name = "outage"
fault_start = 50
fault_rounds = 40
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
[[claim]]
text = "three tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["none", "three"]
relation = "<"
[[published]]
scenario = "outage"
policy = "three"
multiplier = 1.25
"""


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder, at a terminal of usual width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Give exit code, stdout and stderr; an error that is no exit is a bug and goes on."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def run_and_show(file: str, *options: str) -> str:
    """Give what `show` prints of a run."""
    code, _, err = invoke("run", file, *options)
    assert code == 0, err
    code, out, err = invoke("show", f"results/{Path(file).stem}")
    assert (code, err) == (0, "")
    return out


def write(text: str, name: str = "small.toml") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


# Printing -----------------------------------------------------------------------------------------


def test_a_run_prints_its_results_to_stdout_and_nothing_to_stderr() -> None:
    code, out, err = invoke("run", write(SMALL))
    assert code == 0
    assert err == ""
    assert out.startswith("small: 4 cells, 5 replications each\n")
    for expected in ("healthy: all 2 agree", "outage ", "none ", "three "):
        assert f"\n{expected}" in out
    assert re.search(r"open .*three tries make more .*in 100\.0 %", out)
    assert f"retrystorm show {Path('results/small')} " in out


def test_the_lesson_comes_with_the_package() -> None:
    shipped = Path(mc.__file__).parent / "experiment" / "lesson.toml"
    assert shipped.read_text("utf-8") == (EXPERIMENTS / "lesson.toml").read_text("utf-8")
    code, out, err = invoke("demo", "--replications", "3", "-q")
    assert code == 0
    assert all("lesson.toml: " in line for line in err.splitlines()), "remarks on its cells alone"
    assert out.startswith("Retries and storm risk: the lesson")
    assert mc.load("results/lesson").manifest["n_rows"] == 21 * 3


def test_methods_are_a_paragraph_and_a_table_with_intervals() -> None:
    mc.run(write(SMALL), replications=40)
    results = mc.load("results/small")
    code, out, err = invoke("methods", "results/small", "--metric", "calls")
    assert (code, err) == (0, "")
    text = " ".join(out.partition("\n\n")[0].split())
    for said in (
        f"retrystorm {mc.__version__} (",
        'The experiment "small" has 4 cells, combinations of parameters: 2 scenarios, 2 policies.',
        "rounds of 10 ms,",
        "With fewer than 200 replications intervals are rough.",
        "for 40 replications.",
        f"the seed {results.manifest['seed']}:",
        f"small.toml: {results.manifest['experiment_sha256']};",
    ):
        assert said in text
    line = results.summary.filter(cell=3, metric="calls")
    [row] = re.findall(r"^\| outage \| three \| .*$", out, re.MULTILINE)
    low, high = map(float, re.search(r"\[([\d.]+), ([\d.]+)\\?\]", row).groups())  # type: ignore[union-attr]
    assert low == pytest.approx(line["ci_low"].item(), rel=1e-2)
    assert high == pytest.approx(line["ci_high"].item(), rel=1e-2)
    code, tex, _ = invoke("methods", "results/small", "--format", "latex")
    assert code == 0
    assert tex.partition("\\caption{Claims")[0].count("&") == 5 * (2 + 3 - 1)
    assert "scenario & policy & failed\\_share & times\\_usual & peak \\\\" in tex
    assert not re.search(r"(?<!\\)[%_#]", tex), "LaTeX would take it for a command"
    begun, ended = (re.findall(rf"\\{which}{{(\w+)}}", tex) for which in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    assert begun == ["table", "tabular", "table", "tabular", "thebibliography"]
    assert "three tries make more calls & open & 100.0" in tex


def test_methods_say_what_is_true_of_each_cell() -> None:
    """Not all cells are as precise as was asked, nor do all of a table fit a page."""
    text = SMALL.partition("[[published]]")[0].replace("replications = 5", "seed = 4")
    text = text.replace("three tries make", "_all_ make") + "at = {backoff_base = 1}\n"
    limits = "[precision]\nmetric = ['calls']\nrelative = 0.0225\nmin = 55\nmax = 60\n"
    grid = "[grid]\nbackoff_base = {from = 1, to = 11, steps = 11}\n"
    mc.run(write(text + limits + grid), force=True)
    results = mc.load("results/small")
    stopped = results.cells["stopped_by"].to_list()
    n_short = stopped.count("max")
    assert 0 < n_short < results.cells.height == 44
    out = " ".join(invoke("methods", "results/small")[1].split())
    for said in (
        f"{44 - n_short} of 44 cells reached this precision, {n_short} stopped at 60 without.",
        "in stages, from 55 on each twice those of the one before, at most 60,",
        "share rounds 2 s; arrivals_per_second 97.22/s; capacity 600/s;",
        "queue 0;",
        " timeout,",
        "Cells differ in fault_start, fault_rounds, tries, backoff_base.",
        "holds where it surely is true in at least 95 % of them,",
        "| \\_all\\_ make more calls | ",
    ):
        assert said in out
    counts = results.cells["replications"].to_list()
    first = re.search(r"\| healthy \| none \| 1 \| (\d+) \|", out)
    assert first is not None
    assert int(first[1]) == counts[0]
    tex = invoke("methods", "results/small", "--format", "latex")[1]
    assert "\\begin{longtable}" in tex
    assert tex.count("healthy") == 22
    some = ("--where", "scenario=healthy")
    tex = invoke("methods", "results/small", "--format", "latex", *some)[1]
    assert "longtable" not in tex
    assert tex.count("\nnone & ") == 11, "what all have in common is no column"
    code, _, err = invoke("methods", "results/small", "--where", "scenario=x")
    assert (code, err.count("\n")) == (2, 1)


def test_sources_of_docstrings_are_listed_and_what_is_cited_is_printed() -> None:
    root = Path(mc.__file__).parent
    for path in sorted((root / "statistics").glob("*.py")):
        text = " ".join(path.read_text("utf-8").split())
        for name, year in re.findall(r"([A-Z][\w-]+) \(?((?:19|20)\d\d)\b", text):
            assert any(name in of.authors and year == str(of.year) for of in SOURCES), name
    readme = (root.parent / "results/README.md").read_text("utf-8")
    for of in SOURCES:
        assert f"* {of.for_what}: {of.text}" in readme.replace("\n  ", " ")
    mc.run(write(SMALL), replications=40)
    _, bib, _ = invoke("methods", "results/small", "--format", "bibtex")
    assert re.findall(r"@misc{(\w+)", bib)[:2] == ["clopper1934", "cochran1977"]
    assert "{Clopper, C. J. and Pearson, E. S.}" in bib


@pytest.mark.parametrize("n", [199, 200])
def test_intervals_of_fewer_than_200_replications_are_marked(n: int) -> None:
    """They may cover less than they promise, and nobody reads the column that says so."""
    mc.run(write(SMALL), replications=n)
    tables = {
        "show": ["results/small"],
        "compare": ["results/small", "three", "none"],
        "sensitivity": ["small.toml", "--replications", str(n)],
    }
    for command, arguments in tables.items():
        out = invoke(command, *arguments)[1]
        assert bool(re.search(r" ~\d", out)) == ("~: rough" in out) == (n < 200), command
    said = {
        "best": ["results/small", "--metric", "calls"],
        "frontier": ["results/small", "dropped", "calls"],
        "methods": ["results/small"],
    }
    for command, arguments in said.items():
        assert ("are rough" in invoke(command, *arguments)[1]) == (n < 200), command
    assert ("± ~" in mc.load("results/small")._repr_html_()) == (n < 200)


def test_messages_go_to_stderr() -> None:
    first = invoke("run", write(SMALL))
    again = invoke("run", "small.toml")
    assert again[:2] == first[:2]
    assert again[2] == "results/small is finished: nothing to do (--force starts afresh)\n"


def test_progress_goes_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mc.cli.stderr.PROGRESS_SECONDS", 0.0)
    code, out, err = invoke("run", write(SMALL), "--jobs", "1")
    assert code == 0
    assert "rows," not in out
    lines = err.splitlines()
    assert len(lines) > 2
    assert re.fullmatch(r"\d+ of 20 rows", lines[0])  # no speed is known yet
    assert re.fullmatch(r"\d+ of 20 rows", lines[1])  # the kernel may have been compiled
    assert all(re.fullmatch(r"\d+ of 20 rows, \d+ min \d\d s left", line) for line in lines[2:])
    assert lines[-1].startswith("20 of 20 rows")


def test_show_prints_every_table() -> None:
    out = run_and_show(write(SMALL))
    assert out.startswith("small: 4 cells x 5 replications, generator philox, seed 20260802\n")
    for expected in ("healthy", "outage", "none (max_attempts 1)", "three (max_attempts 3)"):
        assert f"\n{expected}" in out
    assert re.search(r"three tries make more .*100\.0 .*open", out)
    assert out.rstrip().endswith(f"Results: {Path('results/small')}")


def test_the_means_that_are_printed_are_those_of_the_summary() -> None:
    out = run_and_show(write(SMALL), "--replications", "2000")
    summary = mc.load("results/small").summary
    line = next(line for line in out.splitlines() if line.lstrip().startswith("mean"))
    got = [float(number) for number in line.split()[1:]]
    metrics = ["calls", "multiplier", "peak", "successful", "dropped"]
    values = {e["metric"]: e for e in summary.filter(cell=0).iter_rows(named=True)}
    expected = [values[metric]["mean"] for metric in metrics]
    highs = [values[metric]["ci_high"] for metric in metrics]
    assert highs[1] is None, "multiplier, always 1"
    assert highs.count(None) == 2, "and dropped, which is rare here"
    for number, mean, high in zip(got, expected, highs, strict=True):
        # printed to two digits of the half-width; to four of its own without one
        digits = 0.0005 * mean if high is None else 0.05 * (high - mean)
        assert number == pytest.approx(mean, abs=digits)


LONG_NAME: Final = "three layers that retry one after another"

# seven digits of calls
WIDE: Final = f"""
title = "an experiment whose title is by itself a good deal longer than a line of 80 characters"
replications = 2
[fixed]
rounds = 1000
arrivals_per_second = 20000
capacity = 100
fault_rounds = 100
[[policy]]
name = "{LONG_NAME}"
tries = [9]
[[policy]]
name = "short"
[grid]
backoff_cap = [1000.25, 100000]
budget = ["none", 0.125]
[[claim]]
text = "a claim that is told at some length, for the sake of those who read slowly"
metric = ["calls", "window_rate"]
policies = ["short", "{LONG_NAME}"]
at = {{backoff_cap = 1000.25, budget = "none"}}
relation = "<"
"""


@pytest.mark.parametrize(
    ("experiment", "replications"),
    [("lesson", "2"), ("published", "1"), ("small", "1"), ("small", "2"), ("wide", "2")],
)
def test_the_output_fits_80_columns(experiment: str, replications: str) -> None:
    texts = {"small": SMALL, "wide": WIDE}
    if experiment in texts:
        file = write(texts[experiment])
    else:
        file = str(EXPERIMENTS / f"{experiment}.toml")
    out = run_and_show(file, "--replications", replications)
    got = [line for line in out.splitlines() if len(line) > 80]
    expected: list[str] = []
    assert got == expected


def test_nothing_is_cut_off_where_the_output_is_wide() -> None:
    out = run_and_show(write(WIDE), "--replications", "1")
    assert "…" not in out
    calls = mc.load("results/small").replications["calls"]
    assert all(f" {number} " in out for number in calls)


def test_cells_that_differ_in_the_seventh_digit_are_all_printed() -> None:
    text = SMALL.partition("[[claim]]")[0] + "[grid]\nbackoff_base = [1.2345678, 1.23456781]\n"
    out = run_and_show(write(text))
    got = [line for line in out.splitlines() if line.startswith("three, backoff_base 1.2345678")]
    assert len(got) == 2 * 2 * 2  # scenarios, values, tables


# The lesson's printed figures: allowed, calls, multiplier, peak, successful, dropped, and for a
# fault the window's calls per round and how many times the usual rate that is.
LESSON: Final = {
    "healthy": {
        "no retries": "1 3832 1.00 6 3736 96",
        "gateway only (3)": "3 3953 1.03 6 3851 0",
        "two layers (3x3)": "9 3953 1.03 6 3851 0",
        "three layers (3x3x3)": "27 3953 1.03 6 3851 0",
        "three layers + budget 0.30": "27 3953 1.03 6 3851 0",
    },
    "outage (1 s)": {
        "no retries": "1 3855 1.00 5 3775 80 0.80 0.8",
        "gateway only (3)": "3 4071 1.05 8 3782 94 2.89 3.0",
        "two layers (3x3)": "9 4435 1.15 13 3850 20 5.77 5.9",
        "three layers (3x3x3)": "27 4523 1.17 17 3870 0 6.24 6.4",
        "three layers + budget 0.30": "27 4065 1.05 10 3777 103 2.88 3.0",
    },
    "degradation (10 s)": {
        "no retries": "1 3855 1.00 5 3534 321 0.95 1.0",
        "gateway only (3)": "3 4913 1.28 8 3754 94 2.01 2.1",
        "two layers (3x3)": "9 5296 1.39 9 3803 0 2.39 2.5",
        "three layers (3x3x3)": "27 5296 1.39 9 3803 0 2.39 2.5",
        "three layers + budget 0.30": "27 4288 1.11 7 3643 220 1.40 1.4",
    },
}

# of the sensitivity row the lesson prints calls, window rate and dropped only
SENSITIVITY: Final = {"calls": "3926", "window": "1.54", "dropped": "90"}


def printed_tables(out: str) -> dict[str, dict[str, list[str]]]:
    """Read the tables off the output: figures by scenario and policy, the name's parts joined."""
    tables: dict[str, dict[str, list[str]]] = {}
    rows: dict[str, list[str]] = {}
    ruled = False
    for line in out.splitlines():
        if line.strip() in LESSON:
            rows = tables.setdefault(line.strip(), {})
            ruled = False
        elif set(line.strip()) == {"─"}:
            ruled = True
        elif ruled and (found := re.fullmatch(r" (\S.*?)((?:  +[\d.]+)+) *", line)):
            rows[found[1]] = found[2].split()
        elif ruled and re.fullmatch(r" \S.*", line) and rows:
            last, figures = rows.popitem()  # the rest of a name that took two lines
            rows[f"{last} {line.strip()}"] = figures
        else:
            ruled = ruled and bool(line.strip())
    return tables


def test_the_published_run_prints_the_tables_of_the_lesson() -> None:
    code, _, err = invoke("run", str(EXPERIMENTS / "published.toml"))
    assert code == 0
    assert "a budget that never forgets saves up in the calm" in err
    _, out, _ = invoke("show", "results/published")
    tables = printed_tables(out)
    sensitivity = {name: rows.pop("three layers + budget 0.10") for name, rows in tables.items()}
    got = {
        scenario: {policy: " ".join(figures) for policy, figures in rows.items()}
        for scenario, rows in tables.items()
    }
    expected = LESSON
    assert got == expected
    row = sensitivity["outage (1 s)"]
    assert {"calls": row[1], "window": row[6], "dropped": row[5]} == SENSITIVITY
    n_figures = sum(len(row.split()) - 1 for rows in LESSON.values() for row in rows.values())
    n_figures += len(SENSITIVITY)
    assert f"{n_figures} of {n_figures} published figures are reproduced." in out
    lines = [line.split() for line in out.splitlines()]
    assert not [line for line in lines if line[:1] == ["published"]], "shown only where one differs"


def test_a_figure_that_is_not_reproduced_is_shown_beside_the_published_one() -> None:
    text = (
        (EXPERIMENTS / "published.toml").read_text("utf-8").replace("dropped = 96", "dropped = 97")
    )
    out = run_and_show(write(text))
    assert "97 of 98 published figures are reproduced." in out
    lines = out.splitlines()
    line = next(i for i, line in enumerate(lines) if line.startswith("   published"))
    assert lines[line - 1].split()[-1] == "96"
    assert lines[line].split()[-1] == "97"


# Options ------------------------------------------------------------------------------------------


def test_out_names_the_folder() -> None:
    code, out, _ = invoke("run", write(SMALL), "--out", "here/there")
    assert code == 0
    assert "retrystorm show here/there " in out
    assert not Path("results").exists()
    assert mc.load("here/there").complete


def test_the_options_take_the_place_of_the_file() -> None:
    arguments = ["--replications", "7", "--seed", "11", "--jobs", "2"]
    out = run_and_show(write(SMALL), *arguments)
    assert "4 cells x 7 replications, generator philox, seed 11" in out
    expected = mc.simulate([mc.Cell(rounds=200)], replications=7, seed=11)
    got = mc.load("results/small").replications.filter(cell=0)
    assert got.equals(expected)


def test_set_takes_the_place_of_a_fixed_parameter_or_of_a_default() -> None:
    settings = ["--set", "rounds=150", "--set", "budget = 0", "--set", "backoff_cap=8"]
    code, _, err = invoke("run", write(SMALL), *settings)
    assert (code, err) == (0, "")
    cells = mc.load("results/small").cells
    got = cells.select("rounds", "budget", "backoff_cap").unique().rows()
    expected = [(150, 0.0, 8.0)]
    assert got == expected


def test_set_budget_none_means_no_budget() -> None:
    text = SMALL.replace("rounds = 200", "rounds = 200\nbudget = 0.5")
    code, _, _ = invoke("run", write(text), "--set", "budget=none")
    assert code == 0
    assert mc.load("results/small").cells["budget"].null_count() == 4


def test_force_is_needed_for_another_experiment_in_the_same_folder() -> None:
    file = write(SMALL)
    invoke("run", file)
    code, out, err = invoke("run", file, "--seed", "3")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "seed was 20260802, is 3" in err
    assert "--force" in err
    code, out, err = invoke("run", file, "--seed", "3", "--force")
    assert (code, err) == (0, "")
    assert mc.load("results/small").manifest["seed"] == 3


def test_version_names_the_program_and_its_version() -> None:
    code, out, err = invoke("--version")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"retrystorm \d+\.\d+\.\d+\S*\n", out)


def test_python_m_mc_is_the_command() -> None:
    script = str(Path(sys.executable).with_name("retrystorm"))
    ways = {"retrystorm": [script], "python -m mc": [sys.executable, "-m", "mc"]}
    got = {
        name: [
            subprocess.run([*way, option], capture_output=True, text=True, check=True).stdout
            for option in ("--version", "--help")
        ]
        for name, way in ways.items()
    }
    for name, (version, usage) in got.items():
        assert version.startswith("retrystorm ")
        assert usage.startswith(f"Usage: {name} ")
        commands_listed = usage.partition("Commands:")[2]
        assert commands_listed == got["retrystorm"][1].partition("Commands:")[2]


# Help ---------------------------------------------------------------------------------------------


def commands() -> list[tuple[str, Any]]:
    """The program itself and each of its commands."""
    group: Any = get_command(app)
    return [("retrystorm", group), *group.commands.items()]


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_and_option_has_a_text_of_help(name: str, command: Any) -> None:
    assert command.help.strip()
    assert command.params or name == "schema"  # of which there is one only
    without = [parameter.name for parameter in command.params if not (parameter.help or "").strip()]
    assert without == []


@pytest.mark.parametrize("name", [name for name, _ in commands() if name != "retrystorm"])
def test_help_shows_every_option_and_fits_80_columns(name: str) -> None:
    code, out, err = invoke(name, "--help")
    assert (code, err) == (0, "")
    command = dict(commands())[name]
    options = [option for parameter in command.params for option in parameter.opts]
    assert all(option in out.lower() for option in options)
    assert max(len(line) for line in out.splitlines()) <= 80


def test_the_commands_are_these() -> None:
    got = {name for name, _ in commands()}
    expected = {
        "retrystorm",
        *("demo", "ask", "new", "check", "plan", "run", "merge", "show", "report", "compare"),
        *("best", "frontier", "trace", "status", "verify", "methods", "presets", "export"),
        *("schema", "doctor", "sensitivity"),
    }
    assert got == expected


def test_the_help_lists_whole_sentences_and_h_is_help() -> None:
    code, out, err = invoke("-h")
    assert (code, err) == (0, "")
    listed = out.partition("Commands:")[2].strip().splitlines()
    assert len(listed) == len(commands()) - 1
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []
    assert invoke("best", "-h") == invoke("best", "--help")


def test_quiet_leaves_what_the_results_must_be_read_with() -> None:
    late = write(SMALL.replace("fault_start = 50", "fault_start = 500"), "late.toml")
    code, out, err = invoke("run", late, "-q", "-o", "here")
    assert code == 0
    assert out
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["late.toml"]
    assert "the fault begins after the last round" in err
    assert Path("here/summary.parquet").exists()
    assert invoke("run", late, "-q", "-o", "here")[2] == err, "that it is finished is left out"


def test_colours_mark_verdicts_unless_they_are_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    mc.run(write(SMALL), replications=300)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32mholds" in invoke("show", "results/small")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in invoke("show", "results/small")[1]


def test_a_command_is_the_function_in_the_file_of_its_name() -> None:
    got = {name: command.callback.__module__ for name, command in commands()[1:]}
    expected = {name: f"mc.cli.{name}" for name in got}
    expected |= {"schema": "mc.cli.new", "merge": "mc.cli.run"}  # a few lines beside their kin
    assert got == expected


HEAVY: Final = [
    *("duckdb", "jinja2", "matplotlib", "numba", "numpy", "pandas", "polars", "pyarrow", "scipy"),
    *("mc.experiment", "mc.kernel", "mc.runner"),
]

PROBE: Final = """
import json, sys
from mc.cli import main
sys.argv = ["retrystorm", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


NEEDED: Final = {
    **dict.fromkeys(("--help", "--version", "run --help", "show --help", "doctor --help"), ""),
    **dict.fromkeys(("schema", "new my.toml", "check small.toml"), "mc.experiment"),
    "status results/small": "numpy pyarrow",
    "show results/small": "polars",
    "compare results/small none three": "numpy polars scipy mc.experiment",
    "best results/small --metric calls": "numpy polars scipy mc.experiment",
    "frontier results/small calls peak": "numpy polars scipy mc.experiment",
}
"""By command: what it cannot do without. Numba is for those that simulate."""


@pytest.mark.parametrize("command", NEEDED)
def test_a_command_that_simulates_nothing_imports_no_more_than_it_needs(command: str) -> None:
    write(SMALL.partition("[[claim]]")[0] + "[grid]\nbackoff_cap = [8, 32]\n")
    if "results" in command:
        mc.run("small.toml", replications=40)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *command.split()], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code in (0, None)
    got = set(HEAVY) & set(modules)
    expected = set(NEEDED[command].split())
    assert got <= expected


def test_the_package_says_what_it_has() -> None:
    assert f"retrystorm {mc.__version__}\n" == invoke("--version")[1]
    assert {*mc.__all__, "__version__"} <= set(dir(mc))
    errors = [name for name in mc.__all__ if name.endswith("Error")]
    assert all(issubclass(getattr(mc, name), ValueError) for name in errors)
    assert len(errors) == 5
    assert (Path(mc.__file__).parent / "py.typed").exists()


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = "import json, sys, mc; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    got = sorted(set(HEAVY) & set(json.loads(done.stdout)))
    expected: list[str] = []
    assert got == expected


# Mistakes -----------------------------------------------------------------------------------------

FAULTS: Final = {
    "an unknown key": (
        "replications = 5",
        "replication = 5",
        'unknown key "replication".*"replications"',
    ),
    "an unknown parameter": ("rounds = 200", "rouns = 200", 'unknown parameter "rouns".*"rounds"'),
    "tries of zero": ("tries = [3]", "tries = [0]", r'policy "three": tries must be .*, got \[0\]'),
    "a negative budget": (
        "tries = [3]",
        "tries = [3]\nbudget = -1",
        'policy "three": budget must be none or a number >= 0 and <= 1000000, got -1',
    ),
    "a layer too many": (
        "rounds = 200",
        "rounds = 200\nbackoff_base = [2, 2]",
        r"backoff_base must have one value for each layer of tries \(1\), got 2",
    ),
    "a claim about a missing policy": (
        '["none", "three"]',
        '["none", "four"]',
        'claim "three tries make more calls": policy "four" does not exist',
    ),
    "a name used twice": (
        'name = "outage"\nfault_start',
        'name = "healthy"\nfault_start',
        'scenario "healthy": this name is used twice',
    ),
    "no TOML": ("[fixed]", "[fixed", r"not a TOML file: .* \(at line 4, column \d+\)"),
    "a string for a number": ("replications = 5", 'replications = "5"', "replications must be"),
    "no replications": ("replications = 5", "replications = 0", "replications must be"),
    "a seed out of range": ("replications = 5", "seed = -1", "seed must be a whole number >= 0"),
    "a text without quotation marks": (
        "rounds = 200",
        "budget = none",
        r'not a TOML file: .*; write "none" in quotation marks',
    ),
    "a decimal comma": ("rounds = 200", "budget = 0,5", ".*; write 0.5 with a decimal point"),
    "no title": ('title = "small"', "", "title is missing"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_of_the_file_is_one_message_and_nothing_is_written(what: str) -> None:
    old, new, message = FAULTS[what]
    text = SMALL.replace(old, new)
    assert text != SMALL
    if what == "a name used twice":  # what refers to the other scenario goes
        text = text.partition("[[claim]]")[0]
    code, out, err = invoke("run", write(text))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert re.match(f"small.toml: (.*: )?{message}", lines[0]), err
    assert files() == {"small.toml"}


def test_all_faults_of_a_claim_are_told_at_once() -> None:
    claim = SMALL.replace('"<"', '"<"\nmargin = 2').replace('["none", "three"]', '["none", "four"]')
    code, _, err = invoke("check", write(claim))
    assert code == 2
    got = [line.split(": ")[2] for line in err.splitlines()]
    expected = [
        'policy "four" does not exist; there are "none", "three"',
        "margin goes with relation =, got <",
    ]
    assert got == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replications", "1,000"], 'must be a whole number >= 1, got "1,000"; write 1000'),
        (["--jobs", "0"], 'must be a whole number from 1 to 1024, got "0"'),
        (["--format", "xyz"], 'must be one of table, json, csv, markdown, got "xyz"'),
        (["--format", "tabel"], 'markdown, got "tabel"; did you mean "table"?'),
    ],
)
def test_a_wrong_value_is_shown_with_what_is_right(options: list[str], message: str) -> None:
    code, out, err = invoke("run", write(SMALL), *options)
    assert (code, out) == (2, "")
    assert err.rstrip().endswith(message)
    assert files() == {"small.toml"}


def test_several_faults_are_told_at_once_each_with_its_place() -> None:
    text = SMALL.replace("tries = [3]", "tries = [0]").replace('"calls"', '"cals"')
    code, out, err = invoke("run", write(text.replace("rounds = 200", "rounds = 0")))
    assert (code, out) == (2, "")
    got = [line.partition(" must be")[0].partition(" does not")[0] for line in err.splitlines()]
    expected = [
        'small.toml: policy "three": tries',
        "small.toml: [fixed]: rounds",
        'small.toml: claim "three tries make more calls": metric "cals"',
    ]
    assert sorted(got) == sorted(expected)


OPTIONS: Final = {
    "no jobs": (["--jobs", "0"], "'--jobs'"),
    "fewer than no jobs": (["--jobs", "-2"], "'--jobs'"),
    "jobs that are no number": (["--jobs", "two"], "'--jobs'"),
    "no replications": (["--replications", "0"], "'--replications'"),
    "replications beyond the generator": (
        ["--replications", "4294967296"],
        "small.toml: replications must be .*, got 4294967296",
    ),
    "a negative seed": (["--seed", "-1"], "small.toml: seed must be .*, got -1"),
    "a seed beyond 64 bits": (["--seed", str(2**64)], f"small.toml: seed must be .*, got {2**64}"),
    "a setting without value": (["--set", "rounds"], "--set: must be name=value, got 'rounds'"),
    "a setting without name": (["--set", "=3"], "--set: must be name=value, got '=3'"),
    "a setting of an unknown name": (["--set", "rouns=3"], '--set: unknown parameter "rouns"'),
    "a setting given twice": (["--set", "rounds=3", "--set", "rounds=4"], "rounds is given twice"),
    "a setting out of range": (["--set", "rounds=0"], "--set: rounds must be .*, got 0"),
    "a setting that is no TOML": (["--set", "rounds=[3"], r"--set: rounds must be .*, got '\[3'"),
    "a setting of what the file varies": (["--set", "tries=[2]"], "--set: tries is set by policy"),
    "an unknown option": (["--replication", "3"], "No such option.*--replication"),
    "a folder that is a file": (["--out", "small.toml"], "small.toml.*"),
    "a folder below a file": (["--out", "small.toml/x"], "small.toml.*"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_a_wrong_option_is_one_message_and_nothing_is_written(what: str) -> None:
    options, message = OPTIONS[what]
    code, out, err = invoke("run", write(SMALL), *options)
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not re.match("Usage: |Try ", line) and line]
    assert len(lines) == 1, err
    assert re.search(message, lines[0]), err
    assert files() == {"small.toml"}
    assert Path("small.toml").read_text() == SMALL


def test_a_missing_file_is_one_message() -> None:
    code, out, err = invoke("run", "missing.toml")
    assert (code, out) == (2, "")
    assert err == "missing.toml: cannot be read: No such file or directory\n"
    assert files() == set()


def test_a_folder_in_place_of_the_file_is_one_message() -> None:
    Path("folder.toml").mkdir()
    code, out, err = invoke("run", "folder.toml")
    assert (code, out) == (2, "")
    assert err == "folder.toml: cannot be read: Is a directory\n"


def test_a_file_that_is_no_text_is_one_message() -> None:
    Path("small.toml").write_bytes(b"\xff\xfe\x00")
    code, out, err = invoke("run", "small.toml")
    assert (code, out) == (2, "")
    assert err == "small.toml: not a TOML file: byte 0 is not UTF-8\n"


def test_a_folder_of_something_else_is_one_message_even_with_force() -> None:
    write(SMALL)
    Path("thesis").mkdir()
    Path("thesis/chapter.txt").write_text("precious")
    for force in ([], ["--force"]):
        code, out, err = invoke("run", "small.toml", "--out", "thesis", *force)
        assert (code, out) == (2, "")
        assert err == (
            "thesis: holds something else than results; give another folder with --out\n"
        )
    assert files() == {"small.toml", "thesis", "thesis/chapter.txt"}


def test_a_wrong_experiment_leaves_the_results_of_the_right_one() -> None:
    invoke("run", write(SMALL))
    before = files()
    code, _, _ = invoke("run", write(SMALL.replace("tries = [3]", "tries = [0]")), "--force")
    assert code == 2
    assert files() == before
    assert mc.load("results/small").complete


@pytest.mark.parametrize("folder", ["missing", "empty", "small.toml"])
def test_show_without_results_is_one_message(folder: str) -> None:
    write(SMALL)
    Path("empty").mkdir()
    code, out, err = invoke("show", folder)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(folder)


def test_show_of_an_unfinished_run_says_what_to_do() -> None:
    invoke("run", write(SMALL))
    folder = Path("results/small")
    store.write_manifest(folder, mc.load(folder).manifest | {"complete": False})
    code, out, err = invoke("show", "results/small")
    assert code == 2
    assert "run the same command again" in err
    assert out == "", "nothing is printed before the fault is known"


def test_a_command_must_be_given() -> None:
    code, out, err = invoke()
    assert code == 2
    assert "Usage: " in out + err
    code, _, err = invoke("storm")
    assert code == 2
    assert "storm" in err


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_stops_early_is_no_fault() -> None:
    write(SMALL)
    done = subprocess.run(
        f"'{sys.executable}' -m mc run small.toml | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("small: ")
    assert "Traceback" not in done.stderr
    assert pl.read_parquet("results/small/summary.parquet").height > 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["run small.toml", "show results/small"])
def test_a_full_disk_behind_stdout_is_one_message(command: str) -> None:
    invoke("run", write(SMALL))
    done = subprocess.run(
        f"'{sys.executable}' -m mc {command} > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "stdout: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="names that Windows has not")
def test_a_file_may_be_called_anything_and_moves_no_cursor() -> None:
    name = "x\x1b[31m\u202e.toml"
    Path(write(SMALL)).rename(name)
    code, out, err = invoke("run", name, "--out", "out")
    assert code == 0, err
    assert "trace 'x?[31m?.toml'" in out
    assert all(c.isprintable() or c == "\n" for c in out)
    assert invoke("status", "out")[0] == 0


def test_an_error_of_what_is_read_while_it_is_printed_is_not_one_of_stdout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    invoke("run", write(SMALL))

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr("mc.store.results.content_of", fail)
    code, out, err = invoke("show", "results/small")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"results/small/\S+: Input/output error; once that is mended, .*\n", err)


SIGNALLED: Final = """
import os, signal, sys
import mc.cli
signal.signal(signal.SIGINT, signal.default_int_handler)
signum, sys.argv[1:] = int(sys.argv[1]), ["run", "small.toml"]
mc.cli.signals.import_module = lambda name: os.kill(os.getpid(), signum)
mc.cli.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_ends_with_a_message(signum: signal.Signals) -> None:
    write(SMALL)
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(int(signum))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (128 + signum, "")
    assert done.stderr == "stopped before it began; what was there is unchanged\n"
    assert files() == {"small.toml"}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes of Linux")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.2, 0.4])
def test_a_signal_in_the_first_half_second_ends_with_one_line(
    signum: signal.Signals, seconds: float
) -> None:
    """However fast the machine is: the file comes through a pipe, and never ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mc", "check", "/dev/stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    caught, status = 0, Path(f"/proc/{process.pid}/status")
    while not caught >> (signal.SIGTERM - 1) & 1:  # Python itself leaves SIGTERM alone
        caught = int(re.findall(r"SigCgt:\s*(\w+)", status.read_text())[0], 16)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signum)
    process.wait()
    out, err = process.communicate()
    assert (process.returncode, out, err) == (128 + signum, "", "stopped\n")


def test_compiling_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with stderr.compile_notice():
        for number in (1, 2.0):
            numba.njit(lambda x: x + 1)(number)
    assert capsys.readouterr().err == "compiling the kernel\n"


def test_a_fault_after_the_last_round_is_pointed_out() -> None:
    text = 'title = "late"\nreplications = 2\n[fixed]\nrounds = 400\nfault_rounds = 10\n'
    code, _, err = invoke("run", write(text))
    assert code == 0
    assert "small.toml: the fault begins after the last round, in default" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_closed_stdout_or_stderr_is_no_bug() -> None:
    file = write(SMALL)
    for command, expected in (
        (f"check {file} >&-", 0),
        ("check none.toml >&- 2>&-", 2),
        ("--version >/dev/full", 1),
    ):
        done = subprocess.run(
            f"'{sys.executable}' -m mc {command}",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_an_address_space_that_is_too_small_is_one_clear_line() -> None:
    import resource

    limit = 1_000_000_000
    done = subprocess.run(
        [sys.executable, "-m", "mc", "show", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("the address space is limited to 1.0 GB, and this takes ")


def test_a_message_moves_no_cursor() -> None:
    result = CliRunner().invoke(app, ["check", "x\x1b[2J\x07.toml"])
    assert result.exit_code == 2
    assert "x\\x1b[2J\\x07.toml" in result.stderr
