"""From a task to its shards: what threads of this process and workers of a cluster do alike.

Here, and nowhere else, it is decided whether rows or histograms are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import polars as pl

from mc import experiment as experiments
from mc.experiment import Claim, Experiment
from mc.model import Cell, counters_of
from mc.runner.histograms import Histograms
from mc.runner.rows import Rows
from mc.runner.simulation import Draws, Task
from mc.runner.storage import Storage
from mc.statistics.tallies import claim_key
from mc.store.threads import StopFlag


def storage_of(experiment: Experiment) -> Storage:
    """The storage that an experiment asks for."""
    parameters = {point.cell: point.parameters for point in experiment.points}
    cells = experiments.cell_table(experiment)
    return storage_from(experiment.source, parameters, cells, experiment.claims)


def storage_from(
    source: Mapping[str, object],
    parameters: Mapping[int, Cell],
    cells: pl.DataFrame,
    claims: Iterable[Claim] = (),
) -> Storage:
    """The same, from the `source` of an experiment, its cells and the table of cells."""
    kind = Rows if source["keep"] == Rows.keep else Histograms
    by_key = {claim_key(claim): claim for claim in claims}
    counters = counters_of(parameters.values())
    return kind(Draws.of(source), parameters, cells.sort("cell"), by_key, counters)


def make_shards(
    folder: Path,
    storage: Storage,
    task: Task,
    stop: StopFlag,
    progress: Callable[[int], None] = lambda n_rows: None,
    may_write: Callable[[], bool] = lambda: True,
) -> tuple[int, list[Task]]:
    """Simulate a task and write what was done of it; parameters as for `Storage.simulate`.

    Nothing is written if `may_write` says no, asked before: then nothing was done.

    Returns
    -------
    n_rows : int
        Rows that were written.
    rest : list of Task
        What is left of the task.
    """
    done, rest = storage.simulate(task, stop, progress)
    if not may_write():
        return 0, [task]
    for content in done:
        storage.write(folder, content)
    return sum(content.task.n_rows for content in done), rest
