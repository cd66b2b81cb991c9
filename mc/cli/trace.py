"""The command trace: one replication, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mc.cli import options
from mc.cli.readable import labelled_lines
from mc.cli.signals import interruptible
from mc.cli.stderr import fail
from mc.cli.stdout import print_lines
from mc.model.digits import counted

if TYPE_CHECKING:
    from mc.experiment import Experiment

MAX_CELLS: Final = 12
"""Cells in one picture."""


def trace(
    file: options.File,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of a scenario.")
    ] = None,
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Name of a policy.")] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A value on an axis of [grid] or [design]; may be repeated."
        ),
    ] = None,
    replication: Annotated[int, typer.Option(help="Which replication.", **options.whole(0))] = 0,
    seed: options.Seed = None,
    settings: options.Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            callback=options.home_expanded,
            help="The table; the picture goes beside it.  [default: <name of FILE>-trace.parquet]",
        ),
    ] = None,
) -> None:
    """Record one replication round by round.

    It becomes a Parquet table and a picture (SVG, PNG). The table has a line for each round: calls
    (primary and retries), how many succeed and fail, requests dropped, capacity, requests waiting.
    Without options for a scenario, a policy or a value every cell of FILE is recorded, if there are
    no more than 12.
    """
    with interruptible("stopped; run the same command again"):
        from mc import experiment as experiments
        from mc import reports, runner, store
        from mc.runner.tracing import TRACE_COLUMNS

        experiment = experiments.read(file, seed=seed, overrides=options.name_values(settings))
        points = runner.choose(experiment, scenario, policy, options.name_values(at, "--at"))
        if len(points) > MAX_CELLS:
            fail(
                f"{file}: {len(points):,} cells are meant, but at most {MAX_CELLS} are drawn: "
                "choose with --scenario, --policy or --at",
                2,
            )
        _check_replication(experiment, replication)
        table = out or Path(f"{experiment.name}-trace.parquet")
        _check_table(table)
        rounds = runner.trace_points(experiment, points, [replication])
        svg, png = reports.draw_trace(rounds, points, experiment.source)
        about = {n: {"unit": unit, "meaning": text} for n, (unit, text) in TRACE_COLUMNS.items()}
        files = {
            table: store.table_bytes(rounds, about),
            table.with_suffix(".svg"): svg.encode(),
            table.with_suffix(".png"): png,
        }
        for path, content in files.items():
            store.write(path.parent, path.name, content)
        n_cells = counted(len(points), "cell")
        print_lines(
            [
                f"{experiment.title}: replication {replication} of {n_cells}, round by round",
                *labelled_lines(
                    {
                        "table": f"{table}, {rounds.height:,} lines",
                        "picture": ", ".join(map(str, list(files)[1:])),
                    }
                ),
            ]
        )


def _check_replication(experiment: Experiment, replication: int) -> None:
    from mc.experiment import MAX_REPLICATIONS

    n = experiment.replications
    if experiment.seeds and replication >= n:
        of_seeds = f"the number of seeds of {experiment.path}"
        fail(f"--replication: must be < {n}, {of_seeds}, got {replication}", 2)
    if replication >= MAX_REPLICATIONS:
        fail(f"--replication: must be < {MAX_REPLICATIONS}, got {replication}", 2)


def _check_table(path: Path) -> None:
    if path.suffix != ".parquet":
        fail(f"--out: must end with .parquet, got {str(path)!r}", 2)
    if not path.parent.is_dir():
        fail(f"--out: must be in a folder that exists, got {str(path)!r}", 2)
