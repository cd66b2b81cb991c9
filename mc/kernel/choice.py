"""Which loop each cell of a block goes through. Rows do not depend on it, only speed.

Cells that differ in nothing but attempts and budget wait alike and share a wheel, see `masks`: the
more they are, the less each of them costs. A cell that waits like no other has a wheel of its own:
with the table of waits, if all calls that are served succeed (`single`), and without (`fast`)
otherwise, because retries are rare then and the table of no use. What the table has no room for
goes through `fast`, too; so does a single cell with both a deadline and a budget.

Measured, microseconds for a replication of n cells that wait alike, of the lesson's traffic with 27
attempts or fewer, draws included::

    scenario      n   masks   one by one
    outage        1    11.1    7.3 single
                  2    11.7    9.3
                  3    11.9   11.5
                  4    11.7   15.0
    degradation   1    44.3   29.9 single
                  2    44.4   42.8
                  3    48.2   52.9
    healthy       1    14.2   11.3 fast
                  2    11.9   14.5
                  3     9.1   10.8
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.layout import (
    C_CHAIN,
    C_LAYERS,
    C_LIMIT_MASK,
    C_LIMITS,
    C_MAX_ATTEMPTS,
    C_PROFILE,
    C_THRESHOLD,
    C_WAITS,
    NEVER,
    P_CAN_FAIL,
    CellTables,
)

WIDTHS: Final = (16, 32, 64)
"""Lanes of a group. Each number is code of its own, compiled when it is first needed."""

LEAST: Final = {False: 3, True: 2}
"""From how many cells on a wheel is shared, by whether a call that is served can fail."""

FEW: Final = 2
"""So few cells that wait alone go along with groups: a loop of their own draws all anew."""

LONGEST_WAIT: Final = 4095
"""Rounds: with longer waits a table's wheel, on which retries that are due after the end lie, too,
takes more time to empty than it saves. The table itself ends at 65,535."""

MOST_PLACES: Final = 1 << 25
"""An entry has 25 bits for a place in the table of waits."""

LEAST_ROWS: Final = 4

MOST_WAITED: Final = 2**31
"""A lane has 32 bits for the rounds that all requests of a replication have waited."""

MOST_LIMIT_BYTES: Final = 2**26
"""Most memory for the budgets of groups, lane by lane."""


class Choice(NamedTuple):
    """Which loop each cell goes through.

    Attributes
    ----------
    groups : list of list of int
        The cells of each group, those with the same kind of waits one after the other.
    width : int
        Lanes of the groups; 0 without any.
    single, fast : list of int
        The cells of the other loops.
    """

    groups: list[list[int]]
    width: int
    single: list[int]
    fast: list[int]


def choose(tables: CellTables, cells: list[int]) -> Choice:
    """Choose the loop of each of some cells."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for c, key in zip(cells, wheel_keys(tables, cells), strict=True):
        alike.setdefault(key, []).append(c)
    fits = table_fits(tables)
    fitting, shared, alone, fast = [], [], [], []
    for (kind, *_), part in sorted(alike.items()):
        if not fits[kind]:
            fast += part
            continue
        fitting.append(part)
        if len(part) >= LEAST[_can_fail(tables, part[0])]:
            shared.append(part)
        else:
            alone += part
    if shared and len(alone) <= FEW:
        shared, alone = fitting, []
    width = next((n for n in WIDTHS if all(len(part) <= n for part in shared)), WIDTHS[-1])
    groups = [part[at : at + width] for part in shared for at in range(0, len(part), width)]
    if not lanes_fit(tables, groups, width):
        groups, alone = [], [c for part in fitting for c in part]
    single = [c for c in alone if not _can_fail(tables, c) and not _has_both(tables, c)]
    fast += [c for c in alone if c not in single]
    return Choice(groups, width if groups else 0, single, fast)


def _can_fail(tables: CellTables, c: int) -> bool:
    """Whether a call that is served can fail."""
    return bool(tables.profiles[tables.scalars[c, C_PROFILE], P_CAN_FAIL])


def _has_both(tables: CellTables, c: int) -> bool:
    """Whether a cell has a deadline and a budget: `single` asks the wrong one first."""
    return bool(tables.deadlines[c, 0] < NEVER and tables.scalars[c, C_LIMIT_MASK])


def wheel_keys(tables: CellTables, cells: list[int]) -> list[tuple[int, ...]]:
    """What some cells have in common with those that share their wheel; first the kind of waits."""
    names = [C_WAITS, C_PROFILE, C_THRESHOLD, C_CHAIN, C_LAYERS]
    waits, profiles, thresholds, chains, n_layers = tables.scalars[cells][:, names].T
    # how often a single layer tries is no matter
    chains = np.where(n_layers > 1, chains, -1)
    columns = waits, profiles, thresholds, chains, n_layers, tables.deadlines[cells, 0]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def longest_wait(tables: CellTables, cells: Sequence[int]) -> int:
    """Most rounds between two attempts of some cells."""
    kinds = list(set(tables.scalars[cells, C_WAITS].tolist()))
    return 1 + ((int(tables.widths[kinds].max()) + max(0, _most(tables.offsets[kinds]))) >> 32)


def _most(offsets: NDArray[np.uint64]) -> int:
    return int(offsets.view(np.int64).max())


def table_fits(tables: CellTables) -> list[bool]:
    """For each kind of waits, whether a table of waits has room for it and for the requests."""
    fewest_places = (LEAST_ROWS + 1) * (tables.n_requests + 1)
    widths, offsets = tables.widths.max(axis=1), tables.offsets.view(np.int64).max(axis=1)
    return [
        1 + ((width + max(0, offset)) >> 32) <= LONGEST_WAIT and fewest_places <= MOST_PLACES
        for width, offset in zip(widths.tolist(), offsets.tolist(), strict=True)
    ]


def lanes_fit(tables: CellTables, groups: list[list[int]], width: int) -> bool:
    """Whether a lane has bits enough for a sum of waits, and memory for the budgets."""
    if not groups:
        return True
    cells = [c for part in groups for c in part]
    most_attempts = int(tables.scalars[cells, C_MAX_ATTEMPTS].max())
    most_waited = min(tables.n_rounds, most_attempts * longest_wait(tables, cells))
    budgets = {
        tuple(tables.scalars[part, C_LIMITS].tolist())
        for part in groups
        if tables.scalars[part, C_LIMIT_MASK].any()
    }
    n_bytes = 4 * len(budgets) * width * int(tables.limits.shape[1])
    return tables.n_requests * most_waited < MOST_WAITED and n_bytes <= MOST_LIMIT_BYTES


def wheel_size(tables: CellTables, cells: Sequence[int]) -> int:
    """Slots of a wheel on which retries that are due after the end lie, too: a power of two."""
    return 1 << longest_wait(tables, cells).bit_length()
