"""What the figures and the page take from a results folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc import experiment as experiments
from mc.model import HEADLINE, METRICS, Cell
from mc.runner import Draws
from mc.statistics import half_width
from mc.store import Results

_T = TypeVar("_T")

NAMES: Final = {name: METRICS[name].label for name in HEADLINE}
"""What the numbers that are shown are called."""

MOST_SCENARIOS: Final = 4
MOST_CELLS: Final = 6
"""Scenarios, and cells of each, that are drawn one by one; of a sweep a choice."""

MOST_MARKED: Final = 8
"""Cells on the frontier that have a letter."""

_APART: Final = 0.06
"""How far apart they are at least, as a share of the frontier's extent."""

TRACED: Final = 300
"""Replications of the second pass, in which every round is recorded."""

_ROUNDS_TRACED: Final = 12_000_000
_FEWEST_TRACED: Final = 20
"""Of very long replications fewer: no more rounds than this, but no fewer replications."""


@dataclass(frozen=True)
class Axis:
    """A parameter that varies over the grid.

    Attributes
    ----------
    name : str
        The parameter.
    values : list
        Its values in the order of the file; None for no budget.
    """

    name: str
    values: list[Any]

    @property
    def title(self) -> str:
        """Name and unit."""
        return parameter_title(self.name)


def parameter_title(name: str) -> str:
    """Name and unit of a parameter."""
    unit = experiments.CELL_COLUMNS[name].unit
    return f"{name} ({unit})" if unit else name


def metric_title(metric: str) -> str:
    """Name and unit of a metric."""
    name, unit = METRICS[metric].label, METRICS[metric].unit
    return name if unit in ("", name) else f"{name} ({unit})"


def value_text(value: object) -> str:
    """Write a parameter's value as a table shows it."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class View:
    """A results folder with what is computed of it more than once.

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

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes of the grid along which something varies, the longest first."""
        found = []
        for axis in self.source["grid"]:
            values = self.results.cells[axis["name"]].unique(maintain_order=True).to_list()
            if len(values) > 1:
                found.append(Axis(axis["name"], _in_order(values)))
        return sorted(found, key=lambda axis: -len(axis.values))

    @cached_property
    def design(self) -> list[str]:
        """Parameters that a design varies."""
        cells = self.results.cells
        ranges = (self.source["design"] or {"ranges": []})["ranges"]
        return [span["name"] for span in ranges if cells[span["name"]].n_unique() > 1]

    @cached_property
    def cells(self) -> pl.DataFrame:
        """The table of cells, with a `label` that tells those of a scenario apart."""
        cells = self.results.cells
        by_policy = cells["policy"].n_unique() > 1
        names = [axis["name"] for axis in self.source["grid"] if axis["name"] in self._varying]
        labels = []
        for line in cells.iter_rows(named=True):
            parts = [line["policy"]] if by_policy else []
            parts += [f"{name} {value_text(line[name])}" for name in [*names, *self.design]]
            labels.append(", ".join(parts) or _alone(line["scenario"]))
        return cells.with_columns(label=pl.Series(labels, dtype=pl.String))

    @property
    def _varying(self) -> set[str]:
        return {axis.name for axis in self.axes}

    @cached_property
    def lines(self) -> dict[int, dict[str, Any]]:
        """Each line of the table of cells, by the number of the cell."""
        return {line["cell"]: line for line in self.cells.iter_rows(named=True)}

    @cached_property
    def scenarios(self) -> list[str]:
        """Names, in the order of the file."""
        return self.cells["scenario"].unique(maintain_order=True).to_list()

    @cached_property
    def policies(self) -> list[str]:
        """Names, in the order of the file."""
        return self.cells["policy"].unique(maintain_order=True).to_list()

    @cached_property
    def estimates(self) -> dict[tuple[int, str], dict[str, Any]]:
        """The lines of the summary about what is shown, by cell and metric."""
        wanted = self.results.summary.filter(pl.col("metric").is_in(list(HEADLINE)))
        return {(line["cell"], line["metric"]): line for line in wanted.iter_rows(named=True)}

    def mean(self, cell: int, metric: str) -> float | None:
        """Mean of a metric in a cell; None where it is undefined."""
        found: float | None = self.estimates[cell, metric]["mean"]
        return found

    def half_width(self, cell: int, metric: str) -> float | None:
        """Half the length of the mean's interval; None where there is none."""
        return half_width(self.estimates[cell, metric])

    def in_scenario(self, scenario: str) -> list[int]:
        """Numbers of its cells, in the order of the file."""
        return self._by_scenario[scenario]

    @cached_property
    def _by_scenario(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {scenario: [] for scenario in self.scenarios}
        for cell, line in self.lines.items():
            found[line["scenario"]].append(cell)
        return found

    def has_window(self, cell: int) -> bool:
        """Whether a fault lies inside the run."""
        return self.mean(cell, "window_rate") is not None

    def strain(self, scenario: str) -> str:
        """The metric that says how much the dependency is asked for."""
        return self._strains[scenario]

    @cached_property
    def _strains(self) -> dict[str, str]:
        return {
            scenario: "window_rate" if any(map(self.has_window, cells)) else "calls"
            for scenario, cells in self._by_scenario.items()
        }

    def is_sweep(self, scenario: str) -> bool:
        """Whether there are too many cells for each to be told of."""
        return len(self.in_scenario(scenario)) > MOST_CELLS

    @cached_property
    def _frontiers(self) -> dict[str, list[int]]:
        return {scenario: self._undominated(scenario) for scenario in self.scenarios}

    def _undominated(self, scenario: str) -> list[int]:
        known = [
            (strain, dropped, cell)
            for cell in self.in_scenario(scenario)
            if (strain := self.mean(cell, self.strain(scenario))) is not None
            and (dropped := self.mean(cell, "dropped")) is not None
        ]
        best: list[int] = []
        fewest = np.inf
        for _, dropped, cell in sorted(known):
            if dropped < fewest:
                best.append(cell)
                fewest = dropped
        return best

    def frontier(self, scenario: str) -> list[int]:
        """Cells than which no other has both a lower strain and fewer drops, by their means.

        From the lowest strain to the highest; of cells with equal means the first.
        """
        return self._frontiers[scenario]

    def marks(self, scenario: str) -> dict[int, str]:
        """Letters of cells on the frontier of a sweep; of many those that lie apart."""
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
        """Take the ends of the frontier, and of the others what is seen apart in a figure."""
        cells = self.frontier(scenario)
        if len(cells) < 3:
            return cells
        strain = self.strain(scenario)
        means = np.array(
            [[self.mean(cell, metric) for metric in (strain, "dropped")] for cell in cells], float
        )
        at = means / np.ptp(means, axis=0)  # on a frontier both differ
        near = _APART
        while True:
            kept = [0]
            for i in range(1, len(cells) - 1):
                if np.abs(at[i] - at[kept[-1]]).max() >= near <= np.abs(at[i] - at[-1]).max():
                    kept.append(i)
            if len(kept) < MOST_MARKED:
                return [cells[i] for i in [*kept, -1]]
            near *= 1.2

    def marked(self, cell: int) -> str:
        """The label of a cell, with its letter if it has one."""
        line = self.lines[cell]
        mark = self.marks(line["scenario"]).get(cell)
        return f"{mark}: {line['label']}" if mark else str(line["label"])

    @cached_property
    def _counts(self) -> Counter[tuple[Any, ...]]:
        return Counter(map(self._corner, self.lines))

    def _corner(self, cell: int) -> tuple[Any, ...]:
        scenario = self.lines[cell]["scenario"]
        return scenario, self.mean(cell, self.strain(scenario)), self.mean(cell, "dropped")

    def n_like(self, cell: int) -> int:
        """How many further cells of the scenario have the same means of strain and of drops."""
        return self._counts[self._corner(cell)] - 1

    def baseline(self, scenario: str) -> int | None:
        """The first cell with which another is compared."""
        for cell in self.in_scenario(scenario):
            first: int | None = self.lines[cell]["baseline"]
            if first is not None and first != cell:
                return first
        return None

    def _of_note(self, scenario: str) -> list[int]:
        """The baseline and the cell with the highest strain."""
        strain = self.strain(scenario)
        highest = max(self.in_scenario(scenario), key=lambda c: (self.mean(c, strain) or 0.0, -c))
        baseline = self.baseline(scenario)
        return list(dict.fromkeys([*([] if baseline is None else [baseline]), highest]))

    def chosen(self, scenario: str) -> list[int]:
        """The cells that are drawn one by one.

        All; of a sweep the baseline, some of the frontier and the one with the highest strain, by
        their strain.
        """
        if not self.is_sweep(scenario):
            return self.in_scenario(scenario)
        strain, kept = self.strain(scenario), self._of_note(scenario)
        others = [cell for cell in self.marks(scenario) if cell not in kept]
        kept += spread(others, MOST_CELLS - len(kept))
        return sorted(kept, key=lambda cell: (self.mean(cell, strain) or 0.0, cell))

    def choice_note(self, scenario: str) -> str:
        """Say which cells are drawn, where it is not all of them."""
        if not self.is_sweep(scenario):
            return ""
        chosen, n = self.chosen(scenario), len(self.in_scenario(scenario))
        baseline = "" if self.baseline(scenario) is None else "the baseline, "
        return (
            f"{len(chosen)} of {n:,} cells: {baseline}some of the frontier (with its letters) and "
            f"the one with the highest {NAMES[self.strain(scenario)]}."
        )

    def parameters(self, cell: int) -> Cell:
        """The cell itself."""
        return experiments.cells_of(self.cells.filter(pl.col("cell") == cell))[cell]

    def indices(self, cell: int) -> NDArray[np.int64]:
        """What the kernel is given for the replications of the second pass."""
        line = self.lines[cell]
        most = max(_FEWEST_TRACED, _ROUNDS_TRACED // line["rounds"])
        return Draws.of(self.source).indices(0, min(line["replications"], TRACED, most))


def spread(listed: Sequence[_T], n: int) -> list[_T]:
    """Take up to n, evenly spaced, the first and the last among them."""
    places = np.linspace(0, len(listed) - 1, min(n, len(listed))).round().astype(int)
    return [listed[i] for i in dict.fromkeys(places.tolist())]


def _alone(scenario: str) -> str:
    """What the only cell of a scenario is called."""
    return "the only cell" if scenario == "default" else scenario


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Numbers ascending, no budget last; texts as they are."""
    listed = list(values)
    if any(isinstance(value, str) for value in listed):
        return listed
    numbers = sorted(value for value in listed if value is not None)
    return numbers + [None] * (None in listed)
