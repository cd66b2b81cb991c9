"""By which share of replications a claim is judged, and the words for it."""

from __future__ import annotations

from typing import Final, NamedTuple

HOLDS: Final = "holds"
FAILS: Final = "fails"
DEPENDS: Final = "depends on the seed"
OPEN: Final = "open"


class Thresholds(NamedTuple):
    """By which share of replications a claim is judged.

    Attributes
    ----------
    fails, holds : float
        A claim fails if it surely holds in so small a share of replications or less, and holds if
        it surely does in so large a share or more.
    """

    fails: float = 0.05
    holds: float = 0.95
