"""Commands that read a results folder: show, status, verify."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mc.cli.common import (
    INTERRUPTED,
    Folder,
    Jobs,
    fail,
    faults,
    import_all,
    interrupt,
    on_signals,
    progress,
)
from mc.cli.formats import Figures, Format, TableName, print_figures
from mc.cli.printing import CELLS_SHOWN, print_results
from mc.cli.reporting import tell_if_stale
from mc.cli.words import in_words, size

if TYPE_CHECKING:
    from mc.runner import Verification
    from mc.store import Status

_MOST_DIFFERENCES: Final = 20


def show(
    folder: Folder,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Every cell, not only the first {CELLS_SHOWN}.")
    ] = False,
    adjusted: Annotated[
        bool,
        typer.Option(
            "--adjusted", help="Means adjusted for the traffic, too, where that narrows them down."
        ),
    ] = False,
    form: Format = "table",
    table: TableName = None,
) -> None:
    """Print the tables of a finished run again.

    As json it is everything in the tables of FOLDER, as csv the summary; --table names another.
    """
    if table is not None and form == "table":
        fail("--table: needs --format json, csv or markdown: it has too many columns to look at", 2)
    from mc import store

    with faults():
        print_results(
            store.load(folder), form, everything=everything, adjusted=adjusted, table=table
        )


def status(folder: Folder, form: Format = "table") -> None:
    """Say how far a run is; it may be at work, or stopped, or finished.

    Nothing is changed, and no file is checked but for what it says of itself: see `verify`.
    """
    from mc import store

    with faults():
        found = store.status(folder)
        print_figures(_status_figures(found), form)
        if found.complete:
            tell_if_stale(store.load(folder))


def verify(
    folder: Folder,
    every: Annotated[
        bool, typer.Option("--all", help="Make every row once more, not a random sample.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="How long to go on with the random sample.", min=0.0)
    ] = 3.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Draws the same sample again.  [default: a fresh sample]", min=0),
    ] = None,
    jobs: Jobs = None,
    form: Format = "table",
) -> None:
    """Check that a results folder is what it says.

    Every file is compared with its hash, and rows are made once more, from nothing but what the
    folder says of them, and compared with those in it. Exit code 1 if anything differs.
    """
    try:
        with on_signals(interrupt):
            import_all()
            from mc import runner, store

            with faults():
                with progress() as told:
                    found = runner.verify(
                        folder,
                        all_rows=every,
                        seconds=seconds,
                        seed=seed,
                        jobs=jobs,
                        progress=told,
                    )
                print_figures(_verify_figures(found), form)
                if found.complete:
                    tell_if_stale(store.load(folder))
    except KeyboardInterrupt:
        fail("stopped before the end: nothing can be said of the folder", INTERRUPTED)
    if not found.ok:
        raise typer.Exit(1)


def _status_figures(status: Status) -> Figures:
    share = status.n_done / status.n_rows
    state, more = _state(status)
    return Figures(
        title=status.manifest["title"],
        data={
            "title": status.manifest["title"],
            "state": state,
            "n_rows": status.n_rows,
            "n_done": status.n_done,
            "n_missing": status.n_missing,
            "n_shards": status.n_shards,
            "n_bytes": status.n_bytes,
            "n_rejected": status.n_rejected,
            "faulty": [path.name for path in status.faulty],
            "tables": list(status.tables),
            "seconds_left": status.seconds_left,
            "results": str(status.folder),
        },
        labels={
            "state": f"{state}{more}",
            "rows": f"{status.n_done:,} of {status.n_rows:,} "
            f"({math.floor(1000 * share) / 10:.1f} %), {status.n_missing:,} are missing",
            "shards": f"{status.n_shards:,}, {size(status.n_bytes)}",
            "put aside": f"{status.n_rejected:,} files (in rejected/)" if status.n_rejected else "",
            "not of it": ", ".join(path.name for path in status.faulty),
            "tables": ", ".join(status.tables) or "none yet",
            "time left": ""
            if status.seconds_left is None
            else f"about {in_words(status.seconds_left)}",
            "results": str(status.folder),
        },
    )


def _state(status: Status) -> tuple[str, str]:
    """The state in a word or two, and what more is known of it."""
    continues = "the command that began it continues"
    if (holder := status.holder) is None:
        if not status.complete:
            return "not finished", f"; {continues}"
        return "finished", f", in {in_words(status.manifest['seconds'])}"
    who = f"process {holder.pid} on {holder.host}"
    if holder.alive is False:
        return "stopped", f": {who} is gone; {continues}"
    return "at work", f": {who}, since {holder.started}" + ("" if holder.alive else " (or was)")


def _verify_figures(found: Verification) -> Figures:
    if "metric" in found.differences.columns:
        made, differing = "counted", "numbers differ"
        n_wrong = found.differences.height
    else:
        made, differing = "made", "differ"
        n_wrong = found.differences.select("cell", "replication").n_unique()
    verdict = f"{n_wrong:,} {differing}" if n_wrong else "all equal"
    if found.n_checked == 0 < found.n_rows and found.seed is not None:
        verdict = "no shard was done in the time"
    drawn = "" if found.n_checked == found.n_rows else f", drawn with seed {found.seed}"
    return Figures(
        before=tuple(_verify_lines(found)),
        data={
            "ok": found.ok,
            "complete": found.complete,
            "n_files": found.n_files,
            "n_rows": found.n_rows,
            "n_checked": found.n_checked,
            "n_wrong": n_wrong,
            "n_faults": len(found.faults),
            "seed": found.seed,
            "faults": list(found.faults),
            "differences": found.differences.to_dicts(),
            "results": str(found.folder),
        },
        labels={
            "files": f"{found.n_files:,} as they were written"
            + (f", {len(found.faults):,} faults" if found.faults else ""),
            "rows": f"{found.n_checked:,} of {found.n_rows:,} {made} once more{drawn}: {verdict}",
            "results": str(found.folder) + ("" if found.complete else " (not finished)"),
        },
    )


def _verify_lines(found: Verification) -> Iterator[str]:
    yield from found.faults
    for line in found.differences.head(_MOST_DIFFERENCES).iter_rows(named=True):
        stored, recomputed = (
            "NULL" if line[name] is None else line[name] for name in ("stored", "recomputed")
        )
        what = (
            f"{line['metric']}: {line['what']}"
            if "metric" in line
            else f"replication {line['replication']}: {line['counter']}"
        )
        yield (
            f"{line['file']}: cell {line['cell']}, {what} is {stored}, made once more {recomputed}"
        )
    if found.differences.height > _MOST_DIFFERENCES:
        yield f"... and {found.differences.height - _MOST_DIFFERENCES:,} further differences"
