"""A layer's policy as the configuration of a library, and what that library cannot express."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from mc.model.breakers import Resilience4j
from mc.model.budgets import Aws, Envoy, Finagle, Grpc, Linkerd
from mc.model.cell import Cell
from mc.model.settings import Settings
from mc.model.units import format_time
from mc.model.waits import Backoff


class LostGuard(str):
    """A budget, a breaker or a time-out that a snippet has not: the rest would not protect."""

    __slots__ = ()


class Snippet(NamedTuple):
    """The configuration of a library.

    Attributes
    ----------
    text : str
        As its documentation writes it.
    cannot : tuple of str
        What is not in it, because the library cannot say it, or does something else; a `LostGuard`
        where that is a budget, a breaker or a time-out.
    """

    text: str
    cannot: tuple[str, ...]


class Policy(NamedTuple):
    """What one layer does; times in seconds.

    `name` tells it from others of its chain; `timeout` is that of each attempt. Time-out, queue and
    `cancel` are of the calls to the dependency, which the innermost layer makes.
    """

    name: str
    tries: int
    base: float
    factor: float
    cap: float
    backoff: Backoff
    first_wait: float | None
    deadline: float | None
    budget: Any
    breaker: Any
    timeout: float | None
    queue: int
    cancel: bool
    per_second: float

    @property
    def first_ceiling(self) -> float:
        """The ceiling of the first wait; if it is 0, there is neither growth nor jitter."""
        return min(self.base, self.cap)


def policies(cell: Cell) -> list[Policy]:
    """What each layer of a cell does, the outermost first."""
    second, innermost = cell.rounds_per_second, len(cell.layers)
    return [
        Policy(
            f"layer{number}" if innermost > 1 else "",
            layer.tries,
            layer.backoff.base / second,
            layer.backoff.factor,
            layer.backoff.cap / second,
            layer.backoff,
            _seconds_of(layer.backoff.first_wait, second),
            _seconds_of(layer.deadline, second),
            layer.budget,
            cell.breaker if number == innermost else None,
            _seconds_of(cell.timeout, second) if number == innermost else None,
            cell.queue if number == innermost else 0,
            cell.cancel and number == innermost,
            second,
        )
        for number, layer in enumerate(cell.layers, 1)
    ]


def _seconds_of(rounds: float | None, per_second: float) -> float | None:
    return None if rounds is None else rounds / per_second


def snippet(policy: Policy, library: str) -> Snippet:
    """Write a policy for a library.

    Parameters
    ----------
    policy : Policy
        See `policies`.
    library : str
        A key of `LIBRARIES`.

    Returns
    -------
    Snippet
    """
    return LIBRARIES[library](policy)


def _cannot(
    policy: Policy,
    *can: str,
    jitters: tuple[str, ...] | None,
    budgets: tuple[type, ...],
    factor: float | None = None,
) -> Iterator[str]:
    """What a library cannot say, if it knows the named parts, jitters, budgets and one factor.

    None are all.
    """
    backoff = policy.backoff
    waits = policy.tries > 1 and policy.first_ceiling > 0
    if waits and jitters is not None and backoff.jitter not in jitters:
        yield f"jitter {backoff.jitter} (it has {' or '.join(jitters)})"
    grows = policy.tries > 2 and policy.cap > policy.base and backoff.jitter in _GROWING
    if waits and factor not in (None, policy.factor) and grows:
        yield f"backoff_factor {policy.factor:g} (it has {factor:g})"
    if policy.budget is not None and not isinstance(policy.budget, budgets):
        yield LostGuard(f"budget {_in_words(policy.budget, policy)}")
    if policy.breaker is not None and "breaker" not in can:
        yield LostGuard(f"breaker {_in_words(policy.breaker, policy)}")
    if policy.deadline is not None and "deadline" not in can:
        yield f"deadline {format_time(policy.deadline)}"
    is_deadline = policy.tries == 1 and "deadline" in can
    if policy.timeout is not None and "timeout" not in can and not is_deadline:
        yield LostGuard(f"timeout {format_time(policy.timeout)} of each attempt")
    if policy.queue:
        yield f"queue {policy.queue} calls (it is the dependency's)"
    if policy.cancel:
        yield "cancel (the dependency has to drop the calls that were given up)"
    if policy.first_wait is not None and policy.tries > 1 and (policy.first_wait > 0 or waits):
        yield f"first_wait {format_time(policy.first_wait)}"


_GROWING: Final = ("full", "equal", "none", "plus_minus")
"""Jitters whose waits grow by `backoff_factor`."""


def _whole(time: float, least: float) -> tuple[float, list[str]]:
    """A wait as whole milliseconds, and at least so many seconds; what that changes."""
    rounded = max(least, round(time, 3))
    changed = abs(rounded - time) > 1e-9
    text = format_time(rounded) if rounded else "0"
    return rounded, [f"a wait of {format_time(time)} ({text} is next to it)"] if changed else []


def _at_least(name: str, time: float | None, least: float) -> tuple[float | None, list[str]]:
    """A time of at least so many seconds; what that changes."""
    if time is None or time >= least:
        return time, []
    return least, [f"{name} {format_time(time)} ({format_time(least)} is the least)"]


def _deadline(policy: Policy, least: float) -> tuple[float | None, list[str]]:
    """The deadline of all attempts: where there is one attempt, its time-out, too."""
    timeout = policy.timeout if policy.tries == 1 else None
    if timeout is not None and (policy.deadline is None or timeout < policy.deadline):
        return _at_least("timeout", timeout, least)
    return _at_least("deadline", policy.deadline, least)


def _timeout(policy: Policy, least: float) -> tuple[float | None, list[str]]:
    """The time-out of each of several attempts."""
    return _at_least("timeout", None if policy.tries == 1 else policy.timeout, least)


def _in_words(guard: Any, policy: Policy) -> str:
    """A budget or a breaker with its times in seconds."""
    return guard.in_words(policy.per_second) if isinstance(guard, Settings) else str(guard)


def _number(number: float) -> float:
    """A number as configurations have it: 2 and not 2.0."""
    return int(number) if number == int(number) else number


def _seconds(time: float) -> str:
    return f"{time:.10g}s"


def _ms(time: float) -> str:
    return f"{1000 * time:.10g}"


def _envoy(policy: Policy) -> Snippet:
    """A route's retry policy and a cluster's circuit breakers."""
    budget = policy.budget
    can = ("deadline", "timeout")
    cannot = [*_cannot(policy, *can, jitters=("full",), budgets=(Envoy,), factor=2)]
    deadline, changed = _deadline(policy, 0.001)
    timeout, raised = _timeout(policy, 0.001)
    cannot += changed + raised
    # without a timeout a route has one of 15 s; 0 is none
    lines = ["# the route", f"timeout: {_seconds(deadline or 0)}"]
    if policy.tries > 1:
        base, rounded = _whole(policy.first_ceiling, 0.001)
        cap, _ = _whole(policy.cap, base)
        cannot += rounded
        lines += [
            "retry_policy:",
            f"  retry_on: {_RETRY_ON}",
            f"  num_retries: {policy.tries - 1}",
            f"  retry_back_off: {{base_interval: {_seconds(base)}, max_interval: {_seconds(cap)}}}",
        ]
        lines += [] if timeout is None else [f"  per_try_timeout: {_seconds(timeout)}"]
    else:
        lines.append("# without a retry_policy it does not retry")
    lines += [
        "# the cluster",
        "circuit_breakers:",
        "  thresholds:",
    ]
    if isinstance(budget, Envoy) and budget.max_retries is None:
        lines += [
            "  - retry_budget:",
            f"      budget_percent: {{value: {_number(budget.budget_percent)}}}",
            f"      min_retry_concurrency: {budget.min_retry_concurrency}",
        ]
    else:
        most = budget.max_retries if isinstance(budget, Envoy) else 2**32 - 1
        lines.append(f"  - max_retries: {most}")
    return Snippet("\n".join(lines), tuple(cannot))


_RETRY_ON: Final = "5xx,unavailable"
"""What Envoy retries: 5xx has resets, time-outs and calls without a connection in it; gRPC's status
comes with HTTP 200, and `unavailable` is that of a server that cannot serve."""


def _istio(policy: Policy) -> Snippet:
    """The route of a VirtualService, and the traffic policy of a DestinationRule.

    Notes
    -----
    istio/api: networking/v1alpha3/virtual_service.proto, HTTPRetry ("the interval between retries
    will be determined automatically (25ms+)"), and destination_rule.proto, RetryBudget. Without
    `retries` a mesh retries twice.
    """
    can = ("deadline", "timeout")
    cannot = [*_cannot(policy, *can, jitters=("full",), budgets=(Envoy,), factor=2)]
    if policy.tries > 1 and (policy.base, policy.cap) != (0.025, 0.25):
        cannot.append("its waits: they begin at 25 ms, double, and end at 250 ms")
    deadline, changed = _deadline(policy, 0.001)
    timeout, raised = _timeout(policy, 0.001)
    cannot += changed + raised
    lines = ["# the route of the VirtualService"]
    lines += [] if deadline is None else [f"timeout: {_seconds(deadline)}"]
    lines += ["retries:", f"  attempts: {policy.tries - 1}"]
    if policy.tries > 1:
        lines.append(f"  retryOn: {_RETRY_ON}")
    if timeout is not None:
        lines.append(f"  perTryTimeout: {_seconds(timeout)}")
    budget = policy.budget
    if isinstance(budget, Envoy):
        lines += ["# the DestinationRule", "trafficPolicy:"]
        if budget.max_retries is None:
            lines += [
                "  retryBudget:",
                f"    percent: {_number(budget.budget_percent)}",
                f"    minRetryConcurrency: {budget.min_retry_concurrency}",
            ]
        else:
            lines.append(f"  connectionPool: {{http: {{maxRetries: {budget.max_retries}}}}}")
    return Snippet("\n".join(lines), tuple(cannot))


def _grpc(policy: Policy) -> Snippet:
    """A service config."""
    cannot = [*_cannot(policy, "deadline", jitters=("plus_minus",), budgets=(Grpc,))]
    if policy.backoff.jitter == "plus_minus" and policy.backoff.share != 0.2:
        cannot.append(f"jitter_share {policy.backoff.share:g} (it has 0.2)")
    if policy.tries > 5:
        cannot.append(f"{policy.tries} attempts (it makes 5 at most)")
    method: dict[str, Any] = {"name": [{}]}
    deadline, changed = _deadline(policy, 0.001)
    cannot += changed
    if deadline is not None:
        method["timeout"] = _seconds(deadline)
    if policy.tries > 1:
        if policy.first_ceiling == 0:
            cannot.append("a wait of 0 (1 ns is the least)")
        method["retryPolicy"] = {
            "maxAttempts": min(policy.tries, 5),
            "initialBackoff": _seconds(max(policy.base, 1e-9)),
            "maxBackoff": _seconds(max(policy.cap, 1e-9)),
            "backoffMultiplier": _number(policy.factor),
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
    config: dict[str, Any] = {"methodConfig": [method]}
    if isinstance(policy.budget, Grpc):
        config["retryThrottling"] = {
            "maxTokens": policy.budget.max_tokens,
            "tokenRatio": policy.budget.token_ratio,
        }
    return Snippet(json.dumps(config, indent=2), tuple(cannot))


def _aws(policy: Policy) -> Snippet:
    """The shared config file; since November 2026 it is what SDKs do without.

    Notes
    -----
    AWS Developer Tools Blog 2026, "Updated default retry behavior for AWS SDKs and tools": the SDKs
    for Java and Kotlin follow later.
    """
    cannot = [*_cannot(policy, jitters=("full",), budgets=(Aws,))]
    if policy.tries > 1 and (policy.base, policy.factor, policy.cap) != (0.05, 2, 20):
        cannot.append("its waits: they begin at 50 ms, double, and end at 20 s")
    if policy.tries > 1 and policy.budget != Aws(500, 14):
        cannot.append("a quota other than 500, or a cost other than 14 (it always has these)")
    section = f"profile {policy.name}" if policy.name else "default"
    text = f"[{section}]\nretry_mode = standard\nmax_attempts = {policy.tries}"
    return Snippet(text, tuple(dict.fromkeys(cannot)))


def _resilience4j(policy: Policy) -> Snippet:
    """The properties of Spring Boot.

    Notes
    -----
    resilience4j/resilience4j: CommonRetryConfigurationProperties.java, IntervalFunction.java. It
    has no budget: issue 172 and pull request 2373 are open.
    """
    jitters = ("none", "plus_minus")
    cannot = [*_cannot(policy, "breaker", "timeout", jitters=jitters, budgets=())]
    name = policy.name or "backend"
    lines = [f"resilience4j.retry.instances.{name}:", f"  maxAttempts: {policy.tries}"]
    if policy.tries > 1:
        base, rounded = _whole(policy.first_ceiling, 0)
        cannot += rounded
        lines.append(f"  waitDuration: {_ms(base)}ms")
        grows = policy.factor != 1 and policy.cap > base > 0
        if grows:
            lines += [
                "  enableExponentialBackoff: true",
                f"  exponentialBackoffMultiplier: {_number(policy.factor)}",
                f"  exponentialMaxWaitDuration: {_ms(_whole(policy.cap, base)[0])}ms",
            ]
        if policy.backoff.jitter == "plus_minus" and base > 0:
            if grows and policy.tries > 2:
                cannot.append(
                    "jitter at the cap (it caps what was drawn, and does not draw around it)"
                )
            lines += [
                "  enableRandomizedWait: true",
                f"  randomizedWaitFactor: {_number(policy.backoff.share)}",
            ]
    if policy.timeout is not None:  # by default it is inside the retries: of each attempt
        timeout, raised = _at_least("timeout", policy.timeout, 0.001)
        assert timeout is not None
        cannot += raised
        lines += [
            f"resilience4j.timelimiter.instances.{name}:",
            f"  timeoutDuration: {_ms(timeout)}ms",
        ]
    breaker = policy.breaker
    if isinstance(breaker, Resilience4j):
        wait = _ms(breaker.wait_duration_in_open_state / policy.per_second)
        trials = breaker.permitted_number_of_calls_in_half_open_state
        lines += [
            f"resilience4j.circuitbreaker.instances.{name}:",
            "  slidingWindowType: COUNT_BASED",
            f"  slidingWindowSize: {breaker.sliding_window_size}",
            f"  minimumNumberOfCalls: {breaker.minimum_number_of_calls}",
            f"  failureRateThreshold: {_number(breaker.failure_rate_threshold)}",
            f"  waitDurationInOpenState: {wait}ms",
            f"  permittedNumberOfCallsInHalfOpenState: {trials}",
        ]
    elif breaker is not None:
        cannot.append(LostGuard(f"breaker {_in_words(breaker, policy)}"))
    return Snippet("\n".join(lines), tuple(cannot))


def _finagle(policy: Policy) -> Snippet:
    """A client of Finagle, in Scala.

    Notes
    -----
    twitter/finagle: finagle-core/.../Backoff.scala. Its jitters begin with a wait that is not
    drawn, and go on from what was drawn, so none is one of ours; a multiplier is a whole number.
    """
    cannot = [*_cannot(policy, "timeout", jitters=("none", *_FINAGLE), budgets=(Finagle,))]
    jitter, factor = policy.backoff.jitter, max(1.0, round(policy.factor))
    base, rounded = _whole(policy.first_ceiling, 0)
    cap, _ = _whole(policy.cap, base)
    cannot += rounded
    if base > 0 and jitter in _FINAGLE:
        name, differs = _FINAGLE[jitter]
        waits = f"Backoff.{name}({_scala(base)}, {_scala(cap)})"
        cannot += [f"jitter {jitter} as it is ({name} {differs})"] if policy.tries > 1 else []
        factor = policy.factor if jitter == "decorrelated" else 2
    elif factor == 1 or base in (0, cap):
        waits = f"Backoff.const({_scala(base)})"
    else:
        waits = f"Backoff.exponential({_scala(base)}, {factor:.0f}, {_scala(cap)})"
    if policy.factor != factor and policy.tries > 2 and cap > base > 0:
        cannot.append(f"backoff_factor {policy.factor:g} (it has {factor:g} here)")
    lines = ["client", f"  .withRetryBackoff({waits}.take({policy.tries - 1}))"]
    if policy.timeout is not None:  # `total` is that of all attempts
        lines.append(f"  .withRequestTimeout({_scala(policy.timeout)})")
    if isinstance(policy.budget, Finagle):
        ttl = _scala(policy.budget.ttl / policy.per_second)
        share = _number(policy.budget.percent_can_retry)
        lines.append(
            f"  .withRetryBudget(RetryBudget(ttl = {ttl}, "
            f"minRetriesPerSec = {policy.budget.min_retries_per_sec}, percentCanRetry = {share}))"
        )
    else:
        lines.append("  .withRetryBudget(RetryBudget.Infinite)")
    return Snippet("\n".join(lines), tuple(cannot))


_FINAGLE: Final = {
    "full": ("exponentialJittered", "begins with the base, and multiplies what it drew before"),
    "equal": ("equalJittered", "begins with the base, and ends at the cap"),
    "decorrelated": ("decorrelatedJittered", "never waits less than it did before"),
}
"""By jitter the name in Finagle, and what that does otherwise."""


def _scala(time: float) -> str:
    return f"{time:.0f}.seconds" if time >= 1 and time % 1 == 0 else f"{_ms(time)}.milliseconds"


def _linkerd(policy: Policy) -> Snippet:
    """A service profile; since Linkerd 2.16 there are annotations, too, which have no budget."""
    cannot = [*_cannot(policy, "deadline", jitters=None, budgets=(Linkerd,))]
    if policy.tries > 1 and policy.first_ceiling > 0:
        cannot.append("waits (it retries at once)")
    budget = policy.budget
    if policy.tries > 1:
        cannot.append(f"{policy.tries} attempts (it has no limit but its budget)")
        if not isinstance(budget, Linkerd):
            cannot.append(
                "no budget of this layer alone (by default it has 20 % and 10/s, in 10 s)"
            )
    lines = ["spec:", "  routes:", "  - name: all", "    condition: {pathRegex: .*}"]
    lines.append(f"    isRetryable: {'true' if policy.tries > 1 else 'false'}")
    deadline, changed = _deadline(policy, 0.001)
    cannot += changed
    if deadline is not None:
        lines.append(f"    timeout: {_ms(deadline)}ms")
    if isinstance(budget, Linkerd):
        lines += [
            "  retryBudget:",
            f"    retryRatio: {_number(budget.retry_ratio)}",
            f"    minRetriesPerSecond: {budget.min_retries_per_second}",
            f"    ttl: {_seconds(budget.ttl / policy.per_second)}",
        ]
    return Snippet("\n".join(lines), tuple(cannot))


def _polly(policy: Policy) -> Snippet:
    """A resilience pipeline of Polly v8, in C#.

    Notes
    -----
    App-vNext/Polly: src/Polly.Core/Retry/RetryHelper.cs; pollydocs.org, RetryStrategyOptions,
    TimeoutStrategyOptions.
    """
    is_constant = policy.factor == 1 or policy.cap <= policy.base
    factor = None if is_constant else 2
    can = ("deadline", "timeout")
    cannot = [*_cannot(policy, *can, jitters=("none", "polly"), budgets=(), factor=factor)]
    deadline, changed = _deadline(policy, 0.01)
    timeout, raised = _timeout(policy, 0.01)
    cannot += changed + raised
    kind = "Constant" if is_constant and policy.backoff.jitter != "polly" else "Exponential"
    lines = ["new ResiliencePipelineBuilder()"]
    if deadline is not None:
        lines.append(f"    .AddTimeout(TimeSpan.FromMilliseconds({_ms(deadline)}))")
    if policy.tries > 1:
        lines += [
            "    .AddRetry(new RetryStrategyOptions",
            "    {",
            f"        MaxRetryAttempts = {policy.tries - 1},",
            f"        Delay = TimeSpan.FromMilliseconds({_ms(policy.base)}),",
            f"        MaxDelay = TimeSpan.FromMilliseconds({_ms(policy.cap)}),",
            f"        BackoffType = DelayBackoffType.{kind},",
            f"        UseJitter = {'true' if policy.backoff.jitter == 'polly' else 'false'},",
            "    })",
        ]
    if timeout is not None:  # what is added later is inside: of each attempt
        lines.append(f"    .AddTimeout(TimeSpan.FromMilliseconds({_ms(timeout)}))")
    lines.append("    .Build();")
    return Snippet("\n".join(lines), tuple(cannot))


LIBRARIES: Final[dict[str, Callable[[Policy], Snippet]]] = {
    "envoy": _envoy,
    "istio": _istio,
    "grpc": _grpc,
    "aws": _aws,
    "resilience4j": _resilience4j,
    "finagle": _finagle,
    "linkerd": _linkerd,
    "polly": _polly,
}
"""What can be written for each library."""


def snippets_of(cell: Cell, library: str) -> Iterator[tuple[str, Snippet]]:
    """Write each layer of a cell for a library, with what to call the layer.

    A layer of one attempt, too: most libraries retry unless they are told not to. Of several
    layers a budget of the chain belongs to none.
    """
    layers = policies(cell)
    n_retrying = sum(policy.tries > 1 for policy in layers)
    for number, policy in enumerate(layers, 1):
        alone, lost = policy, []
        if cell.budget_scope == "chain" and n_retrying > 0 and policy.budget is not None:
            if n_retrying > 1 or policy.tries == 1:
                alone = policy._replace(budget=None)
            if n_retrying > 1 and policy.tries > 1:
                told = f"one budget for all layers, {_in_words(policy.budget, policy)}"
                lost.append(LostGuard(f'{told} (try budget_scope = "layer")'))
        made = snippet(alone, library)
        made = made._replace(cannot=(*made.cannot, *lost))
        yield (f"layer {number}" if len(layers) > 1 else ""), made
