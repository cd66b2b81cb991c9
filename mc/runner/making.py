"""From a task to its shards: what threads of this process and workers of a cluster do alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from mc import kernel, store
from mc.experiment import Experiment
from mc.model import Generator
from mc.runner.tasks import Task, frame, lesson_seeds, simulate_task

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
    """

    folder: Path
    generator: Generator
    seed: int
    seeds: tuple[int, ...] | None
    replications: int


def make_shards(
    recipe: Recipe,
    task: Task,
    stop: threading.Event,
    progress: Callable[[int], None] = lambda n_rows: None,
    may_write: Callable[[], bool] = lambda: True,
) -> tuple[int, list[Task]]:
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
    indices = _indices(recipe.generator, recipe.seed, recipe.seeds, recipe.replications)
    done, rest = simulate_task(task, indices, recipe.seed, stop, progress)
    if not may_write():
        return 0, [task]
    for piece, counters in done:
        _write(recipe, piece, rows_of(piece, counters, indices))
    return sum(piece.n_rows for piece, _ in done), rest


def _write(recipe: Recipe, task: Task, rows: pl.DataFrame) -> None:
    """Write the rows of a task as a shard."""
    identities = {
        number: cell.identity
        for block in task.blocks
        for number, cell in zip(block.ids, block.cells, strict=True)
    }
    numbers = sorted(identities)
    draws = store.draws_name(recipe.generator, recipe.seed, recipe.seeds)
    names = [identities[number] for number in numbers]
    store.write_shard(recipe.folder, rows, numbers, names, task.start, task.stop, draws)


def kernel_indices(experiment: Experiment, n: int) -> NDArray[np.int64]:
    """What the kernel is given for each of the first n replications: its index, or its seed."""
    return _indices(experiment.generator, experiment.seed, experiment.seeds, n)


@lru_cache(maxsize=2)
def _indices(
    generator: Generator, seed: int, seeds: tuple[int, ...] | None, n: int
) -> NDArray[np.int64]:
    if generator == "lesson":
        return np.array(seeds or lesson_seeds(seed, n), np.int64)
    return np.arange(n)


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
