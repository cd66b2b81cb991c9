"""Budgets and breakers in experiment files: tables, axes, presets, messages, export."""

from __future__ import annotations

import configparser
import json
import random
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
import yaml
from folders import run
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.decisions import QuestionError, select
from mc.experiment import ExperimentError, cells_of, json_schema, read
from mc.model import PARAMETERS, Cell
from mc.model.budgets import BUDGETS, Aws, Envoy, Finagle, Grpc, Ratio, Sre
from mc.model.presets import PRESETS
from mc.model.snippets import LIBRARIES, LostGuard, snippets_of

ROOT = Path(__file__).parents[1]


def file_of(folder: Path, text: str) -> Path:
    path = folder / "a.toml"
    path.write_text(f'title = "t"\nreplications = 3\n{text}')
    return path


def cells_in(folder: Path, text: str, **settings: str) -> list[Cell]:
    experiment = read(file_of(folder, text), overrides=settings)
    return [point.parameters for point in experiment.points]


def faults_in(folder: Path, text: str, **settings: str) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        cells_in(folder, text, **settings)
    return [fault.partition("a.toml: ")[2] for fault in caught.value.faults]


# Tables -------------------------------------------------------------------------------------------


def test_a_budget_has_its_librarys_names_and_defaults(tmp_path: Path) -> None:
    text = '[fixed]\nround = "20 ms"\ntries = [3]\nbudget = {kind = "finagle", ttl = "5 s"}'
    (cell,) = cells_in(tmp_path, text)
    assert cell.budget == Finagle(250, 10, 0.2)
    (cell,) = cells_in(tmp_path, text.replace(', ttl = "5 s"', ""))
    assert cell.budget == Finagle(500, 10, 0.2)


def test_a_cell_takes_a_table_as_a_file_does() -> None:
    table: Any = {"kind": "sre", "window": "10 s", "ratio": "5 %", "k": 1.5}
    assert Cell(budget=table).budget == Sre(ratio=0.05, window=1000, k=1.5)
    layers: Any = [{"kind": "grpc"}, "none", 0.1]
    assert Cell(tries=(2, 2, 2), budget=layers, budget_scope="layer").budget == (
        Grpc(10, 0.1), None, 0.1,
    )  # fmt: skip


def test_a_ratio_that_is_the_lessons_is_a_number() -> None:
    table: Any = {"kind": "ratio", "ratio": "30 %"}
    assert Cell(budget=table) == Cell(budget=0.3)
    assert Cell(budget=table | {"window": 50}).budget == Ratio(0.3, "run", 50)


def test_the_command_line_sets_a_budget(tmp_path: Path) -> None:
    (cell,) = cells_in(tmp_path, "[fixed]\ntries = [3]", budget='{kind = "aws", cost = 5}')
    assert cell.budget == Aws(500, 5)


def test_the_command_line_sets_an_entry(tmp_path: Path) -> None:
    def budget(fixed: str, **settings: str) -> Any:
        text = f"[fixed]\ntries = [3]\n{fixed}"
        (cell,) = cells_in(tmp_path, text, **{f"budget.{name}": x for name, x in settings.items()})
        return cell.budget

    assert budget("", ratio="20 %") == budget("budget = 0.3", ratio="0.2") == 0.2
    assert budget("budget = 0.3", window="1 s") == Ratio(0.3, "run", 100)
    table = 'budget = {kind = "finagle", ttl = "2 s"}'
    assert budget(table, percent_can_retry="0.5", min_retries_per_sec="1/s") == Finagle(200, 1, 0.5)
    both = {"budget.cost": "5", "budget": '{kind = "aws"}', "traffic.workers": "3"}
    (cell,) = cells_in(tmp_path, "[fixed]\ntries = [3]", **both)
    assert cell.budget == Aws(500, 5)
    grid = f"[fixed]\ntries = [3]\n{table}\n[grid]\nbudget.percent_can_retry = [0.1, 0.2]"
    cells = cells_in(tmp_path, grid, **{"budget.min_retries_per_sec": "0"})
    assert [cell.budget for cell in cells] == [Finagle(200, 0, 0.1), Finagle(200, 0, 0.2)]
    (got,) = faults_in(tmp_path, grid, **{"budget.percent_can_retry": "0.3"})
    assert got == "--set: budget is set by [grid]: change it in the file"
    (got,) = faults_in(tmp_path, f"[fixed]\n{table}", **{"budget.percent_can_retry": "-1"})
    rule = "a number >= 0 and <= 1000, got -1 (Finagle's RetryBudget)"
    assert got == f"--set: budget.percent_can_retry must be {rule}"
    (got,) = faults_in(tmp_path, "[fixed]\ntries = [3]", **{"queue.size": "3"})
    assert got == '--set: unknown parameter "queue.size"; did you mean "queue"?'


@pytest.mark.parametrize(
    ("budget", "fault"),
    [
        ('{kind = "finagle", ttl = "500 ms"}', "ttl must be >= 1 s and <= 60 s (Finagle's"),
        ('{kind = "finagle", ttl = "0 s"}', "ttl must be a time >= 1 s and <= 60 s, got '0 s' (Fi"),
        ('{kind = "linkerd", ttl = "2 min"}', "ttl must be >= 1 s and <= 60 s (Linkerd's"),
        ('{kind = "grpc", max_tokens = 1001}', "max_tokens must be a whole number >= 1 and <= 1"),
        ('{kind = "grpc", token_ratio = 0}', "token_ratio must be a number >= 0.001 and <= 1000"),
        ('{kind = "envoy", budget_percent = 101}', "budget_percent must be a number >= 0 and <= 1"),
        ('{kind = "envoy", max_retries = 3, budget_percent = 5}', "max_retries must stand alone, "
         "because a retry budget replaces it (Envoy's circuit_breakers), got budget_percent"),
        ('{kind = "aws", cost = 0}', "cost must be a whole number >= 1"),
        ('{kind = "sre", k = 0.5}', "k must be none or a number >= 1 and <= 1000, with"),
        ('{kind = "ratio"}', "ratio is missing, it must be a number >= 0"),
    ],
)  # fmt: skip
def test_a_setting_that_the_library_refuses_names_its_rule(
    tmp_path: Path, budget: str, fault: str
) -> None:
    text = f'[[policy]]\nname = "a"\ntries = [3]\nbudget = {budget}'
    (got,) = faults_in(tmp_path, text)
    assert f"budget.{fault}" in got
    assert 'policy "a"' in got


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('budget = {kind = "grcp"}', "[fixed]: budget.kind must be one of ratio, finagle, linkerd"),
        ('budget = "grpc"', '[fixed]: budget must be a table, {kind = "grpc"}, got'),
        ('budget = {ttl = "5 s"}', "[fixed]: budget.kind is missing, it must be one of ratio, "),
        ('budget = {kind = "grpc", tokens = 5}', "[fixed]: budget: grpc has no 'tokens'"),
        ('budget = {kind = "finagle", ttl = "1.005 s"}', "budget.ttl must be a whole number of"),
        ('breaker = {kind = "consecutive", timeout = "10"}', "breaker.timeout must be"),
        ("clients = 0", "[fixed]: clients must be a whole number >= 1 and <= 10000, got 0"),
        ('breaker = {kind = "resilience4j", sliding_window_size = 1000}\nclients = 10_000',
         "clients * breaker.sliding_window_size must be <= 4000000"),
    ],
)  # fmt: skip
def test_a_table_with_a_fault_is_refused_with_its_place(
    tmp_path: Path, line: str, fault: str
) -> None:
    (got,) = faults_in(tmp_path, f"[fixed]\ntries = [3]\n{line}")
    assert fault in got


def test_the_default_of_a_time_needs_one_length_of_a_round(tmp_path: Path) -> None:
    text = '[fixed]\nbudget = {kind = "finagle"}\n[grid]\nrounds_per_second = [50, 100]'
    (got,) = faults_in(tmp_path, text)
    assert "where [grid] sets rounds_per_second" in got
    assert len(cells_in(tmp_path, text.replace("finagle", "grpc"))) == 2
    given = text.replace('"finagle"', '"finagle", ttl = 500')
    assert [cell.budget for cell in cells_in(tmp_path, given)] == [Finagle(500, 10, 0.2)] * 2


def test_every_table_survives_its_column_and_names_its_cell() -> None:
    kind = PARAMETERS["budget"].kind
    tables: list[Any] = [{"kind": name, "ratio": 0.3} for name in ("ratio", "sre")]
    tables += [{"kind": name} for name in BUDGETS if name not in ("ratio", "sre")]
    tables += [{"kind": "envoy", "max_retries": 5}, {"kind": "sre", "window": 50, "k": 1.25}]
    cells = [Cell(budget=table) for table in tables]
    for cell in cells:
        written = kind.to_column(cell.budget)
        assert kind.from_column(written) == cell.budget
        assert kind.from_column(str(kind.to_column((cell.budget, None)))) == (cell.budget, None)
    assert len({cell.identity for cell in cells}) == len(cells)


def test_a_budget_of_a_folder_is_a_text_that_gives_the_cell_again(tmp_path: Path) -> None:
    text = """title = "t"
replications = 2
[fixed]
rounds = 60
tries = [2]
[[policy]]
name = "a"
budget = {kind = "grpc"}
[[policy]]
name = "b"
budget = 0.1
breaker = {kind = "consecutive"}
clients = 3
"""
    folder = tmp_path / "results"
    run(text, folder)
    cells = mc.load(folder).cells
    assert cells["budget"].to_list() == ["grpc(max_tokens=10, token_ratio=0.1)", "0.1"]
    assert cells["breaker"].to_list() == [
        None,
        "consecutive(consecutive_failures=5, timeout=6000 rounds, max_requests=1)",
    ]
    again = cells_of(cells)
    assert [cell.identity for cell in again.values()] == cells["identity"].to_list()
    export = ["export", str(folder), "--for", "grpc", "--cell"]
    shown = CliRunner().invoke(app, [*export, f"budget={cells['budget'][0]}"])
    assert json.loads(shown.stdout)["retryThrottling"] == {"maxTokens": 10, "tokenRatio": 0.1}
    refused = CliRunner().invoke(app, [*export, "b"])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "grpc cannot say: breaker consecutive(" in refused.stderr
    in_part = CliRunner().invoke(app, [*export, "b", "--partial"])
    assert in_part.exit_code == 0
    assert json.loads(in_part.stdout).keys() == {"methodConfig"}
    other = CliRunner().invoke(app, [*export, "b", "--partial", "--layer=2"])
    assert (other.exit_code, other.stdout) == (2, "")
    assert "--layer: 2 is none of the 1 layers of b" in other.stderr
    noted = CliRunner().invoke(app, ["export", str(folder), "--for=polly", "--cell=b", "--partial"])
    assert "// polly cannot say: breaker consecutive(" in noted.stdout
    for wanted, policy in (
        ("budget.max_tokens=10", "a"), ("budget.token_ratio=0.1, policy=a", "a"),
        ("budget.ratio=10 %", "b"), ("breaker.timeout=60 s", "b"), ("breaker.timeout=6000", "b"),
        ("budget.kind=ratio", "b"),
    ):  # fmt: skip
        assert select(mc.load(folder), wanted)[0]["policy"].to_list() == [policy]
    for wanted, told in (
        ("budget.max_tokens=11", "no cell has budget.max_tokens = 11; budget is one of grpc(max_"),
        ("rounds.max=11", '"rounds.max" is not a coordinate'),
    ):
        with pytest.raises(QuestionError, match=re.escape(told)):
            select(mc.load(folder), wanted)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["columns"]["replications"]["rejected"]["unit"] == "calls"
    assert pl.read_parquet(folder / "cells.parquet").schema["clients"] == pl.Int32()


# Axes ---------------------------------------------------------------------------------------------


def test_a_grid_varies_an_entry_of_a_budget(tmp_path: Path) -> None:
    text = "[fixed]\ntries = [3]\n[grid]\nbudget.ratio = [0.1, 0.2]"
    fixed = text.replace("[grid]", 'budget = {kind = "ratio", ratio = 1, window = "1 s"}\n[grid]')
    got = [cell.budget for cell in cells_in(tmp_path, fixed)]
    assert got == [Ratio(0.1, "run", 100), Ratio(0.2, "run", 100)]
    plain = text.replace("[grid]", "budget = 0.5\n[grid]")
    assert [cell.budget for cell in cells_in(tmp_path, plain)] == [0.1, 0.2]
    alone = text.replace("budget.ratio", 'budget.kind = "sre"\nbudget.ratio')
    assert [cell.budget for cell in cells_in(tmp_path, alone)] == [
        Sre(ratio=ratio, window=12_000, k=None) for ratio in (0.1, 0.2)
    ]
    both = '[fixed]\ntries = [3]\nbudget = {kind = "finagle"}\n[grid]\nbudget.ttl = ["5 s", "10 s"]'
    both += "\nbudget.min_retries_per_sec = [0, 10]"
    assert len({cell.budget for cell in cells_in(tmp_path, both)}) == 4


def test_a_grid_goes_through_ranges_of_entries(tmp_path: Path) -> None:
    text = "[fixed]\ntries = [3]\n[grid]\nbudget.ratio = {from = 0.05, to = 0.5, steps = 10}"
    assert [cell.budget for cell in cells_in(tmp_path, text)] == [n / 20 for n in range(1, 11)]
    times = """[fixed]
tries = [3]
budget = {kind = "finagle"}
[grid]
budget.min_retries_per_sec = [0, 10]
budget.ttl = {from = "1 s", to = "4 s", steps = 3, scale = "log"}"""
    got = [cell.budget for cell in cells_in(tmp_path, times)]
    assert got == [Finagle(ttl, n, 0.2) for n in (0, 10) for ttl in (100, 200, 400)]
    workers = "[grid]\ntraffic.workers = {from = 10, to = 30, steps = 3}"
    traffic = [cell.traffic for cell in cells_in(tmp_path, workers)]
    assert [one.workers for one in traffic if one] == [10, 20, 30]


@pytest.mark.parametrize(
    ("axis", "faults"),
    [
        ("max_tokens = 5", ["budget: one or more entries must be lists of values or ranges"]),
        ("max_tokens = {from = 0, to = 8, steps = 3}\nbudget.token_ratio = [0.1, 0.2]",
         ["budget.max_tokens: from must be a whole number >= 1 and <= 1000, got 0.0 "
          "(gRPC's retryThrottling, A6)"]),
        ("max_tokens = {from = 1, to = 3, steps = 5}",
         ["budget.max_tokens: 5 steps from 1 to 3 give only 3 different values; use fewer steps "
          "or a list of these: 1 2 3"]),
        ("max_tokens = {from = 1, to = 3, step = 3}",
         ["budget.max_tokens: steps is missing, it must be a whole number >= 2",
          'budget.max_tokens: unknown key "step"; did you mean "steps"?']),
        ("token_ratio = {from = 0.1, to = 1, steps = 100_000_000}",
         ["budget.token_ratio: steps must be <= 1000000, got 100000000"]),
        ("tokens = [3, 4]", ["budget: grpc has no 'tokens'; it has max_tokens, token_ratio"]),
    ],
)  # fmt: skip
def test_an_axis_of_a_table_with_a_fault_is_refused_once(
    tmp_path: Path, axis: str, faults: list[str]
) -> None:
    text = f'[fixed]\ntries = [3]\nbudget = {{kind = "grpc"}}\n[grid]\nbudget.{axis}'
    assert faults_in(tmp_path, text) == [f"[grid]: {fault}" for fault in faults]


def test_entries_of_lists_and_of_no_kind_are_refused(tmp_path: Path) -> None:
    layers = '[fixed]\ntries = [2, 2]\nbudget_scope = "layer"\nbudget = [0.1, {kind = "grpc"}]'
    (got,) = faults_in(tmp_path, f"{layers}\n[grid]\nbudget.ratio = [0.1, 0.2]")
    assert got.startswith("[grid]: budget: an entry cannot be set where [fixed] has a value for ea")
    (got,) = faults_in(tmp_path, layers, **{"budget.ratio": "0.2"})
    assert got.startswith("--set: budget.ratio: an entry cannot be set where [fixed] has a value")
    (got,) = faults_in(tmp_path, "[grid]\nbreaker.timeout = [5, 6]")
    assert got == "[grid]: breaker.kind is missing, it must be one of resilience4j, consecutive"
    side = '[design]\nkind = "sobol"\npoints = 4\nbudget.ratio = {from = 0.1, to = 0.2}'
    (got,) = faults_in(tmp_path, side)
    assert got == "[design]: budget must be a range {from, to}; entries of tables vary in [grid]"


def test_a_claim_at_a_table_is_labelled_as_its_cell(tmp_path: Path) -> None:
    text = """[grid]
budget.kind = "finagle"
budget.ttl = ["1 s", "2 s"]
[[claim]]
text = "the bank is used"
metric = "calls"
relation = ">"
value = 1
at = {budget = {kind = "finagle", ttl = "1 s"}}"""
    (claim,) = read(file_of(tmp_path, text)).claims
    table = "finagle(ttl 1 s, min_retries_per_sec 10/s, percent_can_retry 20 %)"
    assert claim.labels == (f"default, budget {table}",)


def test_cells_with_a_table_are_left_out(tmp_path: Path) -> None:
    text = """[grid]
budget.kind = "grpc"
budget.max_tokens = [5, 10]
traffic.workers = [1, 2]
[[exclude]]
budget = {kind = "grpc"}
traffic = {workers = 2}"""
    cells = cells_in(tmp_path, text)
    got = [(cell.budget, cell.traffic.workers) for cell in cells if cell.traffic]
    assert got == [(Grpc(5, 0.1), 1), (Grpc(5, 0.1), 2), (Grpc(10, 0.1), 1)]
    (fault,) = faults_in(tmp_path, text.replace('{kind = "grpc"}', '{kind = "gprc"}'))
    assert fault.startswith("exclude 1: budget.kind must be one of ratio, finagle, ")


# Presets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_policy_like_a_library_has_its_defaults(tmp_path: Path, name: str) -> None:
    text = f'[fixed]\nround = "5 ms"\n[[policy]]\nname = "a"\nlike = "{name}"'
    (cell,) = cells_in(tmp_path, text)
    other = text.replace("5 ms", "1 ms")
    (finer,) = cells_in(tmp_path, other)
    if "backoff_base" in PRESETS[name].parameters:
        assert isinstance(finer.backoff_base, float)
        assert isinstance(cell.backoff_base, float)
        assert finer.backoff_base == 5 * cell.backoff_base
    assert list(cell.tries) == PRESETS[name].parameters["tries"]
    assert (cell.budget is None) == ("budget" not in PRESETS[name].parameters)


def test_a_preset_is_overridden_key_by_key(tmp_path: Path) -> None:
    text = '[[policy]]\nname = "a"\nlike = "grpc"\ntries = [2, 2]\nbudget.max_tokens = 100'
    (cell,) = cells_in(tmp_path, text)
    assert cell.tries == (2, 2)
    assert cell.budget == Grpc(100, 0.1)
    assert cell.jitter == "plus_minus"


def test_a_retry_budget_replaces_the_limit_of_envoys_preset(tmp_path: Path) -> None:
    text = '[[policy]]\nname = "a"\nlike = "envoy"\nbudget'
    (cell,) = cells_in(tmp_path, f"{text}.budget_percent = 50")
    assert cell.budget == Envoy(50.0, 3, None)
    (cell,) = cells_in(tmp_path, f"{text}.max_retries = 50")
    assert cell.budget == Envoy(20.0, 3, 50)


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    (got,) = faults_in(tmp_path, '[[policy]]\nname = "a"\nlike = "hystrix"')
    assert got.startswith('policy "a": like must be one of aws, ')


def test_the_presets_are_listed_in_every_format() -> None:
    for form in ("table", "json", "csv", "markdown"):
        shown = CliRunner().invoke(app, ["presets", "--format", form])
        assert shown.exit_code == 0
        assert all(name in shown.stdout for name in PRESETS)
        assert all(preset.source.split(":")[0] in " ".join(shown.stdout.split())
                   for preset in PRESETS.values())  # fmt: skip


def test_editors_know_budgets_and_presets() -> None:
    import jsonschema

    validate = jsonschema.Draft7Validator(json.loads(json.dumps(json_schema()))).is_valid
    text = """title = "t"
[fixed]
breaker = {kind = "consecutive", timeout = "5 s"}
[[policy]]
name = "a"
like = "grpc"
budget.max_tokens = 5
[[policy]]
name = "b"
budget = {kind = "finagle", ttl = "5 s", percent_can_retry = 0.3}
[[policy]]
name = "c"
tries = [2, 2]
budget = [{kind = "aws"}, "none"]
"""
    assert validate(tomllib.loads(text))
    for wrong in (text.replace("ttl", "tll"), text.replace('"aws"', '"amazon"')):
        assert not validate(tomllib.loads(wrong))
    text += """[grid]
budget.ratio = {from = 0.1, to = 0.2, steps = 3}
traffic.workers = [1, 2]
[[exclude]]
breaker = {kind = "consecutive"}
"""
    assert validate(tomllib.loads(text))
    assert not validate(tomllib.loads(text.replace("budget.ratio", "budget.rtaio")))
    shipped = (ROOT / "experiments" / "policies.toml").read_text()
    assert validate(tomllib.loads(shipped))


# Export -------------------------------------------------------------------------------------------


def like(name: str, **changes: Any) -> Cell:
    parameters: dict[str, Any] = {**PRESETS[name].parameters, **changes}
    return Cell(**parameters)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_cannot_say_is_said(library: str) -> None:
    cell = Cell(tries=(9,), budget=0.3, first_wait=0, breaker={"kind": "consecutive"})  # type: ignore[arg-type]
    (made,) = (snippet for _, snippet in snippets_of(cell, library))
    told = "\n".join(made.cannot)
    assert "budget 0.3" in told
    assert "breaker consecutive(" in told
    assert "first_wait" in told


NAMED: Final = r"(\w+) = (?:TimeSpan.FromMilliseconds\(|DelayBackoffType.)?([\w.]+)"


def parsed(library: str, text: str) -> Any:
    """Read a snippet as its library would, or what it calls with names."""
    if library == "aws":
        reader = configparser.ConfigParser(strict=True)
        reader.read_string(text)
        return dict(reader["default"])
    if library in ("finagle", "polly"):
        return dict(re.findall(NAMED, text))
    return json.loads(text) if library == "grpc" else yaml.safe_load(text)


ROUTE: Final = {
    "timeout": "0s",
    "retry_policy": {
        "retry_on": "5xx,unavailable",
        "num_retries": 1,
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
    },
}

DOCUMENTED: Final[dict[str, Any]] = {
    # circuit_breaker.proto: 3 retries at once; a budget of 20 %, and of 3 at least
    "envoy": ROUTE | {"circuit_breakers": {"thresholds": [{"max_retries": 3}]}},
    "envoy-budget": ROUTE
    | {
        "circuit_breakers": {
            "thresholds": [
                {"retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3}}
            ]
        }
    },
    # A6-client-retries.md, both examples
    "grpc": {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
    },
    "aws": {"retry_mode": "standard", "max_attempts": "3"},
    # RetryConfig.java
    "resilience4j": {
        "resilience4j.retry.instances.backend": {"maxAttempts": 3, "waitDuration": "500ms"}
    },
    # RetryBudget.scala: apply(DefaultTtl, 10, 0.2)
    "finagle": {"ttl": "10.seconds", "minRetriesPerSec": "10", "percentCanRetry": "0.2"},
    # linkerd.io, "Configuring retries": 20 %, 10 a second, 10 s
    "linkerd": {
        "spec": {
            "routes": [{"name": "all", "condition": {"pathRegex": ".*"}, "isRetryable": True}],
            "retryBudget": {"retryRatio": 0.2, "minRetriesPerSecond": 10, "ttl": "10s"},
        }
    },
    # RetryConstants.cs
    "polly": {
        "MaxRetryAttempts": "3",
        "Delay": "2000",
        "MaxDelay": "2000",
        "BackoffType": "Constant",
        "UseJitter": "false",
    },
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_preset_is_exported_as_its_library_documents_it(name: str) -> None:
    library = name.partition("-")[0]
    ((_, made),) = snippets_of(like(name), library)
    assert parsed(library, made.text) == DOCUMENTED[name]
    # that attempts have no limit is what 100 of them stand for
    limit = ("100 attempts (it has no limit but its budget)",) if name == "linkerd" else ()
    assert made.cannot == limit


KEYS: Final = {
    "envoy": {
        *("timeout", "retry_policy", "retry_on", "num_retries", "retry_back_off", "base_interval"),
        *("per_try_timeout", "max_interval", "circuit_breakers", "thresholds", "max_retries"),
        *("retry_budget", "budget_percent", "value", "min_retry_concurrency"),
    },
    "istio": {
        *("timeout", "retries", "attempts", "perTryTimeout", "retryOn", "trafficPolicy"),
        *("retryBudget", "percent", "minRetryConcurrency", "connectionPool", "http", "maxRetries"),
    },
    "grpc": {
        *("methodConfig", "name", "timeout", "retryPolicy", "maxAttempts", "initialBackoff"),
        *("maxBackoff", "backoffMultiplier", "retryableStatusCodes", "retryThrottling"),
        *("maxTokens", "tokenRatio"),
    },
    "resilience4j": {
        *("resilience4j.retry.instances.backend", "maxAttempts", "waitDuration"),
        *("enableExponentialBackoff", "exponentialBackoffMultiplier", "exponentialMaxWaitDuration"),
        *("enableRandomizedWait", "randomizedWaitFactor"),
        *("resilience4j.circuitbreaker.instances.backend", "slidingWindowType"),
        *("slidingWindowSize", "minimumNumberOfCalls", "failureRateThreshold"),
        *("resilience4j.timelimiter.instances.backend", "timeoutDuration"),
        *("waitDurationInOpenState", "permittedNumberOfCallsInHalfOpenState"),
    },
    "linkerd": {
        *("spec", "routes", "name", "condition", "pathRegex", "isRetryable", "timeout"),
        *("retryBudget", "retryRatio", "minRetriesPerSecond", "ttl"),
    },
    "aws": {"retry_mode", "max_attempts"},
    "finagle": {"ttl", "minRetriesPerSec", "percentCanRetry"},
    "polly": {"MaxRetryAttempts", "Delay", "MaxDelay", "BackoffType", "UseJitter"},
}
"""Of the libraries' own schemas and properties, those that a policy may need."""


def keys_of(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return {*value}.union(*map(keys_of, value.values())) if isinstance(value, dict) else set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_snippet_can_be_read_and_has_keys_of_its_library(library: str) -> None:
    choices: dict[str, list[Any]] = {
        "rounds_per_second": [100, 1000],
        "tries": [(1,), (2,), (3,), (9,)],
        "backoff_base": [0, 0.5, 2, 10],
        "backoff_factor": [1, 1.5, 2, 3],
        "backoff_cap": [0, 4, 100],
        "jitter": ["full", "equal", "none", "plus_minus", "decorrelated", "polly"],
        "jitter_share": [0.2, 1 / 3],
        "deadline": [None, 0, 1, 300],
        "timeout": [None, 1, 25],
        "queue": [8],
        "budget": [None, 1 / 3, {"kind": "sre"}, {"kind": "envoy", "max_retries": 7}]
        + [{"kind": kind} for kind in ("grpc", "aws", "finagle", "linkerd", "envoy")],
        "breaker": [None, {"kind": "resilience4j"}, {"kind": "consecutive"}],
    }
    rng = random.Random(5)
    found: set[str] = set()
    for _ in range(200):
        changes: Any = {name: rng.choice(values) for name, values in choices.items()}
        ((_, made),) = snippets_of(Cell(**changes), library)
        found |= keys_of(parsed(library, made.text))
        told = "\n".join(made.cannot)
        assert " rounds" not in told
        times = {changes["deadline"], *([changes["timeout"]] if changes["tries"] == (1,) else [])}
        assert "timeout: 0s" not in made.text or times == {None}
    assert found == KEYS[library]


def test_an_exported_policy_has_its_numbers() -> None:
    def made(library: str, name: str, **changes: Any) -> tuple[Any, tuple[str, ...]]:
        ((_, snippet),) = snippets_of(like(name, **changes), library)
        return parsed(library, snippet.text), snippet.cannot

    route, _ = made("envoy", "envoy-budget", tries=(4,), deadline="2 s", backoff_cap="10 ms")
    assert route["timeout"] == "2s"
    assert route["retry_policy"]["num_retries"] == 3
    # the base is not above the cap, which Envoy would refuse
    waits = {"base_interval": "0.01s", "max_interval": "0.01s"}
    assert route["retry_policy"]["retry_back_off"] == waits
    (properties, cannot) = made(
        "resilience4j", "resilience4j", breaker={"kind": "resilience4j"}, backoff_factor=1.5,
        backoff_cap="2 s",
    )  # fmt: skip
    retry = properties["resilience4j.retry.instances.backend"]
    assert retry["exponentialBackoffMultiplier"] == 1.5
    assert retry["exponentialMaxWaitDuration"] == "2000ms"
    breaker = properties["resilience4j.circuitbreaker.instances.backend"]
    assert breaker["waitDurationInOpenState"] == "60000ms"
    assert cannot == ()
    ((_, scala),) = snippets_of(like("finagle", budget=Finagle(2050, 5, 1 / 3)), "finagle")
    assert (
        f"ttl = 20500.milliseconds, minRetriesPerSec = 5, percentCanRetry = {1 / 3}" in scala.text
    )


@pytest.mark.parametrize(
    ("library", "changes", "told"),
    [
        ("envoy", {"backoff_base": 0}, "a wait of 0 s (1 ms is next to it)"),
        ("envoy", {"backoff_factor": 3}, "backoff_factor 3 (it has 2)"),
        ("grpc", {"tries": (6,)}, "6 attempts (it makes 5 at most)"),
        ("grpc", {"deadline": 0}, "deadline 0 s (1 ms is the least)"),
        ("aws", {}, "its waits: they begin at 50 ms, double, and end at 20 s"),
        ("resilience4j", {}, "jitter full (it has none or plus_minus)"),
        ("finagle", {}, "jitter full as it is (exponentialJittered begins with the base, and mul"),
        (
            "finagle",
            {"jitter": "none", "backoff_factor": 1.5},
            "backoff_factor 1.5 (it has 2 here)",
        ),
        ("linkerd", {}, "waits (it retries at once)"),
        ("polly", {"jitter": "none", "backoff_factor": 3}, "backoff_factor 3 (it has 2)"),
        ("polly", {"budget": {"kind": "finagle"}}, "budget finagle(ttl 10 s, "),
    ],
)
def test_what_differs_is_said(library: str, changes: dict[str, Any], told: str) -> None:
    cell: dict[str, Any] = {"tries": (4,), **changes}
    ((_, made),) = snippets_of(Cell(**cell), library)
    assert any(part.startswith(told) for part in made.cannot), made.cannot


def test_each_layer_is_exported_and_that_of_one_attempt_is_off() -> None:
    cell = Cell(tries=(3, 1, 2), budget={"kind": "sre", "window": "5 s"})  # type: ignore[arg-type]
    made = dict(snippets_of(cell, "grpc"))
    assert list(made) == ["layer 1", "layer 2", "layer 3"]
    shared = "one budget for all layers, sre(ratio 10 %, window 5 s)"
    shared += ' (try budget_scope = "layer")'
    assert made["layer 1"].cannot[-1] == made["layer 3"].cannot[-1] == shared
    assert made["layer 2"].cannot == ()
    off: dict[str, Any] = {
        "istio": {"retries": {"attempts": 0}},
        "resilience4j": {"resilience4j.retry.instances.layer2": {"maxAttempts": 1}},
    }
    for library, expected in off.items():
        made = dict(snippets_of(cell, library))
        assert parsed(library, made["layer 2"].text) == expected
    documents = "\n---\n".join(snippet.text for snippet in made.values())
    assert [len(keys) for keys in yaml.safe_load_all(documents)] == [1, 1, 1]
    sections = "\n".join(snippet.text for _, snippet in snippets_of(cell, "aws"))
    reader = configparser.ConfigParser(strict=True)
    reader.read_string(sections)
    assert reader["profile layer2"]["max_attempts"] == "1"


TIMED: Final = {
    "envoy": ("  per_try_timeout: 0.25s", "timeout: 0.25s"),
    "istio": ("  perTryTimeout: 0.25s", "timeout: 0.25s"),
    "grpc": (None, '"timeout": "0.25s"'),
    "aws": (None, None),
    "resilience4j": ("timeoutDuration: 250ms",) * 2,
    "finagle": (".withRequestTimeout(250.milliseconds)",) * 2,
    "linkerd": (None, "timeout: 250ms"),
    "polly": (
        "})\n    .AddTimeout(TimeSpan.FromMilliseconds(250))",
        "Builder()\n    .AddTimeout(TimeSpan.FromMilliseconds(250))",
    ),
}
"""By library, how a time-out of 250 ms is written for three attempts and for one, if it is."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_time_out_is_written_or_missed(library: str) -> None:
    for tries, text in zip((3, 1), TIMED[library], strict=True):
        cell: Any = {"tries": (tries,), "timeout": "250 ms", "queue": 30, "cancel": True}
        ((_, made),) = snippets_of(Cell(**cell), library)
        lost = [part for part in made.cannot if isinstance(part, LostGuard)]
        assert lost == ([] if text else ["timeout 250 ms of each attempt"])
        assert text is None or text in made.text
        assert "queue 30 calls (it is the dependency's)" in made.cannot
        assert any(part.startswith("cancel") for part in made.cannot)
    # of several layers, of the innermost alone
    (_, outer), (_, inner) = snippets_of(Cell(tries=(2, 3), timeout=25, queue=30), library)
    assert not any("queue" in part for part in outer.cannot)
    assert any("queue" in part for part in inner.cannot)
    assert TIMED[library][0] is None or str(TIMED[library][0]) not in outer.text
