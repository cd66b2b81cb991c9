"""Which cell is best, and which are on the frontier of two metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import statistics, store
from mc.decisions.choosing import QuestionError, Wanted, metric_named, several
from mc.decisions.rivals import UNDECIDED_REQUESTS, Rivals, Say, ask, questions, read_rivals
from mc.experiment.messages import quote
from mc.model import METRICS, OVER_CAPACITY, Metric, units
from mc.model.digits import readers_second, rounds_per_second
from mc.statistics.best import (
    NO,
    UNDECIDED,
    YES,
    Constraint,
    Goal,
    Paired,
    Relation,
    find_best,
    find_frontier,
    mean_and_half_width,
)
from mc.store import Results


def best(
    folder: str | Path | Results,
    metric: str,
    goal: Goal = "min",
    subject_to: str | Sequence[str] = (),
    per: str | Sequence[str] = ("scenario",),
    where: Wanted | Sequence[Wanted] = (),
    across: str | Sequence[str] = (),
    level: float = statistics.LEVEL,
    say: Say = lambda message: None,
) -> pl.DataFrame:
    """Find the best cell, and all that cannot be told from it.

    Parameters
    ----------
    folder : path or Results
        A results folder that keeps rows.
    metric : str
        What is to be small or large on average.
    goal : {"min", "max"}
        Which of the two.
    subject_to : str or sequence of str
        Conditions on other means, with ``<``, ``<=``, ``>=`` or ``>``: ``"times_usual <= 2"``,
        ``"window_rate <= 300/s"``, ``"peak <= 2 x capacity"``, ``"late_share < 1 %"``. A number
        without a unit is in the metric's own, and `say` is told where a reader is given another.
    per : str or sequence of str
        Coordinates, that is scenario, policy and the axes of the grid: for each of their values
        the best is sought among its own cells. With none all cells compete.
    where : str, int, or sequence of these
        Only cells that all of these describe: a number, the name of a policy, or conditions
        ``name=value``, separated by commas.
    across : str or sequence of str
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
        metric of a condition, by its name, or as `peak_x_capacity` (across several, the one nearest
        to the bound); each with `_half_width`, half the length of its 95 % interval, alone, NULL
        where it has none; `difference` to the best of the others with its interval `low`, `high`,
        NULL where the cell is surely not feasible or no end is known; `is_bound`, whether an end is
        only a bound for the worst case, for want of replications in which the cells differ;
        `n_needed`, about how many replications give an interval in place of a bound, or decide
        about a candidate if means stay as they are, NULL where nothing is open or cells never
        differed; `feasible` (yes, no, undecided; of a cell of which too many requests are undecided
        when the run ends to compare these metrics "undecided requests", it does not compete);
        `candidate`, whether it cannot be told from the best, NULL where it does not compete;
        `best`, whether it is the only
        candidate, and surely feasible; `n`, the replications in which every competing cell has a
        value; `group`: cells of one group are equal in all that is asked, in every replication, and
        count as one.

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
    Multiple comparisons with the best, see `statistics.best.find_best`. Intervals are cut off at 0,
    so those of most cells are one-sided: an interval with 0 as its worse end belongs to a cell that
    is surely as good as each other, one with 0 as its better end to a cell that is surely not
    better than some other.

    Examples
    --------
    The fewest requests dropped at no more than five times the usual load:

    >>> import mc
    >>> ranked = mc.best("results/lesson", "dropped", subject_to=["times_usual <= 5"])
    >>> outage = ranked.filter(ranked["scenario"] == "outage (1 s)")
    >>> outage.filter(outage["candidate"]).select("policy", "mean", "best").rows()
    [('gateway only (3)', 93.3291, True)]
    >>> outage["feasible"].to_list()
    ['yes', 'yes', 'no', 'no', 'yes', 'yes', 'no']
    """
    results = store.load(folder)
    bounds = [condition(text, results, say) for text in several(subject_to)]
    across = several(across)
    asked = [metric_named(metric, results), *(bound.metric for bound in bounds)]
    metrics = list({one.name: one for one in asked}.values())
    groups = questions(
        results, [name for name in several(per) if name not in across], where, across
    )

    def answer(cells: pl.DataFrame) -> pl.DataFrame:
        rivals = read_rivals(results, cells, metrics, across, say)
        return ask(rivals, lambda some: _ranked(some, metric, goal, bounds, level))

    return _all_answers(groups, answer, say)


def best_among(
    results: Results, cells: pl.DataFrame, metric: Metric, goal: Goal = "min"
) -> pl.DataFrame:
    """Find the best of some lines of the table of cells, without conditions; as for `best`."""
    rivals = read_rivals(results, cells, [metric])
    return ask(rivals, lambda some: _ranked(some, metric.name, goal, (), statistics.LEVEL))


def _ranked(
    rivals: Rivals,
    metric: str,
    goal: Goal,
    bounds: Sequence[Condition],
    level: float,
) -> pl.DataFrame:
    """The lines of `best` about the rivals of one question."""
    constraints = [
        Constraint(values, relation, number)
        for of, relation, number in bounds
        for values in rivals.values[of.name]
    ]
    objective = _together(rivals.values[metric])
    answer = find_best(objective, goal, constraints, level, rivals.competes)
    is_best = np.arange(rivals.names.height) == (-1 if answer.best is None else answer.best)
    feasible = np.where(rivals.competes, answer.feasible, UNDECIDED_REQUESTS)
    # they compete with none: a difference would only confuse
    out = (answer.feasible == NO) | ~rivals.competes
    is_bound = (answer.needed > rivals.n) & ~out
    to_decide = np.where(answer.to_decide > 0, answer.to_decide, np.nan)
    is_share = METRICS[metric].is_indicator and len(rivals.values[metric]) == 1
    means = _estimate("mean", *mean_and_half_width(objective, is_share=is_share))
    for of, relation, _ in bounds:
        if of.name != metric:
            means |= _estimate(of.name, *_nearest(rivals.values[of.name], relation, of))
    return rivals.names.with_columns(
        **means,
        difference=_finite(np.where(out, np.nan, answer.difference)),
        low=_finite(np.where(out, np.nan, answer.low)),
        high=_finite(np.where(out, np.nan, answer.high)),
        is_bound=pl.Series(is_bound),
        n_needed=_finite(np.ceil(np.where(is_bound, answer.needed, to_decide))).cast(pl.Int64),
        feasible=pl.Series(feasible.tolist()),
        candidate=pl.Series(answer.candidate).set(pl.Series(~rivals.competes), None),
        best=pl.Series(is_best),
        n=pl.lit(rivals.n, pl.Int64),
    )


def _together(parts: Sequence[Paired]) -> Paired:
    """The mean over several places, replication by replication; whole numbers remain whole."""
    if len(parts) == 1:
        return parts[0]
    divisors = np.stack([np.broadcast_to(p.divisors, len(p.numbers)) for p in parts])
    span = np.mean([p.spans for p in parts], axis=0)
    if np.all(divisors == divisors[:1]):
        return Paired(np.sum([p.numbers for p in parts], axis=0), divisors[0] * len(parts), span)
    values = [p.numbers / d[:, np.newaxis] for p, d in zip(parts, divisors, strict=True)]
    return Paired(np.mean(values, axis=0), span=span)


def _nearest(
    parts: Sequence[Paired], relation: Relation, metric: Metric
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each rival the mean that is nearest to a bound, and its half-width."""
    estimates = [mean_and_half_width(part, is_share=metric.is_indicator) for part in parts]
    means, half_widths = np.stack(estimates, axis=1)
    nearest = np.argmax if relation in ("<", "<=") else np.argmin
    at = nearest(means, axis=0), np.arange(means.shape[1])
    return means[at], half_widths[at]


def _estimate(
    name: str, mean: NDArray[np.float64], half_width: NDArray[np.float64]
) -> dict[str, pl.Series]:
    """The columns of a mean and of its error."""
    return {name: pl.Series(mean), f"{name}_half_width": _finite(half_width)}


def _all_answers(
    groups: Iterable[pl.DataFrame], answer: Callable[[pl.DataFrame], pl.DataFrame], say: Say
) -> pl.DataFrame:
    """Answer each question; refuse if none can be answered, and tell of those that cannot."""
    frames, refused = [], []
    for cells in groups:
        try:
            frames.append(answer(cells))
        except QuestionError as error:
            refused.append(str(error))
    reasons = list(dict.fromkeys(refused))
    if not frames:
        raise QuestionError("; ".join(reasons))
    for reason in reasons:
        say(reason)
    return pl.concat(frames)


def frontier(
    folder: str | Path | Results,
    one: str,
    other: str,
    goals: tuple[Goal, Goal] = ("min", "min"),
    per: str | Sequence[str] = ("scenario",),
    where: Wanted | Sequence[Wanted] = (),
    level: float = statistics.LEVEL,
    say: Say = lambda message: None,
) -> pl.DataFrame:
    """Find the cells that no other beats in both of two metrics.

    Parameters
    ----------
    folder : path or Results
        A results folder that keeps rows.
    one, other : str
        Two metrics.
    goals : pair of {"min", "max"}
        Which mean of each is good.
    per : str or sequence of str
        Coordinates: for each of their values there is a frontier of its own cells.
    where : str, int, or sequence of these
        Only cells that all of these describe, as for `best`.
    level : float
        Between 0 and 1: of all answers about the cells that compete, together.
    say : callable
        Told where there is no answer, and why.

    Returns
    -------
    polars.DataFrame
        For each cell: `cell`, the coordinates; for both metrics a column of its name, the mean,
        and one with `_half_width`, half the length of its 95 % interval, alone, NULL where it has
        none; `on` the frontier (yes, no, undecided; "undecided requests" as for `best`), all
        answers together at `level`;
        `dominated_by`, the number of a cell that surely beats it, NULL without one; `n` and
        `group`, as for `best`; `group_on`, the answer about the group, taken as one. Of cells that
        were equal in every replication one may beat the others: where the group is on the frontier,
        at least one of its cells is, and which one is undecided.

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
    >>> cells = mc.frontier(
    ...     "results/lesson", "dropped", "times_usual", where=["scenario=outage (1 s)"]
    ... )
    >>> cells.filter(cells["on"] == "no").select("policy", "dominated_by").rows()
    [('three layers + budget 0.30', 8), ('three layers, nested', 9)]
    """
    results = store.load(folder)
    metrics = metric_named(one, results), metric_named(other, results)
    if one == other:
        raise QuestionError(f"two different metrics are needed, got {one} twice")
    return _all_answers(
        questions(results, several(per), where),
        lambda cells: frontier_among(results, cells, metrics, goals, level, say),
        say,
    )


def frontier_among(
    results: Results,
    cells: pl.DataFrame,
    metrics: tuple[Metric, Metric],
    goals: tuple[Goal, Goal] = ("min", "min"),
    level: float = statistics.LEVEL,
    say: Say = lambda message: None,
) -> pl.DataFrame:
    """Find the frontier of some lines of the table of cells; as for `frontier`."""
    rivals = read_rivals(results, cells, metrics, say=say)
    answers = ask(rivals, lambda some: _on_frontier(some, metrics, goals, level))
    is_alone = pl.len().over("group") == 1
    on = pl.when((pl.col("on") == YES) & ~is_alone).then(pl.lit(UNDECIDED)).otherwise("on")
    return answers.with_columns(on=on, group_on="on")


def _on_frontier(
    rivals: Rivals, metrics: Sequence[Metric], goals: tuple[Goal, Goal], level: float
) -> pl.DataFrame:
    """The lines of `frontier` about the rivals of one question."""
    values = [rivals.values[metric.name][0] for metric in metrics]
    answer = find_frontier(values[0], values[1], goals, level, rivals.competes)
    on = np.where(rivals.competes, answer.on, UNDECIDED_REQUESTS)
    numbers = rivals.names["cell"].to_list()
    by = [numbers[k] if k >= 0 else None for k in answer.dominated_by.tolist()]
    columns: dict[str, pl.Series] = {}
    for metric, value in zip(metrics, values, strict=True):
        columns |= _estimate(metric.name, *mean_and_half_width(value, is_share=metric.is_indicator))
    return rivals.names.with_columns(
        **columns,
        on=pl.Series(on.tolist()),
        dominated_by=pl.Series(by, dtype=pl.Int32),
        n=pl.lit(rivals.n, pl.Int64),
    )


class Condition(NamedTuple):
    """A condition on the mean of a metric; the number is in the metric's own unit."""

    metric: Metric
    relation: Relation
    number: float

    def for_reader(self, source: Mapping[str, Any]) -> tuple[float, str]:
        """The number and the unit that a reader is given; `source` is the experiment."""
        unit, factor = self.metric.unit, 1.0
        if unit == "share":
            unit, factor = "%", 100.0
        elif self.metric.dimension is not None:
            unit, factor = units.for_reader(unit, readers_second(source))
        return self.number * factor, "x usual" if self.metric.name == "times_usual" else unit

    def text(self, source: Mapping[str, Any]) -> str:
        """It with the unit of a reader."""
        number, unit = self.for_reader(source)
        name = self.metric.counter if self.metric.name in OVER_CAPACITY else self.metric.name
        return f"{name} {self.relation} {number:.6g} {unit}"


_CONDITION: Final = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*(\S.*?)\s*")
_MULTIPLE: Final = re.compile(r"(\S+?)\s*x(?: (usual|capacity))?")


def condition(text: str, results: Results, say: Say = lambda message: None) -> Condition:
    """Read ``metric relation number``; the number may have a unit.

    `say` is told what a number without a unit was taken for, where a reader is given another unit.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise QuestionError(f'a condition must be like "times_usual <= 2", got {quote(text)}')
    metric, relation = metric_named(match[1], results), cast(Relation, match[2])
    source = results.manifest["experiment"]
    over = OVER_CAPACITY.get(f"{metric.name}_x_capacity")
    try:
        times = _MULTIPLE.fullmatch(match[3])
        if times is not None:
            of = {"times_usual": "usual"}.get(metric.name, "capacity" if over else None)
            if of is None or times[2] not in (None, of):
                raise ValueError(f"{metric.name} is no multiple of that")
            return Condition(over or metric, relation, _plain(times[1]))
        without = match[3].removesuffix(f" {metric.unit}") if metric.unit else match[3]
        per_second = rounds_per_second(source)
        number = _number(re.sub(r" calls/", "/", without), metric, per_second)
    except ValueError as error:
        raise QuestionError(
            f'a condition must be like "times_usual <= 2", got {quote(text)}: {error}'
        ) from None
    found = Condition(metric, relation, number)
    has_unit = re.search(r"[\d.]$", match[3]) is None
    if not has_unit and (over or found.for_reader(source)[0] != number):
        instead = f'; over the capacity: "{metric.name} {relation} {match[3]} x capacity"'
        say(f"{text} is taken as {found.text(source)}{instead if over else ''}")
    return found


def _number(text: str, metric: Metric, per_second: float | None) -> float:
    try:
        float(text)
    except ValueError:
        return metric.number_of(text, per_second)
    return _plain(text)


def _plain(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number must be finite")
    return number


def _finite(values: Any) -> pl.Series:
    """NULL in place of an end that is infinite."""
    series = pl.Series(values)
    return series.set(~series.is_finite(), None)
