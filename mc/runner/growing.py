"""The rows of a results folder: made stage by stage, by one process or by several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import polars as pl

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Stop
from mc.experiment.messages import cell_label
from mc.runner.cluster import Cluster, work_on
from mc.runner.making import Recipe, make_shards
from mc.runner.stock import Ranges, Stock, as_tasks, n_rows, take_stock
from mc.runner.tallying import AnyTask, Tallying
from mc.runner.tasks import cut, work_through
from mc.store import FolderError

ROWS_AT_ONCE: Final = 2_000_000
"""Rows of the few columns that decide on the next stage, in memory together."""

THREADS_PER_PROCESS: Final = 4
"""On a cluster tasks are as many as if so many threads of it were a process."""

TRIES_ON_A_CLUSTER: Final = 3
"""Shards that overlap, because a worker was lost after it had saved a part of a task, are put aside
together with rows that no other shard has; these are made once more, by workers that live."""

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
        Threads, of this process or of the cluster; 0 where nothing may be simulated.
    part : (int, int) or None
        Part K of N of the work of the current stage; None for all of it.
    progress, say : callable
        See `mc.run`.
    cluster : Cluster or None
        Whose workers do it, in place of threads.
    token : str
        Of the lock of this run.
    """

    experiment: Experiment
    folder: Path
    jobs: int
    part: tuple[int, int] | None
    progress: Callable[[int, int], None]
    say: Callable[[str], None]
    cluster: Cluster | None = None
    token: str = ""

    @property
    def most_rows(self) -> int:
        """Rows of the last stage, if no cell stops before."""
        return len(self.experiment.points) * self.experiment.replications

    @cached_property
    def tallying(self) -> Tallying | None:
        """How the cells are counted; None where rows are kept."""
        # 0.03 to 0.05 s for 10,000 cells, and a part asks for each of its tasks
        return None if self.experiment.keep == "rows" else Tallying.of(self.experiment)

    @property
    def n_processes(self) -> int:
        """How many processes of a few threads share the work."""
        return 1 if self.cluster is None else max(1, self.jobs // THREADS_PER_PROCESS)


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
        f"as asked: {_named(experiment, short)}. (What is 0 nearly always has no interval: such a "
        "metric is not for [precision].)"
    )


def _named(experiment: Experiment, numbers: Collection[int]) -> str:
    """Name some cells, or the first of many."""
    wanted = set(numbers)
    chosen = [point for point in experiment.points if point.cell in wanted]
    names = [cell_label(point.scenario, point.policy, point.at) for point in chosen[:N_NAMED]]
    more = len(chosen) - len(names)
    return "; ".join(names) + (f"; and {more:,} more" if more else "")


def _precise(job: Job, stock: Stock, numbers: Sequence[int], n: int) -> set[int]:
    """Find the cells whose first n replications are enough; none where the number is fixed."""
    precision = job.experiment.precision
    if precision is None:
        return set()
    from mc.runner import stages  # scipy takes half a second

    if job.tallying is not None:
        return job.tallying.precise(stock.shards, numbers, n, precision)
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

    Returns
    -------
    Stock
        With the new shards.

    Raises
    ------
    FolderError
        Rows are missing, and none may be made: the job has no threads.
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
    for _ in range(1 if job.cluster is None else TRIES_ON_A_CLUSTER):
        n_left = n_rows(missing)
        tasks = _tasks_of(job, missing, job.n_processes)
        _simulate(job, tasks, n_done + n_all - n_left)
        stock = take_stock(job.experiment, job.folder)
        if job.cluster is not None:
            put_aside(job, stock.faults)
            stock = Stock(stock.shards, {})
        missing = stock.missing(wanted)
        if not missing:
            break
    if missing or stock.faults:
        raise FolderError(
            f"{job.folder}: rows have gone or changed since they were written; "
            "start the same command again"
        )
    return stock


def put_aside(job: Job, faults: Mapping[Path, str]) -> None:
    """Move files that are no shards of this run, or double, out of the folder of the shards."""
    for path, fault in faults.items():
        aside = store.put_aside(job.folder, path)
        job.say(f"{fault}; put aside in {aside}, its rows are made anew")


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


def _tasks_of(job: Job, ranges: Ranges, n_parts: int = 1) -> Sequence[AnyTask]:
    """Cut ranges into tasks; these depend on the experiment and the ranges alone."""
    if job.tallying is None:
        return cut(as_tasks(job.experiment, ranges), job.most_rows, n_parts)
    return job.tallying.tasks(ranges, job.most_rows, n_parts)


def _left_of(job: Job, stock: Stock, task: AnyTask) -> Sequence[AnyTask]:
    """Give what is missing of a task: itself, or parts of it, or nothing."""
    missing = stock.missing({task.range: task.ids})
    if missing == {task.range: list(task.ids)}:
        return [task]
    if job.tallying is None:
        return as_tasks(job.experiment, missing)
    return job.tallying.tasks(missing)


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

    recipe = Recipe(
        job.folder,
        experiment.generator,
        experiment.seed,
        experiment.seeds,
        max((task.stop for task in tasks), default=0),
        job.tallying,
    )
    job.progress(n_done, total)
    if job.cluster is not None:
        work_on(job.cluster, recipe, job.token, tasks, add)
        return
    work_through(
        tasks,
        job.jobs,
        lambda task, stop: make_shards(recipe, task, stop, add),
        lambda n_rows: None,
    )
