"""What the loops by tables make of their counts: a row."""

from __future__ import annotations

import numpy as np

from mc.kernel.cache import inlined
from mc.kernel.layout import (
    C_CHAIN,
    C_LAYERS,
    C_LIMIT_MASK,
    CALLS,
    CALLS_OF_LAYER,
    DENIED,
    DRAIN,
    DROPPED,
    EXPIRED,
    IN_FLIGHT,
    LATE,
    NEVER,
    P_WINDOW_END,
    P_WINDOW_START,
    PEAK,
    PRIMARY,
    REQUEST_COUNT,
    RETRIES,
    SECOND_PEAK,
    SUCCESSFUL,
    UNDEFINED,
    WAIT_MAX,
    WAIT_TOTAL,
    WINDOW_CALLS,
    WINDOW_DROPPED,
    WINDOW_REQUESTS,
)


@inlined
def start_layers(row, tables, c):
    """Begin to count the retries that the layers make; give the number of those that are counted.

    They are counted for all layers but the innermost, which makes all calls.
    """
    n_layers = tables.scalars[c, C_LAYERS] - 1
    row[CALLS_OF_LAYER : CALLS_OF_LAYER + n_layers] = 0
    return n_layers


@inlined
def count_layers(row, tables, c, n_layers, attempt):
    """Count a retry for every layer that makes it."""
    for i in range(tables.makers[tables.scalars[c, C_CHAIN], attempt], n_layers):
        row[CALLS_OF_LAYER + i] += 1


@inlined
def write_row(
    row, tables, traffic, c, p, retries, dropped, pending, peaks, window_retries, waits, late,
    drain, window_dropped, expired, denied,
):  # fmt: skip
    """Fill a row.

    Parameters
    ----------
    row : ndarray of int64, shape (N_COUNTERS or more,)
        Output, overwritten; the retries of layers are in it.
    tables, traffic : CellTables, Traffic
        What the loop has read.
    c, p : int
        The cell, and its profile.
    retries, dropped, pending : int
        Retries that have run, requests that were given up, and those that wait for a retry.
    peaks : tuple of int
        Most calls in a round, and after the window, of rounds that the loop has looked at: in the
        others there are only first calls.
    window_retries : int
        Retries inside the window.
    waits : tuple of int
        Sum and maximum of the rounds that successful requests have waited.
    late : int
        How many of them waited longer than the threshold.
    drain : int
        Rounds from the end of the window until nothing waits; negative if that does not come.
    window_dropped : int
        Requests that arrived inside the window and were given up.
    expired, denied : int
        How often a deadline or the budget stood against a retry.
    """
    window_start, window_end = tables.profiles[p, P_WINDOW_START], tables.profiles[p, P_WINDOW_END]
    has_after = window_start < window_end < tables.n_rounds
    requests = np.int64(traffic.first[tables.n_rounds])
    window_requests = np.int64(traffic.first[window_end]) - np.int64(traffic.first[window_start])
    row[REQUEST_COUNT] = requests
    row[WINDOW_REQUESTS] = window_requests
    row[CALLS] = requests + retries
    row[PRIMARY] = requests
    row[RETRIES] = retries
    row[SUCCESSFUL] = requests - dropped - pending
    row[DROPPED] = dropped
    row[IN_FLIGHT] = pending
    row[PEAK] = max(peaks[0], traffic.most[p, 0])
    row[WINDOW_CALLS] = window_requests + window_retries
    row[SECOND_PEAK] = max(peaks[1], traffic.most[p, 1]) if has_after else UNDEFINED
    row[WAIT_TOTAL] = waits[0]
    row[WAIT_MAX] = waits[1]
    row[LATE] = late
    row[DRAIN] = drain if has_after and drain >= 0 else UNDEFINED
    row[WINDOW_DROPPED] = window_dropped
    row[EXPIRED] = expired if tables.deadlines[c, 0] < NEVER else UNDEFINED
    row[DENIED] = denied if tables.scalars[c, C_LIMIT_MASK] != 0 else UNDEFINED
    for i in range(tables.scalars[c, C_LAYERS] - 1):
        row[CALLS_OF_LAYER + i] += requests
