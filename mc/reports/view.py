"""What the figures and the page take from a results folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import decisions
from mc import experiment as experiments
from mc.decisions import QuestionError, cell_name
from mc.model import METRICS, Cell
from mc.reports.notation import NAMES, in_a_sentence, parameter_title, short
from mc.runner import Draws
from mc.statistics import half_width
from mc.statistics.best import NO, YES
from mc.store import Results

_T = TypeVar("_T")

MOST_SCENARIOS: Final = 4
MOST_CELLS: Final = 6
"""Scenarios that are drawn, and cells of each that are drawn one by one; of a sweep a choice."""

MOST_MARKED: Final = 8
"""Cells of the frontier that get a letter."""

_APART: Final = 0.06
"""How far apart these are at least, as a share of the frontier's extent."""

TRACED: Final = 300
"""Replications of which every round is recorded."""

_ROUNDS_TRACED: Final = 12_000_000
_FEWEST_TRACED: Final = 20
"""Of long replications fewer are recorded: no more than so many rounds, no fewer replications."""


@dataclass(frozen=True)
class Axis:
    """A parameter that varies over the grid.

    Attributes
    ----------
    name : str
        The parameter.
    values : list
        Its values in the order in which they are drawn; None for no budget.
    """

    name: str
    values: list[Any]

    @property
    def title(self) -> str:
        """Name and unit."""
        return parameter_title(self.name)


@dataclass(frozen=True)
class Frontier:
    """Which cells of a scenario are on the frontier of strain and drops.

    Attributes
    ----------
    on : mapping of int to str
        For each cell yes, no or undecided; all answers hold together with 95 %.
    n : int
        Replications that were compared.
    """

    on: Mapping[int, str]
    n: int


@dataclass(frozen=True)
class View:
    """A results folder, with what is computed from it more than once.

    Attributes
    ----------
    results : Results
        A finished run.
    """

    results: Results

    @property
    def source(self) -> Mapping[str, Any]:
        """The experiment as it was read."""
        source: Mapping[str, Any] = self.results.manifest["experiment"]
        return source

    # --- cells and their names --------------------------------------------------------------------

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes of the grid along which something varies, the longest first."""
        axes = [
            Axis(axis["name"], _in_order(self.results.cells[axis["name"]]))
            for axis in self.source["grid"]
        ]
        return sorted((a for a in axes if len(a.values) > 1), key=lambda axis: -len(axis.values))

    @cached_property
    def design(self) -> list[str]:
        """Parameters that a design varies."""
        ranges = (self.source["design"] or {"ranges": []})["ranges"]
        return [span["name"] for span in ranges if self.results.cells[span["name"]].n_unique() > 1]

    @cached_property
    def lines(self) -> dict[int, dict[str, Any]]:
        """Each line of the table of cells by its number, with a `label` unique in its scenario."""
        varying = {axis.name for axis in self.axes}
        names = ["policy"] if len(self.policies) > 1 else []
        names += [axis["name"] for axis in self.source["grid"] if axis["name"] in varying]
        names += self.design
        lines = {}
        for line in self.results.cells.iter_rows(named=True):
            alone = "the only cell" if line["scenario"] == "default" else line["scenario"]
            lines[line["cell"]] = line | {"label": cell_name(line, names) if names else alone}
        return lines

    @cached_property
    def scenarios(self) -> list[str]:
        """Names, in the order of the file."""
        return self.results.cells["scenario"].unique(maintain_order=True).to_list()

    @cached_property
    def policies(self) -> list[str]:
        """Names, in the order of the file."""
        return self.results.cells["policy"].unique(maintain_order=True).to_list()

    @cached_property
    def _by_scenario(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {scenario: [] for scenario in self.scenarios}
        for cell, line in self.lines.items():
            numbers[line["scenario"]].append(cell)
        return numbers

    def in_scenario(self, scenario: str, policy: str | None = None) -> list[int]:
        """Numbers of its cells, of one policy or of all, in the order of the file."""
        cells = self._by_scenario[scenario]
        return [c for c in cells if policy is None or self.lines[c]["policy"] == policy]

    def is_sweep(self, scenario: str) -> bool:
        """Whether there are too many cells to speak of each."""
        return len(self.in_scenario(scenario)) > MOST_CELLS

    def baseline(self, scenario: str) -> int | None:
        """The first cell with which another one is compared."""
        for cell in self.in_scenario(scenario):
            first: int | None = self.lines[cell]["baseline"]
            if first is not None and first != cell:
                return first
        return None

    def parameters(self, cell: int) -> Cell:
        """The cell itself."""
        return experiments.cells_of(self.results.cells.filter(pl.col("cell") == cell))[cell]

    # --- estimates --------------------------------------------------------------------------------

    @cached_property
    def estimates(self) -> dict[tuple[int, str], dict[str, Any]]:
        """The lines of the summary about the metrics that are shown, by cell and metric."""
        shown = self.results.summary.filter(pl.col("metric").is_in(list(NAMES)))
        return {(line["cell"], line["metric"]): line for line in shown.iter_rows(named=True)}

    def mean(self, cell: int, metric: str) -> float | None:
        """Mean of a metric in a cell; None where it is undefined."""
        mean: float | None = self.estimates[cell, metric]["mean"]
        return mean

    def half_width(self, cell: int, metric: str) -> float | None:
        """Half the length of the mean's interval; None where there is none."""
        return half_width(self.estimates[cell, metric])

    def known(self, cells: Sequence[int], metric: str) -> list[int]:
        """Those of the cells in which a metric is defined, by their means."""
        means = {cell: self.mean(cell, metric) for cell in cells}
        return sorted((c for c in cells if means[c] is not None), key=lambda c: means[c] or 0.0)

    def metrics(self) -> list[str]:
        """The metrics that are shown and defined somewhere."""
        return [m for m in NAMES if any(self.mean(c, m) is not None for c in self.lines)]

    @cached_property
    def _strains(self) -> dict[str, str]:
        return {
            scenario: "window_rate" if self.known(cells, "window_rate") else "calls"
            for scenario, cells in self._by_scenario.items()
        }

    def strain(self, scenario: str) -> str:
        """The metric that says how much is asked of the dependency."""
        return self._strains[scenario]

    def sweep_metrics(self, scenario: str) -> list[str]:
        """What is drawn of a sweep: what is asked of the dependency, and what that costs."""
        return [self.strain(scenario), "dropped"]

    def usual_rate(self, scenario: str) -> float | None:
        """Requests per round, if all cells have the same and the strain is a rate of the window."""
        lines = [self.lines[cell] for cell in self.in_scenario(scenario)]
        rates = {line["arrivals_per_second"] / line["rounds_per_second"] for line in lines}
        if self.strain(scenario) != "window_rate" or len(rates) > 1:
            return None
        return rates.pop() or None

    # --- claims -----------------------------------------------------------------------------------

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """The lines of the table of claims, with what the weakest link compares in words.

        `is_against_number` tells whether it compares a cell with a number; `names` what is
        compared, and `difference` how far apart that is on average. Against a number this is the
        mean itself, and its distance from the number.
        """
        claims = []
        for line in self.results.claims.iter_rows(named=True):
            against_number = self.source["claim"][line["claim"]].get("value") is not None
            words = _against_number(line) if against_number else _against_cell(line)
            claims.append(line | {"is_against_number": against_number} | words)
        return claims

    # --- the frontier -----------------------------------------------------------------------------

    def frontier(self, scenario: str) -> Frontier | None:
        """The frontier of strain and drops; None where it cannot be known.

        It takes rows, some replications of every cell, and not too many cells, see
        `mc.decisions.frontier`.
        """
        return self._frontiers[scenario]

    @cached_property
    def _frontiers(self) -> dict[str, Frontier | None]:
        return {scenario: self._find_frontier(scenario) for scenario in self.scenarios}

    def _find_frontier(self, scenario: str) -> Frontier | None:
        strain = self.strain(scenario)
        cells = self.known(self.in_scenario(scenario), strain)
        if len(cells) < 2 or not self.results.keeps_rows:
            return None
        table = self.results.cells.filter(pl.col("cell").is_in(cells))
        metrics = METRICS[strain], METRICS["dropped"]
        try:
            cells_on = decisions.frontier_among(self.results, table, metrics)
        except QuestionError:
            return None
        return Frontier(dict(cells_on.select("cell", "on").iter_rows()), cells_on[0, "n"])

    def marks(self, scenario: str) -> dict[int, str]:
        """Letters of cells of a sweep that may be on the frontier; of many those that lie apart."""
        return self._marks[scenario]

    @cached_property
    def _marks(self) -> dict[str, dict[int, str]]:
        return {
            scenario: dict(zip(self._apart(scenario), ascii_uppercase, strict=False))
            if self.is_sweep(scenario)
            else {}
            for scenario in self.scenarios
        }

    def _apart(self, scenario: str) -> list[int]:
        """Cells that may be on the frontier and lie apart in a figure, by their strain.

        Of the undecided cells only those than which no cell has both means lower. Both ends come
        first, then the cells that are surely on the frontier, then the others.
        """
        frontier = self.frontier(scenario)
        on: Mapping[int, str] = frontier.on if frontier else {}
        candidates = [cell for cell in on if on[cell] != NO]
        points: dict[tuple[float, float], int] = {}
        for cell in sorted(candidates, key=self._means):
            if all(self._means(cell)[1] < drops for _, drops in points):
                points[self._means(cell)] = cell
        if not points:
            return []
        extent = np.ptp(np.array(list(points)), axis=0)
        scale = np.where(extent > 0, extent, 1.0)
        ends = min(points), max(points)
        order = [*ends, *sorted(points, key=lambda point: on[points[point]] != YES)]
        distance = _APART
        while True:
            kept: list[tuple[float, float]] = []
            for point in order:
                if all(np.max(np.abs(np.subtract(point, k)) / scale) >= distance for k in kept):
                    kept.append(point)
            if len(kept) <= MOST_MARKED:
                return [points[point] for point in sorted(kept)]
            distance *= 1.2

    def _means(self, cell: int) -> tuple[float, float]:
        """Means of strain and of drops."""
        strain = self.strain(self.lines[cell]["scenario"])
        return self.mean(cell, strain) or 0.0, self.mean(cell, "dropped") or 0.0

    def marked(self, cell: int) -> str:
        """The label of a cell, with its letter if it has one."""
        line = self.lines[cell]
        mark = self.marks(line["scenario"]).get(cell)
        return f"{mark}: {line['label']}" if mark else str(line["label"])

    @cached_property
    def _n_alike(self) -> Counter[tuple[Any, ...]]:
        return Counter((line["scenario"], self._means(cell)) for cell, line in self.lines.items())

    def n_like(self, cell: int) -> int:
        """How many further cells of the scenario have the same means of strain and of drops."""
        return self._n_alike[self.lines[cell]["scenario"], self._means(cell)] - 1

    # --- what is drawn cell by cell ---------------------------------------------------------------

    def chosen(self, scenario: str) -> list[int]:
        """The cells that are drawn one by one.

        All; of a sweep, by their strain, the baseline, the one with the highest strain, and some
        of the frontier (where there is none, the ones with the lowest strain and the fewest
        drops).
        """
        cells = self.in_scenario(scenario)
        if not self.is_sweep(scenario):
            return cells
        baseline, highest = self.baseline(scenario), max(cells, key=self._by_strain)
        kept = list(dict.fromkeys([*([] if baseline is None else [baseline]), highest]))
        others = self.marks(scenario) or {
            min(cells, key=self._by_strain): "",
            min(cells, key=lambda cell: self._means(cell)[::-1]): "",
        }
        kept += spread([cell for cell in others if cell not in kept], MOST_CELLS - len(kept))
        return sorted(kept, key=lambda cell: (self._means(cell)[0], cell))

    def _by_strain(self, cell: int) -> tuple[float, int]:
        return self._means(cell)[0], -cell

    def indices(self, cell: int) -> NDArray[np.int64]:
        """What the kernel is given for the replications that are recorded."""
        line = self.lines[cell]
        most = max(_FEWEST_TRACED, _ROUNDS_TRACED // line["rounds"])
        return Draws.of(self.source).indices(0, min(line["replications"], TRACED, most))


def spread(values: Sequence[_T], n: int) -> list[_T]:
    """Take up to n of some values, evenly spaced, the first and the last among them."""
    indices = np.linspace(0, len(values) - 1, min(n, len(values))).round().astype(int)
    return [values[i] for i in dict.fromkeys(indices.tolist())]


def _in_order(column: pl.Series) -> list[Any]:
    """The values of a column: numbers ascending, no budget last; texts as they come."""
    values = column.unique(maintain_order=True)
    if values.dtype == pl.String:
        return values.to_list()
    return values.sort(nulls_last=True).to_list()


def _against_cell(claim: Mapping[str, Any]) -> dict[str, str]:
    mean, error = claim["mean_difference"], half_width(claim)
    return {
        "names": f"{claim['left']} − {claim['right']}",
        "difference": in_a_sentence(mean, error, METRICS[claim["link_metric"]].unit),
    }


def _against_number(claim: Mapping[str, Any]) -> dict[str, str]:
    mean, error = claim["mean_difference"], half_width(claim)
    if mean is None:
        return _against_cell(claim)
    number = float(claim["right"])
    distance = f"{short(abs(mean))} {'above' if mean > 0 else 'below'}" if mean else "equal to"
    text = in_a_sentence(mean + number, error, METRICS[claim["link_metric"]].unit)
    return {
        "names": f"{claim['left']} against {claim['right']}",
        "difference": f"{text}, {distance} {number:,.10g}",
    }
