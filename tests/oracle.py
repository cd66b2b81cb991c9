"""The lesson's model in plain Python: one point of the world of `oracle_world`.

`Parameters` are the lesson's, its chain is flattened, its budget a ratio; `simulate` plays it in
the world's own loop, driven by the lesson's single stream, by Philox words, or by a list written
down in a test. Nothing is imported from `mc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import oracle_world
from oracle_budgets import Budget, RatioWhenRun
from oracle_draws import (
    arrivals_word,
    jitter_word,
    philox,
    philox_world,
    poisson_table,
    service_word,
)
from oracle_waits import TICKS, in_ticks
from oracle_world import Call, World

__all__ = [
    "COUNTERS",
    "Call",
    "Draws",
    "Parameters",
    "Row",
    "arrivals_word",
    "differences",
    "jitter_word",
    "lesson_draws",
    "minstd",
    "philox",
    "philox_draws",
    "poisson_table",
    "service_word",
    "simulate",
]

COUNTERS: Final[tuple[str, ...]] = (
    "requests",
    "window_requests",
    "calls",
    "primary",
    "retries",
    "successful",
    "dropped",
    "in_flight",
    "peak",
    "window_calls",
    "second_peak",
    "wait_total",
    "wait_max",
    "late",
    "drain",
    "window_dropped",
)
"""The counters of one replication of the lesson, in the order of a row's columns."""

Row = Mapping[str, int | None]


def differences(got: Row, expected: Row) -> dict[str, tuple[int | None, int | None]]:
    """Return (got, expected) of every counter of `expected` in which two rows differ."""
    return {
        name: (got[name], expected[name])
        for name in COUNTERS
        if name in expected and got[name] != expected[name]
    }


@dataclass(frozen=True)
class Parameters:
    """One cell; names, units and defaults are those of `mc.Cell`, unchecked."""

    rounds: int = 4000
    rounds_per_second: float = 100.0
    arrivals_per_second: float = 97.22
    capacity: int = 6
    fault_start: int = 500
    fault_rounds: int = 0
    fault_capacity: int = 0
    failure_rate: float = 0.0
    tries: tuple[int, ...] = (1,)
    backoff_base: float = 2.0
    backoff_cap: float = 32.0
    budget: float | None = None
    threshold: int = 20

    @property
    def rate_per_round(self) -> float:
        """Mean of the Poisson arrivals in one round."""
        return self.arrivals_per_second / self.rounds_per_second

    def ceiling(self, attempt: int) -> float:
        """Upper limit of the wait after attempt number `attempt`, in rounds."""
        doublings = min(attempt, 1000)  # any base > 0 has met its cap long before a double ends
        return min(self.backoff_cap, self.backoff_base * 2.0**doublings)


@dataclass(frozen=True)
class Draws:
    """Everything the lesson leaves to chance, and the generator's way to compare the budget.

    Attributes
    ----------
    arrivals : callable (round) -> int
        New requests of a round; asked once per round, in order.
    fails : callable (call) -> bool
        Whether a call fails although it was served.
    wait : callable (call) -> int
        Rounds from this failed call to the next attempt, >= 1.
    within_budget : callable (retries, primary) -> bool
        Whether one more retry is allowed after so many calls of either kind.
    """

    arrivals: Callable[[int], int]
    fails: Callable[[Call], bool]
    wait: Callable[[Call], int]
    within_budget: Callable[[int, int], bool]


def simulate(cell: Parameters, draws: Draws) -> dict[str, int | None]:
    """Run one replication of the lesson's model.

    Parameters
    ----------
    cell : Parameters
        The cell.
    draws : Draws
        The generator.

    Returns
    -------
    dict of str to int or None
        The `COUNTERS`; `second_peak` and `drain` are None where the run knows no time after a
        fault window, `drain` also where retries are pending to the end.
    """
    world = World(
        rounds=cell.rounds,
        rounds_per_second=cell.rounds_per_second,
        arrivals_per_second=cell.arrivals_per_second,
        capacity=cell.capacity,
        fault_start=cell.fault_start,
        fault_rounds=cell.fault_rounds,
        fault_capacity=cell.fault_capacity,
        tries=cell.tries,
        chain="flattened",
        backoff_base=cell.backoff_base,
        backoff_cap=cell.backoff_cap,
        budget=_Compared(draws.within_budget),
        threshold=cell.threshold,
    )
    chance = oracle_world.Draws(
        arrivals=lambda t, _: draws.arrivals(t),
        fails=lambda call, _: draws.fails(call),
        delay=lambda call, _: (draws.wait(call) - 1) * TICKS,  # which full jitter takes as 1 + ...
        client=lambda call, clients: 0,
        throttled=lambda call, layer, chance: False,
    )
    row = oracle_world.simulate(world, chance)
    return {name: row[name] for name in COUNTERS}


@dataclass(frozen=True)
class _Compared:
    """The lesson's budget, with the comparison that its generator makes."""

    within: Callable[[int, int], bool]

    def start(self, rounds_per_second: float) -> Budget:
        return RatioWhenRun(None, self.within)


# The lesson's generator: one stream for everything ----------------------------------------------

MINSTD_MULTIPLIER: Final = 48271
MINSTD_MODULUS: Final = 2**31 - 1


def minstd(state: int) -> int:
    """Return the state after `state` (Park, Miller and Stockmeyer 1993)."""
    return state * MINSTD_MULTIPLIER % MINSTD_MODULUS


def lesson_draws(cell: Parameters, seed: int) -> Draws:
    """Draw as the lesson's program does, in its order, from the stream that starts at `seed`.

    The order of the draws is the order in which `simulate` asks for them.
    """
    state = seed

    def uniform() -> float:
        nonlocal state
        state = minstd(state)
        return state / MINSTD_MODULUS

    limit = math.exp(-cell.rate_per_round)

    def arrivals(_: int) -> int:  # Knuth, The Art of Computer Programming, vol. 2, 3.4.1
        n, product = 0, uniform()
        while product > limit:
            n, product = n + 1, product * uniform()
        return n

    def fails(_: Call) -> bool:
        # Lesson: a served call draws its luck only where there is no fault window, and then
        # even where the failure rate is 0.
        return cell.fault_rounds == 0 and uniform() < cell.failure_rate

    def wait(call: Call) -> int:
        return 1 + math.floor(uniform() * cell.ceiling(call.attempt))

    def within_budget(retries: int, primary: int) -> bool:
        return cell.budget is None or retries <= cell.budget * primary  # in doubles

    return Draws(arrivals, fails, wait, within_budget)


# The Philox generator: every draw is a function of its purpose ----------------------------------


def philox_draws(cell: Parameters, seed: int, replication: int) -> Draws:
    """Draw from Philox under the key `seed`, each draw by its purpose."""
    draws = philox_world(seed, replication)
    failure_rate = Fraction(cell.failure_rate)
    exact_budget = None if cell.budget is None else Fraction(repr(cell.budget))

    def arrivals(t: int) -> int:
        return draws.arrivals(t, cell.rate_per_round)

    def fails(call: Call) -> bool:
        return draws.fails(call, failure_rate)

    def wait(call: Call) -> int:
        ceiling = in_ticks(cell.ceiling(call.attempt))
        return 1 + draws.delay(call, lambda word: word * ceiling >> 32) // TICKS

    def within_budget(retries: int, primary: int) -> bool:
        return exact_budget is None or retries <= exact_budget * primary

    return Draws(arrivals, fails, wait, within_budget)
