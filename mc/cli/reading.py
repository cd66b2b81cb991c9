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
    print_lines,
    progress,
)
from mc.cli.printing import CELLS_SHOWN, print_results
from mc.cli.words import in_words, labelled, size

if TYPE_CHECKING:
    from mc.runner import Verification
    from mc.store import Status

_MOST_DIFFERENCES: Final = 20


def show(
    folder: Folder,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Every cell, not only the first {CELLS_SHOWN}.")
    ] = False,
) -> None:
    """Print the tables of a finished run again."""
    from mc import store

    with faults():
        print_results(store.load(folder), everything=everything)


def status(folder: Folder) -> None:
    """Say how far a run is; it may be at work, or stopped, or finished.

    Nothing is changed, and no file is checked but for what it says of itself: see `verify`.
    """
    from mc import store

    with faults():
        print_lines(_status_lines(store.status(folder)))


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
) -> None:
    """Check that a results folder is what it says.

    Every file is compared with its hash, and rows are made once more, from nothing but what the
    folder says of them, and compared with those in it. Exit code 1 if anything differs.
    """
    try:
        with on_signals(interrupt):
            import_all()
            from mc import runner

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
                print_lines(_verify_lines(found))
    except KeyboardInterrupt:
        fail("stopped before the end: nothing can be said of the folder", INTERRUPTED)
    if not found.ok:
        raise typer.Exit(1)


def _status_lines(status: Status) -> Iterator[str]:
    yield status.manifest["title"]
    share = status.n_done / status.n_rows
    yield from labelled(
        {
            "state": _state(status),
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
        }
    )


def _state(status: Status) -> str:
    if (holder := status.holder) is None:
        if not status.complete:
            return "not finished; the command that began it continues"
        seconds = status.manifest["seconds"]
        return f"finished, in {in_words(seconds)}"
    who = f"process {holder.pid} on {holder.host}"
    if holder.alive is False:
        return f"stopped: {who} is gone; the command that began it continues"
    return f"at work: {who}, since {holder.started}" + ("" if holder.alive else " (or was)")


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
    if "metric" in found.differences.columns:
        made, differing = "counted", "numbers differ"
        n_wrong = found.differences.height
    else:
        made, differing = "made", "differ"
        n_wrong = found.differences.select("cell", "replication").n_unique()
    drawn = "" if found.n_checked == found.n_rows else f", drawn with seed {found.seed}"
    yield from labelled(
        {
            "files": f"{found.n_files:,} as they were written"
            + (f", {len(found.faults):,} faults" if found.faults else ""),
            "rows": f"{found.n_checked:,} of {found.n_rows:,} {made} once more{drawn}: "
            + (f"{n_wrong:,} {differing}" if n_wrong else "all equal"),
            "results": str(found.folder) + ("" if found.complete else " (not finished)"),
        }
    )
