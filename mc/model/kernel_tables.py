"""The tables the kernel reads, made of the parameters of cells."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from mc.model import waits
from mc.model.breakers import Breaker
from mc.model.cell import Cell, Generator
from mc.model.faults import Fault
from mc.model.guard_tables import (
    breaker_kind,
    breaker_row,
    budget_kind,
    budget_row,
    outermost_seen,
)
from mc.model.metrics import outlives
from mc.model.parameters import INT32_MAX
from mc.model.waits import TICKS, Layer

if TYPE_CHECKING:  # numpy takes a tenth of a second, which `--help` does not have
    import numpy as np
    from numpy.typing import NDArray

    from mc.kernel import CellTables, ChainKind


def traffic_key(cell: Cell, generator: Generator) -> tuple[Any, ...]:
    """What two cells must have in common to stand in one block of the kernel."""
    shared = (cell.rounds, cell.rate_per_round, cell.traffic)
    if generator == "philox":
        return shared
    return (*shared, cell.failure_rate, cell.fault_rounds > 0)


@functools.lru_cache(maxsize=2**17)  # asked for when a run is planned, and again for each task
def wheel_key(cell: Cell) -> tuple[Any, ...]:
    """What two cells of a block must have in common to share a wheel, see `kernel.masks`."""
    n_layers = len(cell.layers)
    # how often a single layer tries is no matter
    tries = _tries_of(cell) if n_layers > 1 else None
    waits, deadline = _waits_key(cell.layers, cell.jitter), cell.layers[0].deadline
    return (chain_kind(cell), _profile(cell), cell.threshold, waits, tries, deadline)


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
    given = cells[0].traffic
    workers = (given and given.workers) or 0
    n_requests = _room_for_requests(cells[0]) + workers
    n_waits = max(max(cell.max_attempts for cell in cells) - 1, 1)
    n_layers = max(len(cell.layers) for cell in cells)

    profile_rows: dict[tuple[Any, ...], int] = {}
    wait_rows: dict[tuple[Layer, ...], int] = {}
    limit_rows: dict[float | None, int] = {}
    chain_rows: dict[tuple[int, ...], int] = {}
    second_rows: dict[float, int] = {}
    rows = []
    for cell in cells:
        kind, profile, _, waits_key, *_ = wheel_key(cell)
        budget = _chain_budget(cell, kind)
        rows.append(
            (
                profile_rows.setdefault(profile, len(profile_rows)),
                wait_rows.setdefault(waits_key, len(wait_rows)),
                cell.max_attempts,
                limit_rows.setdefault(budget, len(limit_rows)),
                0 if budget is None else -1,
                cell.threshold,
                chain_rows.setdefault(_tries_of(cell), len(chain_rows)),
                0 if cell.first_wait is None else max(1, math.ceil(cell.first_wait)),
                *kind,
                outermost_seen(cell),
                cell.clients,
                cell.queue,
                kernel.NEVER if cell.timeout is None else cell.timeout,
                cell.cancel,
                second_rows.setdefault(cell.rounds_per_second, len(second_rows)),
            )
        )
    scalars = np.array(rows, np.int64)
    profiles, capacities, failures = _by_round(list(profile_rows), cells[0].rounds, exact=exact)
    offsets, widths, polly = _by_attempt(list(wait_rows), n_waits, exact=exact)
    limits = [_retry_limits(budget, n_requests + 1, exact=exact) for budget in limit_rows]
    longest = max(1, *(waits.longest_wait(cell.layers) for cell in cells))
    has_seconds = any(map(outlives, cells))
    return kernel.CellTables(
        n_rounds=cells[0].rounds,
        **_arrivals(cells[0], exact=exact),
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
        seconds=_seconds(list(second_rows), cells[0].rounds if has_seconds else 0),
        limits=np.array(limits, np.int32),
        n_requests=n_requests,
        workers=workers,
        think=(given and given.think) or 0,
        ahead=_rounds_drawn_ahead(cells),
        wheel_size=1 << min(longest, cells[0].rounds).bit_length(),
    )


def _arrivals(cell: Cell, *, exact: bool) -> dict[str, Any]:
    """The tables by which the arrivals of each round are drawn."""
    import numpy as np

    rate, rates, known = cell.rate_per_round, np.empty(0), np.empty(0, np.int32)
    arrivals = cell.arrivals
    if arrivals is not None:
        rate, rates = arrivals.means[0], arrivals.means
        if (rates == rate).all():
            rates = np.empty(0)
        if arrivals.known.any():
            known = arrivals.known.astype(np.int32)
    fewest, thresholds, guide = arrival_thresholds(0.0 if rates.size or not exact else float(rate))
    at_mean = arrivals_at_mean(rates) if rates.size else np.empty((2, 0))
    near, steps, step_guides = _steps(rates)
    return {
        "fewest": fewest,
        "thresholds": thresholds,
        "guide": guide,
        "rates": rates,
        "at_mean": at_mean,
        "near": near,
        "steps": steps,
        "step_guides": step_guides,
        "decided": np.empty((0, 3), np.int64),
        "known": known,
        "exp_rate": math.exp(-rate),
    }


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
    guards = cell.budget_scope, cell.clients, cell.breaker
    return _chain_kind(cell.layers, cell.jitter, *guards, cell.queue > 0, cell.is_closed)


@functools.lru_cache(maxsize=4096)
def _chain_kind(
    layers: tuple[Layer, ...],
    jitter: str,
    scope: str,
    clients: int,
    breaker: Breaker | None,
    is_queued: bool,
    is_closed: bool,
) -> ChainKind:
    from mc import kernel

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
        jitter=jitters.get(jitter, kernel.BY_TABLE),
        deadlines=deadlines,
        budgets=budget_kind(layers, scope, clients, breaker, is_closed=is_closed),
        breaker=breaker_kind(breaker),
        queued=int(is_queued),
        closed=int(is_closed),
    )


def _chain_budget(cell: Cell, kind: ChainKind) -> float | None:
    """The budget that is a table by the number of primary calls; None if there is none."""
    from mc import kernel

    budget = cell.layers[0].budget
    is_table = kind.budgets == kernel.CHAIN_BUDGET
    return budget if is_table and isinstance(budget, float) else None


def _tries_of(cell: Cell) -> tuple[int, ...]:
    """Attempts of each layer that decides."""
    return tuple(layer.tries for layer in cell.layers)


@functools.lru_cache(maxsize=4096)
def _waits_key(chain: tuple[Layer, ...], jitter: str) -> tuple[Layer, ...]:
    """What a cell's tables by attempt are made of: the layers that retry.

    A table of the waits of a single one does not depend on how often it tries; so a cell without
    retries has that of one with.
    """
    layers = [layer._replace(deadline=None, budget=None) for layer in chain]
    retrying = [layer for layer in layers if layer.tries > 1]
    if len(retrying) > 1 or jitter in ("decorrelated", "polly"):
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


def _by_layer(cells: Sequence[Cell], n_layers: int) -> dict[str, Any]:
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
            made["budgets"][c, i] = budget_row(layer.budget, cell.rounds_per_second)
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
        if fault.capacity * fault.length < 2 * cell.requests_in(fault.start, fault.end)
    ]
    windows = [(start, end) for start, end in windows if start < end]
    if not windows:
        return 0, 0
    start, end = min(start for start, _ in windows), max(end for _, end in windows)
    return (start, end) if cells[0].requests_in(start, end) < 4096 else (0, 0)


def _room_for_requests(cell: Cell) -> int:
    mean = cell.requests_in(0, cell.rounds)
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


# --- arrivals -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def arrival_thresholds(rate: float) -> tuple[int, NDArray[np.uint64], NDArray[np.uint16]]:
    """Tables that turn a 64-bit uniform into Poisson arrivals by inversion.

    Parameters
    ----------
    rate : float
        Mean arrivals per round.

    Returns
    -------
    fewest : int
        The least count whose threshold is not 0.
    thresholds : ndarray of uint64, shape (K,)
        ``floor(2**64 * P(N <= k))`` for k = fewest, fewest + 1, ..., up to the first of
        2**64 - 1; the count is `fewest` and the number of thresholds not above the uniform. Empty
        for a rate of 0.
    guide : ndarray of uint16, shape (4096,)
        The number of thresholds to start from, by the 12 high bits of the uniform.

    Notes
    -----
    Devroye 1986, "Non-Uniform Random Variate Generation", sections III.2.1 (inversion by
    sequential search) and III.2.4 (guide tables). Made in decimal arithmetic, since the last bit
    of a double's exp differs between platforms.
    """
    import numpy as np

    if rate == 0.0:
        return 0, np.empty(0, np.uint64), np.zeros(4096, np.uint16)
    thresholds: list[int] = []
    fewest, k, top = 0, 0, 2**64 - 1
    with decimal.localcontext(
        decimal.Context(prec=80, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
    ):
        mean = Decimal(rate)
        term = (-mean).exp()
        total = term
        while not thresholds or thresholds[-1] < top:
            threshold = min(int(total * 2**64), top)
            if threshold > 0:
                thresholds.append(threshold)
            else:
                fewest += 1
            k += 1
            term = term * mean / k
            total += term
    table = np.array(thresholds, np.uint64)
    starts = np.arange(4096, dtype=np.uint64) << np.uint64(52)
    return fewest, table, np.searchsorted(table, starts, side="right").astype(np.uint16)


MOST_STEPS: Final = 256
"""Rates among those that vary for which there are thresholds."""

MOST_RATE: Final = 32.0
"""Of larger ones there are none: they would lie too far apart."""


def _steps(
    rates: NDArray[np.float64],
) -> tuple[NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint16]]:
    """The tables `near`, `steps` and `step_guides` of rates that vary."""
    import numpy as np

    distinct = np.unique(rates)
    if distinct.size == 0 or distinct[-1] > MOST_RATE:
        return np.empty(0, np.uint16), np.empty((0, 0), np.uint64), np.empty((0, 256), np.uint16)
    some = np.linspace(0, distinct.size - 1, min(MOST_STEPS, distinct.size)).round().astype(int)
    chosen = distinct[some]
    listed = [arrival_thresholds(float(rate))[1] for rate in chosen]
    steps = np.full((len(chosen), max(map(len, listed)) + 1), 2**64 - 1, np.uint64)
    for row, thresholds in zip(steps, listed, strict=True):
        row[: thresholds.size] = thresholds
    starts = np.arange(256, dtype=np.uint64) << np.uint64(56)
    guides = np.array([np.searchsorted(row, starts, side="right") for row in steps], np.uint16)
    place = np.searchsorted(chosen, rates, side="right") - 1
    return (2 * place + (chosen[place] == rates)).astype(np.uint16), steps, guides


def exact_arrivals(rate: float, uniform: int) -> int:
    """Turn a 64-bit uniform into Poisson arrivals, one of the few that a double cannot decide."""
    import numpy as np

    fewest, thresholds, _ = arrival_thresholds(rate)
    return fewest + int(np.searchsorted(thresholds, np.uint64(uniform), side="right"))


def arrivals_at_mean(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(N < k) and P(N = k), k the whole part of the mean, for each of T rates.

    From there the kernel searches where rates vary: a table for each would take memory and time
    without bounds. It decides only where 2**-32 does not matter, and these are right to 2**-40.

    Returns
    -------
    ndarray of float64, shape (2, T)

    Notes
    -----
    The sum of Poisson probabilities is an incomplete gamma function (Abramowitz and Stegun 1964,
    26.4.21).
    """
    import numpy as np
    from scipy.special import gammaincc

    distinct, place = np.unique(rates, return_inverse=True)
    k = np.floor(distinct)
    below = np.where(k > 0, gammaincc(np.maximum(k, 1), distinct), 0.0)
    at_most = gammaincc(k + 1, distinct)
    return np.stack([below[place], (at_most - below)[place]])
