"""How much memory an experiment takes, and how much this machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mc.store.paths import FolderError

RUN_BYTES: Final = 700_000_000
RUN_CELL_BYTES: Final = 10_000
"""Of a run, its tables and what is printed of them: 20,000 cells took 0.87 GB, 60,000 1.21 GB."""

PAGE_BYTES: Final = 350_000_000
PAGE_CELL_BYTES: Final = 15_000
"""Of the page and its figures: 10,000 cells took 0.49 GB, 20,000 0.64 GB, 100,000 1.82 GB."""

_LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
"""Files in which control groups, version 2 and 1, have the limit of a container."""

_GROUPS: Final = Path("/sys/fs/cgroup")


def of_run(n_cells: int) -> int:
    """Bytes that a run of so many cells takes, about."""
    return RUN_BYTES + n_cells * RUN_CELL_BYTES


def of_page(n_cells: int) -> int:
    """Bytes that the page of so many cells takes, about."""
    return PAGE_BYTES + n_cells * PAGE_CELL_BYTES


def of_machine() -> int:
    """Bytes that this process may use: the machine's, or its container's."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_of_container()])


def _of_container() -> Iterator[int]:
    try:
        own = [line.rpartition(":")[2] for line in Path("/proc/self/cgroup").read_text().split()]
    except OSError:
        return  # no Linux
    for group in ("", "memory", *(name.lstrip("/") for name in own)):
        for name in _LIMITS:
            try:
                text = (_GROUPS / group / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield int(text)


def check_memory(where: object, n_cells: int, needed: int, cure: str) -> None:
    """Refuse what this machine has not the memory for.

    Raises
    ------
    FolderError
        With the place, and what can be done.
    """
    there = of_machine()
    if needed > there:
        raise FolderError(
            f"{where}: {n_cells:,} cells need about {needed / 1e9:.1f} GB of memory, of which this "
            f"machine gives {there / 1e9:.1f} GB; {cure}"
        )


def check_run(where: object, n_cells: int) -> None:
    """Refuse a run of too many cells, see `check_memory`."""
    cure = "take fewer, or make parts of the grid experiments of their own"
    check_memory(where, n_cells, of_run(n_cells), cure)


def check_page(where: object, n_cells: int) -> None:
    """Refuse a page of too many cells, see `check_memory`."""
    cure = "the tables are there, and retrystorm show prints them"
    check_memory(where, n_cells, of_page(n_cells), cure)
