"""The parameters of one grid point, checked and hashed.

`PARAMETERS` is the single source of their names, types, defaults, ranges, units and meanings:
checks, columns, help texts and error messages are all read from it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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


INT32_MAX: Final = 2**31 - 1

PARAMETERS: Final[dict[str, Parameter]] = {
    "rounds": Parameter("int", 4000, 1, 4_000_000, "rounds", "length of a replication"),
    "rounds_per_second": Parameter(
        "float", 100.0, 0.0, math.inf, "1/s", "rounds in one second", low_open=True
    ),
    "arrivals_per_second": Parameter(
        "float", 97.22, 0.0, math.inf, "requests/s", "mean of the Poisson arrivals"
    ),
    "capacity": Parameter("int", 6, 0, INT32_MAX, "calls/round", "calls served in a round"),
    "fault_start": Parameter("int", 500, 0, INT32_MAX, "rounds", "first round of the fault window"),
    "fault_rounds": Parameter(
        "int", 0, 0, INT32_MAX, "rounds", "length of the fault window; 0 means no fault"
    ),
    "fault_capacity": Parameter(
        "int", 0, 0, INT32_MAX, "calls/round", "calls served in a round of the fault window"
    ),
    "failure_rate": Parameter(
        "float", 0.0, 0.0, 1.0, "probability", "chance that a served call fails all the same"
    ),
    "tries": Parameter(
        "tries", (1,), 1, MAX_ATTEMPTS, "attempts", "attempts of each layer; their product counts"
    ),
    "backoff_base": Parameter(
        "float", 2.0, 0.0, INT32_MAX, "rounds", "backoff ceiling after the first attempt"
    ),
    "backoff_cap": Parameter(
        "float", 32.0, 0.0, INT32_MAX, "rounds", "upper limit of the backoff ceiling"
    ),
    "budget": Parameter(
        "budget", None, 0.0, 1e6, "retries/primary", "retries allowed per primary call, or none"
    ),
    "threshold": Parameter(
        "int", 20, 0, INT32_MAX, "rounds", "a success that waited longer counts as late"
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
