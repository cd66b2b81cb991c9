"""[precision]: how many replications, when that is to follow from what they show."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mc.experiment.tables import PrecisionKeys, check_names, keys, refuse_others
from mc.experiment.words import add
from mc.model import METRICS


@dataclass(frozen=True)
class Precision:
    """When there are enough replications.

    Attributes
    ----------
    metrics : tuple of str
        What must be known precisely, wherever it is defined.
    relative, absolute : float or None
        Largest half-width of an interval, as a share of its mean and in the metric's unit: the
        wider of the two. Not both None.
    confidence : float
        Of the intervals, each taken alone.
    min, max : int
        Replications of the first stage, and of the last.
    """

    metrics: tuple[str, ...]
    relative: float | None
    absolute: float | None
    confidence: float
    min: int
    max: int

    @property
    def stages(self) -> tuple[int, ...]:
        """Replications after each stage: min, twice as many, and so on; the last has max."""
        doubled = itertools.takewhile(
            lambda n: n < self.max, (self.min * 2**j for j in itertools.count())
        )
        return (*doubled, self.max)

    def tolerance(self, mean: float) -> float:
        """Largest half-width that will do.

        Notes
        -----
        Law, *Simulation Modeling and Analysis*, section 9.4.1: for a relative error g of the
        true mean the half-width is compared with g / (1 + g) times the estimated one, which may
        be too large itself.
        """
        relative, absolute = self.relative or 0.0, self.absolute or 0.0
        return max(relative / (1 + relative) * abs(mean), absolute)

    def asks_no_less_than(self, other: Precision) -> bool:
        """Whether every cell needs at least the replications that the other asks for.

        That is so if each stage of this one that comes early is one of the other's, too, where
        the other goes on unless it is less strict.
        """
        doublings, rest = divmod(self.min, other.min)
        return (
            set(self.metrics) >= set(other.metrics)
            and (self.relative or 0.0) <= (other.relative or 0.0)
            and (self.absolute or 0.0) <= (other.absolute or 0.0)
            and self.confidence >= other.confidence
            and rest == 0
            and doublings.bit_count() == 1
            and self.max >= other.max
        )


def read_precision(table: Mapping[str, Any] | None, faults: list[str]) -> Precision | None:
    """Read [precision]; None without one, or if it has a fault, which is reported."""
    if table is None:
        return None
    where, n_faults = "[precision]", len(faults)
    given = keys(PrecisionKeys, table, where, faults)
    refuse_others(PrecisionKeys, table, where, faults)
    metrics = [given["metric"]] if isinstance(given["metric"], str) else given["metric"] or []
    check_names("metric", metrics, METRICS, where, faults)
    if "relative" not in table and "absolute" not in table:
        add(faults, where, "relative or absolute is missing: how wide may an interval be?")
    if None not in (given["min"], given["max"]) and given["max"] < given["min"]:
        add(faults, where, f"max must be >= min ({given['min']}), got {given['max']}")
    if len(faults) > n_faults:
        return None
    return Precision(
        metrics=tuple(metrics),
        relative=given["relative"],
        absolute=given["absolute"],
        confidence=given["confidence"],
        min=given["min"],
        max=given["max"],
    )
