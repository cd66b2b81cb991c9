"""The command verify: whether a results folder is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.report import warn_if_stale
from mc.cli.signals import interruptible
from mc.cli.stderr import progress
from mc.model.digits import counted

if TYPE_CHECKING:
    from mc.runner import Verification

COUNTS: Final = ("ok", "complete", "n_files", "n_rows", "n_checked")

MAX_DIFFERENCES: Final = 20
"""So many are printed; as JSON all of them are."""


def verify(
    folder: options.Folder,
    every: Annotated[
        bool,
        typer.Option("--all", help="Make all rows and tables once more, not some rows."),
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="How long to go on with the random sample.", min=0.0),
    ] = 3.0,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Draws the same sample again.  [default: a fresh sample]", **options.whole(0)
        ),
    ] = None,
    jobs: options.Jobs = None,
    form: options.Format = "table",
) -> None:
    """Check that a results folder is what it says.

    Every file is compared with its hash. Rows are simulated once more, from what the folder says
    of them alone, and compared with those in it; with --all the tables are made again, too. Exit
    code 1 if anything differs.
    """
    with interruptible("stopped before the end: nothing can be said of the folder"):
        from mc import runner, store

        with progress() as show_progress:
            found = runner.verify(
                folder,
                all_rows=every,
                seconds=seconds,
                seed=seed,
                jobs=jobs,
                progress=show_progress,
            )
        print_facts(_facts(found), form)
        if found.complete:
            warn_if_stale(store.load(folder))
    if not found.ok:
        raise typer.Exit(1)


def _facts(found: Verification) -> Facts:
    if "metric" in found.differences.columns:
        made, differing = "counted", "numbers differ"
        n_wrong = found.differences.height
    else:
        made, differing = "made", "differ"
        n_wrong = found.differences.select("cell", "replication").n_unique()
    verdict = f"{n_wrong:,} {differing}" if n_wrong else "all equal"
    if found.n_checked == 0 < found.n_rows and found.seed is not None:
        verdict = "no shard was done in the time"
    sample = "" if found.n_checked == found.n_rows else f", drawn with seed {found.seed}"
    return Facts(
        before=tuple(_fault_lines(found)),
        data={
            **{name: getattr(found, name) for name in COUNTS},
            "n_wrong": n_wrong,
            "n_faults": len(found.faults),
            "seed": found.seed,
            "faults": list(found.faults),
            "differences": found.differences.to_dicts(),
            "results": str(found.folder),
        },
        texts={
            "files": f"{found.n_files:,} as they were written"
            + (f", {counted(len(found.faults), 'fault')}" if found.faults else ""),
            "rows": f"{found.n_checked:,} of {found.n_rows:,} {made} once more{sample}: {verdict}",
            "results": str(found.folder) + ("" if found.complete else " (not finished)"),
        },
    )


def _fault_lines(found: Verification) -> Iterator[str]:
    yield from found.faults
    for line in found.differences.head(MAX_DIFFERENCES).iter_rows(named=True):
        yield _difference_text(line)
    if (n_more := found.differences.height - MAX_DIFFERENCES) > 0:
        yield f"... and {n_more:,} further differences"


def _difference_text(line: dict[str, Any]) -> str:
    stored, recomputed = ("NULL" if line[k] is None else line[k] for k in ("stored", "recomputed"))
    what = (
        f"{line['metric']}: {line['what']}"
        if "metric" in line
        else f"replication {line['replication']}: {line['counter']}"
    )
    return f"{line['file']}: cell {line['cell']}, {what} is {stored}, made once more {recomputed}"
