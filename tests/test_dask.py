"""Rows made by the workers of a Dask cluster: those of a local run, whatever befalls a dask."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from folders import assert_same_results, write
from typer.testing import CliRunner

import mc
from mc import cli, store
from mc.experiment import read
from mc.runner import ClusterError, dask
from mc.runner.dask import Cluster
from mc.runner.shards import make_shards, storage_of
from mc.runner.simulation import Task
from mc.runner.storage import Storage
from mc.store.threads import StopFlag

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
CommClosedError: Any = pytest.importorskip("distributed.comm").CommClosedError

SMALL: Final = """
title = "Small"
replications = 2000
[fixed]
fault_start = 10
fault_rounds = 100
tries = [3, 3]
[grid]
budget = ["none", 0.1, 0.3]
backoff_cap = [2, 4]
[[claim]]
text = "few are dropped"
metric = "dropped"
relation = "<"
value = 100
policies = ["default"]
"""

PRECISE: Final = (
    SMALL.replace("replications = 2000", "").partition("[[claim]]")[0]
    + '[precision]\nmetric = ["window_rate"]\nrelative = 0.02\nmin = 200\nmax = 800\n'
)


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    """A cluster of two processes of one thread, started by spawn."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",  # else the port of every cluster is the same, in use or not
        scheduler_kwargs={"dashboard": False},
        silence_logs=50,
    ) as running:
        yield running


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path, SMALL.partition("[[claim]]")[0])


def test_rows_are_those_of_a_local_run_though_a_worker_is_killed(small: Path, workers: Any) -> None:
    out = small.parent / "out"
    told: list[tuple[int, int]] = []

    def kill_on_the_way(done: int, total: int) -> None:
        if done and told[-1][0] == 0:
            with distributed.Client(workers.scheduler_address, set_as_default=False) as client:
                victim = next(iter(client.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
        told.append((done, total))

    mc.run(small, out, scheduler=workers.scheduler_address, progress=kill_on_the_way)
    assert told[0] == (0, 12_000)
    assert told[-1] == (12_000, 12_000)
    local = mc.run(small, small.parent / "local")
    assert_same_results(out, local.folder)
    got = sorted(path.name for path in out.rglob("replications/*"))
    expected = sorted(path.name for path in local.folder.rglob("replications/*"))
    assert got == expected


@pytest.fixture
def before_the_first_result(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[int]]]:
    """Do something to the worker that has the first result, before anybody asks for it."""
    real = distributed.as_completed.__next__
    processes: list[int] = []

    def arrange(do: Callable[[int, Callable[[], bool]], None]) -> list[int]:
        def first(self: Any) -> Any:
            future = real(self)
            if not processes:
                (holders,) = future.client.who_has([future]).values()
                ((holder, process),) = future.client.run(os.getpid, workers=list(holders)).items()
                processes.append(process)
                do(process, lambda: holder in future.client.nthreads())
            return future

        monkeypatch.setattr(distributed.as_completed, "__next__", first)
        return processes

    yield arrange
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_a_result_that_is_lost_with_its_worker_is_made_again(
    small: Path, workers: Any, before_the_first_result: Callable[..., list[int]]
) -> None:
    def kill(process: int, is_known: Callable[[], bool]) -> None:
        os.kill(process, signal.SIGKILL)
        while is_known():
            time.sleep(0.001)

    killed = before_the_first_result(kill)
    mc.run(small, small.parent / "out", scheduler=workers.scheduler_address)
    assert killed
    assert_same_results(small.parent / "out", mc.run(small, small.parent / "local").folder)


def test_an_interrupt_ends_a_run_whose_worker_stands_still(
    small: Path,
    workers: Any,
    before_the_first_result: Callable[..., list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stand_still(process: int, is_known: Callable[[], bool]) -> None:
        monkeypatch.setattr(dask, "CONNECT_SECONDS", 0.2)
        os.kill(process, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGINT)

    stopped = before_the_first_result(stand_still)
    with pytest.raises(KeyboardInterrupt):
        mc.run(small, small.parent / "out", scheduler=workers.scheduler_address)
    assert stopped


def test_stages_of_a_precision_are_those_of_a_local_run(tmp_path: Path, workers: Any) -> None:
    file = write(tmp_path, PRECISE)
    mc.run(file, tmp_path / "out", scheduler=workers.scheduler_address)
    assert_same_results(tmp_path / "out", mc.run(file, tmp_path / "local").folder)


def test_the_lesson_draws_are_those_of_a_local_run(tmp_path: Path, workers: Any) -> None:
    text = SMALL.replace('title = "Small"', 'title = "Small"\ngenerator = "lesson"\nseed = 7')
    text = text.replace("[fixed]", '[fixed]\nchain = "flattened"')
    file = write(tmp_path, text.replace("2000", "100").partition("[[claim]]")[0])
    mc.run(file, tmp_path / "out", scheduler=workers.scheduler_address)
    assert_same_results(tmp_path / "out", mc.run(file, tmp_path / "local").folder)


def test_an_interrupt_calls_the_tasks_back_and_keeps_what_is_written(
    small: Path, workers: Any
) -> None:
    out = small.parent / "out"

    def interrupt(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mc.run(small, out, scheduler=workers.scheduler_address, progress=interrupt)
    assert 0 < mc.status(out).n_done < 12_000
    assert not (out / ".lock").exists()
    told: list[str] = []
    mc.run(small, out, scheduler=workers.scheduler_address, say=told.append)
    assert "rows are there, continuing" in told[0]
    assert_same_results(out, mc.run(small, small.parent / "local").folder)


def test_a_worker_with_another_source_is_refused(
    small: Path, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = dask.code_name()
    monkeypatch.setattr(dask, "code_name", lambda: "retrystorm 9.9 (source 0)")
    with pytest.raises(ClusterError) as caught:
        mc.run(small, small.parent / "out", scheduler=workers.scheduler_address)
    assert f"has {here}, this is retrystorm 9.9 (source 0)" in str(caught.value)


def test_a_worker_without_this_program_is_refused(
    small: Path, workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starter() -> Callable[[str, bytes], bytes]:
        def start(expected: str, payload: bytes) -> bytes:
            from mc import a_room_that_is_not_there

            return bytes(a_room_that_is_not_there)

        return start

    monkeypatch.setattr(dask, "_starter", starter)
    with pytest.raises(ClusterError, match="a worker has another retrystorm, or none"):
        mc.run(small, small.parent / "out", scheduler=workers.scheduler_address)


@pytest.mark.parametrize("keep", ["rows", "histograms"])
def test_what_is_sent_is_small(tmp_path: Path, keep: str) -> None:
    """The cells of a task, however many there are: no other cells, and none of the tables."""
    text = f'title = "many"\nkeep = "{keep}"\n[fixed]\ntries = [3, 3]\n[grid]\nbudget = '
    sizes = []
    for n_cells in (100, 2000):
        axis = f"{{from = 0, to = 1, steps = {n_cells}}}\n"
        storage = storage_of(read(write(tmp_path, text + axis)))
        task = Task(tuple(range(100)), 0, 1_000_000)
        sizes.append(len(pickle.dumps((storage.only(task), task))))
    assert max(sizes) < 900 * 100  # a cell has 30 parameters
    assert abs(sizes[1] - sizes[0]) < 2000


# --- on a worker, without a cluster --------------------------------------------------------------


@pytest.fixture
def task() -> Task:
    return Task((0,), 0, 50)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_of(read(write(tmp_path, 'title = "one"\n[fixed]\nrounds = 100\n')))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_task_of_a_run_that_is_not_seen_is_refused(
    out: Path, storage: Storage, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "SHARED_SECONDS", 0.0)
    payload = pickle.dumps((out, storage, task, "token"))
    with pytest.raises(ClusterError, match="must be on storage that all machines share"):
        dask.make_here(dask.code_name(), payload)
    assert not list(out.iterdir())


def test_a_task_done_twice_leaves_one_shard(out: Path, storage: Storage, task: Task) -> None:
    with store.held(out, lambda message: None) as token:
        store.make_ready(out, "rows")
        payload = pickle.dumps((out, storage, task, token))
        for _ in range(2):
            got = pickle.loads(dask.make_here(dask.code_name(), payload))
            expected: tuple[int, list[Task]] = (50, [])
            assert got == expected
    assert len(store.shard_paths(out)) == 1


def test_a_task_of_a_run_that_ends_meanwhile_writes_nothing(
    out: Path, storage: Storage, task: Task
) -> None:
    with store.held(out, lambda message: None) as token:
        store.make_ready(out, "rows")
        run = dask._Run(out, token)
        assert not run.is_set()
    got = make_shards(out, storage, task, run, may_write=lambda: store.is_held(out, token))
    expected = (0, [task])
    assert got == expected
    assert not store.shard_paths(out)
    run.next_look = 0.0
    assert run.is_set()


def test_shards_that_overlap_because_a_worker_was_lost_are_put_aside(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost worker had saved the first half of its task; another did the first two thirds."""
    given: list[list[Task]] = []

    @contextmanager
    def connected(address: str, say: Any) -> Iterator[Cluster]:
        yield Cluster(address, Client())

    class Client:
        def nthreads(self) -> dict[str, int]:
            return {"a": 1}

    def work_on(
        running: Cluster, folder: Path, storage: Storage, token: str, some: Any, progress: Any
    ) -> None:
        given.append(list(some))
        for k, each in enumerate(some):
            n = each.stop - each.start
            pieces = [(each.start, each.stop)]
            if k == 0 and len(given) == 1:
                pieces = [(each.start, each.start + n // 2), (each.start, each.start + 2 * n // 3)]
            if k == 1 and len(given) == 1:
                pieces = [(each.start, each.stop - n // 2), (each.start + n // 3, each.stop)]
            for start, stop in pieces:
                make_shards(folder, storage, Task(each.ids, start, stop), StopFlag())

    monkeypatch.setattr("mc.runner.dask.connected", connected)
    monkeypatch.setattr("mc.runner.dask.work_on", work_on)
    out = small.parent / "out"
    told: list[str] = []
    mc.run(small, out, scheduler="tcp://a:1", say=told.append)
    assert len(given) == 2
    assert sum("holds rows that another shard holds, too" in line for line in told) == 2
    assert_same_results(out, mc.run(small, small.parent / "local").folder)
    assert mc.verify(out, seconds=0).ok


def test_a_run_that_begins_while_its_only_worker_is_begun_anew_waits_for_it(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connected(address: str, say: Any) -> Iterator[Cluster]:
        yield Cluster(address, SimpleNamespace(nthreads=dict))

    def work_on(
        running: Cluster, folder: Path, storage: Storage, token: str, some: Any, progress: Any
    ) -> None:
        for each in some:
            make_shards(folder, storage, each, StopFlag())

    monkeypatch.setattr("mc.runner.dask.connected", connected)
    monkeypatch.setattr("mc.runner.dask.work_on", work_on)
    assert mc.run(small, small.parent / "out", scheduler="tcp://a:1").complete


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scheduler", "nonsense"], "scheduler must be an address like tcp://host:8786"),
        (["--scheduler", "http://127.0.0.1:1"], "scheduler must be an address like"),
        (["--scheduler", ""], "scheduler must be an address like tcp://host:8786, got ''"),
        (["--scheduler", "tcp://127.0.0.1:9"], "no Dask scheduler answers there"),
        (["--scheduler", "tcp://a:1", "--jobs", "2"], "--scheduler goes without --jobs"),
        (["--scheduler", "tcp://a:1", "--shard", "1/2"], "--scheduler goes without --jobs"),
        (["--scheduler", "tcp://a:1", "--dry-run"], "--scheduler goes without --jobs"),
    ],
)
def test_a_scheduler_that_will_not_do_is_refused(
    small: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 0.5)
    out = small.parent / "out"
    answer = CliRunner().invoke(cli.app, ["run", str(small), "--out", str(out), *options])
    assert answer.exit_code == 2
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert not out.exists()


def test_without_dask_it_says_what_to_install(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    answer = CliRunner().invoke(cli.app, ["run", str(small), "--scheduler", "tcp://a:1"])
    assert answer.exit_code == 2
    assert "pip install 'retrystorm[dask]'" in answer.stderr


def test_a_finished_run_needs_no_scheduler(small: Path) -> None:
    mc.run(small, small.parent / "out")
    told: list[str] = []
    mc.run(small, small.parent / "out", scheduler="tcp://a:1", say=told.append)
    assert "nothing to do" in told[0]


def test_python_refuses_jobs_and_shard_beside_a_scheduler(small: Path) -> None:
    for options in ({"jobs": 1}, {"shard": (1, 2)}):
        with pytest.raises(ValueError, match="scheduler goes without jobs and shard"):
            mc.run(small, scheduler="tcp://a:1", **options)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (distributed.CancelledError("key"), "the connection to it is lost"),
        (CommClosedError("in <TCP (closed)>"), "the connection to it is lost"),
        (
            distributed.KilledWorker("key", SimpleNamespace(address="tcp://a:1"), 3),
            "workers died again and again",
        ),
    ],
)
def test_a_cluster_that_fails_on_the_way_can_be_mended(error: Exception, message: str) -> None:
    """An `OSError`: the command line says that the same command goes on."""

    def fail(timeout: float) -> bytes:
        raise error

    future = SimpleNamespace(status="finished", result=fail)
    with pytest.raises(OSError, match=f"scheduler tcp://a:1: {message}"):
        dask._outcome(Cluster("tcp://a:1", None), future)


@pytest.mark.parametrize("answer", [None, b"HTTP/1.0 400 Bad Request\r\n\r\n"])
def test_what_is_no_scheduler_is_not_waited_for(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            with contextlib.ExitStack() as kept, contextlib.suppress(OSError):
                while True:
                    connection = kept.enter_context(server.accept()[0])
                    if answer is not None:
                        connection.recv(1000)
                        connection.sendall(answer)
                        connection.close()

        listener = threading.Thread(target=serve)
        listener.start()
        with (
            pytest.raises(dask.ClusterError, match=f"{address}: no Dask scheduler answers there"),
            dask.connected(address, print),
        ):
            pass
        server.shutdown(socket.SHUT_RDWR)
        listener.join()
