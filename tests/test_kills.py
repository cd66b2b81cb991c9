"""Stopped from outside: kills and signals at any moment, a full disk, and what the next run makes.

The same command, started again, ends with the rows and tables of a run that nobody stopped.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from folders import assert_same_results, run, snapshot, write
from processes import Running

import mc
from mc import store

resource = pytest.importorskip("resource", reason="signals and limits of POSIX")

# With one thread a second of rows, and one of tables, see `processes`.
FIXED: Final = """
title = "many"
replications = 200
[fixed]
rounds = 400
arrivals_per_second = 120
capacity = 2
fault_start = 6
fault_rounds = 60
[[scenario]]
name = "outage"
[[scenario]]
name = "degradation"
fault_capacity = 1
[[policy]]
name = "none"
[[policy]]
name = "nine"
tries = [3, 3]
[grid]
budget = [0.1, 0.3]
backoff_cap = [8, 32]
[[claim]]
text = "nine tries make more calls"
scenario = "outage"
metric = "calls"
policies = ["none", "nine"]
at = {budget = 0.3, backoff_cap = 8}
relation = "<"
[[published]]
scenario = "outage"
policy = "nine"
at = {budget = 0.3, backoff_cap = 8}
multiplier = 1.25
"""

# The same in three stages, of which the last is not needed everywhere.
PRECISE: Final = FIXED.replace(
    "replications = 200",
    '[precision]\nmetric = ["window_rate", "dropped"]\nrelative = 0.02\nabsolute = 2\n'
    "min = 50\nmax = 200",
)

EXPERIMENTS: Final = {"fixed": FIXED, "precise": PRECISE}

SAVED: Final = "stopped; what was done is saved: run the same command again to go on"

Begin = Callable[..., Running]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give a run of each experiment that nobody stopped, not to be changed."""
    made = {}
    for name, text in EXPERIMENTS.items():
        made[name] = tmp_path_factory.mktemp(name) / "out"
        run(text, made[name])
    return made


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start runs that do not outlive the test."""
    started: list[Running] = []

    def start(text: str, *options: str, out: str = "out") -> Running:
        file = str(write(tmp_path, text))
        started.append(Running(tmp_path / out, "run", file, "--jobs", "1", *options))
        return started[-1]

    yield start
    for running in started:
        if running.is_alive:
            running.stop(signal.SIGKILL)


def n_rows(out: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in store.shard_paths(out))


def assert_nothing_half_done(out: Path) -> None:
    """No shard is damaged, and nothing is left of files in the making."""
    for path in store.shard_paths(out):
        store.read_shard(path)
    assert not list(out.rglob("*.partial"))
    assert not list(out.glob(".lock*"))
    assert not (out / "rejected").exists()


def duration(begin: Begin, text: str) -> float:
    """Time a run from the moment at which it takes its folder, in seconds."""
    running = begin(text, out="timed")
    running.wait_for_lock()
    started = time.monotonic()
    code, _, err = running.end()
    assert code == 0, err
    return time.monotonic() - started


# Kills --------------------------------------------------------------------------------------------


def test_a_run_that_is_killed_again_and_again_ends_with_the_results_of_one_that_was_not(
    tmp_path: Path, whole: dict[str, Path], begin: Begin
) -> None:
    """While rows are made, before the first of the tables is written, and after it."""
    out = tmp_path / "out"
    generator = random.Random(4)
    moments: list[Callable[[Running], None]] = [
        lambda running: running.wait_for_shards(generator.randint(1, 20)),
        lambda running: running.wait_until(lambda: n_rows(out) == n_rows(whole["fixed"])),
        lambda running: running.wait_for_table("summary"),
    ]
    for wait in moments:
        before = snapshot(out / "replications")
        running = begin(FIXED)
        wait(running)
        code, stdout, err = running.stop(signal.SIGKILL)
        assert (code, stdout) == (-signal.SIGKILL, ""), err
        assert before.items() <= snapshot(out / "replications").items()
        for path in store.shard_paths(out):
            store.read_shard(path)
    assert not mc.load(out).complete
    before = snapshot(out / "replications")
    run(FIXED, out)
    assert snapshot(out / "replications") == before
    assert_same_results(out, whole["fixed"])
    assert_nothing_half_done(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_killed_at_twenty_random_moments_ends_with_the_results_of_one_that_was_not(
    tmp_path: Path, whole: dict[str, Path], begin: Begin, name: str
) -> None:
    """While rows are made or tables, each of which a process begins after it took the folder.

    A run that was faster is begun anew in another folder.
    """
    seconds = duration(begin, EXPERIMENTS[name])
    generator = random.Random(20)
    n_killed, n_finished, n_in_tables = 0, 0, 0
    while n_killed < 20 or n_in_tables == 0:
        out = tmp_path / f"out{n_finished}"
        running = begin(EXPERIMENTS[name], out=out.name)
        running.wait_for_lock()
        only_tables_are_missing = n_rows(out) == n_rows(whole[name])
        running.let_go()
        try:
            running.process.wait(generator.uniform(0, 0.2 * seconds))
        except subprocess.TimeoutExpired:
            code, _, err = running.stop(signal.SIGKILL)  # it may have printed its results already
            assert code == -signal.SIGKILL, err
            n_killed += 1
            n_in_tables += only_tables_are_missing
        else:
            assert running.end()[0] == 0
            n_finished += 1
            assert_same_results(out, whole[name])
    assert n_in_tables < n_killed
    run(EXPERIMENTS[name], out)
    assert_same_results(out, whole[name])
    assert_nothing_half_done(out)


def test_a_part_that_is_killed_and_begun_anew_makes_no_difference(
    tmp_path: Path, whole: dict[str, Path], begin: Begin
) -> None:
    """Of three parts that are at work at once, in the first of three stages."""
    out = tmp_path / "out"
    parts = [begin(PRECISE, "--shard", f"{k}/3") for k in (1, 2, 3)]
    victim = parts.pop(1)
    victim.wait_for_lock()
    victim.wait_for_shards(random.Random(3).randint(1, 6))
    code, _, err = victim.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL, err
    for part in parts:
        part.let_go()
    for part in parts:
        code, stdout, err = part.end()
        assert (code, stdout) == (0, ""), err
    assert 0 < n_rows(out) < n_rows(whole["precise"])
    told = run(PRECISE, out, shard=(2, 3))
    assert told[0] == f"{out}: process {victim.process.pid}, which was at work here, is gone"
    while n_rows(out) < n_rows(whole["precise"]):  # the stages that follow
        for k in (1, 2, 3):
            run(PRECISE, out, shard=(k, 3))
    mc.merge(tmp_path / "small.toml", out)
    assert_same_results(out, whole["precise"])
    assert_nothing_half_done(out)


def test_two_runs_in_one_folder_at_once_count_no_row_twice(
    tmp_path: Path, whole: dict[str, Path], begin: Begin
) -> None:
    """The second is refused, also while the first sleeps."""
    first = begin(FIXED)
    first.wait_for_shards(3)
    first.process.send_signal(signal.SIGSTOP)
    code, _, err = begin(FIXED).end()
    first.process.send_signal(signal.SIGCONT)
    assert code == 2, err
    assert re.search(rf": in use by process {first.process.pid} on .*\n$", err)
    code, _, err = first.end()
    assert code == 0, err
    assert_same_results(tmp_path / "out", whole["fixed"])


# Signals ------------------------------------------------------------------------------------------


def test_an_interrupted_run_says_so_and_the_next_goes_on_from_there(
    tmp_path: Path, whole: dict[str, Path], begin: Begin
) -> None:
    """Ctrl-C while rows are made, SIGTERM while tables are."""
    out = tmp_path / "out"
    for signum in (signal.SIGINT, signal.SIGTERM):
        before = snapshot(out / "replications")
        running = begin(FIXED)
        if signum == signal.SIGINT:
            running.wait_for_shards(2)
        else:
            running.wait_for_table("summary")
        code, stdout, err = running.stop(signum)
        assert (code, stdout) == (128 + signum, ""), err
        assert err.splitlines()[-1] == SAVED
        assert "Traceback" not in err
        assert before.items() <= snapshot(out / "replications").items()
        assert_nothing_half_done(out)
        assert not mc.load(out).complete
    before = snapshot(out / "replications")
    run(FIXED, out)
    assert snapshot(out / "replications") == before
    assert_same_results(out, whole["fixed"])


@pytest.mark.slow
def test_signals_at_random_moments_end_with_a_message_and_lose_nothing(
    tmp_path: Path, whole: dict[str, Path], begin: Begin
) -> None:
    """While rows are made or tables, or when the run is over and prints."""
    seconds = duration(begin, FIXED)
    generator = random.Random(10)
    n_stopped, n_finished = 0, 0
    while n_stopped < 20:
        out = tmp_path / f"out{n_finished}"
        before = snapshot(out / "replications")
        running = begin(FIXED, out=out.name)
        running.wait_for_lock()
        running.let_go()
        try:
            running.process.wait(generator.uniform(0, 0.3 * seconds))
        except subprocess.TimeoutExpired:
            signum = generator.choice([signal.SIGINT, signal.SIGTERM])
            code, stdout, err = running.stop(signum)
        else:
            code, stdout, err = running.end()
        assert before.items() <= snapshot(out / "replications").items()
        assert_nothing_half_done(out)
        if mc.load(out).complete:
            assert_same_results(out, whole["fixed"])
            n_finished += 1
        else:
            assert (code, stdout) == (128 + signum, ""), err
            assert err.splitlines()[-1] == SAVED
            assert "Traceback" not in err
            n_stopped += 1
    run(FIXED, out)
    assert_same_results(out, whole["fixed"])


# A full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk that has room for half of the shards."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "retrystorm-test", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def assert_told_where(err: str, what: str, out: Path) -> None:
    """The last line names a file of the folder, what is wrong and how to go on."""
    cure = "once that is mended, the same command goes on"
    assert re.fullmatch(rf"{re.escape(str(out))}/\S+: {what}; {cure}", err.splitlines()[-1])
    assert "Traceback" not in err


MOMENTS: Final[dict[str, Callable[[Running], None]]] = {
    "rows": lambda running: running.wait_for_shards(3),
    "tables": lambda running: running.wait_for_table("summary"),
}


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of Linux")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_may_write_no_more_ends_with_a_message_and_the_next_goes_on(
    tmp_path: Path, whole: dict[str, Path], begin: Begin, moment: str
) -> None:
    """A limit on the size of files stands for a quota."""
    out = tmp_path / "out"
    running = begin(FIXED)
    MOMENTS[moment](running)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (1, 1))
    code, stdout, err = running.end()
    assert (code, stdout) == (1, ""), err
    assert_told_where(err, "File too large", out)
    assert_nothing_half_done(out)
    before = snapshot(out / "replications")
    assert before
    run(FIXED, out)
    assert before.items() <= snapshot(out / "replications").items()
    assert_same_results(out, whole["fixed"])


def test_a_full_disk_ends_the_run_and_the_next_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path, whole: dict[str, Path], begin: Begin
) -> None:
    out = small_disk / "out"
    code, stdout, err = begin(FIXED, out="disk/out").end()
    assert (code, stdout) == (1, ""), err
    assert_told_where(err, "No space left on device", out)
    assert_nothing_half_done(out)
    before = snapshot(out / "replications")
    assert before
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    mc.run(tmp_path / "small.toml", out)
    assert before.items() <= snapshot(out / "replications").items()
    assert_same_results(out, whole["fixed"])
