"""What the figures and the page take from a results folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import polars as pl

from mc.decisions import cell_name
from mc.decisions.scorecard import Scorecard, scorecards
from mc.model import METRICS, PARAMETERS, Parameter, calls_per_request, units
from mc.model.budgets import as_table
from mc.model.columns import OF_METRIC
from mc.model.digits import (
    MIN_REPLICATIONS,
    axis_text,
    layer_names,
    percent,
    readers_second,
    rounds_per_second,
)
from mc.model.settings import Settings
from mc.reports.notation import (
    TABLED,
    in_a_sentence,
    parameter_title,
    short,
    with_error,
)
from mc.reports.scenario import MOST_SCENARIOS, Scenario
from mc.statistics import half_width
from mc.store import Results, for_reader

_OF_LAYERS: Final = tuple(name for name in METRICS if name.startswith("calls_"))

_NOT_READ: Final = [
    *(
        f"{name}_{end}"
        for name in ("p05", "p25", "median", "p75", "p95")
        for end in ("low", "high")
    ),
    *(f"adjusted_{name}" for name in ("mean", "mcse", "low", "high", "reduction")),
    *(f"{name}{end}" for name in ("ratio_of_means", "share_zero") for end in ("", "_low", "_high")),
]
"""Columns of the summary of which nothing is shown."""


@dataclass(frozen=True)
class Axis:
    """A parameter that varies over the grid, and its values as they are drawn.

    Attributes
    ----------
    name : str
    values : list
        In the parameter's own unit.
    source : mapping
        The experiment as it was read.
    """

    name: str
    values: list[Any]
    source: Mapping[str, Any]

    @property
    def is_in_units(self) -> bool:
        """Whether its values are texts with units."""
        return self.name in self.source.get("in_units", ())

    @cached_property
    def tables(self) -> list[Any]:
        """Its values, with tables in place of their texts; a plain budget beside them is one."""
        kind = PARAMETERS[self.name].kind
        read = [kind.from_column(x) if isinstance(x, str) else x for x in self.values]
        if any(isinstance(x, Settings) for x in read):
            read = [as_table(x) for x in read]
        return read

    @cached_property
    def varied(self) -> dict[str, Parameter]:
        """The entries in which its tables differ, if all are of one kind, or none."""
        tables = [x for x in self.tables if isinstance(x, Settings)]
        others = [x for x in self.tables if x is not None and x not in tables]
        if others or len({x.kind for x in tables}) != 1:
            return {}
        declared = tables[0].declared().items()
        return {name: of for name, of in declared if len({x.entries[name] for x in tables}) > 1}

    @property
    def label(self) -> str:
        """Name, with the entries in which its tables differ."""
        if len(self.varied) == 1:
            return ".".join([self.name, *self.varied])
        return f"{self.name}: {', '.join(self.varied)}" if self.varied else self.name

    @property
    def title(self) -> str:
        """Name, and the unit if values are written without."""
        if len(self.varied) == 1:
            (entry,) = self.varied.values()
            unit = "" if entry.dimension else entry.unit
            return f"{self.label} ({unit})" if unit else self.label
        if self.is_in_units or any(isinstance(x, Settings) for x in self.tables):
            return self.label
        return parameter_title(self.name)

    @property
    def numbers(self) -> list[float] | None:
        """Its values, or the one entry in which its tables differ; None if some are no numbers."""
        values = self.values
        if len(self.varied) == 1 and None not in self.tables:
            values = [x.entries[name] for x in self.tables for name in self.varied]
        return values if all(isinstance(x, int | float) for x in values) else None

    def text(self, value: Any) -> str:
        """Write one of its values: of tables what differs, which may be their kind."""
        table = self.tables[self.values.index(value)]
        per_second = rounds_per_second(self.source)
        if isinstance(table, Settings) and self.varied and per_second is not None:
            return ", ".join(
                units.text_of(of.dimension, table.entries[name], per_second, of.unit)
                for name, of in self.varied.items()
            )
        if table is None and self.varied:  # an entry may be none, too
            return f"no {self.name}"
        kinds = [getattr(x, "kind", None) for x in self.tables]
        if isinstance(table, Settings) and kinds.count(table.kind) == 1:
            return table.kind
        return axis_text(self.source, self.name, value)


@dataclass(frozen=True)
class View:
    """The results of a finished run, with what is computed from them more than once."""

    results: Results

    @property
    def source(self) -> Mapping[str, Any]:
        """The experiment as it was read."""
        source: Mapping[str, Any] = self.results.manifest["experiment"]
        return source

    @property
    def command(self) -> str:
        """What makes these results again: the folder is named by its name alone, as the file is.

        With `...` for the options where the run is of a version that did not keep them.
        """
        manifest, folder = self.results.manifest, self.results.folder.name or "."
        words = ["retrystorm", "run", manifest["file"], *manifest.get("options", ["..."])]
        if folder != Path(manifest["file"]).stem:
            words += ["--out", folder]
        return shlex.join(words)

    # --- cells ------------------------------------------------------------------------------------

    @property
    def grid(self) -> list[str]:
        """The axes of the grid, in the order of the file."""
        return [axis["name"] for axis in self.source["grid"]]

    @cached_property
    def axes(self) -> list[Axis]:
        """The axes of the grid along which something varies, the longest first."""
        names = self.grid
        axes = [Axis(name, _in_order(self.results.cells[name]), self.source) for name in names]
        return sorted((a for a in axes if len(a.values) > 1), key=lambda axis: -len(axis.values))

    @cached_property
    def design(self) -> list[str]:
        """Parameters that a design varies."""
        ranges = (self.source["design"] or {"ranges": []})["ranges"]
        return [span["name"] for span in ranges if self.results.cells[span["name"]].n_unique() > 1]

    @property
    def logarithmic(self) -> set[str]:
        """Parameters that a design varies in logarithms."""
        ranges = (self.source["design"] or {"ranges": []})["ranges"]
        return {span["name"] for span in ranges if span["scale"] == "log"}

    @cached_property
    def policies(self) -> list[str]:
        """Names, in the order of the file."""
        return self.results.cells["policy"].unique(maintain_order=True).to_list()

    @cached_property
    def lines(self) -> dict[int, dict[str, Any]]:
        """Each line of the table of cells by its number, with a `label` unique in its scenario."""
        varying = {axis.name for axis in self.axes}
        names = ["policy"] if len(self.policies) > 1 else []
        names += [name for name in self.grid if name in varying]
        names += self.design
        lines = {}
        for line in self.results.cells.iter_rows(named=True):
            alone = "the only cell" if line["scenario"] == "default" else line["scenario"]
            lines[line["cell"]] = line | {
                "label": cell_name(line, names, self.source) if names else alone
            }
        return lines

    @cached_property
    def scenarios(self) -> list[Scenario]:
        """All scenarios, in the order of the file."""
        cells: dict[str, list[int]] = {}
        for cell, line in self.lines.items():
            cells.setdefault(line["scenario"], []).append(cell)
        return [Scenario(self, number, *item) for number, item in enumerate(cells.items(), 1)]

    @cached_property
    def cards(self) -> dict[str, Scorecard]:
        """The scorecard of each scenario."""
        return {card.scenario: card for card in scorecards(self.results)}

    @cached_property
    def stormy(self) -> list[Scenario]:
        """The scenarios in which something happens, or all; the one that matters most first."""
        some = [scenario for scenario in self.scenarios if not scenario.card.alike]
        return sorted(some or self.scenarios, key=lambda scenario: -scenario.card.weight)

    @property
    def drawn(self) -> list[Scenario]:
        """Those of which storms and single runs are drawn: with a fault, if some have one."""
        with_fault = [scenario for scenario in self.stormy if scenario.known("times_usual")]
        return (with_fault or self.stormy)[:MOST_SCENARIOS]

    # --- numbers, in the units of a reader --------------------------------------------------------

    @cached_property
    def per_second(self) -> float | None:
        """How many rounds a reader's second has; None where a reader is given rounds."""
        return readers_second(self.source)

    def unit(self, metric: str) -> str:
        """In which unit a metric is given; shares in percent."""
        unit = METRICS[metric].unit
        return "%" if unit == "share" else units.for_reader(unit, self.per_second)[0]

    def factor(self, metric: str) -> float:
        """By what a number of a metric is multiplied for that."""
        unit = METRICS[metric].unit
        return 100.0 if unit == "share" else units.for_reader(unit, self.per_second)[1]

    def title(self, metric: str) -> str:
        """Name and unit of a metric."""
        name, unit = METRICS[metric].label, self.unit(metric)
        return name if unit in ("", name) else f"{name} ({unit})"

    def _in_units(self, table: pl.DataFrame, name: str, metric: str = "metric") -> pl.DataFrame:
        """Give a table of the results in the units of a reader."""
        manifest = self.results.manifest
        told = for_reader(table, name, manifest, metric)
        units_of = manifest["columns"][name]
        shown = [c for c in told.columns if units_of.get(c, {}).get("unit") == OF_METRIC]
        shares = [one for one, metric in METRICS.items() if metric.unit == "share"]
        factor = pl.when(pl.col(metric).is_in(shares)).then(100.0).otherwise(1.0)
        return told.with_columns(pl.col(shown) * factor)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """The lines about metrics that are shown, or published."""
        is_shown = pl.col("metric").is_in([*TABLED, "requests", *_OF_LAYERS])
        lines = self.results.scan_summary().filter(is_shown | pl.col("published").is_not_null())
        return self._in_units(lines.drop(_NOT_READ, strict=False).collect(), "summary")

    @cached_property
    def comparisons(self) -> pl.DataFrame:
        """The table of the results."""
        return self._in_units(self.results.comparisons, "comparisons")

    @cached_property
    def _places(self) -> dict[str, dict[int, int]]:
        """By metric and cell: the line of the summary. Of a large grid they would not all fit."""
        keys = self.summary.select("metric", "cell").with_row_index()
        return {
            str(metric): dict(lines.select("cell", "index").iter_rows())
            for (metric,), lines in keys.group_by("metric")
        }

    def estimate(self, cell: int, metric: str) -> dict[str, Any]:
        """The line of the summary about a metric of a cell."""
        return self.summary.row(self._places[metric][cell], named=True)

    def mean(self, cell: int, metric: str) -> float | None:
        """Mean of a metric in a cell; None where it is undefined."""
        place = self._places.get(metric, {}).get(cell)
        return None if place is None else self.summary["mean"][place]

    def half_width(self, cell: int, metric: str) -> float | None:
        """Half the length of the mean's interval; None where there is none."""
        return half_width(self.estimate(cell, metric))

    @cached_property
    def calls_by_layer(self) -> dict[int, list[float]]:
        """Calls per request of each layer, for the cells in which several layers retry."""
        found = {}
        for cell, line in self.lines.items():
            if line["max_attempts"] > 1:
                means = {m: self.mean(cell, m) for m in self._places if cell in self._places[m]}
                found[cell] = calls_per_request(means)
        return {cell: calls for cell, calls in found.items() if calls}

    @property
    def layer_names(self) -> list[str]:
        """Of the cell with most of them."""
        n = max(map(len, self.calls_by_layer.values()), default=0)
        return layer_names(self.source, n)

    def written(self, cell: int, metric: str) -> str:
        """A mean with its error and unit."""
        mean, error = self.mean(cell, metric), self.half_width(cell, metric)
        return with_error(mean, error, self.unit(metric), self.estimate(cell, metric)["n"])

    @property
    def is_rough(self) -> bool:
        """Whether some cell has too few replications for its intervals to cover as they promise."""
        fewest = min(int(line["replications"]) for line in self.lines.values())
        return 1 < fewest < MIN_REPLICATIONS

    def known(self, metrics: Sequence[str]) -> list[str]:
        """Those of some metrics that are defined somewhere."""
        there = set(self.summary.drop_nulls("mean")["metric"].unique())
        return [metric for metric in metrics if metric in there]

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """The lines of the table of claims, with what the weakest link compares in words.

        `is_against_number` tells whether it compares a cell with a number; `names` what is
        compared, and `difference` how far apart that is on average. Against a number this is the
        mean itself, and its distance from the number.
        """
        claims = []
        table = self._in_units(self.results.claims, "claims", "link_metric")
        for line in table.iter_rows(named=True):
            is_against_number = self.source["claim"][line["claim"]].get("value") is not None
            of_metric = line["link_metric"]
            unit, factor = self.unit(of_metric), self.factor(of_metric)
            against = _against_number(line, unit, factor) if is_against_number else None
            words = against or _against_cell(line, unit)
            claims.append(line | words | {"is_against_number": is_against_number})
        return claims


def _in_order(column: pl.Series) -> list[Any]:
    """The values of a column: numbers ascending, no budget last; texts as they come."""
    values = column.unique(maintain_order=True)
    return (values if values.dtype == pl.String else values.sort(nulls_last=True)).to_list()


def _against_cell(claim: Mapping[str, Any], unit: str) -> dict[str, str]:
    return {
        "names": f"{claim['left']} − {claim['right']}",
        "difference": in_a_sentence(claim["mean_difference"], half_width(claim), unit, claim["n"])
        + _of_runs(claim),
    }


def _of_runs(claim: Mapping[str, Any]) -> str:
    """Of which replications a difference is, where these are not all."""
    share = claim["share_defined"]
    if share is None or share == 1:
        return ""
    return f" (of the {percent(share)} % that come within the run)"


def _against_number(claim: Mapping[str, Any], unit: str, factor: float) -> dict[str, str] | None:
    distance = claim["mean_difference"]
    if distance is None:
        return None
    number = float(claim["right"]) * factor
    text = in_a_sentence(distance + number, half_width(claim), unit, claim["n"])
    side = "above" if distance > 0 else "below"
    apart = f"{short(abs(distance))} {side}" if distance else "equal to"
    right = claim["right"] if factor == 1 else f"{number:g} {unit}"
    return {
        "names": f"{claim['left']} against {right}",
        "difference": f"{text}, {apart} {number:,.10g}{_of_runs(claim)}",
    }
