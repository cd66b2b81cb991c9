"""Circuit breakers as libraries have them, under their names and with their defaults.

Each class is one ``kind`` of ``breaker = {kind = "...", ...}``; what it does is in
`mc.kernel.breakers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from mc.model.parameters import INT32_MAX, Kind, declare, real, whole
from mc.model.settings import Settings, kind_of

MAX_WINDOW: Final = 1_000_000

_CALLS: Final = whole(1, MAX_WINDOW)
_ROUNDS: Final = whole(1, INT32_MAX)


@dataclass(frozen=True)
class Resilience4j(Settings):
    """Opens when too large a share of the last calls failed.

    Notes
    -----
    resilience4j/resilience4j: CircuitBreakerConfig.java, COUNT_BASED. Slow calls, automatic
    transition and windows of time are not modelled.
    """

    kind: ClassVar[str] = "resilience4j"
    library: ClassVar[str] = "resilience4j's CircuitBreakerConfig"
    failure_rate_threshold: float = declare(
        real(0, 100, low_open=True), 50.0, "%", "failures at which it opens, in percent of calls"
    )
    sliding_window_size: int = declare(_CALLS, 100, "calls", "calls whose outcomes count")
    minimum_number_of_calls: int = declare(
        _CALLS, 100, "calls", "outcomes without which nothing is decided; at most the window"
    )
    wait_duration_in_open_state: int = declare(_ROUNDS, "60 s", "rounds", "how long it is open")
    permitted_number_of_calls_in_half_open_state: int = declare(
        _CALLS, 10, "calls", "calls that may pass then, and decide"
    )


@dataclass(frozen=True)
class Consecutive(Settings):
    """Opens after more than so many failures in a row.

    Notes
    -----
    sony/gobreaker: v2/gobreaker.go, with its default ReadyToTrip and no Interval.
    """

    kind: ClassVar[str] = "consecutive"
    library: ClassVar[str] = "gobreaker's Settings"
    consecutive_failures: int = declare(
        whole(0, INT32_MAX), 5, "calls", "failures in a row that leave it closed; one more opens it"
    )
    timeout: int = declare(_ROUNDS, "60 s", "rounds", "how long it is open")
    max_requests: int = declare(
        _CALLS, 1, "calls", "calls that may pass then, and close it if all succeed"
    )


Breaker = Resilience4j | Consecutive

BREAKERS: Final[dict[str, type[Settings]]] = {
    settings.kind: settings for settings in (Resilience4j, Consecutive)
}
"""Every kind of breaker."""


def kind() -> Kind:
    """Make the kind of breakers."""
    return kind_of(BREAKERS, "resilience4j")
