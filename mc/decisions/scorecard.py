"""The scorecard: the few numbers by which people choose a policy, for each scenario."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import polars as pl

from mc.decisions.choosing import QuestionError, coordinates, places
from mc.decisions.ranking import best_among, frontier_among
from mc.model import METRICS, Metric, units
from mc.model.digits import (
    FEW,
    half_width,
    known_digits,
    percent,
    range_ends,
    rounds_per_second,
    short_estimate,
)
from mc.statistics.best import UNDECIDED, YES, Goal
from mc.store import OF_UNDECIDED, Results, place_name, undecided

_T = TypeVar("_T")

MOST_LINES: Final = 10
"""Lines of a sweep."""

MOST_CELLS: Final = 12
"""A scenario with more, that differ by more than their policy, is a sweep."""

FLIPPED: Final = 0.5
"""Of the runs recover so many more at one value of an axis than at another: another verdict."""

ALIKE_SHARE: Final = 0.001
"""Shares of requests that differ by less are alike: one request in a thousand."""

ALIKE_LOAD: Final = 0.05
"""Loads that differ by less, as a part of the smaller, are alike."""

_LEAST: Final = {"late_share": 1e-4, "drain": 0.5, "recovery": 0.5}
"""A column without a mean as large has nothing to say: shares, rounds."""

LEAST_CAPACITY: Final = 6.0
"""Calls that a round must serve, so that its peak over them says something of the load and not of
chance: as many as in the lesson's."""

_ALIKE_RECOVERED: Final = 0.05
"""Shares of runs that recover which differ by less are alike."""

LOADS: Final = ("times_usual", "multiplier")
"""How load is counted: in the fault; without one, over the whole run."""

_READ: Final = [
    *("cell", "metric", "n", "mean", "min", "max"),
    *("ci_low", "ci_high", "p05", "p95", "share_defined"),
]
"""The columns of the summary that a scorecard reads."""


class Column(NamedTuple):
    """A column of the scorecard.

    Attributes
    ----------
    metric : str
    head : str
        At most two lines.
    unit : str
        In which its scores are given.
    """

    metric: str
    head: str
    unit: str


class Score(NamedTuple):
    """A number of a cell, in the unit of its column.

    Attributes
    ----------
    mean : float
        Over the replications that have such a number.
    half_width : float or None
        Half of the mean's 95 % interval; 0 where it is the same in every run; None where it has
        none, or `of_runs`.
    low, high : float or None
        Between these lie nine of ten single runs; `high` is None where it is later than the run.
        If `of_runs`, the ends of the 95 % interval.
    share : float
        The share of replications that have such a number.
    n : int
        Replications with such a number.
    is_best : bool
        Whether it is surely the best of its column, alone or equal with others: all of a column
        together with 95 % confidence.
    of_runs : bool
        Whether the mean is a share of the runs, in each of which the number is 0 or 1.
    """

    mean: float
    half_width: float | None
    low: float | None
    high: float | None
    share: float
    n: int
    is_best: bool
    of_runs: bool

    @property
    def is_known(self) -> bool:
        """Whether the mean says something: of a part of the runs it needs an interval."""
        return self.share == 1 or (self.half_width is not None and self.n >= FEW)

    @property
    def n_of(self) -> str:
        """How many of all runs have such a number."""
        return f"{self.n:,} of {round(self.n / self.share):,}"

    @property
    def text(self) -> str:
        """The mean with its error, see `digits.short_estimate`; a dash where it is not known."""
        if not self.is_known or self.of_runs or self.half_width is None:
            return self.known(self.ends())
        return short_estimate(self.mean, self.half_width)

    def known(self, ends: Sequence[str] = ()) -> str:
        """The mean in digits of which the last is known to 1, see `digits.known_digits`."""
        if not self.is_known:
            return "–"
        if self.of_runs:
            return percent(self.mean / 100)
        return known_digits(self.mean, self.half_width, ends)

    def ends(self, n_digits: int = 2) -> tuple[str, ...]:
        """Where single runs lie, see `digits.range_ends`; nothing where all lie at the same."""
        if self.low is None or self.n == 1 or self.low == self.high:
            return ()
        return range_ends(self.low, self.high, n_digits, self.mean)


@dataclass(frozen=True)
class Line:
    """A line of the scorecard.

    Attributes
    ----------
    name : str
        Of the cell, by what differs in its scenario.
    place : mapping of str to str
        The same by coordinate; a coordinate that does not matter is missing.
    cells : tuple of int
        The cell; or several that are equal in every replication.
    scores : tuple of (Score or None)
        One for each column; None where the cell has no such number.
    undecided : float
        Share of the requests that are undecided when the runs end; 0 where that is small.
    """

    name: str
    place: Mapping[str, str]
    cells: tuple[int, ...]
    scores: tuple[Score | None, ...]
    undecided: float


@dataclass(frozen=True)
class Scorecard:
    """The scores of one scenario.

    Attributes
    ----------
    scenario : str
    coordinates : tuple of str
        By which its cells differ.
    columns : tuple of Column
    lines : tuple of Line
        One for each cell; of a sweep the frontier of failures and load, of every policy that is not
        on it the cell with the fewest failures, and for each axis in `flips` a pair of cells or
        more that differ in it alone, of which one recovers.
    finding : str
        Its result in a sentence.
    n_cells : int
        Of the scenario.
    is_sweep : bool
        Whether not every cell has a line of its own.
    alike : bool
        Whether all cells are alike in practice, so that the sentence is enough.
    on_frontier : int or None
        Of a sweep how many cells (equal ones counted once) are surely on the frontier; None where
        each cell has its line, or it cannot be known.
    flips : tuple of str
        Of a sweep the axes on which it depends whether runs recover, all else being equal.
    left_out : tuple of str
        Metrics that have something to say, but no room.
    """

    scenario: str
    coordinates: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    finding: str
    n_cells: int
    is_sweep: bool
    alike: bool
    on_frontier: int | None
    flips: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def caption(self) -> str:
        """Of a sweep: how many cells there are, and which have a line."""
        if not self.is_sweep:
            return ""
        n_left = self.n_cells - sum(len(line.cells) for line in self.lines)
        left = f", {n_left:,} not shown" if n_left else ""
        named = "of each policy named" if "policy" in self.coordinates else "of all"
        if self.on_frontier is not None:
            also = f", and {named}" if "policy" in self.coordinates else ""
            named = f"for their load (surely: {self.on_frontier}){also}"
        pairs = ""
        if self.flips:
            axes = " or ".join(self.flips)
            pairs = f"; and pairs that differ in {axes} alone, of which one recovers"
        return f"{self.n_cells:,} cells{left}; least failures {named}{pairs}."

    @property
    def weight(self) -> float:
        """How much happens: the largest load, and the share of requests that fails, 1 in all."""
        return max(
            (
                score.mean if column.metric in LOADS else score.mean / 100
                for line in self.lines
                for column, score in zip(self.columns, line.scores, strict=True)
                if score is not None and column.metric in (*LOADS, "failed_share")
            ),
            default=0.0,
        )


def scorecards(
    results: Results, most_lines: int = MOST_LINES, without: Collection[str] = ()
) -> list[Scorecard]:
    """Make the scorecard of each scenario.

    Parameters
    ----------
    results : Results
        Of a finished run.
    most_lines : int
        Of a sweep.
    without : collection of str
        Metrics that get no column.

    Returns
    -------
    list of Scorecard
        In the order of the file.

    Notes
    -----
    What is surely best is found by `mc.best`, the frontier by `mc.frontier`, for `failed_share` and
    the load; both take rows, so a folder of histograms has neither.
    """
    metrics = [metric for metric, _ in _columns() if metric not in without]
    estimates = _estimates(results, metrics)
    groups = results.cells.group_by("scenario", maintain_order=True)
    return [
        _scorecard(results, str(scenario), cells, estimates, most_lines)
        for (scenario,), cells in groups
    ]


def _estimates(results: Results, metrics: Sequence[str]) -> pl.DataFrame:
    """What a scorecard reads of the summary: a small part of it."""
    of_metrics = results.scan_summary().filter(pl.col("metric").is_in(metrics))
    return of_metrics.select(_READ).collect()


def _by_cell(estimates: pl.DataFrame, cells: Iterable[int]) -> dict[int, dict[str, dict[str, Any]]]:
    """The estimates of some cells, by cell and metric."""
    found: dict[int, dict[str, dict[str, Any]]] = {cell: {} for cell in cells}
    for line in estimates.filter(pl.col("cell").is_in(list(found))).iter_rows(named=True):
        found[line["cell"]][line["metric"]] = line
    return found


def _columns() -> tuple[tuple[str, str], ...]:
    """The metrics that may have a column, with its head."""
    return (
        ("failed_share", "requests\nfailed"),
        ("late_share", "requests\nlate"),
        ("times_usual", "storm,\nx usual"),
        ("multiplier", "calls per\nrequest"),
        ("peak", "peak,\nx capacity"),
        ("recovered", "runs that\nrecover"),
        ("recovery", "recovered\nafter"),
        ("drain", "retries\ngone after"),
    )


def _scorecard(
    results: Results,
    scenario: str,
    cells: pl.DataFrame,
    estimates: pl.DataFrame,
    most_lines: int,
) -> Scorecard:
    estimates = estimates.filter(pl.col("cell").is_in(cells["cell"].implode()))
    columns, left_out = _columns_of(results, cells, estimates)
    varying = [name for name in coordinates(results)[1:] if cells[name].n_unique() > 1]
    is_sweep = cells.height > MOST_CELLS and varying != ["policy"]
    table = _frontier(results, cells, columns) if is_sweep else None
    late = undecided(results)
    groups = _sweep_groups(cells, estimates, table, late, most_lines) if is_sweep else _each(cells)
    flips: tuple[str, ...] = ()
    if is_sweep:
        groups, flips = _with_flips(cells, estimates, groups, varying, most_lines)
    best = {} if is_sweep else _best(results, cells, columns)
    shown = cells.filter(pl.col("cell").is_in([cell for group in groups for cell in group]))
    by_cell = {line["cell"]: line for line in shown.iter_rows(named=True)}
    of_cells = _by_cell(estimates, by_cell)
    lines_of = [[by_cell[cell] for cell in group] for group in groups]
    named = places(lines_of, varying or ["policy"], results.manifest["experiment"])
    lines = tuple(
        Line(
            place_name(place) or "every cell",
            place,
            tuple(group),
            tuple(
                _score(column, of_cells[group[0]], by_cell[group[0]], best, results)
                for column in columns
            ),
            late.get(group[0], 0.0),
        )
        for place, group in zip(named, groups, strict=True)
    )
    sure = None if table is None else table.filter(group_on=YES)["group"].n_unique()
    alike = not is_sweep and _are_alike(columns, lines)
    return Scorecard(
        scenario,
        tuple(varying or ["policy"]),
        columns,
        lines,
        _finding(columns, lines, cells.height, alike, is_sweep),
        cells.height,
        is_sweep,
        alike,
        sure,
        flips,
        left_out,
    )


def _columns_of(
    results: Results, cells: pl.DataFrame, estimates: pl.DataFrame
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """The columns that say something in a scenario: defined, not 0 throughout, and no two alike.

    Then those metrics of them for which there is no room.
    """
    has = {
        metric: estimates.filter(metric=metric)["mean"].drop_nulls().to_list()
        for metric, _ in _columns()
    }
    # more columns do not fit a line; who waits long matters less than whether it ends
    n_ending = len(has["recovered"])
    has_peak = bool(has["peak"]) and any(c >= LEAST_CAPACITY for c in cells["capacity"])
    ends = ["drain" if n_ending == cells.height else "recovery"] if n_ending else []
    ends += ["late_share"] if n_ending and has_peak else []
    nothing = {m for m in _LEAST if max(has[m], default=0.0) < _LEAST[m]}
    dropped = {
        *(["multiplier"] if has["times_usual"] else []),  # without a fault the load is this
        *(["recovered", "recovery"] if _all_recover(cells, has["recovered"]) else []),
        *([] if has_peak else ["peak"]),
        *ends,
        *nothing,
    }
    shown = [(m, head) for m, head in _columns() if has[m] and m not in dropped]
    columns = tuple(Column(metric, head, _unit(results, metric)[0]) for metric, head in shown)
    return columns, tuple(m for m in ends if m not in nothing)


def _all_recover(cells: pl.DataFrame, shares: Sequence[float]) -> bool:
    """Whether calls that wait keep no storm alive: nobody times out, and all cells come back alike.

    What is left of these columns is noise, of the seconds in which more requests arrive than end.
    """
    is_patient = cells["timeout"].null_count() == cells.height
    return bool(shares) and is_patient and min(shares) > max(0.5, max(shares) - _ALIKE_RECOVERED)


def score_of(results: Results, cell: int, metric: str) -> Score | None:
    """A number of a cell as the scorecard has it; None where there is none.

    Parameters
    ----------
    results : Results
    cell : int
    metric : str

    Returns
    -------
    Score or None
    """
    lines = results.summary.filter(pl.col("cell") == cell, pl.col("metric") == metric)
    if lines.is_empty():
        return None
    [of_cell] = results.cells.filter(pl.col("cell") == cell).iter_rows(named=True)
    column = Column(metric, "", _unit(results, metric)[0])
    return _score(column, {metric: lines.row(0, named=True)}, of_cell, {}, results)


def _unit(results: Results, metric: str) -> tuple[str, float]:
    """The unit of a column, and by what a number of the metric is multiplied for it."""
    if METRICS[metric].unit == "share":
        return "%", 100.0
    if METRICS[metric].dimension != "time":
        return "x", 1.0
    return units.for_reader(METRICS[metric].unit, rounds_per_second(results.manifest["experiment"]))


def _score(
    column: Column,
    of_cell: Mapping[str, Mapping[str, Any]],
    cell: Mapping[str, Any],
    best: Mapping[str, set[int]],
    results: Results,
) -> Score | None:
    estimate = of_cell.get(column.metric)
    if estimate is None or estimate["mean"] is None:
        return None
    factor = _unit(results, column.metric)[1]
    if column.metric == "peak":
        if cell["capacity"] < LEAST_CAPACITY:
            return None
        factor = 1 / cell["capacity"]

    def scaled(number: float | None) -> float | None:
        return None if number is None else number * factor

    of_runs = METRICS[column.metric].is_indicator
    share = 1.0 if estimate["share_defined"] is None else estimate["share_defined"]
    is_same = share == 1 and estimate["min"] == estimate["max"]
    low, high = ("ci_low", "ci_high") if of_runs else ("p05", "p95")
    return Score(
        estimate["mean"] * factor,
        None if of_runs else 0.0 if is_same else scaled(half_width(estimate)),
        scaled(estimate[low]),
        scaled(estimate[high]),
        share,
        estimate["n"],
        cell["cell"] in best.get(column.metric, ()),
        of_runs,
    )


def scores_of(results: Results, card: Scorecard) -> dict[int, tuple[Score | None, ...]]:
    """Make the scores of every cell of a scenario, marked or not; see `scorecards`."""
    cells = results.cells.filter(scenario=card.scenario)
    wanted = [column.metric for column in card.columns]
    of_cells = _by_cell(_estimates(results, wanted), cells["cell"])
    return {
        line["cell"]: tuple(
            _score(column, of_cells[line["cell"]], line, {}, results) for column in card.columns
        )
        for line in cells.iter_rows(named=True)
    }


# --- which cells have a line ----------------------------------------------------------------------


def _each(cells: pl.DataFrame) -> list[list[int]]:
    return [[cell] for cell in cells["cell"].to_list()]


def _load(columns: Sequence[Column]) -> str:
    """The metric that says how much is asked of the dependency."""
    return next((c.metric for c in columns if c.metric in LOADS), "")


def _frontier(
    results: Results, cells: pl.DataFrame, columns: Sequence[Column]
) -> pl.DataFrame | None:
    """The frontier of failures and load; None where it cannot be known."""
    load = _load(columns)
    return frontier_of(results, cells, load) if load else None


def frontier_of(results: Results, cells: pl.DataFrame, load: str) -> pl.DataFrame | None:
    """The frontier of failures and a load among some lines of the table of cells, found once.

    None where it cannot be known, see `frontier_among`.
    """

    def find() -> pl.DataFrame | None:
        try:
            return frontier_among(results, cells, (METRICS["failed_share"], METRICS[load]))
        except QuestionError:
            return None

    return _once(results, ("frontier", load, *cells["cell"]), find) if results.keeps_rows else None


def _once(results: Results, asked: tuple[Any, ...], find: Callable[[], _T]) -> _T:
    """The answer to a question, which is found when it is asked first."""
    if asked not in results.answers:
        results.answers[asked] = find()
    answer: _T = results.answers[asked]
    return answer


def _sweep_groups(
    cells: pl.DataFrame,
    estimates: pl.DataFrame,
    table: pl.DataFrame | None,
    late: Collection[int],
    most: int,
) -> list[list[int]]:
    """The frontier, thinned out where it is long, and the policies that are not on it."""
    means = {
        metric: dict(estimates.filter(metric=metric).select("cell", "mean").iter_rows())
        for metric in ("failed_share", "multiplier")
    }

    def failures(cell: int) -> tuple[bool, float, float]:
        first, second = (np.inf if one[cell] is None else one[cell] for one in means.values())
        return cell in late, first, second

    policy = dict(cells.select("cell", "policy").iter_rows())
    chosen: list[list[int]] = []
    if table is not None:
        candidates = table.filter(pl.col("group_on").is_in([YES, UNDECIDED]))
        groups = candidates.group_by("group", maintain_order=True).agg("cell")["cell"].to_list()
        # of those that are undecided only the ones that none beats in both means
        kept: list[list[int]] = []
        for group in sorted(groups, key=lambda group: failures(group[0])):
            if all(failures(group[0])[2] < failures(other[0])[2] for other in kept):
                kept.append(group)
        chosen = kept
    names = list(dict.fromkeys(policy.values()))
    n_others = len(names) - len({policy[cell] for group in chosen for cell in group})
    room = max(2, most - n_others)
    at = np.linspace(0, len(chosen) - 1, min(room, len(chosen))).round().astype(int)
    chosen = [chosen[i] for i in dict.fromkeys(at.tolist())]
    shown = {policy[cell] for group in chosen for cell in group}
    for name in names:
        if name not in shown:
            chosen.append([min((c for c, p in policy.items() if p == name), key=failures)])
    return chosen


def _with_flips(
    cells: pl.DataFrame,
    estimates: pl.DataFrame,
    groups: list[list[int]],
    varying: Sequence[str],
    most: int,
) -> tuple[list[list[int]], tuple[str, ...]]:
    """Put beside cells those that differ in one axis alone, where one recovers and one does not.

    For each such axis a pair, and more while there is room.

    Returns
    -------
    groups, axes : list of list of int, tuple of str
    """
    of_runs = estimates.filter(pl.col("mean").is_not_null(), metric="recovered")
    recovered = dict(of_runs.select("cell", "mean").iter_rows())
    if not recovered:
        return groups, ()
    axes, wanted = [], []
    for axis in (name for name in varying if name != "policy"):
        others = [name for name in varying if name != axis]
        named = cells.select("cell", *others)
        parts = named.partition_by(others, maintain_order=True) if others else [named]
        pairs: list[tuple[int, int]] = []
        for some in parts:
            known = [cell for cell in some["cell"] if cell in recovered]
            for cell in known:
                apart, other = max((abs(recovered[one] - recovered[cell]), one) for one in known)
                if apart >= FLIPPED:
                    pairs.append((cell, other))
        if pairs:
            axes.append(axis)
            has_line = {group[0]: i for i, group in enumerate(groups)}
            pairs.sort(key=lambda pair: has_line.get(pair[0], len(groups)))
            wanted.append(pairs)
    shown = {cell for group in groups for cell in group}
    beside: dict[int, list[int]] = {}
    room = most - len(groups)
    for pairs in wanted:
        if not any(cell in shown and other in shown for cell, other in pairs):
            cell, other = pairs[0]
            groups = groups if cell in shown else [*groups, [cell]]
            beside.setdefault(cell, []).append(other)
            shown |= {cell, other}
            room -= 1
    for cell, other in (pair for pairs in wanted for pair in pairs):
        if room > 0 and cell in shown and other not in shown:
            beside.setdefault(cell, []).append(other)
            shown.add(other)
            room -= 1
    complete = []
    for group in groups:
        complete += [group, *([other] for cell in group for other in beside.get(cell, ()))]
    return complete, tuple(axes)


def _best(results: Results, cells: pl.DataFrame, columns: Sequence[Column]) -> dict[str, set[int]]:
    """The cells that are surely the best of each column."""
    if not results.keeps_rows or cells.height < 2:
        return {}
    found = {}
    for column in columns:
        if column.metric == "peak" and cells["capacity"].n_unique() > 1:
            continue  # peaks of different capacities do not compete
        metric = METRICS[column.metric]
        asked = ("best", column.metric, *cells["cell"])
        best = _once(results, asked, partial(_surely_best, results, cells, metric))
        if len(best) < cells.height:
            found[column.metric] = best
    return found


def _surely_best(results: Results, cells: pl.DataFrame, metric: Metric) -> set[int]:
    """The cells that are surely the best; none where it cannot be known."""
    goal: Goal = "max" if metric.worst == "low" else "min"
    try:
        return set(best_among(results, cells, metric, goal).filter("best")["cell"])
    except QuestionError:
        return set()


# --- in a sentence --------------------------------------------------------------------------------


def _are_alike(columns: Sequence[Column], lines: Sequence[Line]) -> bool:
    """Whether nobody would choose between the cells by these numbers."""
    if len(lines) < 2:
        return False
    for i, column in enumerate(columns):
        if len(_comparable(column, lines)) < len(lines):
            return False
        means = [line.scores[i].mean for line in lines if line.scores[i] is not None]  # type: ignore[union-attr]
        if len(means) < len(lines):
            return False
        spread = max(means) - min(means)
        if column.unit == "%":
            alike = spread <= 100 * ALIKE_SHARE
        elif column.unit == "x":
            alike = spread <= ALIKE_LOAD * max(min(means), 1e-9)
        else:
            alike = spread <= ALIKE_LOAD * max(min(means), 1.0)
        if not alike:
            return False
    return True


def _comparable(column: Column, lines: Sequence[Line]) -> list[Line]:
    """The lines whose scores can be compared, see `store.not_comparable`."""
    return [line for line in lines if not (line.undecided and column.metric in OF_UNDECIDED)]


def _finding(
    columns: Sequence[Column], lines: Sequence[Line], n_cells: int, alike: bool, is_sweep: bool
) -> str:
    """The result of a scenario in a sentence."""
    parts = []
    for i, column in enumerate(columns):
        if column.metric not in _PHRASES:
            continue
        some = _comparable(column, lines)
        scored = [(score, line.name) for line in some if (score := line.scores[i]) is not None]
        if not scored:
            continue
        phrase, unit = _PHRASES[column.metric]
        low, high = (end(scored, key=lambda pair: pair[0].mean) for end in (min, max))
        ends = [f"{score.known()}{unit}" for score, _ in (low, high)]
        if ends[0] == ends[1]:
            text = ends[1]
        elif alike:
            text = f"at most {ends[1]}"
        elif is_sweep:
            text = f"{low[0].known()} to {ends[1]}"
        else:
            text = f"{low[0].known()} ({low[1]}) to {ends[1]} ({high[1]})"
        parts.append(phrase.format(text))
    sentence = "; ".join(parts)
    if alike:
        return f"all {n_cells} agree: {sentence}."
    if is_sweep:
        return f"{n_cells:,} cells, of which along the frontier {sentence}."
    return f"{sentence}."


_PHRASES: Final = {
    "failed_share": ("{} of requests fail", " %"),
    "times_usual": ("the storm is {} the usual load", " times"),
    "multiplier": ("{} calls per request", ""),
}
"""How a sentence speaks of a column, and its unit."""
