"""The tables the kernel reads, made of the parameters of cells."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from mc.model.cell import INT32_MAX, Cell, Generator

if TYPE_CHECKING:  # numpy takes a tenth of a second, which `--help` does not have
    import numpy as np
    from numpy.typing import NDArray

    from mc.kernel import CellTables

_N_RISING: Final = 1106
"""Backoff ceilings that can differ: the smallest double, 2**-1074, doubled 1105 times is 2**31,
which no cap exceeds."""


def traffic_key(cell: Cell, generator: Generator) -> tuple[Any, ...]:
    """What two cells must have in common to stand in one block of the kernel."""
    shared = (cell.rounds, cell.rate_per_round)
    if generator == "philox":
        return shared
    return (*shared, cell.failure_rate, cell.fault_rounds > 0)


def tables(cells: Sequence[Cell], generator: Generator) -> CellTables:
    """Make the kernel's tables of cells with the same `traffic_key`.

    Parameters
    ----------
    cells : sequence of Cell
        C cells.
    generator : {"philox", "lesson"}
        `philox` decides on integers (exact decimal budgets, ceilings in 2**-32 rounds), `lesson`
        on doubles, as its program does.

    Returns
    -------
    CellTables
    """
    import numpy as np

    from mc.kernel import CellTables

    exact = generator == "philox"
    n_requests = _room_for_requests(cells[0])
    n_waits = max(max(cell.max_attempts for cell in cells) - 1, 1)

    profile_rows: dict[tuple[Any, ...], int] = {}
    wait_rows: dict[tuple[float, float], int] = {}
    limit_rows: dict[float | None, int] = {}
    scalars = np.array(
        [
            (
                profile_rows.setdefault(_profile(cell), len(profile_rows)),
                wait_rows.setdefault((cell.backoff_base, cell.backoff_cap), len(wait_rows)),
                cell.max_attempts,
                limit_rows.setdefault(cell.budget, len(limit_rows)),
                0 if cell.budget is None else -1,
                cell.threshold,
            )
            for cell in cells
        ],
        np.int64,
    )
    profiles, capacities, failures = _by_round(list(profile_rows), cells[0].rounds, exact=exact)
    widths = np.array([_ceilings(*wait, n_waits, exact=exact) for wait in wait_rows])
    limits = [_retry_limits(budget, n_requests + 1, exact=exact) for budget in limit_rows]
    longest = float(widths.max()) / (2**32 if exact else 1)
    rate = cells[0].rate_per_round
    thresholds, guide = arrival_thresholds(rate if exact else 0.0)
    return CellTables(
        n_rounds=cells[0].rounds,
        thresholds=thresholds,
        guide=guide,
        exp_rate=math.exp(-rate),
        service_drawn=cells[0].fault_rounds == 0,
        scalars=scalars,
        profiles=profiles,
        capacities=capacities,
        failures=failures,
        offsets=np.zeros_like(widths),
        widths=widths,
        limits=np.array(limits, np.int32),
        n_requests=n_requests,
        ahead=_rounds_drawn_ahead(cells),
        wheel_size=1 << min(max(math.ceil(longest), 1), cells[0].rounds).bit_length(),
    )


def _profile(cell: Cell) -> tuple[Any, ...]:
    """What a cell's tables by round are made of."""
    return (
        *(cell.capacity, cell.fault_capacity, cell.fault_start, cell.fault_rounds),
        cell.failure_rate,
    )


def _by_round(
    profiles: Sequence[tuple[Any, ...]], n_rounds: int, *, exact: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """The tables `profiles`, `capacities` and `failures`."""
    import numpy as np

    shape = len(profiles), n_rounds
    windows = np.empty((len(profiles), 3), np.int64)
    capacities = np.empty(shape, np.int32)
    failures = np.empty(shape, np.uint64 if exact else np.float64)
    for p, (capacity, fault_capacity, fault_start, fault_rounds, failure_rate) in enumerate(
        profiles
    ):
        start = min(fault_start, n_rounds)
        end = min(fault_start + fault_rounds, n_rounds)
        windows[p] = start, end, failure_rate > 0
        capacities[p] = capacity
        capacities[p, start:end] = fault_capacity
        failures[p] = round(failure_rate * 2**32) if exact else failure_rate
    return windows, capacities, failures


def _ceilings(base: float, cap: float, n: int, *, exact: bool) -> NDArray[Any]:
    """Backoff ceilings after attempts 0 .. n-1."""
    import numpy as np

    cell = Cell(backoff_base=base, backoff_cap=cap)
    rising = [cell.ceiling(attempt) for attempt in range(min(n, _N_RISING))]
    rising += rising[-1:] * (n - len(rising))
    if not exact:
        return np.array(rising)
    return np.array([round(math.ldexp(ceiling, 32)) for ceiling in rising], np.uint64)


def _rounds_drawn_ahead(cells: Sequence[Cell]) -> tuple[int, int]:
    """The fault windows in which less is served than arrives, taken together; (0, 0) if none.

    Only speed depends on it. More requests than the kernel remembers are not worth it.
    """
    windows = [
        (min(cell.fault_start, cell.rounds), min(cell.fault_start + cell.fault_rounds, cell.rounds))
        for cell in cells
        if cell.max_attempts > 1 and cell.fault_capacity < 2 * cell.rate_per_round
    ]
    windows = [(start, end) for start, end in windows if start < end]
    if not windows:
        return 0, 0
    start, end = min(start for start, _ in windows), max(end for _, end in windows)
    return (start, end) if (end - start) * cells[0].rate_per_round < 4096 else (0, 0)


def _room_for_requests(cell: Cell) -> int:
    mean = cell.rate_per_round * cell.rounds
    return math.ceil(mean + 12 * math.sqrt(mean) + 64)


def table_bytes(cell: Cell) -> int:
    """Most bytes that one more cell adds to the tables of a block, and to what is made of them."""
    return 16 * cell.rounds + 4 * _room_for_requests(cell) + 16 * cell.max_attempts


def _retry_limits(budget: float | None, n: int, *, exact: bool) -> NDArray[np.int64]:
    """Most retries allowed beside 0 .. n-1 primary calls, capped at what a counter can hold."""
    import numpy as np

    if budget is None:
        return np.full(n, INT32_MAX)
    primary = np.arange(n, dtype=np.int64)
    if not exact:
        # Lesson: the product is a double, which for some budgets (0.29, 0.35, 0.7) falls short
        return np.array(np.floor(budget * primary).clip(max=INT32_MAX), np.int64)
    ratio = Fraction(repr(budget))
    if ratio.numerator * n < 2**63 and ratio.denominator < 2**63:
        return np.array((ratio.numerator * primary // ratio.denominator).clip(max=INT32_MAX))
    return np.array([min(ratio.numerator * p // ratio.denominator, INT32_MAX) for p in range(n)])


@functools.lru_cache(maxsize=64)
def arrival_thresholds(rate: float) -> tuple[NDArray[np.uint64], NDArray[np.uint16]]:
    """Tables that turn a 64-bit uniform into Poisson arrivals by inversion.

    Parameters
    ----------
    rate : float
        Mean arrivals per round.

    Returns
    -------
    thresholds : ndarray of uint64, shape (K,)
        ``floor(2**64 * P(N <= k))`` for k = 0, 1, ..., up to the first of 2**64 - 1; the count
        is the number of thresholds not above the uniform. Empty for a rate of 0.
    guide : ndarray of uint16, shape (4096,)
        The count to start from, by the 12 high bits of the uniform.

    Notes
    -----
    Devroye 1986, "Non-Uniform Random Variate Generation", sections III.2.1 (inversion by
    sequential search) and III.2.4 (guide tables). Made in decimal arithmetic, since the last bit
    of a double's exp differs between platforms.
    """
    import numpy as np

    if rate == 0.0:
        return np.empty(0, np.uint64), np.zeros(4096, np.uint16)
    thresholds: list[int] = []
    top = 2**64 - 1
    with decimal.localcontext(decimal.Context(prec=80, Emax=10**6, Emin=-(10**6))):
        mean = Decimal(rate)
        term = (-mean).exp()
        total = term
        while not thresholds or thresholds[-1] < top:
            thresholds.append(min(int(total * 2**64), top))
            term = term * mean / len(thresholds)
            total += term
    table = np.array(thresholds, np.uint64)
    starts = np.arange(4096, dtype=np.uint64) << np.uint64(52)
    return table, np.searchsorted(table, starts, side="right").astype(np.uint16)
