"""The tables the kernel reads, made of the parameters of cells."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mc.model import waits
from mc.model.cell import Cell, Generator
from mc.model.faults import Fault
from mc.model.guard_tables import (
    breaker_kind,
    breaker_row,
    budget_kind,
    budget_rows,
    outermost_seen,
)
from mc.model.parameters import INT32_MAX
from mc.model.waits import TICKS, Layer

if TYPE_CHECKING:  # numpy takes a tenth of a second, which `--help` does not have
    import numpy as np
    from numpy.typing import NDArray

    from mc.kernel import CellTables, ChainKind


def traffic_key(cell: Cell, generator: Generator) -> tuple[Any, ...]:
    """What two cells must have in common to stand in one block of the kernel."""
    shared = (cell.rounds, cell.rate_per_round)
    if generator == "philox":
        return shared
    return (*shared, cell.failure_rate, cell.fault_rounds > 0)


@functools.lru_cache(maxsize=2**17)  # asked for when a run is planned, and again for each task
def wheel_key(cell: Cell) -> tuple[Any, ...]:
    """What two cells of a block must have in common to share a wheel, see `kernel.masks`."""
    n_layers = len(cell.layers)
    # how often a single layer tries is no matter
    tries = _tries_of(cell) if n_layers > 1 else None
    kind = tuple(chain_kind(cell))
    waits, deadline = _waits_key(cell), cell.layers[0].deadline
    return (kind, _profile(cell), cell.threshold, waits, tries, deadline)


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

    from mc import kernel

    exact = generator == "philox"
    n_requests = _room_for_requests(cells[0])
    n_waits = max(max(cell.max_attempts for cell in cells) - 1, 1)
    n_layers = max(len(cell.layers) for cell in cells)

    profile_rows: dict[tuple[Any, ...], int] = {}
    wait_rows: dict[tuple[Layer, ...], int] = {}
    limit_rows: dict[float | None, int] = {}
    chain_rows: dict[tuple[int, ...], int] = {}
    second_rows: dict[float, int] = {}
    scalars = np.array(
        [
            (
                profile_rows.setdefault(_profile(cell), len(profile_rows)),
                wait_rows.setdefault(_waits_key(cell), len(wait_rows)),
                cell.max_attempts,
                limit_rows.setdefault(_chain_budget(cell), len(limit_rows)),
                0 if _chain_budget(cell) is None else -1,
                cell.threshold,
                chain_rows.setdefault(_tries_of(cell), len(chain_rows)),
                0 if cell.first_wait is None else max(1, math.ceil(cell.first_wait)),
                *chain_kind(cell),
                outermost_seen(cell),
                cell.clients,
                cell.queue,
                kernel.NEVER if cell.timeout is None else cell.timeout,
                cell.cancel,
                second_rows.setdefault(cell.rounds_per_second, len(second_rows)),
            )
            for cell in cells
        ],
        np.int64,
    )
    profiles, capacities, failures = _by_round(list(profile_rows), cells[0].rounds, exact=exact)
    offsets, widths, polly = _by_attempt(list(wait_rows), n_waits, exact=exact)
    limits = [_retry_limits(budget, n_requests + 1, exact=exact) for budget in limit_rows]
    longest = max(1, *(waits.longest_wait(cell.layers) for cell in cells))
    has_queue = any(cell.queue for cell in cells)
    rate = cells[0].rate_per_round
    thresholds, guide = arrival_thresholds(rate if exact else 0.0)
    return kernel.CellTables(
        n_rounds=cells[0].rounds,
        thresholds=thresholds,
        guide=guide,
        exp_rate=math.exp(-rate),
        service_drawn=cells[0].fault_rounds == 0,
        scalars=scalars,
        profiles=profiles,
        capacities=capacities,
        failures=failures,
        offsets=offsets,
        widths=widths,
        polly=polly,
        makers=np.array([_makers(tries, n_waits + 1) for tries in chain_rows], np.int8),
        **_by_layer(cells, n_layers),
        seconds=_seconds(list(second_rows) if has_queue else [], cells[0].rounds),
        limits=np.array(limits, np.int32),
        n_requests=n_requests,
        ahead=_rounds_drawn_ahead(cells),
        wheel_size=1 << min(longest, cells[0].rounds).bit_length(),
    )


def _profile(cell: Cell) -> tuple[Any, ...]:
    """What a cell's tables by round are made of."""
    return cell.capacity, cell.failure_rate, cell.can_fail, cell.all_faults


def _by_round(
    profiles: Sequence[tuple[Any, ...]], n_rounds: int, *, exact: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any]]:
    """The tables `profiles`, `capacities` and `failures`."""
    import numpy as np

    shape = len(profiles), n_rounds
    windows = np.zeros((len(profiles), 3), np.int64)
    capacities = np.empty(shape, np.int32)
    failures = np.empty(shape, np.uint64 if exact else np.float64)
    for p, (capacity, failure_rate, can_fail, faults) in enumerate(profiles):
        usual = round(failure_rate * 2**32) if exact else failure_rate
        failures[p] = usual
        if faults:
            windows[p, :2] = faults[0].start, faults[-1].end
        windows[p] = *windows[p, :2].clip(max=n_rounds), can_fail
        at = 0
        for fault in faults:
            start, end = min(fault.start, n_rounds), min(fault.end, n_rounds)
            capacities[p, at:start] = _served(capacity, start - at)
            capacities[p, start:end] = _served(fault.capacity, end - start, _rise(fault))
            if fault.failure_rate is not None:
                rate = fault.failure_rate
                failures[p, start:end] = round(rate * 2**32) if exact else rate
            at = end
        capacities[p, at:] = _served(capacity, n_rounds - at)
    return windows, capacities, failures


def _rise(fault: Fault) -> Fraction:
    """By how much the capacity rises in each round of a fault."""
    if fault.capacity_end is None:
        return Fraction(0)
    first, last = (Fraction(repr(x)) for x in (fault.capacity, fault.capacity_end))
    return (last - first) / fault.length


def _served(capacity: float, n: int, rise: Fraction = Fraction(0)) -> NDArray[np.int64]:
    """Calls served in each of n rounds of a phase; the capacity is the decimal as written."""
    import numpy as np

    return np.diff(_floors(Fraction(repr(capacity)), n + 1, rise / 2))


def _floors(ratio: Fraction, n: int, square: Fraction = Fraction(0)) -> NDArray[np.int64]:
    """``floor(k * ratio + k**2 * square)`` for k = 0 .. n - 1."""
    import numpy as np

    bottom = math.lcm(ratio.denominator, square.denominator)
    linear, quadratic = int(ratio * bottom), int(square * bottom)
    if (abs(quadratic) * n + abs(linear)) * n < 2**63 and bottom < 2**63:
        k = np.arange(n, dtype=np.int64)
        return (quadratic * k + linear) * k // bottom
    return np.array([(quadratic * k + linear) * k // bottom for k in range(n)])


def _seconds(lengths: Sequence[float], n_rounds: int) -> NDArray[np.int32]:
    """The table `seconds`, by the rounds of a second."""
    import numpy as np

    rows = []
    for per_second in map(Fraction, map(repr, lengths)):
        if per_second <= 1:  # every round holds a whole second
            rows.append(np.arange(n_rounds + 1))
        else:
            rows.append(-_floors(-per_second, math.floor(n_rounds / per_second) + 1))
    table = np.full((max(len(rows), 1), max(map(len, rows), default=0)), INT32_MAX, np.int32)
    for line, row in zip(table, rows, strict=False):
        line[: len(row)] = row
    return table


# --- the chain ------------------------------------------------------------------------------------


def chain_kind(cell: Cell) -> ChainKind:
    """What a cell's chain has, and so which loop it goes through."""
    from mc import kernel

    layers = cell.layers
    jitters = {"decorrelated": kernel.DECORRELATED, "polly": kernel.POLLY}
    has_budget = any(layer.budget is not None for layer in layers)
    deadlines = kernel.NO_DEADLINE
    if any(layer.deadline is not None for layer in layers[1:]):
        deadlines = kernel.LAYER_DEADLINES
    elif layers[0].deadline is not None:
        # after a refusal each layer has a wait of its own, which may be too long
        alone = len(layers) == 1 or not has_budget
        deadlines = kernel.REQUEST_DEADLINE if alone else kernel.LAYER_DEADLINES
    return kernel.ChainKind(
        layers=len(layers),
        jitter=jitters.get(cell.jitter, kernel.BY_TABLE),
        deadlines=deadlines,
        budgets=budget_kind(cell),
        breaker=breaker_kind(cell),
        queued=int(cell.queue > 0),
    )


def _chain_budget(cell: Cell) -> float | None:
    """The budget that is a table by the number of primary calls; None if there is none."""
    from mc import kernel

    budget = cell.layers[0].budget
    is_table = budget_kind(cell) == kernel.CHAIN_BUDGET
    return budget if is_table and isinstance(budget, float) else None


def _tries_of(cell: Cell) -> tuple[int, ...]:
    """Attempts of each layer that decides."""
    return tuple(layer.tries for layer in cell.layers)


def _waits_key(cell: Cell) -> tuple[Layer, ...]:
    """What a cell's tables by attempt are made of: the layers that retry.

    A table of the waits of a single one does not depend on how often it tries; so a cell without
    retries has that of one with.
    """
    layers = [layer._replace(deadline=None, budget=None) for layer in cell.layers]
    retrying = [layer for layer in layers if layer.tries > 1]
    if len(retrying) > 1 or cell.jitter in ("decorrelated", "polly"):
        return tuple(retrying)
    return ((retrying or layers)[-1]._replace(tries=0),)


def _by_attempt(
    chains: Sequence[tuple[Layer, ...]], n: int, *, exact: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """The tables `offsets`, `widths` and `polly`."""
    import numpy as np

    from mc import kernel

    shape = len(chains), n
    offsets = np.zeros(shape, np.uint64 if exact else np.float64)
    widths = np.zeros(shape, offsets.dtype)
    curves: dict[tuple[int, ...], int] = {}
    for b, layers in enumerate(chains):
        made: list[tuple[Any, Any]] = []  # of the layers inside
        for layer in reversed(layers):
            own = _layer_waits(layer, n, curves, exact=exact)
            made = [wait for last in own for wait in (*made, last)] + made
        offsets[b, : len(made)] = [offset for offset, _ in made]
        widths[b, : len(made)] = [width for _, width in made]
    polly = np.array(list(curves), np.int64).reshape(-1, kernel.POLLY_STEPS + 1)
    return offsets, widths, polly


def _layer_waits(
    layer: Layer, n: int, curves: dict[tuple[int, ...], int], *, exact: bool
) -> list[tuple[Any, Any]]:
    """Offset and width of each wait of a layer, as the kernel has them.

    Of the only layer that retries (`tries` 0) there are n waits.
    """
    backoff = layer.backoff
    n_own = layer.tries - 1 if layer.tries else n
    if not exact:
        return [(0.0, ceiling) for ceiling in waits.ceilings(backoff, n_own)]
    cap = waits.in_ticks(backoff.cap)
    if backoff.jitter == "decorrelated":
        return [(waits.in_ticks(backoff.base), cap)] * n_own
    if backoff.jitter == "polly":
        rows = (waits.polly_curve(backoff.base, k) for k in range(n_own))
        return [(curves.setdefault(row, len(curves)), cap) for row in rows]
    spans = waits.spans(backoff, n_own)
    if backoff.jitter == "full":
        drawn = [*spans]
    else:  # rounded up where full jitter, which is never a whole number of rounds, is rounded down
        drawn = [((offset - 1) % 2**64, width) for offset, width in spans]
    if backoff.first_wait is not None:
        drawn[:1] = [((max(1, math.ceil(backoff.first_wait)) - 1) * TICKS, 0)][:n_own]
    return drawn


def _makers(tries: tuple[int, ...], n: int) -> NDArray[np.int64]:
    """The outermost layer that makes each of the attempts 0 .. n - 1."""
    import numpy as np

    attempts, stride = np.arange(n), 1
    makers = np.full(n, len(tries) - 1)
    for i in range(len(tries) - 1, -1, -1):
        makers[attempts % stride == 0] = i
        stride *= tries[i]
    return makers


def _by_layer(cells: Sequence[Cell], n_layers: int) -> dict[str, NDArray[np.int64]]:
    """The tables `tries`, `strides`, `deadlines`, `budgets` and `breakers`."""
    import numpy as np

    from mc.kernel.layout import N_OF_BUDGET, NEVER

    shape = len(cells), n_layers
    made = {name: np.ones(shape, np.int64) for name in ("tries", "strides")}
    made["deadlines"] = np.full(shape, NEVER)
    made["budgets"] = np.zeros((*shape, N_OF_BUDGET), np.int64)
    made["breakers"] = np.array([breaker_row(cell.breaker) for cell in cells])
    for c, cell in enumerate(cells):
        for i, layer in enumerate(cell.layers):
            made["tries"][c, i] = layer.tries
            made["strides"][c, i] = math.prod(_tries_of(cell)[i + 1 :])
            if layer.deadline is not None:
                made["deadlines"][c, i] = layer.deadline
        made["budgets"][c, : len(cell.layers)] = budget_rows(cell)
    return made


# --- the rest -------------------------------------------------------------------------------------


def _rounds_drawn_ahead(cells: Sequence[Cell]) -> tuple[int, int]:
    """The fault windows in which less is served than arrives, taken together; (0, 0) if none.

    Only the speed of the loops without a queue depends on it. More requests than the kernel
    remembers are not worth it.
    """
    windows = [
        (min(fault.start, cell.rounds), min(fault.end, cell.rounds))
        for cell in cells
        if cell.max_attempts > 1 and cell.queue == 0
        for fault in cell.all_faults
        if fault.capacity < 2 * cell.rate_per_round
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
    return 16 * cell.rounds + 4 * _room_for_requests(cell) + 17 * cell.max_attempts


def _retry_limits(budget: float | None, n: int, *, exact: bool) -> NDArray[np.int64]:
    """Most retries allowed beside 0 .. n-1 primary calls, capped at what a counter can hold."""
    import numpy as np

    if budget is None:
        return np.full(n, INT32_MAX)
    primary = np.arange(n, dtype=np.int64)
    if not exact:
        # Lesson: the product is a double, which for some budgets (0.29, 0.35, 0.7) falls short
        return np.array(np.floor(budget * primary).clip(max=INT32_MAX), np.int64)
    return _floors(Fraction(repr(budget)), n).clip(max=INT32_MAX)


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
