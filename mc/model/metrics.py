"""Every number of a replication: name, unit, meaning."""

from __future__ import annotations

from typing import Final

MEANINGS: Final[dict[str, tuple[str, str]]] = {  # unit ("" for a pure number) and meaning
    "requests": ("requests", "requests that arrived"),
    "window_requests": ("requests", "requests that arrived inside the fault window"),
    "calls": ("calls", "calls made, first attempts and retries"),
    "primary": ("calls", "first attempts"),
    "retries": ("calls", "all other attempts"),
    "successful": ("requests", "requests with a call that succeeded"),
    "dropped": ("requests", "requests given up"),
    "in_flight": ("requests", "requests undecided when the run ended"),
    "peak": ("calls/round", "most calls in one round"),
    "window_calls": ("calls", "calls inside the fault window"),
    "second_peak": ("calls/round", "most calls in one round after the fault window"),
    "wait_total": ("rounds", "waits from arrival to success, summed over requests"),
    "wait_max": ("rounds", "longest wait from arrival to success"),
    "late": ("requests", "successes that waited more than `threshold` rounds"),
    "drain": ("rounds", "from the end of the fault window until no retry was pending"),
    "multiplier": ("calls/request", "calls per request"),
    "window_rate": ("calls/round", "calls per round of the fault window"),
    "times_usual": ("", "calls per round of the fault window, over the arrivals per round"),
    "wait_mean": ("rounds", "wait from arrival to success, per successful request"),
}
"""Every number of a replication: the counters in the kernel's order, then the ratios."""

RATIOS: Final = ("multiplier", "window_rate", "times_usual", "wait_mean")
"""What is computed from the counters, never stored in their place."""

COUNTERS: Final = tuple(name for name in MEANINGS if name not in RATIOS)
"""What is counted in a replication, in the kernel's order."""
