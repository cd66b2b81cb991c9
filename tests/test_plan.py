"""What a run will cost, said before it is begun, and how far it is."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Final
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app
from mc.runner import costs
from mc.runner.simulation import Block, Draws, simulate_alone
from mc.store import FolderError, lock, memory, state

EXPERIMENT: Final = """
title = "small"
replications = 60
[fixed]
rounds = 300
arrivals_per_second = 120
capacity = 6
fault_start = 50
fault_rounds = 60
[[policy]]
name = "none"
[[policy]]
name = "five"
tries = [5]
[grid]
backoff_cap = [8, 16]
threshold = [10, 20]
"""

N_CELLS: Final = 8
N_ROWS: Final = N_CELLS * 60


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An experiment in an empty folder, of which each plan has the same sample."""
    monkeypatch.setattr(costs, "SAMPLE_SECONDS", 1000.0)
    monkeypatch.setattr(costs, "SAMPLE_MOST_SECONDS", 1000.0)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(EXPERIMENT, "utf-8")
    return "small.toml"


def tree(folder: Path | str = ".") -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its content."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


# --- plan ----------------------------------------------------------------------------------------


def test_a_plan_counts_what_the_run_then_makes(file: str) -> None:
    plan = mc.plan(file)
    results = mc.run(file)
    n_shards = len(list(Path("results/small/replications").iterdir()))
    got = plan.n_cells, plan.replications, plan.n_rows, plan.n_done, plan.n_shards
    expected = N_CELLS, 60, N_ROWS, 0, n_shards
    assert got == expected
    assert plan.n_rows == results.replications.height
    assert plan.folder == results.folder
    assert not plan.finished


@pytest.mark.parametrize("arguments", [("plan",), ("run", "--dry-run")])
def test_a_plan_writes_nothing(file: str, arguments: tuple[str, ...]) -> None:
    expected = tree()
    code, out, err = invoke(arguments[0], file, *arguments[1:], "--jobs", "1")
    assert (code, err) == (0, "")
    assert tree() == expected
    assert not Path("results").exists()
    assert "rows          480\n" in out
    assert out.endswith("Nothing was written.\n")
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_plan_names_the_experiment_and_what_is_given_in_place_of_its_file(file: str) -> None:
    plan = mc.plan(file, "elsewhere", replications=7, jobs=3, overrides={"rounds": "100"})
    got = plan.title, plan.folder, plan.replications, plan.n_rows, plan.jobs
    expected = "small", Path("elsewhere"), 7, 7 * N_CELLS, 3
    assert got == expected
    assert plan.n_cores <= 3


def test_time_and_bytes_are_estimated_for_what_is_missing(file: str) -> None:
    plan = mc.plan(file, jobs=1)
    assert plan.core_seconds > 0
    assert plan.table_seconds > 0
    assert plan.page_seconds > 0
    of_one_core = plan.table_seconds + plan.page_seconds
    expected = plan.core_seconds / plan.n_cores + of_one_core
    assert plan.seconds == pytest.approx(expected)  # a sum in another order
    assert plan.n_bytes > 0
    assert plan.n_bytes_there == 0


def test_a_cell_that_costs_more_than_all_others_is_in_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on by what each row is said to take: the dear cell comes last."""
    file = tmp_path / "small.toml"
    file.write_text(EXPERIMENT.replace("[fixed]", "[fixed]\nqueue = 10"), "utf-8")
    seconds: list[float] = []

    def timed(block: Block, draws: Draws, m: int) -> tuple[NDArray[np.int64], float]:
        seconds.append(2.0 if len(seconds) == N_CELLS - 1 else 0.1)
        return simulate_alone(block, draws.indices(0, m), draws.seed), seconds[-1]

    clock = SimpleNamespace(process_time=lambda: sum(seconds), thread_time=time.thread_time)
    monkeypatch.setattr(costs, "_timed", timed)
    monkeypatch.setattr(costs, "time", clock)
    plan = mc.plan(file, tmp_path / "out")
    assert len(seconds) == N_CELLS
    assert plan.core_seconds == pytest.approx(60 * sum(seconds), rel=0.05)


@pytest.mark.parametrize("keep", ["rows", "histograms"])
def test_bytes_and_time_are_about_those_of_the_run(file: str, keep: str) -> None:
    """By a factor of two, and of four: the time is that of the processor, however busy it is.

    No seed fails by bytes: the sample is always the same. Constants that a faster kernel has left
    behind fail by time.
    """
    Path(file).write_text(f'keep = "{keep}"\n{EXPERIMENT}', "utf-8")
    mc.run(file, "warm", replications=10)  # imports and compiles
    plan = mc.plan(file, replications=20_000, jobs=1)
    started = time.process_time()
    mc.run(file, replications=20_000, jobs=1)
    seconds = time.process_time() - started
    n_bytes = sum(path.stat().st_size for path in Path("results/small").rglob("*.*"))
    assert n_bytes / 2 <= plan.n_bytes <= n_bytes * 2
    assert seconds / 4 <= plan.core_seconds + plan.table_seconds <= seconds * 4


def test_ten_times_the_replications_take_ten_times_as_long(file: str) -> None:
    """But for the pace of the machine, which is measured each time."""
    few, many = (mc.plan(file, replications=n, jobs=1) for n in (100_000, 1_000_000))
    assert 4 <= many.core_seconds / few.core_seconds <= 25
    assert 8 <= many.n_bytes / few.n_bytes <= 12


def test_cells_that_retry_more_take_longer(file: str) -> None:
    """Two of a thousand calls are retries, or four of five."""
    alone = 'title = "t"\nreplications = 100_000\n[fixed]\ntries = [3, 3]\n'
    seconds = []
    for fault in ("failure_rate = 0.002", "capacity = 0"):
        Path(file).write_text(alone + fault, "utf-8")
        seconds.append(mc.plan(file, jobs=1).core_seconds)
    assert seconds[1] > 3 * seconds[0]


def test_rows_that_are_there_are_not_planned_again(file: str) -> None:
    mc.run(file, replications=20)
    there = sum(path.stat().st_size for path in Path("results/small/replications").iterdir())
    expected = tree()
    plan = mc.plan(file)
    assert tree() == expected
    assert (plan.n_rows, plan.n_done, plan.n_missing) == (N_ROWS, 20 * N_CELLS, 40 * N_CELLS)
    assert plan.n_bytes_there == there
    assert "480, of which 160 are there" in invoke("plan", file)[1]


def test_a_lost_shard_is_planned_again(file: str) -> None:
    mc.run(file)
    lost = sorted(Path("results/small/replications").iterdir())[0]
    lost.unlink()
    plan = mc.plan(file)
    assert 0 < plan.n_missing < N_ROWS
    mc.run(file)
    assert mc.plan(file).finished


def test_a_finished_run_costs_nothing_more(file: str) -> None:
    mc.run(file)
    expected = tree()
    plan = mc.plan(file)
    assert (plan.finished, plan.n_missing, plan.seconds) == (True, 0, 0.0)
    code, out, _ = invoke("run", file, "--dry-run")
    assert code == 0
    assert "none: it is finished" in out
    assert tree() == expected


def test_where_only_a_table_is_missing_only_the_tables_take_time(file: str) -> None:
    mc.run(file)
    Path("results/small/summary.parquet").unlink()
    plan = mc.plan(file)
    assert (plan.finished, plan.n_missing, plan.core_seconds) == (False, 0, 0.0)
    assert plan.table_seconds > 0


def test_starting_afresh_is_planned_as_a_whole(file: str) -> None:
    mc.run(file)
    plan = mc.plan(file, force=True)
    assert (plan.n_missing, plan.finished) == (N_ROWS, False)


def test_a_plan_for_the_folder_of_another_experiment_is_refused_as_the_run_would_be(
    file: str,
) -> None:
    mc.run(file, seed=1)
    code, out, err = invoke("plan", file)
    assert (code, out) == (2, "")
    assert "holds the results of another experiment: seed was 1, is 20260802" in err


def test_faults_of_the_file_are_reported_instead_of_a_plan(file: str) -> None:
    Path(file).write_text("title = 3", "utf-8")
    code, out, err = invoke("run", file, "--dry-run")
    assert (code, out) == (2, "")
    assert "title must be a text" in err


def test_the_lessons_generator_is_planned_too(file: str) -> None:
    Path(file).write_text(EXPERIMENT.replace('"small"', '"small"\ngenerator = "lesson"'), "utf-8")
    plan = mc.plan(file)
    assert plan.n_rows == N_ROWS
    assert plan.core_seconds > 0


def test_cells_of_different_traffic_are_all_planned(file: str) -> None:
    """Each is a block of its own, and several stand in a shard."""
    text = EXPERIMENT.replace("arrivals_per_second = 120\n", "")
    text += "arrivals_per_second = {from = 50, to = 150, steps = 40}\n"
    Path(file).write_text(text, "utf-8")
    plan = mc.plan(file, replications=2)
    mc.run(file, replications=2)
    assert plan.n_rows == 40 * N_CELLS * 2
    assert plan.n_shards == len(list(Path("results/small/replications").iterdir()))


# --- status --------------------------------------------------------------------------------------


def test_the_status_of_a_finished_run(file: str) -> None:
    results = mc.run(file)
    status = mc.status(results.folder)
    got = status.n_rows, status.n_done, status.n_missing, status.complete, status.holder
    expected = N_ROWS, N_ROWS, 0, True, None
    assert got == expected
    assert status.tables == ("cells", "summary", "comparisons", "claims")
    code, out, err = invoke("status", "results/small")
    assert (code, err) == (0, "")
    assert "finished; its last session took" in out
    assert "480 of 480 (100.0 %), 0 are missing" in out


def unfinished(n_lost: int) -> Path:
    """Make the folder look as one whose run was killed before it made its tables."""
    folder = Path("results/small")
    for path in sorted((folder / "replications").iterdir())[:n_lost]:
        path.unlink()
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    for key in ("tables", "shards", "seconds", "jobs"):
        del manifest[key]
    store.write_manifest(folder, manifest | {"complete": False})
    for name in ("summary", "comparisons", "claims"):
        (folder / f"{name}.parquet").unlink()
    return folder


@contextmanager
def at_work(folder: Path, started: str, part: tuple[int, int] | None = None) -> Iterator[None]:
    """Hold the lock of a folder, or of a part of its run, since a certain time."""
    no_beat = patch.object(lock, "BEAT_SECONDS", 3600.0)  # or it would say when it really began
    with no_beat, store.held(folder, print, part):
        (path,) = (path for path in folder.glob(".lock*") if path.stat().st_size)
        path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"started": started}))
        yield


@pytest.mark.parametrize("part", [None, (2, 3)])
def test_the_status_of_a_run_at_work_says_who_and_how_long(
    file: str, part: tuple[int, int] | None
) -> None:
    mc.run(file)
    folder = unfinished(n_lost=3)
    with at_work(folder, "2026-01-01T00:00:00+00:00", part):
        status = mc.status(folder)
        code, out, _ = invoke("status", str(folder))
    assert status.holder is not None
    assert (status.holder.pid, status.holder.alive) == (os.getpid(), True)
    assert 0 < status.n_missing < N_ROWS
    assert status.seconds_left is not None
    assert status.tables == ("cells",)
    assert code == 0
    assert f"at work: process {os.getpid()}" in out
    assert "time left" in out


def test_before_anything_is_saved_no_time_is_known(file: str) -> None:
    mc.run(file)
    folder = unfinished(n_lost=1)
    in_a_minute = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 60, UTC)
    with at_work(folder, in_a_minute.isoformat()):
        assert mc.status(folder).seconds_left is None


@pytest.mark.skipif(os.name == "nt", reason="there is no way to ask whether a process is there")
def test_the_status_of_a_killed_run_says_that_it_is_gone(file: str) -> None:
    mc.run(file)
    folder = unfinished(n_lost=2)
    with at_work(folder, "2026-01-01T00:00:00+00:00"):
        content = (folder / ".lock").read_bytes()
    (folder / ".lock").write_bytes(content)
    status = mc.status(folder)
    assert status.holder is not None
    assert (status.holder.alive, status.seconds_left) == (False, None)
    assert (
        "is gone; run the command that began it again to go on" in invoke("status", str(folder))[1]
    )


def test_the_status_of_a_stopped_run(file: str) -> None:
    mc.run(file)
    folder = unfinished(n_lost=2)
    expected = tree()
    code, out, _ = invoke("status", str(folder))
    assert code == 0
    assert "stopped; run the command that began it again to go on" in out
    assert tree() == expected


def test_a_run_that_ends_while_its_status_is_asked_for_is_finished(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mc.run(file).folder
    last = json.loads((folder / "manifest.json").read_text("utf-8"))
    tables = {path: path.read_bytes() for path in folder.glob("*.parquet")}
    unfinished(n_lost=0)

    def end(folder: Path) -> None:
        for path, content in tables.items():
            path.write_bytes(content)
        store.write_manifest(folder, last)

    monkeypatch.setattr(state, "holder", end)
    assert mc.status(folder).complete


def test_a_shard_of_another_run_is_not_counted(file: str) -> None:
    mc.run(file)
    other = mc.run(file, "other", seed=1).folder
    foreign = sorted((other / "replications").iterdir())[0]
    shutil.copy(foreign, "results/small/replications")
    Path("results/small/replications/broken.parquet").write_bytes(b"PAR1")
    status = mc.status("results/small")
    got = status.n_done, {path.name for path in status.faulty}, status.complete
    expected = N_ROWS, {foreign.name, "broken.parquet"}, False
    assert got == expected


def test_the_status_of_no_results_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no results here"):
        mc.status(tmp_path)
    code, out, err = invoke("status", str(tmp_path / "nothing"))
    assert (code, out) == (2, "")
    assert "no results here" in err


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "plan", "run"])
def test_what_the_machine_has_no_memory_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "of_machine", lambda: memory.of_run(0))
    result = CliRunner().invoke(app, [command, "small.toml"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cells need about 0.7 GB of memory, of which this machine gives 0.7 GB" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_a_run_too_large_for_its_page_is_printed_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRYSTORM_NO_REPORT")
    monkeypatch.setattr(memory, "of_page", lambda n_cells: 1 << 60)
    result = CliRunner().invoke(app, ["run", "small.toml"])
    assert result.exit_code == 0
    assert "no page: " in result.stderr
    assert not Path("results/small/report.html").exists()


def test_a_machine_has_memory_and_more_cells_need_more() -> None:
    assert memory.of_machine() > 100_000_000
    assert memory.of_run(0) < memory.of_run(1000) < memory.of_page(1_000_000)
