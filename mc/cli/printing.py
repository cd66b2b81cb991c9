"""The tables that a run prints, and `show` again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mc.cli.claiming import claim_row, claimed, claims_table, has_lesson
from mc.cli.common import print_text, to_stdout
from mc.cli.formats import escaped, markdown_table, print_table
from mc.cli.words import some
from mc.model import HEADLINE, METRICS, RECOVERY

if TYPE_CHECKING:
    import polars as pl

    from mc.store import Results

CELLS_SHOWN: Final = 40
"""Cells whose tables are printed unasked; a sweep is read from its files."""


def print_results(
    results: Results,
    form: str,
    *,
    everything: bool = False,
    adjusted: bool = False,
    table: str | None = None,
) -> None:
    """Print all tables; nothing if one of them cannot be read.

    Parameters
    ----------
    results : Results
        Of a finished run.
    form : str
        One of `FORMATS`.
    everything : bool
        Every cell, not only the first `CELLS_SHOWN`.
    adjusted : bool
        For "table": adjusted means, too.
    table : str, optional
        Only this one of `TABLES`, for "json", "csv" and "markdown".
    """
    if form in ("json", "csv") or table is not None:
        print_table(results, table, form)
        return
    if form == "markdown":
        print_text("".join(f"{line}\n" for line in _markdown_lines(results, everything)))
        return
    console = Console(highlight=False)
    with to_stdout():
        with console.capture() as captured:  # at the end of which rich writes, too
            _render_results(console, results, everything, adjusted)
        sys.stdout.write(captured.get())


def _render_results(console: Console, results: Results, everything: bool, adjusted: bool) -> None:
    for line in _lines_before(results):
        console.print(Text(line))
    if adjusted and not _is_single(results):
        console.print(
            "Adjusted for the traffic of these replications, whose expectation is known, where\n"
            "that narrows the interval (control variates)."
        )
    for title, cells, metrics in _scenario_tables(results, everything):
        console.print(Text(f"\n{title}", "bold underline"))
        if _is_single(results):
            console.print(_fitted(_single_table(cells, metrics), console), crop=False)
        else:
            for text in _mean_lines(cells, metrics, adjusted):
                console.print(text, crop=False)
            if _lacks_an_interval(cells, metrics):
                console.print(
                    Text(
                        "No ±: 0 too often, or too skewed, for so few replications (see note).",
                        "dim",
                    )
                )
    if n_more := _n_more(results, everything):
        console.print(
            f"\n{n_more} more cells: "
            f"retrystorm show {results.folder} --all, or read summary.parquet"
        )
    if reproduced := _reproduced(results):
        console.print(reproduced)
    for line in _far_out(results):
        console.print(_unbroken(line), crop=False)
    if results.claims.height:
        console.print(claims_table(results.claims))
        console.print("Intervals of 95 % each; those that decide the verdicts hold together.")
        if has_lesson(results.claims):
            console.print(
                "Where every cell draws from a stream of its own, as in the lesson, a claim holds\n"
                "in another share of seeds: it depends on how cells are coupled. The mean\n"
                "difference does not."
            )
    console.print(_unbroken(f"Results: {results.folder}"), crop=False)


FAR_OUT: Final = 0.05
"""A published figure is pointed out if no more of the seeds lie as far on either side."""


def _far_out(results: Results) -> Iterator[str]:
    """Published figures that few seeds are like."""
    import polars as pl

    from mc.statistics import placed

    n = results.summary["published"].count()
    found = results.summary.filter(pl.col("published_tail") < FAR_OUT)
    if _is_single(results) or found.height == 0:
        return
    yield f"\nOf {n} published figures these are among the outer {100 * FAR_OUT:g} % of seeds"
    yield f"(about {FAR_OUT * n:.0f} would be by chance):"
    names = results.cells.select("cell", "scenario", "policy")
    joined = found.join(names, on="cell", how="left", maintain_order="left")
    for (scenario, policy), lines in joined.group_by("scenario", "policy", maintain_order=True):
        yield "  " + ", ".join(str(n) for n in (scenario, policy) if n != "default")
        for line in lines.iter_rows(named=True):
            where = placed(line["published_percentile"])
            yield f"    {line['metric']} {line['published']:g} is {where}"


def _is_single(results: Results) -> bool:
    """Whether one replication was made: then its values are shown, not means."""
    return bool(results.cells["replications"].max() == 1)


def _lines_before(results: Results) -> Iterator[str]:
    """What the tables are about."""
    manifest = results.manifest
    counts = results.cells["replications"].unique().sort().to_list()
    seeds = manifest["experiment"]["seeds"]
    drawn = f"seed {manifest['seed']}" if seeds is None else f"seeds {some(seeds)}"
    yield (
        f"{manifest['title']}: {manifest['n_cells']} cells x {_span(counts)} replications, "
        f"generator {manifest['generator']}, {drawn}"
    )
    precision = manifest["experiment"]["precision"]
    if precision is not None:
        yield _stopping_rule(precision, results.cells)
    if not _is_single(results):
        yield "Mean over replications, with the half-width of its 95 % interval (each alone)."
        if results.summary["published"].count():
            yield (
                "Published figure, and the percentage of replications below it (ties count half)."
            )


def _scenario_tables(
    results: Results, everything: bool
) -> Iterator[tuple[str, dict[str, dict[str, Any]], list[str]]]:
    """For each scenario one table or two: title, cells by name with their estimates, metrics."""
    import polars as pl

    n_counts = results.cells["replications"].n_unique()
    shown = results.cells if everything else _first_of_each(results.cells)
    for (scenario,), cells in shown.group_by("scenario", maintain_order=True):
        here = cells["replications"].unique().sort().to_list()
        differs = len(here) > 1
        estimates: dict[int, dict[str, Any]] = {}
        some = results.summary.filter(pl.col("cell").is_in(cells["cell"].implode()))
        for estimate in some.iter_rows(named=True):
            estimates.setdefault(estimate["cell"], {})[estimate["metric"]] = estimate
        named = _named(
            [
                cell
                | {"n_shown": f", {cell['replications']:,} replications" if differs else ""}
                | estimates[cell["cell"]]
                for cell in cells.iter_rows(named=True)
            ],
            results.manifest,
        )
        head = f"{scenario} ({_span(here)} replications)" if n_counts > 1 else str(scenario)
        yield head, named, _defined(named, HEADLINE)
        if not _is_single(results):
            yield f"{scenario}: waits and recovery", named, _defined(named, RECOVERY)


def _first_of_each(cells: pl.DataFrame) -> pl.DataFrame:
    """`CELLS_SHOWN` cells, or so: the first of every scenario."""
    import polars as pl

    share = max(1, CELLS_SHOWN // cells["scenario"].n_unique())
    if cells.height <= CELLS_SHOWN:
        return cells
    return cells.filter(pl.int_range(pl.len()).over("scenario") < share)


def _defined(cells: Mapping[str, dict[str, Any]], metrics: Iterable[str]) -> list[str]:
    """Those metrics that some cell has."""
    return [metric for metric in metrics if any(cell[metric]["n"] for cell in cells.values())]


def _n_more(results: Results, everything: bool) -> int:
    """Cells that are not shown."""
    return 0 if everything else results.cells.height - _first_of_each(results.cells).height


def _reproduced(results: Results) -> str:
    """Of a single replication, how many published figures it has."""
    import polars as pl

    figures = results.summary.filter(pl.col("published").is_not_null())
    if not _is_single(results) or not figures.height:
        return ""
    same = figures.filter(pl.col("published_percentile") == 50.0).height
    return f"{same} of {figures.height} published figures are reproduced."


# --- for a page -----------------------------------------------------------------------------------


def _markdown_lines(results: Results, everything: bool) -> Iterator[str]:
    """The same as on the terminal."""
    title, *lines = _lines_before(results)
    yield f"**{escaped(title)}**"
    for line in lines:
        yield from ("", escaped(line))
    for head, cells, metrics in _scenario_tables(results, everything):
        yield from ("", f"### {escaped(head)}", "")
        names = ["policy", "max attempts", *(_head(metric) for metric in metrics)]
        yield from markdown_table(names, _markdown_rows(cells, metrics), n_texts=1)
    if n_more := _n_more(results, everything):
        yield from ("", f"{n_more} more cells are in summary.parquet.")
    if reproduced := _reproduced(results):
        yield from ("", reproduced)
    if results.claims.height:
        names = ["claim", "verdict", "holds in %", "95 % interval", "difference, left - right"]
        names += ["as the lesson draws, %"] if has_lesson(results.claims) else []
        yield ""
        yield from markdown_table(names, map(claim_row, claimed(results.claims)), n_texts=2)
    yield from ("", f"Results: {escaped(str(results.folder))}")


def _head(metric: str) -> str:
    """The head of a column in one line."""
    return METRICS[metric].heading.replace("-\n", "").replace("\n", " ")


def _markdown_rows(
    cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]
) -> Iterator[list[str]]:
    """For each cell its means, and the published figures with their percentiles."""
    from mc.statistics import format_estimate, half_width

    for name, cell in cells.items():
        pairs = [format_estimate(cell[m]["mean"], half_width(cell[m])) for m in metrics]
        means = [f"{mean} ± {error}" if error else mean for mean, error in pairs]
        yield [f"{name}{cell['n_shown']}", str(cell["max_attempts"]), *means]
        if any(cell[metric]["published"] is not None for metric in metrics):
            yield ["published (percentile)", "", *(_published(cell[metric]) for metric in metrics)]


def _published(estimate: Mapping[str, Any]) -> str:
    if estimate["published"] is None:
        return ""
    percentile = estimate["published_percentile"]
    return f"{estimate['published']:g}" + ("" if percentile is None else f" ({percentile:.1f} %)")


# --- for the terminal -----------------------------------------------------------------------------


def _span(numbers: Sequence[int]) -> str:
    """Write one number, or the first and the last of several."""
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def _stopping_rule(precision: Mapping[str, Any], cells: pl.DataFrame) -> str:
    """Say what the replications depended on, and whether that was reached."""
    widths = [f"{100 * precision['relative']:g} %"] if precision["relative"] else []
    widths += [f"{precision['absolute']:g}"] if precision["absolute"] else []
    n_short = cells["stopped_by"].to_list().count("max")
    return (
        f"Replications until {', '.join(precision['metrics'])} "
        f"{'are' if len(precision['metrics']) > 1 else 'is'} known to {' or '.join(widths)} "
        f"({100 * precision['confidence']:g} % intervals), at most {precision['max']:,}: "
        + ("reached in all cells." if n_short == 0 else f"not reached in {n_short:,} cells.")
        + (
            " (A mean near 0 is never known to a share of itself: give an absolute width, too.)"
            if n_short and not precision["absolute"]
            else ""
        )
    )


def _unbroken(text: str, style: str = "") -> Text:
    """Text that is neither wrapped nor cut off."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def _named(cells: Sequence[dict[str, Any]], manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Cells by policy and place on the grid, with six digits if these tell them apart."""
    from mc.experiment.words import value_text

    for plain in (value_text, _exact):
        named = {_name(cell, manifest, plain): cell for cell in cells}
        if len(named) == len(cells):
            break
    return named


def _name(cell: dict[str, Any], manifest: dict[str, Any], plain: Callable[[object], str]) -> str:
    """Policy and place on the grid; an absent axis of policies is not named beside a grid."""
    from mc.store import axis_names

    places = [
        f"{axis} {cell[axis] if isinstance(cell[axis], str) else plain(cell[axis])}"
        for axis in axis_names(manifest)
    ]
    named = cell["policy"] != "default" or not places
    return ", ".join([cell["policy"], *places] if named else places)


def _exact(value: object) -> str:
    return "none" if value is None else repr(value).removesuffix(".0")


def _single_table(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> Table:
    """One replication: a line of values for each cell, in the lesson's layout.

    Published figures are shown only where one differs.
    """
    from mc.statistics import MISSING, to_fixed

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold")
    table.add_column("max at-\ntempts", justify="right")
    for metric in metrics:
        table.add_column(METRICS[metric].heading, justify="right", no_wrap=True)
    for name, cell in cells.items():
        values, published = (
            [
                none if e[key] is None else to_fixed(e[key], METRICS[e["metric"]].decimals)
                for e in (cell[metric] for metric in metrics)
            ]
            for key, none in (("mean", MISSING), ("published", ""))
        )
        table.add_row(name, str(cell["max_attempts"]), *values)
        if any(p not in ("", v) for p, v in zip(published, values, strict=True)):
            table.add_row("  published", "", *published)
    return table


def _fitted(table: Table, console: Console) -> Table:
    """Let the first column take what the others leave of the screen, but at least 8 characters."""
    names = table.columns[0]
    longest = max(cell_len(str(name)) for name in names.cells)
    wide = console.options.update(max_width=10_000)
    others = Measurement.get(console, wide, table).maximum - longest
    names.width = max(8, min(longest, console.width - others))
    table.width = others + names.width
    return table


def _lacks_an_interval(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> bool:
    """Whether a mean that is shown has no interval."""
    shown = (cell[metric] for cell in cells.values() for metric in metrics)
    return any(e["mean"] is not None and e["ci_low"] is None for e in shown)


def _mean_lines(
    cells: Mapping[str, dict[str, Any]], metrics: Sequence[str], adjusted: bool = False
) -> Iterator[Text]:
    """Many replications: below each cell's name a line of means, of half-widths, and so on.

    The name has a line of its own, so that seven columns of numbers fit 80 characters.
    """
    from mc.statistics import MISSING, format_estimate, half_width

    blocks = {}
    for name, cell in cells.items():
        estimates = [cell[metric] for metric in metrics]
        pairs = [format_estimate(e["mean"], half_width(e)) for e in estimates]
        lines = {"mean": [mean for mean, _ in pairs], "±": [error for _, error in pairs]}
        if adjusted:
            better = [_adjusted(e) for e in estimates]
            lines |= {"adjusted": [mean for mean, _ in better], " ±": [e for _, e in better]}
        if any(e["published"] is not None for e in estimates):
            lines["published"] = [
                "" if e["published"] is None else f"{e['published']:g}" for e in estimates
            ]
            lines["percentile"] = [
                ""
                if e["published"] is None
                else MISSING
                if e["published_percentile"] is None
                else f"{e['published_percentile']:.1f}"
                for e in estimates
            ]
        blocks[f"{name} (max_attempts {cell['max_attempts']}{cell['n_shown']})"] = lines
    widths = [
        max(
            *(len(line) for line in METRICS[metric].heading.split("\n")),
            *(len(line[i]) for lines in blocks.values() for line in lines.values()),
        )
        for i, metric in enumerate(metrics)
    ]

    def line(label: str, entries: Sequence[str], style: str = "") -> Text:
        columns = (f"{entry:>{width}}" for entry, width in zip(entries, widths, strict=True))
        return _unbroken(f"  {label:<10}  " + "  ".join(columns), style)

    heads = [("\n" + METRICS[metric].heading).split("\n")[-2:] for metric in metrics]
    for i in range(2):
        yield line("", [head[i] for head in heads])
    for title, lines in blocks.items():
        yield Text(title, "bold")
        for label, entries in lines.items():
            yield line(label, entries, "" if label == "mean" else "dim")


def _adjusted(estimate: Mapping[str, Any]) -> tuple[str, str]:
    """The adjusted mean and its half-width, or nothing."""
    from mc.statistics import format_estimate, half_width

    if estimate["adjusted_mean"] is None:
        return "", ""
    return format_estimate(estimate["adjusted_mean"], half_width(estimate, "adjusted"))
