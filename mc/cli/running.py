"""Commands that run an experiment, or say what it would cost: run, merge, plan."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli.common import (
    INTERRUPTED,
    File,
    Force,
    Jobs,
    Out,
    Replications,
    Seed,
    Settings,
    fail,
    faults,
    import_all,
    interrupt,
    on_signals,
    parse_overrides,
    progress,
    tell,
)
from mc.cli.formats import Figures, Format, print_figures
from mc.cli.printing import print_results
from mc.cli.reporting import NoReport, draw_after, tell_if_stale
from mc.cli.words import in_words, size

if TYPE_CHECKING:
    from mc.runner import Plan


def run(
    file: File,
    out: Out = None,
    replications: Replications = None,
    seed: Seed = None,
    jobs: Jobs = None,
    settings: Settings = None,
    force: Force = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would cost, as `plan` does.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Do only the K-th of N parts of the work, beside processes that do the others, "
            "on this machine or on others that share the folder; then use merge.",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Dask scheduler, tcp://host:8786, whose workers make the rows and write them "
            "into the results folder, which all machines must share.",
            show_default=False,
        ),
    ] = None,
    form: Format = "table",
    no_report: NoReport = False,
) -> None:
    """Run an experiment, or finish a run that was stopped, and print its results.

    Every cell of FILE is simulated for all replications; rows, summary, comparisons and claims
    are written to the results folder as Parquet. The same command continues a run that was
    stopped, and does nothing but print if it is finished. At the end report.html is written, with
    figures (see `report`).

    With keep = "histograms" in FILE the folder holds, in place of rows, how often each value
    occurs: far smaller, and all tables are the same.

    If FILE has a [precision] in place of replications, these grow in stages until the numbers
    are known as precisely as asked; with --shard each call does the current stage.
    """
    work = _plan_and_print if dry_run else partial(_run_and_print, no_report=no_report)
    try:
        with on_signals(interrupt):
            import_all()
            part = _part(shard, force)
            if part is not None and dry_run:
                fail("--shard and --dry-run exclude each other: a plan is of the whole run", 2)
            options: dict[str, Any] = {} if part is None else {"shard": part}
            if scheduler is not None:
                if part is not None or jobs is not None or dry_run:
                    fail("--scheduler goes without --jobs, --shard and --dry-run", 2)
                # Dask tells at length of each connection that is lost; what matters of it we say
                logging.disable(logging.ERROR)
                options["scheduler"] = scheduler
            work(
                file,
                out,
                form,
                replications=replications,
                seed=seed,
                jobs=jobs,
                overrides=parse_overrides(settings or []),
                force=force,
                **options,
            )
    except KeyboardInterrupt:
        fail("stopped; what was done is saved: the same command continues", INTERRUPTED)


def _run_and_print(
    file: Path, out: str | None, form: str, *, no_report: bool, **options: Any
) -> None:
    from mc import runner

    with faults():
        try:
            with progress() as told:
                results = runner.run(file, out, progress=told, say=tell, **options)
        except runner.ClusterError as error:
            fail(str(error), 2)
        if "shard" not in options:
            print_results(results, form)
            if no_report:
                tell_if_stale(results)
            else:
                draw_after(results)


def _part(text: str | None, force: bool) -> tuple[int, int] | None:
    """Read K/N."""
    if text is None:
        return None
    k, slash, n = text.partition("/")
    if not slash or not (k.isdecimal() and n.isdecimal()) or not 1 <= int(k) <= int(n):
        fail(f"--shard: must be K/N with whole numbers 1 <= K <= N, got {text!r}", 2)
    if force:
        fail("--shard and --force exclude each other: it would remove what the others make", 2)
    return int(k), int(n)


def merge(
    file: File,
    out: Out = None,
    replications: Replications = None,
    seed: Seed = None,
    settings: Settings = None,
    form: Format = "table",
    no_report: NoReport = False,
) -> None:
    """Finish a run that was done in parts, by run --shard, and print its results.

    The tables are made from the rows that are there. If some are missing, merge says which and
    changes nothing: it simulates nothing itself. The options are those that the parts were given.
    """
    try:
        with on_signals(interrupt):
            import_all()
            from mc import runner

            with faults():
                results = runner.merge(
                    file,
                    out,
                    replications=replications,
                    seed=seed,
                    overrides=parse_overrides(settings or []),
                    say=tell,
                )
                print_results(results, form)
                if no_report:
                    tell_if_stale(results)
                else:
                    draw_after(results)
    except KeyboardInterrupt:
        fail("stopped; the same command starts again", INTERRUPTED)


def plan(
    file: File,
    out: Out = None,
    replications: Replications = None,
    seed: Seed = None,
    jobs: Jobs = None,
    settings: Settings = None,
    force: Force = False,
    form: Format = "table",
) -> None:
    """Say what a run would cost: rows, files, bytes, time. Nothing is written.

    The options are those of `run`. A little of the run is done to see how long it takes on this
    machine; what the results folder has already is not counted again.
    """
    run(file, out, replications, seed, jobs, settings, force, dry_run=True, form=form)


def _plan_and_print(file: Path, out: str | None, form: str, **options: Any) -> None:
    from mc import runner

    with faults():
        print_figures(_plan_figures(runner.plan(file, out, **options)), form)


def _plan_figures(plan: Plan) -> Figures:
    return Figures(
        title=plan.title,
        data={
            **{name: value for name, value in vars(plan).items() if name != "folder"},
            "seconds": plan.seconds,
            "results": str(plan.folder),
        },
        labels={
            "cells": f"{plan.n_cells:,}",
            "replications": f"{plan.most}{plan.replications:,} of each cell",
            "rows": f"{plan.most}{plan.n_rows:,}"
            + (f", of which {plan.n_done:,} are there" if plan.n_done else ""),
            "shards": f"{plan.n_shards:,}",
            "on disk": f"about {size(plan.n_bytes)}"
            + (f", of which {size(plan.n_bytes_there)} are there" if plan.n_bytes_there else ""),
            "time": "none: it is finished"
            if plan.finished
            else f"about {in_words(plan.seconds)} on {_threads(plan)}; "
            f"{in_words(plan.core_seconds + plan.table_seconds)} on one core",
            "results": str(plan.folder),
        },
        after=("Nothing was written.",),
    )


def _threads(plan: Plan) -> str:
    threads = f"{plan.jobs} thread{'s' if plan.jobs > 1 else ''}"
    return threads if plan.jobs == plan.n_cores else f"{threads} and {plan.n_cores} cores"
