"""Parts of a run, done by several processes: the same rows as by one, none twice, none in the way.

Whether a part is done before, after or beside the others, or is killed on the way, the merged
results are those of a plain run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from folders import assert_same_results, run, snapshot, write
from typer.testing import CliRunner

import mc
from mc import store
from mc.cli import app
from mc.runner import simulation
from mc.store import FolderError

FIXED: Final = """
title = "shared"
replications = 60
[fixed]
rounds = 300
arrivals_per_second = 120
capacity = 3
fault_start = 50
[[scenario]]
name = "healthy"
failure_rate = 0.02
[[scenario]]
name = "outage"
fault_rounds = 40
[[policy]]
name = "none"
[[policy]]
name = "three"
tries = [3]
[grid]
backoff_cap = [4, 64]
[[claim]]
text = "three tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["none", "three"]
at = {backoff_cap = 4}
relation = "<"
"""

PRECISE: Final = FIXED.replace(
    "replications = 60",
    '[precision]\nmetric = ["window_rate", "dropped"]\nrelative = 0.05\nabsolute = 0.3\n'
    "min = 20\nmax = 80",
)

EXPERIMENTS: Final = {"fixed": FIXED, "precise": PRECISE}
N_STAGES: Final = {"fixed": 1, "precise": 3}


def merge(text: str, out: Path) -> mc.Results:
    return mc.merge(write(out.parent, text), out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give a plain run of each experiment, not to be changed."""
    made = {}
    for name, text in EXPERIMENTS.items():
        made[name] = tmp_path_factory.mktemp(name) / "out"
        run(text, made[name])
    return made


# The same results ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_three_parts_one_after_another_are_the_whole(
    tmp_path: Path, whole: dict[str, Path], name: str, order: tuple[int, ...]
) -> None:
    out = tmp_path / "out"
    for _ in range(N_STAGES[name]):
        for k in order:
            run(EXPERIMENTS[name], out, shard=(k, 3))
    merge(EXPERIMENTS[name], out)
    assert_same_results(out, whole[name])
    assert not (out / "rejected").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_three_parts_at_the_same_time_are_the_whole(
    tmp_path: Path, whole: dict[str, Path], name: str
) -> None:
    out = tmp_path / "out"
    write(tmp_path, EXPERIMENTS[name])
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            mc.run(tmp_path / "small.toml", out, shard=(k, 3), jobs=1)
        except BaseException as error:
            errors.append(error)

    for _ in range(N_STAGES[name]):
        threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    merge(EXPERIMENTS[name], out)
    assert_same_results(out, whole[name])
    assert not (out / "rejected").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_plain_run_finishes_what_parts_have_begun(
    tmp_path: Path, whole: dict[str, Path], name: str
) -> None:
    out = tmp_path / "out"
    run(EXPERIMENTS[name], out, shard=(2, 3))
    before = {path.name for path in store.shard_paths(out)}
    run(EXPERIMENTS[name], out)
    assert before <= {path.name for path in store.shard_paths(out)}
    assert_same_results(out, whole[name])


def test_parts_finish_what_a_plain_run_has_begun(
    tmp_path: Path, whole: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard = store.write_shard
    count = 0

    def interrupted(*arguments: Any) -> None:
        nonlocal count
        write_shard(*arguments)
        count += 1
        if count == 10:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(store, "write_shard", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(FIXED, out)
    monkeypatch.undo()
    for k in (1, 2):
        run(FIXED, out, shard=(k, 2))
    merge(FIXED, out)
    assert_same_results(out, whole["fixed"])
    assert not (out / "rejected").exists()


def test_parts_add_replications_to_a_finished_run(tmp_path: Path, whole: dict[str, Path]) -> None:
    out = Path(shutil.copytree(whole["fixed"], tmp_path / "out"))
    before = {path.name for path in store.shard_paths(out)}
    more = FIXED.replace("replications = 60", "replications = 100")
    for k in (2, 1):
        run(more, out, shard=(k, 2))
    assert not mc.load(out).complete
    merge(more, out)
    assert before <= {path.name for path in store.shard_paths(out)}
    run(more, tmp_path / "more")
    assert_same_results(out, tmp_path / "more")


def test_more_parts_than_tasks_are_the_whole_too(tmp_path: Path) -> None:
    text = 'title = "one"\nreplications = 3\n[fixed]\nrounds = 50\n'
    out = tmp_path / "out"
    for k in range(1, 8):
        run(text, out, shard=(k, 7))
    merge(text, out)
    run(text, tmp_path / "whole")
    assert_same_results(out, tmp_path / "whole")


# What each part does ------------------------------------------------------------------------------


def test_each_part_does_its_share_whatever_is_there(tmp_path: Path) -> None:
    """The first has the same rows alone and after the others."""

    def rows_of(out: Path) -> set[tuple[int, int]]:
        return set(mc.load(out).scan().select("cell", "replication").collect().iter_rows())

    alone, after = tmp_path / "alone", tmp_path / "after"
    run(FIXED, alone, shard=(1, 3))
    first = rows_of(alone)
    run(FIXED, after, shard=(2, 3))
    run(FIXED, after, shard=(3, 3))
    others = rows_of(after)
    assert first.isdisjoint(others)
    assert first | others == {(cell, r) for cell in range(8) for r in range(60)}
    run(FIXED, after, shard=(1, 3))
    assert rows_of(after) == first | others
    sizes = sorted(Counter(len(chunk) for chunk in (first, others)))
    assert sizes[0] > 480 / 3 * 0.7


def test_a_part_writes_shards_and_a_manifest_and_no_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = run(FIXED, out, shard=(1, 3))
    got = {path.name for path in out.iterdir()}
    expected = {"manifest.json", "replications"}
    assert got == expected
    n = mc.load(out).replications.height
    assert told == [
        f"{out}: part 1 of 3 of replications 0 .. 59 is done ({n} new rows), "
        f"{480 - n} rows of other parts are missing"
    ]
    assert not mc.load(out).complete


def test_a_part_started_again_makes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FIXED, out, shard=(1, 3))
    before = snapshot(out)
    told = run(FIXED, out, shard=(1, 3))
    assert "(0 new rows)" in told[0]
    assert snapshot(out) == before


def test_the_next_stage_waits_for_all_parts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(3):
        run(PRECISE, out, shard=(1, 2))
    reached = mc.load(out).scan().select(pl.col("replication").max()).collect().item()
    assert reached < 20
    told = run(PRECISE, out, shard=(2, 2))
    assert told[-1].endswith("and so are all others")
    told = run(PRECISE, out, shard=(2, 2))
    assert told[0].startswith("20 replications: ")
    assert "of replications 20 .. 39 is done" in told[-1]


def test_when_all_rows_are_there_a_part_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for k in (1, 2):
        run(FIXED, out, shard=(k, 2))
    told = run(FIXED, out, shard=(1, 2))
    assert told == [f"{out}: all rows are there: retrystorm merge makes the tables"]
    merge(FIXED, out)
    before = snapshot(out)
    told = run(FIXED, out, shard=(1, 2))
    assert told == [f"{out} is finished: nothing to do (--force starts afresh)"]
    assert snapshot(out) == before


def test_many_parts_and_stages_make_at_most_about_a_thousand_shards() -> None:
    cell = mc.Cell()
    for n_cells in (18, 1000):
        blocks = simulation.plan_blocks(dict.fromkeys(range(n_cells), cell), "philox")
        stages = [1000 * 2**j for j in range(7)]
        n_tasks = 0
        for before, n in zip([0, *stages], stages, strict=False):
            parts = [simulation.Task(block.ids, before, n) for block in blocks]
            n_tasks += len(simulation.cut(parts, n_cells * stages[-1], n_parts=500))
        assert n_tasks <= 1000


# Merging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_merge_refuses_to_simulate_and_names_what_is_missing(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    run(EXPERIMENTS[name], out, shard=(1, 2))
    before = snapshot(out)
    with pytest.raises(FolderError, match="rows are missing: replications ") as caught:
        merge(EXPERIMENTS[name], out)
    n = 480 if name == "fixed" else 160
    n_missing = n - mc.load(out).replications.height
    assert str(caught.value).startswith(f"{out}: {n_missing} of {n} rows are missing")
    assert 'of 8 cells (scenario "healthy", policy "none", backoff_cap 4; ' in str(caught.value)
    assert "; and 5 more)" in str(caught.value)
    assert snapshot(out) == before


def test_merge_names_a_single_shard_that_is_gone(tmp_path: Path, whole: dict[str, Path]) -> None:
    out = Path(shutil.copytree(whole["fixed"], tmp_path / "out"))
    path = store.shard_paths(out)[3]
    shard = store.read_shard(path)
    path.unlink()
    with pytest.raises(FolderError, match=f"replications {shard.start} .. {shard.stop - 1} of"):
        merge(FIXED, out)


def test_merge_does_not_take_a_damaged_shard(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for k in (1, 2):
        run(FIXED, out, shard=(k, 2))
    path = store.shard_paths(out)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(FolderError, match="rows are missing"):
        merge(FIXED, out)
    for k in (1, 2):
        run(FIXED, out, shard=(k, 2))
    assert path.read_bytes() == content
    merge(FIXED, out)


def test_merge_of_a_finished_run_touches_no_file(tmp_path: Path, whole: dict[str, Path]) -> None:
    out = Path(shutil.copytree(whole["fixed"], tmp_path / "out"))
    before = snapshot(out)
    merge(FIXED, out)
    assert snapshot(out) == before


def test_merge_without_a_folder_makes_none(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="no results here"):
        merge(FIXED, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_experiment_is_refused_by_parts_and_by_merge(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FIXED, out, shard=(1, 2))
    before = snapshot(out)
    other = FIXED.replace("rounds = 300", "rounds = 301")
    with pytest.raises(FolderError, match="another experiment"):
        run(other, out, shard=(2, 2))
    with pytest.raises(FolderError, match="another experiment"):
        merge(other, out)
    assert snapshot(out) == before


# Locks --------------------------------------------------------------------------------------------


def test_other_parts_of_the_same_number_may_be_at_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with store.held(out, print, (2, 3)), store.held(out, print, (3, 3)):
        run(FIXED, out, shard=(1, 3))
    assert not list(out.glob(".lock*"))


@pytest.mark.parametrize("held", [None, (1, 3), (2, 4), (2, 13)])
def test_the_same_part_and_other_divisions_and_a_plain_run_are_kept_out(
    tmp_path: Path, held: tuple[int, int] | None
) -> None:
    out = tmp_path / "out"
    with store.held(out, print, held):
        before = {path.name for path in out.iterdir()}
        with pytest.raises(FolderError, match=f"in use by process {os.getpid()} "):
            run(FIXED, out, shard=(1, 3))
        assert {path.name for path in out.iterdir()} == before


def test_a_plain_run_and_merge_are_kept_out_by_a_part(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FIXED, out, shard=(1, 3))
    with store.held(out, print, (2, 3)):
        before = snapshot(out)
        for start in (run, merge):
            with pytest.raises(FolderError, match="in use by process"):
                start(FIXED, out)
        assert snapshot(out) == before


@pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")
def test_the_lock_of_a_part_that_is_gone_is_taken_over(
    tmp_path: Path, whole: dict[str, Path]
) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    out = tmp_path / "out"
    for options in ({"shard": (1, 3)}, {"shard": (1, 2)}, {}):
        with store.held(out, print, (1, 3)):
            content = json.loads((out / ".lock-1-of-3").read_text("utf-8"))
        (out / ".lock-1-of-3").write_text(json.dumps(content | {"pid": process.pid}), "utf-8")
        told = run(FIXED, out, **options)
        assert told[0] == f"{out}: process {process.pid}, which was at work here, is gone"
        assert not list(out.glob(".lock*"))
    assert_same_results(out, whole["fixed"])


def test_a_part_leaves_alone_what_another_is_writing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(FIXED, out, shard=(1, 2))
    (out / ".0123456789abcdef.partial").write_bytes(b"half")
    run(FIXED, out, shard=(2, 2))
    assert (out / ".0123456789abcdef.partial").exists()
    merge(FIXED, out)
    assert not (out / ".0123456789abcdef.partial").exists()


# The command line ---------------------------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "/",
        "1/",
        "/3",
        "0/3",
        "4/3",
        "-1/3",
        "1/0",
        "1.5/3",
        "a/b",
        "1/2/3",
        "²/3",
        "1/1" + 5000 * "0",
    ],
)
def test_what_is_no_part_is_one_message_and_nothing_is_written(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, FIXED)
    out = tmp_path / "out"
    code, stdout, err = invoke("run", str(file), "--out", str(out), f"--shard={text}")
    assert (code, stdout) == (2, "")
    shown = text if len(text) < 50 else f"{text[:40]}..."
    assert err == f"--shard: must be K/N with whole numbers 1 <= K <= N < 10^9, got {shown!r}\n"
    assert not out.exists()


def test_a_part_and_force_exclude_each_other(tmp_path: Path) -> None:
    file, out = write(tmp_path, FIXED), tmp_path / "out"
    code, _, err = invoke("run", str(file), "--out", str(out), "--shard", "1/2", "--force")
    assert code == 2
    assert err.startswith("--shard and --force exclude each other")
    assert not out.exists()
    with pytest.raises(ValueError, match="shard and force exclude each other"):
        run(FIXED, out, shard=(1, 2), force=True)
    for wrong in [(0, 2), (3, 2)]:
        with pytest.raises(ValueError, match="1 <= K <= N"):
            run(FIXED, out, shard=wrong)


def test_parts_print_nothing_and_merge_prints_the_results(
    tmp_path: Path, whole: dict[str, Path]
) -> None:
    file, out = str(write(tmp_path, FIXED)), str(tmp_path / "out")
    for k in (1, 2):
        code, stdout, err = invoke("run", file, "--out", out, "--shard", f"{k}/2")
        assert (code, stdout) == (0, "")
        assert f"part {k} of 2" in err
    code, stdout, err = invoke("merge", file, "--out", out)
    assert (code, err) == (0, "")
    # a plain run's results in the same place: how a line wraps depends on the name of the folder
    shutil.rmtree(out)
    shutil.copytree(whole["fixed"], out)
    expected = invoke("run", file, "--out", out)[1]
    assert stdout == expected


def test_merge_with_missing_rows_is_one_message(tmp_path: Path) -> None:
    file, out = str(write(tmp_path, FIXED)), str(tmp_path / "out")
    invoke("run", file, "--out", out, "--shard", "1/2")
    code, stdout, err = invoke("merge", file, "--out", out)
    assert (code, stdout) == (2, "")
    assert "rows are missing" in err
    assert len(err.splitlines()) == 1
