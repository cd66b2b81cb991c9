"""From a task to its shards: what threads of this process and workers of a cluster do alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mc import store
from mc.model import Generator
from mc.runner.tallying import AnyTask, Tallying, TallyTask
from mc.runner.tasks import Task, lesson_seeds, rows_of, simulate_task
from mc.statistics import tallies

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Recipe:
    """What all tasks of a run have in common: with a task it is all that its rows depend on.

    Attributes
    ----------
    folder : Path
        The results folder.
    generator : {"philox", "lesson"}
        Which draws.
    seed : int
        The experiment's seed.
    seeds : tuple of int or None
        With the lesson's generator: the seed of each replication, where they are listed.
    replications : int
        How many replications the tasks reach at most.
    tallying : Tallying or None
        What has to be known to count cells, where no rows are kept.
    """

    folder: Path
    generator: Generator
    seed: int
    seeds: tuple[int, ...] | None
    replications: int
    tallying: Tallying | None = None

    def given(self, start: int, stop: int) -> NDArray[np.int64]:
        """What the kernel is given for each replication of a range: its index, or its seed."""
        return kernel_input(self.generator, self.seed, self.seeds, self.replications)(start, stop)


def make_shards(
    recipe: Recipe,
    task: AnyTask,
    stop: threading.Event,
    progress: Callable[[int], None] = lambda n_rows: None,
    may_write: Callable[[], bool] = lambda: True,
) -> tuple[int, Sequence[AnyTask]]:
    """Simulate a task and write what was done of it.

    Parameters
    ----------
    recipe, task
        What is made.
    stop, progress
        See `simulate_task`.
    may_write : callable
        Asked before anything is written; if it says no, nothing was done.

    Returns
    -------
    n_rows : int
        Rows that were written.
    rest : list of Task
        What is left of the task.
    """
    pieces: Sequence[tuple[AnyTask, Any]]
    rest: Sequence[AnyTask]
    if isinstance(task, TallyTask):
        assert recipe.tallying is not None
        pieces, rest = recipe.tallying.simulate(task, recipe.given, stop, progress)
    else:
        given = recipe.given(task.start, task.stop)
        pieces, rest = simulate_task(task, given, recipe.seed, stop, progress)
    if not may_write():
        return 0, [task]
    for piece, made in pieces:
        _write(recipe, piece, made)
    return sum(piece.n_rows for piece, _ in pieces), rest


def _write(recipe: Recipe, task: AnyTask, made: Any) -> None:
    """Write what was made of a task as a shard."""
    keep = "rows" if isinstance(task, Task) else "histograms"
    draws = store.draws_name(recipe.generator, recipe.seed, recipe.seeds, keep)
    numbers = sorted(task.ids)
    if isinstance(task, TallyTask):
        assert recipe.tallying is not None
        table, sums = tallies.histograms(made), tallies.sums(made)
        identities = recipe.tallying.identities
    else:
        table, sums = rows_of(task, made, recipe.given(task.start, task.stop)), None
        identities = {
            number: cell.identity
            for block in task.blocks
            for number, cell in zip(block.ids, block.cells, strict=True)
        }
    names = [identities[number] for number in numbers]
    store.write_shard(recipe.folder, table, numbers, names, task.start, task.stop, draws, sums)


def kernel_input(
    generator: Generator, seed: int, seeds: tuple[int, ...] | None, n: int
) -> Callable[[int, int], NDArray[np.int64]]:
    """Give what the kernel is given for replications `start` .. `stop` - 1, as a function of them.

    Parameters
    ----------
    generator, seed, seeds
        See `Recipe`.
    n : int
        `stop` is at most that. With philox nothing is kept of so many.
    """
    if generator == "philox":
        return lambda start, stop: np.arange(start, stop, dtype=np.int64)
    listed = _lesson_seeds(seed, seeds, n)
    return lambda start, stop: listed[start:stop]


@lru_cache(maxsize=2)
def _lesson_seeds(seed: int, seeds: tuple[int, ...] | None, n: int) -> NDArray[np.int64]:
    return np.array(seeds or lesson_seeds(seed, n), np.int64)
