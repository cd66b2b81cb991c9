"""The command compare: the difference between cells, replication by replication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli import options
from mc.cli.questions import Where, metric_for_reader, print_answers, say_undecided
from mc.cli.stderr import errors_as_messages

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType


def compare(
    folder: options.Folder,
    left: Annotated[
        str,
        typer.Argument(
            metavar="LEFT",
            help="Which cells: a policy, the number of a cell, or conditions like "
            "budget=0.1,backoff_cap=32.",
        ),
    ],
    right: Annotated[
        str, typer.Argument(metavar="RIGHT", help="With which cells, in the same way.")
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Only this metric; may be repeated; all for every one.  [default: those that a "
            "run prints first]",
        ),
    ] = None,
    where: Where = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Intervals of the differences that hold with 95 % all at once, for as many as are "
            "printed.",
        ),
    ] = False,
    form: options.Format = "table",
) -> None:
    """Compare cells in pairs, replication by replication.

    Each cell of LEFT is compared with the cell of RIGHT in the same scenario and at the same place
    of the grid, as far as LEFT and RIGHT do not say otherwise.
    """
    with errors_as_messages():
        from mc import decisions, store
        from mc.model import HEADLINE

        metrics = () if metric == ["all"] else metric or HEADLINE
        results = store.load(folder)
        differences = decisions.compare(
            results, left, right, metrics, where or (), together=together
        )
        say_undecided(results, differences["metric"].unique().to_list())
        print_answers(
            differences,
            form,
            partial(_blocks, manifest=results.manifest, together=together),
        )


def _blocks(
    differences: pl.DataFrame, manifest: Mapping[str, Any], together: bool
) -> Iterator[RenderableType]:
    from rich.text import Text

    from mc.cli.result_tables import ROUGH, is_rough
    from mc.cli.terminal_tables import table_of
    from mc.model.digits import MISSING, format_estimate, half_width
    from mc.store import for_reader

    hold = f"all {differences.height} differences together" if together else "each alone"
    yield (
        f"Mean of left - right over the same replications ± half of its 95 % interval ({hold}), "
        "and in how many % of them left is <, =, > right."
    )
    told = for_reader(differences, "comparisons", manifest)
    source = manifest["experiment"]
    for _, lines in told.group_by("left", "right", maintain_order=True):
        yield Text(f"\n{lines[0, 'left_name']}  -  {lines[0, 'right_name']}", "bold")
        table = table_of("metric", "difference", "±", "change in %", "<", "=", ">", "n")
        for line in lines.iter_rows(named=True):
            if line["n"] == 0:
                continue
            mean, error = format_estimate(line["mean_difference"], half_width(line))
            change, _ = format_estimate(
                _percent(line["relative_change"]), _percent(half_width(line, "relative"))
            )
            shares = (f"{100 * line[f'share_{name}']:.1f}" for name in ("less", "equal", "greater"))
            error = f"~{error}" if error and is_rough(line) else error
            n = f"{line['n']:,}"
            if line["share_defined"] < 1:
                n += f"\n({100 * line['share_defined']:.1f} %)"
            name = metric_for_reader(line["metric"], source)[0]
            row = (name, mean, error, change, *shares, n)
            table.add_row(*("" if entry == MISSING else entry for entry in row))
        yield table
        notes = lines.filter(lines["note"].is_not_null(), lines["n"] > 0).select("metric", "note")
        for name, note in notes.iter_rows():
            yield Text(f"{name}: {note}", "dim")
        if (lines["share_defined"] < 1).any():
            yield Text(
                "n: replications in which both come within the run; the difference is of these",
                "dim",
            )
    if any(map(is_rough, told.drop_nulls("ci_low").iter_rows(named=True))):
        yield Text(ROUGH, "dim")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
