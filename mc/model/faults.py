"""Faults of the dependency: times in which it serves less, or fails more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from mc.model import units
from mc.model.parameters import INT32_MAX, Kind, amount, declare, or_none, real, whole
from mc.model.settings import Settings, list_of

_CALLS: Final = amount(0, INT32_MAX)


@dataclass(frozen=True)
class Fault(Settings):
    """One fault.

    With `capacity_end` the capacity goes there along a straight line C(x) over the whole length:
    the first x rounds of the fault serve ``floor(integral of C)`` calls.
    """

    kind: ClassVar[str] = "fault"
    start: int = declare(whole(0, INT32_MAX), ..., "rounds", "first round of the fault")
    length: int = declare(whole(1, INT32_MAX), ..., "rounds", "how long it lasts")
    capacity: float = declare(_CALLS, 0, "calls/round", "calls served in a round of it")
    failure_rate: float | None = declare(
        or_none(real(0, 1)),
        None,
        "probability",
        "chance that a served call fails all the same, or none: the usual one",
    )
    capacity_end: float | None = declare(
        or_none(_CALLS),
        None,
        "calls/round",
        "to which the capacity goes in a straight line, or none: it stays",
    )

    @property
    def end(self) -> int:
        """The round after its last."""
        return self.start + self.length


def kind() -> Kind:
    """Make the kind of lists of faults."""
    return list_of(Fault)


def conflicts(faults: Sequence[Fault], rounds_per_second: float) -> Iterator[str]:
    """Say which faults do not follow one another."""
    for number, (one, other) in enumerate(pairwise(faults), 1):
        if other.start < one.end:
            begins, ends = (
                units.format_time(t / rounds_per_second) for t in (other.start, one.end)
            )
            yield (
                f"faults must follow one another, got number {number + 1} that begins at {begins} "
                f"(round {other.start}) and number {number} until {ends} (round {one.end})"
            )
