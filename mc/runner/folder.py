"""From an experiment file to a results folder: what is missing, the rows, the tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Point, Precision, Stop
from mc.runner.growing import Job, fill, grow
from mc.runner.stock import Stock, take_stock
from mc.runner.tabling import make_tables
from mc.runner.tallying import Tallying
from mc.runner.tasks import ROW_COLUMNS, n_threads
from mc.store import FolderError, Results, Shard


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
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run an experiment file, or finish a run of it that was stopped.

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
        `jobs` is no whole number, or below 1; `shard` is no part, or is given with `force`.
    KeyboardInterrupt
        After what was under way has been saved.
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    if shard is not None:
        _check_part(shard, force)
    folder = results_folder(experiment, out)
    job = Job(experiment, folder, n_threads(jobs), shard, progress, say)
    beyond = {
        point.scenario
        for point in experiment.points
        if point.parameters.fault_rounds and point.parameters.fault_start >= point.parameters.rounds
    }
    if beyond:
        say(f"{file}: the fault begins after the last round in {', '.join(sorted(beyond))}")
    manifest = store.look(folder, any_version=force)
    if not force and manifest is not None and _is_finished(experiment, manifest, folder):
        say(f"{folder} is finished: nothing to do (--force starts afresh)")
        return store.load(folder)
    with store.held(folder, say, shard):
        manifest = store.look(folder, any_version=force)  # nobody changes it any more
        if manifest is not None and not force:
            job = replace(job, experiment=_continue(experiment, manifest, folder))
        if shard is None:
            _run_in(job, force)
        else:
            _run_part(job, manifest)
    return store.load(folder)


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
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    folder = results_folder(experiment, out)
    manifest = store.look(folder)
    if manifest is None:
        raise FolderError(f"{folder}: no results here, there is nothing to merge")
    if _is_finished(experiment, manifest, folder):
        say(f"{folder} is finished: nothing to do")
        return store.load(folder)
    with store.held(folder, say):
        manifest = store.look(folder)
        if manifest is not None:
            experiment = _continue(experiment, manifest, folder)
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
    _put_aside(job, stock.faults)
    grown = grow(job, Stock(stock.shards, {}), write_cells)
    assert grown is not None, "all of it was asked for"
    stops, stock = _without_rows_beyond(job, *grown)
    for name, table in make_tables(experiment, stops, stock.shards):
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


def _put_aside(job: Job, faults: Mapping[Path, str]) -> None:
    for path, fault in faults.items():
        aside = store.put_aside(job.folder, path)
        job.say(f"{fault}; put aside in {aside}, its rows are made anew")


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
    _put_aside(job, beyond)
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
    return store.new_manifest(experiment, _cell_names(experiment.points), _columns())


def _columns() -> dict[str, dict[str, tuple[str, str]]]:
    """For each table the unit and the meaning of its columns."""
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


# --- the same experiment again -------------------------------------------------------------------


def _is_finished(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> bool:
    """Whether every file is there as it was written, to the last bit."""
    if not manifest["complete"] or manifest["experiment"] != experiment.source:
        return False
    stock = take_stock(_continue(experiment, manifest, folder), folder)
    listed = {shard.path.name: shard.n_bytes for shard in stock.shards} == manifest["shards"]
    # the list was made when no row was missing
    return listed and not stock.faults and store.tables_are_whole(folder, manifest)


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
        for name in ("generator", "seed", "seeds", "keep")
        if old[name] != experiment.source[name]
    ]
    faults += _asks_for_less(old, experiment)
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
    experiment = experiments.renumber(
        experiment, [numbers[name] if name in numbers else next(free) for name in names]
    )
    if experiment.keep == "histograms":
        shards = store.of_each(_footer, store.shard_paths(folder))
        known = [shard for shard in shards if shard and store.is_of_run(shard, manifest)]
        Tallying.of(experiment).refuse(folder, known)
    return experiment


def _footer(path: Path) -> Shard | None:
    try:
        return store.read_footer(path)
    except (FolderError, FileNotFoundError):
        return None  # will be put aside, or was


def _asks_for_less(old: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """Say so if there may be more replications than the experiment asks for now."""
    new, was = experiment.precision, old["precision"]
    if was is None:
        is_less = old["replications"] > experiment.stages[0]
    elif new is None:
        is_less = was["max"] > experiment.replications
    else:
        is_less = not new.asks_no_less_than(Precision(**was))
    if not is_less:
        return []
    now = experiment.source["precision"]
    if was is None and now is None:
        return [f"replications was {old['replications']}, is {experiment.replications}"]
    if was is None:
        return [f"replications was {old['replications']}, is {now['min']} or more by [precision]"]
    if now is None:
        most = f"{was['max']} or fewer by [precision]"
        return [f"replications was {most}, is {experiment.replications}"]
    changes = [f"{name} was {was[name]}, is {now[name]}" for name in was if was[name] != now[name]]
    return [f"[precision]: {', '.join(changes)}, which may be less"]


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
