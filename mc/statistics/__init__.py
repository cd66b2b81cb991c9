"""From rows to estimates, intervals, comparisons and verdicts: pure functions.

A row is one replication of one cell: `cell`, `replication`, then the counters. `model.METRICS`
says what can be estimated from it. Rows become counts (histograms of whole numbers, and sums of
their products), counts become tables. So every result depends on the set of rows alone, never on
their order, and is the same where only the counts were kept.

    rows         the numbers of each metric in the rows of many cells
    counts       histograms and sums: exact, and may be added
    intervals, control, best
                 the formulas
    summary, comparisons, claims
                 the tables
    estimates    what the tables have in common

Intervals are two-sided, 95 % each, unless a name says together. NULL stands where a number is
undefined, never NaN.
"""

from mc.model.digits import MISSING, format_estimate, half_width, placed, to_fixed
from mc.model.thresholds import DEPENDS, FAILS, HOLDS, OPEN
from mc.statistics.claims import (
    CLAIMS_COLUMNS,
    CLAIMS_SCHEMA,
    ClaimCounts,
    count_claims,
    judge,
    verdict,
    verdicts,
)
from mc.statistics.comparisons import (
    COMPARISONS_COLUMNS,
    COMPARISONS_SCHEMA,
    PairCounts,
    compare,
)
from mc.statistics.counts import Histogram, Moments, histogram, moments
from mc.statistics.intervals import LEVEL
from mc.statistics.rows import Stack, stacks, with_ratios
from mc.statistics.summary import (
    SUMMARY_COLUMNS,
    SUMMARY_SCHEMA,
    MetricCounts,
    summarise,
    summary,
)

__all__ = [
    "CLAIMS_COLUMNS",
    "CLAIMS_SCHEMA",
    "COMPARISONS_COLUMNS",
    "COMPARISONS_SCHEMA",
    "DEPENDS",
    "FAILS",
    "HOLDS",
    "LEVEL",
    "MISSING",
    "OPEN",
    "SUMMARY_COLUMNS",
    "SUMMARY_SCHEMA",
    "ClaimCounts",
    "Histogram",
    "MetricCounts",
    "Moments",
    "PairCounts",
    "Stack",
    "compare",
    "count_claims",
    "format_estimate",
    "half_width",
    "histogram",
    "judge",
    "moments",
    "placed",
    "stacks",
    "summarise",
    "summary",
    "to_fixed",
    "verdict",
    "verdicts",
    "with_ratios",
]
