"""Verification finds every change of a results folder, and nothing in an untouched one."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import mc
from mc import kernel, store
from mc.cli import app
from mc.reports import is_current
from mc.runner import rows

EXPERIMENT: Final = """
title = "small"
replications = 40
[fixed]
rounds = 300
arrivals_per_second = 120
capacity = 2
chain = "flattened"
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
tries = [3, 1]
budget = 0.3
[grid]
backoff_cap = [8, 16.5]
"""

N_ROWS: Final = 8 * 40


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of an experiment whose file is gone."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(EXPERIMENT, "utf-8")
    results = mc.run("small.toml")
    Path("small.toml").unlink()
    return results.folder


def shards(folder: Path) -> list[Path]:
    return sorted((folder / "replications").iterdir())


def rewritten(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Path:
    """Change rows of a shard as someone would who also makes its hash and the manifest right."""
    table = pq.read_table(path)
    changed = change(pl.DataFrame(pl.from_arrow(table)))
    sink = pa.BufferOutputStream()
    pq.write_table(
        changed.to_arrow().replace_schema_metadata(pq.read_metadata(path).metadata), sink
    )
    content = sink.getvalue().to_pybytes()
    stem = path.stem.rpartition("-")[0]
    new = path.with_name(f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.parquet")
    path.unlink()
    new.write_bytes(content)
    manifest = mc.load(path.parents[1]).manifest
    del manifest["shards"][path.name]
    manifest["shards"][new.name] = len(content)
    store.write_manifest(path.parents[1], manifest)
    return new


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_an_untouched_folder_is_found_right(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = mc.verify(folder, all_rows=True)
    got = found.ok, found.complete, found.n_rows, found.n_checked, found.differences.height
    expected = True, True, N_ROWS, N_ROWS, 0
    assert got == expected
    assert found.n_files == len(shards(folder)) + 5
    code, out, err = invoke("verify", str(folder), "--all")
    assert (code, err) == (0, "")
    assert "320 of 320 made once more: all equal" in out
    after = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert after == before


def test_a_small_folder_is_sampled_until_every_row_was_made_once(folder: Path) -> None:
    found = mc.verify(folder, seconds=1000)
    assert (found.ok, found.n_checked) == (True, N_ROWS)


def test_a_short_sample_has_rows_and_can_be_drawn_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "CELLS_PER_DRAW", 1)
    found = mc.verify(folder, seconds=0, seed=3)
    assert 0 < found.n_checked < N_ROWS
    assert found.seed == 3
    code, out, _ = invoke("verify", str(folder), "--seconds", "0", "--seed", "3")
    assert code == 0
    assert f"{found.n_checked} of 320 made once more, drawn with seed 3: all equal" in out


@pytest.mark.parametrize("generator", ["philox", "lesson"])
@pytest.mark.parametrize("seconds", [None, 1000.0])
def test_a_changed_counter_is_named_with_its_place(
    tmp_path: Path, generator: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = EXPERIMENT.replace('"small"', f'"small"\ngenerator = "{generator}"')
    Path("small.toml").write_text(text, "utf-8")
    results = mc.run("small.toml")
    (path,) = (
        shard
        for shard in shards(results.folder)
        if pl.read_parquet(shard)["replication"][0] == 0 and 7 in pl.read_parquet(shard)["cell"]
    )
    here = (pl.col("cell") == 7) & (pl.col("replication") == 1)
    stored = pl.read_parquet(path).filter(here)["calls"].item()

    def change(table: pl.DataFrame) -> pl.DataFrame:
        return table.with_columns(calls=pl.col("calls") + here.cast(pl.Int32))

    new = rewritten(path, change)
    if seconds is None:
        found = mc.verify(results.folder, all_rows=True)
    else:
        found = mc.verify(results.folder, seconds=seconds)
    got = found.differences.rows()
    expected = [(str(new), 7, 1, "calls", stored + 1, stored)]
    assert got == expected
    assert (found.ok, found.faults) == (False, ())
    code, out, _ = invoke("verify", str(results.folder), "--all")
    assert code == 1
    assert f"cell 7, replication 1: calls is {stored + 1}, made once more {stored}" in out
    assert "320 of 320 made once more: 1 differ" in out


def forged(folder: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> str:
    """Change a table as someone would who also makes its hash right; its file's name."""
    manifest = mc.load(folder).manifest
    path = folder / f"{name}.parquet"
    manifest["tables"][name] = store.write_table(folder, name, change(pl.read_parquet(path)))
    store.write_manifest(folder, manifest)
    return str(path)


PRECISE: Final = (
    EXPERIMENT.replace("replications = 40", "")
    + """
[precision]
metric = "calls"
absolute = 2.0
min = 40
max = 160
[[published]]
scenario = "outage"
policy = "three"
at = {backoff_cap = 8}
calls = 330
multiplier = 1.10
"""
)

COUNTED: Final = EXPERIMENT.replace("= 40", '= 10\nkeep = "histograms"').replace("[8, 16.5]", "[8]")


@pytest.mark.parametrize("text", [PRECISE, COUNTED])
def test_tables_that_do_not_follow_from_the_rows_are_found(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(text, "utf-8")
    folder = mc.run("small.toml").folder
    assert mc.verify(folder, all_rows=True).ok
    path = forged(folder, "summary", lambda table: table.with_columns(pl.col("mean") * 2))
    assert mc.verify(folder, seconds=0).ok
    (got,) = mc.verify(folder, all_rows=True).faults
    assert got.startswith(f"{path}: mean differs in ")


def test_parameters_that_follow_from_others_are_found(folder: Path) -> None:
    path = forged(folder, "cells", lambda t: t.with_columns(longest_wait=pl.lit(1, pl.Int64)))
    (got,) = mc.verify(folder, all_rows=True).faults
    assert got.startswith(f"{path}: longest_wait differs in ")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda table: table.with_columns(x=1), "column x is Int32, should not be there"),
        (lambda table: table.drop("n"), "column n is missing, should be Int64"),
        (
            lambda table: table.with_columns(pl.col("n").cast(pl.Int32)),
            "column n is Int32, should be Int64",
        ),
        (lambda table: table[::-1], "cell differs in "),
        (lambda table: table[:-1], "lines, its rows give "),
    ],
)
def test_columns_and_lines_of_tables_are_those_that_the_rows_give(
    folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame], expected: str
) -> None:
    forged(folder, "comparisons", change)
    faults = mc.verify(folder, all_rows=True).faults
    assert faults
    assert expected in faults[0]


def test_what_the_manifest_says_of_the_experiment_follows_from_it(folder: Path) -> None:
    store.write_manifest(folder, mc.load(folder).manifest | {"title": "large", "n_rows": 7})
    got = set(mc.verify(folder, all_rows=True).faults)
    where = folder / "manifest.json"
    expected = {
        f"{where}: {name} is not what follows from the experiment" for name in ("title", "n_rows")
    }
    assert got == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.with_columns(spy=1),
        lambda rows: rows.with_columns(pl.col("calls").cast(pl.Int32)),
    ],
)
def test_rows_have_their_columns_and_no_others(
    folder: Path, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> None:
    path = rewritten(shards(folder)[0], change)
    faults = mc.verify(folder, all_rows=True).faults
    assert faults[0].startswith(f"{path}: its columns are not those of rows (")


def test_a_value_in_place_of_a_null_differs(folder: Path) -> None:
    rewritten(shards(folder)[0], lambda rows: rows.with_columns(pl.col("drain").fill_null(0)))
    got = mc.verify(folder, all_rows=True).differences
    assert got.height > 0
    assert got["recomputed"].null_count() == got.height
    assert set(got["counter"]) == {"drain"}
    assert "drain is 0, made once more NULL" in invoke("verify", str(folder), "--all")[1]


def test_many_differences_are_counted_and_some_are_shown(folder: Path) -> None:
    for path in shards(folder):
        rewritten(path, lambda rows: rows.with_columns(pl.col("calls", "peak") + 1))
    assert mc.verify(folder, all_rows=True).differences.height == 2 * N_ROWS
    code, out, _ = invoke("verify", str(folder), "--all")
    assert code == 1
    assert "... and 620 further differences" in out
    assert "made once more: 320 differ" in out


def test_a_flipped_bit_of_a_shard_is_found(folder: Path) -> None:
    path = shards(folder)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    found = mc.verify(folder, seconds=1000)
    assert found.faults == (f"{path}: damaged (its content is not what was written)",)
    assert not found.ok
    assert found.n_checked == found.n_rows < N_ROWS


def test_a_missing_shard_and_a_foreign_one_are_found(folder: Path) -> None:
    lost, copied = shards(folder)[0], folder / "replications" / "foreign.parquet"
    lost.rename(copied)
    got = set(mc.verify(folder).faults)
    expected = {f"{lost}: missing", f"{copied}: is not in the manifest"}
    assert got == expected


@pytest.mark.parametrize("name", ["summary", "comparisons", "claims"])
def test_a_changed_table_is_found(folder: Path, name: str) -> None:
    path = folder / f"{name}.parquet"
    path.write_bytes(path.read_bytes() + b"\0")
    (got,) = mc.verify(folder).faults
    assert got.startswith(f"{path}: damaged")
    assert invoke("verify", str(folder))[0] == 1


def test_a_changed_parameter_of_a_cell_is_found_and_its_rows_are_left_out(folder: Path) -> None:
    path = folder / "cells.parquet"
    cells = pl.read_parquet(path).with_columns(capacity=pl.lit(3, pl.Int32))
    cells.write_parquet(path)
    found = mc.verify(folder)
    assert [fault.partition(":")[0] for fault in found.faults] == [str(path)] * 2
    assert "cell 0 is not as the manifest has it" in found.faults[1]
    assert (found.n_checked, found.differences.height) == (0, 0)


def test_without_the_table_of_cells_no_row_can_be_made(folder: Path) -> None:
    (folder / "cells.parquet").unlink()
    found = mc.verify(folder, all_rows=True)
    assert (found.ok, found.n_checked) == (False, 0)
    assert any("cells.parquet: missing; no row" in fault for fault in found.faults)


def test_a_changed_experiment_in_the_manifest_is_found(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
    manifest["experiment"]["fixed"]["capacity"] = 3
    path.write_text(json.dumps(manifest), "utf-8")
    with pytest.raises(store.DamagedError, match="its content is not what was written"):
        mc.verify(folder)
    assert invoke("verify", str(folder))[0] == 2


def test_a_seed_that_was_changed_is_found_by_every_shard(folder: Path) -> None:
    manifest = mc.load(folder).manifest
    manifest["experiment"]["seed"] = 3
    store.write_manifest(folder, manifest)
    found = mc.verify(folder)
    assert sum("belongs to another experiment" in fault for fault in found.faults) == len(
        shards(folder)
    )


def listed_anew(folder: Path) -> None:
    """Make the manifest list the shards that are there."""
    listed = {path.name: path.stat().st_size for path in shards(folder)}
    store.write_manifest(folder, mc.load(folder).manifest | {"shards": listed})


def second_half_of(path: Path) -> Path:
    """Write the later replications of a shard as a shard of their own."""
    shard, folder = store.read_shard(path), path.parents[1]
    start = (shard.start + shard.stop) // 2
    rows = pl.read_parquet(path).filter(pl.col("replication") >= start)
    before = set(shards(folder))
    store.write_shard(folder, rows, shard.cells, shard.identities, start, shard.stop, shard.draws)
    (new,) = set(shards(folder)) - before
    return new


def test_rows_that_are_there_twice_are_found(folder: Path) -> None:
    again = second_half_of(shards(folder)[0])
    listed_anew(folder)
    got = mc.verify(folder).faults
    assert got == (f"{again}: holds rows that another shard holds, too",)


def test_rows_that_are_missing_are_found(folder: Path) -> None:
    path = shards(folder)[0]
    second = store.read_shard(second_half_of(path))
    path.unlink()
    listed_anew(folder)
    got = mc.verify(folder).faults
    where = f"replications 0 to {second.start - 1} of cell 0 and of {len(second.cells) - 1} more"
    assert got == (f"{folder}/replications: {where} are missing",)


@pytest.mark.parametrize("what", ["report.html", "figures/storm-2.svg", "figures/storm.parquet"])
def test_every_byte_of_the_page_and_its_figures_is_checked(folder: Path, what: str) -> None:
    mc.report(folder)
    assert mc.verify(folder).ok
    path = folder / what
    content = path.read_bytes()
    for place in (0, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        got = mc.verify(folder, seconds=0).faults
        assert got == (f"{path}: damaged; retrystorm report makes it anew",)
        assert not is_current(mc.load(folder))
    path.unlink()
    assert mc.verify(folder, seconds=0).ok == (what == "report.html")


def test_a_run_stopped_before_its_table_of_cells_is_unfinished_not_faulty(folder: Path) -> None:
    manifest = mc.load(folder).manifest | {"complete": False}
    store.write_manifest(folder, manifest)
    (folder / "cells.parquet").unlink()
    assert mc.verify(folder).ok


def test_rows_in_another_order_than_the_footer_says_are_found(folder: Path) -> None:
    new = rewritten(shards(folder)[0], lambda rows: rows.reverse())
    got = mc.verify(folder).faults
    expected = (f"{new}: its rows are not those that its footer names",)
    assert got == expected


def test_a_run_that_is_not_finished_is_checked_as_far_as_it_is(folder: Path) -> None:
    manifest = mc.load(folder).manifest | {"complete": False}
    for key in ("tables", "shards"):
        del manifest[key]
    store.write_manifest(folder, manifest)
    shards(folder)[0].unlink()
    found = mc.verify(folder, all_rows=True)
    assert (found.ok, found.complete) == (True, False)
    assert 0 < found.n_checked == found.n_rows < N_ROWS
    assert "(not finished)" in invoke("verify", str(folder))[1]


def test_another_kernel_would_be_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What verification is for: rows that today's program makes otherwise."""
    true = kernel.simulate_philox

    def other(*arguments: Any) -> Any:
        done = true(*arguments)
        arguments[3][..., 0] += 1
        return done

    monkeypatch.setattr(kernel, "simulate_philox", other)
    found = mc.verify(folder, all_rows=True)
    assert set(found.differences["counter"]) == {"requests"}
    assert found.differences.height == N_ROWS


def test_a_sample_may_go_on_for_ever_and_ends_when_all_was_made(folder: Path) -> None:
    found = mc.verify(folder, seconds=math.inf)
    assert (found.ok, found.n_checked) == (True, N_ROWS)


def test_no_results_are_a_clear_error(tmp_path: Path) -> None:
    code, out, err = invoke("verify", str(tmp_path))
    assert (code, out) == (2, "")
    assert "no results here" in err
