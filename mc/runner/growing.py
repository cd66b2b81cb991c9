"""The rows of a results folder: made stage by stage, by one process or by several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Stop
from mc.experiment.words import cell_place
from mc.runner.stock import Ranges, Stock, as_tasks, n_rows, take_stock
from mc.runner.tallying import Tallying, TallyTask, kernel_input
from mc.runner.tallying import save as tallying_save
from mc.runner.tasks import Task, cut, lesson_seeds, rows_of, work, work_on
from mc.statistics.tallies import Tally
from mc.store import FolderError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_AT_ONCE: Final = 2_000_000
"""Rows of the few columns that decide on the next stage, in memory together."""

N_NAMED: Final = 3
"""A message names no more cells than this."""


@dataclass(frozen=True)
class Job:
    """What a run is to do, and whom to tell.

    Attributes
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    folder : Path
        The results folder.
    jobs : int
        Threads; 0 where nothing may be simulated.
    part : (int, int) or None
        Part K of N of the work of the current stage; None for all of it.
    progress, say : callable
        See `mc.run`.
    """

    experiment: Experiment
    folder: Path
    jobs: int
    part: tuple[int, int] | None
    progress: Callable[[int, int], None]
    say: Callable[[str], None]

    @property
    def most_rows(self) -> int:
        """Rows of the last stage, if no cell stops before."""
        return len(self.experiment.points) * self.experiment.replications


def grow(
    job: Job, stock: Stock, stopped: Callable[[dict[int, Stop]], None]
) -> tuple[dict[int, Stop], Stock] | None:
    """Make what is missing of each stage, until every cell has stopped.

    Parameters
    ----------
    job : Job
        What to do.
    stock : Stock
        What is there.
    stopped : callable
        Told after each stage which cells have stopped so far.

    Returns
    -------
    tuple of (dict of int to Stop, Stock) or None
        Where each cell has stopped, and what is there now. None after a part of a stage.

    Raises
    ------
    FolderError
        Rows are missing and nothing may be simulated, or rows have gone.
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
            stock = fill(job, stock, {(0, n): numbers}, n_done, begun)
            begun = False
        precise = _precise(job, stock, numbers, n)
        last = n == experiment.replications
        for group in groups:
            if last or precise.issuperset(group):
                stops |= {number: _stop(experiment, n, number in precise) for number in group}
        groups = [group for group in groups if group[0] not in stops]
        if experiment.precision is not None:
            stopped(stops)
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
    """Tell how far the cells are after a stage."""
    n_cells = len(experiment.points)
    short = [number for number, stop in stops.items() if stop.by == experiments.MAX]
    if not short:
        return f"{n:,} replications: {len(stops):,} of {n_cells:,} cells have enough"
    return (
        f"{n:,} replications, and no more: {len(short):,} of {n_cells:,} cells are not as precise "
        f"as asked: {_named(experiment, short)}"
    )


def _named(experiment: Experiment, numbers: Collection[int]) -> str:
    """Name some cells, or the first of many."""
    wanted = set(numbers)
    chosen = [point for point in experiment.points if point.cell in wanted]
    names = [cell_place(point.scenario, point.policy, point.at) for point in chosen[:N_NAMED]]
    more = len(chosen) - len(names)
    return "; ".join(names) + (f"; and {more:,} more" if more else "")


def _precise(job: Job, stock: Stock, numbers: Sequence[int], n: int) -> set[int]:
    """Find the cells whose first n replications are enough; none where the number is fixed."""
    precision = job.experiment.precision
    if precision is None:
        return set()
    from mc.runner import stages  # scipy takes half a second

    if job.experiment.keep == "histograms":
        return Tallying.of(job.experiment).precise(stock.shards, numbers, n, precision)
    cells = experiments.cell_table(job.experiment)
    size = max(1, ROWS_AT_ONCE // n)
    found: set[int] = set()
    for at in range(0, len(numbers), size):
        chunk = set(numbers[at : at + size])
        chosen = pl.col("cell").is_in(list(chunk))
        rows = (
            store.scan(s.path for s in stock.shards if not chunk.isdisjoint(s.cells))
            .filter(chosen, pl.col("replication") < n)
            .select(stages.columns(precision))
            .collect()
        )
        found |= stages.precise_cells(rows, cells.filter(chosen), precision)
    return found


def fill(job: Job, stock: Stock, wanted: Ranges, n_done: int, begun: bool) -> Stock:
    """Make what is missing of some ranges, and take stock again.

    Parameters
    ----------
    job : Job
        What to do.
    stock : Stock
        What is there.
    wanted : Ranges
        What is to be there.
    n_done : int
        Rows beside them, for the progress.
    begun : bool
        Whether to tell how much an earlier run has done.
    """
    missing = stock.missing(wanted)
    n_all, n_missing = n_rows(wanted), n_rows(missing)
    if not job.jobs:
        gone = sorted({number for numbers in missing.values() for number in numbers})
        ranges = ", ".join(f"{start} .. {stop - 1}" for start, stop in sorted(missing)[:N_NAMED])
        more = f" and {len(missing) - N_NAMED} ranges more" if len(missing) > N_NAMED else ""
        raise FolderError(
            f"{job.folder}: {n_missing} of {n_all} rows are missing: replications {ranges}{more} "
            f"of {len(gone)} cells ({_named(job.experiment, gone)}). Start the parts that make "
            "them once more, or all of it without --shard"
        )
    if begun and n_missing < n_all:
        job.say(
            f"{job.folder}: {n_done + n_all - n_missing} of {n_done + n_all} rows are there, "
            "continuing"
        )
    _simulate(job, _tasks_of(job, missing), n_done + n_all - n_missing)
    stock = take_stock(job.experiment, job.folder)
    if stock.missing(wanted) or stock.faults:
        raise FolderError(
            f"{job.folder}: rows have gone or changed since they were written; "
            "start the same command again"
        )
    return stock


def _do_part(job: Job, stock: Stock, numbers: Sequence[int], before: int, n: int) -> None:
    """Make what is missing of every N-th task of a stage.

    The list of tasks depends on the experiment alone, so all parts see the same, whenever they
    look; what others have made in the meantime changes nothing.
    """
    assert job.part is not None
    k, n_parts = job.part
    own = _tasks_of(job, {(before, n): numbers}, n_parts)[k - 1 :: n_parts]
    tasks = [piece for task in own for piece in _left_of(job, stock, task)]
    n_own, n_new = (sum(task.n_rows for task in some) for some in (own, tasks))
    _simulate(job, tasks, n_own - n_new)
    n_left = n_rows(take_stock(job.experiment, job.folder).missing({(0, n): numbers}))
    others = f"{n_left} rows of other parts are missing" if n_left else "and so are all others"
    job.say(
        f"{job.folder}: part {k} of {n_parts} of replications {before} .. {n - 1} is done "
        f"({n_new} new rows), {others}"
    )


AnyTask = Task | TallyTask
"""What is saved as one shard: rows, or what is kept in place of them."""


def _tasks_of(job: Job, ranges: Ranges, n_parts: int = 1) -> Sequence[AnyTask]:
    """Cut ranges into tasks; these depend on the experiment and the ranges alone."""
    if job.experiment.keep == "rows":
        return cut(as_tasks(job.experiment, ranges), job.most_rows, n_parts)
    return Tallying.of(job.experiment).tasks(ranges, job.most_rows, n_parts)


def _left_of(job: Job, stock: Stock, task: AnyTask) -> Sequence[AnyTask]:
    """Give what is missing of a task: itself, or parts of it, or nothing."""
    missing = stock.missing({task.range: task.ids})
    if missing == {task.range: list(task.ids)}:
        return [task]
    if job.experiment.keep == "rows":
        return as_tasks(job.experiment, missing)
    return Tallying.of(job.experiment).tasks(missing)


def _simulate(job: Job, tasks: Sequence[AnyTask], n_done: int) -> None:
    """Do the tasks and write each as a shard."""
    experiment = job.experiment
    total = n_done + sum(task.n_rows for task in tasks)
    lock = threading.Lock()

    def add(n_rows: int) -> None:
        nonlocal n_done
        with lock:
            n_done += n_rows
        job.progress(n_done, total)

    job.progress(n_done, total)
    if experiment.keep == "rows":
        _simulate_rows(job, [task for task in tasks if isinstance(task, Task)], add)
    else:
        _simulate_tallies(job, [task for task in tasks if isinstance(task, TallyTask)], add)


def _simulate_rows(job: Job, tasks: Sequence[Task], add: Callable[[int], None]) -> None:
    experiment = job.experiment
    indices = kernel_indices(experiment, max((task.stop for task in tasks), default=0))
    draws, identities = _names(experiment)

    def save(task: Task, counters: NDArray[np.int64]) -> None:
        rows = rows_of(task, counters, indices[task.start : task.stop])
        numbers = sorted(task.ids)
        names = [identities[number] for number in numbers]
        store.write_shard(job.folder, rows, numbers, names, task.start, task.stop, draws)

    work(tasks, indices, experiment.seed, job.jobs, save, add)


def _simulate_tallies(job: Job, tasks: Sequence[TallyTask], add: Callable[[int], None]) -> None:
    experiment = job.experiment
    tallying = Tallying.of(experiment)
    draws, identities = _names(experiment)
    n = max((task.stop for task in tasks), default=1)
    given = kernel_input(experiment.generator, experiment.seed, experiment.seeds, n)

    def do(
        task: TallyTask, stop: threading.Event
    ) -> tuple[list[tuple[TallyTask, Tally]], list[TallyTask]]:
        return tallying.simulate(task, given, stop, add)

    def save(task: TallyTask, tally: Tally) -> None:
        tallying_save(job.folder, task, tally, identities, draws)

    work_on(tasks, do, job.jobs, save)


def _names(experiment: Experiment) -> tuple[str, dict[int, str]]:
    """By what the shards of an experiment are known: draws, and the identity of each cell."""
    draws = store.draws_name(
        experiment.generator, experiment.seed, experiment.seeds, experiment.keep
    )
    return draws, {point.cell: point.parameters.identity for point in experiment.points}


def kernel_indices(experiment: Experiment, n: int) -> NDArray[np.int64]:
    """What the kernel is given for each of the first n replications: its index, or its seed."""
    if experiment.generator == "lesson":
        return np.array(experiment.seeds or lesson_seeds(experiment.seed, n), np.int64)
    return np.arange(n)
