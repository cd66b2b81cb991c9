"""Results in an object store: the same as on a disk, and as safe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from folders import assert_same_results, write
from typer.testing import CliRunner

import mc
from mc import cli, store
from mc.store import FolderError

fsspec = pytest.importorskip("fsspec", reason="needs the extra cloud")

URL: Final = "memory://bucket/sweep"

SMALL: Final = """
title = "Small"
replications = 300
[fixed]
rounds = 400
fault_start = 4
fault_rounds = 40
tries = [3, 3]
[grid]
budget = ["none", 0.1]
[[claim]]
text = "few are dropped"
metric = "dropped"
relation = "<"
value = 100
policies = ["default"]
"""

PRECISE: Final = (
    SMALL.replace("replications = 300", "").partition("[[claim]]")[0]
    + '[precision]\nmetric = ["calls"]\nrelative = 0.001\nmin = 100\nmax = 400\n'
)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty store in memory, and little patience with others that may have its lock."""
    monkeypatch.setattr("mc.store.lock.BEAT_SECONDS", 0.05)
    monkeypatch.setattr("mc.store.lock.SILENT_SECONDS", 0.3)
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, SMALL.partition("[[claim]]")[0])


def objects(files: Any) -> dict[str, tuple[bytes, Any]]:
    """Content and time of every object."""
    return {name: (item.getvalue(), item.modified) for name, item in files.store.items()}


def test_a_run_puts_the_very_bytes_that_it_writes_to_a_disk(small: Path, memory: Any) -> None:
    results = mc.run(small, URL)
    local = mc.run(small, small.parent / "local")
    got = {
        name.removeprefix("/bucket/sweep/"): content
        for name, (content, _) in objects(memory).items()
        if name.endswith(".parquet")
    }
    expected = {
        path.relative_to(local.folder).as_posix(): path.read_bytes()
        for path in local.folder.rglob("*.parquet")
    }
    assert got == expected
    assert str(results.folder) == URL
    assert results.replications.equals(local.replications)
    assert f"{URL}/.lock".removeprefix("memory:/") not in memory.store


def test_each_file_is_put_once_and_none_is_moved(
    small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []
    plain = type(memory).pipe_file

    def pipe_file(self: Any, path: str, value: bytes, **options: Any) -> None:
        put.append(path)
        plain(self, path, value, **options)

    monkeypatch.setattr(type(memory), "pipe_file", pipe_file)
    monkeypatch.setattr(type(memory), "mv", None)
    mc.run(small, URL)
    shards = [path for path in put if "/replications/" in path]
    assert len(shards) == len(set(shards)) == len(store.shard_paths(store.path_of(URL)))


def test_a_finished_run_started_again_touches_no_object(small: Path, memory: Any) -> None:
    mc.run(small, URL)
    expected = objects(memory)
    told: list[str] = []
    mc.run(small, URL, say=told.append)
    got = objects(memory)
    assert got == expected
    assert told == [f"{URL} is finished: nothing to do (--force starts afresh)"]


def test_a_run_that_was_stopped_is_continued(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard = store.write_shard

    def interrupted(*arguments: Any) -> None:
        write_shard(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(store, "write_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mc.run(small, URL, jobs=1)
    n_done = mc.status(URL).n_done
    assert 0 < n_done < 600
    told: list[str] = []
    results = mc.run(small, URL, say=told.append)
    assert told == [f"{URL}: {n_done} of 600 rows are there, continuing"]
    local = mc.run(small, small.parent / "local")
    assert results.replications.equals(local.replications)
    assert results.summary.equals(local.summary)


def test_stages_of_a_precision_are_those_of_a_local_run(tmp_path: Path) -> None:
    file = write(tmp_path, PRECISE)
    got = mc.run(file, URL)
    expected = mc.run(file, tmp_path / "local")
    assert got.cells.equals(expected.cells)
    assert got.replications.equals(expected.replications)


def test_a_damaged_shard_is_put_aside_and_made_anew(small: Path) -> None:
    results = mc.run(small, URL)
    expected = results.replications
    damaged = store.shard_paths(results.folder)[3]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    found = mc.verify(URL, seconds=0)
    assert found.faults == (f"{damaged}: damaged (its content is not what was written)",)
    with pytest.raises(FolderError, match="damaged"):
        _ = mc.load(URL).replications
    told: list[str] = []
    again = mc.run(small, URL, say=told.append)
    assert told[0].startswith(f"{damaged}: damaged")
    assert again.replications.equals(expected)
    assert mc.status(URL).n_rejected == 1


def test_parts_side_by_side_are_merged(small: Path) -> None:
    for k in (2, 1, 3):
        mc.run(small, URL, shard=(k, 3))
    results = mc.merge(small, URL)
    expected = mc.run(small, small.parent / "local")
    assert results.replications.equals(expected.replications)


def test_force_starts_afresh_and_leaves_nothing_of_the_old_run(small: Path) -> None:
    mc.run(small, URL, replications=500)
    results = mc.run(small, URL, force=True)
    assert results.replications.equals(mc.simulate(_cells(results), 300))


def _cells(results: mc.Results) -> list[mc.Cell]:
    from mc import experiment

    return list(experiment.cells_of(results.cells).values())


def test_status_verify_plan_and_scan_take_a_url(small: Path) -> None:
    assert mc.plan(small, URL).n_done == 0
    results = mc.run(small, URL)
    status = mc.status(URL)
    assert (status.n_done, status.n_missing, status.complete) == (600, 0, True)
    assert status.n_bytes == sum(results.manifest["shards"].values())
    found = mc.verify(URL, all_rows=True)
    assert found.ok
    assert found.n_checked == 600
    assert mc.plan(small, URL).finished
    lazy = mc.load(URL).scan().filter(pl.col("cell").is_in([1]), pl.col("replication") < 20)
    got = lazy.select("replication", "calls").collect().sort("replication")
    expected = results.replications.filter(pl.col("cell") == 1)["replication", "calls"][:20]
    assert got.equals(expected)


# --- the lock ------------------------------------------------------------------------------------


def test_a_second_run_is_told_who_is_at_work(
    small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mc.store.lock.SILENT_SECONDS", 60.0)  # it ends with the first sign
    folder = store.path_of(URL)
    with store.held(folder, lambda message: None):
        expected = objects(memory).keys()
        with pytest.raises(FolderError, match=f"{URL}: in use by process"):
            mc.run(small, URL)
        assert objects(memory).keys() == expected
        holder = mc.store.lock.holder(folder)
        assert holder is not None
        assert (holder.pid, holder.alive) == (os.getpid(), None)
    assert not memory.store


def test_a_sign_of_life_that_takes_long_does_not_bring_the_lock_back(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, under_way = type(memory).pipe_file, threading.Event()

    def slowly(self: Any, path: str, value: bytes, **options: Any) -> None:
        if b'"00000000"' not in value:
            under_way.set()
            time.sleep(0.2)
        plain(self, path, value, **options)

    monkeypatch.setattr(type(memory), "pipe_file", slowly)
    with store.held(store.path_of(URL), lambda message: None):
        assert under_way.wait(300)
    time.sleep(0.3)
    assert not memory.store


RECORD: Final = {
    **{"pid": 1, "host": "elsewhere", "machine": "another", "started": "2026-12-01"},
    **{"token": "its own", "beat": "00000007"},
}


def test_a_lock_without_a_sign_of_life_is_taken_over(small: Path) -> None:
    (store.path_of(URL) / ".lock").write_bytes(json.dumps(RECORD).encode())
    told: list[str] = []
    assert mc.run(small, URL, say=told.append).complete
    assert told[0] == f"{URL}: waiting 0 s for a sign of life of process 1 on elsewhere"
    assert told[1] == f"{URL}: process 1 on elsewhere, which was at work here, is gone"


def test_a_run_that_has_lost_its_folder_writes_nothing_more(
    small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mc.store.lock.BEAT_SECONDS", 3600.0)  # or a beat could be under way
    folder = store.path_of(URL)

    def lose(done: int, total: int) -> None:
        (folder / ".lock").write_bytes(json.dumps(RECORD).encode())

    with pytest.raises(FolderError, match="process 1 on elsewhere has taken it over"):
        mc.run(small, URL, progress=lose)
    assert json.loads((folder / ".lock").read_bytes()) == RECORD
    assert not (folder / "summary.parquet").exists()


def test_of_two_that_put_their_lock_at_once_the_first_gives_way(
    small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store that cannot put an object only if it is not there."""
    plain = type(memory).pipe_file
    other = json.dumps(RECORD).encode()

    def pipe_file(self: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
        if mode == "create":
            raise ValueError("unknown mode")
        plain(self, path, other if path.endswith(".lock") else value)

    monkeypatch.setattr(type(memory), "pipe_file", pipe_file)
    with pytest.raises(FolderError, match="in use by process 1 on elsewhere"):
        mc.run(small, URL)
    got = {name: item.getvalue() for name, item in memory.store.items()}
    expected = {"/bucket/sweep/.lock": other}
    assert got == expected


# --- trouble -------------------------------------------------------------------------------------


def make_trouble(monkeypatch: pytest.MonkeyPatch, memory: Any, n: int, error: Exception) -> None:
    """Let the store fail the next n requests for the content of shards."""
    cat_file = type(memory).cat_file
    left = [error] * n

    def fail(files: Any, path: str, *arguments: Any, **keywords: Any) -> bytes:
        if "replications/" in path and left:
            raise left.pop()
        content: bytes = cat_file(files, path, *arguments, **keywords)
        return content

    monkeypatch.setattr(type(memory), "cat_file", fail)
    monkeypatch.setattr("mc.store.paths.PATIENCE_SECONDS", (0.0, 0.0, 0.0))


TROUBLES: Final = {
    "404": FileNotFoundError("not there"),
    "500": RuntimeError("An error occurred (InternalError) when calling GetObject"),
}


@pytest.mark.parametrize("code", TROUBLES)
def test_trouble_of_the_store_that_passes_changes_nothing(
    code: str, small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mc.run(small, URL)
    before = objects(memory)
    make_trouble(monkeypatch, memory, 3, TROUBLES[code])
    mc.run(small, URL)
    assert objects(memory) == before


@pytest.mark.parametrize("code", TROUBLES)
def test_trouble_of_the_store_that_stays_stops_the_run_and_puts_nothing_aside(
    code: str, small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mc.run(small, URL)
    before = objects(memory)
    make_trouble(monkeypatch, memory, 10**6, TROUBLES[code])
    result = CliRunner().invoke(cli.app, ["run", str(small), "--out", URL])
    assert result.exit_code == 1
    assert f"{URL}/replications/" in result.stderr
    assert "the same command goes on" in result.stderr
    assert objects(memory) == before


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense://bucket/x", "not the URL of a folder (Protocol not known: nonsense)"),
        ("memory://", "not the URL of a folder (it names none)"),
        ("sftp://host/x", "paramiko"),
        ("memory://bucket/file", "not a folder; give another with --out"),
        ("memory://bucket", "holds something else than results; give another folder with --out"),
    ],
)
def test_a_url_that_will_not_do_is_refused(
    small: Path, memory: Any, url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    memory.pipe_file("/bucket/file", b"mine")
    answer = CliRunner().invoke(cli.app, ["run", str(small), "--out", url])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert {name: item.getvalue() for name, item in memory.store.items()} == {
        "/bucket/file": b"mine"
    }


def test_without_fsspec_a_url_is_refused_and_says_what_to_install(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    answer = CliRunner().invoke(cli.app, ["run", str(small), "--out", "s3://bucket/x"])
    assert answer.exit_code == 2
    assert "pip install 'retrystorm[cloud]'" in answer.stderr
    assert not list(small.parent.glob("s3*"))


class RefusedError(Exception):
    """What the library of a storage raises: no OSError, and of many lines."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RefusedError("no credentials were found\nask your administrator"),
            "no credentials were found",
        ),
        (PermissionError("Forbidden"), "no permission"),
        (FileNotFoundError("The specified bucket does not exist"), "bucket does not exist"),
    ],
)
def test_a_store_that_refuses_the_lock_is_a_message(
    small: Path, memory: Any, error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(type(memory), "pipe_file", refuse)
    answer = CliRunner().invoke(cli.app, ["run", str(small), "--out", URL])
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"{URL}: cannot be written to (")
    assert reason in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_store_that_fails_on_the_way_loses_nothing(
    small: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = type(memory).pipe_file
    left = iter(range(8))

    def pipe_file(self: Any, path: str, value: bytes, **options: Any) -> None:
        if "/replications/" in path and next(left, None) is None:
            raise RefusedError("slow down")
        plain(self, path, value, **options)

    with monkeypatch.context() as broken:
        broken.setattr(type(memory), "pipe_file", pipe_file)
        answer = CliRunner().invoke(cli.app, ["run", str(small), "--out", URL])
    assert answer.exit_code == 1
    assert "slow down; once that is mended, the same command goes on" in answer.stderr
    assert mc.status(URL).n_shards == 8
    assert_same_results_as_local(small)


def assert_same_results_as_local(file: Path) -> None:
    local = mc.run(file, file.parent / "local")
    results = mc.run(file, URL)
    assert results.complete
    for name in ("replications", "cells", "summary", "comparisons", "claims"):
        assert getattr(results, name).equals(getattr(local, name))


# --- users of a disk -----------------------------------------------------------------------------


def test_a_url_of_a_disk_is_a_path(small: Path) -> None:
    folder = small.parent / "by url"
    results = mc.run(small, folder.as_uri().replace("%20", " "))
    got = results.folder
    expected = folder
    assert got == expected
    assert_same_results(folder, mc.run(small, small.parent / "by path").folder)


def test_who_has_a_disk_imports_nothing_of_the_cloud(small: Path) -> None:
    code = (
        "import sys, mc\n"
        f"mc.run({str(small)!r}, {str(small.parent / 'local')!r})\n"
        "print(*sorted({'fsspec', 'distributed', 'dask'} & sys.modules.keys()))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    got = answer.stdout.split()
    expected: list[str] = []
    assert got == expected
