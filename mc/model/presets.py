"""Libraries' documented defaults, as the parameters that a policy with ``like`` begins with.

What a library does not document is left at the default of a cell. Times are texts with units, so
they mean the same for rounds of every length.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Preset(NamedTuple):
    """What a library does unless it is told otherwise.

    Attributes
    ----------
    parameters : dict
        As an experiment file has them.
    source : str
        Where that is documented.
    note : str
        What is no default of the library; empty if all is.
    """

    parameters: dict[str, Any]
    source: str
    note: str = ""


def _backoff(base: str, factor: float, cap: str, jitter: str) -> dict[str, Any]:
    return {
        "backoff_base": base,
        "backoff_factor": factor,
        "backoff_cap": cap,
        "jitter": jitter,
    }


_AT_ONCE: Final = _backoff("0 ms", 1, "0 ms", "none")
"""The next attempt comes in the next round."""

PRESETS: Final[dict[str, Preset]] = {
    "aws": Preset(
        {
            "tries": [3],
            **_backoff("50 ms", 2, "20 s", "full"),
            "budget": {"kind": "aws", "quota": 500, "cost": 14},
        },
        "AWS SDKs, standard mode of 2026: botocore/retries/standard.py, quota.py; "
        "docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html; AWS Developer Tools "
        "Blog, 'Updated default retry behavior for AWS SDKs and tools'",
        "the default since November 2026 (botocore 1.44.0); the SDKs for Java and Kotlin follow",
    ),
    "aws-2025": Preset(
        {
            "tries": [3],
            **_backoff("1 s", 2, "20 s", "full"),
            "budget": {"kind": "aws", "quota": 500, "cost": 5},
        },
        "AWS SDKs, standard mode before November 2026: botocore/retries/standard.py, quota.py",
        "after a time-out a retry cost 10",
    ),
    "envoy": Preset(
        {
            "tries": [2],
            **_backoff("25 ms", 2, "250 ms", "full"),
            "budget": {"kind": "envoy", "max_retries": 3},
        },
        "Envoy: x-envoy-max-retries (1), retry_back_off (25 ms, ten times that), circuit_breakers "
        "(max_retries 3): api/envoy/config/route/v3/route_components.proto, "
        "cluster/v3/circuit_breaker.proto; source/common/common/backoff_strategy.cc",
    ),
    "envoy-budget": Preset(
        {
            "tries": [2],
            **_backoff("25 ms", 2, "250 ms", "full"),
            "budget": {"kind": "envoy", "budget_percent": 20, "min_retry_concurrency": 3},
        },
        "Envoy with an empty retry_budget {}: api/envoy/config/cluster/v3/circuit_breaker.proto",
    ),
    "finagle": Preset(
        {
            "tries": [21],
            **_AT_ONCE,
            "budget": {
                "kind": "finagle",
                "ttl": "10 s",
                "min_retries_per_sec": 10,
                "percent_can_retry": 0.2,
            },
        },
        "Finagle: finagle-core/.../service/RetryBudget.scala, Retries.scala, RequeueFilter.scala",
        "a request may take a fifth of the balance: 20 of the reserve of 100 retries",
    ),
    "grpc": Preset(
        {
            "tries": [4],
            **_backoff("100 ms", 2, "1 s", "plus_minus"),
            "jitter_share": 0.2,
            "budget": {"kind": "grpc", "max_tokens": 10, "token_ratio": 0.1},
        },
        "gRPC: grpc/proposal, A6-client-retries.md, the examples of retryPolicy and "
        "retryThrottling; the jitter since pull request 452 of August 2024",
        "gRPC itself retries nothing until it is configured",
    ),
    "linkerd": Preset(
        {
            "tries": [100],
            **_AT_ONCE,
            "budget": {
                "kind": "linkerd",
                "ttl": "10 s",
                "min_retries_per_second": 10,
                "retry_ratio": 0.2,
            },
        },
        "Linkerd service profiles: linkerd.io/2.12/tasks/configuring-retries; "
        "linkerd2-proxy: linkerd/app/outbound/src/http/retry.rs",
        "attempts have no limit there; 100 stand for that. The annotations of Linkerd 2.16 have no "
        "budget",
    ),
    "polly": Preset(
        {"tries": [4], **_backoff("2 s", 1, "2 s", "none")},
        "Polly v8, RetryStrategyOptions: 3 retries, 2 s, constant, no jitter: "
        "pollydocs.org/strategies/retry",
    ),
    "resilience4j": Preset(
        {"tries": [3], **_backoff("500 ms", 1, "500 ms", "none")},
        "resilience4j, RetryConfig: 3 attempts, waits of 500 ms: resilience4j.readme.io/docs/retry",
        'its breaker is a module of its own: breaker = {kind = "resilience4j"}; it has no budget '
        "(issue 172 is open)",
    ),
    "sre": Preset(
        {"tries": [3], "budget": {"kind": "sre", "ratio": 0.1, "window": "2 min"}},
        "Beyer et al. 2016, Site Reliability Engineering, chapter 21: 3 attempts, 10 % per client",
        "it documents no waits",
    ),
}
"""Every preset by the name that ``like`` gives it."""


def completed(table: dict[str, Any]) -> dict[str, Any]:
    """Fill a policy up with what it is ``like``; what it says itself stays.

    Parameters
    ----------
    table : dict
        A policy as its file has it. A budget without a kind changes entries of the preset's.

    Returns
    -------
    dict
        Without ``like``.

    Raises
    ------
    KeyError
        There is no such preset.
    """
    own = {name: value for name, value in table.items() if name != "like"}
    if "like" not in table:
        return own
    preset = PRESETS[table["like"]].parameters
    for name in ("budget", "breaker"):
        given = own.get(name)
        if isinstance(given, dict) and "kind" not in given and name in preset:
            own[name] = preset[name] | given
            if given and "max_retries" not in given:  # Envoy's limit, which a budget replaces
                own[name].pop("max_retries", None)
    return preset | own
