"""How many replications a cell needs, where that follows from what they show."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict

from mc.experiment.keys import LARGEST, Metrics, as_list, key
from mc.experiment.validation import FAULTY, Checked, Table, check_names
from mc.model import METRICS

MAX_REPLICATIONS: Final = 2**32 - 1
"""A replication's index is one 32-bit word of the generator's counter."""

FEWEST: Final = 10
"""Of fewer replications a spread that is small by luck would end too many cells: Law, *Simulation
Modeling and Analysis*, section 9.4.1."""


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


class PrecisionTable(Table):
    """[precision]: stages of 1000, 2000, 4000, ... replications until enough is known."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["relative"]}, {"required": ["absolute"]}]}
    )
    metric: Metrics
    relative: float | None = key("a number > 0 and < 1 (0.01 is 1 %)", None, gt=0, lt=1)
    absolute: float | None = key("a number > 0, in the metric's unit", None, gt=0, le=LARGEST)
    confidence: float = key("a number > 0 and < 1", 0.95, gt=0, lt=1)
    min: int = key(f"a whole number >= {FEWEST}", 1000, ge=FEWEST)
    max: int = key(
        f"a whole number >= {FEWEST} and <= {MAX_REPLICATIONS}",
        64_000,
        ge=FEWEST,
        le=MAX_REPLICATIONS,
    )

    def check(self) -> Checked[None]:
        """Check the names of metrics, and that there is a width and room for a stage."""
        yield from check_names("metric", as_list(self.metric), METRICS)
        if not {"relative", "absolute"} & self.contents.keys():
            yield "relative or absolute is missing: how wide may an interval be?"
        if FAULTY not in (self.min, self.max) and self.max < self.min:
            yield f"max must be >= min ({self.min}), got {self.max}"

    @property
    def precision(self) -> Precision:
        """What is asked for."""
        metrics, widths = tuple(as_list(self.metric)), (self.relative, self.absolute)
        return Precision(metrics, *widths, self.confidence, self.min, self.max)
