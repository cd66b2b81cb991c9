"""The parameters of one grid point, checked and hashed.

Each parameter is declared once, as a field of `Cell`: its kind (with the range), default, unit and
meaning. Checks, columns, help texts, messages and the schema of experiment files all read
`PARAMETERS`, which is made of these declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from mc.model.parameters import Parameter, declare, layers, or_none, real, whole

Generator = Literal["philox", "lesson"]

MAX_REQUESTS: Final = 10_000_000
"""Most requests a replication may expect: an entry of the timing wheel has 24 bits for one."""

MAX_ATTEMPTS: Final = 65_536
"""Most attempts of one request: an entry of the timing wheel has 16 bits for the number."""

MAX_CALLS: Final = 2_000_000_000
"""Most calls a replication may make: the kernel's limits of a budget have 32 bits."""

MAX_RATE: Final = 700.0
"""Most arrivals per round: beyond, the lesson's `exp(-rate)` leaves the normal doubles."""


INT32_MAX: Final = 2**31 - 1

_COUNT: Final = whole(0, INT32_MAX)
_CALLS: Final = whole(
    0, INT32_MAX, if_fraction="a fraction needs longer rounds: fewer rounds_per_second"
)


@dataclass(frozen=True)
class Cell:
    """The parameters of one grid point; the defaults are the lesson's.

    Immutable and hashable; two cells are equal when all their parameters are. Every parameter
    is checked on construction and brought to its own type (8 and 8.0 are the same
    `backoff_cap`). Its fields are the parameters, see `PARAMETERS`.

    Raises
    ------
    ValueError
        Every fault of the parameters, a line each.

    Examples
    --------
    >>> Cell(fault_rounds=100, tries=(3, 3, 3), budget=0.3).max_attempts
    27
    """

    rounds: int = declare(whole(1, 4_000_000), 4000, "rounds", "length of a replication")
    rounds_per_second: float = declare(real(0, low_open=True), 100.0, "1/s", "rounds in one second")
    arrivals_per_second: float = declare(
        real(0), 97.22, "requests/s", "mean of the Poisson arrivals"
    )
    capacity: int = declare(_CALLS, 6, "calls/round", "calls served in a round")
    fault_start: int = declare(_COUNT, 500, "rounds", "first round of the fault window")
    fault_rounds: int = declare(_COUNT, 0, "rounds", "length of the fault window; 0 means no fault")
    fault_capacity: int = declare(
        _CALLS, 0, "calls/round", "calls served in a round of the fault window"
    )
    failure_rate: float = declare(
        real(0, 1), 0.0, "probability", "chance that a served call fails all the same"
    )
    tries: tuple[int, ...] = declare(
        layers(1, MAX_ATTEMPTS), (1,), "attempts", "attempts of each layer; their product counts"
    )
    # after attempt n the wait is drawn below min(backoff_cap, backoff_base * 2**n)
    backoff_base: float = declare(
        real(0, INT32_MAX), 2.0, "rounds", "backoff ceiling after the first attempt"
    )
    backoff_cap: float = declare(
        real(0, INT32_MAX), 32.0, "rounds", "upper limit of the backoff ceiling"
    )
    budget: float | None = declare(
        or_none(real(0, 1e6)), None, "retries/primary", "retries allowed per primary call, or none"
    )
    threshold: int = declare(_COUNT, 20, "rounds", "a success that waited longer counts as late")

    def __post_init__(self) -> None:
        faults = []
        for name, value in self.parameters.items():
            try:
                canonical = parse_parameter(name, value)
            except ValueError as error:
                faults.append(str(error))
            else:
                if canonical is not value:
                    object.__setattr__(self, name, canonical)
        faults = faults or list(conflicts(self.parameters))
        if faults:
            raise ValueError("\n".join(f"Cell: {fault}" for fault in faults))

    @classmethod
    def from_checked(cls, parameters: Mapping[str, Any]) -> Self:
        """Make a cell without checking it: of canonical values that have no `conflicts`."""
        cell = object.__new__(cls)
        for name, value in parameters.items():
            object.__setattr__(cell, name, value)
        return cell

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


PARAMETERS: Final[dict[str, Parameter]] = {
    entry.name: entry.metadata["parameter"] for entry in dataclasses.fields(Cell)
}
"""Every parameter by name: the fields of `Cell`."""

_ATTRIBUTES: Final = "".join(
    f"    {entry.name} : {entry.type}\n        {PARAMETERS[entry.name].description}.\n"
    for entry in dataclasses.fields(Cell)
)
if Cell.__doc__:  # `python -OO` strips it
    Cell.__doc__ = Cell.__doc__.replace(
        "    Raises\n", f"    Attributes\n    ----------\n{_ATTRIBUTES}\n    Raises\n"
    )


def parse_parameter(name: str, value: object) -> Any:
    """Bring one parameter to its canonical form: 8 and 8.0 are one `backoff_cap`.

    Raises
    ------
    ValueError
        For example ``budget must be none or a number >= 0 and <= 1000000, got -0.3``.
    """
    if value is None or isinstance(value, int | float | str):
        return _parse_remembered(name, value)
    return _parse(name, value)


def _parse(name: str, value: object) -> Any:
    try:
        return PARAMETERS[name].kind.parse(value)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


# the cells of a grid have most values in common; 1, 1.0 and True are equal, but not all allowed
_parse_remembered = functools.lru_cache(maxsize=4096, typed=True)(_parse)


def conflicts(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which parameters cannot stand together, though each (in canonical form) is in range."""
    return _conflicts(
        parameters["rounds"],
        parameters["arrivals_per_second"] / parameters["rounds_per_second"],
        math.prod(parameters["tries"]),
    )


@functools.lru_cache(maxsize=4096)
def _conflicts(n_rounds: int, rate: float, max_attempts: int) -> tuple[str, ...]:
    faults = []
    n_requests = rate * n_rounds
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
    return tuple(faults)
