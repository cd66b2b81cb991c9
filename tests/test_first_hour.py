"""From nothing to an answer: new, check, schema, doctor."""

from __future__ import annotations

import csv
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

import mc
from mc import experiment as experiments
from mc.cli import app, doctor
from mc.experiment import SCHEMA_FILE, json_schema, template
from mc.model import PARAMETERS, RATIOS

ROOT: Final = Path(__file__).parent.parent
SHIPPED: Final = sorted((ROOT / "experiments").glob("*.toml"))


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in an empty folder, at a terminal of usual width."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


# new ----------------------------------------------------------------------------------------------


def test_a_new_file_runs_as_it_is() -> None:
    code, out, err = invoke("new", "my.toml")
    assert (code, out) == (0, "")
    assert "retrystorm run my.toml" in err
    assert files() == {"my.toml", SCHEMA_FILE}
    code, out, err = invoke("run", "my.toml")
    assert code == 0
    assert "How large a retry budget?: 24 cells, 1,000 replications each" in out
    got = mc.load("results/my").claims["verdict"].to_list()
    expected = ["holds", "holds"]
    assert got == expected


def test_a_file_that_is_there_is_not_written_over() -> None:
    Path("my.toml").write_text("precious")
    code, out, err = invoke("new", "my.toml")
    assert (code, out) == (2, "")
    assert err == "my.toml: is there already; give another name\n"
    assert Path("my.toml").read_text() == "precious"
    assert files() == {"my.toml"}


def test_a_schema_that_is_there_is_left_alone() -> None:
    Path(SCHEMA_FILE).write_text("mine")
    code, _, err = invoke("new", "my.toml")
    assert code == 0
    assert SCHEMA_FILE not in err
    assert Path(SCHEMA_FILE).read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my", "my: the name must end in .toml\n"),
        ("my.tml", "my.tml: the name must end in .toml\n"),
        ("nowhere/my.toml", "nowhere/my.toml: cannot be written: No such file or directory\n"),
    ],
)
def test_a_file_that_cannot_be_made_is_one_message(name: str, message: str) -> None:
    code, out, err = invoke("new", name)
    assert (code, out, err) == (2, "", message)
    assert files() == set()


def test_the_first_line_of_a_new_file_names_the_schema_beside_it() -> None:
    invoke("new", "my.toml")
    first = Path("my.toml").read_text("utf-8").splitlines()[0]
    assert first == f"#:schema ./{SCHEMA_FILE}"
    got = json.loads(Path(SCHEMA_FILE).read_text("utf-8"))
    expected = json_schema()
    assert got == expected


def test_the_parameters_listed_in_a_new_file_are_all_with_their_defaults() -> None:
    _, _, listed = template("my.toml").partition("# Parameters, with their defaults:\n#\n")
    table = tomllib.loads("".join(line.removeprefix("#") + "\n" for line in listed.splitlines()))
    assert list(table) == list(PARAMETERS)
    got = mc.Cell(**(table | {"budget": None if table["budget"] == "none" else table["budget"]}))
    expected = mc.Cell()
    assert got == expected


def test_what_a_new_file_suggests_in_comments_is_right() -> None:
    text = template("my.toml").partition("# Parameters, with")[0]
    text = re.sub(r"^# (backoff_\w+ = )", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^#     (?!retrystorm)", "", text, flags=re.MULTILINE)
    text = text.replace("replications = 1000 ", "# ").replace(
        'budget = "none"}', 'budget = "none", backoff_cap = 8, backoff_base = 1}'
    )
    text = text.replace("budget = 0.1}", "budget = 0.1, backoff_cap = 8, backoff_base = 1}")
    Path("my.toml").write_text(text, "utf-8")
    found = experiments.read("my.toml")
    # a twelfth of the cells is left out: one policy of two, one budget of six
    assert len(found.points) == 24 * 3 * 4 * 11 // 12
    assert found.precision is not None
    assert (found.precision.relative, found.precision.max) == (0.01, 64_000)


# check --------------------------------------------------------------------------------------------


GRID: Final = """
title = "grid"
[fixed]
fault_rounds = 100
[[policy]]
name = "two, or so"
tries = [2]
[[policy]]
name = "three"
tries = [3]
[grid]
budget = ["none", 0.1]
backoff_cap = {from = 8, to = 32, steps = 3, scale = "log"}
[design]
kind = "sobol"
points = 4
capacity = {from = 2, to = 9}
[[exclude]]
policy = "three"
budget = 0.1
[precision]
metric = "dropped"
relative = 0.01
max = 8000
[[claim]]
text = "few are dropped"
metric = "dropped"
policies = ["three"]
relation = "between"
value = [0, 100]
at = {budget = "none", backoff_cap = 8, capacity = 3}
"""


def test_check_says_what_a_file_spans_and_runs_nothing() -> None:
    text = GRID.replace("capacity = 3", f"capacity = {capacity_of_design()}")
    Path("grid.toml").write_text(text)
    code, out, err = invoke("check", "grid.toml")
    assert code == 0
    assert all(line.startswith("grid.toml: ") for line in err.splitlines()), "nothing but remarks"
    got = out.splitlines()
    expected = [
        "grid",
        "  scenarios     default",
        "  policies      two, or so (baseline)",
        "                three",
        "  budget        none 0.1",
        "  backoff_cap   8 16 32",
        "  design        sobol, 4 points over capacity 2 to 9",
        "  cells         2 policies x 2 of budget x 3 of backoff_cap x 4 points - 12 left",
        "                out = 36",
        "  replications  at most 8,000 of each cell",
        "  until         dropped is known to 1 % of the mean (95 % intervals); looked at",
        "                after 1,000, 2,000, 4,000, ..., 8,000 replications",
        "  rows          at most 288,000",
        "  draws         generator philox, seed 20260802",
        "  claims        few are dropped (dropped: three, budget none, backoff_cap 8,",
        "                capacity 9 between 0 and 100)",
        "  parameters    rounds 40 s (default)",
        "                rounds_per_second 100, rounds of 10 ms (default)",
        "                arrivals_per_second 97.22/s (default)",
        "                traffic none (default)",
        "                capacity 900/s; 300/s; 500/s; 700/s (by the design)",
        "                fault_start 5 s (default)",
        "                fault_rounds 1 s",
        "                fault_capacity 0/s (default)",
        "                failure_rate 0 % (default)",
        "                fault_failure_rate none (default)",
        "                faults none (default)",
        "                queue 0 (default)",
        "                timeout none (default)",
        "                cancel false (default)",
        "                tries [2]; [3] (by policy)",
        "                chain nested (default)",
        "                backoff_base 20 ms (default)",
        "                backoff_factor 2 (default)",
        "                backoff_cap 80 ms; 160 ms; 320 ms (by the grid)",
        "                jitter full (default)",
        "                jitter_share 20 % (default)",
        "                first_wait none (default)",
        "                deadline none (default)",
        "                budget none; 10 % (by the grid)",
        "                budget_scope chain (default)",
        "                breaker none (default)",
        "                clients 1 (default)",
        "                threshold 200 ms (default)",
        "  waits         two, or so, backoff_cap 8 and 2 more: waits up to 20 ms; a",
        "                request lives up to 20 ms",
        "                three, backoff_cap 8 and 2 more: waits up to 20 ms, 40 ms; a",
        "                request lives up to 60 ms",
        "No fault was found; nothing was run.",
    ]
    assert got == expected
    assert files() == {"grid.toml"}


def capacity_of_design() -> int:
    """A capacity that the design of `GRID` has."""
    text = GRID.partition("[[claim]]")[0]
    Path("design.toml").write_text(text)
    found = experiments.read("design.toml")
    Path("design.toml").unlink()
    return int(found.points[0].at["capacity"])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_check_of_a_shipped_experiment_fits_80_columns(path: Path) -> None:
    code, out, err = invoke("check", str(path))
    assert code == 0
    assert all(line.startswith(f"{path}: ") for line in err.splitlines()), "nothing but remarks"
    got = [line for line in out.splitlines() if len(line) > 80]
    expected: list[str] = []
    assert got == expected
    n_cells = len(experiments.read(path).points)
    assert f" = {n_cells:,} replications " in re.sub(r"\s+", " ", out)


def test_check_takes_the_options_of_a_run() -> None:
    invoke("new", "my.toml")
    options = ["--replications", "7", "--seed", "11", "--set", "threshold=3"]
    code, out, _ = invoke("check", "my.toml", *options, "--format", "json")
    assert code == 0
    record = json.loads(out)
    got = {key: record[key] for key in ("replications", "seed", "n_rows")}
    expected = {"replications": 7, "seed": 11, "n_rows": 24 * 7}
    assert got == expected


VARIED: Final = """
title = "varied"
layer_names = ["shop", "store"]
[[policy]]
name = "short"
tries = [2, 3]
[[policy]]
name = "long"
tries = [2, 3]
deadline = ["1 s", "50 ms"]
[grid]
threshold = {from = 1, to = 20, steps = 20}
"""


def test_check_names_every_value_and_what_gives_it() -> None:
    Path("varied.toml").write_text(VARIED)
    code, out, _ = invoke("check", "varied.toml")
    assert code == 0
    read = " ".join(out.split())
    assert "threshold 10 ms to 200 ms (by the grid)" in read
    assert "deadline none; [1 s, 50 ms] (by policy)" in read
    assert "short: shop waits up to 20 ms; store waits up to 20 ms, 40 ms; a request lives" in read
    assert "long: shop waits up to 20 ms within 1 s; store waits up to 20 ms, 40 ms within" in read


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        ('jitter = "full"', "waits up to 100 ms, 200 ms; a request lives up to 300 ms"),
        ('jitter = "none"', "waits 100 ms, 200 ms; a request lives up to 300 ms"),
        (
            'jitter = "equal"',
            "waits 50 ms to 100 ms, 100 ms to 200 ms; a request lives up to 300 ms",
        ),
        (
            'jitter = "none"\nfirst_wait = 0',
            "waits 10 ms, 200 ms; a request lives up to 210 ms",
        ),
    ],
)
def test_check_says_how_long_a_layer_waits(jitter: str, expected: str) -> None:
    fixed = 'tries = [3]\nbackoff_base = "100 ms"\nbackoff_cap = "10 s"'
    Path("my.toml").write_text(f'title = "waits"\n[fixed]\n{fixed}\n{jitter}\n')
    code, out, err = invoke("check", "my.toml")
    assert (code, err) == (0, "")
    assert f"default: {expected}" in " ".join(out.split())


def test_check_tells_all_faults() -> None:
    text = template("my.toml").replace('rounds = "40 s"', "rounds = 0").replace("[3]", "[0]")
    Path("my.toml").write_text(text, "utf-8")
    code, out, err = invoke("check", "my.toml")
    assert (code, out) == (2, "")
    assert [line.split(" must")[0] for line in err.splitlines()] == [
        'my.toml: policy "one layer": tries',
        "my.toml: [fixed]: rounds",
    ]


def test_check_points_out_a_fault_after_the_last_round() -> None:
    Path("my.toml").write_text('title = "late"\n[fixed]\nrounds = 400\nfault_rounds = 10\n')
    code, _, err = invoke("check", "my.toml")
    assert code == 0
    assert err == "my.toml: the fault begins after the last round, in default\n"


def test_check_of_many_cells_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = "".join(
        f"{name} = {{from = 1, to = 150, steps = 150}}\n" for name in ("budget", "rounds")
    )
    Path("many.toml").write_text(f'title = "many"\n[grid]\n{axes}')
    code, _, err = invoke("check", "many.toml")
    assert (code, re.findall(r"of 22,500 cells", err)) == (0, [])
    monkeypatch.setattr("mc.cli.stderr.PROGRESS_SECONDS", 0.0)
    code, _, err = invoke("check", "many.toml")
    got = re.findall(r"^([\d,]+) of 22,500 cells", err, re.MULTILINE)
    assert (code, got) == (0, ["0", "10,000", "20,000", "22,500"])


# schema -------------------------------------------------------------------------------------------


def is_valid(text: str) -> bool:
    validator = jsonschema.Draft7Validator(json_schema())
    return bool(validator.is_valid(tomllib.loads(text)))


def test_the_schema_is_one() -> None:
    code, out, err = invoke("schema")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert set(schema["definitions"]) >= set(PARAMETERS)
    assert "null" not in out, "TOML has none"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_experiment_is_valid(path: Path) -> None:
    jsonschema.validate(tomllib.loads(path.read_text("utf-8")), json_schema())


def test_what_other_files_show_is_valid() -> None:
    assert is_valid(template("my.toml"))
    assert is_valid(GRID)
    readme = "".join(
        (ROOT / name).read_text("utf-8") for name in ("README.md", "experiments/README.md")
    )
    shown = re.findall(r"^```toml\n(# (\S+)\n.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    got = {name: is_valid(text) for text, name in shown}
    expected = {name: name != "mistakes.toml" for _, name in shown}
    assert got == expected
    assert len(got) >= 4


RIGHT: Final = """
title = "right"
replications = 10
[fixed]
rounds = 100
tries = [3, 3]
budget = "none"
[[scenario]]
name = "a"
[grid]
backoff_cap = {from = 8, to = 32, steps = 3}
threshold = [1, 2]
[[exclude]]
threshold = {above = 1}
[[claim]]
text = "claim"
scenario = "a"
metric = ["calls", "dropped"]
relation = "<"
value = 3
at = {threshold = 1, backoff_cap = 8}
[[published]]
multiplier = 1.25
at = {backoff_cap = 8, threshold = 1}
"""

WRONG: Final = {
    "no title": ('title = "right"', ""),
    "an unknown key": ("replications = 10", "replication = 10"),
    "a parameter at the top": ("replications = 10", "rounds = 10"),
    "no replications": ("replications = 10", "replications = 0"),
    "a text for a number": ("replications = 10", 'replications = "10"'),
    "an unknown generator": ("replications = 10", 'generator = "philosophy"'),
    "an unknown parameter": ("rounds = 100", "round = 100"),
    "half a round": ("rounds = 100", "rounds = 100.5"),
    "no round": ("rounds = 100", "rounds = 0"),
    "tries as a text": ("tries = [3, 3]", 'tries = "3x3"'),
    "no layer": ("tries = [3, 3]", "tries = []"),
    "a layer without an attempt": ("tries = [3, 3]", "tries = [3, 0]"),
    "a negative budget": ('budget = "none"', "budget = -0.1"),
    "a budget in words": ('budget = "none"', 'budget = "large"'),
    "a scenario without a name": ('[[scenario]]\nname = "a"', "[[scenario]]\nrounds = 3"),
    "one scenario as a table": ("[[scenario]]", "[scenario]"),
    "one value on an axis": ("threshold = [1, 2]", "threshold = 1"),
    "a value twice on an axis": ("threshold = [1, 2]", "threshold = [1, 1]"),
    "a range without steps": (", steps = 3", ""),
    "a range with one step": ("steps = 3", "steps = 1"),
    "a range beyond": ("to = 32", "to = 1e12"),
    "a bound that is none": ("above", "over"),
    "an exclude of nothing": ("[[exclude]]\nthreshold = {above = 1}", "[[exclude]]"),
    "a claim without a relation": ('relation = "<"', ""),
    "an unknown relation": ('relation = "<"', 'relation = "!="'),
    "an unknown metric": ('["calls", "dropped"]', '"cals"'),
    "a place off the grid": ("at = {threshold = 1", "at = {treshold = 1"),
    "an unknown figure": ("multiplier = 1.25", "multiplyer = 1.25"),
    "a figure in words": ("multiplier = 1.25", 'multiplier = "1.25"'),
    "a precision without a width": (
        "replications = 10",
        'precision = {metric = "calls", max = 2000}',
    ),
}


def test_the_file_that_the_mistakes_are_made_in_is_right() -> None:
    assert is_valid(RIGHT)
    Path("right.toml").write_text(RIGHT)
    assert experiments.read("right.toml").title == "right"


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_seen_by_the_schema_as_by_the_program(what: str) -> None:
    old, new = WRONG[what]
    assert RIGHT.count(old) == 1
    text = RIGHT.replace(old, new)
    Path("wrong.toml").write_text(text)
    with pytest.raises(experiments.ExperimentError):
        experiments.read("wrong.toml")
    assert not is_valid(text)


# doctor -------------------------------------------------------------------------------------------


def test_doctor_finds_nothing_wrong_here() -> None:
    code, out, err = invoke("doctor", "--format", "json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["ok"] is True
    assert record["wrong"] == []
    assert record["golden"] is True
    assert record["calls_per_second"] > 0
    assert record["polars"] == pl.__version__
    code, out, err = invoke("doctor")
    assert code == 0
    assert out.endswith("Nothing is wrong.\n")
    labels = re.findall(r"^  (\w+) ", out, re.MULTILINE)
    assert labels == ["versions", "disk", "cores", "cache", "golden", "speed"]
    assert max(map(len, out.splitlines())) <= 80
    assert files() == set()


def test_the_golden_numbers_are_those_of_the_lessons_program() -> None:
    with (ROOT / "tests" / "golden" / "golden_grid.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["seed"]) == doctor.SEED]
    of_cell = {
        (row["failure_rate"], row["fault_rounds"], row["tries"], row["budget"]): row for row in rows
    }
    got = {}
    for cell, counters in zip(doctor.cells(), doctor.GOLDEN, strict=True):
        key = (
            f"{cell.failure_rate:g}",
            str(cell.fault_rounds),
            "x".join(map(str, cell.tries)),
            "" if cell.budget is None else f"{cell.budget:g}",
        )
        got[key] = counters
    expected = {key: tuple(int(of_cell[key][c]) for c in doctor.COLUMNS) for key in got}
    assert got == expected
    assert len(got) == 18


def test_the_hash_of_the_rows_sees_every_counter() -> None:
    frame = mc.simulate(doctor.cells(), replications=doctor.N_ROWS, seed=doctor.SEED)
    assert doctor.rows_sha256(frame) == doctor.ROWS_SHA256
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    assert doctor.rows_sha256(shuffled) == doctor.ROWS_SHA256
    for name in doctor.ROWS:
        changed = frame.with_columns(
            pl.when(pl.int_range(pl.len()) == 100).then(7_777_777).otherwise(name).alias(name)
        )
        assert doctor.rows_sha256(changed) != doctor.ROWS_SHA256, name
    assert not set(doctor.ROWS) & set(RATIOS)


class Usage(NamedTuple):
    """What `shutil.disk_usage` gives."""

    total: int
    used: int
    free: int


def break_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "GOLDEN", ((0, 0, 0, 0, 0), *doctor.GOLDEN[1:]))


def break_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROWS_SHA256", "0" * 64)


def break_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(10**12, 10**12 - 10**6, 10**6))


def break_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setattr("mc.kernel.CACHE_FOLDER", "file/cache")


def break_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)


BREAKS: Final[dict[str, tuple[Any, str]]] = {
    "golden": (break_golden, r"17 of 18 cells.*\nWrong: golden: do not trust results made here"),
    "rows": (break_rows, r"Wrong: golden: do not trust results made here"),
    "disk": (break_disk, r"Wrong: disk: less than 1 GB is free: make room, or .* --out"),
    "cache": (break_cache, r"Wrong: cache: file/cache cannot be written to .* set NUMBA_CACHE_DIR"),
    "versions": (break_versions, r"Wrong: versions: numba cannot be imported .* install"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_doctor_says_what_is_wrong_and_what_to_do(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "SPEED_REPLICATIONS", 10)
    break_it, message = BREAKS[what]
    break_it(monkeypatch)
    code, out, err = invoke("doctor")
    assert (code, err) == (1, "")
    assert re.search(message, out, re.DOTALL)
    assert "Nothing is wrong" not in out
