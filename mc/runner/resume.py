"""Which shards exist, and which ranges are missing; whether an experiment may go on in a folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from mc import experiment as experiments
from mc import store
from mc.experiment import Experiment, Point, Precision
from mc.experiment.messages import quote, shortened, show, values_text
from mc.model import PARAMETERS, parse_parameter, units
from mc.model.digits import readers_second
from mc.runner.shards import storage_of
from mc.runner.storage import Ranges, Storage
from mc.store import FolderError, Shard

# --- the shards that exist -----------------------------------------------------------------------


@dataclass(frozen=True)
class Stock:
    """Which shards exist.

    Attributes
    ----------
    shards : list of Shard
        Whole shards of the experiment, by their first replication; no row is in two.
    faults : dict of Path to str
        All other files in the folder of the shards, and what is wrong with each.
    """

    shards: list[Shard]
    faults: dict[Path, str]

    @cached_property
    def _ranges(self) -> dict[int, list[tuple[int, int]]]:
        """Ranges of each cell that exist, ascending."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for shard in self.shards:
            for number in shard.cells:
                ranges.setdefault(number, []).append((shard.start, shard.stop))
        return ranges

    def missing(self, wanted: Ranges) -> dict[tuple[int, int], list[int]]:
        """Find the wanted ranges that are in no shard."""
        gaps: dict[tuple[int, int], list[int]] = {}
        for (start, stop), numbers in wanted.items():
            for number in numbers:
                at = start
                for first, end in [*self._ranges.get(number, []), (stop, stop)]:
                    if at < min(first, stop):
                        gaps.setdefault((at, min(first, stop)), []).append(number)
                    at = max(at, end)
        return gaps


def take_stock(folder: Path, storage: Storage, n: int, known: Iterable[Shard] = ()) -> Stock:
    """Read every shard of a folder, and sort out those of an experiment of n replications.

    Files of the shards that are `known` are read again only if they have changed since.
    """
    paths = store.shard_paths(folder)
    shards: list[Shard] = []
    faults: dict[Path, str] = {}
    for path, shard in zip(paths, store.read_shards(paths, known), strict=True):
        if isinstance(shard, Shard):
            shards.append(shard)
        else:
            faults[path] = str(shard)
    identities = {number: cell.identity for number, cell in storage.parameters.items()}

    def is_of_another(shard: Shard) -> bool:
        named = [identities.get(number) for number in shard.cells]
        draws_differ = shard.draws != storage.draws_name
        return draws_differ or named != list(shard.identities) or shard.stop > n

    for shard in shards:
        if is_of_another(shard):
            faults[shard.path] = f"{shard.path}: belongs to another experiment"
    stock = sorted_out(shard for shard in shards if shard.path not in faults)
    return Stock(stock.shards, faults | stock.faults)


def sorted_out(shards: Iterable[Shard]) -> Stock:
    """Choose shards so that no row is in two; the others hold rows that are there already."""
    own: list[Shard] = []
    faults: dict[Path, str] = {}
    reached: dict[int, int] = {}
    # of two that begin together the longer comes first: it may hold all of the other
    for shard in sorted(shards, key=lambda shard: (shard.start, -shard.stop, shard.path)):
        if any(shard.start < reached.get(number, 0) for number in shard.cells):
            faults[shard.path] = f"{shard.path}: holds rows that another shard holds, too"
        else:
            own.append(shard)
            reached |= dict.fromkeys(shard.cells, shard.stop)
    return Stock(own, faults)


# --- the same experiment again, or a changed one -------------------------------------------------


@dataclass(frozen=True)
class State:
    """An experiment, and how far a folder is with it.

    Attributes
    ----------
    experiment : Experiment
        Its cells numbered as in the folder.
    storage : Storage
        What it keeps.
    stock : Stock
        Which shards exist.
    finished : bool
        Whether every file exists as it was written, to the last bit.
    """

    experiment: Experiment
    storage: Storage
    stock: Stock
    finished: bool = False


def state_of(
    experiment: Experiment,
    manifest: Mapping[str, Any] | None,
    folder: Path,
    known: Iterable[Shard] = (),
    *,
    afresh: bool = False,
) -> State:
    """Determine how far a folder is with an experiment, as it was read.

    The manifest is None where the folder is empty, or has lost it, or is to be cleared (`afresh`);
    for `known` see `take_stock`.

    Raises
    ------
    FolderError
        The folder holds the results of another experiment, or histograms of this one that lack
        what the tables need.
    """
    if afresh:
        return State(experiment, storage_of(experiment), Stock([], {}))
    if manifest is None:
        experiment = recovered(experiment, folder, known)
    else:
        experiment = continued(experiment, manifest, folder)
    storage = storage_of(experiment)
    stock = take_stock(folder, storage, experiment.replications, known)
    if lacking := storage.lacking(stock.shards):
        raise FolderError(
            f"{folder}: holds histograms and no rows: {'; '.join(lacking)}. "
            "Give another folder with --out, or start afresh with --force"
        )
    listed = {shard.path.name: shard.n_bytes for shard in stock.shards}
    finished = (
        manifest is not None
        and may_be_finished(experiment, manifest)
        and listed == manifest["shards"]  # the list was made when no row was missing
        and not stock.faults
        and store.tables_are_whole(folder, manifest)
    )
    return State(experiment, storage, stock, finished)


def may_be_finished(experiment: Experiment, manifest: Mapping[str, Any]) -> bool:
    """Whether a run of this very experiment has come to its end in the folder."""
    return bool(
        manifest["complete"]
        and manifest["experiment"] == experiment.source
        and manifest["format"] == store.FORMAT  # else its tables are to be made anew
    )


def cell_names(points: Sequence[Point]) -> list[str]:
    """Name each cell, by number, after all that its rows depend on, and its scenario and policy.

    Its place on the grid is among the parameters.
    """
    named = {
        point.cell: f"{point.parameters.identity} {point.scenario!r} {point.policy!r}"
        for point in points
    }
    return [named[number] for number in sorted(named)]


def recovered(experiment: Experiment, folder: Path, known: Iterable[Shard]) -> Experiment:
    """Number the cells as the shards of a folder have them that has lost its manifest.

    A shard names the parameters of its cells. Of cells with the same ones, the first in the file
    gets the smallest number, as at first.

    Raises
    ------
    FolderError
        A shard is of another experiment.
    """
    identities: dict[int, str] = {}
    storage = storage_of(experiment)
    found = store.read_shards(store.shard_paths(folder), known)
    shards = [shard for shard in found if isinstance(shard, Shard)]
    if found and not shards:
        raise _of_another(folder)
    for shard in shards:
        named = dict(zip(shard.cells, shard.identities, strict=True))
        contradicts = any(identities.get(n, identity) != identity for n, identity in named.items())
        if shard.draws != storage.draws_name or contradicts:
            raise _of_another(shard.path)
        identities |= named
    points = sorted(experiment.points, key=lambda point: point.cell)
    places: dict[str, list[int]] = {}
    for point in points:
        places.setdefault(point.parameters.identity, []).append(point.cell)
    numbers: dict[int, int] = {}
    for number, identity in sorted(identities.items()):
        if not places.get(identity):
            raise _of_another(folder)
        numbers[places[identity].pop(0)] = number
    free = (number for number in itertools.count() if number not in identities)
    return experiments.renumber(
        experiment,
        [numbers[p.cell] if p.cell in numbers else next(free) for p in points],
    )


def _of_another(path: Path) -> FolderError:
    return FolderError(
        f"{path}: holds the results of another experiment, and its manifest is lost. "
        "Give another folder with --out, or start afresh with --force"
    )


_FLATTENED: Final = (
    "they were made when all layers were flattened, and are nested now unless the file says chain "
    '= "flattened"'
)


_N_CHANGES: Final = 4
"""A refusal names no more changes than this."""

_MISSING: Final = object()


def continued(experiment: Experiment, manifest: Mapping[str, Any], folder: Path) -> Experiment:
    """Number the cells as in the folder; refuse another experiment.

    Cells may be added, which get the numbers after the others, and replications. Nothing that rows
    depend on may be changed or removed.
    """
    old = manifest["experiment"]
    faults = [
        f"{name} was {shortened(str(old[name]))}, is {shortened(str(experiment.source[name]))}"
        for name in ("generator", "seed", "seeds", "keep")
        if old[name] != experiment.source[name]
    ]
    faults += _asks_for_less(old, experiment)
    numbers = {name: number for number, name in enumerate(manifest["cells"])}
    names = cell_names(experiment.points)
    gone = numbers.keys() - set(names)
    if gone:
        faults.append(_what_changed(old, experiment.source) or _FLATTENED)
    if faults:
        raise FolderError(
            f"{folder}: holds the results of another experiment: {'; '.join(faults)}. "
            f"`retrystorm show {folder}` prints them; give another folder with --out, or start "
            "afresh with --force"
        )
    free = itertools.count(len(numbers))
    return experiments.renumber(
        experiment, [numbers[name] if name in numbers else next(free) for name in names]
    )


def _asks_for_less(old: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """Name what makes the experiment ask for fewer replications than the folder may hold."""
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
    """Name the parameters, points and values of which rows depend, where two experiments differ."""
    design = [source["design"] or {} for source in (old, new)]
    ranges = [
        {f"{span['name']} in the design": span for span in of.get("ranges", ())} for of in design
    ]
    settings = [
        {f"{name} of the design": value for name, value in of.items() if name != "ranges"}
        for of in design
    ]
    parts = _differences(old, new, old["fixed"], new["fixed"])
    for kind in ("scenario", "policy"):
        points = [{point["name"]: point for point in source[kind]} for source in (old, new)]
        for name, point in points[0].items():
            if name not in points[1]:
                parts.append(f"{kind} {quote(name)} is gone")
            elif changes := _differences(old, new, point, points[1][name]):
                parts.append(f"{kind} {quote(name)}: {', '.join(changes)}")
    axes = [{axis["name"]: axis["values"] for axis in source["grid"]} for source in (old, new)]
    for name in dict.fromkeys((*axes[0], *axes[1])):
        was, now = (of.get(name) for of in axes)
        if was is None or now is None:
            parts.append(f"{name} is {'new in' if was is None else 'gone from'} the grid")
        elif gone := [value for value in was if value not in now]:
            parts.append(f"{name} {values_text(gone, partial(_written, old, name))} is gone")
    for was, now in (settings, ranges):
        names = dict.fromkeys((*was, *now))
        parts += [f"{name} is another" for name in names if was.get(name) != now.get(name)]
    if any(condition not in old["exclude"] for condition in new["exclude"]):
        parts.append("an exclude is new, or another")
    more = f"; {len(parts) - _N_CHANGES} more" if len(parts) > _N_CHANGES else ""
    return "; ".join(parts[:_N_CHANGES]) + more


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], was: Mapping[str, Any], now: Mapping[str, Any]
) -> list[str]:
    """Name the parameters of one table that differ, given the experiments that they are of."""

    def told(source: Mapping[str, Any], table: Mapping[str, Any], name: str) -> str:
        return _written(source, name, table[name]) if name in table else "not set"

    return [
        f"{name} was {told(old, was, name)}, is {told(new, now, name)}"
        for name in dict.fromkeys((*was, *now))
        if was.get(name, _MISSING) != now.get(name, _MISSING)
    ]


def _written(source: Mapping[str, Any], name: str, value: Any) -> str:
    """A value of a parameter as a reader is given it, cut where it is long."""
    per_second = readers_second(source)
    try:
        typed = parse_parameter(name, value)
    except ValueError:
        typed = None
    if typed is None or per_second is None:
        return show(value)
    of = PARAMETERS[name]
    return shortened(units.text_of(of.dimension, typed, per_second, of.unit))
