"""What is printed of a finished run: which cells and metrics, and the lines around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mc.cli.readable import first_three, first_to_last
from mc.model.digits import MIN_REPLICATIONS, counted
from mc.model.thresholds import DEPENDS, FAILS, HOLDS

if TYPE_CHECKING:
    import polars as pl

    from mc.store import Results

MAX_CELLS: Final = 40
"""Cells that are printed unasked; a sweep is read from its files."""

RANGE: Final = {"5 %": "p05", "95 %": "p95"}
"""Between these lie nine of ten runs: what a single outage may bring."""

ROUGH: Final = f"~: rough, of fewer than {MIN_REPLICATIONS} replications: may cover less than 95 %."

VERDICT_STYLES: Final = {HOLDS: "green", FAILS: "red", DEPENDS: "yellow"}
"""How a terminal marks the verdicts."""

Estimates = Mapping[str, dict[str, Any]]
"""Cells by name: the line of each in the table of cells, and its estimates by metric."""


class ScenarioTable(NamedTuple):
    """One table: estimates of some metrics in the cells of one scenario.

    Attributes
    ----------
    title : str
    cells : Estimates
        In the units of a reader.
    metrics : sequence of str
    per_second : float or None
        Rounds in a second; None where a reader is given rounds.
    """

    title: str
    cells: Estimates
    metrics: list[str]
    per_second: float | None

    @property
    def is_first(self) -> bool:
        """Whether it is the first table of its scenario."""
        return "calls" in self.metrics

    @property
    def has_units(self) -> bool:
        """Whether the heads have a line for units: of times and rates that are not in rounds."""
        from mc.model import METRICS

        return self.per_second is not None and any(METRICS[m].dimension for m in self.metrics)

    @property
    def heads(self) -> list[str]:
        """Heads of the columns, of two lines or less, and the line for units."""
        from mc.model import METRICS

        of_metrics = [METRICS[metric] for metric in self.metrics]
        if not self.has_units:
            return [one.heading for one in of_metrics]
        # short, as so many columns must fit a line
        below = {"time": "s", "rate": "/s"}
        return [f"{one.heading}\n{below.get(one.dimension or '', '')}" for one in of_metrics]

    def decimals(self, metric: str) -> int:
        """Digits after the point of a value in a single replication."""
        from mc.model import METRICS, units

        of_metric = METRICS[metric]
        factor = units.for_reader(of_metric.unit, self.per_second)[1]
        return max(0, of_metric.decimals - math.floor(math.log10(factor)))


def readers_second(results: Results) -> float | None:
    """How many rounds a reader's second has; None where a reader is given rounds."""
    from mc.model import digits

    return digits.readers_second(results.manifest["experiment"])


def is_single(results: Results) -> bool:
    """Whether there is one replication, of which the values are printed, not means."""
    return bool(results.cells["replications"].max() == 1)


def introduction(results: Results) -> Iterator[str]:
    """Yield the lines above the tables: what was run, and what its numbers are."""
    manifest = results.manifest
    counts = results.cells["replications"].unique().sort().to_list()
    seeds = manifest["experiment"]["seeds"]
    drawn = f"seed {manifest['seed']}" if seeds is None else f"seeds {first_three(seeds)}"
    yield (
        f"{manifest['title']}: {counted(manifest['n_cells'], 'cell')} x {first_to_last(counts)} "
        f"replications, generator {manifest['generator']}, {drawn}"
    )
    precision = manifest["experiment"]["precision"]
    if precision is not None:
        n_short = results.cells["stopped_by"].to_list().count("max")
        yield _stopping_rule(precision, n_short, readers_second(results))
    if not is_single(results):
        yield "Mean over replications, with the half-width of its 95 % interval (each alone)."
        yield "Nine in ten single runs lie between 5 % and 95 %: a mean is no forecast of one."
        if results.summary["published"].count():
            yield (
                "Published figure, and the percentage of replications below it (ties count half)."
            )


def _stopping_rule(precision: Mapping[str, Any], n_short: int, per_second: float | None) -> str:
    """What the replications depended on, and in how many cells it was not reached."""
    text = f"Replications until {known_to(precision, per_second)}, at most {precision['max']:,}: "
    if n_short == 0:
        return text + "reached in all cells."
    text += f"not reached in {counted(n_short, 'cell')}."
    if not precision["absolute"]:
        text += " (A mean near 0 is never known to a share of itself: give an absolute width, too.)"
    return text


def known_to(precision: Mapping[str, Any], per_second: float | None = None, share: str = "") -> str:
    """How precisely which metrics are to be known, as [precision] says; `share` after the %."""
    from mc.model.digits import number_text

    widths = [f"{100 * precision['relative']:g} %{share}"] if precision["relative"] else []
    absolute = precision["absolute"]
    widths += [number_text(absolute, precision["metrics"], per_second)] if absolute else []
    verb = "are" if len(precision["metrics"]) > 1 else "is"
    return (
        f"{', '.join(precision['metrics'])} {verb} known to {' or '.join(widths)} "
        f"({100 * precision['confidence']:g} % intervals)"
    )


def scenario_tables(
    results: Results, every: bool, metrics: Sequence[str] = ()
) -> Iterator[ScenarioTable]:
    """Yield the tables of each scenario: of every cell, or of about `MAX_CELLS`.

    With `metrics` a table of these.
    """
    import polars as pl

    from mc.model import HEADLINE, OF_QUEUE, RECOVERY
    from mc.store import for_reader

    n_counts = results.cells["replications"].n_unique()
    per_second = readers_second(results)
    shown = results.cells if every else _first_cells(results.cells)
    summary = results.summary.filter(pl.col("cell").is_in(shown["cell"].implode()))
    summary = for_reader(summary, "summary", results.manifest)
    for (scenario,), cells in shown.group_by("scenario", maintain_order=True):
        counts = cells["replications"].unique().sort().to_list()
        estimates: dict[int, dict[str, Any]] = {}
        lines = summary.filter(pl.col("cell").is_in(cells["cell"].implode()))
        for line in lines.iter_rows(named=True):
            estimates.setdefault(line["cell"], {})[line["metric"]] = line
        named = _by_name(
            [cell | estimates[cell["cell"]] for cell in cells.iter_rows(named=True)],
            results.manifest,
        )
        for cell in named.values():
            n = f", {cell['replications']:,} replications" if len(counts) > 1 else ""
            cell["replications_text"] = n
        title = str(scenario)
        if n_counts > 1:
            title += f" ({first_to_last(counts)} replications)"
        yield ScenarioTable(title, named, _defined(named, metrics or HEADLINE), per_second)
        if not is_single(results) and not metrics:
            title = f"{scenario}: failures, waits and recovery"
            yield ScenarioTable(title, named, _defined(named, RECOVERY), per_second)
            of_queue = _defined(named, OF_QUEUE)
            if of_queue:
                title = f"{scenario}: queue, and whether it comes back"
                yield ScenarioTable(title, named, of_queue, per_second)


def layer_lines(results: Results, table: ScenarioTable) -> Iterator[tuple[str, str]]:
    """Yield each cell that retries in several layers: its name, and the calls of each layer."""
    from mc.model import calls_per_request
    from mc.model.digits import layer_names

    for name, cell in table.cells.items():
        means = {key: line["mean"] for key, line in cell.items() if isinstance(line, dict)}
        of_layers = calls_per_request(means)
        if of_layers and cell["max_attempts"] > 1:
            names = layer_names(results.manifest["experiment"], len(of_layers))
            texts = (f"{layer} {n:.2f}" for layer, n in zip(names, of_layers, strict=True))
            yield name, ", ".join(texts)


def _first_cells(cells: pl.DataFrame) -> pl.DataFrame:
    """About `MAX_CELLS` cells: the first of every scenario."""
    import polars as pl

    if cells.height <= MAX_CELLS:
        return cells
    n = max(1, MAX_CELLS // cells["scenario"].n_unique())
    return cells.filter(pl.int_range(pl.len()).over("scenario") < n)


def n_cells_left_out(results: Results) -> int:
    """How many cells are not printed unasked."""
    return results.cells.height - _first_cells(results.cells).height


def _defined(cells: Estimates, metrics: Iterable[str]) -> list[str]:
    """Those metrics that are defined in some cell."""
    return [
        metric
        for metric in metrics
        if any(cell[metric]["n"] for cell in cells.values() if metric in cell)
    ]


def _by_name(
    cells: Sequence[dict[str, Any]], manifest: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Cells by name; values in it have six digits, or all where six do not tell cells apart."""
    from mc.store import axis_names

    axes = axis_names(manifest)
    for exactly in (False, True):
        named = {_name(cell, axes, manifest["experiment"], exactly): cell for cell in cells}
        if len(named) == len(cells):
            break
    return named


def _name(
    cell: Mapping[str, Any], axes: Sequence[str], source: Mapping[str, Any], exactly: bool
) -> str:
    """Policy and value on each axis; the only policy is not named if there is an axis."""
    values = [f"{axis} {_value_text(source, axis, cell[axis], exactly)}" for axis in axes]
    has_policy = cell["policy"] != "default" or not values
    return ", ".join([cell["policy"], *values] if has_policy else values)


def _value_text(source: Mapping[str, Any], axis: str, value: object, exactly: bool) -> str:
    if exactly and not isinstance(value, str):
        return "none" if value is None else repr(value).removesuffix(".0")
    from mc.model.digits import axis_text

    return axis_text(source, axis, value)


def reproduced(results: Results) -> str:
    """How many published figures a single replication has; empty for several replications."""
    import polars as pl

    if not is_single(results):
        return ""
    figures = results.scan_summary().filter(pl.col("published").is_not_null())
    published = figures.select("published_percentile").collect().to_series()
    if published.is_empty():
        return ""
    n_same = (published == 50.0).sum()
    return f"{n_same} of {len(published)} published figures are reproduced."


class ClaimTexts(NamedTuple):
    """A claim and its numbers as they are printed."""

    text: str
    verdict: str
    share: str
    interval: str
    operands: str
    difference: str
    lesson_share: str
    to_decide: str


def claim_texts(results: Results) -> Iterator[ClaimTexts]:
    """Yield each claim: its verdict, in how many replications it holds, the mean difference."""
    from mc.model import METRICS, units
    from mc.model.digits import MISSING, number_text
    from mc.store import for_reader

    per_second = readers_second(results)
    claims = for_reader(results.claims, "claims", results.manifest, "link_metric")
    for claim in claims.iter_rows(named=True):
        own = METRICS[claim["link_metric"]].unit if claim["link_metric"] else ""
        unit = units.for_reader(own, per_second)[0]
        interval = ""
        if claim["share_low"] is not None:
            interval = interval_text(claim["share_low"], claim["share_high"])
        lesson_share = claim["lesson_share"]
        metric, right = claim["link_metric"], claim["right"]
        operands = ""
        if metric:
            if results.manifest["experiment"]["claim"][claim["claim"]].get("value") is not None:
                right = number_text(float(right), [metric], per_second)
            operands = f"{metric}: {claim['left']} - {right}"
        yield ClaimTexts(
            claim["text"],
            claim["verdict"] or MISSING,
            MISSING if claim["share"] is None else f"{100 * claim['share']:.1f}",
            interval,
            operands,
            with_error(*estimate_texts(claim)) + (f" {unit}" if unit != own else ""),
            "" if lesson_share is None else f"{100 * lesson_share:.1f}",
            "" if claim["n_to_decide"] is None else f"{claim['n_to_decide']:,}",
        )


def interval_text(low: float, high: float) -> str:
    """An interval of a share in percent; one that reaches 0 or 100 is a bound."""
    if low == 0 or high == 1:
        return f"at most {_percent(high)}" if low == 0 else f"at least {_percent(low)}"
    return f"{_percent(low)} .. {_percent(high)}"


def title_of(name: str, cell: Mapping[str, Any], metrics: Sequence[str]) -> str:
    """The line above the numbers of a cell: its name, and how often its peak is too much."""
    title = f"{name} (max_attempts {cell['max_attempts']}{cell['replications_text']})"
    of_peak = cell["peak"] if "peak" in metrics else None
    if of_peak is None or of_peak["share_above_capacity"] is None:
        return title
    share, low, high = (of_peak[f"share_above_capacity{end}"] for end in ("", "_low", "_high"))
    sure = "" if low is None else f" ({interval_text(low, high)})"
    return f"{title}, peak above capacity in {_percent(share)} %{sure}"


def is_rough(estimate: Mapping[str, Any]) -> bool:
    """Whether it is of too few replications for its interval to cover what it promises."""
    return bool(estimate["n"] < MIN_REPLICATIONS)


def is_share_of_runs(estimate: Mapping[str, Any]) -> bool:
    """Whether it is 0 or 1 in a run, so that no range of single runs says more than its mean."""
    from mc.model import METRICS

    return METRICS[estimate["metric"]].is_indicator


def notes_on(cells: Estimates, metrics: Sequence[str]) -> Iterator[str]:
    """Yield what the means that are shown need to be understood."""
    from mc.model import NO_STORM_STAYS
    from mc.model.digits import FEW, has_known_mean, share_text, unseen

    shown = [
        cell[metric]
        for cell in cells.values()
        for metric in metrics
        if cell[metric]["n"] and not _is_certain(cell, metric)
    ]
    lacking = [e for e in shown if e["ci_low"] is None]
    if any(e["sd"] for e in lacking):
        yield "No ±: 0 too often, or too skewed, for so few replications (see note)."
    never_seen = {e["n"] for e in lacking if e["sd"] == 0}
    if never_seen:
        n = min(never_seen)
        share = share_text(unseen(n))
        yield f"No ±, the same in all {n:,}: it is another in at most {share} of runs (95 %)."
    if any(is_rough(e) and e["ci_low"] is not None for e in shown):
        yield ROUGH
    if "drain" in metrics and any(not cell["queue"] for cell in cells.values()):
        yield f"drain: {NO_STORM_STAYS}."
    if any(e["share_defined"] < 1 for e in shown):
        yield "% of runs: those in which it comes within the run; mean and ± are of these."
    if not all(map(has_known_mean, shown)):
        yield f"–: fewer than {FEW} runs have one, or their mean has no interval."


def _is_certain(cell: Mapping[str, Any], metric: str) -> bool:
    """Whether a metric cannot vary for want of retries."""
    from mc.model import METRICS

    once = cell["max_attempts"] == 1 and not cell["queue"]
    return once and METRICS[metric].without_retries is not None


def percent_defined(estimate: Mapping[str, Any]) -> str:
    """In how many % of the runs there is such a number; empty if in all or in none."""
    share = estimate["share_defined"]
    return _percent(share) if estimate["n"] and share < 1 else ""


def of_a_run(estimate: Mapping[str, Any], name: str, decimals: int) -> str:
    """A quantile as a single run has such a number; empty where it is unknown."""
    from mc.model.digits import decimals_apart, to_fixed

    value = estimate[name]
    if value is None:
        # what did not come within the run has the highest ranks
        return "later" if estimate["n"] and estimate["share_defined"] < 1 else ""
    low, high = (estimate[end] for end in RANGE.values())
    if low is not None and high is not None:
        decimals = decimals_apart(low, high, decimals, estimate["mean"])
    return to_fixed(value, decimals)


def estimate_texts(line: Mapping[str, Any], name: str = "mean_difference") -> tuple[str, str]:
    """An estimate and its error, which is marked if it is rough."""
    from mc.model.digits import format_estimate, half_width

    number, error = format_estimate(line[name], half_width(line))
    return number, f"~{error}" if error and is_rough(line) else error


def with_error(number: str, error: str) -> str:
    """Write a number with its error, if there is one."""
    return f"{number} ± {error}" if error else number


def _percent(end: float) -> str:
    """The end of an interval in percent: as many digits as tell it from 0 and from 100."""
    for decimals in range(1, 8):
        text = f"{100 * end:.{decimals}f}"
        if end in (0, 1) or float(text) not in (0, 100):
            break
    return text
