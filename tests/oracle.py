"""The model in plain Python, slow and readable: what the compiled kernel must equal.

It imports nothing from `mc`, shares no code with it and takes its draws as functions, so the
same loop is driven by the lesson's single stream, by Philox words, or by a list written down in
a test. Nothing is fast here on purpose: calls are tuples in lists, integers are Python's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

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
)
"""The counters of one replication, in the order of a row's columns."""

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

    @property
    def fault_end(self) -> int:
        """The first round after the fault window."""
        return self.fault_start + self.fault_rounds

    def ceiling(self, attempt: int) -> float:
        """Upper limit of the wait after attempt number `attempt`, in rounds."""
        doublings = min(attempt, 1000)  # any base > 0 has met its cap long before a double ends
        return min(self.backoff_cap, self.backoff_base * 2.0**doublings)


class Call(NamedTuple):
    """One try: the request's arrival round, its index j in that round, and the attempt from 0."""

    arrival: int
    j: int
    attempt: int


@dataclass(frozen=True)
class Draws:
    """Everything the model leaves to chance, and the generator's way to compare the budget.

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
    """Run one replication of the model.

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
    max_attempts = math.prod(cell.tries)
    due: dict[int, list[Call]] = {}  # the retries of each round, in the order of scheduling
    pending = 0  # retries that are scheduled and have not run, however late they are due
    pending_at: list[int] = []  # the same at the beginning of each round
    calls_in: list[int] = []  # calls of each round
    requests_in: list[int] = []  # new requests of each round
    waits: list[int] = []  # of each successful request
    primary = retries = dropped = 0

    for t in range(cell.rounds):
        pending_at.append(pending)
        inside = cell.fault_start <= t < cell.fault_end
        capacity = cell.fault_capacity if inside else cell.capacity

        old = due.pop(t, [])
        new = [Call(t, j, 0) for j in range(draws.arrivals(t))]
        pending -= len(old)
        requests_in.append(len(new))
        calls_in.append(len(old) + len(new))

        for position, call in enumerate(old + new):
            if call.attempt == 0:
                primary += 1
            else:
                retries += 1
            served = position < capacity
            if served and not draws.fails(call):
                waits.append(t - call.arrival)
            elif call.attempt + 1 < max_attempts and draws.within_budget(retries, primary):
                retry = call._replace(attempt=call.attempt + 1)
                due.setdefault(t + draws.wait(call), []).append(retry)
                pending += 1
            else:
                dropped += 1
    pending_at.append(pending)  # the end of the run is the beginning of round `rounds`

    window = slice(cell.fault_start, cell.fault_end)
    has_after = cell.fault_rounds > 0 and cell.fault_end < cell.rounds
    calm = [d for d, n in enumerate(pending_at[cell.fault_end :]) if n == 0]
    return {
        "requests": sum(requests_in),
        "window_requests": sum(requests_in[window]),
        "calls": sum(calls_in),
        "primary": primary,
        "retries": retries,
        "successful": len(waits),
        "dropped": dropped,
        "in_flight": pending,
        "peak": max(calls_in),
        "window_calls": sum(calls_in[window]),
        "second_peak": max(calls_in[cell.fault_end :]) if has_after else None,
        "wait_total": sum(waits),
        "wait_max": max(waits, default=0),
        "late": sum(wait > cell.threshold for wait in waits),
        "drain": calm[0] if has_after and calm else None,
    }


# The lesson's generator: one stream for everything -------------------------------------------

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

WORD: Final = 2**32
ARRIVALS, SERVICE, JITTER = 1, 2, 3


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four words of one block of Philox4x32-10.

    Notes
    -----
    Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section
    3.3; multipliers and key increments as in Random123's philox.h.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, WORD)
        high1, low1 = divmod(0xCD9E8D57 * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + 0x9E3779B9) % WORD
        k1 = (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


def arrivals_word(seed: int, replication: int, t: int) -> int:
    """Return the 64-bit uniform of the arrivals in round `t`; a block serves two rounds."""
    words = philox((t // 2, 0, replication, ARRIVALS), _key(seed))
    high, low = words[2:] if t % 2 else words[:2]
    return high * WORD + low


def service_word(seed: int, replication: int, call: Call) -> int:
    """Return the 32-bit uniform that decides whether a served call fails."""
    purpose = SERVICE + 4 * call.attempt
    words = philox((call.arrival, call.j // 4, replication, purpose), _key(seed))
    return words[call.j % 4]


def jitter_word(seed: int, replication: int, call: Call) -> int:
    """Return the 32-bit uniform of the wait after a failed call."""
    purpose = JITTER + 4 * (call.attempt // 4)
    words = philox((call.arrival, call.j, replication, purpose), _key(seed))
    return words[call.attempt % 4]


def _key(seed: int) -> tuple[int, int]:
    return seed % WORD, seed // WORD


@lru_cache(maxsize=1024)
def poisson_table(rate: float) -> tuple[int, ...]:
    """Return floor(2**64 * P(N <= k)) for k = 0, 1, ... up to the first 2**64 - 1.

    `rate` is the double, taken exactly. The table is empty for a rate of 0.
    """
    if rate == 0:
        return ()
    table: list[int] = []
    with localcontext(prec=100):
        mean = Decimal(rate)
        term = (-mean).exp()
        below = term
        while not table or table[-1] < 2**64 - 1:
            table.append(min(int(below * 2**64), 2**64 - 1))
            term = term * mean / len(table)
            below += term
    return tuple(table)


def philox_draws(cell: Parameters, seed: int, replication: int) -> Draws:
    """Draw from Philox under the key `seed`, each draw by its purpose."""
    table = poisson_table(cell.rate_per_round)
    fails_below = round(cell.failure_rate * WORD)
    exact_budget = None if cell.budget is None else Fraction(repr(cell.budget))

    def arrivals(t: int) -> int:
        uniform = arrivals_word(seed, replication, t)
        return sum(uniform >= step for step in table)

    def fails(call: Call) -> bool:
        return service_word(seed, replication, call) < fails_below

    def wait(call: Call) -> int:
        ceiling = round(cell.ceiling(call.attempt) * WORD)
        return 1 + jitter_word(seed, replication, call) * ceiling // 2**64

    def within_budget(retries: int, primary: int) -> bool:
        return exact_budget is None or retries <= exact_budget * primary

    return Draws(arrivals, fails, wait, within_budget)
