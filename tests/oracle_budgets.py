"""What may refuse a retry or a call: budgets and breakers, one small class for each kind.

A budget stands at a layer (or before the dependency) and sees the calls that leave there. It is
told what happens and answers two questions:

* `announce`: a call of this round is about to leave (told of all before the first of them does);
* `begins`: a call leaves, a retry or the first try of something new;
* `ends`: a call that left has ended: `OK`, `FAILED`, or `GIVEN_UP` (somebody's deadline passed);
* `allows`: may there be a retry? Asked when attempts and deadline permit one; yes books it;
* `rejection`: with which probability is the next call rejected before it leaves?

All numbers are integers or exact fractions, so that a compiled version can be equal to the last
bit. Each kind has a frozen class of settings, under its library's names with the library's
defaults, and a class of what changes while the world runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final, Literal, Protocol

from oracle_units import Share, Time, exact, share, whole_rounds


class Outcome(Enum):
    """How a call ended for the one who made it."""

    OK = "ok"
    FAILED = "failed"
    GIVEN_UP = "given up"
    """No outcome came before a deadline. Budgets see neither success nor failure; a breaker,
    which waits for an answer, counts a failure."""


NEVER: Final = Fraction(0)
"""The probability of what does not happen."""


class BudgetKind(Protocol):
    """The settings of a budget."""

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        ...


class Budget:
    """A budget that refuses nothing; every kind overrides what concerns it."""

    def announce(self, t: int) -> None:
        """Hear that a call is about to leave in round t."""

    def begins(self, t: int, retry: bool) -> None:
        """Hear that a call leaves, even if it is then rejected on its way."""

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Hear that a call that left, a retry or not, has ended."""

    def allows(self, t: int) -> bool:
        """Say whether there may be a retry, and book it if so."""
        return True

    def rejection(self, t: int) -> Fraction:
        """Return the probability with which the next call is rejected before it leaves."""
        return NEVER


# What several kinds need ------------------------------------------------------------------------


class Recent:
    """How often something happened in the last `window` rounds, this one included."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.count = 0
        self.rounds: deque[int] = deque()  # of each event

    def add(self, t: int) -> None:
        """Count one event in round t."""
        self.count += 1
        if self.window is not None:
            self.rounds.append(t)

    def of(self, t: int) -> int:
        """Return the count in round t; None as window remembers for ever."""
        while self.window is not None and self.rounds and self.rounds[0] <= t - self.window:
            self.rounds.popleft()
            self.count -= 1
        return self.count


class Slices:
    """A sum that forgets by slices of a tenth of `ttl`, counted from round 0.

    The slice of round t is ``10 t // ttl``; the sum is that of the present slice and the `past`
    ones before it. (The libraries cut a new slice at the first event after a tenth of the ttl, so
    their slices drift in idle times; a grid does not.)
    """

    def __init__(self, ttl: int, past: int) -> None:
        self.ttl = ttl
        self.past = past
        self.sums: dict[int, int] = {}

    def add(self, t: int, amount: int) -> None:
        """Add to the slice of round t."""
        now = 10 * t // self.ttl
        self.sums[now] = self.sums.get(now, 0) + amount

    def of(self, t: int) -> int:
        """Return the sum of the slices that count in round t."""
        now = 10 * t // self.ttl
        for old in [number for number in self.sums if number < now - self.past]:
            del self.sums[old]
        return sum(self.sums.values())


# A ratio of retries to requests: the lesson's, and Google's -------------------------------------


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Retries may be a share of the requests: the lesson's budget.

    Attributes
    ----------
    ratio : float
        Retries per request.
    charged : {"run", "decision"}
        When a retry counts. `run`: when it runs, so those that wait are not seen; one more is
        allowed while ``retries <= ratio * requests`` (the lesson). `decision`: when it is allowed,
        so retries never exceed the share: ``retries + 1 <= ratio * requests``.
    window : time or None
        Requests and retries of the last so many rounds count, this one included; None: all since
        round 0.
    """

    ratio: Share
    charged: Literal["run", "decision"] = "run"
    window: Time | None = None
    kind: str = "ratio"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        window = None if self.window is None else whole_rounds(self.window, rounds_per_second)
        if self.charged == "run":
            ratio = share(self.ratio)
            return RatioWhenRun(window, lambda retries, requests: retries <= ratio * requests)
        return RatioWhenDecided(window, share(self.ratio))


class RatioWhenRun(Budget):
    """Requests and retries are counted when they run."""

    def __init__(self, window: int | None, within: Callable[[int, int], bool]) -> None:
        self.requests = Recent(window)
        self.retries = Recent(window)
        self.within = within

    def begins(self, t: int, retry: bool) -> None:
        """Count the call."""
        (self.retries if retry else self.requests).add(t)

    def allows(self, t: int) -> bool:
        """Compare what has run, this round's calls up to this one included."""
        return self.within(self.retries.of(t), self.requests.of(t))


class RatioWhenDecided(Budget):
    """A retry is counted as soon as it is allowed."""

    def __init__(self, window: int | None, ratio: Fraction) -> None:
        self.requests = Recent(window)
        self.retries = Recent(window)
        self.ratio = ratio

    def begins(self, t: int, retry: bool) -> None:
        """Count a request."""
        if not retry:
            self.requests.add(t)

    def allows(self, t: int) -> bool:
        """Allow what keeps the retries within their share."""
        allowed = self.retries.of(t) + 1 <= self.ratio * self.requests.of(t)
        if allowed:
            self.retries.add(t)
        return allowed


@dataclass(frozen=True, kw_only=True)
class Sre:
    """A client's retry ratio, and adaptive throttling if `k` is given.

    Attributes
    ----------
    ratio : float
        A request is retried only while ``retries < ratio * requests``; a retry counts when it is
        decided, requests are first tries.
    window : time
        How long both, and the throttle's counts, are remembered.
    k : float or None
        Every call, a retry or not, is rejected with probability
        ``max(0, (requests - k * accepts) / (requests + 1))``, where requests are all calls that
        were to leave in the window (rejected ones included, this one not yet) and accepts those
        that succeeded. (At most two decimals, so that a compiled comparison fits 64 bits.)

    Notes
    -----
    Beyer et al. 2016, "Site Reliability Engineering", chapter 21, "Client-Side Throttling" and
    "Deciding to Retry".
    """

    ratio: Share = 0.1
    window: Time = "2 min"
    k: float | None = None
    kind: str = "sre"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        return SreClient(
            whole_rounds(self.window, rounds_per_second),
            share(self.ratio),
            None if self.k is None else exact(self.k),
        )


class SreClient(Budget):
    """What a client remembers for `Sre`."""

    def __init__(self, window: int, ratio: Fraction, k: Fraction | None) -> None:
        self.ratio = ratio
        self.k = k
        self.requests = Recent(window)
        self.retries = Recent(window)
        self.calls = Recent(window)
        self.accepts = Recent(window)

    def begins(self, t: int, retry: bool) -> None:
        """Count the call, and the request if it is one."""
        self.calls.add(t)
        if not retry:
            self.requests.add(t)

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Count what succeeded."""
        if outcome is Outcome.OK:
            self.accepts.add(t)

    def allows(self, t: int) -> bool:
        """Allow while the ratio of the window is below the limit."""
        allowed = self.retries.of(t) < self.ratio * self.requests.of(t)
        if allowed:
            self.retries.add(t)
        return allowed

    def rejection(self, t: int) -> Fraction:
        """Return the throttle's probability."""
        if self.k is None:
            return NEVER
        calls = self.calls.of(t)
        return max(NEVER, (calls - self.k * self.accepts.of(t)) / (calls + 1))


# Deposits and withdrawals in a window: Finagle and Linkerd --------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finagle:
    """A deposit for every request, a withdrawal for every retry, both forgotten after a while.

    A request deposits 1000 when it begins, a retry costs ``trunc(1000 / percent_can_retry)`` when
    it is decided; allowed while balance >= cost. The balance is the sum of ten slices of a tenth
    of `ttl` (the present one and nine before it) and a constant reserve of
    ``min_retries_per_sec * whole seconds of ttl * cost``. With a percentage of 0 a request deposits
    nothing and a retry costs 1.

    Notes
    -----
    twitter/finagle: service/RetryBudget.scala, RetryFilter.scala; twitter/util: TokenBucket.scala,
    WindowedAdder.scala. Finagle wants a ttl of 1 to 60 seconds.
    """

    ttl: Time = "10 s"
    min_retries_per_sec: int = 10
    percent_can_retry: Share = 0.2
    kind: str = "finagle"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        ttl = whole_rounds(self.ttl, rounds_per_second)
        ratio = share(self.percent_can_retry)
        deposit, cost = (1000, int(1000 / ratio)) if ratio else (0, 1)
        reserve = self.min_retries_per_sec * int(ttl / exact(rounds_per_second)) * cost
        return TokenWindow(Slices(ttl, 9), "begin", deposit, cost, reserve)


@dataclass(frozen=True, kw_only=True)
class Linkerd:
    """As Finagle's, but a request deposits when it needs no retry any more: when it succeeds.

    The cost is ``trunc(1 / retry_ratio)`` for a deposit of 1 (so 0.3 means 1/3), with a ratio above
    1 ``trunc(1000 / retry_ratio)`` for 1000; the balance is the sum of eleven slices, the present
    one and ten before it, and the reserve.

    Notes
    -----
    linkerd/linkerd2-proxy: linkerd/app/outbound/src/http/retry.rs; tower-rs/tower:
    tower/src/retry/budget/tps_budget.rs (ten slots and the writer: the slot that is next to be
    overwritten still counts). Wants a ttl of 1 to 60 seconds.
    """

    ttl: Time = "10 s"
    min_retries_per_second: int = 10
    retry_ratio: Share = 0.2
    kind: str = "linkerd"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        ttl = whole_rounds(self.ttl, rounds_per_second)
        ratio = share(self.retry_ratio)
        deposit = 0 if ratio == 0 else 1 if ratio <= 1 else 1000
        cost = int(deposit / ratio) if ratio else 1
        reserve = self.min_retries_per_second * int(ttl / exact(rounds_per_second)) * cost
        return TokenWindow(Slices(ttl, 10), "success", deposit, cost, reserve)


class TokenWindow(Budget):
    """Deposits and withdrawals that are forgotten, and a reserve that is not."""

    def __init__(
        self,
        slices: Slices,
        deposit_at: Literal["begin", "success"],
        deposit: int,
        cost: int,
        reserve: int,
    ) -> None:
        self.slices = slices
        self.deposit_at = deposit_at
        self.deposit = deposit
        self.cost = cost
        self.reserve = reserve

    def begins(self, t: int, retry: bool) -> None:
        """Take the deposit of a request (Finagle)."""
        if self.deposit_at == "begin" and not retry:
            self.slices.add(t, self.deposit)

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Take the deposit of a success (Linkerd)."""
        if self.deposit_at == "success" and outcome is Outcome.OK:
            self.slices.add(t, self.deposit)

    def allows(self, t: int) -> bool:
        """Withdraw the cost of a retry if the balance has it."""
        allowed = self.slices.of(t) + self.reserve >= self.cost
        if allowed:
            self.slices.add(t, -self.cost)
        return allowed


# Tokens without time: gRPC and the AWS SDKs -----------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Grpc:
    """Tokens, fewer by 1 after every failed call, more by `token_ratio` after every success.

    They start at `max_tokens` and stay within 0 and that. A retry is allowed while there are more
    than half of them, this failure deducted; the last failure of a request costs a token like the
    others. `token_ratio` counts to three decimals, further ones are cut off.

    Notes
    -----
    grpc/proposal: A6-client-retries.md, "Throttling Retry Attempts and Hedged RPCs"; grpc/grpc-go:
    stream.go, shouldRetry.
    """

    max_tokens: int = 10
    token_ratio: float = 0.1
    kind: str = "grpc"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        return GrpcTokens(1000 * self.max_tokens, int(1000 * exact(self.token_ratio)))


class GrpcTokens(Budget):
    """Thousandths of a token."""

    def __init__(self, most: int, gain: int) -> None:
        self.most = most
        self.gain = gain
        self.tokens = most

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Book the outcome."""
        if outcome is Outcome.OK:
            self.tokens = min(self.most, self.tokens + self.gain)
        elif outcome is Outcome.FAILED:
            self.tokens = max(0, self.tokens - 1000)

    def allows(self, t: int) -> bool:
        """Allow above half of the most."""
        return 2 * self.tokens > self.most


@dataclass(frozen=True, kw_only=True)
class Aws:
    """A quota that retries take from and successes give back to.

    It starts full. A retry is allowed, and pays, if there is `cost`. A request that succeeds at
    once gives 1 back, one that succeeds after retries what its last retry cost; one that fails
    gives nothing. Time gives nothing.

    Notes
    -----
    boto/botocore: botocore/retries/standard.py, quota.py. The cost is 14 since 2026, before it was
    5 (10 after a time-out).
    """

    quota: int = 500
    cost: int = 14
    kind: str = "aws"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        return AwsQuota(self.quota, self.cost)


class AwsQuota(Budget):
    """What is left of a quota."""

    def __init__(self, most: int, cost: int) -> None:
        self.most = most
        self.cost = cost
        self.left = most

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Give back after a success."""
        if outcome is Outcome.OK:
            self.left = min(self.most, self.left + (self.cost if retry else 1))

    def allows(self, t: int) -> bool:
        """Pay for a retry if possible."""
        allowed = self.cost <= self.left
        if allowed:
            self.left -= self.cost
        return allowed


# Retries at once: Envoy -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Envoy:
    """So many retries may be under way at once, from their decision to their outcome.

    Attributes
    ----------
    budget_percent : float
        The limit is this percentage of the active calls, cut to a whole number, ...
    min_retry_concurrency : int
        ... but at least this.
    max_retries : int or None
        If given, the limit itself (Envoy's circuit breaker without a retry budget).

    Notes
    -----
    envoyproxy/envoy: source/common/upstream/resource_manager_impl.h, source/common/router/
    retry_state_impl.cc. A retry holds its place while it backs off and until its outcome, which
    frees it before the next retry is asked for. Active are the calls of this round, handled
    or not, and those from earlier rounds that are still on their way (in a queue; for an outer
    layer, in the hands of the inner ones); a retry that backs off is not active.
    """

    budget_percent: float = 20.0
    min_retry_concurrency: int = 3
    max_retries: int | None = None
    kind: str = "envoy"

    def start(self, rounds_per_second: float) -> Budget:
        """Return the budget at the beginning of a run."""
        if self.max_retries is not None:
            return RetriesAtOnce(Fraction(0), self.max_retries)
        return RetriesAtOnce(exact(self.budget_percent) / 100, self.min_retry_concurrency)


class RetriesAtOnce(Budget):
    """Retries between their decision and their outcome, and calls that are active."""

    def __init__(self, part: Fraction, least: int) -> None:
        self.part = part
        self.least = least
        self.retries = 0
        self.under_way = 0  # calls that left and have not ended
        self.active = 0  # under way at the beginning of round `t`, and announced in it
        self.t = -1

    def _enter(self, t: int) -> None:
        if t != self.t:
            self.t, self.active = t, self.under_way

    def announce(self, t: int) -> None:
        """Count the call as active from the beginning of the round."""
        self._enter(t)
        self.active += 1

    def begins(self, t: int, retry: bool) -> None:
        """Count the call as under way."""
        self._enter(t)
        self.under_way += 1

    def ends(self, t: int, retry: bool, outcome: Outcome) -> None:
        """Free the places of the call."""
        self._enter(t)
        self.under_way -= 1
        self.retries -= retry

    def allows(self, t: int) -> bool:
        """Take a place for a retry if one is free."""
        self._enter(t)
        allowed = self.retries < max(int(self.part * self.active), self.least)
        self.retries += allowed
        return allowed


# Breakers ---------------------------------------------------------------------------------------


class BreakerKind(Protocol):
    """The settings of a breaker."""

    def start(self, rounds_per_second: float) -> Breaker:
        """Return the breaker at the beginning of a run."""
        ...


class Breaker:
    """Stands between the innermost layer and the dependency.

    `permits` is asked before a call reaches the dependency; `records` hears what became of it.
    A generation is the time between two changes of state.
    """

    generation = 0

    def permits(self, t: int) -> bool:
        """Say whether a call may pass in round t."""
        raise NotImplementedError

    def records(self, t: int, ok: bool, generation: int) -> None:
        """Hear the outcome of a call that passed in `generation`."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Resilience4j:
    """A window of the last calls; open when too many of them failed.

    CLOSED: the outcomes of the last `sliding_window_size` calls are kept; open when at least
    `minimum_number_of_calls` (at most the window) are there and the percentage of failures is
    `failure_rate_threshold` or more. OPEN: rejects; the first call `wait_duration_in_open_state`
    or more rounds after the round of opening finds it HALF_OPEN, which admits
    `permitted_number_of_calls_in_half_open_state` calls, rejects the others, and decides when the
    outcomes of so many calls (or of `minimum_number_of_calls`, if fewer) are there: OPEN again, or
    CLOSED with an empty window. Outcomes of calls that passed before are counted in the state they
    find, as the library does; they change nothing in OPEN.

    Notes
    -----
    resilience4j/resilience4j: CircuitBreakerStateMachine.java, CircuitBreakerMetrics.java. Calls
    that are slow, automatic transition, and windows of time are not modelled.
    """

    failure_rate_threshold: float = 50.0
    sliding_window_size: int = 100
    minimum_number_of_calls: int = 100
    wait_duration_in_open_state: Time = "60 s"
    permitted_number_of_calls_in_half_open_state: int = 10
    kind: str = "resilience4j"

    def start(self, rounds_per_second: float) -> Breaker:
        """Return the breaker at the beginning of a run."""
        wait = whole_rounds(self.wait_duration_in_open_state, rounds_per_second)
        return CountWindow(self, exact(self.failure_rate_threshold) / 100, wait)


class CountWindow(Breaker):
    """The state of a `Resilience4j` breaker."""

    def __init__(self, settings: Resilience4j, threshold: Fraction, wait: int) -> None:
        self.settings = settings
        self.threshold = threshold
        self.wait = wait
        self._become("closed", settings.sliding_window_size)

    def _become(self, state: Literal["closed", "half open"], window: int) -> None:
        self.state: Literal["closed", "open", "half open"] = state
        self.outcomes: deque[bool] = deque(maxlen=window)  # True: failed
        self.minimum = min(self.settings.minimum_number_of_calls, window)
        self.permits_left = window  # of HALF_OPEN

    def permits(self, t: int) -> bool:
        """Pass in CLOSED, reject in OPEN, count in HALF_OPEN."""
        if self.state == "closed":
            return True
        if self.state == "open":
            if t < self.opened + self.wait:
                return False
            self._become("half open", self.settings.permitted_number_of_calls_in_half_open_state)
        self.permits_left -= 1
        return self.permits_left >= 0

    def records(self, t: int, ok: bool, generation: int) -> None:
        """Keep the outcome and change state if that decides."""
        self.outcomes.append(not ok)
        if self.state == "open" or len(self.outcomes) < self.minimum:
            return
        if sum(self.outcomes) >= self.threshold * len(self.outcomes):
            self.state, self.opened = "open", t
        elif self.state == "half open":
            self._become("closed", self.settings.sliding_window_size)


@dataclass(frozen=True, kw_only=True)
class Consecutive:
    """Open after more than so many failures in a row.

    CLOSED: opens at a failure that makes the run longer than `consecutive_failures`. OPEN: rejects;
    the first call `timeout` or more rounds after the round of opening finds it HALF_OPEN, which
    admits `max_requests` calls and rejects the others; a failure opens it again, `max_requests`
    successes close it. Outcomes of calls that passed before the last change of state are ignored.

    Notes
    -----
    sony/gobreaker: v2/gobreaker.go, with its default ReadyToTrip and no Interval.
    """

    consecutive_failures: int = 5
    timeout: Time = "60 s"
    max_requests: int = 1
    kind: str = "consecutive"

    def start(self, rounds_per_second: float) -> Breaker:
        """Return the breaker at the beginning of a run."""
        return InARow(self, whole_rounds(self.timeout, rounds_per_second))


class InARow(Breaker):
    """The state of a `Consecutive` breaker."""

    def __init__(self, settings: Consecutive, timeout: int) -> None:
        self.settings = settings
        self.timeout = timeout
        self._become("closed")

    def _become(self, state: Literal["closed", "open", "half open"]) -> None:
        self.state = state
        self.generation += 1
        self.passed = self.successes = self.failures = 0

    def permits(self, t: int) -> bool:
        """Pass in CLOSED, reject in OPEN, count in HALF_OPEN."""
        if self.state == "open":
            if t < self.opened + self.timeout:
                return False
            self._become("half open")
        if self.state == "half open" and self.passed == self.settings.max_requests:
            return False
        self.passed += 1
        return True

    def records(self, t: int, ok: bool, generation: int) -> None:
        """Count the outcome and change state if that decides."""
        if generation != self.generation:
            return
        if ok:
            self.failures = 0
            self.successes += 1
            if self.state == "half open" and self.successes == self.settings.max_requests:
                self._become("closed")
        else:
            self.failures += 1
            if self.state == "half open" or self.failures > self.settings.consecutive_failures:
                self._become("open")
                self.opened = t


OK: Final = Outcome.OK
FAILED: Final = Outcome.FAILED
GIVEN_UP: Final = Outcome.GIVEN_UP
