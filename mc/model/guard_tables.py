"""The settings of budgets and breakers as the kernel reads them: integers, so that all is exact."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from mc.model.breakers import Breaker, Consecutive, Resilience4j
from mc.model.budgets import Aws, Envoy, Finagle, Grpc, Linkerd, Ratio, Sre
from mc.model.cell import MAX_CALLS, Cell
from mc.model.parameters import INT32_MAX
from mc.model.waits import Layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LARGEST: Final = 2**62
"""No sum of deposits comes near it."""

_DEAREST: Final = 2**42
"""More than 1000 for each of `MAX_CALLS`: what costs as much is never paid by deposits."""


def budget_kind(
    layers: tuple[Layer, ...], scope: str, clients: int, breaker: Breaker | None, *, is_closed: bool
) -> int:
    """Which form of a budget the loop of a cell is compiled for."""
    from mc.kernel import layout

    kinds = {_kind_of(layer.budget) for layer in layers}
    alone = len(layers) == 1 or scope == "chain"
    plain = clients == 1 and breaker is None and kinds == {layout.RATIO}
    plain = plain and not is_closed  # its requests, by which a table would go, have no bounds
    is_plain = plain and not isinstance(layers[0].budget, Ratio)
    if all(layer.budget is None for layer in layers) or (alone and is_plain):
        return layout.CHAIN_BUDGET
    return kinds.pop() if len(kinds) == 1 else layout.MIXED


def breaker_kind(breaker: Breaker | None) -> int:
    """Which form of a breaker the loop of a cell is compiled for."""
    from mc.kernel import layout

    if breaker is None:
        return layout.NO_BREAKER
    is_window = isinstance(breaker, Resilience4j)
    return layout.COUNT_WINDOW if is_window else layout.IN_A_ROW


def outermost_seen(cell: Cell) -> int:
    """The outermost layer whose calls a budget sees."""
    return 0 if cell.budget_scope == "layer" else len(cell.layers) - 1


def _kind_of(budget: Any) -> int:
    """The kind of one budget; where others are ratios, none is a ratio that allows all."""
    from mc.kernel import layout

    kinds: dict[type, int] = {
        Finagle: layout.FINAGLE,
        Linkerd: layout.LINKERD,
        Grpc: layout.GRPC,
        Aws: layout.AWS,
        Envoy: layout.ENVOY,
        Sre: layout.SRE,
    }
    return kinds.get(type(budget), layout.RATIO)


@functools.lru_cache(maxsize=4096)
def budget_row(budget: Any, rounds_per_second: float) -> NDArray[np.int64]:
    """The row of a layer in the table `budgets`, not to be written to."""
    import numpy as np

    from mc.kernel import layout

    row = np.zeros(layout.N_OF_BUDGET, np.int64)
    row[layout.B_KIND] = _kind_of(budget)
    for name, value in _entries(budget, rounds_per_second).items():
        row[getattr(layout, f"B_{name}")] = value
    return row


def _entries(budget: Any, rounds_per_second: float) -> dict[str, int]:
    """What a budget sets, by the name of its column."""
    if isinstance(budget, Ratio):
        on_decision = budget.charged == "decision"
        return _part(_exact(budget.ratio)) | {
            "WINDOW": budget.window or 0,
            "ON_DECISION": int(on_decision),
        }
    if isinstance(budget, Sre):
        return _part(_exact(budget.ratio), above=True) | {
            "WINDOW": budget.window,
            "K": round(100 * (budget.k or 0)),
        }
    if isinstance(budget, Finagle):
        ratio = _exact(budget.percent_can_retry)
        gain, cost = (1000, int(1000 / ratio)) if ratio else (0, 1)
        seconds = int(budget.ttl / _exact(rounds_per_second))
        return _deposits(budget.ttl, gain, cost, budget.min_retries_per_sec * seconds)
    if isinstance(budget, Linkerd):
        ratio = _exact(budget.retry_ratio)
        gain = 0 if ratio == 0 else 1 if ratio <= 1 else 1000
        cost = int(gain / ratio) if ratio else 1
        seconds = int(budget.ttl / _exact(rounds_per_second))
        return _deposits(budget.ttl, gain, cost, budget.min_retries_per_second * seconds)
    if isinstance(budget, Grpc):
        return {"MOST": 1000 * budget.max_tokens, "GAIN": int(1000 * _exact(budget.token_ratio))}
    if isinstance(budget, Aws):
        return {"MOST": budget.quota, "COST": budget.cost}
    if isinstance(budget, Envoy):
        if budget.max_retries is not None:
            return {"MOST": budget.max_retries, "DENOMINATOR": 1}
        part = _part(_exact(budget.budget_percent) / 100)
        return part | {"MOST": budget.min_retry_concurrency}
    return _part(Fraction(INT32_MAX) if budget is None else _exact(budget))


def _deposits(ttl: int, gain: int, cost: int, retries: int) -> dict[str, int]:
    """A budget of deposits with a reserve for some retries."""
    cost = min(cost, _DEAREST)
    return {"WINDOW": ttl, "GAIN": gain, "COST": cost, "RESERVE": min(retries * cost, _LARGEST)}


@functools.lru_cache(maxsize=4096)
def breaker_row(breaker: Breaker | None) -> NDArray[np.int64]:
    """The row of a cell in the table `breakers`, not to be written to."""
    import numpy as np

    from mc.kernel import layout

    row = np.zeros(layout.N_OF_BREAKER, np.int64)
    entries: dict[str, int] = {}
    if isinstance(breaker, Resilience4j):
        entries = _part(_exact(breaker.failure_rate_threshold) / 100, above=True) | {
            "WINDOW": breaker.sliding_window_size,
            "MINIMUM": breaker.minimum_number_of_calls,
            "WAIT": breaker.wait_duration_in_open_state,
            "TRIALS": breaker.permitted_number_of_calls_in_half_open_state,
        }
    if isinstance(breaker, Consecutive):
        entries = {
            "MINIMUM": breaker.consecutive_failures,
            "WAIT": breaker.timeout,
            "TRIALS": breaker.max_requests,
        }
    for name, value in entries.items():
        row[getattr(layout, f"K_{name}")] = value
    return row


def _exact(number: float) -> Fraction:
    """The decimal as written."""
    return Fraction(repr(number))


def _part(ratio: Fraction, *, above: bool = False) -> dict[str, int]:
    """Whole part, numerator and denominator of a ratio, so small that 64 bits hold products.

    With n <= MAX_CALLS a whole number is at most ``n * ratio`` (with `above`: less than that) if
    and only if it is so by the ratio as written.
    """
    whole, rest = divmod(ratio.numerator, ratio.denominator)
    part = Fraction(rest, ratio.denominator)
    if part.denominator > MAX_CALLS:
        part = -_largest_up_to(-part) if above else _largest_up_to(part)
    return {"WHOLE": whole, "NUMERATOR": part.numerator, "DENOMINATOR": part.denominator}


def _largest_up_to(ratio: Fraction) -> Fraction:
    """The largest fraction up to a ratio whose denominator is at most MAX_CALLS."""
    near = ratio.limit_denominator(MAX_CALLS)
    if near > ratio:  # it is the next below, whose numerator makes the determinant 1
        a, b = near.numerator, near.denominator
        inverse = pow(a, -1, b)
        below = inverse + (MAX_CALLS - inverse) // b * b
        near = Fraction((a * below - 1) // b, below)
    return near
