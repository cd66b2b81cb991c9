"""A layer's policy as the configuration of a library, and what that library cannot express."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from mc.model.breakers import Resilience4j
from mc.model.budgets import Aws, Envoy, Finagle, Grpc, Linkerd
from mc.model.cell import Cell
from mc.model.units import format_time
from mc.model.waits import Backoff


class Snippet(NamedTuple):
    """The configuration of a library.

    Attributes
    ----------
    text : str
        As its documentation writes it.
    cannot : tuple of str
        What is not in it, because the library cannot say it, or does something else.
    """

    text: str
    cannot: tuple[str, ...]


class Policy(NamedTuple):
    """What one layer does; times in seconds."""

    tries: int
    base: float
    factor: float
    cap: float
    backoff: Backoff
    first_wait: float | None
    deadline: float | None
    budget: Any
    breaker: Any
    per_second: float


def policies(cell: Cell) -> list[Policy]:
    """What each layer of a cell does, the outermost first."""
    second = cell.rounds_per_second
    return [
        Policy(
            layer.tries,
            layer.backoff.base / second,
            layer.backoff.factor,
            layer.backoff.cap / second,
            layer.backoff,
            None if layer.backoff.first_wait is None else layer.backoff.first_wait / second,
            None if layer.deadline is None else layer.deadline / second,
            layer.budget,
            cell.breaker if number == len(cell.layers) - 1 else None,
            second,
        )
        for number, layer in enumerate(cell.layers)
    ]


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


def _cannot(policy: Policy, *can: str, jitters: tuple[str, ...], budgets: tuple[type, ...]) -> Any:
    """What a library cannot say, if it knows the named parts, jitters and kinds of budget."""
    backoff = policy.backoff
    if policy.tries > 1 and backoff.jitter not in jitters:
        yield f"jitter {backoff.jitter} (it has {' or '.join(jitters) or 'waits of its own'})"
    if policy.budget is not None and not isinstance(policy.budget, budgets):
        yield f"budget {policy.budget}"
    if policy.breaker is not None and "breaker" not in can:
        yield f"breaker {policy.breaker}"
    if policy.deadline is not None and "deadline" not in can:
        yield f"deadline {format_time(policy.deadline)}"
    if policy.first_wait is not None and "first_wait" not in can:
        yield f"first_wait {format_time(policy.first_wait)}"


def _seconds(time: float) -> str:
    return f"{time:.10g}s"


def _ms(time: float) -> str:
    return f"{1000 * time:.10g}"


def _envoy(policy: Policy) -> Snippet:
    """A route's retry policy and a cluster's circuit breakers."""
    budget = policy.budget
    cannot = list(_cannot(policy, "deadline", jitters=("full",), budgets=(Envoy,)))
    if policy.tries > 2 and policy.factor != 2:
        cannot.append(f"backoff_factor {policy.factor:g} (it doubles)")
    lines = ["# the route"]
    if policy.deadline is not None:
        lines.append(f"timeout: {_seconds(policy.deadline)}")
    lines += [
        "retry_policy:",
        "  retry_on: 5xx,reset,connect-failure",
        f"  num_retries: {policy.tries - 1}",
        f"  retry_back_off: {{base_interval: {_seconds(policy.base)}, "
        f"max_interval: {_seconds(max(policy.cap, policy.base))}}}",
        "# the cluster",
        "circuit_breakers:",
        "  thresholds:",
    ]
    if isinstance(budget, Envoy) and budget.max_retries is None:
        lines += [
            "  - retry_budget:",
            f"      budget_percent: {{value: {budget.budget_percent:g}}}",
            f"      min_retry_concurrency: {budget.min_retry_concurrency}",
        ]
    else:
        most = budget.max_retries if isinstance(budget, Envoy) else 2**32 - 1
        lines.append(f"  - max_retries: {most}")
    return Snippet("\n".join(lines), tuple(cannot))


def _grpc(policy: Policy) -> Snippet:
    """A service config."""
    cannot = list(_cannot(policy, "deadline", jitters=("plus_minus",), budgets=(Grpc,)))
    if policy.backoff.jitter == "plus_minus" and policy.backoff.share != 0.2:
        cannot.append(f"jitter_share {policy.backoff.share:g} (it has 0.2)")
    if policy.tries > 5:
        cannot.append(f"{policy.tries} attempts (it makes 5 at most)")
    method: dict[str, Any] = {"name": [{}]}
    if policy.deadline is not None:
        method["timeout"] = _seconds(policy.deadline)
    if policy.tries > 1:
        method["retryPolicy"] = {
            "maxAttempts": min(policy.tries, 5),
            "initialBackoff": _seconds(policy.base),
            "maxBackoff": _seconds(policy.cap),
            "backoffMultiplier": policy.factor,
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
    """The shared config file."""
    cannot = list(_cannot(policy, jitters=("full",), budgets=(Aws,)))
    if policy.tries > 1 and (policy.base, policy.factor, policy.cap) != (0.05, 2, 20):
        cannot.append("its waits: they begin at 50 ms, double, and end at 20 s")
    if policy.tries > 1 and policy.budget != Aws(500, 14):
        cannot.append(f"a quota other than {Aws(500, 14)}")
    text = f"[default]\nretry_mode = standard\nmax_attempts = {policy.tries}"
    return Snippet(text, tuple(dict.fromkeys(cannot)))


def _resilience4j(policy: Policy) -> Snippet:
    """The properties of Spring Boot."""
    jitters = ("none", "plus_minus")
    cannot = list(_cannot(policy, "breaker", jitters=jitters, budgets=()))
    lines = [
        "resilience4j.retry.instances.backend:",
        f"  maxAttempts: {policy.tries}",
        f"  waitDuration: {_ms(policy.base)}ms",
    ]
    if policy.factor != 1:
        lines += [
            "  enableExponentialBackoff: true",
            f"  exponentialBackoffMultiplier: {policy.factor:g}",
            f"  exponentialMaxWaitDuration: {_ms(policy.cap)}ms",
        ]
    if policy.backoff.jitter == "plus_minus":
        lines += [
            "  enableRandomizedWait: true",
            f"  randomizedWaitFactor: {policy.backoff.share:g}",
        ]
    breaker = policy.breaker
    if isinstance(breaker, Resilience4j):
        wait = _ms(breaker.wait_duration_in_open_state / policy.per_second)
        trials = breaker.permitted_number_of_calls_in_half_open_state
        lines += [
            "resilience4j.circuitbreaker.instances.backend:",
            "  slidingWindowType: COUNT_BASED",
            f"  slidingWindowSize: {breaker.sliding_window_size}",
            f"  minimumNumberOfCalls: {breaker.minimum_number_of_calls}",
            f"  failureRateThreshold: {breaker.failure_rate_threshold:g}",
            f"  waitDurationInOpenState: {wait}ms",
            f"  permittedNumberOfCallsInHalfOpenState: {trials}",
        ]
    elif breaker is not None:
        cannot.append(f"breaker {breaker}")
    return Snippet("\n".join(lines), tuple(cannot))


def _finagle(policy: Policy) -> Snippet:
    """A client of Finagle, in Scala."""
    jitters = ("none", "equal", "decorrelated")
    cannot = list(_cannot(policy, jitters=jitters, budgets=(Finagle,)))
    base, cap = f"{_ms(policy.base)}.milliseconds", f"{_ms(policy.cap)}.milliseconds"
    waits = {
        "equal": f"Backoff.equalJittered({base}, {cap})",
        "decorrelated": f"Backoff.decorrelatedJittered({base}, {cap})",
        "full": f"Backoff.exponentialJittered({base}, {cap})",
    }.get(policy.backoff.jitter)
    if waits is None:
        is_constant = policy.factor == 1 or policy.cap <= policy.base
        least = f"{_ms(min(policy.base, policy.cap))}.milliseconds"
        growing = f"Backoff.exponential({base}, {policy.factor:g}, {cap})"
        waits = f"Backoff.const({least})" if is_constant else growing
    if policy.backoff.jitter == "full":
        cannot.append("the first wait: with exponentialJittered it is not drawn")
    lines = ["client", f"  .withRetryBackoff({waits}.take({policy.tries - 1}))"]
    if isinstance(policy.budget, Finagle):
        ttl = f"{policy.budget.ttl / policy.per_second:.10g}"
        share = f"{policy.budget.percent_can_retry:g}"
        lines.append(
            f"  .withRetryBudget(RetryBudget(ttl = {ttl}.seconds, "
            f"minRetriesPerSec = {policy.budget.min_retries_per_sec}, percentCanRetry = {share}))"
        )
    else:
        lines.append("  .withRetryBudget(RetryBudget.Infinite)")
    return Snippet("\n".join(lines), tuple(cannot))


def _linkerd(policy: Policy) -> Snippet:
    """A service profile."""
    cannot = list(_cannot(policy, "deadline", jitters=(), budgets=(Linkerd,)))
    cannot.append(f"{policy.tries} attempts (it has no limit but its budget)")
    budget = policy.budget
    if budget is None:
        cannot.append("no budget (it always has one)")
    lines = ["spec:", "  routes:", "  - name: all", "    condition: {pathRegex: .*}"]
    lines.append("    isRetryable: true")
    if policy.deadline is not None:
        lines.append(f"    timeout: {_ms(policy.deadline)}ms")
    if isinstance(budget, Linkerd):
        lines += [
            "  retryBudget:",
            f"    retryRatio: {budget.retry_ratio:g}",
            f"    minRetriesPerSecond: {budget.min_retries_per_second}",
            f"    ttl: {_seconds(budget.ttl / policy.per_second)}",
        ]
    return Snippet("\n".join(lines), tuple(cannot))


def _polly(policy: Policy) -> Snippet:
    """A resilience pipeline of Polly v8, in C#."""
    cannot = list(_cannot(policy, "deadline", jitters=("none", "polly"), budgets=()))
    is_constant = policy.factor == 1 or policy.cap <= policy.base
    if policy.backoff.jitter != "polly" and policy.tries > 2 and not is_constant:
        cannot += [] if policy.factor == 2 else [f"backoff_factor {policy.factor:g} (it doubles)"]
    kind = "Constant" if is_constant and policy.backoff.jitter != "polly" else "Exponential"
    lines = ["new ResiliencePipelineBuilder()"]
    if policy.deadline is not None:
        lines.append(f"    .AddTimeout(TimeSpan.FromMilliseconds({_ms(policy.deadline)}))")
    lines += [
        "    .AddRetry(new RetryStrategyOptions",
        "    {",
        f"        MaxRetryAttempts = {policy.tries - 1},",
        f"        Delay = TimeSpan.FromMilliseconds({_ms(policy.base)}),",
        f"        MaxDelay = TimeSpan.FromMilliseconds({_ms(policy.cap)}),",
        f"        BackoffType = DelayBackoffType.{kind},",
        f"        UseJitter = {'true' if policy.backoff.jitter == 'polly' else 'false'},",
        "    })",
        "    .Build();",
    ]
    return Snippet("\n".join(lines), tuple(cannot))


LIBRARIES: Final[dict[str, Callable[[Policy], Snippet]]] = {
    "envoy": _envoy,
    "grpc": _grpc,
    "aws": _aws,
    "resilience4j": _resilience4j,
    "finagle": _finagle,
    "linkerd": _linkerd,
    "polly": _polly,
}
"""What can be written for each library."""


def snippets_of(cell: Cell, library: str) -> Iterator[tuple[str, Snippet]]:
    """Write each layer of a cell that retries for a library, with what to call the layer.

    Of several layers a budget of the chain belongs to none.
    """
    layers = policies(cell)
    n_retrying = sum(policy.tries > 1 for policy in layers)
    for number, policy in enumerate(layers, 1):
        if policy.tries == 1 and n_retrying > 0:
            continue
        shared = cell.budget_scope == "chain" and n_retrying > 1 and policy.budget is not None
        alone = policy._replace(budget=None) if shared else policy
        made = snippet(alone, library)
        if shared:
            rest = (*made.cannot, f"one budget for all layers, {policy.budget}")
            made = made._replace(cannot=rest)
        yield (f"layer {number}" if len(layers) > 1 else ""), made
