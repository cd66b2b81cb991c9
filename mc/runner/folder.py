"""From an experiment file to a results folder: what is missing, the rows, the tables."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import kernel, store
from mc.experiment import Experiment, Point
from mc.runner.tasks import (
    ROW_COLUMNS,
    Task,
    cut,
    frame,
    lesson_seeds,
    n_threads,
    plan_blocks,
    work,
)
from mc.store import FolderError, Results, Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_AT_ONCE: Final = 500_000
"""Rows that are in memory together when the tables of the results are made: half a gigabyte with
all that is made of them."""


def run(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run an experiment file, or finish a run of it that was stopped.

    Parameters
    ----------
    file : path
        The experiment, see `mc.experiment`.
    out : path, optional
        The results folder; default ``results/<name of the file>``.
    replications, seed : int, optional
        In place of the file's.
    jobs : int, optional
        Threads; default all cores. Results do not depend on it.
    overrides : mapping of str to str, optional
        Parameters in place of the file's, as TOML values: ``{"rounds": "8000"}``.
    force : bool
        Start afresh in a folder that holds another experiment, or the same.
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
        The folder holds something else, is in use, or cannot be written to. Nothing was changed.
    TypeError, ValueError
        `jobs` is no whole number, or below 1.
    KeyboardInterrupt
        After what was under way has been saved.
    """
    experiment = experiments.read(
        file, replications=replications, seed=seed, overrides=overrides or {}
    )
    jobs = n_threads(jobs)
    folder = Path(out) if out is not None else Path("results") / experiment.name
    manifest = store.look(folder, any_version=force)
    if not force and manifest is not None and _is_finished(experiment, manifest, folder):
        say(f"{folder} is finished: nothing to do (--force starts afresh)")
        return store.load(folder)
    with store.held(folder, say):
        manifest = store.look(folder, any_version=force)  # nobody changes it any more
        if manifest is not None and not force:
            experiment = _continue(experiment, manifest, folder)
        _run_in(folder, experiment, jobs, force, progress, say)
    return store.load(folder)


def _run_in(
    folder: Path,
    experiment: Experiment,
    jobs: int,
    force: bool,
    progress: Callable[[int, int], None],
    say: Callable[[str], None],
) -> None:
    """Make what is missing in a folder that no other run can enter.

    The manifest comes first: from there on the folder is known as this experiment's, and the same
    command can go on wherever it is killed.
    """
    started = time.time()
    manifest = store.new_manifest(experiment, _cell_names(experiment.points), _columns())
    store.write_manifest(folder, manifest)
    if force:
        store.clear(folder)
    store.make_ready(folder)
    cells = experiments.cell_table(experiment)
    hashes = {"cells": store.write_table(folder, "cells", cells)}
    stock = _take_stock(experiment, folder)
    for path, fault in stock.faults.items():
        say(f"{fault}; put aside in {store.put_aside(folder, path)}, its rows are made anew")
    n_rows, n_done = manifest["n_rows"], sum(shard.n_rows for shard in stock.shards)
    if 0 < n_done < n_rows:
        say(f"{folder}: {n_done} of {n_rows} rows are there, continuing")
    _simulate_into(folder, experiment, cut(stock.missing), jobs, n_done, progress)

    stock = _take_stock(experiment, folder)
    if stock.missing or stock.faults:
        raise FolderError(
            f"{folder}: rows have gone or changed since they were written; "
            "start the same command again"
        )
    for name, table in _tables(experiment, cells, stock.shards):
        hashes[name] = store.write_table(folder, name, table)
    finished = {
        "complete": True,
        "seconds": round(time.time() - started, 3),
        "jobs": jobs,
        "tables": hashes,
        "shards": {shard.path.name: shard.n_bytes for shard in stock.shards},
    }
    store.write_manifest(folder, manifest | finished)


def _columns() -> dict[str, dict[str, tuple[str, str]]]:
    """For each table the unit and the meaning of its columns."""
    from mc import statistics  # scipy takes half a second

    return {
        "cells": experiments.CELL_COLUMNS,
        "replications": ROW_COLUMNS,
        "summary": statistics.SUMMARY_COLUMNS,
        "comparisons": statistics.COMPARISONS_COLUMNS,
        "claims": statistics.CLAIMS_COLUMNS,
    }


# --- the same experiment again -------------------------------------------------------------------


def _is_finished(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> bool:
    """Whether every file is there as it was written, to the last bit."""
    if not manifest["complete"] or manifest["experiment"] != experiment.source:
        return False
    stock = _take_stock(_continue(experiment, manifest, folder), folder)
    listed = {shard.path.name: shard.n_bytes for shard in stock.shards} == manifest["shards"]
    whole = not stock.faults and not stock.missing
    return listed and whole and store.tables_are_whole(folder, manifest)


def _cell_names(points: Sequence[Point]) -> list[str]:
    """A name of each cell by its number, which says what its rows depend on and what it is called.

    The place on the grid is among the parameters.
    """
    named = {
        point.cell: f"{point.parameters.identity} {point.scenario!r} {point.policy!r}"
        for point in points
    }
    return [named[number] for number in sorted(named)]


def _continue(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> Experiment:
    """Give the cells the numbers they have in the folder; refuse another experiment.

    Cells may be added (they are numbered after the others) and replications; nothing that rows
    depend on may be changed or removed.
    """
    old = manifest["experiment"]
    faults = [
        f"{name} was {old[name]}, is {experiment.source[name]}"
        for name in ("generator", "seed", "seeds")
        if old[name] != experiment.source[name]
    ]
    if old["replications"] > experiment.replications:
        faults.append(f"replications was {old['replications']}, is {experiment.replications}")
    numbers = {name: number for number, name in enumerate(manifest["cells"])}
    names = _cell_names(experiment.points)
    gone = numbers.keys() - set(names)
    if gone:
        faults.append(_what_changed(old, experiment.source) or f"{len(gone)} cells are gone")
    if faults:
        raise FolderError(
            f"{folder}: holds the results of another experiment: {'; '.join(faults)}. "
            "Give another folder with --out, or start afresh with --force"
        )
    free = itertools.count(len(numbers))
    return experiments.renumber(
        experiment, [numbers[name] if name in numbers else next(free) for name in names]
    )


def _what_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Name the parameters, points and values that are in one experiment and not in the other."""

    def flat(source: Mapping[str, Any]) -> set[str]:
        entries = {f"{name} = {value}" for name, value in source["fixed"].items()}
        for axis in ("scenario", "policy"):
            for point in source[axis]:
                chosen = {name: value for name, value in point.items() if name != "name"}
                entries.add(f'{axis} "{point["name"]}" {chosen}')
        for axis in source["grid"]:
            entries |= {f"{axis['name']} = {value} in the grid" for value in axis["values"]}
        if source["design"] is not None:
            entries |= {
                f"{name} = {value} in the design" for name, value in source["design"].items()
            }
        return entries | {f"exclude {condition}" for condition in source["exclude"]}

    removed, added = flat(old) - flat(new), flat(new) - flat(old)
    parts = [f"without {entry}" for entry in sorted(removed)]
    parts += [f"with {entry}" for entry in sorted(added)]
    return "; ".join(parts)


# --- the rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stock:
    """What is there of an experiment and what is not.

    Attributes
    ----------
    shards : list of Shard
        Whole shards of this experiment, no row twice.
    faults : dict of Path to str
        All other files among the shards, and what is wrong with each.
    missing : list of Task
        Blocks and their replications in no shard.
    """

    shards: list[Shard]
    faults: dict[Path, str]
    missing: list[Task]


def _take_stock(experiment: Experiment, folder: Path) -> _Stock:
    """Read every shard of the folder, and find out what is wrong and what is missing."""
    found, faults = [], {}
    for path in store.shard_paths(folder):
        try:
            found.append(store.read_shard(path))
        except FolderError as error:
            faults[path] = str(error)
    n = experiment.replications
    draws = store.draws_name(experiment.generator, experiment.seed, experiment.seeds)
    cells = {point.cell: point.parameters for point in experiment.points}
    identities = {number: cell.identity for number, cell in cells.items()}
    reached = dict.fromkeys(cells, 0)  # up to here nothing is missing, or it stands in `gaps`
    gaps: dict[tuple[int, int], list[int]] = {}

    def go_on(numbers: Iterable[int], start: int, stop: int) -> None:
        for number in numbers:
            if reached[number] < start:
                gaps.setdefault((reached[number], start), []).append(number)
            reached[number] = stop

    def fault_of(shard: Shard) -> str | None:
        known = [identities.get(number) for number in shard.cells]
        if shard.draws != draws or known != list(shard.identities) or shard.stop > n:
            return "belongs to another experiment"
        if any(shard.start < reached[number] for number in shard.cells):
            return "holds rows that another shard holds, too"
        return None

    shards = []
    for shard in sorted(found, key=lambda shard: (shard.start, shard.path)):
        if fault := fault_of(shard):
            faults[shard.path] = f"{shard.path}: {fault}"
        else:
            shards.append(shard)
            go_on(shard.cells, shard.start, shard.stop)
    go_on(cells, n, n)
    missing = [
        Task((block,), start, stop)
        for (start, stop), numbers in gaps.items()
        for block in plan_blocks({i: cells[i] for i in numbers}, experiment.generator)
    ]
    return _Stock(shards, faults, missing)


def _simulate_into(
    folder: Path,
    experiment: Experiment,
    tasks: Sequence[Task],
    jobs: int,
    n_done: int,
    progress: Callable[[int, int], None],
) -> None:
    """Do the tasks and write each as a shard."""
    total = n_done + sum(task.n_rows for task in tasks)
    lock = threading.Lock()

    def add(n_rows: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n_rows
        progress(n_done, total)

    indices = kernel_indices(experiment)
    draws = store.draws_name(experiment.generator, experiment.seed, experiment.seeds)
    identities = {point.cell: point.parameters.identity for point in experiment.points}

    def save(task: Task, counters: NDArray[np.int64]) -> None:
        rows = rows_of(task, counters, indices)
        numbers = sorted(task.ids)
        names = [identities[number] for number in numbers]
        store.write_shard(folder, rows, numbers, names, task.start, task.stop, draws)

    progress(n_done, total)
    work(tasks, indices, experiment.seed, jobs, save, add)


def kernel_indices(experiment: Experiment) -> NDArray[np.int64]:
    """What the kernel is given for each replication: its index, or its seed."""
    if experiment.generator == "lesson":
        seeds = experiment.seeds or lesson_seeds(experiment.seed, experiment.replications)
        return np.array(seeds, np.int64)
    return np.arange(experiment.replications)


def rows_of(task: Task, counters: NDArray[np.int64], indices: NDArray[np.int64]) -> pl.DataFrame:
    """Rows of a task, sorted by (cell, replication), from counters of shape (R, C, N_COUNTERS)."""
    order = np.argsort(task.ids)
    chosen = np.arange(task.start, task.stop)
    is_lesson = task.blocks[0].generator == "lesson"
    return frame(
        np.repeat(np.array(task.ids)[order], chosen.size),
        np.tile(chosen, order.size),
        counters[:, order].transpose(2, 1, 0).reshape(kernel.N_COUNTERS, -1),
        seeds=np.tile(indices[chosen], order.size) if is_lesson else None,
    )


# --- the tables ----------------------------------------------------------------------------------


def _tables(
    experiment: Experiment, cells: pl.DataFrame, shards: Sequence[Shard]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Make summary, comparisons and claims of the rows, some cells at a time."""
    from mc import statistics

    def taken_from(numbers: set[int]) -> pl.DataFrame:
        holding = [shard.path for shard in shards if not numbers.isdisjoint(shard.cells)]
        return (
            store.scan(holding or [shards[0].path])
            .filter(pl.col("cell").is_in(list(numbers)))
            .collect()
        )

    summaries, comparisons = [], []
    for chunk in _together(experiment, max(1, ROWS_AT_ONCE // experiment.replications)):
        some, taken = cells.filter(pl.col("cell").is_in(list(chunk))), taken_from(chunk)
        published = [figure for figure in experiment.published if figure.cell in chunk]
        summaries.append(statistics.summarise(taken, some, published))
        comparisons.append(statistics.compare(taken, some))
    yield "summary", pl.concat(summaries).sort("cell", maintain_order=True)
    yield "comparisons", pl.concat(comparisons).sort("cell", maintain_order=True)
    named = {number for claim in experiment.claims for number in claim.cells}
    yield "claims", statistics.judge(taken_from(named), cells, experiment.claims)


def _together(experiment: Experiment, size: int) -> Iterator[set[int]]:
    """Chunks of about `size` cells in which every cell stands with its baseline."""
    groups: dict[int, set[int]] = {}
    for point, baseline in zip(experiment.points, experiment.baselines, strict=True):
        groups.setdefault(baseline, set()).add(point.cell)
    chunk: set[int] = set()
    for group in groups.values():
        if chunk and len(chunk) + len(group) > size:
            yield chunk
            chunk = set()
        chunk = chunk | group
    yield chunk
