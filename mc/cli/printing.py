"""The tables that a run prints, and `show` again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from mc.cli.common import to_stdout

if TYPE_CHECKING:
    import polars as pl

    from mc.store import Results

HEADLINE: Final[dict[str, tuple[str, int]]] = {
    "calls": ("calls", 0),
    "multiplier": ("multi-\nplier", 2),
    "peak": ("peak", 0),
    "successful": ("success-\nful", 0),
    "dropped": ("dropped", 0),
    "window_rate": ("window\nrate", 2),
    "times_usual": ("times\nusual", 1),
}
"""Metrics of the table that a run prints, in the lesson's order: the head of the column, and the
decimals of the value in a single replication."""

RECOVERY: Final[dict[str, tuple[str, int]]] = {
    "wait_mean": ("mean\nwait", 2),
    "wait_max": ("longest\nwait", 0),
    "late": ("late", 0),
    "second_peak": ("second\npeak", 0),
    "drain": ("drain", 0),
}
"""Metrics of the second table: what the callers wait, and what follows the fault."""

HEADS: Final = HEADLINE | RECOVERY

CELLS_SHOWN: Final = 40
"""Cells whose tables are printed unasked; a sweep is read from its files."""


def print_results(results: Results, *, everything: bool = False) -> None:
    """Print all tables; nothing if one of them cannot be read."""
    console = Console(highlight=False)
    with to_stdout():
        with console.capture() as captured:  # at the end of which rich writes, too
            _render_results(console, results, everything)
        sys.stdout.write(captured.get())


def _render_results(console: Console, results: Results, everything: bool) -> None:
    import polars as pl

    manifest = results.manifest
    counts = results.cells["replications"].unique().sort().to_list()
    n = counts[-1]
    seeds = manifest["experiment"]["seeds"]
    drawn = f"seed {manifest['seed']}" if seeds is None else f"seeds {_some(seeds)}"
    console.print(
        Text(
            f"{manifest['title']}: {manifest['n_cells']} cells x {_span(counts)} replications, "
            f"generator {manifest['generator']}, {drawn}"
        )
    )
    precision = manifest["experiment"]["precision"]
    if precision is not None:
        console.print(Text(_stopping_rule(precision, results.cells)))
    figures = results.summary.filter(pl.col("published").is_not_null())
    if n > 1:
        console.print(
            "Mean over replications, with the half-width of its 95 % interval (each alone)."
        )
        if figures.height:
            console.print(
                "Published figure, and the percentage of replications below it (ties count half)."
            )
    shown = results.cells if everything else results.cells.head(CELLS_SHOWN)
    for (scenario,), cells in shown.group_by("scenario", maintain_order=True):
        here = cells["replications"].unique().sort().to_list()
        differs = len(here) > 1
        estimates: dict[int, dict[str, Any]] = {}
        some = results.summary.filter(pl.col("cell").is_in(cells["cell"].implode()))
        for estimate in some.iter_rows(named=True):
            estimates.setdefault(estimate["cell"], {})[estimate["metric"]] = estimate
        named = {
            _name(cell, manifest): cell
            | {"n_shown": f", {cell['replications']:,} replications" if differs else ""}
            | estimates[cell["cell"]]
            for cell in cells.iter_rows(named=True)
        }
        head = f"{scenario} ({_span(here)} replications)" if len(counts) > 1 else str(scenario)
        for title, wanted in ((head, HEADLINE), (f"{scenario}: waits and recovery", RECOVERY)):
            metrics = [m for m in wanted if any(cell[m]["n"] for cell in named.values())]
            if n > 1:
                console.print(Text(f"\n{title}", "bold underline"))
                for line in _mean_lines(named, metrics):
                    console.print(line, crop=False)
            elif wanted is HEADLINE:
                console.print(Text(f"\n{title}", "bold underline"))
                console.print(_fitted(_single_table(named, metrics), console), crop=False)
    if shown.height < results.cells.height:
        console.print(
            f"\n{results.cells.height - shown.height} more cells: "
            f"retrystorm show {results.folder} --all, or read summary.parquet"
        )
    if n == 1 and figures.height:
        same = figures.filter(pl.col("published_percentile") == 50.0).height
        console.print(f"{same} of {figures.height} published figures are reproduced.")
    if results.claims.height:
        console.print(_claims_table(results.claims))
    console.print(_unbroken(f"Results: {results.folder}"), crop=False)


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
    )


def _some(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > 3 else ""
    return ", ".join(map(str, numbers[:3])) + more


def _unbroken(text: str, style: str = "") -> Text:
    """Text that is neither wrapped nor cut off."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def _name(cell: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Policy and place on the grid; an absent axis of policies is not named beside a grid."""
    design = manifest["experiment"]["design"] or {"ranges": []}
    axes = [axis["name"] for axis in (*manifest["experiment"]["grid"], *design["ranges"])]
    places = [f"{axis} {_plain(cell[axis])}" for axis in axes]
    named = cell["policy"] != "default" or not places
    return ", ".join([cell["policy"], *places] if named else places)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _single_table(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> Table:
    """One replication: a line of values for each cell, in the lesson's layout.

    Published figures are shown only where one differs.
    """
    from mc.statistics import MISSING, to_fixed

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold")
    table.add_column("max at-\ntempts", justify="right")
    for metric in metrics:
        table.add_column(HEADS[metric][0], justify="right", no_wrap=True)
    for name, cell in cells.items():
        values, published = (
            [
                none if e[key] is None else to_fixed(e[key], HEADS[e["metric"]][1])
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


def _mean_lines(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> Iterator[Text]:
    """Many replications: below each cell's name a line of means, of half-widths, and so on.

    The name has a line of its own, so that seven columns of numbers fit 80 characters.
    """
    from mc.statistics import MISSING, format_estimate

    blocks = {}
    for name, cell in cells.items():
        estimates = [cell[metric] for metric in metrics]
        pairs = [format_estimate(e["mean"], _half_width(e)) for e in estimates]
        lines = {"mean": [mean for mean, _ in pairs], "±": [error for _, error in pairs]}
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
            *(len(line) for line in HEADS[metric][0].split("\n")),
            *(len(line[i]) for lines in blocks.values() for line in lines.values()),
        )
        for i, metric in enumerate(metrics)
    ]

    def line(label: str, entries: Sequence[str], style: str = "") -> Text:
        columns = (f"{entry:>{width}}" for entry, width in zip(entries, widths, strict=True))
        return _unbroken(f"  {label:<10}  " + "  ".join(columns), style)

    heads = [("\n" + HEADS[metric][0]).split("\n")[-2:] for metric in metrics]
    for i in range(2):
        yield line("", [head[i] for head in heads])
    for title, lines in blocks.items():
        yield Text(title, "bold")
        for label, entries in lines.items():
            yield line(label, entries, "" if label == "mean" else "dim")


def _half_width(estimate: Mapping[str, Any]) -> float | None:
    if estimate["ci_low"] is None:
        return None
    return float(estimate["ci_high"] - estimate["ci_low"]) / 2


def _claims_table(claims: pl.DataFrame) -> Table:
    """Share of replications in which each claim holds, mean difference, verdict."""
    from mc.statistics import format_estimate

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("claim", ratio=1, overflow="fold")
    table.add_column("holds in %\n(95 % interval)", justify="right", no_wrap=True)
    table.add_column("difference\nleft - right", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for claim in claims.iter_rows(named=True):
        estimate, error = format_estimate(claim["mean_difference"], _half_width(claim))
        share = "-"
        if claim["share"] is not None:
            share = f"{100 * claim['share']:.1f}"
            if claim["share_low"] is not None:
                share += f"\n{100 * claim['share_low']:.1f} .. {100 * claim['share_high']:.1f}"
        table.add_row(
            Text(claim["text"]),
            share,
            f"{estimate}\n± {error}" if error else estimate,
            claim["verdict"] or "-",
        )
    return table
