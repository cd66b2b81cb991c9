"""Claims: sentences put to the test, replication by replication."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.model import METRICS, Column, Thresholds, schema_of
from mc.model.columns import OF_METRIC
from mc.model.thresholds import DEPENDS, FAILS, HOLDS, OPEN
from mc.statistics import intervals
from mc.statistics.comparisons import UNLIKE, align, crosswise, split
from mc.statistics.counts import Sums, cubes, joint_sums, skewness_of
from mc.statistics.estimates import OF_SHARE, interval_columns
from mc.statistics.rows import Numbers, Stack, divisors_of

if TYPE_CHECKING:
    from mc.experiment import Claim

MOST_TO_DECIDE: Final = 2**32 - 1
"""Nobody is advised to run more replications than there are."""

AT_ANY_TIME: Final = "holds at every number of replications at once"
"""Of an interval: so a run may be grown until a verdict comes."""

_USUAL: Final = Thresholds()

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
    "n": Column(
        "int64",
        "replications",
        "replications in which all that is compared is defined, or did not come within the run, "
        "which counts as later than all that did",
    ),
    "n_holds": Column("int64", "replications", "those in which the claim holds"),
    "share": Column("float", "share", "n_holds / n, under common random numbers"),
    **interval_columns("share", "share", "share, each claim alone", OF_SHARE),
    **interval_columns(
        "share_together",
        "share",
        "share, all claims together (Bonferroni)",
        f"confidence sequence, {AT_ANY_TIME}",
    ),
    "share_defined": Column(
        "float",
        "share",
        "of the weakest link: share of n in which both sides come within the run; the mean "
        "difference is of these",
    ),
    "mean_difference": Column(
        "float", OF_METRIC, "of the weakest link: mean over replications of left - right"
    ),
    "mcse": Column("float", OF_METRIC, "Monte Carlo standard error of the mean difference"),
    **interval_columns(
        "ci",
        OF_METRIC,
        "mean difference, each claim alone, whichever of its links is the weakest",
        "paired t, Bonferroni over its links",
    ),
    **interval_columns(
        "together",
        OF_METRIC,
        "mean difference, all links of all claims together (Bonferroni)",
        f"asymptotic confidence sequence, {AT_ANY_TIME}",
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
        f"{HOLDS}, {FAILS} or {DEPENDS}: the interval of the share, all together, lies at or "
        f"above the upper threshold, at or below the lower one, or between them; {OPEN} where it "
        "straddles one",
    ),
    "n_to_decide": Column(
        "int64",
        "replications",
        f"where the verdict is {OPEN}: about as many would decide it, if the share stays as it is",
    ),
    "lesson_n": Column(
        "int64", "replications", "replications with the lesson's draws, if they were asked for"
    ),
    "lesson_share": Column(
        "float",
        "share",
        "share of these: every cell draws from one stream, so the cells of a replication do not "
        "meet the same traffic. A share depends on that, a mean difference does not",
    ),
    **interval_columns("lesson", "share", "share with the lesson's draws", OF_SHARE),
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
        Replications in which all that is compared is defined or later than the run, and those in
        which the claim holds.
    links : Sums, shape (L, 8)
        For each link the sums over those of these replications in which both of its sides are
        defined: of the numbers x of its left cell and y of its right; then the sum of the cubes of
        the difference in whole numbers, q x - p y if the link multiplies by p / q (against a
        number: of x; 0 where the divisors of the cells differ); and the number of replications in
        which the two sides differ.
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
    several. It holds in a replication if all its links do. What did not come within the run counts
    as later than all that did, and than any number; between two such no relation holds, for their
    order is unknown. Replications in which a compared value is NULL for another reason, or which
    one of the cells lacks, are left out of `n`. Counters are compared as whole numbers and their
    ratios as fractions; equal means equal in the same replication, up to the claim's margin.

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
    counted = [_count_link(link, numbers_of[link.metric], index_of) for link in links]
    compared = np.logical_and.reduce([link.compared for link in counted])
    holds = np.logical_and.reduce([compared, *(link.holds for link in counted)])
    sums = []
    for link in counted:
        known = link.known & compared
        both = joint_sums((link.x[np.newaxis], link.y[np.newaxis]), known[np.newaxis])[0].tolist()
        third = cubes(link.difference[np.newaxis], known[np.newaxis])[0]
        sums.append([*both, third, int(np.count_nonzero(link.differs & known))])
    n, n_holds = int(np.count_nonzero(compared)), int(np.count_nonzero(holds))
    return ClaimCounts(n, n_holds, np.array(sums, object))


class _CountedLink(NamedTuple):
    """A link in every replication; all of shape (R,).

    Attributes
    ----------
    x, y : ndarray of int64
        Numbers of both cells.
    difference : ndarray of int64
        See `ClaimCounts`.
    known : ndarray of bool
        Whether both are defined.
    compared, holds, differs : ndarray of bool
        Whether both are defined or later than the run; whether the relation holds; whether the two
        sides differ.
    """

    x: NDArray[np.int64]
    y: NDArray[np.int64]
    difference: NDArray[np.int64]
    known: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    holds: NDArray[np.bool_]
    differs: NDArray[np.bool_]


def _count_link(link: _Link, numbers: Numbers, index_of: Mapping[int, int]) -> _CountedLink:
    """Compare both sides of a link; what is later than the run is the larger one."""
    left = numbers.of(np.array([index_of[link.left]]))
    x, known, later = left.numbers[0], left.known[0], left.later[0]
    if link.right is None:
        holds, differs = _against_number(left, link)
        when_later = link.relation in (">", ">=")
        return _CountedLink(
            *(x, x, x, known, known | later),
            *(np.where(later, when_later, holds & known), differs),
        )
    right = numbers.of(np.array([index_of[link.right]]))
    holds, differs, difference = _against_cell(left, right, link)
    both = known & right.known[0]
    left_only, right_only = later & right.known[0], known & right.later[0]
    holds = np.select(
        [both, left_only, right_only],
        [holds, np.full(len(x), link.relation in (">", ">=")), link.relation in ("<", "<=")],
        default=False,
    )
    compared = (known | later) & (right.known[0] | right.later[0])
    return _CountedLink(x, right.numbers[0], difference, both, compared, holds, differs)


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


def _against_number(left: Numbers, link: _Link) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether the one cell of `left` is in the link's relation to its number, and differs; exactly.

    A value is a fraction a / b: it is below p / q where ``a q < p b``.
    """
    a, b, unit = _fractions(left)
    at, low, high = (
        _crosswise(a, b, bound * unit)
        for bound in (link.times, link.times - link.margin, link.times + link.margin)
    )
    below, above = at[0] < at[1], at[0] > at[1]
    holds = {
        "<": below,
        "<=": ~above,
        "=": (low[0] >= low[1]) & (high[0] <= high[1]),
        ">=": ~below,
        ">": above,
    }
    return holds[link.relation].astype(np.bool_), (below | above).astype(np.bool_)


def _fractions(one: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64], Fraction]:
    """The values of a single cell as a / b, and what these are to be divided by."""
    if one.fractions is not None:
        return one.fractions[0][0], one.fractions[1][0], Fraction(1)
    return one.numbers[0], np.ones(one.numbers.shape[1], np.int64), Fraction(one.divisors[0])


def _crosswise(
    a: NDArray[np.int64], b: NDArray[np.int64], bound: Fraction
) -> tuple[NDArray[Any], NDArray[Any]]:
    """``a q`` and ``p b`` for the bound p / q, in Python's integers where 64 bits are too few."""
    p, q = bound.as_integer_ratio()
    (left, right) = crosswise((a, b), (np.array([p], object), np.array([q], object)))
    return left, right


def _against_cell(
    left: Numbers, right: Numbers, link: _Link
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Whether one cell is in the link's relation to the other, and differs from ``times`` it.

    Ratios of counters are compared as fractions, and numbers over equal divisors as whole numbers,
    hence exactly; so is their difference, in whole numbers. Others are compared in doubles, with 0
    for the difference.
    """
    p, q = link.times.as_integer_ratio()
    x, y, d, e = left.numbers[0], right.numbers[0], left.divisors[0], right.divisors[0]
    one: NDArray[Any]
    other: NDArray[Any]
    margin: Any
    difference = _times(x, q) - _times(y, p) if d == e else np.zeros(len(x), np.int64)
    if left.fractions is not None and right.fractions is not None:
        (a, b), (c, d_) = ((n[0], m[0]) for n, m in (left.fractions, right.fractions))
        one, other = crosswise((_times(a, q), b), (_times(c, p), d_))
        margin = link.margin * q * (b.astype(object) * d_) if link.margin else 0
    elif d == e:
        one, other = _times(x, q), _times(y, p)
        margin = math.floor(link.margin * Fraction(d) * q)
    else:
        one, other = x / float(d), y * float(link.times / Fraction(e))
        margin = float(link.margin)
    if link.relation == "=" and link.margin:
        holds = np.abs(one - other) <= margin
    else:
        holds = _RELATIONS[link.relation](one, other)
    return holds.astype(np.bool_), (one != other).astype(np.bool_), difference


def _times(x: NDArray[np.int64], factor: int) -> NDArray[Any]:
    """Multiply whole numbers, in Python's integers where 64 bits are too few."""
    largest = int(np.abs(x).max(initial=0)) * abs(factor)
    return (x if largest < 2**62 else x.astype(object)) * factor


# --- verdicts -------------------------------------------------------------------------------


def verdicts(
    counted: Sequence[ClaimCounts],
    cells: pl.DataFrame,
    claims: Sequence[Claim],
    lesson: Mapping[int, ClaimCounts] | None = None,
    thresholds: Thresholds = _USUAL,
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
    thresholds : Thresholds
        By which the verdicts are given.

    Returns
    -------
    polars.DataFrame
        One line for each claim, in the schema of `CLAIMS_SCHEMA`; for `verdict` see `verdict`, NULL
        without replications. The intervals that decide are wide enough for all claims together, and
        for any number of looks.

        `mean_difference` and its intervals are those of the weakest link, `left - right` in
        `link_metric`: the link whose mean difference lies least in the claimed direction, in
        units of its standard error (for an equality, furthest from zero).

    Notes
    -----
    A share depends on how the replications of two cells are coupled: it is a statement about cells
    that see the same traffic and the same luck. The mean difference does not depend on that.

    Together means: in 95 % of experiments or more all intervals of the column contain what they
    estimate (Bonferroni), whenever one looks: a verdict does not become more doubtful by growing
    the run until it comes. For the mean differences all links count, and for that of one claim
    alone all of its own, since the weakest is chosen by the same numbers. Practical equality on
    average: two one-sided tests (Schuirmann 1987).
    """
    shares = intervals.bonferroni_level(intervals.LEVEL, len(claims))
    means = intervals.bonferroni_level(intervals.LEVEL, sum(len(one.links) for one in counted))
    lines = _lines(cells, claims)
    records = [
        {"claim": index}
        | _judge(claim, counts, lines, shares, means, thresholds)
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

    def interval(
        self, level: float, half_width: Callable[..., Any] = intervals.half_width_at_any_time
    ) -> tuple[float | None, float | None]:
        """The mean with this half-width on both sides."""
        if self.mean is None or self.mcse is None or not self.has_interval:
            return None, None
        half = float(half_width(self.n, self.mcse, level))
        return self.mean - half, self.mean + half


def _judge(
    claim: Claim,
    counted: ClaimCounts,
    lines: Mapping[int, pl.DataFrame],
    level_of_share: float,
    level_of_mean: float,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """One line of the claims; the two levels make intervals cover together."""
    links = list(_links(claim))
    means = [_mean(link, sums, lines) for link, sums in zip(links, counted.links, strict=True)]
    weakest = _weakest(links, means)
    share = _share_interval(counted, intervals.LEVEL)
    together = _share_interval(counted, level_of_share, intervals.share_at_any_time)
    alone = intervals.bonferroni_level(intervals.LEVEL, len(links))
    ends = means[weakest].interval(alone, intervals.t_half_width)
    ends_together = means[weakest].interval(level_of_mean)
    judged = verdict(*together, thresholds)
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
        "share_together_low": together[0],
        "share_together_high": together[1],
        "share_defined": means[weakest].n / counted.n if counted.n else None,
        "mean_difference": means[weakest].mean,
        "mcse": means[weakest].mcse,
        "ci_low": ends[0],
        "ci_high": ends[1],
        "together_low": ends_together[0],
        "together_high": ends_together[1],
        "margin": claim.margin,
        "note": means[weakest].note,
        "on_average": _on_average(links, means, level_of_mean),
        "verdict": judged,
        "n_to_decide": to_decide(counted.n_holds, counted.n, level_of_share, thresholds)
        if judged == OPEN
        else None,
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


def _share_interval(
    counted: ClaimCounts,
    level: float,
    interval: Callable[..., Any] = intervals.share_interval,
) -> tuple[float | None, float | None]:
    if counted.n == 0:
        return None, None
    low, high = interval(np.array([counted.n_holds]), np.array([counted.n]), level)
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


def verdict(
    share_low: float | None, share_high: float | None, thresholds: Thresholds = _USUAL
) -> str | None:
    """Judge a claim by the interval of its share; None without an interval.

    That it depends on the seed is a finding, too: the whole interval lies between the thresholds.
    One that straddles a threshold decides nothing.
    """
    if share_low is None or share_high is None:
        return None
    if share_low >= thresholds.holds:
        return HOLDS
    if share_high <= thresholds.fails:
        return FAILS
    is_between = share_low > thresholds.fails and share_high < thresholds.holds
    return DEPENDS if is_between else OPEN


def to_decide(n_holds: int, n: int, level: float, thresholds: Thresholds) -> int | None:
    """About how many replications give a verdict if the share stays as it is.

    Two digits; None where that would be more than `MOST_TO_DECIDE`.
    """
    share = Fraction(n_holds, n)

    def is_open(m: int) -> bool:
        low, high = intervals.share_at_any_time([round(share * m)], [m], level)
        return verdict(float(low[0]), float(high[0]), thresholds) == OPEN

    few, enough = n, 2 * n
    while is_open(enough):
        few, enough = enough, 2 * enough
        if few > MOST_TO_DECIDE:
            return None
    while enough - few > few // 100 + 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if is_open(middle) else (few, middle)
    unit = 10 ** max(0, len(str(enough)) - 2)
    rounded = -(-enough // unit) * unit
    return rounded if rounded <= MOST_TO_DECIDE else None
