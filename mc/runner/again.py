"""The same experiment again in a folder that holds results of it, or a changed one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Point, Precision
from mc.runner.stock import take_stock
from mc.runner.tallying import Tallying
from mc.store import FolderError, Shard


def is_finished(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> bool:
    """Whether every file is there as it was written, to the last bit."""
    if not manifest["complete"] or manifest["experiment"] != experiment.source:
        return False
    stock = take_stock(continued(experiment, manifest, folder), folder)
    listed = {shard.path.name: shard.n_bytes for shard in stock.shards} == manifest["shards"]
    # the list was made when no row was missing
    return listed and not stock.faults and store.tables_are_whole(folder, manifest)


def cell_names(points: Sequence[Point]) -> list[str]:
    """A name of each cell by its number, which says what its rows depend on and what it is called.

    The place on the grid is among the parameters.
    """
    named = {
        point.cell: f"{point.parameters.identity} {point.scenario!r} {point.policy!r}"
        for point in points
    }
    return [named[number] for number in sorted(named)]


def continued(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> Experiment:
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
    names = cell_names(experiment.points)
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
    changes = [
        f"{'metric' if name == 'metrics' else name} was {was[name]}, is {now[name]}"
        for name in was
        if was[name] != now[name]
    ]
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
