"""What is there of an experiment in a results folder, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mc import store
from mc.experiment import Experiment
from mc.runner.tasks import Task, plan_blocks
from mc.store import Shard

Ranges = Mapping[tuple[int, int], Sequence[int]]
"""Cells by a range of replications: the first, and the one after the last."""


@dataclass(frozen=True)
class Stock:
    """What is there of an experiment.

    Attributes
    ----------
    shards : list of Shard
        Whole shards of this experiment, no row twice, by their first replication.
    faults : dict of Path to str
        All other files among the shards, and what is wrong with each.
    """

    shards: list[Shard]
    faults: dict[Path, str]

    @cached_property
    def _there(self) -> dict[int, list[tuple[int, int]]]:
        """Ranges of each cell that are there, ascending."""
        there: dict[int, list[tuple[int, int]]] = {}
        for shard in self.shards:
            for number in shard.cells:
                there.setdefault(number, []).append((shard.start, shard.stop))
        return there

    def missing(self, wanted: Ranges) -> dict[tuple[int, int], list[int]]:
        """Find what is in no shard of the ranges that are wanted."""
        gaps: dict[tuple[int, int], list[int]] = {}
        for (start, stop), numbers in wanted.items():
            for number in numbers:
                at = start
                for first, end in [*self._there.get(number, []), (stop, stop)]:
                    if at < min(first, stop):
                        gaps.setdefault((at, min(first, stop)), []).append(number)
                    at = max(at, end)
        return gaps


def take_stock(experiment: Experiment, folder: Path) -> Stock:
    """Read every shard of the folder, and find out which are this experiment's.

    Parameters
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    folder : Path
        The results folder.

    Returns
    -------
    Stock
    """
    found, faults = [], {}
    paths = store.shard_paths(folder)
    for path, shard in zip(paths, store.read_shards(paths), strict=True):
        if isinstance(shard, Shard):
            found.append(shard)
        else:
            faults[path] = str(shard)
    draws = store.draws_name(
        experiment.generator, experiment.seed, experiment.seeds, experiment.keep
    )
    identities = {point.cell: point.parameters.identity for point in experiment.points}
    reached = dict.fromkeys(identities, 0)

    def fault_of(shard: Shard) -> str | None:
        known = [identities.get(number) for number in shard.cells]
        if shard.draws != draws or known != list(shard.identities):
            return "belongs to another experiment"
        if shard.stop > experiment.replications:
            return "belongs to another experiment"
        if any(shard.start < reached[number] for number in shard.cells):
            return "holds rows that another shard holds, too"
        return None

    shards = []
    # of two that begin together the longer one: it may hold all of the other
    for shard in sorted(found, key=lambda shard: (shard.start, -shard.stop, shard.path)):
        if fault := fault_of(shard):
            faults[shard.path] = f"{shard.path}: {fault}"
        else:
            shards.append(shard)
            reached |= dict.fromkeys(shard.cells, shard.stop)
    return Stock(shards, faults)


def as_tasks(experiment: Experiment, ranges: Ranges) -> list[Task]:
    """Make tasks of one block each."""
    cells = {point.cell: point.parameters for point in experiment.points}
    return [
        Task((block,), start, stop)
        for (start, stop), numbers in ranges.items()
        for block in plan_blocks({i: cells[i] for i in numbers}, experiment.generator)
    ]


def n_rows(ranges: Ranges) -> int:
    """Count the rows."""
    return sum((stop - start) * len(numbers) for (start, stop), numbers in ranges.items())
