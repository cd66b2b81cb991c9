"""The command status: how far a run is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.readable import rough_duration, size
from mc.cli.report import warn_if_stale
from mc.cli.stderr import errors_as_messages
from mc.model.digits import counted

if TYPE_CHECKING:
    from mc.store import Status

COUNTS: Final = ("n_rows", "n_done", "n_missing", "n_shards", "n_bytes", "n_rejected")


def status(folder: options.Folder, form: options.Format = "table") -> None:
    """Say how far a run is: at work, stopped, or finished.

    Nothing is changed. Of each file only what it says of itself is read: `verify` checks the rest.
    """
    from mc import store

    with errors_as_messages():
        found = store.status(folder)
        print_facts(_facts(found), form)
        if found.complete:
            warn_if_stale(store.load(folder))


def _facts(status: Status) -> Facts:
    share = status.n_done / status.n_rows
    state, more = _state(status)
    # cells that are precise enough stop before they have all of these
    is_open = status.manifest["experiment"]["precision"] and not status.complete
    at_most = "at most " if is_open else ""
    return Facts(
        title=status.manifest["title"],
        data={
            "title": status.manifest["title"],
            "state": state,
            **{name: getattr(status, name) for name in COUNTS},
            "faulty": [path.name for path in status.faulty],
            "tables": list(status.tables),
            "seconds_left": status.seconds_left,
            "results": str(status.folder),
        },
        texts={
            "state": f"{state}{more}",
            "rows": f"{status.n_done:,} of {at_most}{status.n_rows:,} "
            f"({math.floor(1000 * share) / 10:.1f} %), {status.n_missing:,} are missing",
            "shards": f"{status.n_shards:,}, {size(status.n_bytes)}",
            "put aside": f"{counted(status.n_rejected, 'file')} (in rejected/)"
            if status.n_rejected
            else "",
            "not of it": ", ".join(path.name for path in status.faulty),
            "tables": ", ".join(status.tables) or "none yet",
            "time left": ""
            if status.seconds_left is None
            else f"{at_most}about {rough_duration(status.seconds_left)}",
            "results": str(status.folder),
        },
    )


def _state(status: Status) -> tuple[str, str]:
    """Return the state in a word or two, and what else is known of it."""
    again = "; run the command that began it again to go on"
    if (holder := status.holder) is None:
        if not status.complete:
            return "stopped", again
        return "finished", f"; its last session took {rough_duration(status.manifest['seconds'])}"
    process = str(holder)
    if holder.alive is False:
        return "stopped", f": {process} is gone{again}"
    return "at work", f": {process}, since {holder.started}" + ("" if holder.alive else " (or was)")
