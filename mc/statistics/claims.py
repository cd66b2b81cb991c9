"""Claims: sentences put to the test, replication by replication."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import METRICS, Column, schema_of
from mc.model.columns import OF_METRIC
from mc.statistics import intervals
from mc.statistics.comparisons import UNLIKE, align, split
from mc.statistics.counts import Sums, cubes, joint_sums, skewness_of
from mc.statistics.estimates import OF_SHARE, interval_columns
from mc.statistics.rows import Stack, divisors_of

if TYPE_CHECKING:
    from mc.experiment import Claim

HOLDS: Final = "holds"
FAILS: Final = "fails"
DEPENDS: Final = "depends on the seed"
OPEN: Final = "open"

SHARE_HOLDS: Final = 0.95
"""A claim holds if it surely does in this share of replications or more..."""

SHARE_FAILS: Final = 0.05
"""...and fails if it surely holds in this share or less."""

CLAIMS_COLUMNS: Final[dict[str, Column]] = {
    "claim": Column("int32", "", "number of the claim in the experiment file, from 0"),
    "text": Column("text", "", "the claim in words"),
    "scenario": Column("text", "", "where it is said to hold"),
    "metric": Column("text", "", "what is compared; several are joined by &"),
    "relation": Column("text", "", "between each and the next, or between each and a number"),
    "link_metric": Column(
        "text", "", "of the weakest link: the comparison that lies least in favour"
    ),
    "left": Column("text", "", "of the weakest link: what is compared"),
    "right": Column("text", "", "of the weakest link: what it is compared with"),
    "n": Column("int64", "replications", "replications in which all that is compared is defined"),
    "n_holds": Column("int64", "replications", "those in which the claim holds"),
    "share": Column("float", "", "n_holds / n, under common random numbers"),
    **interval_columns("share", "", "share, each claim alone", OF_SHARE),
    **interval_columns(
        "share_together", "", "share, all claims together", f"{OF_SHARE}, Bonferroni"
    ),
    "mean_difference": Column(
        "float", OF_METRIC, "of the weakest link: mean over replications of left - right"
    ),
    "mcse": Column("float", OF_METRIC, "Monte Carlo standard error of the mean difference"),
    **interval_columns("ci", OF_METRIC, "mean difference, each claim alone", "paired t"),
    **interval_columns(
        "together", OF_METRIC, "mean difference, all claims together", "paired t, Bonferroni"
    ),
    "margin": Column("float", OF_METRIC, "what counts as practically equal, if the claim says so"),
    "note": Column(
        "text", "", "why the interval of the mean difference is missing, or not to be trusted"
    ),
    "on_average": Column(
        "text",
        "",
        f"{HOLDS}, {FAILS} or {OPEN}: whether the mean difference of every link surely lies in the "
        "claimed direction (within the margin: two one-sided tests), all claims together",
    ),
    "verdict": Column(
        "text",
        "",
        f"{HOLDS}, {FAILS} or {DEPENDS}: by the interval of the share, all together; {OPEN} where "
        "it holds in all or none of too few replications",
    ),
    "lesson_n": Column(
        "int64", "replications", "replications with the lesson's draws, if they were asked for"
    ),
    "lesson_share": Column(
        "float",
        "",
        "share of these: every cell draws from one stream, so the cells of a replication do not "
        "meet the same traffic. A share depends on that, a mean difference does not",
    ),
    **interval_columns("lesson", "", "share with the lesson's draws", OF_SHARE),
    "lesson_mean_difference": Column("float", OF_METRIC, "mean_difference with the lesson's draws"),
    "lesson_mcse": Column(
        "float", OF_METRIC, "Monte Carlo standard error of lesson_mean_difference"
    ),
}
"""The columns of the claims, in their order."""

CLAIMS_SCHEMA: Final = schema_of(CLAIMS_COLUMNS)

_RELATIONS: Final[dict[str, Callable[[Any, Any], NDArray[np.bool_]]]] = {
    "<": np.less,
    "<=": np.less_equal,
    "=": np.equal,
    ">=": np.greater_equal,
    ">": np.greater,
}


@dataclass(frozen=True)
class _Link:
    """One comparison of a claim: of a cell with a multiple of the next, or with a number.

    Attributes
    ----------
    metric : str
        One of `METRICS`.
    relation : str
        One of `_RELATIONS`: ``left relation times * right``, or ``left relation times``.
    left, right : int
        Cells; `right` is None for a number.
    times : Fraction
        Factor of the right cell; or the number.
    margin : Fraction
        Values no further apart count as equal.
    left_label, right_label : str
        Both sides as the table of claims shows them.
    """

    metric: str
    relation: str
    left: int
    right: int | None
    times: Fraction
    margin: Fraction
    left_label: str
    right_label: str


@dataclass(frozen=True)
class ClaimCounts:
    """Counts of a claim, enough for its verdict; those of two ranges may be added.

    Attributes
    ----------
    n, n_holds : int
        Replications in which all that is compared is defined, and those in which the claim holds.
    links : Sums, shape (L, 8)
        For each link the sums over these replications of the numbers x of its left cell and y of
        its right; then the sum of the cubes of the difference in whole numbers, q x - p y if the
        link multiplies by p / q (against a number: of x; 0 where the divisors of the cells differ);
        and the number of replications in which the two sides differ.
    """

    n: int
    n_holds: int
    links: Sums

    def __add__(self, other: ClaimCounts) -> ClaimCounts:
        """Join the counts of different replications."""
        return ClaimCounts(self.n + other.n, self.n_holds + other.n_holds, self.links + other.links)


def judge(rows: pl.DataFrame, cells: pl.DataFrame, claims: Sequence[Claim]) -> pl.DataFrame:
    """Put each claim to the test, replication by replication.

    A claim is a chain: each cell is compared with the next, or each with a number, in one metric or
    several. It holds in a replication if all its links do. Replications in which a compared value
    is NULL, or which one of the cells lacks, are left out of `n`. Counters are compared as whole
    numbers; equal means equal in the same replication, up to the claim's margin.

    Parameters
    ----------
    rows : polars.DataFrame
        `cell`, `replication` and the counters, in any order; only the cells of the claims are
        read.
    cells : polars.DataFrame
        The table of cells.
    claims : sequence of Claim
        As the experiment file states them.

    Returns
    -------
    polars.DataFrame
        See `verdicts`.
    """
    return verdicts(count_claims(rows, cells, claims), cells, claims)


def count_claims(
    rows: pl.DataFrame, cells: pl.DataFrame, claims: Sequence[Claim]
) -> list[ClaimCounts]:
    """Count in how many replications each claim holds; parameters as for `judge`."""
    by_cell = split(rows)
    lines = _lines(cells, claims)
    counted = []
    for claim in claims:
        named = sorted(set(claim.cells))
        frames = align([by_cell.get(number, rows.clear()) for number in named])
        table = pl.concat([lines[number] for number in named])
        stack = Stack.of(table, np.arange(len(named)), pl.concat(frames))
        counted.append(count_claim(stack, claim))
    return counted


def _lines(cells: pl.DataFrame, claims: Sequence[Claim]) -> dict[int, pl.DataFrame]:
    """The line in the table of cells of each cell that a claim names."""
    named = {number for claim in claims for number in claim.cells}
    wanted = cells.filter(pl.col("cell").is_in(list(named)))
    return {cell["cell"].item(): cell for cell in wanted.iter_slices(1)}


def count_claim(stack: Stack, claim: Claim) -> ClaimCounts:
    """Count one claim over the rows of a stack, which has all its cells."""
    places = {number: k for k, number in enumerate(stack.cells["cell"].to_list())}
    named = sorted(set(claim.cells))
    stack = stack.some(np.array([places[number] for number in named]))
    index_of = {number: k for k, number in enumerate(named)}
    links = list(_links(claim))
    numbers_of = {name: stack.numbers(METRICS[name]) for name in claim.metrics}
    known = np.ones(numbers_of[claim.metrics[0]].known.shape[1], np.bool_)
    for link in links:
        for cell in (link.left, link.right):
            if cell is not None:
                known &= numbers_of[link.metric].known[index_of[cell]]
    holds, sums = known.copy(), []
    for link in links:
        numbers = numbers_of[link.metric]
        x, d = (part[index_of[link.left]] for part in (numbers.numbers, numbers.divisors))
        if link.right is None:
            y, difference = x, x
            link_holds, differs = _against_number(x, link, Fraction(d))
        else:
            y, e = (part[index_of[link.right]] for part in (numbers.numbers, numbers.divisors))
            link_holds, differs, difference = _against_cell(x, y, link, Fraction(d), Fraction(e))
        holds &= link_holds
        both = joint_sums((x[np.newaxis], y[np.newaxis]), known[np.newaxis])[0].tolist()
        third = cubes(difference[np.newaxis], known[np.newaxis])[0]
        sums.append([*both, third, int(np.count_nonzero(differs & known))])
    n, n_holds = int(np.count_nonzero(known)), int(np.count_nonzero(holds))
    return ClaimCounts(n, n_holds, np.array(sums, object))


def _links(claim: Claim) -> Iterator[_Link]:
    """List the comparisons that must all hold for the claim to hold."""
    times, margin = Fraction(repr(claim.times)), Fraction(repr(claim.margin or 0.0))
    of = "" if claim.times == 1 else f"{claim.times:.10g} x "
    for metric in claim.metrics:
        named = list(zip(claim.cells, claim.labels, strict=False))
        if claim.value is None:
            for (left, one), (right, other) in pairwise(named):
                yield _Link(metric, claim.relation, left, right, times, margin, one, f"{of}{other}")
            continue
        if isinstance(claim.value, tuple):  # between: two bounds, both included
            bounds = list(zip((">=", "<="), claim.value, strict=True))
        else:
            bounds = [(claim.relation, claim.value)]
        for left, label in named:
            for relation, bound in bounds:
                exact = Fraction(repr(float(bound)))
                yield _Link(metric, relation, left, None, exact, margin, label, f"{bound:.10g}")


def _against_number(
    x: NDArray[np.int64], link: _Link, d: Fraction
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether ``x / d`` is in the link's relation to its number, and differs from it; exactly."""
    low, high = (link.times - link.margin) * d, (link.times + link.margin) * d
    bound = link.times * d
    below, above = x < _clipped(math.ceil(bound)), x > _clipped(math.floor(bound))
    holds = {
        "<": below,
        "<=": ~above,
        "=": (x >= _clipped(math.ceil(low))) & (x <= _clipped(math.floor(high))),
        ">=": ~below,
        ">": above,
    }
    return holds[link.relation], below | above


def _clipped(bound: int) -> int:
    """The bound within 64 bits: no number lies beyond."""
    return max(-(2**63), min(bound, 2**63 - 1))


def _against_cell(
    x: NDArray[np.int64], y: NDArray[np.int64], link: _Link, d: Fraction, e: Fraction
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Whether ``x / d`` is in the link's relation to ``times * y / e``, and differs from it.

    With equal divisors this is computed in whole numbers, hence exactly, and so is the difference;
    otherwise in doubles, with 0 for the difference.
    """
    p, q = link.times.as_integer_ratio()
    left: NDArray[Any]
    right: NDArray[Any]
    if d == e:
        largest = max(int(np.abs(x).max(initial=0)), int(np.abs(y).max(initial=0)))
        exact = np.int64 if largest * max(abs(p), q) < 2**62 else object
        left, right = x.astype(exact) * q, y.astype(exact) * p
        difference = left - right
        margin: int | float = math.floor(link.margin * d * q)
    else:
        left, right = x / float(d), y * float(link.times / e)
        difference = np.zeros(len(x), np.int64)
        margin = float(link.margin)
    if link.relation == "=" and link.margin:
        holds = np.abs(left - right) <= margin
    else:
        holds = _RELATIONS[link.relation](left, right)
    return holds.astype(np.bool_), (left != right).astype(np.bool_), difference


# --- verdicts -------------------------------------------------------------------------------


def verdicts(
    counted: Sequence[ClaimCounts],
    cells: pl.DataFrame,
    claims: Sequence[Claim],
    lesson: Mapping[int, ClaimCounts] | None = None,
) -> pl.DataFrame:
    """Judge the claims by their counts.

    Parameters
    ----------
    counted : sequence of ClaimCounts
        One for each claim.
    cells : polars.DataFrame
        The table of cells.
    claims : sequence of Claim
        As the experiment file states them.
    lesson : mapping of int to ClaimCounts, optional
        Counts with the lesson's draws of some of the claims, by their number.

    Returns
    -------
    polars.DataFrame
        One line for each claim, in the schema of `CLAIMS_SCHEMA`. `verdict` is `holds` if the
        interval of the share lies in 0.95 .. 1, `fails` if it lies in 0 .. 0.05, otherwise
        `depends on the seed`; but `open` as long as the interval reaches 0 or 1, for then the claim
        held in all replications, or in none, and they are too few. NULL without replications. The
        intervals that decide are wide enough for all claims together.

        `mean_difference` and its intervals are those of the weakest link, `left - right` in
        `link_metric`: the link whose mean difference lies least in the claimed direction, in
        units of its standard error (for an equality, furthest from zero).

    Notes
    -----
    A share depends on how the replications of two cells are coupled: it is a statement about cells
    that see the same traffic and the same luck. The mean difference does not depend on that.

    Together means: in 95 % of experiments or more all intervals of the column contain what they
    estimate (Bonferroni). For the mean differences all links count, since the weakest is chosen by
    the same numbers. Practical equality on average: two one-sided tests (Schuirmann 1987).
    """
    shares = intervals.bonferroni_level(intervals.LEVEL, len(claims))
    means = intervals.bonferroni_level(intervals.LEVEL, sum(len(one.links) for one in counted))
    lines = _lines(cells, claims)
    records = [
        {"claim": index}
        | _judge(claim, counts, lines, shares, means)
        | _as_the_lesson_draws(claim, counts, (lesson or {}).get(index), lines)
        for index, (claim, counts) in enumerate(zip(claims, counted, strict=True))
    ]
    return pl.DataFrame(records, CLAIMS_SCHEMA)


@dataclass(frozen=True)
class _Mean:
    """Estimate of the mean difference of a link; None where there are too few replications.

    `note` says why it has no interval, or why that cannot be trusted.
    """

    n: int
    mean: float | None
    mcse: float | None
    has_interval: bool
    note: str | None

    def interval(self, level: float) -> tuple[float | None, float | None]:
        """Student's interval."""
        if self.mean is None or self.mcse is None or not self.has_interval:
            return None, None
        half = float(intervals.t_half_width(self.n, self.mcse, level))
        return self.mean - half, self.mean + half


def _judge(
    claim: Claim,
    counted: ClaimCounts,
    lines: Mapping[int, pl.DataFrame],
    level_of_share: float,
    level_of_mean: float,
) -> dict[str, Any]:
    """One line of the claims; the two levels make intervals cover together."""
    links = list(_links(claim))
    means = [_mean(link, sums, lines) for link, sums in zip(links, counted.links, strict=True)]
    weakest = _weakest(links, means)
    share = _share_interval(counted, intervals.LEVEL)
    share_together = _share_interval(counted, level_of_share)
    levels = intervals.LEVEL, level_of_mean
    ends, ends_together = (means[weakest].interval(level) for level in levels)
    return {
        "text": claim.text,
        "scenario": claim.scenario,
        "metric": " & ".join(claim.metrics),
        "relation": claim.relation,
        "link_metric": links[weakest].metric,
        "left": links[weakest].left_label,
        "right": links[weakest].right_label,
        "n": counted.n,
        "n_holds": counted.n_holds,
        "share": counted.n_holds / counted.n if counted.n else None,
        "share_low": share[0],
        "share_high": share[1],
        "share_together_low": share_together[0],
        "share_together_high": share_together[1],
        "mean_difference": means[weakest].mean,
        "mcse": means[weakest].mcse,
        "ci_low": ends[0],
        "ci_high": ends[1],
        "together_low": ends_together[0],
        "together_high": ends_together[1],
        "margin": claim.margin,
        "note": means[weakest].note,
        "on_average": _on_average(links, means, level_of_mean),
        "verdict": verdict(*share_together),
    }


def _as_the_lesson_draws(
    claim: Claim,
    counted: ClaimCounts,
    lesson: ClaimCounts | None,
    lines: Mapping[int, pl.DataFrame],
) -> dict[str, Any]:
    """The columns of the lesson's draws; none where nothing was counted with them."""
    if lesson is None or lesson.n == 0:
        return {}
    links = list(_links(claim))
    k = _weakest(links, [_mean(*both, lines) for both in zip(links, counted.links, strict=True)])
    mean = _mean(links[k], lesson.links[k], lines)
    low, high = _share_interval(lesson, intervals.LEVEL)
    return {
        "lesson_n": lesson.n,
        "lesson_share": lesson.n_holds / lesson.n,
        "lesson_low": low,
        "lesson_high": high,
        "lesson_mean_difference": mean.mean,
        "lesson_mcse": mean.mcse,
    }


def _weakest(links: Sequence[_Link], means: Sequence[_Mean]) -> int:
    """Index of the link that lies least in favour; of equals the first."""
    return min(range(len(links)), key=lambda i: _strength(links[i].relation, means[i]))


def _share_interval(counted: ClaimCounts, level: float) -> tuple[float | None, float | None]:
    if counted.n == 0:
        return None, None
    low, high = intervals.share_interval(np.array([counted.n_holds]), np.array([counted.n]), level)
    return float(low[0]), float(high[0])


def _mean(link: _Link, sums: NDArray[Any], lines: Mapping[int, pl.DataFrame]) -> _Mean:
    """Mean of left - right from exact sums, rounded once."""
    n, x, y, xx, xy, yy, third, n_differ = sums.tolist()
    if n == 0:
        return _Mean(0, None, None, False, None)
    a = 1 / _divisor(link.metric, lines[link.left])
    p, q = link.times.as_integer_ratio()
    if link.right is None:
        b, constant, d, dd = Fraction(0), link.times, x, xx
    else:
        b, constant = link.times / _divisor(link.metric, lines[link.right]), Fraction(0)
        d, dd = q * x - p * y, q * q * xx - 2 * p * q * xy + p * p * yy
    mean = (a * x - b * y) / n - constant
    spread = a * a * (n * xx - x * x) + b * b * (n * yy - y * y) - 2 * a * b * (n * xy - x * y)
    mcse = math.sqrt(spread / (n * n * (n - 1))) if n > 1 else None
    unlike = link.right is not None and b != a * link.times
    if unlike:
        # without the cubes only this is known: whether the difference varies
        skewness = 0.0 if spread else math.nan
    else:
        sampled = (np.array([number], object) for number in (n, d, dd, third))
        skewness = float(skewness_of(*sampled)[0])
    judged = n, n_differ, skewness
    has_interval = bool(intervals.mean_has_interval(*judged))
    note = intervals.mean_notes(*judged)[0] or (UNLIKE if unlike else None)
    return _Mean(n, float(mean), mcse, has_interval, note)


def _divisor(metric: str, cell: pl.DataFrame) -> Fraction:
    return Fraction(divisors_of(METRICS[metric], cell)[0])


def _strength(relation: str, difference: _Mean) -> float:
    """How far a mean difference lies in the claimed direction, in standard errors."""
    mean, mcse = difference.mean, difference.mcse
    if mean is None or mean == 0:
        return 0.0
    errors = mean / mcse if mcse else math.copysign(math.inf, mean)
    if relation == "=":
        return -abs(errors)
    return -errors if relation in {"<", "<="} else errors


def _on_average(links: Sequence[_Link], means: Sequence[_Mean], level: float) -> str | None:
    """Whether on average all links surely hold, or one surely fails.

    None if no link fails and one has no interval.
    """
    of_links = [_link_on_average(*both, level) for both in zip(links, means, strict=True)]
    if FAILS in of_links:
        return FAILS
    if None in of_links:
        return None
    return HOLDS if all(one == HOLDS for one in of_links) else OPEN


def _link_on_average(link: _Link, mean: _Mean, level: float) -> str | None:
    low, high = mean.interval(level)
    if low is None or high is None:
        return None
    if link.relation == "=":
        margin = float(link.margin)
        # two one-sided tests at 1 - level each are an interval at 1 - 2 (1 - level)
        inner = mean.interval(2 * level - 1)
        assert inner[0] is not None
        assert inner[1] is not None
        if -margin <= inner[0] and inner[1] <= margin:
            return HOLDS
        return FAILS if low > margin or high < -margin else OPEN
    if link.relation in (">", ">="):
        low, high = -high, -low
    if high < 0:
        return HOLDS
    return FAILS if low > 0 else OPEN


def verdict(share_low: float | None, share_high: float | None) -> str | None:
    """Judge a claim by the interval of its share; None without an interval."""
    if share_low is None or share_high is None:
        return None
    if share_low >= SHARE_HOLDS:
        return HOLDS
    if share_high <= SHARE_FAILS:
        return FAILS
    # these ends are exact: the claim held in all replications, or in none
    return OPEN if share_low == 0 or share_high == 1 else DEPENDS
