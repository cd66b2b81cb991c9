"""From an experiment file to a results folder: what is missing, the rows, the tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Stop
from mc.model import Column
from mc.runner.again import cell_names, continued, is_finished
from mc.runner.cluster import Cluster, connected
from mc.runner.growing import Job, fill, grow, put_aside
from mc.runner.stock import Stock, take_stock
from mc.runner.tabling import make_tables
from mc.runner.tasks import ROW_COLUMNS, n_threads
from mc.store import FolderError, Results


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

    With ``keep = "histograms"`` in the file rows are counted and not kept: the tables are the same.

    Parameters
    ----------
    file : path
        The experiment, see `mc.experiment`.
    out : path, optional
        The results folder, or a URL of one in an object store, as fsspec knows it:
        ``s3://bucket/sweep``. Default ``results/<name of the file>``.
    replications, seed : int, optional
        In place of the file's.
    jobs : int, optional
        Threads; default all cores. Results do not depend on it.
    overrides : mapping of str to str, optional
        Parameters in place of the file's, as TOML values: ``{"rounds": "8000"}``.
    force : bool
        Start afresh in a folder that holds another experiment, or the same.
    shard : (int, int), optional
        Do only the K-th of N parts of the work, 1 <= K <= N, beside processes that do the others;
        with a precision, of the work of the current stage. Rows are written and no tables:
        `merge` makes them, or a run without `shard`.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://host:8786``: its workers make the rows, in place of
        threads, and write them into the folder, which they must see under the same name.
    progress : callable
        Told (rows that are there, rows in all) from time to time, from any thread.
    say : callable
        Told what the user should know, a line each.

    Returns
    -------
    Results
        As `mc.load` gives it.

    Raises
    ------
    ExperimentError
        All faults of the file, and of what is given in place of it.
    FolderError
        The folder holds something else, is in use, or cannot be written to; or it keeps
        histograms, for which a claim or a baseline was not counted. Nothing was changed.
    ClusterError
        Dask is not installed, no scheduler answers, or a worker has another version of this
        program or does not see the folder.
    TypeError, ValueError
        `jobs` is no whole number, or below 1; `shard` is no part, or is given with `force`;
        `scheduler` is given with `jobs` or `shard`.
    KeyboardInterrupt
        After what was under way has been saved.

    Examples
    --------
    >>> import mc
    >>> results = mc.run("experiments/lesson.toml", replications=100, out="results/quick")
    >>> results.summary.filter(cell=7, metric="dropped").select("n", "min", "max").row(0)
    (100, 71.0, 115.0)
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    if shard is not None:
        _check_part(shard, force)
    if scheduler is not None and (jobs is not None or shard is not None):
        raise ValueError("scheduler goes without jobs and shard: its workers do all of the work")
    folder = results_folder(experiment, out)
    job = Job(experiment, folder, n_threads(jobs), shard, progress, say)
    for remark in experiment.remarks:
        say(f"{file}: {remark}")
    manifest = store.look(folder, any_version=force)
    if not force and manifest is not None and is_finished(experiment, manifest, folder):
        say(f"{folder} is finished: nothing to do (--force starts afresh)")
        return store.load(folder)
    with _engine(scheduler, say) as cluster, store.held(folder, say, shard) as token:
        if cluster is not None:
            job = replace(job, cluster=cluster, jobs=cluster.n_threads, token=token)
        manifest = store.look(folder, any_version=force)  # nobody changes it any more
        if manifest is not None and not force:
            job = replace(job, experiment=continued(experiment, manifest, folder))
        if shard is None:
            _run_in(job, force)
        else:
            _run_part(job, manifest)
    return store.load(folder)


def _engine(
    scheduler: str | None, say: Callable[[str], None]
) -> AbstractContextManager[Cluster | None]:
    """A cluster, or None: the threads of this process."""
    return nullcontext() if scheduler is None else connected(scheduler, say)


def results_folder(experiment: Experiment, out: str | Path | None) -> Path:
    """Where the results go, if nothing else is wished."""
    return store.place(out) if out is not None else Path("results") / experiment.name


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
    """Make the tables of a run whose rows are all there, and simulate nothing.

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
        As for `run`; or rows are missing: it says which. Nothing was changed.

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
    if manifest is None:
        raise FolderError(f"{folder}: no results here, there is nothing to merge")
    if is_finished(experiment, manifest, folder):
        say(f"{folder} is finished: nothing to do")
        return store.load(folder)
    with store.held(folder, say):
        manifest = store.look(folder)
        if manifest is not None:
            experiment = continued(experiment, manifest, folder)
        job = Job(experiment, folder, 0, None, lambda done, total: None, say)
        # refuses before anything is changed
        grow(replace(job, say=lambda message: None), take_stock(experiment, folder), _nobody)
        _run_in(job, force=False)
    return store.load(folder)


def _nobody(stops: Mapping[int, Stop]) -> None:
    """Nobody is told."""


def _run_in(job: Job, force: bool) -> None:
    """Make what is missing in a folder that no other run can enter.

    The manifest comes first: from there on the folder is known as this experiment's, and the same
    command can go on wherever it is killed.
    """
    started = time.time()
    experiment, folder = job.experiment, job.folder
    manifest = _new_manifest(experiment)
    store.write_manifest(folder, manifest)
    if force:
        store.clear(folder)
    store.make_ready(folder, experiment.keep)
    hashes = {"cells": store.write_table(folder, "cells", experiments.cell_table(experiment))}

    def write_cells(stops: Mapping[int, Stop]) -> None:
        cells = experiments.cell_table(experiment, stops)
        hashes["cells"] = store.write_table(folder, "cells", cells)

    stock = take_stock(experiment, folder)
    put_aside(job, stock.faults)
    grown = grow(job, Stock(stock.shards, {}), write_cells)
    assert grown is not None, "all of it was asked for"
    stops, stock = _without_rows_beyond(job, *grown)
    for name, table in make_tables(experiment, stops, stock.shards, job.jobs or None):
        hashes[name] = store.write_table(folder, name, table)
    finished = {
        "complete": True,
        "replications": max(stop.n for stop in stops.values()),
        "n_rows": sum(stop.n for stop in stops.values()),
        "seconds": round(time.time() - started, 3),
        "jobs": job.jobs,
        "tables": hashes,
        "shards": {shard.path.name: shard.n_bytes for shard in stock.shards},
    }
    store.write_manifest(folder, manifest | finished)


def _without_rows_beyond(
    job: Job, stops: dict[int, Stop], stock: Stock
) -> tuple[dict[int, Stop], Stock]:
    """Put aside what is there beyond the stop of a cell.

    An earlier run may have needed more, where its cells were grouped otherwise.
    """
    beyond = {
        shard.path: f"{shard.path}: holds more replications than are asked for"
        for shard in stock.shards
        if any(shard.stop > stops[number].n for number in shard.cells)
    }
    if not beyond:
        return stops, stock
    put_aside(job, beyond)
    stock = take_stock(job.experiment, job.folder)
    wanted: dict[tuple[int, int], list[int]] = {}
    for number, stop in stops.items():
        wanted.setdefault((0, stop.n), []).append(number)
    return stops, fill(job, stock, wanted, 0, begun=False)


def _run_part(job: Job, manifest: Mapping[str, Any] | None) -> None:
    """Make one part of what is missing, beside processes that make the others.

    All write the same manifest, if it is not there yet. What is damaged is left where it is: its
    rows count as missing.
    """
    experiment, folder = job.experiment, job.folder
    if manifest is None or manifest["complete"] or manifest["experiment"] != experiment.source:
        store.write_manifest(folder, _new_manifest(experiment))
    store.make_ready(folder, experiment.keep, alone=False)
    if grow(job, take_stock(experiment, folder), _nobody) is not None:
        job.say(f"{folder}: all rows are there: retrystorm merge makes the tables")


def _new_manifest(experiment: Experiment) -> dict[str, Any]:
    return store.new_manifest(experiment, cell_names(experiment.points), _columns())


def _columns() -> dict[str, dict[str, Column]]:
    """The columns of each table."""
    from mc import statistics  # scipy takes half a second
    from mc.statistics.tallies import HISTOGRAMS_COLUMNS

    return {
        "cells": experiments.CELL_COLUMNS,
        "replications": ROW_COLUMNS,
        "histograms": HISTOGRAMS_COLUMNS,
        "summary": statistics.SUMMARY_COLUMNS,
        "comparisons": statistics.COMPARISONS_COLUMNS,
        "claims": statistics.CLAIMS_COLUMNS,
    }
