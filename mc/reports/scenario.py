"""The cells of one scenario: its strain, its frontier, and which of them are drawn alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import polars as pl

from mc.decisions.scorecard import frontier_of

if TYPE_CHECKING:
    from mc.decisions.scorecard import Scorecard
    from mc.reports.view import View

_T = TypeVar("_T")

MOST_SCENARIOS: Final = 4
MOST_CELLS: Final = 24
"""Scenarios that are drawn, and cells of each that are drawn one by one."""

MOST_CURVES: Final = 200
"""Cells of a page above which no storm curves are simulated but those of the cells drawn."""

_FEW: Final = 7
"""Cells of the scorecard of a sweep that are drawn one by one."""


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
    def card(self) -> Scorecard:
        """Its scorecard."""
        return self.view.cards[self.name]

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
        return "times_usual" if self.known("times_usual") else "multiplier"

    @property
    def metrics(self) -> tuple[str, str]:
        """What is asked of the dependency, and what it costs to ask for less."""
        return self.strain, "failed_share"

    def point(self, cell: int) -> tuple[float, float]:
        """Means of both."""
        strain, failed = (self.view.mean(cell, metric) or 0.0 for metric in self.metrics)
        return strain, failed

    # --- the frontier -----------------------------------------------------------------------------

    @cached_property
    def on_frontier(self) -> dict[int, str]:
        """For each cell yes, no or undecided; empty where it cannot be known.

        All answers hold together with 95 %. It takes rows, some replications of every cell, and
        not too many cells, see `mc.decisions.frontier`.
        """
        results, cells = self.view.results, self.known(self.strain)
        if len(cells) < 2:
            return {}
        lines = results.cells.filter(pl.col("cell").is_in(cells))
        table = frontier_of(results, lines, self.strain)
        return {} if table is None else dict(table.select("cell", "group_on").iter_rows())

    @cached_property
    def marks(self) -> dict[int, str]:
        """Letters of the cells of a sweep that have a line of the scorecard."""
        first = [line.cells[0] for line in self.card.lines] if self.card.is_sweep else []
        return dict(zip(first, ascii_uppercase, strict=False))

    def marked(self, cell: int) -> str:
        """The label of a cell, with its letter if it has one."""
        mark, label = self.marks.get(cell), str(self.view.lines[cell]["label"])
        return f"{mark}: {label}" if mark else label

    @cached_property
    def chosen(self) -> list[int]:
        """The cells that are drawn one by one.

        All; of a sweep some of the scorecard, and the one with the highest strain.
        """
        if not self.marks:
            return self.cells[:MOST_CELLS]
        highest = max(self.cells, key=lambda cell: self.point(cell)[0])
        return list(dict.fromkeys((*spread(list(self.marks), _FEW), highest)))


def spread(values: Sequence[_T], n: int) -> list[_T]:
    """Take up to n of some values, evenly spaced, the first and the last among them."""
    indices = np.linspace(0, len(values) - 1, min(n, len(values))).round().astype(int)
    return [values[i] for i in dict.fromkeys(indices.tolist())]
