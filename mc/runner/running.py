"""`run` and `merge`: simulate what a results folder lacks, stage by stage, then make its tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Stop
from mc.experiment.messages import N_NAMED, Caution, cell_label
from mc.model.digits import counted
from mc.runner import dask
from mc.runner.dask import Cluster
from mc.runner.resume import Stock, cell_names, may_be_finished, state_of, take_stock
from mc.runner.shards import make_shards
from mc.runner.simulation import Task, n_threads, prepare
from mc.runner.stages import precise_cells
from mc.runner.storage import Ranges, Storage, n_rows
from mc.runner.tables import make_tables, table_columns
from mc.store import FolderError, Results, Shard
from mc.store.threads import do_all

THREADS_PER_PROCESS: Final = 4
"""On a cluster, so many threads count as one process when the work is cut into tasks."""

TRIES_ON_A_CLUSTER: Final = 3
"""A worker may be lost after it has saved a part of a task. Its shard then overlaps that of the
worker that took over; the shorter is put aside, and rows that only it had are simulated again."""


def run(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    shard: tuple[int, int] | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run an experiment file, or finish a run of it that was stopped.

    With ``keep = "histograms"`` in the file rows are counted and not kept; tables are the same.

    Parameters
    ----------
    file : path
        The experiment, see `mc.experiment`.
    out : path, optional
        The results folder, or the URL of one in an object store that fsspec knows:
        ``s3://bucket/sweep``. Default ``results/<name of the file>``.
    replications, seed : int, optional
        Used instead of the file's.
    jobs : int, optional
        Threads; default all cores. Results do not depend on it.
    overrides : mapping of str to str, optional
        Parameters used instead of the file's, as TOML values: ``{"rounds": "8000"}``.
    force : bool
        Start afresh in a folder that holds another experiment, or the same.
    shard : (int, int), optional
        Do only the K-th of N parts of the work, 1 <= K <= N, while other processes do the others;
        with a precision, of the work of the current stage. Only rows are written: `merge`, or a
        run without `shard`, makes the tables.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://host:8786``. Its workers simulate instead of threads
        of this process, and write into the folder, which they must see under the same name.
    progress : callable
        Called with (rows that exist, rows in all) from time to time, from any thread.
    say : callable
        Called with each message for the user, a line without its end.

    Returns
    -------
    Results
        As `mc.load` gives it.

    Raises
    ------
    ExperimentError
        All faults of the file and of what is used instead of it.
    FolderError
        The folder holds something else, is in use, or cannot be written to; or it keeps
        histograms in which a claim or a baseline was not counted. Nothing was changed.
    ClusterError
        Dask is not installed, no scheduler answers, or a worker has another version of this
        program or does not see the folder.
    TypeError, ValueError
        `jobs` is no whole number, or below 1; `shard` is no part, or comes with `force`;
        `scheduler` comes with `jobs` or `shard`.
    KeyboardInterrupt
        On Ctrl-C, after what was under way has been saved.

    Examples
    --------
    >>> import mc
    >>> results = mc.run("experiments/lesson.toml", replications=100, out="results/quick")
    >>> results.summary.filter(cell=7, metric="dropped").select("n", "min", "max").row(0)
    (100, 71.0, 115.0)
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    store.check_run(file, len(experiment.points))
    if shard is not None:
        _check_part(shard, force)
    if scheduler is not None and (jobs is not None or shard is not None):
        raise ValueError("scheduler goes without jobs and shard: its workers do all of the work")
    folder = results_folder(experiment, out)
    jobs = n_threads(jobs)
    for remark in experiment.remarks:
        say(Caution(f"{file}: {remark}"))
    manifest = store.look(folder, any_version=force)
    known: Sequence[Shard] = ()
    if manifest is None and not force and store.shard_paths(folder):
        lost = f"{folder / store.MANIFEST}: lost or damaged"
        say(Caution(f"{lost}; it is made anew from what the rows say"))
    if manifest is not None and not force and may_be_finished(experiment, manifest):
        state = state_of(experiment, manifest, folder)
        if state.finished:
            say(f"{folder} is finished: nothing to do (--force starts afresh)")
            return store.load(folder)
        known = state.stock.shards
    connection = nullcontext() if scheduler is None else dask.connected(scheduler, say)
    with connection as cluster, store.held(folder, say, shard) as token:
        manifest = store.look(folder, any_version=force)  # nobody changes it any more
        state = state_of(experiment, manifest, folder, known, afresh=force)
        job = Job(state.experiment, state.storage, folder, jobs, shard, progress, say)
        if cluster is not None:
            n = max(1, cluster.n_threads)  # none while a worker is begun anew
            job = replace(job, cluster=cluster, jobs=n, token=token)
        if shard is None:
            _run_in(job, state.stock, force)
        else:
            _run_part(job, state.stock, manifest)
    return store.load(folder)


def results_folder(experiment: Experiment, out: str | Path | None) -> Path:
    """The folder that was asked for, or ``results/<name of the file>``.

    Raises
    ------
    FolderError
        The file has no name that a folder could have.
    """
    if out is not None:
        return store.path_of(out)
    if not experiment.name.strip("."):
        raise store.FolderError(f"{experiment.path}: names no results folder; give one with --out")
    return Path("results") / experiment.name


def _check_part(shard: tuple[int, int], force: bool) -> None:
    k, n = shard
    if not 1 <= k <= n:
        raise ValueError(f"shard must be (K, N) with 1 <= K <= N, got {shard!r}")
    if force:
        raise ValueError("shard and force exclude each other: it would remove what others make")


def merge(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Results:
    """Make the tables of a run whose rows all exist; simulate nothing.

    Parameters
    ----------
    file, out, replications, seed, overrides, say
        As for `run`.

    Returns
    -------
    Results
        As `mc.load` gives it.

    Raises
    ------
    ExperimentError
        As for `run`.
    FolderError
        As for `run`; or rows are missing, and the message says which. Nothing was changed.

    Examples
    --------
    Two processes, or machines that see the same folder, make half of the rows each:

    >>> import mc
    >>> for part in ((1, 2), (2, 2)):
    ...     _ = mc.run("experiments/lesson.toml", "results/parts", replications=100, shard=part)
    >>> mc.merge("experiments/lesson.toml", "results/parts", replications=100).complete
    True
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    folder = results_folder(experiment, out)
    manifest = store.look(folder)
    if manifest is None and not store.shard_paths(folder):
        raise FolderError(f"{folder}: no results here, there is nothing to merge")
    state = state_of(experiment, manifest, folder)
    if state.finished:
        say(f"{folder} is finished: nothing to do")
        return store.load(folder)
    with store.held(folder, say):
        manifest = store.look(folder)
        state = state_of(experiment, manifest, folder, state.stock.shards)
        job = Job(state.experiment, state.storage, folder, jobs=0, say=say)
        grow(replace(job, say=lambda message: None), state.stock)  # refuses before any change
        _run_in(job, state.stock)
    return store.load(folder)


# --- one run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a run is to do, and whom it keeps informed.

    Attributes
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    storage : Storage
        What it keeps of its replications.
    folder : Path
        The results folder.
    jobs : int
        Threads, of this process or of the cluster; 0 where nothing may be simulated.
    part : (int, int) or None
        Part K of N of the work of the current stage; None for all of it.
    progress, say : callable
        See `mc.run`.
    cluster : Cluster or None
        Whose workers simulate, in place of threads.
    token : str
        Of the lock of this run.
    """

    experiment: Experiment
    storage: Storage
    folder: Path
    jobs: int
    part: tuple[int, int] | None = None
    progress: Callable[[int, int], None] = lambda done, total: None
    say: Callable[[str], None] = lambda message: None
    cluster: Cluster | None = None
    token: str = ""

    @property
    def most_rows(self) -> int:
        """Rows of the last stage, if no cell stops before."""
        return len(self.experiment.points) * self.experiment.replications

    @property
    def n_processes(self) -> int:
        """How many processes of a few threads share the work."""
        return 1 if self.cluster is None else max(1, self.jobs // THREADS_PER_PROCESS)

    def take_stock(self, known: Sequence[Shard] = ()) -> Stock:
        """Find out which shards exist, see `resume.take_stock`."""
        return take_stock(self.folder, self.storage, self.experiment.replications, known)


def _run_in(job: Job, stock: Stock, force: bool = False) -> None:
    """Simulate what is missing and make the tables, in a folder that no other run can enter.

    The manifest comes first: from then on the folder is known as this experiment's, and the same
    command can go on wherever it is killed.
    """
    started = time.monotonic()  # a clock may be set back meanwhile
    experiment, folder = job.experiment, job.folder
    manifest = _new_manifest(experiment)
    store.write_manifest(folder, manifest)
    if force:
        store.clear(folder)
    store.make_ready(folder, experiment.keep)
    hashes: dict[str, str] = {}
    about = manifest["columns"]
    by_number, numbers = job.storage.cells, [point.cell for point in experiment.points]
    in_file_order = by_number[np.searchsorted(by_number["cell"].to_numpy(), numbers)]

    def write_cells(cells: pl.DataFrame) -> None:
        hashes["cells"] = store.write_table(folder, "cells", cells, about["cells"])

    write_cells(in_file_order)
    _put_aside(job, stock.faults)
    grown = grow(
        job,
        Stock(stock.shards, {}),
        lambda stops: write_cells(experiments.with_stops(in_file_order, stops)),
    )
    assert grown is not None, "all of it was asked for"
    stops, stock = grown[0], _without_rows_beyond(job, *grown)
    tables = make_tables(experiment, job.storage, stops, stock.shards, job.jobs or None)
    for name, table in tables:
        hashes[name] = store.write_table(folder, name, table, about[name])
    finished = {
        "complete": True,
        "replications": max(stop.n for stop in stops.values()),
        "n_rows": sum(stop.n for stop in stops.values()),
        "seconds": round(time.monotonic() - started, 3),
        "jobs": job.jobs,
        "tables": hashes,
        "shards": {shard.path.name: shard.n_bytes for shard in stock.shards},
    }
    store.write_manifest(folder, manifest | finished)


def _run_part(job: Job, stock: Stock, manifest: Mapping[str, Any] | None) -> None:
    """Simulate one part of what is missing, while other processes simulate the others.

    All write the same manifest, if it does not exist yet. Damaged files are left where they are;
    their rows count as missing.
    """
    experiment, folder = job.experiment, job.folder
    if manifest is None or manifest["complete"] or manifest["experiment"] != experiment.source:
        store.write_manifest(folder, _new_manifest(experiment))
    store.make_ready(folder, experiment.keep, alone=False)
    if grow(job, stock) is not None:
        job.say(f"{folder}: all rows are there: retrystorm merge makes the tables")


def _new_manifest(experiment: Experiment) -> dict[str, Any]:
    names = cell_names(experiment.points)
    return store.new_manifest(experiment, names, table_columns(experiment))


def _without_rows_beyond(job: Job, stops: Mapping[int, Stop], stock: Stock) -> Stock:
    """Put aside shards that reach beyond the stop of one of their cells.

    An earlier run may have needed more replications, when its cells were grouped otherwise.
    """
    beyond = {
        shard.path: f"{shard.path}: holds more replications than are asked for"
        for shard in stock.shards
        if any(shard.stop > stops[number].n for number in shard.cells)
    }
    if not beyond:
        return stock
    _put_aside(job, beyond)
    stock = job.take_stock(stock.shards)
    wanted: dict[tuple[int, int], list[int]] = {}
    for number, stop in stops.items():
        wanted.setdefault((0, stop.n), []).append(number)
    return _fill(job, stock, wanted, 0, begun=False)


def _put_aside(job: Job, faults: Mapping[Path, str]) -> None:
    """Move files that are no shards of this run, or overlap, out of the folder of the shards."""
    for path, fault in faults.items():
        aside = store.put_aside(job.folder, path)
        job.say(Caution(f"{fault}; put aside in {aside}, its rows are made anew"))


# --- stages --------------------------------------------------------------------------------------


def grow(
    job: Job, stock: Stock, tell: Callable[[dict[int, Stop]], None] = lambda stops: None
) -> tuple[dict[int, Stop], Stock] | None:
    """Simulate what is missing of each stage, until every cell has stopped.

    Returns
    -------
    tuple of (dict of int to Stop, Stock) or None
        Where each cell has stopped, and the shards that exist now; None after a part of a stage.
    """
    experiment = job.experiment
    stops: dict[int, Stop] = {}
    groups = list(experiment.groups)
    begun, before = bool(stock.shards), 0
    for n in experiment.stages:
        numbers = [number for group in groups for number in group]
        missing = stock.missing({(0, n): numbers})
        if missing and job.part is not None:
            _do_part(job, stock, numbers, before, n)
            return None
        if missing:
            n_done = sum(stop.n for stop in stops.values())
            stock = _fill(job, stock, {(0, n): numbers}, n_done, begun)
            begun = False
        precise: set[int] = set()
        if experiment.precision is not None:
            precise = precise_cells(job.storage, stock.shards, numbers, n, experiment.precision)
        last = n == experiment.replications
        for group in groups:
            if last or precise.issuperset(group):
                stops |= {number: _stop(experiment, n, number in precise) for number in group}
        groups = [group for group in groups if group[0] not in stops]
        if experiment.precision is not None:
            tell(stops)
            job.say(_what_stopped(experiment, n, stops))
        if not groups:
            break
        before = n
    return stops, stock


def _stop(experiment: Experiment, n: int, precise: bool) -> Stop:
    if experiment.precision is None:
        return Stop(n, experiments.FIXED)
    return Stop(n, experiments.PRECISION if precise else experiments.MAX)


def _what_stopped(experiment: Experiment, n: int, stops: dict[int, Stop]) -> str:
    """A message on how far the cells are after a stage."""
    n_cells = len(experiment.points)
    short = [number for number, stop in stops.items() if stop.by == experiments.MAX]
    if not short:
        return f"{n:,} replications: {len(stops):,} of {n_cells:,} cells have enough"
    return (
        f"{n:,} replications, and no more: {len(short):,} of {n_cells:,} cells are not as precise "
        f"as asked: {_named(experiment, short)}. (What is 0 nearly always has no interval: such a "
        "metric is not for [precision].)"
    )


def _named(experiment: Experiment, numbers: Collection[int]) -> str:
    """The names of some cells, or of the first of many."""
    wanted = set(numbers)
    chosen = [point for point in experiment.points if point.cell in wanted]
    names = [cell_label(point.scenario, point.policy, point.at) for point in chosen[:N_NAMED]]
    more = len(chosen) - len(names)
    return "; ".join(names) + (f"; and {more:,} more" if more else "")


def _fill(job: Job, stock: Stock, wanted: Ranges, n_done: int, begun: bool) -> Stock:
    """Simulate what is missing of some ranges; return the stock with the new shards.

    `n_done` rows exist beside these ranges, for the progress; `begun` says whether an earlier run
    has left rows, which is worth a message. A job without threads must have nothing to simulate.
    """
    missing = stock.missing(wanted)
    n_all, n_missing = n_rows(wanted), n_rows(missing)
    if not job.jobs:
        gone = sorted({number for numbers in missing.values() for number in numbers})
        ranges = ", ".join(f"{start} .. {stop - 1}" for start, stop in sorted(missing)[:N_NAMED])
        more = f" and {len(missing) - N_NAMED} ranges more" if len(missing) > N_NAMED else ""
        raise FolderError(
            f"{job.folder}: {n_missing} of {n_all} rows are missing: replications {ranges}{more} "
            f"of {counted(len(gone), 'cell')} ({_named(job.experiment, gone)}). Start the parts "
            "that make them once more, or all of it without --shard"
        )
    if begun and n_missing < n_all:
        job.say(
            f"{job.folder}: {n_done + n_all - n_missing} of {n_done + n_all} rows are there, "
            "continuing"
        )
    for _ in range(1 if job.cluster is None else TRIES_ON_A_CLUSTER):
        n_left = n_rows(missing)
        tasks = job.storage.tasks(missing, job.most_rows, job.n_processes)
        _simulate(job, tasks, n_done + n_all - n_left)
        stock = job.take_stock(stock.shards)
        if job.cluster is not None:
            _put_aside(job, stock.faults)
            stock = Stock(stock.shards, {})
        missing = stock.missing(wanted)
        if not missing:
            break
    if missing or stock.faults:
        raise FolderError(
            f"{job.folder}: rows have gone or changed since they were written; "
            "run the same command again"
        )
    return stock


def _do_part(job: Job, stock: Stock, numbers: Sequence[int], before: int, n: int) -> None:
    """Simulate what is missing of every N-th task of a stage.

    The list of tasks depends on the experiment alone, so all parts see the same list, whatever the
    others have saved in the meantime.
    """
    assert job.part is not None
    k, n_parts = job.part
    tasks = job.storage.tasks({(before, n): numbers}, job.most_rows, n_parts)
    own = tasks[k - 1 :: n_parts]
    left = [
        Task(tuple(ids), *gap)
        for task in own
        for gap, ids in stock.missing({task.range: task.ids}).items()
    ]
    n_own, n_new = (sum(task.n_rows for task in some) for some in (own, left))
    _simulate(job, left, n_own - n_new)
    n_left = n_rows(job.take_stock(stock.shards).missing({(0, n): numbers}))
    others = f"{n_left} rows of other parts are missing" if n_left else "and so are all others"
    job.say(
        f"{job.folder}: part {k} of {n_parts} of replications {before} .. {n - 1} is done "
        f"({n_new} new rows), {others}"
    )


def _simulate(job: Job, tasks: Sequence[Task], n_done: int) -> None:
    """Do tasks, on threads or on the cluster, and write each as a shard."""
    total = n_done + sum(task.n_rows for task in tasks)
    lock = threading.Lock()

    def add(n_rows: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n_rows
        job.progress(n_done, total)

    job.progress(n_done, total)
    if job.cluster is not None:
        dask.work_on(job.cluster, job.folder, job.storage, job.token, tasks, add)
        return
    ids = {number for task in tasks for number in task.ids}
    prepare((job.storage.parameters[number] for number in ids), job.experiment.generator)
    do_all(
        tasks, job.jobs, lambda task, stop: make_shards(job.folder, job.storage, task, stop, add)
    )
