"""The results folder: what stands in it, who can read it, and what stops, damage and reruns do.

Whatever happens on the way, a run ends with the rows that an uninterrupted run has, or leaves the
folder as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from folders import TABLES, Snapshot, assert_same_results, run, snapshot, write
from polars.testing import assert_frame_equal

import mc
from mc import store
from mc.experiment import read
from mc.model import METRICS, PARAMETERS, counters_of, metrics_of
from mc.runner import simulation
from mc.store import FolderError

REPLICATIONS: Final = 40
N_CELLS: Final = 8
N_ROWS: Final = N_CELLS * REPLICATIONS

EXPERIMENT: Final = """
title = "small"
replications = 40
[fixed]
rounds = 300
arrivals_per_second = 120
capacity = 2
fault_start = 50
[[scenario]]
name = "healthy"
[[scenario]]
name = "outage"
fault_rounds = 60
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
budget = 0.3
[grid]
backoff_cap = [8, 16]
[[claim]]
text = "three tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["none", "three"]
at = {backoff_cap = 8}
relation = "<"
[[published]]
scenario = "outage"
policy = "three"
at = {backoff_cap = 16}
multiplier = 1.25
"""

WITHOUT_TAIL: Final = EXPERIMENT.partition("[[claim]]")[0]

LESSON: Final = EXPERIMENT.replace("replications = 40", 'replications = 40\ngenerator = "lesson"')

STRING: Final = pl.String()


def floats(names: str) -> dict[str, pl.DataType]:
    return dict.fromkeys(names.split(), pl.Float64())


NAMES: Final = {"scenario": STRING, "policy": STRING, "backoff_cap": pl.Float64()}
"""By which the cells of `EXPERIMENT` are named."""

SCHEMAS: Final[dict[str, dict[str, pl.DataType]]] = {
    "cells": {
        "cell": pl.Int32(),
        "scenario": STRING,
        "policy": STRING,
        "rounds": pl.Int32(),
        "rounds_per_second": pl.Float64(),
        "arrivals_per_second": pl.Float64(),
        "traffic": STRING,
        "capacity": pl.Int32(),
        "fault_start": pl.Int32(),
        "fault_rounds": pl.Int32(),
        "fault_capacity": pl.Int32(),
        "failure_rate": pl.Float64(),
        "fault_failure_rate": pl.Float64(),
        "faults": STRING,
        "queue": pl.Int32(),
        "timeout": pl.Int32(),
        "cancel": pl.Boolean(),
        "tries": STRING,
        "chain": STRING,
        "backoff_base": pl.Float64(),
        "backoff_factor": pl.Float64(),
        "backoff_cap": pl.Float64(),
        "jitter": STRING,
        "jitter_share": pl.Float64(),
        "first_wait": pl.Float64(),
        "deadline": pl.Int32(),
        "budget": pl.Float64(),
        "budget_scope": STRING,
        "breaker": STRING,
        "clients": pl.Int32(),
        "threshold": pl.Int32(),
        "budget_text": STRING,
        "max_attempts": pl.Int32(),
        "longest_wait": pl.Int64(),
        "mean_requests": pl.Float64(),
        "mean_window_requests": pl.Float64(),
        "traffic_counts": STRING,
        "baseline": pl.Int32(),
        "identity": STRING,
        "replications": pl.Int64(),
        "stopped_by": STRING,
    },
    "replications": {
        "cell": pl.Int32(),
        "replication": pl.Int64(),
        "requests": pl.Int64(),
        "window_requests": pl.Int64(),
        "calls": pl.Int64(),
        "primary": pl.Int64(),
        "retries": pl.Int64(),
        "successful": pl.Int64(),
        "dropped": pl.Int64(),
        "in_flight": pl.Int64(),
        "peak": pl.Int64(),
        "window_calls": pl.Int64(),
        "second_peak": pl.Int64(),
        "wait_total": pl.Int64(),
        "wait_max": pl.Int64(),
        "late": pl.Int64(),
        "drain": pl.Int64(),
        "window_dropped": pl.Int64(),
        "denied": pl.Int64(),
    },
    "summary": {"cell": pl.Int32(), **NAMES, "metric": STRING, "n": pl.Int64()}
    | floats("share_defined share_defined_low share_defined_high")
    | floats("mean sd mcse ci_low ci_high min p01 p01_low p01_high")
    | floats("p05 p05_low p05_high p25 p25_low p25_high median median_low median_high")
    | floats("p75 p75_low p75_high p95 p95_low p95_high p99 p99_low p99_high max")
    | floats("share_zero share_zero_low share_zero_high")
    | floats("worst_mean worst_mean_low worst_mean_high")
    | floats("share_above_capacity share_above_capacity_low share_above_capacity_high")
    | floats("adjusted_mean adjusted_mcse adjusted_low adjusted_high adjusted_reduction")
    | floats("ratio_of_means ratio_of_means_low ratio_of_means_high")
    | {"n_needed": pl.Int64(), "note": STRING}
    | floats("published published_percentile published_tail published_joint"),
    "comparisons": {"cell": pl.Int32(), **NAMES, "baseline": pl.Int32()}
    | {"metric": STRING, "n": pl.Int64()}
    | floats("share_defined mean_difference sd mcse ci_low ci_high")
    | floats("relative_change relative_low relative_high")
    | floats("share_less share_less_low share_less_high")
    | floats("share_equal share_equal_low share_equal_high")
    | floats("share_greater share_greater_low share_greater_high")
    | {"variance_reduction": pl.Float64(), "note": STRING},
    "claims": {
        "claim": pl.Int32(),
        "text": STRING,
        "scenario": STRING,
        "metric": STRING,
        "relation": STRING,
        "link_metric": STRING,
        "left": STRING,
        "right": STRING,
        "n": pl.Int64(),
        "n_holds": pl.Int64(),
    }
    | floats("share share_low share_high share_together_low share_together_high share_defined")
    | floats("mean_difference mcse ci_low ci_high together_low together_high margin")
    | {"note": STRING, "on_average": STRING, "verdict": STRING}
    | {"n_to_decide": pl.Int64()}
    | {"lesson_n": pl.Int64()}
    | floats("lesson_share lesson_low lesson_high lesson_mean_difference lesson_mcse"),
}


# Helpers ------------------------------------------------------------------------------------------


def shards(folder: Path) -> Snapshot:
    return {name: at for name, at in snapshot(folder).items() if name.startswith("replications/")}


def rows(folder: Path) -> pl.DataFrame:
    return mc.load(folder).replications


def named(results: mc.Results, table: str) -> pl.DataFrame:
    """Give a table with cells by what they are instead of by number."""
    keys = ["scenario", "policy", *PARAMETERS]
    cells = results.cells.select("cell", *keys)
    frame = cells.join(getattr(results, table), on="cell", how="inner").drop("cell")
    if "baseline" in frame.columns:
        policies = results.cells.select("cell", baseline_policy="policy")
        frame = frame.join(policies, left_on="baseline", right_on="cell").drop("baseline")
    order = [name for name in (*keys, "replication", "metric") if name in frame.columns]
    return frame.sort(order)


def assert_same_numbers(folder: Path, expected: Path) -> None:
    """Every table equal, though the cells may be numbered differently."""
    for table in ("replications", "summary", "comparisons"):
        assert_frame_equal(named(mc.load(folder), table), named(mc.load(expected), table))
    assert_frame_equal(mc.load(folder).claims, mc.load(expected).claims)


def unfinish(folder: Path) -> None:
    """Make a folder look as if its run had stopped before the tables."""
    manifest = mc.load(folder).manifest | {"complete": False}
    at_the_end = ("tables", "shards", "seconds", "jobs")
    store.write_manifest(folder, {k: v for k, v in manifest.items() if k not in at_the_end})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a finished run, not to be changed."""
    out = tmp_path_factory.mktemp("finished") / "out"
    run(EXPERIMENT, out)
    return out


@pytest.fixture(scope="module")
def finished_lesson(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lesson") / "out"
    run(LESSON, out)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """Give a copy of a finished run."""
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Give a finished run of the experiment without claims and published figures."""
    run(WITHOUT_TAIL, tmp_path / "bare", replications=4)
    return tmp_path / "bare"


# What stands in the folder ------------------------------------------------------------------------


def test_the_folder_holds_these_files_and_no_others(finished: Path) -> None:
    got = {path.name for path in finished.iterdir()}
    expected = {"manifest.json", "replications", *(f"{table}.parquet" for table in TABLES)}
    assert got == expected
    assert all(path.suffix == ".parquet" for path in (finished / "replications").iterdir())


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_and_types(finished: Path, table: str) -> None:
    got = dict(pl.read_parquet(finished / f"{table}.parquet").schema)
    expected = SCHEMAS[table]
    assert got == expected
    assert list(got) == list(expected)


def test_every_shard_has_the_columns_and_types_of_rows(finished: Path) -> None:
    for path in (finished / "replications").iterdir():
        got = list(pl.read_parquet(path).schema.items())
        expected = list(SCHEMAS["replications"].items())
        assert got == expected


def test_a_row_of_the_lesson_has_its_seed_as_third_column(finished_lesson: Path) -> None:
    got = list(rows(finished_lesson).schema.items())
    expected = list(SCHEMAS["replications"].items())
    expected.insert(2, ("seed", pl.Int64()))
    assert got == expected


def test_files_are_plain_and_compressed(finished: Path) -> None:
    """Plain strings, signed integers, zstd: what every reader of Parquet understands."""
    for path in finished.rglob("*.parquet"):
        metadata = pq.read_metadata(path)
        schema = pq.read_schema(path)
        types = {str(field.type) for field in schema}
        assert types <= {"int32", "int64", "double", "string", "large_string", "bool"}, path
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                got = metadata.row_group(group).column(column).compression
                assert got == "ZSTD", path


def test_a_shard_says_once_which_cells_it_has(finished: Path) -> None:
    """A second copy, in the schema that pyarrow adds, would be half of a shard of many cells."""
    for path in (finished / "replications").iterdir():
        assert b"retrystorm" in pq.read_metadata(path).metadata
        assert b"retrystorm" not in (pq.read_schema(path).metadata or {})


def test_rows_are_sorted_and_each_is_there_once(finished: Path) -> None:
    found = []
    for path in (finished / "replications").iterdir():
        shard = pl.read_parquet(path).select("cell", "replication").rows()
        assert shard == sorted(shard), path
        found += shard
    expected = [(cell, r) for cell in range(N_CELLS) for r in range(REPLICATIONS)]
    assert sorted(found) == expected


def test_the_rows_are_those_of_simulate(finished: Path) -> None:
    experiment = read(finished.parent / "small.toml")
    cells = [point.parameters for point in experiment.points]
    expected = mc.simulate(cells, replications=REPLICATIONS, seed=experiment.seed)
    assert_frame_equal(rows(finished), expected)


def test_the_tables_are_sorted_and_complete(finished: Path) -> None:
    results = mc.load(finished)
    got = results.summary.select("cell", "metric").rows()
    metrics = [name for name in METRICS if METRICS[name].exists is None or name == "denied"]
    expected = [(cell, metric) for cell in range(N_CELLS) for metric in metrics]
    assert got == expected
    pairs = results.comparisons.select("cell", "metric").rows()
    baselines = set(results.cells["baseline"])
    assert pairs == [pair for pair in expected if pair[0] not in baselines]
    assert results.cells["cell"].to_list() == list(range(N_CELLS))
    assert results.claims["claim"].unique().to_list() == [0]


def test_a_table_is_the_same_wherever_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.DataFrame({"cell": range(100), "mean": [k / 7 for k in range(100)]})
    monkeypatch.setattr("mc.store.files._LINES_PER_GROUP", 30)
    expected = store.table_bytes(table)
    for size in (1, 29, 30, 31, 99):
        parts = (table[at : at + size] for at in range(0, 100, size))
        assert store.table_bytes(parts) == expected


def test_a_table_with_nan_is_refused_and_not_written(tmp_path: Path) -> None:
    table = pl.DataFrame({"cell": [0, 1], "mean": [1.0, float("nan")], "sd": [None, 1.0]})
    with pytest.raises(ValueError, match="column mean holds NaN"):
        store.write_table(tmp_path, "summary", table)
    assert not list(tmp_path.iterdir())
    store.write_table(tmp_path, "summary", table.fill_nan(None))
    assert [path.name for path in tmp_path.iterdir()] == ["summary.parquet"]


@pytest.mark.parametrize("rate", [0, 120])
@pytest.mark.parametrize("replications", [1, 10])
def test_undefined_is_null_and_never_nan(tmp_path: Path, replications: int, rate: int) -> None:
    overrides = {"arrivals_per_second": str(rate)}
    run(EXPERIMENT, tmp_path / "out", replications=replications, overrides=overrides)
    for path in (tmp_path / "out").rglob("*.parquet"):
        frame = pl.read_parquet(path)
        for column in frame.select(pl.selectors.float()):
            assert column.is_finite().all(), f"{path.name}: {column.name}"  # NULL passes
    results = mc.load(tmp_path / "out")
    without_window = results.cells.filter(pl.col("fault_rounds") == 0)["cell"].to_list()
    in_rows = results.replications.filter(pl.col("second_peak").is_null())
    assert in_rows["cell"].unique().sort().to_list() == without_window
    undefined = results.summary.filter(pl.col("n") == 0)
    got = set(undefined["metric"])
    expected = {"second_peak", "drain", "window_rate", "times_usual", "denied"}
    expected.add("window_failed_share")
    ratios = {"multiplier", "failed_share", "late_share", "wait_mean"}
    assert got == (expected if rate else expected | ratios)
    assert set(undefined["note"]) == {"no replication"}
    named = ("cell", *results.manifest["columns"]["cells"], "metric", "n", "note", "published")
    numbers = undefined.select(pl.exclude(*named))
    assert numbers.null_count().row(0) == (undefined.height,) * numbers.width


def test_the_manifest_says_how_the_results_were_made(finished: Path) -> None:
    manifest = mc.load(finished).manifest
    experiment = read(finished.parent / "small.toml")
    assert manifest["experiment"] == experiment.source
    got = {key: manifest[key] for key in ("title", "generator", "seed", "replications")}
    expected = {"title": "small", "generator": "philox", "seed": 20260802, "replications": 40}
    assert got == expected
    assert (manifest["n_cells"], manifest["n_rows"]) == (N_CELLS, N_ROWS)
    assert manifest["complete"] is True
    assert {"python", "retrystorm", "numpy", "numba", "polars"} <= set(manifest["versions"])
    assert len(manifest["experiment_sha256"]) == 64
    assert manifest["seconds"] >= 0
    assert manifest["started"].endswith("+00:00")


def test_a_clock_that_is_set_back_during_a_run_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(2_000_000_000.0, -3600.0)
    monkeypatch.setattr(time, "time", lambda: next(moments))
    run(WITHOUT_TAIL, tmp_path / "out")
    assert mc.load(tmp_path / "out").complete


@pytest.mark.parametrize("table", ["replications", *TABLES])
def test_the_manifest_says_unit_and_meaning_of_every_column(finished: Path, table: str) -> None:
    columns = mc.load(finished).manifest["columns"][table]
    got = [name for name in columns if name != "seed"]  # of the lesson's generator alone
    expected = list(SCHEMAS[table])
    assert got == expected
    assert all(column["meaning"] for column in columns.values())


def test_the_units_in_the_manifest_are_those_of_parameters_and_metrics(finished: Path) -> None:
    manifest = mc.load(finished).manifest
    columns = manifest["columns"]
    got = {name: columns["cells"][name]["unit"] for name in PARAMETERS}
    expected = {name: parameter.unit for name, parameter in PARAMETERS.items()}
    assert got == expected
    got = {name: entry["unit"] for name, entry in manifest["metrics"].items()}
    experiment = read(finished.parent / "small.toml")
    cells = [point.parameters for point in experiment.points]
    expected = {name: metric.unit for name, metric in metrics_of(cells).items()}
    assert got == expected
    counters = counters_of(cells)
    got = {name: columns["replications"][name]["unit"] for name in counters}
    assert got == {name: expected[name] for name in counters}


def test_the_manifest_of_a_finished_run_lists_every_file(finished: Path) -> None:
    manifest = mc.load(finished).manifest
    got = manifest["shards"]
    expected = {path.name: path.stat().st_size for path in store.shard_paths(finished)}
    assert got == expected
    got = manifest["tables"]
    expected_hashes = {
        table: hashlib.sha256((finished / f"{table}.parquet").read_bytes()).hexdigest()
        for table in TABLES
    }
    assert got == expected_hashes


def test_the_experiment_stands_in_the_manifest_as_it_was_overridden(tmp_path: Path) -> None:
    run(EXPERIMENT, tmp_path / "out", replications=3, seed=5, overrides={"rounds": "200"})
    manifest = mc.load(tmp_path / "out").manifest
    got = (manifest["replications"], manifest["seed"], manifest["experiment"]["fixed"]["rounds"])
    expected = (3, 5, 200)
    assert got == expected
    assert mc.load(tmp_path / "out").cells["rounds"].unique().to_list() == [200]


def parts(n_blocks: int, replications: int, cells_per_block: int = 1) -> list[simulation.Task]:
    """Give the work on cells of different traffics, numbered crosswise."""
    cells = {
        n_blocks * k + i: mc.Cell(arrivals_per_second=50 + i, rounds=10, backoff_cap=k + 1)
        for i in range(n_blocks)
        for k in range(cells_per_block)
    }
    blocks = simulation.plan_blocks(cells, "philox")
    assert len(blocks) == n_blocks
    return [simulation.Task(block.ids, 0, replications) for block in blocks]


@pytest.mark.parametrize("n_blocks", [1, 7, 40, 1000, 3000])
@pytest.mark.parametrize("replications", [1, 2, 1000, 1_000_000])
def test_there_are_at_most_about_a_thousand_shards(n_blocks: int, replications: int) -> None:
    got = len(simulation.cut(parts(n_blocks, replications)))
    assert min(16, n_blocks * replications) <= got <= 1100


@pytest.mark.parametrize("n_blocks", [1, 3, 50, 700])
@pytest.mark.parametrize("replications", [1, 2, 33, 1000])
@pytest.mark.parametrize("cells_per_block", [1, 5])
def test_tasks_hold_every_row_once(n_blocks: int, replications: int, cells_per_block: int) -> None:
    counts: Counter[int] = Counter()
    for task in simulation.cut(parts(n_blocks, replications, cells_per_block)):
        counts.update(dict.fromkeys(task.ids, task.stop - task.start))
    expected = dict.fromkeys(range(n_blocks * cells_per_block), replications)
    assert counts == expected


def test_a_task_out_of_time_goes_on_later_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the kernel ends its task, be it amid a block or between two of a pack."""
    text = WITHOUT_TAIL.replace("[grid]", "[grid]\narrivals_per_second = [60, 90, 120]")
    text = text.replace("arrivals_per_second = 120\n", "")
    monkeypatch.setattr(simulation, "MIN_TASKS", 1)
    run(text, tmp_path / "whole", replications=3)
    monkeypatch.setattr(simulation, "SAVE_SECONDS", 0.0)
    run(text, tmp_path / "out", replications=3)
    got = [len(store.shard_paths(tmp_path / name)) for name in ("whole", "out")]
    expected = [1, 3 * 3]  # one pack; blocks x replications
    assert got == expected
    assert_same_results(tmp_path / "out", tmp_path / "whole")


def test_a_shard_of_several_traffics_is_sorted(tmp_path: Path) -> None:
    """Blocks are packed whose cells are numbered crosswise."""
    text = WITHOUT_TAIL.replace("arrivals_per_second = 120\n", "")
    rates = ", ".join(str(rate) for rate in range(40, 90))
    text = text.replace("[grid]", f"[grid]\narrivals_per_second = [{rates}]")
    run(text, tmp_path / "out", replications=2)
    found = [pl.read_parquet(path) for path in store.shard_paths(tmp_path / "out")]
    assert any(frame["cell"].n_unique() > 8 for frame in found)
    for frame in found:
        keys = frame.select("cell", "replication").rows()
        assert keys == sorted(keys)
    cells = [point.parameters for point in read(tmp_path / "small.toml").points]
    assert_frame_equal(rows(tmp_path / "out"), mc.simulate(cells, replications=2))


# Who can read it ----------------------------------------------------------------------------------


def content(frame: pl.DataFrame) -> dict[str, list[Any]]:
    return frame.to_dict(as_series=False)


def read_by_polars(pattern: str) -> dict[str, list[Any]]:
    return content(pl.scan_parquet(pattern).collect())


def read_by_pandas(pattern: str) -> dict[str, list[Any]]:
    path = Path(pattern).parent if "*" in pattern else Path(pattern)
    frame = pd.read_parquet(path).astype(object)
    return {
        str(name): column.to_list() for name, column in frame.where(frame.notna(), None).items()
    }


def read_by_duckdb(pattern: str) -> dict[str, list[Any]]:
    with duckdb.connect() as connection:
        table = connection.execute("SELECT * FROM read_parquet(?)", [pattern])
        names = [column[0] for column in table.description or []]
        lines = table.fetchall()
    return {name: [line[i] for line in lines] for i, name in enumerate(names)}


def read_by_pyarrow(pattern: str) -> dict[str, list[Any]]:
    path = Path(pattern).parent if "*" in pattern else Path(pattern)
    columns: dict[str, list[Any]] = ds.dataset(path, format="parquet").to_table().to_pydict()
    return columns


@pytest.mark.parametrize("table", ["replications", *TABLES])
@pytest.mark.parametrize(
    "reader", [read_by_polars, read_by_pandas, read_by_duckdb, read_by_pyarrow]
)
def test_every_reader_sees_the_same_content(
    finished: Path, reader: Callable[[str], dict[str, list[Any]]], table: str
) -> None:
    name = "replications/*.parquet" if table == "replications" else f"{table}.parquet"
    # pandas shows whole numbers with gaps as floats
    strict = reader is not read_by_pandas
    got = pl.DataFrame(reader(str(finished / name)), schema=SCHEMAS[table], strict=strict)
    expected = getattr(mc.load(finished), table)
    order = [key for key in ("claim", "cell", "replication", "metric") if key in got.columns]
    assert_frame_equal(got.sort(order), expected.sort(order))


def test_duckdb_counts_and_averages_without_the_nulls(finished: Path) -> None:
    query = "SELECT cell, count(drain), sum(drain) FROM read_parquet(?) GROUP BY cell ORDER BY cell"
    with duckdb.connect() as connection:
        files = [str(finished / "replications" / "*.parquet")]
        got = connection.execute(query, files).fetchall()
    lines = rows(finished).rows_by_key("cell", named=True)
    drains = {cell: [row["drain"] for row in found] for cell, found in lines.items()}
    expected = [
        (cell, 0, None) if None in values else (cell, len(values), sum(values))
        for cell, values in sorted(drains.items())
    ]
    assert got == expected


def test_an_unfinished_folder_says_so_when_a_table_is_asked_for(out: Path) -> None:
    unfinish(out)
    results = mc.load(out)
    assert not results.complete
    assert results.replications.height == N_ROWS
    for ask in (
        lambda: results.cells,
        lambda: results.summary,
        results.scan_summary,
        lambda: mc.report(out),
        lambda: mc.best(out, "dropped"),
        lambda: mc.frontier(out, "dropped", "calls"),
        lambda: mc.compare(out, 0, 1),
    ):
        with pytest.raises(FolderError, match="not finished; run the same command again"):
            ask()


def test_a_folder_without_results_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no results here"):
        mc.load(tmp_path)
    with pytest.raises(FolderError, match="no results here"):
        mc.load(tmp_path / "missing")


# The same again, and more of it -------------------------------------------------------------------


def test_a_finished_run_started_again_touches_no_file(out: Path) -> None:
    before = snapshot(out)
    told = run(EXPERIMENT, out)
    assert snapshot(out) == before
    assert told[-1] == f"{out} is finished: nothing to do (--force starts afresh)"


def test_another_layout_of_the_same_experiment_touches_no_file(out: Path) -> None:
    before = snapshot(out)
    other = EXPERIMENT.replace("[8, 16]", "[8.0, 16.0]").replace("capacity = 2", "capacity=2 #")
    run(other, out, jobs=1)
    assert snapshot(out) == before


@pytest.mark.parametrize("text", [EXPERIMENT, LESSON])
def test_more_replications_make_only_the_missing_rows(tmp_path: Path, text: str) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    run(text, out, replications=13)
    before = shards(out)
    told = run(text, out, replications=50)
    assert f"{out}: {13 * N_CELLS} of {50 * N_CELLS} rows are there, continuing" in told
    assert before.items() <= shards(out).items()
    run(text, whole, replications=50)
    assert_same_results(out, whole)


def test_fewer_replications_are_refused(out: Path) -> None:
    before = snapshot(out)
    with pytest.raises(FolderError, match="replications was 40, is 39"):
        run(EXPERIMENT, out, replications=39)
    assert snapshot(out) == before


ADDED: Final = {
    "a value in the middle of an axis": ("[8, 16]", "[8, 11, 16]"),
    "a value at the start of an axis": ("[8, 16]", "[4, 8, 16]"),
    "a policy in the middle": (
        '[[policy]]\nname = "three"',
        '[[policy]]\nname = "nine"\ntries = [3, 3]\n[[policy]]\nname = "three"',
    ),
    "a policy at the start": (
        '[[policy]]\nname = "none"',
        '[[policy]]\nname = "nine"\ntries = [3, 3]\n[[policy]]\nname = "none"',
    ),
    "a scenario at the start": (
        '[[scenario]]\nname = "healthy"',
        '[[scenario]]\nname = "errors"\nfailure_rate = 0.1\n[[scenario]]\nname = "healthy"',
    ),
    "a scenario equal to another but in name": (
        '[[scenario]]\nname = "healthy"',
        '[[scenario]]\nname = "calm"\n[[scenario]]\nname = "healthy"',
    ),
}


@pytest.mark.parametrize("what", ADDED)
def test_added_cells_leave_the_others_untouched(out: Path, tmp_path: Path, what: str) -> None:
    old, new = ADDED[what]
    extended = EXPERIMENT.replace(old, new)
    assert extended != EXPERIMENT
    before, cells_before = shards(out), mc.load(out).cells
    run(extended, out)
    assert before.items() <= shards(out).items()

    fixed = ["cell", "scenario", "policy", *PARAMETERS, "identity"]
    cells = mc.load(out).cells.sort("cell")
    assert_frame_equal(cells.head(N_CELLS).select(fixed), cells_before.select(fixed))
    assert cells["cell"].to_list() == list(range(cells.height))
    assert cells.height > N_CELLS

    run(extended, tmp_path / "whole")
    assert_same_numbers(out, tmp_path / "whole")
    again = snapshot(out)
    run(extended, out)
    assert snapshot(out) == again


def test_an_axis_may_be_added_if_it_has_the_value_of_before(bare: Path, tmp_path: Path) -> None:
    text = WITHOUT_TAIL.replace("arrivals_per_second = 120\n", "")
    extended = text.replace("[grid]", "[grid]\narrivals_per_second = [60, 120]")
    before = shards(bare)
    run(extended, bare, replications=4)
    assert before.items() <= shards(bare).items()
    run(extended, tmp_path / "whole", replications=4)
    assert_same_numbers(bare, tmp_path / "whole")


def test_cells_and_replications_can_be_added_in_turn(out: Path, tmp_path: Path) -> None:
    wider = EXPERIMENT.replace("[8, 16]", "[4, 8, 16]")
    widest = wider.replace(
        'name = "three"', 'name = "two"\ntries = [2]\n[[policy]]\nname = "three"'
    )
    run(EXPERIMENT, out, replications=45)
    run(wider, out, replications=45)
    run(widest, out, replications=60)
    run(widest, tmp_path / "whole", replications=60)
    assert_same_numbers(out, tmp_path / "whole")


def test_new_claims_and_figures_are_judged_on_the_old_rows(out: Path, tmp_path: Path) -> None:
    other = EXPERIMENT.replace('"small"', '"renamed"').replace('relation = "<"', 'relation = ">="')
    other = other.replace("multiplier = 1.25", "multiplier = 1.5\ncalls = 400")
    before = shards(out)
    run(other, out)
    assert shards(out) == before
    assert mc.load(out).manifest["title"] == "renamed"
    run(other, tmp_path / "whole")
    assert_same_results(out, tmp_path / "whole")


# Another experiment -------------------------------------------------------------------------------

CHANGED: Final = {
    "another seed": ("replications = 40", "replications = 40\nseed = 7", "seed was 20260802, is 7"),
    "another generator": (
        "replications = 40",
        'replications = 40\ngenerator = "lesson"',
        "generator was philox, is lesson",
    ),
    "another parameter": (
        "rounds = 300",
        "rounds = 301",
        "rounds was 3 s, is 3.01 s",
    ),
    "a parameter less": ("capacity = 2\n", "", "capacity was 200/s, is not set"),
    "a parameter more": (
        "capacity = 2\n",
        "capacity = 2\nthreshold = 5\n",
        "threshold was not set, is 50 ms",
    ),
    "another value on an axis": ("[8, 16]", "[8, 17]", "backoff_cap 160 ms is gone"),
    "a value less on an axis": ("[8, 16]", "[16]", "backoff_cap 80 ms is gone"),
    "another policy": ("tries = [3]", "tries = [2]", r'policy "three": tries was \[3\], is \[2\]'),
    "a policy renamed": ('"none"', '"nothing"', 'policy "none" is gone'),
    "a scenario less": ('[[scenario]]\nname = "healthy"\n', "", 'scenario "healthy" is gone'),
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_experiment_is_refused_with_the_difference_named(bare: Path, what: str) -> None:
    old, new, difference = CHANGED[what]
    other = WITHOUT_TAIL.replace(old, new)
    assert other != WITHOUT_TAIL
    before = snapshot(bare)
    with pytest.raises(FolderError, match=difference) as caught:
        run(other, bare, replications=4)
    assert str(caught.value).startswith(f"{bare}: holds the results of another experiment: ")
    assert "--force" in str(caught.value)
    assert snapshot(bare) == before


def test_seeds_of_the_lesson_can_be_neither_changed_nor_added(tmp_path: Path) -> None:
    text = 'title = "seeds"\ngenerator = "lesson"\nseeds = [1, 2]\n[fixed]\nrounds = 100\n'
    out = tmp_path / "out"
    run(text, out)
    before = snapshot(out)
    assert rows(out)["seed"].to_list() == [1, 2]
    for other in ("[1, 3]", "[2, 1]", "[1]"):
        with pytest.raises(FolderError, match="seeds was"):
            run(text.replace("[1, 2]", other), out)
    assert snapshot(out) == before


def test_force_starts_afresh(bare: Path, tmp_path: Path) -> None:
    other = WITHOUT_TAIL.replace("rounds = 300", "rounds = 200")
    run(other, bare, replications=3, force=True)
    run(other, tmp_path / "whole", replications=3)
    assert_same_results(bare, tmp_path / "whole")


def test_force_makes_the_same_rows_again(out: Path, finished: Path) -> None:
    before = shards(out)
    run(EXPERIMENT, out, force=True)
    assert_same_results(out, finished)
    assert not before.items() & shards(out).items()


# What is not ours ---------------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["thesis.txt", "cells.parquet", "replications/precious.parquet"])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, name: str, force: bool) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("precious")
    before = snapshot(out)
    with pytest.raises(FolderError, match="holds something else than results"):
        run(EXPERIMENT, out, force=force)
    assert snapshot(out) == before


FOREIGN: Final = '{"name": "web app", "icons": []}'


@pytest.mark.parametrize(
    ("manifest", "force"),
    [(FOREIGN, False), (FOREIGN, True), ("[]", False), ("[]", True), ("", False), ("{", False)],
)
def test_a_folder_with_a_manifest_of_another_program_is_refused(
    tmp_path: Path, manifest: str, force: bool
) -> None:
    """Many programs call a file manifest.json; their folders are not ours to empty."""
    out = tmp_path / "out"
    (out / "replications").mkdir(parents=True)
    (out / "manifest.json").write_text(manifest)
    (out / "summary.parquet").write_text("precious")
    (out / "replications" / "precious.txt").write_text("precious")
    before = snapshot(out)
    with pytest.raises(FolderError, match="manifest"):
        run(EXPERIMENT, out, force=force)
    assert snapshot(out) == before


def test_results_of_another_version_are_replaced_by_force_alone(out: Path, finished: Path) -> None:
    store.write_manifest(out, mc.load(out).manifest | {"format": 99})
    before = snapshot(out)
    with pytest.raises(FolderError, match="format 99, of another version of this program"):
        run(EXPERIMENT, out)
    with pytest.raises(FolderError, match="format 99, of another version of this program"):
        mc.load(out)
    assert snapshot(out) == before
    run(EXPERIMENT, out, force=True)
    assert_same_results(out, finished)


def test_results_of_the_time_before_nested_layers_are_refused_with_the_reason(out: Path) -> None:
    store.write_manifest(out, mc.load(out).manifest | {"format": 3})
    with pytest.raises(FolderError, match=r"format 3, .*layers were flattened then"):
        run(EXPERIMENT, out)


@pytest.mark.parametrize("force", [False, True])
def test_force_removes_only_what_a_run_writes(out: Path, force: bool) -> None:
    (out / "notes.txt").write_text("precious")
    (out / "figures").mkdir()
    (out / "figures" / "mine.png").write_text("precious")
    run(EXPERIMENT, out, force=force)
    assert (out / "notes.txt").read_text() == "precious"
    assert (out / "figures" / "mine.png").read_text() == "precious"


def test_an_empty_folder_is_taken(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "out").mkdir()
    run(EXPERIMENT, tmp_path / "out")
    assert_same_results(tmp_path / "out", finished)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_in_the_place_of_the_folder_is_refused(
    tmp_path: Path, below: str, force: bool
) -> None:
    (tmp_path / "out").write_text("precious")
    with pytest.raises(FolderError, match=r"/out"):
        mc.run(write(tmp_path, EXPERIMENT), f"{tmp_path}/out{below}", force=force)
    assert (tmp_path / "out").read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"small.toml", "out"}


WITHOUT_RIGHTS: Final = """
import os, sys
from mc.cli import app
run = ["run", "small.toml", "--replications", "1", "--quiet", "--out"]
app([*run, "warm"], standalone_mode=False)  # imports all there is to import
if os.getuid() == 0:  # nothing is forbidden to root: become nobody
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for out in sys.argv[1:]:
    try:
        app([*run, out])
    except SystemExit as end:
        print("exit code", end.code, file=sys.stderr)
"""


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    write(tmp_path, WITHOUT_TAIL)
    tmp_path.chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0o555)
    # the names are relative, since folders above this one may be closed to nobody
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, "closed", "closed/new"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [
        "closed: cannot be written to (Permission denied)",
        "exit code 2",
        "closed/new: cannot be written to (Permission denied)",
        "exit code 2",
    ]
    said = [line for line in done.stderr.splitlines() if "small.toml: " not in line]
    assert said == expected
    assert list((tmp_path / "closed").iterdir()) == []


# Damage -------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_parquet(path: Path) -> None:
    path.write_text("not a table")


def flip_a_value(path: Path) -> None:
    """Change one bit in the middle of the data of a column."""
    column = pq.read_metadata(path).row_group(0).column(4)  # calls
    at = column.data_page_offset + column.total_compressed_size // 2
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)


def change_a_value(path: Path) -> None:
    """Write a proper Parquet file with the footer of the shard and one other number."""
    table = pq.read_table(path)
    frame = pl.DataFrame(table).with_columns(
        calls=pl.when(pl.int_range(pl.len()) == 3).then(77).otherwise("calls").cast(pl.Int64)
    )
    changed = frame.to_arrow().replace_schema_metadata(pq.read_metadata(path).metadata)
    pq.write_table(changed, path)


def drop_a_row(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)


def like(path: Path, folder: Path) -> Path:
    """Find the shard of the same cells and replications in another folder."""

    def held_by(shard: Path) -> tuple[str, ...]:
        first, last, _, start, stop, _ = shard.stem.split("-")
        return first, last, start, stop

    (found,) = [p for p in store.shard_paths(folder) if held_by(p) == held_by(path)]
    return found


def copy_from_another_run(path: Path) -> None:
    """Take the shard of the same rows from a run with another seed, under the name of ours."""
    other = path.parent.parent.parent / "other"
    run(EXPERIMENT, other, seed=5)
    shutil.copy(like(path, other), path)


def copy_from_other_parameters(path: Path) -> None:
    """Take the shard of the same rows, cells and seed from a run with other parameters."""
    other = path.parent.parent.parent / "other"
    run(EXPERIMENT, other, overrides={"rounds": "301"})
    shutil.copy(like(path, other), path)


DAMAGES: Final[list[Callable[[Path], None]]] = [
    truncate,
    empty,
    no_parquet,
    flip_a_value,
    change_a_value,
    drop_a_row,
    copy_from_another_run,
    copy_from_other_parameters,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_put_aside_and_made_anew(
    out: Path, finished: Path, damage: Callable[[Path], None]
) -> None:
    unfinish(out)
    path = store.shard_paths(out)[5]
    before = shards(out)
    damage(path)
    damaged = path.read_bytes()
    told = run(EXPERIMENT, out)
    assert any(str(path) in line and "put aside" in line for line in told), told
    assert_same_results(out, finished)
    kept = [file.read_bytes() for file in out.rglob("*") if file.is_file() and file != path]
    assert damaged in kept, "what was put aside can be looked at"
    untouched = {name for name, at in shards(out).items() if before.get(name) == at}
    assert len(untouched) == len(before) - 1


@pytest.mark.parametrize("damage", [truncate, flip_a_value, copy_from_another_run])
def test_damage_in_a_finished_folder_is_noticed_by_the_next_run(
    out: Path, finished: Path, damage: Callable[[Path], None]
) -> None:
    path = store.shard_paths(out)[5]
    damage(path)
    told = run(EXPERIMENT, out)
    assert any(str(path) in line and "put aside" in line for line in told), told
    assert_same_results(out, finished)


@pytest.mark.parametrize("damage", [truncate, copy_from_another_run])
def test_damage_is_noticed_when_replications_are_added(
    out: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = store.shard_paths(out)[5]
    damage(path)
    told = run(EXPERIMENT, out, replications=50)
    assert any(str(path) in line and "put aside" in line for line in told), told
    run(EXPERIMENT, tmp_path / "whole", replications=50)
    assert_same_results(out, tmp_path / "whole")


def test_a_shard_that_cannot_be_read_stops_the_run_and_is_not_put_aside(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(out)
    barred = store.shard_paths(out)[0]
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        if path == barred:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    for ask in (lambda: run(EXPERIMENT, out, replications=50), lambda: mc.verify(out)):
        with pytest.raises(PermissionError, match=str(barred)):
            ask()
    monkeypatch.undo()
    assert snapshot(out) == before
    run(EXPERIMENT, out, replications=50)


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_a_missing_shard_is_made_anew(out: Path, finished: Path, state: str) -> None:
    if state == "unfinished":
        unfinish(out)
    store.shard_paths(out)[5].unlink()
    run(EXPERIMENT, out)
    assert_same_results(out, finished)


def test_every_shard_may_be_damaged(out: Path, finished: Path) -> None:
    unfinish(out)
    for path in store.shard_paths(out):
        empty(path)
    run(EXPERIMENT, out)
    assert_same_results(out, finished)


def test_a_shard_that_is_there_twice_counts_once(out: Path, finished: Path) -> None:
    path = store.shard_paths(out)[5]
    shutil.copy(path, path.with_name(f"copy-{path.name}"))
    told = run(EXPERIMENT, out)
    assert any("another shard holds" in line for line in told)
    assert_same_results(out, finished)


def test_of_two_shards_that_begin_together_the_longer_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made anew: the shorter holds no row that the longer does not hold."""
    monkeypatch.setattr(simulation, "MIN_TASKS", 1)
    out, other = tmp_path / "out", tmp_path / "other"
    run(EXPERIMENT, out)
    run(EXPERIMENT, other, replications=REPLICATIONS // 2)
    before = shards(out)
    for path in store.shard_paths(other):
        shutil.copy(path, out / "replications")
    told = run(EXPERIMENT, out)
    assert len(told) == len(store.shard_paths(other))
    assert all("another shard holds" in line for line in told)
    assert shards(out) == before


@pytest.mark.parametrize(
    "options", [{"seed": 5}, {"overrides": {"rounds": "301"}}, {"replications": 45}]
)
def test_a_whole_shard_of_another_experiment_is_put_aside(
    out: Path, finished: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    run(EXPERIMENT, tmp_path / "other", **options)
    path = store.shard_paths(tmp_path / "other")[-1]
    shutil.copy(path, out / "replications")
    told = run(EXPERIMENT, out)
    assert any(path.name in line and "another experiment" in line for line in told), told
    assert_same_results(out, finished)


def test_a_flipped_byte_anywhere_in_a_shard_is_noticed_or_harmless(out: Path) -> None:
    """A shard that passes the checks must be readable by the reader that makes the tables."""
    path = store.shard_paths(out)[5]
    whole, expected = path.read_bytes(), pl.read_parquet(path)
    unnoticed = []
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << (at // 7 % 8)
        path.write_bytes(damaged)
        try:
            store.read_shard(path)
        except FolderError:
            continue
        try:
            harmless = pl.read_parquet(path).equals(expected)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            harmless = False
        if not harmless:
            unnoticed.append(at)
    assert unnoticed == []


@pytest.mark.parametrize("state", ["finished", "unfinished"])
@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table_is_made_anew(out: Path, finished: Path, table: str, state: str) -> None:
    if state == "unfinished":
        unfinish(out)
    (out / f"{table}.parquet").unlink()
    run(EXPERIMENT, out)
    assert_same_results(out, finished)


@pytest.mark.parametrize("state", ["finished", "unfinished"])
@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_table_is_made_anew_or_named(
    out: Path, finished: Path, table: str, state: str
) -> None:
    if state == "unfinished":
        unfinish(out)
    truncate(out / f"{table}.parquet")
    try:
        run(EXPERIMENT, out)
        _ = getattr(mc.load(out), table)
    except FolderError as error:
        assert f"{table}.parquet" in str(error)  # noqa: PT017 - both ends are right
    else:
        assert_same_results(out, finished)


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_table_is_named_when_it_is_read(out: Path, table: str) -> None:
    flip = out / f"{table}.parquet"
    content = bytearray(flip.read_bytes())
    content[len(content) // 2] ^= 1
    flip.write_bytes(content)
    with pytest.raises(FolderError, match=rf"{table}\.parquet: damaged"):
        _ = getattr(mc.load(out), table)
    flip.unlink()
    with pytest.raises(FolderError, match=rf"{table}\.parquet: missing"):
        _ = getattr(mc.load(out), table)


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "manifest.json": mc.load,
    "summary.parquet": lambda out: mc.load(out).summary,
    "a shard": mc.status,
}


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_or_a_device_in_a_folder_is_named_and_not_waited_for(out: Path, name: str) -> None:
    path = store.shard_paths(out)[5] if name == "a shard" else out / name
    puts: tuple[Callable[[Path], object], ...]
    puts = os.mkfifo, lambda path: path.symlink_to("/dev/zero")
    for put in puts:
        path.unlink()
        put(path)
        with pytest.raises((FolderError, OSError), match=r"is no file"):
            READERS[name](out)


def test_a_damaged_or_missing_shard_is_named_when_it_is_read(out: Path) -> None:
    path = store.shard_paths(out)[5]
    flip_a_value(path)
    with pytest.raises(FolderError, match=f"{path.name}: damaged"):
        _ = mc.load(out).replications
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FolderError, match=f"{path.name}: damaged .not as long as it was"):
        mc.load(out).scan()
    path.unlink()
    with pytest.raises(FolderError, match=f"{path.name}: missing"):
        mc.load(out).scan()


def test_cells_keep_their_numbers_when_the_table_of_cells_is_lost(out: Path) -> None:
    """They are not in the order of the file here, and the shards hold numbers."""
    extended = EXPERIMENT.replace("[8, 16]", "[4, 8, 16]")
    run(extended, out)
    before, expected = shards(out), mc.load(out).cells
    (out / "cells.parquet").unlink()
    run(extended, out)
    assert shards(out) == before
    assert_frame_equal(mc.load(out).cells, expected)


def test_rows_that_vanish_during_a_run_are_noticed(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard = store.write_shard

    def lose(folder: Path, *arguments: Any) -> None:
        write_shard(folder, *arguments)
        store.shard_paths(folder)[0].unlink(missing_ok=True)  # two threads may choose the same

    monkeypatch.setattr(store, "write_shard", lose)
    with pytest.raises(FolderError, match="rows have gone"):
        run(EXPERIMENT, tmp_path / "out")
    monkeypatch.setattr(store, "write_shard", write_shard)
    assert not mc.load(tmp_path / "out").complete
    run(EXPERIMENT, tmp_path / "out")
    assert_same_results(tmp_path / "out", finished)


def test_a_file_left_in_the_making_is_removed(out: Path, finished: Path) -> None:
    unfinish(out)
    left_over = out / ".0123456789abcdef.partial"
    left_over.write_bytes(store.shard_paths(out)[0].read_bytes()[:100])
    run(EXPERIMENT, out)
    assert_same_results(out, finished)
    assert not left_over.exists()


# Stopped at every step ----------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def run_until(step: int, text: str, out: Path) -> int:
    """Run, and end at move number `step` of a finished file to its place.

    The file in the making stays behind, as a kill leaves it. Gives how many files were moved.
    """
    count = 0
    replace = os.replace

    def move(source: Path, target: Path) -> None:
        nonlocal count
        if count >= step:
            shutil.copy(source, Path(source).with_suffix(".left.partial"))
            raise Killed
        count += 1
        replace(source, target)

    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.suppress(Killed):
        monkeypatch.setattr(os, "replace", move)
        run(text, out)
    return count


TINY: Final = """
title = "tiny"
replications = 4
[fixed]
rounds = 100
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
"""


def test_a_run_stopped_before_any_of_its_files_is_continued(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    n_moves = run_until(10**9, TINY, whole)
    assert n_moves == 2 + 4 + 3 + 1, "cells, manifest; shards; tables; manifest"
    for step in range(n_moves):
        out = tmp_path / f"step{step}"
        assert run_until(step, TINY, out) == step
        run(TINY, out)
        assert_same_results(out, whole)
        assert not list(out.rglob("*.partial"))


def test_what_a_kill_before_the_manifest_leaves_is_no_obstacle(
    tmp_path: Path, finished: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".0123456789abcdef.partial").write_text("{")
    (out / "replications").mkdir()
    run(EXPERIMENT, out)
    assert_same_results(out, finished)
    assert {path.name[0] for path in out.iterdir()}.isdisjoint(".")


def test_an_extension_stopped_before_any_of_its_files_is_continued(tmp_path: Path) -> None:
    extended = TINY.replace(
        'name = "three"', 'name = "two"\ntries = [2]\n[[policy]]\nname = "three"'
    )
    whole, start, once = tmp_path / "whole", tmp_path / "start", tmp_path / "once"
    run(extended, whole)
    run(TINY, start)
    shutil.copytree(start, once)
    n_moves = run_until(10**9, extended, once)
    for step in range(n_moves):
        out = Path(shutil.copytree(start, tmp_path / f"step{step}"))
        before = shards(out)
        assert run_until(step, extended, out) == step
        run(extended, out)
        assert before.items() <= shards(out).items()
        assert_same_numbers(out, whole)


def test_no_shard_is_seen_before_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard comes into its folder in one step, and was whole before it."""
    out = tmp_path / "out"
    moved = []

    def move(temporary: Path, path: Path, replace: Any = os.replace) -> None:
        if path.parent.name == "replications":
            assert not path.exists()
            assert temporary.parent == out  # outside the folder that others scan
            moved.append(pl.read_parquet(temporary).height)
        replace(temporary, path)

    monkeypatch.setattr(os, "replace", move)
    mc.run(write(tmp_path, EXPERIMENT), out, jobs=1)
    got = sum(moved)
    expected = mc.load(out).replications.height
    assert got == expected > 0


# Interrupted --------------------------------------------------------------------------------------


def test_an_interrupt_loses_nothing_that_was_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes to the main thread, here after it has saved the first shard."""
    out = tmp_path / "out"
    told = 0

    def progress(done: int, total: int) -> None:
        nonlocal told
        told = max(told, done)

    write_shard = store.write_shard

    def interrupted(*arguments: Any) -> None:
        write_shard(*arguments)
        monkeypatch.setattr(store, "write_shard", write_shard)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mc.run(write(tmp_path, EXPERIMENT), out, progress=progress)
    got = sum(pq.read_metadata(path).num_rows for path in store.shard_paths(out))
    assert got == told


@pytest.mark.skipif(os.name != "posix", reason="such names are none elsewhere")
@pytest.mark.parametrize("name", ["a [x] *?", "%41 #é"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    text = 'title = "x"\nreplications = 40\n[fixed]\nrounds = 50\n[grid]\ncapacity = [1, 6]\n'
    file = write(tmp_path, text, f"{name}.toml")
    results = mc.run(file, tmp_path / name)
    assert mc.load(results.folder).replications.height == 80
    assert mc.best(results.folder, "peak").height == 2
    assert mc.report(results.folder).exists()
    assert mc.verify(results.folder).ok


@pytest.mark.skipif(os.name != "posix", reason="such names are none elsewhere")
def test_a_name_that_is_not_utf_8_is_told_before_a_run(tmp_path: Path) -> None:
    file = write(tmp_path, 'title = "x"\nreplications = 2\n[fixed]\nrounds = 9\n', "\udcff.toml")
    with pytest.raises(FolderError, match="must be UTF-8"):
        mc.run(file, tmp_path / "\udcff")
    assert list(tmp_path.iterdir()) == [file]
    assert mc.run(file, tmp_path / "out").complete


def test_every_file_says_in_which_units_its_columns_are(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run(EXPERIMENT, folder)
    files = [*(folder / "replications").iterdir(), folder / "cells.parquet"]
    for path in files:
        about = pq.read_metadata(path)
        units = json.loads(about.metadata[b"units"])
        assert set(units) <= set(about.schema.names)
        expected = {"wait_max": "rounds", "peak": "calls/round"}
        if path.name == "cells.parquet":
            expected = {"backoff_cap": "rounds", "capacity": "calls/round"}
        assert units.items() >= expected.items()


@pytest.mark.parametrize("table", [*TABLES, "replications"])
def test_every_column_of_a_table_says_unit_and_meaning(finished: Path, table: str) -> None:
    columns = mc.load(finished).manifest["columns"][table]
    path, *_ = [*finished.glob(f"{table}.parquet"), *finished.glob(f"{table}/*.parquet")]
    for field in pq.read_schema(path):
        got = {key.decode(): text.decode() for key, text in field.metadata.items()}
        assert got == columns[field.name]
