"""Which cell is best, and which are on the frontier of two metrics."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import statistics, store
from mc.decisions.choosing import (
    QuestionError,
    cell_name,
    coordinates,
    metric_named,
    where_all,
)
from mc.experiment.messages import hint, listed, quote
from mc.model import Metric
from mc.statistics import Stack
from mc.statistics.best import (
    NO,
    Constraint,
    Goal,
    Paired,
    Relation,
    find_best,
    find_frontier,
)
from mc.statistics.rows import Numbers
from mc.store import Results

MIN_REPLICATIONS: Final = 30
"""With fewer no paired interval is to be trusted."""

MAX_CELLS: Final = 2000
"""Each is compared with each other."""


def best(
    folder: str | Path,
    metric: str,
    goal: Goal = "min",
    subject_to: Sequence[str] = (),
    per: Sequence[str] = ("scenario",),
    where: Sequence[str] = (),
    across: Sequence[str] = (),
    level: float = statistics.LEVEL,
    say: Callable[[str], None] = lambda message: None,
) -> pl.DataFrame:
    """Find the best cell, and all that cannot be told from it.

    Parameters
    ----------
    folder : path
        A results folder that keeps rows.
    metric : str
        What is to be small or large on average.
    goal : {"min", "max"}
        Which of the two.
    subject_to : sequence of str
        Conditions on other means, with ``<``, ``<=``, ``>=`` or ``>``: ``"times_usual <= 2"``.
    per : sequence of str
        Coordinates, that is scenario, policy and the axes of the grid: for each of their values
        the best is sought among its own cells. With none all cells compete.
    where : sequence of str
        Only cells that all of these describe: a number, the name of a policy, or conditions
        ``name=value``, separated by commas.
    across : sequence of str
        Coordinates over which one answer is sought: with ``("scenario",)`` what competes are
        policies and places of the grid; the mean is that over all scenarios, and a condition
        must hold in each. They are not in `per`.
    level : float
        Between 0 and 1: of all statements about the cells that compete, together.
    say : callable
        Told where there is no answer, and why: a metric of the fault window has no value in a
        scenario without fault.

    Returns
    -------
    polars.DataFrame
        For each cell: `cell` (not with `across`), the coordinates, `mean`; the mean of each
        metric of a condition, by its name (across several, the one nearest to the bound);
        `difference` to the best of the others with its interval `low`, `high`, NULL where the
        cell is surely not feasible or no end is known; `feasible` (yes, no, undecided);
        `candidate`, whether it cannot be told from the best; `best`, whether it is the only
        candidate, and surely feasible; `n`, the replications in which every competing cell has a
        value. Cells that are equal in all that is asked, in every replication, count as one.

    Raises
    ------
    FolderError
        The folder is not finished, or keeps no rows.
    QuestionError
        There is no such metric, coordinate or cell; a condition cannot be read; nothing competes,
        or more than `MAX_CELLS` do; or there is no answer anywhere: there are less than
        `MIN_REPLICATIONS` in which every cell has a value.

    Notes
    -----
    Multiple comparisons with the best, see `statistics.best.find_best`. An end of the interval
    that is 0 means: surely not the best, or surely the best.

    Examples
    --------
    The fewest requests dropped at no more than five times the usual load:

    >>> import mc
    >>> found = mc.best("results/lesson", "dropped", subject_to=["times_usual <= 5"])
    >>> outage = found.filter(found["scenario"] == "outage (1 s)")
    >>> outage.filter(outage["candidate"]).select("policy", "mean", "best").rows()
    [('gateway only (3)', 93.3291, True)]
    >>> outage["feasible"].to_list()
    ['yes', 'yes', 'no', 'no', 'yes', 'yes']
    """
    results = store.load(folder)
    bounds = [_constraint(text) for text in subject_to]
    asked = [metric_named(metric), *(bound[0] for bound in bounds)]
    metrics = list({one.name: one for one in asked}.values())
    per = [name for name in per if name not in across]
    frames, refused = [], []
    for cells in _competing(results, per, where, across):
        try:
            race = _race(results, cells, metrics, across, say)
        except QuestionError as error:
            refused.append(str(error))
            continue
        first, places = _different(race)
        ranked = _ranked(_some(race, first), metric, goal, bounds, level)
        frames.append(race.rivals.hstack(ranked.drop(race.rivals.columns)[places]))
    return _all_of(frames, refused, say)


def _ranked(
    race: _Race,
    metric: str,
    goal: Goal,
    bounds: Sequence[tuple[Metric, Relation, float]],
    level: float,
) -> pl.DataFrame:
    """The lines of `best` about the rivals of one question."""
    constraints = [
        Constraint(values, relation, number)
        for of, relation, number in bounds
        for values in race.values[of.name]
    ]
    found = find_best(_together(race.values[metric]), goal, constraints, level)
    is_best = np.arange(race.rivals.height) == (-1 if found.best is None else found.best)
    out = found.feasible == NO  # it competes with none: a difference would only confuse
    nearest = {
        of.name: pl.Series(_nearest(race.values[of.name], relation))
        for of, relation, _ in bounds
        if of.name != metric
    }
    return race.rivals.with_columns(
        mean=pl.Series(found.mean),
        **nearest,
        difference=_finite(np.where(out, np.nan, found.difference)),
        low=_finite(np.where(out, np.nan, found.low)),
        high=_finite(np.where(out, np.nan, found.high)),
        feasible=pl.Series(found.feasible.tolist()),
        candidate=pl.Series(found.candidate),
        best=pl.Series(is_best),
        n=pl.lit(race.n, pl.Int64),
    )


def _together(parts: Sequence[Paired]) -> Paired:
    """The mean over several places, replication by replication; whole numbers remain whole."""
    if len(parts) == 1:
        return parts[0]
    divisors = np.stack([np.broadcast_to(p.divisors, len(p.numbers)) for p in parts])
    if np.all(divisors == divisors[:1]):
        return Paired(np.sum([p.numbers for p in parts], axis=0), divisors[0] * len(parts))
    values = [p.numbers / d[:, np.newaxis] for p, d in zip(parts, divisors, strict=True)]
    return Paired(np.mean(values, axis=0))


def _nearest(parts: Sequence[Paired], relation: Relation) -> NDArray[np.float64]:
    """Of each rival the mean that is nearest to a bound."""
    means = [p.numbers.mean(axis=1) / p.divisors for p in parts]
    found: NDArray[np.float64] = (np.max if relation in ("<", "<=") else np.min)(means, axis=0)
    return found


def _all_of(
    frames: Sequence[pl.DataFrame], refused: Sequence[str], say: Callable[[str], None]
) -> pl.DataFrame:
    """Join the answers; refuse if there is none, and tell of those that are missing."""
    if not frames:
        raise QuestionError("; ".join(dict.fromkeys(refused)))
    for reason in dict.fromkeys(refused):
        say(reason)
    return pl.concat(frames)


def frontier(
    folder: str | Path,
    one: str,
    other: str,
    goals: tuple[Goal, Goal] = ("min", "min"),
    per: Sequence[str] = ("scenario",),
    where: Sequence[str] = (),
    level: float = statistics.LEVEL,
    say: Callable[[str], None] = lambda message: None,
) -> pl.DataFrame:
    """Find the cells that no other beats in both of two metrics.

    Parameters
    ----------
    folder : path
        A results folder that keeps rows.
    one, other : str
        Two metrics.
    goals : pair of {"min", "max"}
        Which mean of each is good.
    per : sequence of str
        Coordinates: for each of their values there is a frontier of its own cells.
    where : sequence of str
        Only cells that all of these describe, as for `best`.
    level : float
        Between 0 and 1: of all answers about the cells that compete, together.
    say : callable
        Told where there is no answer, and why.

    Returns
    -------
    polars.DataFrame
        For each cell: `cell`, the coordinates; for both metrics a column of its name, the mean,
        and one with `_half_width`, half the length of its 95 % interval, alone; `on` the frontier
        (yes, no, undecided), all answers together at `level`; `dominated_by`, the number of a
        cell that surely beats it, NULL without one; `n`, as for `best`.

    Raises
    ------
    FolderError
        As for `best`.
    QuestionError
        As for `best`; or both metrics are the same.

    Notes
    -----
    See `statistics.best.find_frontier`.

    Examples
    --------
    Less dropped at the price of more calls: which policies are worth it?

    >>> import mc
    >>> found = mc.frontier(
    ...     "results/lesson", "dropped", "times_usual", where=["scenario=outage (1 s)"]
    ... )
    >>> found.filter(found["on"] == "no").select("policy", "dominated_by").rows()
    [('three layers + budget 0.30', 7)]
    """
    results = store.load(folder)
    metrics = [metric_named(one), metric_named(other)]
    if one == other:
        raise QuestionError(f"two different metrics are needed, got {one} twice")
    frames, refused = [], []
    for cells in _competing(results, per, where):
        try:
            race = _race(results, cells, metrics, (), say)
        except QuestionError as error:
            refused.append(str(error))
            continue
        first, places = _different(race)
        found = _on_frontier(_some(race, first), metrics, goals, level)
        frames.append(race.rivals.hstack(found.drop(race.rivals.columns)[places]))
    return _all_of(frames, refused, say)


def _on_frontier(
    race: _Race, metrics: Sequence[Metric], goals: tuple[Goal, Goal], level: float
) -> pl.DataFrame:
    """The lines of `frontier` about the rivals of one question."""
    values = [race.values[metric.name][0] for metric in metrics]
    found = find_frontier(values[0], values[1], goals, level)
    numbers = race.rivals["cell"].to_list()
    by = [numbers[k] if k >= 0 else None for k in found.dominated_by.tolist()]
    columns = {}
    for metric, value in zip(metrics, values, strict=True):
        scaled = value.numbers / np.asarray(value.divisors)[:, np.newaxis]
        mcse = scaled.std(axis=1, ddof=1) / np.sqrt(race.n)
        columns[metric.name] = pl.Series(scaled.mean(axis=1))
        columns[f"{metric.name}_half_width"] = pl.Series(
            statistics.intervals.t_half_width(np.full(len(mcse), race.n), mcse)
        )
    return race.rivals.with_columns(
        **columns,
        on=pl.Series(found.on.tolist()),
        dominated_by=pl.Series(by, dtype=pl.Int32),
        n=pl.lit(race.n, pl.Int64),
    )


_CONSTRAINT: Final = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\S+)\s*")


def _constraint(text: str) -> tuple[Metric, Relation, float]:
    """Read ``metric relation number``."""
    match = _CONSTRAINT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        number = float(match[3])
        if not math.isfinite(number):
            raise ValueError
        return metric_named(match[1]), cast(Relation, match[2]), number
    except QuestionError:
        raise
    except ValueError:
        raise QuestionError(
            f'a condition must be like "times_usual <= 2", got {quote(text)}'
        ) from None


def _competing(
    results: Results, per: Sequence[str], where: Sequence[str], across: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """The cells of each question: for each value of some coordinates."""
    known = coordinates(results)
    for name in (*per, *across):
        if name not in known:
            raise QuestionError(f"{quote(name)} is not a coordinate{hint(name, known)}")
    cells = where_all(results, where)
    keys = list(dict.fromkeys(per))  # each once
    groups = [cells] if not keys else [g for _, g in cells.group_by(keys, maintain_order=True)]
    apart = [name for name in known if name not in across]
    if max(group.n_unique(apart) for group in groups) < 2:
        fixed = [*per, *across]
        raise QuestionError(
            f"there is a single cell for each combination of {listed(fixed)}: nothing competes"
            if fixed
            else "there is a single cell"
        )
    yield from groups


@dataclass(frozen=True)
class _Race:
    """What competes: K rivals in S places, and n replications of each.

    Attributes
    ----------
    rivals : polars.DataFrame, height K
        The coordinates that tell them apart, and their cells if S is 1.
    n : int
        Replications in which all values are known.
    values : mapping of str to list of Paired
        For each metric its values in those places in which it is defined.
    """

    rivals: pl.DataFrame
    n: int
    values: Mapping[str, list[Paired]]


def _race(
    results: Results,
    cells: pl.DataFrame,
    metrics: Sequence[Metric],
    across: Sequence[str],
    say: Callable[[str], None],
) -> _Race:
    """Read the values of some metrics in all replications in which every rival has all of them.

    Raises
    ------
    QuestionError
        Too many compete, or there are too few such replications.
    """
    names = [name for name in coordinates(results) if name not in across]
    keys = list(dict.fromkeys(across))
    places = [cells] if not keys else [p for _, p in cells.group_by(keys, maintain_order=True)]
    rivals = places[0]
    for place in places[1:]:
        rivals = rivals.join(place, on=names, how="semi", nulls_equal=True, maintain_order="left")
    if rivals.height > MAX_CELLS:
        raise QuestionError(
            f"{rivals.height:,} cells compete, at most {MAX_CELLS:,} can be compared each with "
            "each: narrow them with --where, or split them with --per"
        )
    n_out = max(place.height for place in places) - rivals.height
    if n_out:
        say(f"{n_out} cells are left out: they are not in every {' and '.join(across)}")
    numbers = [
        rivals.select(names)
        .join(place, on=names, how="left", nulls_equal=True, maintain_order="left")["cell"]
        .to_list()
        for place in places
    ]
    taken, n_rows = _numbers(results, [n for part in numbers for n in part], metrics)
    if n_rows < int(cells["replications"].max()):  # type: ignore[arg-type]
        say(f"only the first {n_rows:,} replications are used, which all of these cells have")
    known = np.ones(n_rows, np.bool_)
    values: dict[str, list[Paired]] = {}
    missing: list[str] = []
    chosen: dict[str, list[Numbers]] = {}
    for metric in metrics:
        parts = [taken[metric.name].of(np.arange(k, k + rivals.height)) for k in _starts(numbers)]
        defined = [part for part in parts if part.known.any()]
        if len(defined) < len(parts):
            missing.append(metric.name)
            undefined = [p for p, part in zip(places, parts, strict=True) if not part.known.any()]
            for place in undefined if len(places) > 1 else ():
                say(f"{_called(place, across)}: {metric.name} is undefined, it is left out there")
        chosen[metric.name] = defined
        for part in defined:
            known &= part.known.all(axis=0)
    if not all(chosen.values()):
        known[:] = False
    n = int(np.count_nonzero(known))
    if n < MIN_REPLICATIONS:
        where = _called(cells, ["scenario"]) if cells["scenario"].n_unique() == 1 else "there"
        raise QuestionError(
            f"{where}: no answer, for "
            + (
                f"{listed(missing)} is undefined without a fault window"
                if missing
                else f"at least {MIN_REPLICATIONS} replications are needed in which every cell "
                f"has a value, and there are {n}"
            )
        )
    for name, parts in chosen.items():
        values[name] = [Paired(part.numbers[:, known], part.divisors) for part in parts]
    kept = names if across else ["cell", *names]
    return _Race(rivals.select(kept), n, values)


def _different(race: _Race) -> tuple[list[int], list[int]]:
    """The rivals that differ from all before them, and for each rival the place of its like.

    Those that are equal in all that is asked, in every replication, run as one: most often they
    are the same by their parameters, as with a backoff cap that is never reached.
    """
    known: dict[bytes, int] = {}
    first: list[int] = []
    places: list[int] = []
    for k in range(race.rivals.height):
        digest = hashlib.sha256()
        for parts in race.values.values():
            for part in parts:
                divisor = np.broadcast_to(part.divisors, len(part.numbers))[k]
                digest.update(np.ascontiguousarray(part.numbers[k]).tobytes() + divisor.tobytes())
        if digest.digest() not in known:
            known[digest.digest()] = len(first)
            first.append(k)
        places.append(known[digest.digest()])
    return first, places


def _some(race: _Race, chosen: Sequence[int]) -> _Race:
    """Some of the rivals."""
    places = list(chosen)
    values = {
        name: [
            Paired(p.numbers[places], np.broadcast_to(p.divisors, len(p.numbers))[places])
            for p in parts
        ]
        for name, parts in race.values.items()
    }
    return _Race(race.rivals[places], race.n, values)


def _starts(numbers: Sequence[Sequence[int]]) -> range:
    """Where each place begins among all cells."""
    return range(0, sum(map(len, numbers)), max(1, len(numbers[0])))


def _called(cells: pl.DataFrame, names: Sequence[str]) -> str:
    return cell_name(cells.row(0, named=True), names)


def _numbers(
    results: Results, wanted: Sequence[int], metrics: Sequence[Metric]
) -> tuple[dict[str, Numbers], int]:
    """The values of some metrics in the cells of these numbers, in their order."""
    cells = results.cells.filter(pl.col("cell").is_in(list(wanted))).sort("cell")
    n = int(cells["replications"].min())  # type: ignore[arg-type]
    rows = (
        results.scan()
        .filter(pl.col("cell").is_in(list(wanted)), pl.col("replication") < n)
        .sort("cell", "replication")
        .collect()
    )
    stack = Stack(cells, np.arange(cells.height), rows)
    order = np.searchsorted(cells["cell"].to_numpy(), wanted)
    return {metric.name: stack.numbers(metric).of(order) for metric in metrics}, n


def _finite(values: Any) -> pl.Series:
    """NULL in place of an end that is infinite."""
    series = pl.Series(values)
    return series.set(~series.is_finite(), None)
