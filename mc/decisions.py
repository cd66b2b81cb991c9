"""Questions put to a results folder: this cell or that one, which is best, what is the price.

Every answer is paired: the cells have met the same traffic and the same luck.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import polars as pl

from mc import statistics, store
from mc.experiment.words import hint, listed, quote, tries_text, value_text
from mc.statistics import METRICS, Metric, Stack
from mc.statistics.best import (
    NO,
    Constraint,
    Goal,
    Paired,
    Relation,
    find_best,
    find_frontier,
)
from mc.store import FolderError, Results

MIN_REPLICATIONS: Final = 30
"""With fewer no paired interval is to be trusted."""

MAX_CELLS: Final = 2000
"""Each is compared with each other."""


class QuestionError(FolderError):
    """A question that cannot be answered as it was put; the message says what would be right."""


# --- which cells ----------------------------------------------------------------------------


def coordinates(results: Results) -> list[str]:
    """By what the cells of a folder differ: scenario, policy, and the axes of grid and design."""
    source = results.manifest["experiment"]
    design = source["design"] or {"ranges": []}
    axes = [axis["name"] for axis in (*source["grid"], *design["ranges"])]
    return ["scenario", "policy", *axes]


def cell_name(cell: dict[str, Any], names: Sequence[str]) -> str:
    """Call a cell by some of its coordinates."""
    texts = [
        str(cell[name]) if name in ("scenario", "policy") else f"{name} {_plain(cell[name])}"
        for name in names
        if cell[name] != "default"
    ]
    return ", ".join(texts) or "default"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else value_text(value).removesuffix(".0")


def select(results: Results, wanted: str) -> tuple[pl.DataFrame, set[str]]:
    """Find the cells that a text describes.

    Parameters
    ----------
    results : Results
        Of a finished run.
    wanted : str
        The number of a cell, the name of a policy, or conditions ``name=value`` on scenario,
        policy and parameters, several of them separated by commas.

    Returns
    -------
    cells : polars.DataFrame
        Their lines in the table of cells.
    names : set of str
        The coordinates that the text fixes; all of them for the number of a cell.

    Raises
    ------
    QuestionError
        Nothing is described by it.
    """
    cells = results.cells
    if wanted in cells["policy"].to_list():
        return cells.filter(pl.col("policy") == wanted), {"policy"}
    if wanted.isdecimal():
        found = cells.filter(pl.col("cell") == int(wanted))
        if found.height:
            return found, set(coordinates(results))
        raise QuestionError(f"cell {wanted} does not exist; there are 0 .. {cells.height - 1}")
    if "=" not in wanted:
        known: list[str] = cells["policy"].unique(maintain_order=True).to_list()
        raise QuestionError(f"policy {quote(wanted)} does not exist{hint(wanted, known)}")
    names = set()
    # a name is a word, a value may hold anything: commas in it do not begin a new condition
    for condition in re.split(r",\s*(?=\w+\s*=)", wanted):
        name, _, value = (part.strip() for part in condition.partition("="))
        if name not in cells.columns:
            known = [*coordinates(results), "cell"]
            raise QuestionError(f"{quote(name)} is not a coordinate{hint(name, known)}")
        left = cells.filter(_equals(cells[name], value))
        if left.height == 0:
            written = value_text if name in ("scenario", "policy") else _plain
            values = list(dict.fromkeys(map(written, cells[name].to_list())))[:12]
            raise QuestionError(
                f"no cell has {name} = {value}; {name} is one of {' '.join(values)}"
            )
        cells = left
        names.add(name)
    return cells, names


def _equals(column: pl.Series, text: str) -> pl.Series:
    """Where a column has the value that a text means."""
    if text == "none":
        return column.is_null()
    if column.dtype == pl.String:
        return (column == (tries_text(text) if column.name == "tries" else text)).fill_null(False)
    try:
        return (column == float(text)).fill_null(False)
    except ValueError:
        return pl.Series([False] * len(column))


def _where(results: Results, conditions: Sequence[str]) -> pl.DataFrame:
    """The cells that satisfy all of some texts."""
    cells = results.cells
    for condition in conditions:
        chosen, _ = select(results, condition)
        cells = cells.filter(pl.col("cell").is_in(chosen["cell"].implode()))
    if cells.height == 0:
        raise QuestionError(f"no cell satisfies {' and '.join(conditions)}")
    return cells


def _metric(name: str) -> Metric:
    if name not in METRICS:
        raise QuestionError(f"metric {quote(name)} does not exist{hint(name, METRICS)}")
    return METRICS[name]


# --- this cell or that one ------------------------------------------------------------------


def compare(
    folder: str | Path,
    left: str,
    right: str,
    metrics: Sequence[str] = (),
    where: Sequence[str] = (),
) -> pl.DataFrame:
    """Compare cells in pairs, replication by replication.

    Parameters
    ----------
    folder : path
        A results folder.
    left, right : str
        Which cells: the number of a cell, the name of a policy, or conditions ``name=value`` on
        scenario, policy and parameters, separated by commas. Each cell of the left is compared
        with the one of the right that has the same scenario, policy and place on the grid as far
        as neither text fixes these.
    metrics : sequence of str
        Names as in the column `metric` of the summary. Default all.
    where : sequence of str
        Texts like `left`; only cells that all of them describe are compared.

    Returns
    -------
    polars.DataFrame
        One line for each (pair, metric) in the schema of the folder's comparisons, `left` and
        `right` in place of `cell` and `baseline`, and `left_name`, `right_name`. Differences are
        left - right; each interval is one of 95 % for itself.

    Raises
    ------
    FolderError
        The folder is not finished, or keeps histograms and has not counted these pairs.
    QuestionError
        There is no such pair, metric or coordinate; or the texts do not tell which cell of the
        right belongs to a cell of the left.

    Examples
    --------
    What three layers of retries drop with a budget, and do not drop without:

    >>> import mc
    >>> found = mc.compare(
    ...     "results/lesson",
    ...     "three layers + budget 0.30",
    ...     "three layers (3x3x3)",
    ...     metrics=["dropped"],
    ...     where=["scenario=outage (1 s)"],
    ... )
    >>> [round(x, 2) for x in found.select("mean_difference", "ci_low", "ci_high").row(0)]
    [97.21, 97.02, 97.4]
    """
    results = store.load(folder)
    chosen = [_metric(name).name for name in metrics] or list(METRICS)
    pairs = _pairs(results, left, right, where)
    table = results.cells.drop("baseline").join(
        pairs.rename({"left": "cell", "right": "baseline"}), on="cell", how="left"
    )
    if results.keeps_rows:
        numbers = [*pairs["left"], *pairs["right"]]
        lines = table.filter(pl.col("cell").is_in(numbers)).with_columns(
            pl.col("baseline").fill_null(pl.col("cell"))
        )
        rows = results.scan().filter(pl.col("cell").is_in(numbers)).collect()
        found = statistics.compare(rows, lines)
    else:
        counted = results.comparisons.join(
            pairs.select(cell="left", baseline="right"), on=["cell", "baseline"], how="semi"
        )
        if counted["cell"].n_unique() < pairs.height:
            raise FolderError(
                f"{results.folder}: keeps histograms, and has counted no other pairs than those "
                "with the baseline policy"
            )
        found = counted
    names = coordinates(results)
    named = {cell["cell"]: cell_name(cell, names) for cell in results.cells.iter_rows(named=True)}
    return (
        found.filter(pl.col("metric").is_in(chosen))
        .rename({"cell": "left", "baseline": "right"})
        .with_columns(
            pl.col(side).replace_strict(named, return_dtype=pl.String).alias(f"{side}_name")
            for side in ("left", "right")
        )
    )


def _pairs(results: Results, left: str, right: str, where: Sequence[str]) -> pl.DataFrame:
    """Columns `left` and `right`: numbers of cells."""
    allowed = _where(results, where)["cell"].implode()
    (one, one_names), (other, other_names) = select(results, left), select(results, right)
    shared = [n for n in coordinates(results) if n not in one_names | other_names]
    one, other = (side.filter(pl.col("cell").is_in(allowed)) for side in (one, other))
    if shared:
        pairs = one.select(*shared, left="cell").join(
            other.select(*shared, right="cell"), on=shared, nulls_equal=True, maintain_order="left"
        )
    else:
        pairs = one.select(left="cell").join(other.select(right="cell"), how="cross")
    if pairs.height == 0:
        raise QuestionError(f"no cell of {quote(left)} has a counterpart in {quote(right)}")
    if pairs.filter(pl.col("left") == pl.col("right")).height:
        raise QuestionError(f"{quote(left)} and {quote(right)} mean the same cells")
    if pairs["left"].n_unique() < pairs.height:
        raise QuestionError(
            f"{quote(right)} means several cells for one of {quote(left)}: fix more of "
            f"{listed([n for n in coordinates(results) if n not in shared])}"
        )
    if set(pairs["left"]) & set(pairs["right"]):
        raise QuestionError(f"{quote(left)} and {quote(right)} have cells in common")
    return pairs.select("left", "right")


# --- which is best --------------------------------------------------------------------------


def best(
    folder: str | Path,
    metric: str,
    goal: Goal = "min",
    subject_to: Sequence[str] = (),
    per: Sequence[str] = ("scenario",),
    where: Sequence[str] = (),
    level: float = statistics.LEVEL,
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
    level : float
        Between 0 and 1: of all statements about the cells that compete, together.

    Returns
    -------
    polars.DataFrame
        For each cell: `cell`, the coordinates, `mean`; `difference` to the best of the others
        with its interval `low`, `high`, NULL where the cell is surely not feasible or no end is
        known; `feasible` (yes, no, undecided); `candidate`, whether it cannot be told from the
        best; `best`, whether it is the only candidate, and surely feasible; `n`, the replications
        in which every competing cell has a value.

    Raises
    ------
    FolderError
        The folder is not finished, or keeps no rows.
    QuestionError
        There is no such metric, coordinate or cell; a condition cannot be read; nothing competes,
        or more than `MAX_CELLS` do; or there are less than `MIN_REPLICATIONS` in which every cell
        has a value: a metric of the fault window has none in a scenario without fault.

    Notes
    -----
    Multiple comparisons with the best, see `statistics.best.find_best`.

    Examples
    --------
    The fewest requests dropped at no more than five times the usual load:

    >>> import mc
    >>> found = mc.best(
    ...     "results/lesson",
    ...     "dropped",
    ...     subject_to=["times_usual <= 5"],
    ...     where=["scenario=outage (1 s)"],
    ... )
    >>> found.filter(found["candidate"]).select("policy", "mean", "best").rows()
    [('gateway only (3)', 93.3291, True)]
    >>> found["feasible"].to_list()
    ['yes', 'yes', 'no', 'no', 'yes', 'yes']
    """
    results = store.load(folder)
    wanted = _metric(metric)
    bounds = [_constraint(text) for text in subject_to]
    names = coordinates(results)
    frames = []
    for cells in _competing(results, per, where):
        values, n = _values(results, cells, [wanted, *(bound[0] for bound in bounds)])
        found = find_best(
            values[0],
            goal,
            [
                Constraint(value, relation, number)
                for value, (_, relation, number) in zip(values[1:], bounds, strict=True)
            ],
            level,
        )
        is_best = np.arange(cells.height) == (-1 if found.best is None else found.best)
        out = found.feasible == NO  # it competes with none: a difference would only confuse
        frames.append(
            cells.select("cell", *names).with_columns(
                mean=pl.Series(found.mean),
                difference=_finite(np.where(out, np.nan, found.difference)),
                low=_finite(np.where(out, np.nan, found.low)),
                high=_finite(np.where(out, np.nan, found.high)),
                feasible=pl.Series(found.feasible.tolist()),
                candidate=pl.Series(found.candidate),
                best=pl.Series(is_best),
                n=pl.lit(n, pl.Int64),
            )
        )
    return pl.concat(frames)


def frontier(
    folder: str | Path,
    one: str,
    other: str,
    goals: tuple[Goal, Goal] = ("min", "min"),
    per: Sequence[str] = ("scenario",),
    where: Sequence[str] = (),
    level: float = statistics.LEVEL,
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
    metrics = [_metric(one), _metric(other)]
    if one == other:
        raise QuestionError(f"two different metrics are needed, got {one} twice")
    names = coordinates(results)
    frames = []
    for cells in _competing(results, per, where):
        values, n = _values(results, cells, metrics)
        found = find_frontier(values[0], values[1], goals, level)
        numbers = cells["cell"].to_list()
        by = [numbers[k] if k >= 0 else None for k in found.dominated_by.tolist()]
        columns = {}
        for metric, value in zip(metrics, values, strict=True):
            scaled = value.numbers / np.asarray(value.divisors)[:, np.newaxis]
            mcse = scaled.std(axis=1, ddof=1) / np.sqrt(n)
            columns[metric.name] = pl.Series(scaled.mean(axis=1))
            columns[f"{metric.name}_half_width"] = pl.Series(
                statistics.intervals.t_half_width(np.full(len(mcse), n), mcse)
            )
        frames.append(
            cells.select("cell", *names).with_columns(
                **columns,
                on=pl.Series(found.on.tolist()),
                dominated_by=pl.Series(by, dtype=pl.Int32),
                n=pl.lit(n, pl.Int64),
            )
        )
    return pl.concat(frames)


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
        return _metric(match[1]), cast(Relation, match[2]), number
    except QuestionError:
        raise
    except ValueError:
        raise QuestionError(
            f'a condition must be like "times_usual <= 2", got {quote(text)}'
        ) from None


def _competing(
    results: Results, per: Sequence[str], where: Sequence[str]
) -> Iterator[pl.DataFrame]:
    """The cells that compete with each other, for each value of some coordinates."""
    known = coordinates(results)
    for name in per:
        if name not in known:
            raise QuestionError(f"{quote(name)} is not a coordinate{hint(name, known)}")
    cells = _where(results, where)
    keys = list(dict.fromkeys(per))  # each once
    groups = [cells] if not keys else [g for _, g in cells.group_by(keys, maintain_order=True)]
    if max(group.height for group in groups) < 2:
        raise QuestionError(
            f"there is a single cell for each combination of {listed(per)}: nothing competes"
            if per
            else "there is a single cell"
        )
    yield from groups


def _values(
    results: Results, cells: pl.DataFrame, metrics: Sequence[Metric]
) -> tuple[list[Paired], int]:
    """Values of some metrics in all replications in which every cell has all of them."""
    if cells.height > MAX_CELLS:
        raise QuestionError(
            f"{cells.height:,} cells compete, at most {MAX_CELLS:,} can be compared each with "
            "each: narrow them with where, or split them with per"
        )
    n = int(cells["replications"].min())  # type: ignore[arg-type]
    rows = (
        results.scan()
        .filter(pl.col("cell").is_in(cells["cell"].to_list()), pl.col("replication") < n)
        .sort("cell", "replication")
        .collect()
    )
    ordered = cells.sort("cell")
    back = cells["cell"].arg_sort().arg_sort().to_numpy()
    stack = Stack(ordered, np.arange(cells.height), rows)
    taken = [stack.numbers(metric) for metric in metrics]
    known = np.logical_and.reduce([numbers.known.all(axis=0) for numbers in taken])
    n_known = int(np.count_nonzero(known))
    if n_known < MIN_REPLICATIONS:
        missing = [m.name for m, t in zip(metrics, taken, strict=True) if not t.known.all()]
        where = f" in {quote(cells[0, 'scenario'])}" if cells["scenario"].n_unique() == 1 else ""
        hint = (
            f": {listed(missing)} is undefined; leave such cells out with where" if missing else ""
        )
        raise QuestionError(
            f"at least {MIN_REPLICATIONS} replications are needed in which every cell has a "
            f"value, there are {n_known}{where}{hint}"
        )
    return [Paired(t.numbers[back][:, known], t.divisors[back]) for t in taken], n_known


def _finite(values: Any) -> pl.Series:
    """NULL in place of an end that is infinite."""
    series = pl.Series(values)
    return series.set(~series.is_finite(), None)
