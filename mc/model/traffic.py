"""Traffic other than a constant stream: ``traffic = {rates = [[0, "50/s"], ["30 s", "200/s"]]}``.

Within a round the open traffic comes first (of a rate, or of counts), then bursts, then workers; so
what stands beside the open traffic does not change its luck.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from mc.model import units
from mc.model.parameters import (
    INT32_MAX,
    EntryError,
    Kind,
    Parameter,
    declare,
    one_of,
    or_none,
    real,
    text,
    whole,
)
from mc.model.settings import Settings, schema_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_WORKERS: Final = 10_000_000
"""Most workers: an entry of the timing wheel has 24 bits for a request."""

MAX_ROUNDS: Final = 4_000_000
"""Longest run: an entry of the timing wheel has 23 bits for the round of an arrival."""

_SHOWN: Final = 4
"""Rows of a list that a reader is shown; of more the first ones and the last."""


# --- values that are lists -----------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Requests of each step of a trace: whole numbers, or means.

    Attributes
    ----------
    sha256 : str
        16 hexadecimal digits of the hash of the numbers: by it counts are the same.
    n : int
        How many there are.
    numbers : bytes or None
        As doubles, little-endian; None where only their hash is known: in texts.
    """

    sha256: str
    n: int
    numbers: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[Any]) -> Counts:
        """Make them of numbers, each finite and >= 0."""
        import numpy as np

        numbers = np.asarray(values, "<f8").tobytes()
        return cls(hashlib.sha256(numbers).hexdigest()[:16], len(numbers) // 8, numbers)

    @property
    def values(self) -> NDArray[np.float64]:
        """The numbers, shape (n,)."""
        import numpy as np

        if self.numbers is None:
            raise ValueError(f"the counts {self.sha256} are not at hand")
        return np.frombuffer(self.numbers, "<f8")

    @property
    def packed(self) -> str | None:
        """The numbers as a text: the doubles by zlib, in base64."""
        if self.numbers is None:
            return None
        return base64.b64encode(zlib.compress(self.numbers, 9)).decode()

    @classmethod
    def unpacked(cls, packed: str) -> Counts:
        """Read what `packed` gave."""
        import numpy as np

        return cls.of(np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<f8"))

    @functools.cached_property
    def first_fraction(self) -> int | None:
        """Index of the first that is no whole number; None without one."""
        if self.numbers is None:
            return None
        found = (self.values % 1 != 0).nonzero()[0]
        return int(found[0]) if found.size else None


def counts() -> Kind:
    """Make the kind of counts: in TOML a list of numbers."""
    rule = "a list of numbers >= 0, one for each step"

    def parse(value: object) -> Counts:
        if isinstance(value, Counts):
            return value
        if isinstance(value, Mapping) and value.keys() == {"sha256", "n"}:
            return Counts(**value)
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"must be {rule}, got {value!r}")
        entry = real(0, INT32_MAX)
        for i, number in enumerate(value, 1):
            if not entry.accepts(number):
                raise EntryError(f", step {i} must be {entry.rule}, got {number!r}")
        return Counts.of(value)

    schema = {"type": "array", "minItems": 1, "items": {"type": "number", "minimum": 0}}
    return Kind(rule, parse, schema, "text")


def rows_of(columns: Mapping[str, Parameter], *, sums: bool = False) -> Kind:
    """Make the kind of lists of rows, each a list or a table of values, in order of time.

    The canonical form is a tuple of tuples. If it `sums`, rows of one time become one, and may
    stand in any order.
    """
    example = ", ".join(columns)
    rule = f"a list of one or more [{example}]"

    def parse(value: object) -> tuple[tuple[Any, ...], ...]:
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"must be {rule}, got {value!r}")
        rows = [_row(columns, i, row) for i, row in enumerate(value, 1)]
        if sums:
            total: dict[Any, Any] = {}
            for at, n in sorted(rows):
                total[at] = total.get(at, 0) + n
            return tuple(total.items())
        for i, ((before, *_), (after, *_)) in enumerate(pairwise(rows), 2):
            if after < before:
                raise EntryError(f", row {i} must not be earlier than the row before it")
        return tuple(rows)

    entries = {name: _or_text(parameter) for name, parameter in columns.items()}
    a_list = {"type": "array", "items": [*entries.values()], "minItems": 2, "maxItems": 2}
    a_table = {
        "type": "object",
        "properties": entries,
        "required": [*columns],
        "additionalProperties": False,
    }
    schema = {"type": "array", "minItems": 1, "items": {"anyOf": [a_list, a_table]}}
    return Kind(rule, parse, schema, "text", rows=columns)


def _row(columns: Mapping[str, Parameter], i: int, row: object) -> tuple[Any, ...]:
    """Read row number i."""
    given = by_column(columns, row)
    if given is None:
        raise EntryError(f", row {i} must be [{', '.join(columns)}], got {row!r}")
    entries = []
    for name, parameter in columns.items():
        try:
            entries.append(parameter.kind.parse(given[name]))
        except ValueError as error:
            raise EntryError(f", row {i}: {name} {error}") from None
    return tuple(entries)


def by_column(columns: Collection[str], row: object) -> Mapping[str, Any] | None:
    """The values of a row by column; None if it is no such row."""
    if isinstance(row, list | tuple) and len(row) == len(columns):
        return dict(zip(columns, row, strict=True))
    return row if isinstance(row, Mapping) and row.keys() == {*columns} else None


def _or_text(parameter: Parameter) -> dict[str, Any]:
    """JSON schema of a number, or a text with a unit."""
    if parameter.dimension is None:
        return parameter.kind.schema
    return {"anyOf": [parameter.kind.schema, {"type": "string"}]}


# --- the parameter -------------------------------------------------------------------------------

_OF_FILES: Final = ("file", "column", "times", "timestamps")
"""Entries that say where counts come from, and are no part of what they are."""

DEPTHS: Final = {"rates": 2, "counts": 1, "bursts": 2}
"""Of the entries that are lists: lists within each other, a row as a list."""

_AT: Final = Parameter(whole(0, INT32_MAX), ..., "rounds", "when")
_RATE: Final = Parameter(real(0, INT32_MAX), ..., "calls/round", "requests in a round")
_COUNT: Final = Parameter(whole(0, INT32_MAX), ..., "requests", "how many")


@dataclass(frozen=True)
class Traffic(Settings):
    """Requests other than a constant Poisson stream.

    Rates or counts are the open traffic in place of `arrivals_per_second`, which is 0 beside them.
    Bursts and workers come beside any.
    """

    kind: ClassVar[str] = "traffic"
    # the mean of a round is that of its middle, which is the integral; two points of one time make
    # a step
    rates: tuple[tuple[int, float], ...] | None = declare(
        or_none(rows_of({"at": _AT, "rate": _RATE})),
        None,
        "",
        "mean of the Poisson arrivals: straight between points [time, rate], constant before the "
        "first and after the last",
    )
    # round k of the m rounds of a step has floor((k + 1) n / m) - floor(k n / m) of its n requests;
    # with noise the mean of each is n / m
    counts: Counts | None = declare(
        or_none(counts()), None, "", "requests of each step of the run, spread evenly over it"
    )
    per: int | None = declare(
        or_none(whole(1, MAX_ROUNDS)), None, "rounds", "length of a step of the counts"
    )
    noise: str | None = declare(
        or_none(one_of("poisson")),
        None,
        "",
        "none: there are as many as the counts say; poisson: so many on average",
    )
    file: str | None = declare(
        or_none(text()),
        None,
        "",
        "a CSV or Parquet file with the counts, relative to the experiment file",
        compare=False,
    )
    column: str | None = declare(
        or_none(text()), None, "", "the column of the file that holds the counts", compare=False
    )
    times: str | None = declare(
        or_none(text()),
        None,
        "",
        "the column that says when each step begins: then steps that are missing are a fault",
        compare=False,
    )
    # to the microsecond, in whatever zone they are
    timestamps: str | None = declare(
        or_none(text()),
        None,
        "",
        "in place of column and per: the column that holds the time of each request, in order; the "
        "first comes in round 0",
        compare=False,
    )
    bursts: tuple[tuple[int, int], ...] | None = declare(
        or_none(rows_of({"at": _AT, "count": _COUNT}, sums=True)),
        None,
        "",
        "requests that come at once, [time, how many], beside the other traffic",
    )
    # after a request that ended in round t a worker makes the next in round t + 1 + think
    workers: int | None = declare(
        or_none(whole(1, MAX_WORKERS)),
        None,
        "workers",
        "a closed loop: each makes a request in round 0, and the next when that has ended and it "
        "has thought",
    )
    think: int | None = declare(
        or_none(whole(0, INT32_MAX)), None, "rounds", "how long a worker thinks; none: not at all"
    )

    @property
    def is_open(self) -> bool:
        """Whether it is the open traffic: then there is no other."""
        return self.rates is not None or self.counts is not None

    def conflicts(self, name: str, rounds_per_second: float) -> Iterator[str]:
        """Say which entries cannot stand together, or not alone."""
        if self.think is not None and self.workers is None:
            yield f"{name}.think needs {name}.workers"
        given = [entry for entry in ("rates", "counts") if getattr(self, entry) is not None]
        if len(given) == 2:
            yield f"{name} must have rates or counts, got both"
        if not self.written:
            yield f"{name} must have one or more of {', '.join(self.declared())}, got none"
        if self.counts is None and self.file is not None:
            yield f"{name}.file is read with an experiment file; give its numbers as {name}.counts"
        elif self.counts is None:
            for entry in ("per", "noise", "column", "times", "timestamps"):
                if getattr(self, entry) is not None:
                    yield f"{name}.{entry} needs {name}.counts or {name}.file"
        elif self.per is None:
            yield f'{name}.per is missing: it must be the length of a step, such as "1 s"'
        elif self.noise is None and self.counts.first_fraction is not None:
            i = self.counts.first_fraction
            yield (
                f"{name}.counts, step {i + 1} must be a whole number, or a mean with "
                f'noise = "poisson", got {self.counts.values[i]:g}'
            )

    @property
    def covers(self) -> int:
        """Rounds that the counts cover; 0 without counts."""
        return self.counts.n * (self.per or 0) if self.counts is not None else 0

    def cover(self, n_rounds: int, rounds_per_second: float) -> str | None:
        """Say that counts end before the run, if they do."""
        if self.counts is None or self.covers >= n_rounds:
            return None
        run, covered = (
            f"{units.format_time(n / rounds_per_second)} ({n} rounds)"
            for n in (n_rounds, self.covers)
        )
        return f"counts must cover the run of {run}, they end after {covered}: lower rounds"

    @property
    def table(self) -> dict[str, Any]:
        """What differs from the defaults, in types that TOML and JSON have."""
        table = super().table
        for name in ("kind", *_OF_FILES):
            table.pop(name, None)
        if self.counts is not None:
            table["counts"] = {"sha256": self.counts.sha256, "n": self.counts.n}
        return table

    def __str__(self) -> str:
        """Write it as columns have it: JSON, times in rounds and rates per round."""
        return json.dumps(self.table | ({"file": self.file} if self.file else {}))

    def in_words(self, per_second: float) -> str:
        """Write it for a reader."""

        def listed(rows: Sequence[str]) -> str:
            shown = rows if len(rows) <= _SHOWN else [*rows[: _SHOWN - 1], "...", rows[-1]]
            return ", ".join(shown)

        def time(n: int) -> str:
            return units.format_time(n / per_second)

        parts = []
        if self.rates:
            points = [f"{units.format_rate(x * per_second)} at {time(t)}" for t, x in self.rates]
            parts.append(f"rates {listed(points)}")
        if self.counts is not None:
            noise = ", with Poisson noise" if self.noise else ""
            of = f" of {self.file}" if self.file else ""
            parts.append(f"{self.counts.n} counts{of} per {time(self.per or 1)}{noise}")
        if self.bursts:
            parts.append(f"bursts {listed([f'{n} at {time(t)}' for t, n in self.bursts])}")
        if self.workers:
            parts.append(f"{self.workers} workers, think {time(self.think or 0)}")
        return f"({'; '.join(parts)})"


def kind() -> Kind:
    """Make the kind of traffic; columns have JSON texts."""
    rule = 'a table such as {rates = [[0, "50/s"], ["30 s", "200/s"]]}'

    def parse(value: object) -> Traffic:
        if isinstance(value, Traffic):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"must be {rule}, got {value!r}")
        return Traffic.of(value)

    return Kind(
        rule,
        parse,
        schema_of(Traffic),
        "text",
        to_column=str,
        from_column=lambda written: parse(json.loads(written)),
        tables={"": Traffic},
    )


def usual_arrivals(traffic: object, usual: float) -> float:
    """What `arrivals_per_second` is if nobody says it: `usual`, or 0 beside all but bursts."""
    entries = traffic.entries if isinstance(traffic, Traffic) else traffic
    others = ("rates", "counts", "file", "workers")
    has_others = isinstance(entries, Mapping) and any(entries.get(name) for name in others)
    return 0.0 if has_others else usual


# --- what it brings in each round ----------------------------------------------------------------


class Arrivals(NamedTuple):
    """The arrivals of each round: some that are known, and a Poisson number beside them.

    Attributes
    ----------
    known : ndarray of int64, shape (T,)
    means : ndarray of float64, shape (T,)
        Each the double nearest to the exact mean.
    """

    known: NDArray[np.int64]
    means: NDArray[np.float64]


@functools.lru_cache(maxsize=8)
def arrivals_of(traffic: Traffic, rate: float, n_rounds: int) -> Arrivals:
    """What arrives in each of n rounds, beside a constant rate per round, and workers."""
    import numpy as np

    known, means = np.zeros(n_rounds, np.int64), np.full(n_rounds, rate)
    if traffic.rates:
        means = np.array(_straight(traffic.rates, n_rounds))
    if traffic.counts is not None and traffic.per is not None:
        m, steps = traffic.per, -(-n_rounds // traffic.per)
        values = traffic.counts.values[:steps]
        if traffic.noise:
            of_step = {x: float(Fraction(repr(x)) / m) for x in np.unique(values).tolist()}
            means = np.repeat([of_step[x] for x in values.tolist()], m)[:n_rounds]
        else:
            so_far = np.arange(m + 1) * values.astype(np.int64)[:, np.newaxis] // m
            known += np.diff(so_far, axis=1).ravel()[:n_rounds]
    for at, n in traffic.bursts or ():
        if at < n_rounds:
            known[at] += n
    return Arrivals(known, means)


def _straight(points: Sequence[tuple[int, float]], n_rounds: int) -> list[float]:
    """The rate in the middle of each round, which is its mean; each rate the decimal as written."""
    rates = [(at, Fraction(repr(rate))) for at, rate in points]
    means = [float(points[0][1])] * min(rates[0][0], n_rounds)
    for (start, low), (stop, high) in pairwise(rates):
        if start < stop and start < n_rounds:
            # low + (high - low) (k + 1/2) / length, over one denominator; a quotient of two
            # integers is rounded once
            rise = (high - low) / (2 * (stop - start))
            below = math.lcm(low.denominator, rise.denominator)
            base, step = int(low * below), int(rise * below)
            n = min(stop, n_rounds) - start
            means += [(base + step * (2 * k + 1)) / below for k in range(n)]
    return means + [float(points[-1][1])] * (n_rounds - len(means))


@functools.lru_cache(maxsize=4096)
def mean_requests(
    traffic: Traffic | None, rate: float, n_rounds: int, start: int, stop: int
) -> float:
    """Requests that arrive on average in the rounds from `start` to before `stop`, of n rounds.

    Those of workers are not among them.
    """
    start, stop = min(start, n_rounds), min(stop, n_rounds)
    if traffic is None:
        return rate * (stop - start)
    known, means = arrivals_of(traffic, rate, n_rounds)
    return math.fsum(means[start:stop].tolist()) + int(known[start:stop].sum())
