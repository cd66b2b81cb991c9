"""The commands run and merge: simulate an experiment, whole or in parts, and print results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from mc.cli import options
from mc.cli.plan import plan
from mc.cli.report import draw_report, warn_if_stale
from mc.cli.show import print_results
from mc.cli.signals import interruptible
from mc.cli.stderr import fail, progress, write_caution, write_message

if TYPE_CHECKING:
    from pathlib import Path

    from mc.store import Results


def run(
    file: options.File,
    out: options.Out = None,
    replications: options.Replications = None,
    seed: options.Seed = None,
    jobs: options.Jobs = None,
    settings: options.Settings = None,
    force: options.Force = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would cost, as `plan` does.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Do only the K-th of N parts of the work, beside processes that do the others, "
            "on this machine or on others that share the folder; then use merge.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Dask scheduler, tcp://host:8786, whose workers make the rows and write them "
            "into the results folder, which all machines must share.",
        ),
    ] = None,
    form: options.Format = "table",
    no_report: options.NoReport = False,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment, or finish a run that was stopped.

    Its scorecard is printed at the end. Every cell of FILE is simulated for all replications; rows,
    summary, comparisons and claims are written to the results folder as Parquet. The same command
    continues a run that was stopped, and does nothing but print if it is finished. At the end the
    page report.html is written. What is printed fits one screen; `show` prints every table.

    With keep = "histograms" in FILE the folder holds, in place of rows, how often each value
    occurs, and all tables are the same. Rows grow with their number, histograms hardly:
    `plan` says how much a folder takes.

    If FILE has a [precision] in place of replications, these grow in stages until the numbers
    are known as precisely as asked; with --shard each call does the current stage.
    """
    part = _part(shard, force)
    if part is not None and dry_run:
        fail("--shard and --dry-run exclude each other: a plan is of the whole run", 2)
    if scheduler is not None and (part is not None or jobs is not None or dry_run):
        fail("--scheduler goes without --jobs, --shard and --dry-run", 2)
    if dry_run:
        plan(file, out, replications, seed, jobs, settings, force, form)
        return
    told = "stopped; what was done is saved: run the same command again to go on"
    with interruptible(told, "scipy.special", quiet=quiet):
        from mc import runner

        if scheduler is not None:
            import logging

            # Dask logs every lost connection at length; the runner reports what matters of it
            logging.disable(logging.ERROR)
        try:
            with progress(quiet) as show:
                results = runner.run(
                    file,
                    out,
                    replications=replications,
                    seed=seed,
                    jobs=jobs,
                    overrides=options.name_values(settings),
                    force=force,
                    shard=part,
                    scheduler=scheduler,
                    progress=show,
                    say=write_caution if quiet else write_message,
                )
        except runner.ClusterError as error:
            fail(str(error), 2)
        if part is None:
            _print_and_draw(results, file, form, no_report, quiet)


def merge(
    file: options.File,
    out: options.Out = None,
    replications: options.Replications = None,
    seed: options.Seed = None,
    settings: options.Settings = None,
    form: options.Format = "table",
    no_report: options.NoReport = False,
    quiet: options.Quiet = False,
) -> None:
    """Finish a run that was done in parts, and print its results.

    The parts are those of run --shard. The tables are made from the rows that are there. If some
    are missing, merge says which and changes nothing: it simulates nothing itself. The options are
    those that the parts were given.
    """
    with interruptible("stopped; run the same command again", "scipy.special", quiet=quiet):
        from mc import runner

        results = runner.merge(
            file,
            out,
            replications=replications,
            seed=seed,
            overrides=options.name_values(settings),
            say=write_caution if quiet else write_message,
        )
        _print_and_draw(results, file, form, no_report, quiet)


def _print_and_draw(results: Results, file: Path, form: str, no_report: bool, quiet: bool) -> None:
    if form == "table":
        from mc.cli.screen import print_screen

        print_screen(results, file)
    else:
        print_results(results, form)
    if no_report:
        warn_if_stale(results)
    else:
        draw_report(results, quiet)


def _part(shard: str | None, force: bool) -> tuple[int, int] | None:
    if shard is None:
        return None
    k, slash, n = shard.partition("/")
    are_numbers = slash and re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", shard)
    if not are_numbers or not 1 <= int(k) <= int(n):
        shown = shard if len(shard) < 50 else f"{shard[:40]}..."
        fail(f"--shard: must be K/N with whole numbers 1 <= K <= N < 10^9, got {shown!r}", 2)
    if force:
        fail("--shard and --force exclude each other: it would remove what the others make", 2)
    return int(k), int(n)
