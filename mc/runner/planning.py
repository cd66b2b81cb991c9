"""`plan`: what a run will cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mc import experiment as experiments
from mc import store
from mc.experiment.messages import Caution
from mc.runner import costs
from mc.runner.resume import state_of
from mc.runner.running import results_folder
from mc.runner.simulation import n_threads
from mc.runner.storage import n_rows


@dataclass(frozen=True)
class Plan:
    """What a run will cost.

    Attributes
    ----------
    title : str
        Of the experiment.
    folder : Path
        Where its results go.
    n_cells, replications : int
        Their product is the number of rows.
    n_rows, n_done : int
        Rows in all, and those of them that exist.
    n_shards : int
        Files that will hold the rows, including those that exist.
    n_bytes : int
        Size of the folder in the end, estimated: rows or histograms, manifest and tables, but not
        the page and its figures.
    n_bytes_there : int
        Size of the shards that exist.
    memory_bytes, page_memory_bytes : int
        Memory that the run takes, and its page, estimated.
    core_seconds : float
        Time on one core for the missing rows, estimated.
    table_seconds, page_seconds : float
        Time for the tables, and for the page, which one core makes at the end, estimated.
    jobs, n_cores : int
        Threads, and how many of them can run at once.
    finished : bool
        Whether nothing is left to do.
    at_most : bool
        Whether cells may stop before all their replications, because they are precise.
    """

    title: str
    folder: Path
    n_cells: int
    replications: int
    n_rows: int
    n_done: int
    n_shards: int
    n_bytes: int
    n_bytes_there: int
    memory_bytes: int
    page_memory_bytes: int
    core_seconds: float
    table_seconds: float
    page_seconds: float
    jobs: int
    n_cores: int
    finished: bool
    at_most: bool

    @property
    def most(self) -> str:
        """Words before numbers that may turn out smaller."""
        return "at most " if self.at_most else ""

    @property
    def n_missing(self) -> int:
        """Rows that the run will simulate."""
        return self.n_rows - self.n_done

    @property
    def seconds(self) -> float:
        """From start to end."""
        return self.core_seconds / self.n_cores + self.table_seconds + self.page_seconds


def plan(
    file: str | Path,
    out: str | Path | None = None,
    *,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Plan:
    """Find out what `run` would do with the same arguments, and how long it would take.

    A few replications of some cells are simulated for it; nothing is written. Time and size are
    estimates, within a factor of two or so: see `mc.runner.costs`.

    Parameters
    ----------
    file, out, replications, seed, jobs, overrides, force
        See `run`.
    say : callable
        Told what is allowed in the file, but hardly meant.

    Returns
    -------
    Plan

    Raises
    ------
    ExperimentError, FolderError, TypeError, ValueError
        As `run`, except that the folder may be in use.

    Examples
    --------
    >>> import mc
    >>> found = mc.plan("experiments/budget_sweep.toml")
    >>> found.n_cells, found.most + str(found.replications)
    (1008, 'at most 256000')
    >>> hours = found.seconds / 3600
    """
    experiment = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
    store.check_run(file, len(experiment.points))
    jobs = n_threads(jobs)
    for remark in experiment.remarks:
        say(Caution(f"{file}: {remark}"))
    folder = results_folder(experiment, out)
    manifest = store.look(folder, any_version=force)
    state = state_of(experiment, manifest, folder, afresh=force)
    experiment, storage, shards = state.experiment, state.storage, state.stock.shards
    missing, pace = {}, 1.0
    folder_bytes = costs.FOLDER_BYTES + len(experiment.points) * costs.FOLDER_CELL_BYTES
    estimate, table_ns, page_ns = costs.Estimate(), 0.0, 0.0
    if not state.finished:
        pace = costs.pace()
        all_cells = [point.cell for point in experiment.points]
        missing = state.stock.missing({(0, experiment.replications): all_cells})
        sample = costs.NO_SAMPLE
        if missing:
            numbers = list(dict.fromkeys(n for ids in missing.values() for n in ids))
            sample = costs.take_sample(storage, numbers, experiment.replications, pace)
        estimate = storage.estimate(missing, shards, sample)
        cells = [point.parameters for point in experiment.points]
        table_ns = costs.TABLES_NS + estimate.table_ns
        page_ns = costs.page_ns(cells, experiment.replications, sample.row_ns)
    n_done = sum(shard.n_rows for shard in shards)
    n_bytes_there = sum(shard.n_bytes for shard in shards)
    return Plan(
        title=experiment.title,
        folder=folder,
        n_cells=len(experiment.points),
        replications=experiment.replications,
        n_rows=n_done + n_rows(missing),
        n_done=n_done,
        n_shards=len(shards) + estimate.n_shards,
        n_bytes=n_bytes_there + round(estimate.n_bytes) + folder_bytes,
        n_bytes_there=n_bytes_there,
        memory_bytes=store.of_run(len(experiment.points)),
        page_memory_bytes=store.of_page(len(experiment.points)),
        core_seconds=estimate.core_ns * pace * 1e-9,
        table_seconds=table_ns * pace * 1e-9,
        page_seconds=page_ns * pace * 1e-9,
        jobs=jobs,
        n_cores=min(jobs, n_threads(None)),
        finished=state.finished,
        at_most=experiment.precision is not None and not state.finished,
    )
