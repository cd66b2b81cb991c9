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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, get_args

from mc.model import breakers, budgets, faults, traffic, units, waits
from mc.model.breakers import Breaker, Resilience4j
from mc.model.budgets import Budget, Ratio, Sre
from mc.model.faults import Fault
from mc.model.parameters import (
    INT32_MAX,
    EntryError,
    Parameter,
    amount,
    declare,
    layers,
    one_of,
    or_none,
    per_layer,
    real,
    truth,
    whole,
)
from mc.model.settings import Settings, is_range
from mc.model.traffic import MAX_ROUNDS, Arrivals, Traffic
from mc.model.waits import Backoff, Jitter, Layer

Generator = Literal["philox", "lesson"]

MAX_REQUESTS: Final = 10_000_000
"""Most requests a replication may expect: an entry of the timing wheel has 24 bits for one."""

MAX_ATTEMPTS: Final = 65_536
"""Most attempts of one request: an entry of the timing wheel has 16 bits for the number."""

MAX_CALLS: Final = 2_000_000_000
"""Most calls a replication may make: the kernel's limits of a budget have 32 bits."""

MAX_LAYERS: Final = 8
"""Most layers of a nested chain: the calls of each are counted."""

MAX_QUEUE: Final = 10_000_000
"""Most calls that may wait: each takes 40 bytes."""

MAX_RATE: Final = 700.0
"""Most arrivals per round with the lesson's generator: beyond, its `exp(-rate)` leaves the normal
doubles."""

MAX_CLIENTS: Final = 10_000
"""Most clients: what each remembers is made anew for every row."""

MAX_REMEMBERED: Final = 4_000_000
"""Most rounds, or outcomes, that all clients of a cell remember together: of each 8 bytes, 4 times
for a budget."""

_COUNT: Final = whole(0, INT32_MAX)
_CALLS: Final = amount(0, INT32_MAX)
_ROUNDS: Final = per_layer(real(0, INT32_MAX))


_AS_JSON: Final = json.JSONEncoder(sort_keys=True, default=lambda settings: settings.table)


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

    rounds: int = declare(whole(1, MAX_ROUNDS), 4000, "rounds", "length of a replication")
    rounds_per_second: float = declare(real(0, low_open=True), 100.0, "1/s", "rounds in one second")
    arrivals_per_second: float = declare(
        real(0),
        97.22,
        "requests/s",
        "mean of the Poisson arrivals; 0 by default where `traffic` has rates, counts or workers",
        depends=True,
    )
    # within a round the open traffic comes first, then bursts, then workers; what stands beside the
    # open traffic does not change its luck. Numbers made of the arrivals have their mean:
    # `times_usual` divides by the requests that arrive in the fault window on average, which are
    # not known in a closed loop
    traffic: Traffic | None = declare(
        or_none(traffic.kind()),
        None,
        "",
        "rates over time, counts, bursts or workers, as a table; none: constant Poisson arrivals",
    )
    # round k of a phase (before, in, after the fault) serves floor((k + 1) c) - floor(k c) calls
    capacity: float = declare(_CALLS, 6, "calls/round", "calls served in a round")
    fault_start: int = declare(_COUNT, 500, "rounds", "first round of the fault window")
    fault_rounds: int = declare(_COUNT, 0, "rounds", "length of the fault window; 0 means no fault")
    fault_capacity: float = declare(
        _CALLS, 0, "calls/round", "calls served in a round of the fault window"
    )
    failure_rate: float = declare(
        real(0, 1), 0.0, "probability", "chance that a served call fails all the same"
    )
    fault_failure_rate: float | None = declare(
        or_none(real(0, 1)),
        None,
        "probability",
        "chance that a served call fails in the fault window, or none: failure_rate",
    )
    faults: tuple[Fault, ...] = declare(
        faults.kind(),
        (),
        "",
        "faults one after the other, in place of fault_start, fault_rounds, fault_capacity and "
        "fault_failure_rate; the fault window goes from the first to the last",
    )
    queue: int = declare(
        whole(0, MAX_QUEUE),
        0,
        "calls",
        "calls that may wait until they are served, first come, first served; others fail at once",
    )
    # a call that came in round s times out at the end of round s + timeout - 1
    timeout: int | None = declare(
        or_none(whole(1, INT32_MAX)),
        None,
        "rounds",
        "how long a call may wait until its caller counts it as failed, or none",
    )
    cancel: bool = declare(
        truth(),
        False,
        "",
        "whether a call leaves the queue when its caller gives it up; if not, it is served in vain",
    )
    tries: tuple[int, ...] = declare(
        layers(1, MAX_ATTEMPTS),
        (1,),
        "attempts",
        "attempts of each layer at each call that it receives, the first included",
    )
    chain: Literal["nested", "flattened"] = declare(
        one_of("nested", "flattened"),
        "nested",
        "",
        "nested: each layer knows its own calls only; flattened: one layer with the product of "
        "tries",
    )
    # after its attempt n a layer's ceiling is e = min(cap, base * factor**n)
    backoff_base: float | tuple[float, ...] = declare(
        _ROUNDS, 2.0, "rounds", "backoff ceiling after a layer's first attempt"
    )
    backoff_factor: float | tuple[float, ...] = declare(
        per_layer(real(1)), 2.0, "", "growth of the backoff ceiling with each attempt of a layer"
    )
    backoff_cap: float | tuple[float, ...] = declare(
        _ROUNDS, 32.0, "rounds", "upper limit of the backoff ceiling"
    )
    # the retry runs max(1, ceil(x)) rounds after the failed attempt; with u uniform on [0, 1) the
    # delay x is u e (full), e/2 + u e/2 (equal), e (none), e (1 - s + 2 s u) (plus_minus),
    # min(cap, base + u (max(base, 3 x') - base)), x' the one before (decorrelated), or by the curve
    # of Polly's DecorrelatedJitterBackoffV2 (polly)
    jitter: str = declare(
        one_of(*get_args(Jitter)),
        "full",
        "",
        "how a delay is drawn from its ceiling, or (decorrelated, polly) from the delay before",
    )
    jitter_share: float = declare(
        real(0, 1), 0.2, "share", "with plus_minus: by which share of the ceiling a delay varies"
    )
    first_wait: float | None = declare(
        or_none(real(0, INT32_MAX)),
        None,
        "rounds",
        "delay before a layer's first retry of a call (0: in the next round), or none: drawn",
    )
    # a retry that would run later is not scheduled; a layer's time runs from the first attempt of
    # what it received, and its caller decides when it is over
    deadline: int | tuple[int | None, ...] | None = declare(
        per_layer(or_none(_COUNT)),
        None,
        "rounds",
        "after which a request is given up and not retried any more, or none; a list: after which "
        "each layer gives up a call that it received",
    )
    # a number: retries <= budget * primary, both counted when they run, from round 0; primary are
    # the first calls of requests, or the calls that a layer receives
    budget: float | Budget | tuple[float | Budget | None, ...] | None = declare(
        per_layer(or_none(budgets.kind())),
        None,
        "retries/primary",
        "retries allowed per primary call, a library's budget as a table, or none",
    )
    budget_scope: Literal["chain", "layer"] = declare(
        one_of("chain", "layer"),
        "chain",
        "",
        "chain: one budget before the dependency; layer: each layer its own, for the calls that it "
        "receives",
    )
    breaker: Breaker | None = declare(
        or_none(breakers.kind()),
        None,
        "",
        "what rejects calls before the dependency when too many fail, or none",
    )
    clients: int = declare(
        whole(1, MAX_CLIENTS),
        1,
        "clients",
        "to which requests belong at random, each with budgets and a breaker of its own",
    )
    threshold: int = declare(_COUNT, 20, "rounds", "a success that waited longer counts as late")

    def __post_init__(self) -> None:
        faults = []
        if self.parameters["arrivals_per_second"] is ...:
            object.__setattr__(self, "arrivals_per_second", default_arrivals(self.traffic))
        for name, value in self.parameters.items():
            try:
                canonical = parse_parameter(name, self._as_number(name, value))
            except ValueError as error:
                faults.append(str(error))
            else:
                if canonical is not value:
                    object.__setattr__(self, name, canonical)
        faults = faults or list(conflicts(self.parameters))
        if faults:
            raise ValueError("\n".join(f"Cell: {fault}" for fault in faults))

    def _as_number(self, name: str, value: object) -> object:
        """Replace texts with units, for which the length of a round must be known."""
        readable = (str, Mapping, Settings)
        has_text = isinstance(value, readable) or (
            isinstance(value, list | tuple) and any(isinstance(entry, readable) for entry in value)
        )
        per_second = self.rounds_per_second
        if not has_text or not PARAMETERS["rounds_per_second"].kind.accepts(per_second):
            return value
        return as_number(name, value, per_second)

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
        """Mean of the constant arrivals per round, those of `traffic` not included."""
        return self.arrivals_per_second / self.rounds_per_second

    @property
    def arrivals(self) -> Arrivals | None:
        """What arrives in each round; None where that is the constant rate alone."""
        if self.traffic is None:
            return None
        return traffic.arrivals_of(self.traffic, self.rate_per_round, self.rounds)

    @property
    def is_closed(self) -> bool:
        """Whether it has workers, whose requests follow the end of others."""
        return self.traffic is not None and self.traffic.workers is not None

    def requests_in(self, start: int, stop: int) -> float:
        """Requests that arrive on average in the rounds from `start` to before `stop`.

        Those of workers, which nobody knows before, are not among them.
        """
        return traffic.mean_requests(
            self.traffic, self.rate_per_round, self.rounds, max(start, 0), max(start, stop, 0)
        )

    @property
    def mean_requests(self) -> float | None:
        """Requests that arrive in a run on average; None in a closed loop."""
        return None if self.is_closed else self.requests_in(0, self.rounds)

    @property
    def mean_window_requests(self) -> float | None:
        """Requests that arrive in the fault window on average; None in a closed loop."""
        return None if self.is_closed else self.requests_in(*self.window)

    @functools.cached_property
    def all_faults(self) -> tuple[Fault, ...]:
        """The faults in order, however they are given."""
        if self.faults or self.fault_rounds == 0:
            return self.faults
        rate, capacity = self.fault_failure_rate, self.fault_capacity
        return (_fault(self.fault_start, self.fault_rounds, capacity, rate),)

    @functools.cached_property
    def window(self) -> tuple[int, int]:
        """The fault window: first round of the first fault, round after the last; (0, 0): none."""
        faults = self.all_faults
        return (faults[0].start, faults[-1].end) if faults else (0, 0)

    @property
    def can_fail(self) -> bool:
        """Whether a call that is served can fail."""
        return self.failure_rate > 0 or any(fault.failure_rate for fault in self.all_faults)

    @functools.cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that decide, the outermost first: a single one where they are flattened."""
        return _layers(
            self.tries,
            self.chain,
            self.deadline,
            self.budget,
            (self.backoff_base, self.backoff_factor, self.backoff_cap),
            (self.jitter, self.jitter_share, self.first_wait),
        )

    @functools.cached_property
    def longest_wait(self) -> int:
        """Most rounds between a request's arrival and its last attempt, where no call waits.

        Lesson: the published figure for 27 attempts, 793 rounds, adds a wait after every one of
        the 27 and takes each as ``1 + ceiling``. The last attempt is followed by none, and the
        draw lies below the ceiling, so a wait is at most ``ceil(ceiling)`` rounds: 734.
        """
        return waits.longest_life(self.layers)

    @property
    def longest_life(self) -> int | None:
        """Most rounds between a request's arrival and its end, its time-outs included.

        None where a call may wait in the queue without a limit.
        """
        if not self.queue:
            return self.longest_wait
        in_queue = INT32_MAX if self.timeout is None else self.timeout - 1
        longest = waits.longest_life(self.layers, in_queue)
        return None if self.timeout is None and longest >= INT32_MAX else longest

    @functools.cached_property
    def identity(self) -> str:
        """A name of the cell that depends on its parameters alone: 16 hexadecimal digits.

        Parameters at their default are left out, so a later version with a further parameter
        gives the same name to the same cell. `chain` has an old meaning as well as a default: it
        is left out where layers are flattened, as they all were before it was a parameter.
        """
        chosen = {
            name: value
            for name, parameter in PARAMETERS.items()
            if (value := getattr(self, name)) is not (usual := parameter.default) and value != usual
        }
        chosen.pop("chain", None)
        if self.chain == "nested" and len(self.tries) > 1:
            chosen["chain"] = self.chain
        return hashlib.sha256(_AS_JSON.encode(chosen).encode()).hexdigest()[:16]


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


def default_arrivals(traffic_given: object) -> float:
    """What `arrivals_per_second` is beside some traffic if nobody says it."""
    usual: float = PARAMETERS["arrivals_per_second"].default
    return traffic.usual_arrivals(traffic_given, usual)


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


def has_entries(name: str) -> bool:
    """Whether entries of a parameter can be named: ``budget.ratio``; not those of a list."""
    of = PARAMETERS.get(name)
    return of is not None and bool(of.kind.tables) and not isinstance(of.default, tuple)


def as_number(name: str, value: object, per_second: float) -> Any:
    """Replace a text with a unit, or each of a list, by a number in the parameter's own unit.

    Parameters
    ----------
    name : str
        A key of `PARAMETERS`.
    value : object
        What the user gave. All but such a text is returned as it is.
    per_second : float
        Rounds in a second.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        A time of no whole number of rounds, where that is needed; a text that is nearly one with a
        unit, such as ``0,5 s``.
    """
    parameter = PARAMETERS[name]
    if isinstance(value, list | tuple):
        return [as_number(name, entry, per_second) for entry in value]
    if isinstance(value, Settings):
        value = {"kind": value.kind, **value.entries}
    if isinstance(value, Mapping):
        settings = parameter.kind.tables.get(str(value.get("kind", "")))
        if settings is None:
            return value
        declared = settings.declared()
        given = {entry: x.default for entry, x in declared.items() if isinstance(x.default, str)}
        return {
            entry: _entry_in_own_unit(
                f"{name}.{entry}", declared[entry], x, per_second, settings.source()
            )
            if entry in declared
            else x
            for entry, x in (given | dict(value)).items()
        }
    return _in_own_unit(name, parameter, value, per_second)


def _entry_in_own_unit(
    name: str, parameter: Parameter, value: object, per_second: float, source: str
) -> Any:
    """Replace the texts with units in an entry of a table, which may be a list of rows."""
    if isinstance(value, Mapping) and is_range(value):
        return {
            key: _in_own_unit(f"{name}: {key}", parameter, x, per_second, source)
            if key in ("from", "to")
            else x
            for key, x in value.items()
        }
    columns = parameter.kind.rows
    if not columns or not isinstance(value, list | tuple):
        return _in_own_unit(name, parameter, value, per_second, source)
    return [
        {
            column: _in_own_unit(f"{name}, row {i}: {column}", columns[column], x, per_second)
            for column, x in given.items()
        }
        if (given := traffic.by_column(columns, row)) is not None
        else row
        for i, row in enumerate(value, 1)
    ]


def _in_own_unit(
    name: str, parameter: Parameter, value: object, per_second: float, source: str = ""
) -> Any:
    """Replace a text with a unit by a number in the parameter's own."""
    dimension = parameter.dimension
    if not isinstance(value, str) or dimension is None or value == "none":
        advice = units.advice(value, None) if isinstance(value, str) else ""
        if advice and parameter.kind.number is not None:
            raise ValueError(
                f"{name} must be {parameter.kind.rule}, got {value!r}{source}; {advice}"
            )
        return value
    quantity = units.parse(value, dimension)
    if quantity is None and not (units.begins_with_a_number(value) or units.is_number(value)):
        return value
    if quantity is None:
        advice = units.advice(value, dimension)
        cure = f"; {advice}" if advice else ""
        raise ValueError(f"{name} must be {parameter.kind.rule}, got {value!r}{source}{cure}")
    if dimension == "time":
        number = units.in_rounds(quantity.value, per_second)
    else:
        # a rate per round is that per second over the rounds of a second
        number = quantity.value / (per_second if parameter.unit == "calls/round" else 1)
        number = units.whole_if_nearly(number)
    if parameter.kind.accepts(number):
        return number
    if dimension == "time" and parameter.kind.accepts(math.floor(number)) and number % 1:
        length = units.format_time(1 / per_second)
        near = units.neighbours(number, per_second)
        raise ValueError(
            f"{name} must be a whole number of rounds of {length}, got {value!r}; {near} would be"
        )
    rule = _range_text(parameter, per_second) or parameter.kind.rule
    raise ValueError(f"{name} must be {rule}, got {value!r}{source}")


def _range_text(parameter: Parameter, per_second: float) -> str:
    """Which numbers a parameter may be, in the user's unit."""
    number = parameter.kind.number or parameter.kind
    words = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<="}
    return " and ".join(
        f"{word} "
        + units.text_of(parameter.dimension, number.schema[key], per_second, parameter.unit)
        for key, word in words.items()
        if key in number.schema
    )


def _parse(name: str, value: object) -> Any:
    try:
        return PARAMETERS[name].kind.parse(value)
    except EntryError as fault:
        raise ValueError(f"{name}{fault}") from None
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


# the cells of a grid have most values in common; 1, 1.0 and True are equal, but not all allowed
_parse_remembered = functools.lru_cache(maxsize=4096, typed=True)(_parse)


@functools.lru_cache(maxsize=4096)
def _fault(start: int, length: int, capacity: float, failure_rate: float | None) -> Fault:
    return Fault(start, length, capacity, failure_rate)


@functools.lru_cache(maxsize=4096)
def _layers(
    tries: tuple[int, ...],
    chain: str,
    deadline: Any,
    budget: Any,
    of_each: tuple[Any, ...],
    alike: tuple[Any, ...],
) -> tuple[Layer, ...]:
    if chain == "flattened":
        tries = (math.prod(tries),)
    n = len(tries)
    if not isinstance(deadline, tuple):  # the request's
        deadline = (deadline, *[None] * (n - 1))
    backoffs = (
        Backoff(*values, *alike) for values in zip(*(_each(x, n) for x in of_each), strict=True)
    )
    return tuple(map(Layer, tries, backoffs, deadline, _each(budget, n)))


def _each(value: Any, n: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * n


def conflicts(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which parameters cannot stand together, though each (in canonical form) is in range."""
    return (
        _traffic_conflicts(*(parameters[name] for name in _OF_TRAFFIC))
        + _chain_conflicts(*(parameters[name] for name in _OF_THE_CHAIN))
        + _guard_conflicts(*(parameters[name] for name in _OF_GUARDS))
        + (_fault_conflicts(parameters) if parameters["faults"] else ())
    )


@functools.lru_cache(maxsize=4096)
def _traffic_conflicts(
    n_rounds: int, per_second: float, arrivals: float, given: Traffic | None, tries: tuple[int, ...]
) -> tuple[str, ...]:
    """What of the traffic cannot stand together, and whether there are too many requests."""
    faults = [] if given is None else [*given.conflicts("traffic", per_second)]
    if given is not None and not faults:
        cover = given.cover(n_rounds, per_second)
        faults += [f"traffic.{cover}"] if cover else []
        if given.is_open and arrivals > 0:
            what = "rates" if given.rates else "counts"
            faults.append(f"arrivals_per_second must be 0 beside traffic.{what}, got {arrivals:g}")
    if faults:
        return tuple(faults)
    n_requests = traffic.mean_requests(given, arrivals / per_second, n_rounds, 0, n_rounds)
    workers = (given and given.workers) or 0
    if n_requests + workers > MAX_REQUESTS and workers:
        faults.append(
            f"traffic.workers and the requests of other traffic must be <= {MAX_REQUESTS}, "
            f"got {workers} and {n_requests:.0f}"
        )
    if workers * n_rounds > MAX_CALLS:  # each makes one call in a round, or none
        faults.append(
            f"traffic.workers * rounds must be <= {MAX_CALLS} calls, got {workers * n_rounds}"
        )
    return (*faults, *_size_conflicts(n_requests, math.prod(tries)))


def _size_conflicts(n_requests: float, max_attempts: int) -> tuple[str, ...]:
    faults = []
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


def _fault_conflicts(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    beside = tuple(
        f"{name} must not be given beside faults, which say it all, got {parameters[name]}"
        for name in ("fault_start", "fault_rounds", "fault_capacity", "fault_failure_rate")
        if parameters[name] != PARAMETERS[name].default
    )
    per_second = parameters["rounds_per_second"]
    return beside + tuple(faults.conflicts(parameters["faults"], per_second))


def lesson_conflicts(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Say what the lesson's generator cannot draw: it knows the lesson's model alone."""
    rule = '{} must be {} for generator "lesson", got {}'
    if parameters["fault_rounds"] and parameters["failure_rate"]:
        zero = "0 in a cell with a fault window"
        yield rule.format("failure_rate", zero, parameters["failure_rate"])
    if parameters["chain"] == "nested" and len(parameters["tries"]) > 1:
        yield rule.format("chain", "flattened", "nested")
    if isinstance(parameters["budget"], Settings):
        yield rule.format("budget", "none or a number", parameters["budget"])
    rate = parameters["arrivals_per_second"] / parameters["rounds_per_second"]
    if rate > MAX_RATE:
        name = "arrivals_per_second / rounds_per_second"
        yield rule.format(name, f"<= {MAX_RATE:g} per round", f"{rate:g}")
    for name in _NOT_OF_THE_LESSON:
        default = PARAMETERS[name].default
        if parameters[name] != default:
            shown = "none" if default in (None, ()) else default
            yield rule.format(name, shown, parameters[name])


_NOT_OF_THE_LESSON: Final = (
    *("backoff_factor", "jitter", "first_wait", "deadline", "budget_scope"),
    *("breaker", "clients", "queue", "faults", "fault_failure_rate", "traffic"),
)
_OF_TRAFFIC: Final = ("rounds", "rounds_per_second", "arrivals_per_second", "traffic", "tries")
_OF_GUARDS: Final = ("budget", "breaker", "clients", "rounds", "rounds_per_second")
_PER_LAYER: Final = ("backoff_base", "backoff_factor", "backoff_cap", "deadline", "budget")
_OF_THE_CHAIN: Final = ("tries", "chain", *_PER_LAYER, "jitter", "budget_scope")


@functools.lru_cache(maxsize=4096)
def _chain_conflicts(*values: Any) -> tuple[str, ...]:
    given = dict(zip(_OF_THE_CHAIN, values, strict=True))
    faults = []
    n_layers = len(given["tries"])
    is_flattened = given["chain"] == "flattened"
    if not is_flattened and n_layers > MAX_LAYERS:
        faults.append(
            f'tries must have <= {MAX_LAYERS} layers with chain = "nested", got {n_layers}'
        )
    for name in _PER_LAYER:
        if not isinstance(given[name], tuple):
            continue
        if is_flattened:
            faults.append(
                f'{name} must be one value with chain = "flattened" (one layer), got a list'
            )
        elif len(given[name]) != n_layers:
            faults.append(
                f"{name} must have one value for each layer of tries ({n_layers}), "
                f"got {len(given[name])}"
            )
        elif name == "budget" and given["budget_scope"] == "chain":
            faults.append('budget must be one value with budget_scope = "chain", got a list')
    return tuple(faults) or tuple(_jitter_conflicts(given))


@functools.lru_cache(maxsize=4096)
def _guard_conflicts(
    budget: Any, breaker: Breaker | None, clients: int, rounds: int, rounds_per_second: float
) -> tuple[str, ...]:
    """What a library refuses, and what clients cannot all remember."""
    listed = [entry for entry in _each(budget, 1) if isinstance(entry, Settings)]
    faults = [
        fault
        for name, given in (("budget", listed), ("breaker", [breaker] if breaker else []))
        for settings in given
        for fault in settings.conflicts(name, rounds_per_second)
    ]
    windows = {
        "budget.window": sum(
            min(entry.window or 0, rounds) for entry in listed if isinstance(entry, Ratio | Sre)
        )
    }
    if isinstance(breaker, Resilience4j):
        windows["breaker.sliding_window_size"] = breaker.sliding_window_size
    for name, n in windows.items():
        if clients * n > MAX_REMEMBERED:
            faults.append(f"clients * {name} must be <= {MAX_REMEMBERED}, got {clients} * {n}")
    return tuple(faults)


def _jitter_conflicts(given: Mapping[str, Any]) -> Iterator[str]:
    """What the kernel's 64 bits cannot hold of waits that depend on the one before."""
    tries = (math.prod(given["tries"]),) if given["chain"] == "flattened" else given["tries"]
    bases = _each(given["backoff_base"], len(tries))
    if given["jitter"] == "decorrelated" and max(bases) > waits.DECORRELATED_MOST:
        yield (
            f"backoff_base must be <= {waits.DECORRELATED_MOST:.0f} "
            f'with jitter = "decorrelated", got {max(bases):g}'
        )
    if given["jitter"] == "polly":
        sizes = [base and math.log2(base) + n for base, n in zip(bases, tries, strict=True)]
        if max(sizes) > math.log2(waits.POLLY_MOST):
            yield (
                f"backoff_base * 2**tries must be <= {waits.POLLY_MOST:.0f} "
                f'with jitter = "polly", got 2**{max(sizes):.4g}'
            )
