"""One grid point of the experiment, checked and hashed, and the tables the kernel reads.

A `Cell` holds the parameters of one grid point. `PARAMETERS` is the single source of their
names, types, defaults, ranges, units and meanings: checks, columns, help texts and error
messages are all read from it.
"""

from __future__ import annotations

import decimal
import functools
import hashlib
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:  # numpy takes a tenth of a second, which `--help` does not have
    import numpy as np
    from numpy.typing import NDArray

    from mc.kernel import CellTables

Generator = Literal["philox", "lesson"]
Kind = Literal["int", "float", "tries", "budget"]

MAX_REQUESTS: Final = 10_000_000
"""Most requests a replication may expect: an entry of the timing wheel has 24 bits for one."""

MAX_ATTEMPTS: Final = 65_536
"""Most attempts of one request: an entry of the timing wheel has 16 bits for the number."""

MAX_CALLS: Final = 2_000_000_000
"""Most calls a replication may make: the kernel's limits of a budget have 32 bits."""

MAX_RATE: Final = 700.0
"""Most arrivals per round: beyond, the lesson's `exp(-rate)` leaves the normal doubles."""


MEANINGS: Final[dict[str, tuple[str, str]]] = {  # unit ("" for a pure number) and meaning
    "requests": ("requests", "requests that arrived"),
    "window_requests": ("requests", "requests that arrived inside the fault window"),
    "calls": ("calls", "calls made, first attempts and retries"),
    "primary": ("calls", "first attempts"),
    "retries": ("calls", "all other attempts"),
    "successful": ("requests", "requests with a call that succeeded"),
    "dropped": ("requests", "requests given up"),
    "in_flight": ("requests", "requests undecided when the run ended"),
    "peak": ("calls/round", "most calls in one round"),
    "window_calls": ("calls", "calls inside the fault window"),
    "second_peak": ("calls/round", "most calls in one round after the fault window"),
    "wait_total": ("rounds", "waits from arrival to success, summed over requests"),
    "wait_max": ("rounds", "longest wait from arrival to success"),
    "late": ("requests", "successes that waited more than `threshold` rounds"),
    "drain": ("rounds", "from the end of the fault window until no retry was pending"),
    "multiplier": ("calls/request", "calls per request"),
    "window_rate": ("calls/round", "calls per round of the fault window"),
    "times_usual": ("", "calls per round of the fault window, over the arrivals per round"),
    "wait_mean": ("rounds", "wait from arrival to success, per successful request"),
}
"""Every number of a replication: the counters in the kernel's order, then the ratios."""

RATIOS: Final = ("multiplier", "window_rate", "times_usual", "wait_mean")
"""What is computed from the counters, never stored in their place."""

COUNTERS: Final = tuple(name for name in MEANINGS if name not in RATIOS)
"""What is counted in a replication, in the kernel's order."""


@dataclass(frozen=True)
class Parameter:
    """What one parameter of a cell may be, in which unit, and what it means.

    Attributes
    ----------
    kind : {"int", "float", "tries", "budget"}
        `tries` is a tuple of whole numbers, `budget` a float or None.
    default : int, float, tuple of int or None
        The lesson's value.
    low, high : float
        Inclusive bounds (of each entry, for `tries`).
    unit, meaning : str
        For columns, help and the manifest.
    low_open : bool
        True where `low` itself is excluded.
    """

    kind: Kind
    default: Any
    low: float
    high: float
    unit: str
    meaning: str
    low_open: bool = False

    @property
    def rule(self) -> str:
        """The range in words, as an error message says it."""
        what = {
            "int": "a whole number",
            "float": "a number",
            "tries": "a list of whole numbers, each",
            "budget": "none or a number",
        }[self.kind]
        low = f"{'>' if self.low_open else '>='} {self.low:g}"
        return f"{what} {low}" + (f" and <= {_plain(self.high)}" if self.high < math.inf else "")


def _plain(x: float) -> str:
    return str(int(x)) if float(x).is_integer() else repr(x)


_INT32: Final = 2**31 - 1

PARAMETERS: Final[dict[str, Parameter]] = {
    "rounds": Parameter("int", 4000, 1, 4_000_000, "rounds", "length of a replication"),
    "rounds_per_second": Parameter(
        "float", 100.0, 0.0, math.inf, "1/s", "rounds in one second", low_open=True
    ),
    "arrivals_per_second": Parameter(
        "float", 97.22, 0.0, math.inf, "requests/s", "mean of the Poisson arrivals"
    ),
    "capacity": Parameter("int", 6, 0, _INT32, "calls/round", "calls served in a round"),
    "fault_start": Parameter("int", 500, 0, _INT32, "rounds", "first round of the fault window"),
    "fault_rounds": Parameter(
        "int", 0, 0, _INT32, "rounds", "length of the fault window; 0 means no fault"
    ),
    "fault_capacity": Parameter(
        "int", 0, 0, _INT32, "calls/round", "calls served in a round of the fault window"
    ),
    "failure_rate": Parameter(
        "float", 0.0, 0.0, 1.0, "probability", "chance that a served call fails all the same"
    ),
    "tries": Parameter(
        "tries", (1,), 1, MAX_ATTEMPTS, "attempts", "attempts of each layer; their product counts"
    ),
    "backoff_base": Parameter(
        "float", 2.0, 0.0, _INT32, "rounds", "backoff ceiling after the first attempt"
    ),
    "backoff_cap": Parameter(
        "float", 32.0, 0.0, _INT32, "rounds", "upper limit of the backoff ceiling"
    ),
    "budget": Parameter(
        "budget", None, 0.0, 1e6, "retries/primary", "retries allowed per primary call, or none"
    ),
    "threshold": Parameter(
        "int", 20, 0, _INT32, "rounds", "a success that waited longer counts as late"
    ),
}


def check_parameter(name: str, value: object) -> tuple[Any, str | None]:
    """Bring one parameter to its own type, or say what is wrong with it.

    Parameters
    ----------
    name : str
        A key of `PARAMETERS`.
    value : object
        What the user gave.

    Returns
    -------
    value : int, float, tuple of int or None
        The value in the parameter's type; None where there is a fault.
    fault : str or None
        For example ``budget must be none or a number >= 0 and <= 1000000, got -0.3``.
    """
    parameter = PARAMETERS[name]
    if name == "tries" and type(value) is int:
        value = [value]  # one layer
    if parameter.kind == "budget" and (value is None or value == "none"):
        return None, None
    if parameter.kind != "tries":
        number = _number_inside(parameter, value)
        if number is not None:
            return number, None
    elif isinstance(value, list | tuple) and value:
        entries = [_number_inside(parameter, entry) for entry in value]
        if None not in entries:
            return tuple(entries), None
    fault = f"{name} must be {parameter.rule}, got {value!r}"
    number = _number(value, whole=False)
    if name in ("capacity", "fault_capacity") and number is not None and number % 1:
        fault += "; a fraction needs longer rounds: fewer rounds_per_second"
    return None, fault


def _checked(name: str, value: object) -> tuple[Any, str | None]:
    """`check_parameter`, remembered: the cells of a grid have most values in common."""
    if (isinstance(value, int | float | str) and value) or value is None:  # 0.0 equals -0.0
        return _remembered(name, value)
    return check_parameter(name, value)


# 1, 1.0 and True are equal, and not all of them are allowed
_remembered = functools.lru_cache(maxsize=4096, typed=True)(check_parameter)


def _number_inside(parameter: Parameter, value: object) -> float | int | None:
    number = _number(value, whole=parameter.kind in ("int", "tries"))
    return number if number is not None and _inside(parameter, number) else None


def _number(value: object, *, whole: bool) -> float | int | None:
    """The value as an int (`whole`) or float; None if it is not one."""
    # numpy's numbers are registered as such, its truth values are not; Python's own stand first,
    # because a search in the register takes ten times as long
    if isinstance(value, bool) or not isinstance(value, (float, int, numbers.Real)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    if not whole:
        return number + 0.0  # -0.0 becomes 0.0: one identity for one cell
    return int(number) if number.is_integer() else None


def _inside(parameter: Parameter, number: float) -> bool:
    above = number > parameter.low if parameter.low_open else number >= parameter.low
    return above and number <= parameter.high


@dataclass(frozen=True)
class Cell:
    """The parameters of one grid point; the defaults are the lesson's.

    Immutable and hashable; two cells are equal when all their parameters are. Every parameter
    is checked on construction and brought to its own type (8 and 8.0 are the same
    `backoff_cap`). See `PARAMETERS` for ranges and units.

    Attributes
    ----------
    rounds : int
        Length of a replication, rounds.
    rounds_per_second : float
        Rounds in one second.
    arrivals_per_second : float
        Mean of the Poisson arrivals, requests per second.
    capacity : int
        Calls served in a round.
    fault_start, fault_rounds : int
        First round and length of the fault window; a length of 0 means no fault.
    fault_capacity : int
        Calls served in a round of the fault window.
    failure_rate : float
        Probability that a served call fails all the same.
    tries : tuple of int
        Attempts of each layer, the first included.
    backoff_base, backoff_cap : float
        After attempt n the wait is drawn below ``min(backoff_cap, backoff_base * 2**n)`` rounds.
    budget : float or None
        Retries allowed per primary call, counted from round 0.
    threshold : int
        A success that waited more rounds than this counts as late.

    Raises
    ------
    ValueError
        Every fault of the parameters, a line each.

    Examples
    --------
    >>> Cell(fault_rounds=100, tries=(3, 3, 3), budget=0.3).max_attempts
    27
    """

    rounds: int = PARAMETERS["rounds"].default
    rounds_per_second: float = PARAMETERS["rounds_per_second"].default
    arrivals_per_second: float = PARAMETERS["arrivals_per_second"].default
    capacity: int = PARAMETERS["capacity"].default
    fault_start: int = PARAMETERS["fault_start"].default
    fault_rounds: int = PARAMETERS["fault_rounds"].default
    fault_capacity: int = PARAMETERS["fault_capacity"].default
    failure_rate: float = PARAMETERS["failure_rate"].default
    tries: tuple[int, ...] = field(default=PARAMETERS["tries"].default)
    backoff_base: float = PARAMETERS["backoff_base"].default
    backoff_cap: float = PARAMETERS["backoff_cap"].default
    budget: float | None = PARAMETERS["budget"].default
    threshold: int = PARAMETERS["threshold"].default

    def __post_init__(self) -> None:
        given = self.parameters
        checked = {name: _checked(name, value) for name, value in given.items()}
        faults = [fault for _, fault in checked.values() if fault is not None]
        if not faults:
            for name, (value, _) in checked.items():
                if value is not given[name]:
                    object.__setattr__(self, name, value)
            faults = check_together(self.parameters)
        if faults:
            raise ValueError("\n".join(f"Cell: {fault}" for fault in faults))

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by name."""
        return {name: getattr(self, name) for name in PARAMETERS}

    @property
    def max_attempts(self) -> int:
        """Most attempts of one request: the product of `tries` over the layers."""
        return math.prod(self.tries)

    @property
    def rate_per_round(self) -> float:
        """Mean arrivals per round."""
        return self.arrivals_per_second / self.rounds_per_second

    def ceiling(self, attempt: int) -> float:
        """Backoff ceiling after attempt number `attempt`, in rounds."""
        try:
            return min(self.backoff_cap, math.ldexp(self.backoff_base, attempt))
        except OverflowError:
            return self.backoff_cap

    @functools.cached_property
    def longest_wait(self) -> int:
        """Most rounds between a request's arrival and its last attempt.

        Lesson: the published figure for 27 attempts, 793 rounds, adds a wait after every one of
        the 27 and takes each as ``1 + ceiling``. The last attempt is followed by none, and the
        draw lies below the ceiling, so a wait is at most ``ceil(ceiling)`` rounds: 734.
        """
        n_waits = self.max_attempts - 1
        total, n = 0, 0
        while n < n_waits and self.backoff_base > 0 and self.ceiling(n) < self.backoff_cap:
            total += max(1, math.ceil(self.ceiling(n)))
            n += 1
        return total + (n_waits - n) * max(1, math.ceil(self.ceiling(n)))

    @functools.cached_property
    def identity(self) -> str:
        """A name of the cell that depends on its parameters alone: 16 hexadecimal digits.

        Parameters at their default are left out, so a later version with a further parameter
        gives the same name to the same cell.
        """
        chosen = {
            name: value
            for name, value in self.parameters.items()
            if value != PARAMETERS[name].default
        }
        text = json.dumps(chosen, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_together(parameters: Mapping[str, Any]) -> list[str]:
    """Faults of parameters that are each in range but cannot stand together."""
    faults = []
    rate = parameters["arrivals_per_second"] / parameters["rounds_per_second"]
    max_attempts = math.prod(parameters["tries"])
    n_requests = rate * parameters["rounds"]
    if rate > MAX_RATE:
        faults.append(
            f"arrivals_per_second / rounds_per_second must be <= {MAX_RATE:g} per round, "
            f"got {rate:g}; use more rounds per second"
        )
    if n_requests > MAX_REQUESTS:
        faults.append(
            f"rounds * arrivals per round must be <= {MAX_REQUESTS} requests, got {n_requests:.0f}"
        )
    if max_attempts > MAX_ATTEMPTS:
        faults.append(f"the product of tries must be <= {MAX_ATTEMPTS}, got {max_attempts}")
    elif n_requests * max_attempts > MAX_CALLS:
        faults.append(
            f"rounds * arrivals per round * product of tries must be <= {MAX_CALLS} calls, "
            f"got {n_requests * max_attempts:.0f}"
        )
    return faults


# --- the tables the kernel reads -----------------------------------------------------------------


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

    n_rounds = cells[0].rounds
    n_requests = _room_for_requests(cells[0])
    most_attempts = max(cell.max_attempts for cell in cells)

    profile_rows: dict[tuple[Any, ...], int] = {}
    ceiling_rows: dict[tuple[float, float], int] = {}
    limit_rows: dict[float | None, int] = {}
    scalars = np.empty((len(cells), 6), np.int64)
    for row, cell in zip(scalars, cells, strict=True):
        profile = (
            *(cell.capacity, cell.fault_capacity, cell.fault_start, cell.fault_rounds),
            cell.failure_rate,
        )
        row[:] = (
            profile_rows.setdefault(profile, len(profile_rows)),
            ceiling_rows.setdefault((cell.backoff_base, cell.backoff_cap), len(ceiling_rows)),
            cell.max_attempts,
            limit_rows.setdefault(cell.budget, len(limit_rows)),
            0 if cell.budget is None else -1,
            cell.threshold,
        )

    capacities = np.empty((len(profile_rows), n_rounds), np.int32)
    profiles = np.empty((len(profile_rows), 3), np.int64)
    for profile, p in profile_rows.items():
        capacity, fault_capacity, fault_start, fault_rounds, failure_rate = profile
        start = min(fault_start, n_rounds)
        end = min(fault_start + fault_rounds, n_rounds)
        capacities[p] = capacity
        capacities[p, start:end] = fault_capacity
        profiles[p] = (start, end, round(failure_rate * 2**32))

    n_ceilings = max(most_attempts - 1, 1)
    exact = generator == "philox"
    ceilings = np.empty((len(ceiling_rows), n_ceilings), np.uint64 if exact else np.float64)
    for (base, cap), b in ceiling_rows.items():
        cell = Cell(backoff_base=base, backoff_cap=cap)
        rising = [cell.ceiling(n) for n in range(min(n_ceilings, _N_RISING))]
        ceilings[b] = rising[-1] if not exact else round(math.ldexp(rising[-1], 32))
        ceilings[b, : len(rising)] = [round(math.ldexp(x, 32)) for x in rising] if exact else rising

    limits = np.empty((len(limit_rows), n_requests + 1), np.int32)
    for budget, row_of_limits in limit_rows.items():
        limits[row_of_limits] = _retry_limits(budget, n_requests + 1, exact=exact)

    longest = max(
        math.ceil(cell.ceiling(cell.max_attempts - 2)) if cell.max_attempts > 1 else 1
        for cell in cells
    )
    rate = cells[0].rate_per_round
    thresholds, guide = arrival_thresholds(rate if exact else 0.0)
    return CellTables(
        n_rounds=n_rounds,
        thresholds=thresholds,
        guide=guide,
        exp_rate=math.exp(-rate),
        failure_rate=cells[0].failure_rate,
        service_drawn=cells[0].fault_rounds == 0,
        capacities=capacities,
        profiles=profiles,
        scalars=scalars,
        ceilings=ceilings,
        limits=limits,
        n_requests=n_requests,
        ahead=_rounds_drawn_ahead(cells),
        wheel_size=1 << min(max(longest, 1), n_rounds).bit_length(),
    )


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
    return 8 * cell.rounds + 4 * _room_for_requests(cell) + 8 * cell.max_attempts


def _retry_limits(budget: float | None, n: int, *, exact: bool) -> NDArray[np.int64]:
    """Most retries allowed beside 0 .. n-1 primary calls, capped at what a counter can hold."""
    import numpy as np

    if budget is None:
        return np.full(n, _INT32)
    primary = np.arange(n, dtype=np.int64)
    if not exact:
        # Lesson: the product is a double, which for some budgets (0.29, 0.35, 0.7) falls short
        return np.array(np.floor(budget * primary).clip(max=_INT32), np.int64)
    ratio = Fraction(repr(budget))
    if ratio.numerator * n < 2**63 and ratio.denominator < 2**63:
        return np.array((ratio.numerator * primary // ratio.denominator).clip(max=_INT32))
    return np.array([min(ratio.numerator * p // ratio.denominator, _INT32) for p in range(n)])


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
