"""What can be computed without simulating, against 20,000 replications under philox.

A statistic z passes at |z| <= 5: where the formula is right, a fresh seed would break one check
in 1.7 million (two-sided normal tail, 5.7e-7), and any of the some 80 checks of this file once in
20,000 seeds. The seed is fixed, so nothing flakes. Normal tails are a fair approximation: each z
is of a mean, variance or share over 20,000 independent replications; counts of rare events are
compared only where at least 30 are expected.

Symbols: rate, mean arrivals per round; p, failure rate; r, attempts allowed; D_k, the wait after
attempt k, uniform on 1 .. ceiling_k; S_k = D_0 + ... + D_{k-1}, rounds from arrival to attempt k.
Without a budget attempts happen at times that only a request's own draws decide, so requests are
independent and every count below is a compound Poisson sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

import mc

Floats = npt.NDArray[np.float64]

N: Final = 20_000
SEED: Final = 20260802
MAX_Z: Final = 5.0
RATE: Final = 0.9722
ROUNDS: Final = 4000
UNLIMITED: Final = 10**9

LESSON: Final = mc.Cell(chain="flattened")
OUTAGE: Final = replace(LESSON, fault_rounds=100)
DEGRADATION: Final = replace(LESSON, fault_rounds=1000, fault_capacity=1)
HEALTHY: Final = replace(LESSON, failure_rate=0.025)

TRIES: Final[dict[int, tuple[int, ...]]] = {1: (1,), 3: (3,), 9: (3, 3), 27: (3, 3, 3)}


# What is compared ---------------------------------------------------------------------------------


def simulate(cells: Sequence[mc.Cell]) -> list[pl.DataFrame]:
    """Return a frame of N replications for each cell, simulated in one call."""
    frame = mc.simulate(cells, replications=N, seed=SEED)
    return frame.partition_by("cell", maintain_order=True)


def column(frame: pl.DataFrame, name: str) -> Floats:
    return frame[name].to_numpy().astype(np.float64)


def assert_mean(x: Floats, mean: float) -> None:
    """Hold the sample's mean against the exact one, in its own standard errors."""
    z = (x.mean() - mean) / (x.std(ddof=1) / math.sqrt(len(x)))
    assert abs(z) <= MAX_Z, f"z = {z:.2f}: mean {x.mean():.6g}, expected {mean:.6g}"


def assert_variance(x: Floats, variance: float) -> None:
    """Hold the sample's variance against the exact one; its standard error from the sample."""
    centred = x - x.mean()
    s2, m4 = x.var(ddof=1), (centred**4).mean()
    # Var(s2) = (m4 - s2**2 (n-3)/(n-1)) / n: Cramér 1946, section 27.4
    z = (s2 - variance) / math.sqrt((m4 - s2**2) / len(x))
    assert abs(z) <= MAX_Z, f"z = {z:.2f}: variance {s2:.6g}, expected {variance:.6g}"


def assert_share(hits: npt.NDArray[np.bool_], share: float) -> None:
    z = (hits.mean() - share) / math.sqrt(share * (1 - share) / len(hits))
    assert abs(z) <= MAX_Z, f"z = {z:.2f}: share {hits.mean():.6g}, expected {share:.6g}"


def assert_poisson(x: Floats, mean: float) -> None:
    assert_mean(x, mean)
    assert_variance(x, mean)


def assert_distribution(x: Floats, pmf: Floats) -> None:
    """Hold a sample of counts against a probability of 0, 1, 2, ... by chi-square.

    Fails for a fresh seed as often as a z of 5 would.
    """
    observed = np.bincount(x.astype(np.int64), minlength=len(pmf)).astype(np.float64)
    assert len(observed) == len(pmf)
    expected = len(x) * pmf
    kept = expected >= 30
    assert kept.sum() >= 5
    o = np.append(observed[kept], observed[~kept].sum())
    e = np.append(expected[kept], len(x) - expected[kept].sum())
    chi2 = ((o - e) ** 2 / e).sum()
    p_value = stats.chi2.sf(chi2, len(o) - 1)
    assert p_value >= 2 * stats.norm.sf(MAX_Z), f"chi-square {chi2:.1f}, {len(o)} classes"


# What is expected ---------------------------------------------------------------------------------


def overflow(capacity: int, rate: float = RATE) -> float:
    """E[(N - capacity)+] of Poisson arrivals: the requests that find no room in a round."""
    n = np.arange(capacity + 1, capacity + 200)
    return float(((n - capacity) * stats.poisson.pmf(n, rate)).sum())


def overflow_variance(capacity: int, rate: float = RATE) -> float:
    n = np.arange(capacity + 1, capacity + 200)
    second = float(((n - capacity) ** 2 * stats.poisson.pmf(n, rate)).sum())
    return second - overflow(capacity, rate) ** 2


def ceiling_after(attempt: int) -> int:
    return min(32, 2 << attempt)


def arrival_to_attempt(cell: mc.Cell, n_rounds: int) -> Floats:
    """P(S_k = s) for k < r and s < n_rounds, by convolution; shape (r, n_rounds)."""
    pmf = np.zeros((cell.max_attempts, n_rounds))
    pmf[0, 0] = 1.0
    for k in range(1, cell.max_attempts):
        ceiling = ceiling_after(k - 1)
        wait = np.zeros(n_rounds)
        wait[1 : ceiling + 1] = 1.0 / ceiling
        pmf[k] = np.convolve(pmf[k - 1], wait)[:n_rounds]
    return pmf


def reach(cell: mc.Cell, n_rounds: int) -> Floats:
    """Sum over j < n_rounds of P(S_k <= j), for each k: a request enters in each round once."""
    return np.asarray(arrival_to_attempt(cell, n_rounds).cumsum(axis=1).sum(axis=1))


# No retries ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def no_retries() -> dict[str, pl.DataFrame]:
    """Simulate the lesson's three scenarios without retries, all 4,000 rounds."""
    healthy, outage, degradation = simulate([HEALTHY, OUTAGE, DEGRADATION])
    return {"healthy": healthy, "outage": outage, "degradation": degradation}


SCENARIOS: Final = ("healthy", "outage", "degradation")


def test_the_constants_are_those_of_the_literature() -> None:
    assert OUTAGE.rate_per_round == RATE
    assert stats.poisson.sf(6, RATE) == pytest.approx(6.998994e-5, rel=1e-6)
    assert overflow(6) == pytest.approx(7.936114e-5, rel=1e-6)
    assert overflow(1) == pytest.approx(RATE - 1 + math.exp(-RATE), rel=1e-12)


def test_requests_are_poisson(no_retries: dict[str, pl.DataFrame]) -> None:
    """Mean and variance rate * rounds = 3888.8; breaks for 1 seed in 900,000."""
    assert_poisson(column(no_retries["healthy"], "requests"), RATE * ROUNDS)


def test_requests_of_the_window_are_poisson(no_retries: dict[str, pl.DataFrame]) -> None:
    """Breaks for 1 seed in 400,000."""
    assert_poisson(column(no_retries["outage"], "window_requests"), RATE * 100)
    assert_poisson(column(no_retries["degradation"], "window_requests"), RATE * 1000)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_without_retries_a_call_is_a_request(
    no_retries: dict[str, pl.DataFrame], scenario: str
) -> None:
    frame = no_retries[scenario]
    assert frame["calls"].equals(frame["requests"], check_names=False)
    assert frame["window_calls"].equals(frame["window_requests"], check_names=False)
    assert frame["retries"].max() == 0
    assert frame["in_flight"].max() == 0
    assert frame["wait_total"].max() == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_peak_without_retries_is_the_largest_of_poisson_counts(
    no_retries: dict[str, pl.DataFrame], scenario: str
) -> None:
    """P(peak <= m) = P(N <= m)**rounds, mean 6.1530; breaks for 1 seed in 900,000.

    The three scenarios have the same traffic, so they pass or fail together.
    """
    m = np.arange(40)
    pmf = np.diff(stats.poisson.cdf(m, RATE) ** ROUNDS, prepend=0.0)
    assert (m * pmf).sum() == pytest.approx(6.1530, abs=5e-5)
    peak = column(no_retries[scenario], "peak")
    assert_mean(peak, float((m * pmf).sum()))
    assert_distribution(peak, pmf)


@pytest.mark.parametrize("scenario", ["outage", "degradation"])
def test_the_second_peak_without_retries_is_that_of_the_rounds_after_the_window(
    no_retries: dict[str, pl.DataFrame], scenario: str
) -> None:
    """Breaks for 1 seed in 900,000."""
    n_after = {"outage": 3400, "degradation": 2500}[scenario]
    second_peak = column(no_retries[scenario], "second_peak")
    for m in (5, 6):
        assert_share(second_peak <= m, stats.poisson.cdf(m, RATE) ** n_after)
    assert no_retries[scenario]["drain"].to_list() == [0] * N  # nothing was ever pending


def test_an_outage_drops_its_window_and_the_overflow_of_the_rest(
    no_retries: dict[str, pl.DataFrame],
) -> None:
    """Mean 97.5295; breaks for 1 seed in 900,000."""
    dropped = column(no_retries["outage"], "dropped")
    mean = RATE * 100 + (ROUNDS - 100) * overflow(6)
    assert mean == pytest.approx(97.5295, abs=5e-5)
    assert_mean(dropped, mean)
    assert_variance(dropped, RATE * 100 + (ROUNDS - 100) * overflow_variance(6))


def test_what_an_outage_drops_has_the_whole_distribution_of_the_closed_form(
    no_retries: dict[str, pl.DataFrame],
) -> None:
    """A Poisson count plus 3,900 overflows, by Fourier transform; 1 seed in 1.7 million."""
    n = np.arange(512)
    one_round = stats.poisson.pmf(n + 6, RATE)
    one_round[0] = stats.poisson.cdf(6, RATE)
    rest = np.fft.rfft(one_round) ** (ROUNDS - 100)
    window = np.fft.rfft(stats.poisson.pmf(n, RATE * 100))
    pmf = np.fft.irfft(rest * window, len(n)).clip(min=0)
    assert_distribution(column(no_retries["outage"], "dropped"), pmf)


def test_a_degradation_drops_the_overflow_of_both_capacities(
    no_retries: dict[str, pl.DataFrame],
) -> None:
    """Mean 350.688, sd 21.730; breaks for 1 seed in 900,000."""
    dropped = column(no_retries["degradation"], "dropped")
    mean = 1000 * overflow(1) + (ROUNDS - 1000) * overflow(6)
    variance = 1000 * overflow_variance(1) + (ROUNDS - 1000) * overflow_variance(6)
    assert (mean, math.sqrt(variance)) == pytest.approx((350.688, 21.730), abs=5e-4)
    assert_mean(dropped, mean)
    assert_variance(dropped, variance)


def test_a_healthy_day_drops_the_overflow_and_one_served_call_in_forty(
    no_retries: dict[str, pl.DataFrame],
) -> None:
    """Mean 97.5295, sd 9.884; breaks for 1 seed in 900,000."""
    dropped = column(no_retries["healthy"], "dropped")
    p = HEALTHY.failure_rate
    mean = ROUNDS * (p * (RATE - overflow(6)) + overflow(6))
    assert mean == pytest.approx(97.5295, abs=5e-5)
    assert_mean(dropped, mean)
    # of the n requests of a round, `served` fail by chance and the rest for want of room
    n = np.arange(200)
    served = n.clip(max=6)
    mass = stats.poisson.pmf(n, RATE)
    given_n = n - served + p * served
    variance = ROUNDS * (
        (mass * p * (1 - p) * served).sum()
        + (mass * given_n**2).sum()
        - (mass * given_n).sum() ** 2
    )
    assert math.sqrt(variance) == pytest.approx(9.884, abs=5e-4)
    assert_variance(dropped, variance)


# An outage ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outage() -> dict[int, pl.DataFrame]:
    """Simulate the lesson's outage and ten rounds more; by attempts allowed."""
    cells = [replace(OUTAGE, rounds=610, tries=tries) for tries in TRIES.values()]
    return dict(zip(TRIES, simulate(cells), strict=True))


@pytest.mark.parametrize(
    ("r", "rate", "sd"),
    [
        (1, 0.97220, 0.09860),
        (3, 2.86313, 0.29175),
        (9, 6.20359, 0.65933),
        (27, 6.33752, 0.67936),
    ],
)
def test_the_window_rate_of_an_outage_is_a_compound_poisson_sum(
    outage: dict[int, pl.DataFrame], r: int, rate: float, sd: float
) -> None:
    """E[W] = rate * sum of P(S_k <= j), Var[W] the same with weights 2k + 1.

    Breaks for 1 seed in 900,000, for each r. The retries that an overflow before the window
    carries into it, fewer than 0.01 calls a run, are left out: a twentieth of a standard error.
    """
    window_calls = column(outage[r], "window_calls")
    reached = reach(replace(OUTAGE, tries=TRIES[r]), 100)
    mean = RATE * reached.sum()
    variance = RATE * ((2 * np.arange(r) + 1) * reached).sum()
    assert (mean / 100, math.sqrt(variance) / 100) == pytest.approx((rate, sd), abs=5e-6)
    assert_mean(window_calls, mean)
    assert_variance(window_calls, variance)


@pytest.fixture(scope="module")
def outage_alone() -> dict[int, pl.DataFrame]:
    """Simulate an outage of 100 rounds and nothing else; by attempts allowed."""
    cells = [replace(LESSON, rounds=100, capacity=0, tries=tries) for tries in TRIES.values()]
    return dict(zip(TRIES, simulate(cells), strict=True))


@pytest.mark.parametrize("r", [3, 9])
def test_requests_that_give_up_within_an_outage_are_poisson(
    outage_alone: dict[int, pl.DataFrame], r: int
) -> None:
    """Mean 93.3312 for 3 attempts, 18.4670 for 9; breaks for 1 seed in 900,000, for each."""
    mean = RATE * reach(replace(OUTAGE, tries=TRIES[r]), 100)[r - 1]
    assert mean == pytest.approx({3: 93.3312, 9: 18.4670}[r], abs=5e-5)
    assert_poisson(column(outage_alone[r], "dropped"), mean)


def test_no_request_gives_up_within_an_outage_at_27_attempts(
    outage_alone: dict[int, pl.DataFrame],
) -> None:
    # 26 waits within 100 rounds, 22 of them of 16.5 on average: expected 5e-8 in 20,000 runs
    assert RATE * reach(replace(OUTAGE, tries=TRIES[27]), 100)[26] * N < 1e-6
    assert outage_alone[27]["dropped"].sum() == 0


@pytest.mark.parametrize("i", [0, 1, 7, 40, 99])
def test_the_calls_of_one_round_of_an_outage_are_poisson(i: int) -> None:
    """Mean rate * sum over l <= i and k < r of P(S_k = l); 1 seed in 600,000, for each i."""
    # the whole run is the outage; its window only points at round i
    cell = replace(LESSON, rounds=100, capacity=0, tries=(3, 3), fault_start=i, fault_rounds=1)
    (frame,) = simulate([cell])
    mean = RATE * float(arrival_to_attempt(cell, i + 1).sum())
    calls = column(frame, "window_calls")
    assert_poisson(calls, mean)
    assert_distribution(calls, stats.poisson.pmf(np.arange(int(calls.max()) + 1), mean))


# A healthy day ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy() -> dict[int, pl.DataFrame]:
    """Simulate the lesson's healthy scenario with a capacity that never binds."""
    roomy = replace(HEALTHY, capacity=UNLIMITED)
    cells = [replace(roomy, tries=TRIES[r]) for r in (3, 9, 27)]
    return dict(zip((3, 9, 27), simulate(cells), strict=True))


@pytest.mark.parametrize("r", [3, 9, 27])
def test_calls_of_a_healthy_day_are_a_truncated_geometric_sum(
    healthy: dict[int, pl.DataFrame], r: int
) -> None:
    """E[C] = rate * sum of p**k P(S_k <= j); breaks for 1 seed in 900,000, for each r."""
    p = HEALTHY.failure_rate
    terms = p ** np.arange(r) * reach(replace(HEALTHY, tries=TRIES[r]), ROUNDS)
    mean = RATE * terms.sum()
    assert mean == pytest.approx(3988.412 if r == 3 else 3988.474, abs=5e-4)
    calls = column(healthy[r], "calls")
    assert_mean(calls, mean)
    assert_variance(calls, RATE * ((2 * np.arange(r) + 1) * terms).sum())


@pytest.mark.parametrize(("r", "multiplier"), [(3, 1.025625), (9, 1.025641), (27, 1.025641)])
def test_the_multiplier_of_a_healthy_day_is_one_plus_p_plus_p_squared(
    healthy: dict[int, pl.DataFrame], r: int, multiplier: float
) -> None:
    """(1 - p**r) / (1 - p), as a ratio of means; breaks for 1 seed in 1.7 million, for each r.

    The end of the run cuts off 1.3e-5 of it (retries still in flight), which the test puts back.
    """
    p = HEALTHY.failure_rate
    assert (1 - p**r) / (1 - p) == pytest.approx(multiplier, abs=5e-7)
    terms = p ** np.arange(r) * reach(replace(HEALTHY, tries=TRIES[r]), ROUNDS)
    cut_off = multiplier - terms.sum() / ROUNDS
    assert 0 < cut_off < 1.5e-5
    calls, requests = column(healthy[r], "calls"), column(healthy[r], "requests")
    # by the delta method: calls minus its expectation given the requests has mean zero
    assert_mean(calls - (multiplier - cut_off) * requests, 0.0)


def test_three_attempts_drop_few_requests_on_a_healthy_day(
    healthy: dict[int, pl.DataFrame],
) -> None:
    """Poisson with mean rate * p**3 * sum of P(S_2 <= j) = 0.0607; 1 seed in 900,000."""
    mean = RATE * 0.025**3 * reach(replace(HEALTHY, tries=(3,)), ROUNDS)[2]
    assert mean == pytest.approx(0.0607, abs=5e-5)
    assert_poisson(column(healthy[3], "dropped"), mean)


def test_nine_attempts_and_twenty_seven_are_the_same_on_a_healthy_day(
    healthy: dict[int, pl.DataFrame],
) -> None:
    # a request fails nine times with probability 4e-15; 8e7 requests are simulated
    assert healthy[9].drop("cell").equals(healthy[27].drop("cell"))


# Waits --------------------------------------------------------------------------------------------


def test_waits_add_up_to_those_of_independent_requests() -> None:
    """E[wait_total] = rate * sum of p**k (1 - p) E[S_k; S_k <= j], `late` alike above 20 rounds.

    At a failure rate of one half and nine attempts; breaks for 1 seed in 400,000.
    """
    p, n_rounds, threshold = 0.5, 300, 20
    cell = replace(
        LESSON, rounds=n_rounds, capacity=UNLIMITED, failure_rate=p, tries=(9,),
        threshold=threshold,
    )  # fmt: skip
    (frame,) = simulate([cell])
    chance = arrival_to_attempt(cell, n_rounds) * (p ** np.arange(9) * (1 - p))[:, None]
    wait = np.arange(n_rounds)
    n_entries = n_rounds - wait  # arrival rounds from which a wait of this length ends in time
    expected = RATE * chance.sum(axis=0) * n_entries  # successes by their wait
    assert_poisson(column(frame, "successful"), expected.sum())
    assert_mean(column(frame, "wait_total"), (expected * wait).sum())
    assert_variance(column(frame, "wait_total"), (expected * wait**2).sum())
    assert_poisson(column(frame, "late"), expected[threshold + 1 :].sum())
    # the largest of a Poisson number of waits: P(wait_max <= m) = exp(-expected above m)
    wait_max = column(frame, "wait_max")
    for m in (60, 90, 120):
        assert_share(wait_max <= m, math.exp(-expected[m + 1 :].sum()))


def test_a_system_without_limits_drains_when_its_last_retry_has_run() -> None:
    """P(drain <= d) = exp(-expected number still pending); breaks for 1 seed in 500,000.

    An outage of 100 rounds, then capacity without limit: a request that arrived in it is pending
    at round 100 + d if its first attempt outside lies at or after that round.
    """
    cell = replace(
        LESSON, rounds=140, capacity=UNLIMITED, fault_start=0, fault_rounds=100, tries=TRIES[27]
    )
    (frame,) = simulate([cell])
    pmf = arrival_to_attempt(cell, 100)
    drain = column(frame, "drain")
    for d in (10, 25, 30):
        pending = 0.0
        for k in range(26):  # attempt k inside, attempt k + 1 at round 100 + d or later
            ceiling = ceiling_after(k)
            for entry in range(100):
                s = np.arange(100 - entry)  # attempt k runs at round entry + s < 100
                needed = 100 + d - entry - s  # the wait that leads at least to round 100 + d
                pending += float((pmf[k, s] * ((ceiling - needed + 1).clip(0) / ceiling)).sum())
        assert_share(drain <= d, math.exp(-RATE * pending))


def test_the_longest_wait_of_27_attempts_is_734_rounds() -> None:
    # 26 waits, each below its ceiling and of whole rounds; the lesson prints 793, which is 27
    # waits of 1 + ceiling each
    assert sum(ceiling_after(n) for n in range(26)) == 734
    assert replace(LESSON, tries=(3, 3, 3)).longest_wait == 734
    assert sum(1 + min(32, 2 * 2**n) for n in range(27)) == 793
