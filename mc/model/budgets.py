"""Budgets as libraries have them, under their names and with their defaults.

Each class is one ``kind`` of ``budget = {kind = "...", ...}``; what it does is in
`mc.kernel.budgets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from mc.model.parameters import INT32_MAX, EntryError, Kind, declare, one_of, or_none, real, whole
from mc.model.settings import Settings, kind_of
from mc.model.units import format_time

MAX_RATIO: Final = 1e6

_ROUNDS: Final = whole(1, INT32_MAX)
_TTL: Final = (1.0, 60.0)
"""Seconds that Finagle and Linkerd remember, at least and at most."""
_PER_SECOND: Final = whole(0, 1_000_000)


def _hundredths(low: float, high: float) -> Kind:
    """Make the kind of numbers in a range that have at most two decimals."""
    number = real(low, high)
    rule = f"{number.rule}, with at most two decimals"

    def parse(value: object) -> float:
        parsed: float = number.parse(value)
        if round(parsed, 2) != parsed:
            raise ValueError(f"must be {rule}, got {value!r}")
        return parsed

    return Kind(rule, parse, number.schema, "float", number=number)


def _ttl() -> Kind:
    """Make the kind of what is a time in the library, and rounds here: messages have its rule."""
    rule = f"a time >= {format_time(_TTL[0])} and <= {format_time(_TTL[1])}"

    def parse(value: object) -> int:
        if not _ROUNDS.accepts(value):
            raise ValueError(f"must be {rule}, got {value!r}")
        rounds: int = _ROUNDS.parse(value)
        return rounds

    kind = Kind(rule, parse, {"type": "integer"}, "int32")
    return replace(kind, number=kind)


@dataclass(frozen=True)
class Ratio(Settings):
    """Retries may be a share of the requests: the lesson's budget, and one that forgets."""

    kind: ClassVar[str] = "ratio"
    library: ClassVar[str] = "a ratio of retries to requests"
    ratio: float = declare(real(0, MAX_RATIO), ..., "retries/primary", "retries per request")
    charged: str = declare(
        one_of("run", "decision"),
        "run",
        "",
        "when a retry counts: when it runs (those that wait are not seen), or when it is decided",
    )
    window: int | None = declare(
        or_none(_ROUNDS), None, "rounds", "how long requests and retries are remembered"
    )


@dataclass(frozen=True)
class Finagle(Settings):
    """A deposit for every request, a withdrawal for every retry, both forgotten after a while.

    Notes
    -----
    twitter/finagle: finagle-core/.../service/RetryBudget.scala.
    """

    kind: ClassVar[str] = "finagle"
    library: ClassVar[str] = "Finagle's RetryBudget"
    seconds: ClassVar[dict[str, tuple[float, float]]] = {"ttl": _TTL}
    ttl: int = declare(_ttl(), "10 s", "rounds", "how long deposits and withdrawals count")
    min_retries_per_sec: int = declare(
        _PER_SECOND, 10, "retries/s", "a reserve of so many retries for each second of ttl"
    )
    percent_can_retry: float = declare(real(0, 1000), 0.2, "share", "retries per request")


@dataclass(frozen=True)
class Linkerd(Settings):
    """As Finagle's, but only a request that succeeds deposits, and costs are whole deposits.

    Notes
    -----
    linkerd/linkerd2-proxy: linkerd/app/outbound/src/http/retry.rs; tower-rs/tower:
    tower/src/retry/budget/tps_budget.rs.
    """

    kind: ClassVar[str] = "linkerd"
    library: ClassVar[str] = "Linkerd's retryBudget"
    seconds: ClassVar[dict[str, tuple[float, float]]] = {"ttl": _TTL}
    ttl: int = declare(_ttl(), "10 s", "rounds", "how long deposits and withdrawals count")
    min_retries_per_second: int = declare(
        _PER_SECOND, 10, "retries/s", "a reserve of so many retries for each second of ttl"
    )
    retry_ratio: float = declare(real(0, 1000), 0.2, "share", "retries per successful request")


@dataclass(frozen=True)
class Grpc(Settings):
    """Tokens, 1 fewer after every failed call, more after every success; allowed above half.

    Notes
    -----
    grpc/proposal: A6-client-retries.md, "Throttling Retry Attempts and Hedged RPCs".
    """

    kind: ClassVar[str] = "grpc"
    library: ClassVar[str] = "gRPC's retryThrottling, A6"
    max_tokens: int = declare(whole(1, 1000), 10, "tokens", "tokens at the start, and at most")
    token_ratio: float = declare(
        real(0.001, 1000), 0.1, "tokens", "what a success gives back; three decimals count"
    )


@dataclass(frozen=True)
class Aws(Settings):
    """A quota that retries take from and successes give back to.

    Notes
    -----
    boto/botocore: botocore/retries/standard.py, quota.py. The cost is 14 by default since November
    2026 (1.44.0); before it was 5, and 10 after a time-out.
    """

    kind: ClassVar[str] = "aws"
    library: ClassVar[str] = "the retry quota of AWS SDKs"
    quota: int = declare(whole(1, INT32_MAX), 500, "tokens", "tokens at the start, and at most")
    cost: int = declare(whole(1, INT32_MAX), 14, "tokens", "what a retry takes")


@dataclass(frozen=True)
class Envoy(Settings):
    """So many retries may be under way at once, from their decision to their outcome.

    Notes
    -----
    envoyproxy/envoy: api/envoy/config/cluster/v3/circuit_breaker.proto,
    source/common/upstream/resource_manager_impl.h. Its `budget_interval`, 0 by default, is not
    modelled: the budget is a part of what is active, not of what came in an interval.
    """

    kind: ClassVar[str] = "envoy"
    library: ClassVar[str] = "Envoy's circuit_breakers"
    budget_percent: float = declare(
        real(0, 100), 20.0, "%", "retries at once, in percent of the active calls"
    )
    min_retry_concurrency: int = declare(
        whole(0, INT32_MAX), 3, "retries", "retries at once that are always allowed"
    )
    max_retries: int | None = declare(
        or_none(whole(0, INT32_MAX)), None, "retries", "retries at once, without a retry budget"
    )

    @property
    def written(self) -> dict[str, Any]:
        """What texts give: a limit stands alone."""
        given = super().written
        return {"max_retries": self.max_retries} if "max_retries" in given else given

    def conflicts(self, name: str, rounds_per_second: float) -> Iterator[str]:
        """Say that a limit stands alone."""
        others = sorted(self.table.keys() - {"kind", "max_retries"})
        if self.max_retries is not None and others:
            yield (
                f"{name}.max_retries must stand alone, because a retry budget replaces it "
                f"({self.library}), got {', '.join(others)} beside it"
            )


@dataclass(frozen=True)
class Sre(Settings):
    """A client's retry ratio, and adaptive throttling if `k` is given.

    Notes
    -----
    Beyer et al. 2016, "Site Reliability Engineering", chapter 21.
    """

    kind: ClassVar[str] = "sre"
    library: ClassVar[str] = "Google's SRE book, chapter 21"
    ratio: float = declare(real(0, MAX_RATIO), 0.1, "retries/primary", "retries per request")
    window: int = declare(_ROUNDS, "2 min", "rounds", "how long requests and retries count")
    k: float | None = declare(
        or_none(_hundredths(1, 1000)),
        None,
        "",
        "adaptive throttling: a call is rejected with the chance "
        "(requests - k * accepts) / (requests + 1); none: it is not",
    )


Budget = Ratio | Finagle | Linkerd | Grpc | Aws | Envoy | Sre

BUDGETS: Final[dict[str, type[Settings]]] = {
    settings.kind: settings for settings in (Ratio, Finagle, Linkerd, Grpc, Aws, Envoy, Sre)
}
"""Every kind of budget."""


def as_table(value: Any) -> Any:
    """A plain budget as the table that it stands for, see `kind`; all else as it is."""
    return Ratio(value, "run", None) if isinstance(value, float) else value


def kind() -> Kind:
    """Make the kind of budgets: a number is the ratio of the lesson, which is plain a number."""
    number, table = real(0, MAX_RATIO), kind_of(BUDGETS, "grpc")

    def parse(value: object) -> Any:
        if isinstance(value, Mapping | Settings):
            parsed = table.parse(value)
            is_plain = isinstance(parsed, Ratio) and parsed == Ratio(parsed.ratio, "run", None)
            return parsed.ratio if is_plain else parsed
        if isinstance(value, str) and value in BUDGETS:
            raise EntryError(f' must be a table, {{kind = "{value}"}}, got {value!r}')
        return number.parse(value)

    return Kind(
        number.rule,
        parse,
        {"anyOf": [number.schema, *table.schema["anyOf"]]},
        "float",
        number=number,
        to_column=lambda value: str(value) if isinstance(value, Settings) else value,
        from_column=lambda value: table.from_column(value) if isinstance(value, str) else value,
        tables=BUDGETS,
    )
