"""Commands that draw: report, trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mc.cli.common import (
    INTERRUPTED,
    File,
    Folder,
    Seed,
    Settings,
    fail,
    faults,
    import_all,
    interrupt,
    on_signals,
    parse_overrides,
    print_text,
    tell,
)
from mc.cli.words import labelled

if TYPE_CHECKING:
    from mc.store import Results

MOST_TRACED: Final = 12
"""Cells in one picture of `trace`."""

NoReport = Annotated[
    bool,
    typer.Option(
        "--no-report", help="Draw no figures and write no page.", envvar="RETRYSTORM_NO_REPORT"
    ),
]


def report(
    folder: Folder,
    png: Annotated[
        bool, typer.Option("--png", help="Write each figure as a PNG file, too.")
    ] = False,
) -> None:
    """Draw the figures of a finished run and write its page, report.html.

    The page is one file that needs no network; figures are also written one by one, as SVG, to the
    folder figures.
    """
    try:
        with on_signals(interrupt):
            import_all()
            from mc import reports, store

            with faults():
                print_text(f"{reports.report(store.load(folder), png=png)}\n")
    except KeyboardInterrupt:
        fail("stopped; the same command starts again", INTERRUPTED)


def draw_after(results: Results) -> None:
    """Draw the report at the end of a run, unless it is there."""
    from mc import reports

    if not reports.is_current(results):
        tell("drawing the report")
        reports.report(results)
    tell(f"Report: {results.folder / reports.PAGE}")


def tell_if_stale(results: Results) -> None:
    """Say that the report there is of earlier results."""
    from mc import reports

    if reports.is_stale(results):
        tell(
            f"{results.folder / reports.PAGE} shows earlier results: "
            f"`retrystorm report {results.folder}` makes it anew"
        )


def trace(
    file: File,
    scenario: Annotated[
        str | None, typer.Option(help="Name of a scenario.", show_default=False)
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Name of a policy.", show_default=False)
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A value on an axis of [grid] or [design]; may be repeated."
        ),
    ] = None,
    replication: Annotated[int, typer.Option(help="Which replication.", min=0)] = 0,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The table; the picture goes beside it.  [default: <name of FILE>-trace.parquet]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Record one replication round by round, as a Parquet table and as a picture (SVG, PNG).

    The table has a line for each round: calls (primary and retries), how many succeed and fail,
    requests dropped, capacity, requests waiting. Without options for a scenario, a policy or a
    value every cell of FILE is recorded, if there are no more than 12.
    """
    try:
        with on_signals(interrupt):
            import_all()
            with faults():
                lines = _trace(
                    file, scenario, policy, at or [], replication, seed, settings or [], out
                )
                print_text("".join(f"{line}\n" for line in lines))
    except KeyboardInterrupt:
        fail("stopped; the same command starts again", INTERRUPTED)


def _trace(
    file: Path,
    scenario: str | None,
    policy: str | None,
    at: list[str],
    replication: int,
    seed: int | None,
    settings: list[str],
    out: Path | None,
) -> Iterator[str]:
    from mc import experiment as experiments
    from mc import reports, runner, store

    experiment = experiments.read(file, seed=seed, overrides=parse_overrides(settings))
    points = runner.choose(experiment, scenario, policy, parse_overrides(at, "--at"))
    if len(points) > MOST_TRACED:
        fail(
            f"{file}: {len(points):,} cells are meant, but at most {MOST_TRACED} are drawn: choose "
            "with --scenario, --policy or --at",
            2,
        )
    n = experiment.replications
    if experiment.seeds and replication >= n:
        fail(f"--replication: must be < {n}, the number of seeds of {file}, got {replication}", 2)
    if replication >= (most := experiments.MAX_REPLICATIONS):
        fail(f"--replication: must be < {most}, got {replication}", 2)
    table = out or Path(f"{experiment.name}-trace.parquet")
    if table.suffix != ".parquet":
        fail(f"--out: must end with .parquet, got {str(table)!r}", 2)
    if not table.parent.is_dir():
        fail(f"--out: must be in a folder that exists, got {str(table)!r}", 2)
    rounds = runner.trace_points(experiment, points, [replication])
    svg, png = reports.draw_trace(rounds, points)
    for path, content in (
        (table, store.table_bytes(rounds)),
        (table.with_suffix(".svg"), svg.encode()),
        (table.with_suffix(".png"), png),
    ):
        store.write(path.parent, path.name, content)
    yield f"{experiment.title}: replication {replication} of {len(points)} cells, round by round"
    yield from labelled(
        {
            "table": f"{table}, {rounds.height:,} lines",
            "picture": f"{table.with_suffix('.svg')}, {table.with_suffix('.png')}",
        }
    )
