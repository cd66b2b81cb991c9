"""`status`: how far a run is, read off its folder while it runs or after; nothing is changed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mc.store.files import REJECTED, TABLES, table_file
from mc.store.lock import Holder, holder
from mc.store.paths import FolderError, of_each
from mc.store.results import is_of_run, load
from mc.store.shards import Shard, read_footer, shard_paths


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes
    ----------
    folder : Path
        The results folder.
    manifest : dict
        How the results are made, as far as it is known.
    n_rows, n_done : int
        Rows in all, and those that exist.
    n_shards, n_bytes : int
        Files that hold them, and their size.
    faulty : tuple of Path
        Files among the shards that are not this run's; the next run puts them aside.
    n_rejected : int
        Files that were put aside.
    tables : tuple of str
        Which of the tables beside the rows exist.
    holder : Holder or None
        Who runs in the folder, or did until it was killed.
    seconds_left : float or None
        What the missing rows will take at the pace of the run at work; None without one, or before
        it has saved anything.
    """

    folder: Path
    manifest: dict[str, Any]
    n_rows: int
    n_done: int
    n_shards: int
    n_bytes: int
    faulty: tuple[Path, ...]
    n_rejected: int
    tables: tuple[str, ...]
    holder: Holder | None
    seconds_left: float | None

    @property
    def n_missing(self) -> int:
        """Rows that are still to be simulated."""
        return max(0, self.n_rows - self.n_done)

    @property
    def complete(self) -> bool:
        """Whether the run came to its end, and all that it wrote exists."""
        everything = self.n_missing == 0 and len(self.tables) == len(TABLES)
        return bool(self.manifest["complete"]) and everything and not self.faulty


def status(folder: str | Path) -> Status:
    """Determine how far a run is; it may be at work.

    Only the footers of the shards are read; `mc.verify` checks the content of all files.

    Parameters
    ----------
    folder : path
        A results folder.

    Returns
    -------
    Status

    Raises
    ------
    FolderError
        There is no results folder.

    Examples
    --------
    >>> import mc
    >>> found = mc.status("results/lesson")
    >>> found.complete, found.n_done, found.n_missing
    (True, 210000, 0)
    """
    results = load(folder)
    at_work = holder(results.folder)  # before the rows: a run that ends meanwhile is seen as done
    if at_work is None and not results.complete:
        results = load(folder)  # it may have ended between the two looks
    shards, faulty = [], []
    paths = shard_paths(results.folder)
    for path, shard in zip(paths, of_each(_footer, paths), strict=True):
        if isinstance(shard, FileNotFoundError):
            continue  # put aside or removed since
        if isinstance(shard, Shard) and is_of_run(shard, results.manifest):
            shards.append(shard)
        else:
            faulty.append(path)
    n_rows, n_done = results.manifest["n_rows"], sum(shard.n_rows for shard in shards)
    seconds_left = None
    if at_work is not None and at_work.alive is not False:
        started = datetime.fromisoformat(at_work.started).timestamp()
        written = [(s.changed_ns / 1e9, s.n_rows) for s in shards if s.changed_ns / 1e9 >= started]
        if written:
            last = max(moment for moment, _ in written)
            rate = sum(n for _, n in written) / max(last - started, 1.0)
            seconds_left = max(0.0, (n_rows - n_done) / rate - (time.time() - last))
    return Status(
        folder=results.folder,
        manifest=results.manifest,
        n_rows=n_rows,
        n_done=n_done,
        n_shards=len(shards),
        n_bytes=sum(shard.n_bytes for shard in shards),
        faulty=tuple(faulty),
        n_rejected=len(list((results.folder / REJECTED).glob("*"))),
        tables=tuple(name for name in TABLES if (results.folder / table_file(name)).exists()),
        holder=at_work,
        seconds_left=seconds_left,
    )


def _footer(path: Path) -> Shard | FileNotFoundError | FolderError:
    """What a shard says of itself, or why it does not."""
    try:
        return read_footer(path)
    except (FileNotFoundError, FolderError) as error:
        return error
