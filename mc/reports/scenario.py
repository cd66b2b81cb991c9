"""The cells of one scenario: its strain, its frontier, and which of them are drawn alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import polars as pl

from mc import decisions
from mc.decisions import QuestionError
from mc.decisions.rivals import MAX_CELLS
from mc.model import METRICS
from mc.statistics.best import NO, YES, Goal
from mc.statistics.rows import usual_rate

if TYPE_CHECKING:
    from mc.reports.view import View

_T = TypeVar("_T")

MOST_SCENARIOS: Final = 4
MOST_CELLS: Final = 7
"""Scenarios that are drawn, and cells of each that are drawn one by one; of a sweep a choice."""

_MOST_MARKED: Final = 8
"""Cells of the frontier that get a letter."""

_APART: Final = 0.06
"""How far apart these are at least, as a share of the frontier's extent."""


@dataclass(frozen=True)
class Frontier:
    """Which cells are on the frontier of strain and drops.

    Attributes
    ----------
    on : mapping of int to str
        For each cell yes, no or undecided; all answers hold together with 95 %. Of cells that were
        equal in every replication the answer is that of the group, taken as one.
    n : int
        Replications that were compared.
    groups : mapping of int to int
        The group of each cell.
    """

    on: Mapping[int, str]
    n: int
    groups: Mapping[int, int]

    def count(self, answer: str) -> int:
        """How many groups have this answer."""
        return len({self.groups[cell] for cell, on in self.on.items() if on == answer})

    @property
    def n_equal(self) -> int:
        """How many cells are equal to another one in every replication."""
        return len(self.groups) - len(set(self.groups.values()))


@dataclass(frozen=True)
class Scenario:
    """Some cells of a view.

    Attributes
    ----------
    view : View
    number : int
        From 1, in the order of the file.
    name : str
    cells : list of int
        Their numbers, in the order of the file.
    """

    view: View
    number: int
    name: str
    cells: list[int]

    @property
    def title(self) -> str:
        """What its figures are called."""
        is_named = len(self.view.scenarios) > 1 or self.name != "default"
        return self.name if is_named else str(self.view.results.manifest["title"])

    @property
    def is_sweep(self) -> bool:
        """Whether there are too many cells to speak of each."""
        return len(self.cells) > MOST_CELLS

    def of_policy(self, policy: str) -> list[int]:
        """The cells of one policy."""
        return [cell for cell in self.cells if self.view.lines[cell]["policy"] == policy]

    def known(self, metric: str) -> list[int]:
        """The cells in which a metric is defined, by their means."""
        means = {cell: self.view.mean(cell, metric) for cell in self.cells}
        return sorted((c for c in means if means[c] is not None), key=lambda c: means[c] or 0.0)

    @cached_property
    def strain(self) -> str:
        """The metric that says how much is asked of the dependency."""
        return "window_rate" if self.known("window_rate") else "calls"

    @property
    def metrics(self) -> tuple[str, str]:
        """What is asked of the dependency, and what it costs to ask for less."""
        return self.strain, "dropped"

    def point(self, cell: int) -> tuple[float, float]:
        """Means of strain and of drops."""
        return self.view.mean(cell, self.strain) or 0.0, self.view.mean(cell, "dropped") or 0.0

    @cached_property
    def _n_at(self) -> Counter[tuple[float, float]]:
        return Counter(map(self.point, self.cells))

    def n_like(self, cell: int) -> int:
        """How many further cells have the same means of strain and of drops."""
        return self._n_at[self.point(cell)] - 1

    @cached_property
    def baseline(self) -> int | None:
        """The first cell with which another one is compared."""
        baselines = ((self.view.lines[cell]["baseline"], cell) for cell in self.cells)
        return next((b for b, cell in baselines if b is not None and b != cell), None)

    @property
    def usual_rate(self) -> float | None:
        """The usual strain, if all cells have the same and the strain is a rate of the window."""
        lines = self.view.results.cells.filter(pl.col("cell").is_in(self.cells))
        factor = self.view.factor("window_rate")
        known = lines.select(usual_rate(lines)).to_series().drop_nulls()
        rates = {factor * rate for rate in known}
        return (rates.pop() or None) if self.strain == "window_rate" and len(rates) == 1 else None

    # --- the frontier -----------------------------------------------------------------------------

    @cached_property
    def frontier(self) -> Frontier | None:
        """The frontier of strain and drops; None where it cannot be known.

        It takes rows, some replications of every cell, and not too many cells, see
        `mc.decisions.frontier`.
        """
        results, cells = self.view.results, self.known(self.strain)
        if len(cells) < 2 or not results.keeps_rows:
            return None
        lines = results.cells.filter(pl.col("cell").is_in(cells))
        try:
            table = decisions.frontier_among(
                results, lines, (METRICS[self.strain], METRICS["dropped"])
            )
        except QuestionError:
            return None
        return Frontier(
            dict(table.select("cell", "group_on").iter_rows()),
            table[0, "n"],
            dict(table.select("cell", "group").iter_rows()),
        )

    def may_be(self, metric: str, goal: Goal) -> set[int] | None:
        """The cells of which one has the smallest or the largest mean, with 95 % confidence.

        None where that is not known: it takes rows, and some replications of every cell.
        """
        results, cells = self.view.results, self.known(metric)
        if not results.keeps_rows or len(cells) < 2 or len(cells) > MAX_CELLS:
            return None
        lines = results.cells.filter(pl.col("cell").is_in(cells))
        try:
            ranked = decisions.best_among(results, lines, METRICS[metric], goal)
        except QuestionError:
            return None
        return set(ranked.filter("candidate")["cell"])

    def on_frontier(self, cell: int) -> str:
        """Yes, no or undecided; empty where it cannot be known."""
        return self.frontier.on.get(cell, "") if self.frontier else ""

    @cached_property
    def marks(self) -> dict[int, str]:
        """Letters of cells of a sweep that may be on the frontier; of many those that lie apart.

        By their strain. Of the undecided cells only those than which no cell has both means lower.
        Both ends come first, then the cells that are surely on the frontier, then the others.
        """
        if not self.is_sweep or self.frontier is None:
            return {}
        points: dict[tuple[float, float], int] = {}
        for cell in sorted(self.cells, key=self.point):
            may_be_on = self.on_frontier(cell) not in ("", NO)
            if may_be_on and all(self.point(cell)[1] < drops for _, drops in points):
                points[self.point(cell)] = cell
        if not points:
            return {}
        surely_first = sorted(points, key=lambda point: self.on_frontier(points[point]) != YES)
        kept = _apart([min(points), max(points), *surely_first], _MOST_MARKED)
        cells = [points[point] for point in sorted(kept)]
        return dict(zip(cells, ascii_uppercase, strict=False))

    def marked(self, cell: int) -> str:
        """The label of a cell, with its letter if it has one."""
        mark, label = self.marks.get(cell), str(self.view.lines[cell]["label"])
        return f"{mark}: {label}" if mark else label

    @cached_property
    def chosen(self) -> list[int]:
        """The cells that are drawn one by one.

        All; of a sweep, by their strain, the baseline, the one with the highest strain, and some
        of the frontier (where there is none, the ones with the lowest strain and the fewest
        drops).
        """
        if not self.is_sweep:
            return self.cells
        ends = [
            min(self.cells, key=lambda cell: self.point(cell)[0]),
            min(self.cells, key=lambda cell: self.point(cell)[::-1]),
        ]
        highest = max(self.cells, key=lambda cell: self.point(cell)[0])
        kept = [cell for cell in dict.fromkeys((self.baseline, highest)) if cell is not None]
        others = [cell for cell in self.marks or dict.fromkeys(ends) if cell not in kept]
        kept += spread(others, MOST_CELLS - len(kept))
        return sorted(kept, key=lambda cell: (self.point(cell)[0], cell))


def _apart(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Take points that lie apart, as many as allowed, the first of them if need be."""
    extent = np.ptp(np.array(points), axis=0)
    scale = np.where(extent > 0, extent, 1.0)
    distance = _APART
    while True:
        kept: list[tuple[float, float]] = []
        for point in points:
            if all(np.max(np.abs(np.subtract(point, k)) / scale) >= distance for k in kept):
                kept.append(point)
        if len(kept) <= most:
            return kept
        distance *= 1.2


def spread(values: Sequence[_T], n: int) -> list[_T]:
    """Take up to n of some values, evenly spaced, the first and the last among them."""
    indices = np.linspace(0, len(values) - 1, min(n, len(values))).round().astype(int)
    return [values[i] for i in dict.fromkeys(indices.tolist())]
