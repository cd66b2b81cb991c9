"""The command plan: what a run would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.readable import rough_duration, size
from mc.cli.signals import interruptible
from mc.cli.stderr import write_message

if TYPE_CHECKING:
    from mc.runner import Plan


def plan(
    file: options.File,
    out: options.Out = None,
    replications: options.Replications = None,
    seed: options.Seed = None,
    jobs: options.Jobs = None,
    settings: options.Settings = None,
    force: options.Force = False,
    form: options.Format = "table",
) -> None:
    """Say what a run would cost: rows, files, bytes, time. Nothing is written.

    The options are those of `run`. A little of the run is done to see how long it takes on this
    machine; what the results folder has already is not counted again.
    """
    with interruptible("stopped; run the same command again"):
        from mc import runner

        cost = runner.plan(
            file,
            out,
            replications=replications,
            seed=seed,
            jobs=jobs,
            overrides=options.name_values(settings),
            force=force,
            say=write_message,
        )
        print_facts(_facts(cost), form)


def _facts(plan: Plan) -> Facts:
    return Facts(
        title=plan.title,
        data={
            **{name: value for name, value in vars(plan).items() if name != "folder"},
            "seconds": plan.seconds,
            "results": str(plan.folder),
        },
        texts={
            "cells": f"{plan.n_cells:,}",
            "replications": f"{plan.most}{plan.replications:,} of each cell",
            "rows": f"{plan.most}{plan.n_rows:,}"
            + (f", of which {plan.n_done:,} are there" if plan.n_done else ""),
            "shards": f"{plan.n_shards:,}",
            "on disk": f"about {size(plan.n_bytes)}"
            + (f", of which {size(plan.n_bytes_there)} are there" if plan.n_bytes_there else "")
            + "; the page and its figures not counted",
            "memory": f"about {size(plan.memory_bytes)}, and {size(plan.page_memory_bytes)} for "
            "the page",
            "time": _time_text(plan),
            "on one core": _parts_text(plan),
            "results": str(plan.folder),
        },
        after=("Nothing was written.",),
    )


def _time_text(plan: Plan) -> str:
    if plan.finished:
        return "none: it is finished"
    threads = f"{plan.jobs} thread{'s' if plan.jobs > 1 else ''}"
    if plan.jobs != plan.n_cores:
        threads += f" and {plan.n_cores} cores"
    return f"{plan.most}about {rough_duration(plan.seconds)} on {threads}"


def _parts_text(plan: Plan) -> str:
    """How long each part takes on one core."""
    if plan.finished:
        return ""
    rows, tables, page = map(
        rough_duration, (plan.core_seconds, plan.table_seconds, plan.page_seconds)
    )
    return f"rows {rows}, tables {tables}, page {page}"
