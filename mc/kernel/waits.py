"""The table of waits: how long each request waits after each of its attempts, made at once.

If a request keeps failing, the rounds of its attempts depend on its draws and on the kind of waits
alone. Where the dependency serves less than arrives nearly every request waits several times, in
every cell; so for the requests of those rounds the waits are not drawn one by one, but beforehand,
for four attempts and all requests in one loop that becomes SIMD code::

    attempt  request 501   502   503   504   ...
       0             2     1     2     2
       1             1     4     3     3
       2             7     5     1     8
      ...                                       the rows in use
       8             0     0     0     0        after the last of them: nothing but 0

A 0 says that the wait is not in the table; then it is drawn. A row has a place for every request of
the replication, though only those of the `ahead` rounds are filled in: the place is found by one
addition, from that of the attempt before. After the last row the place stays where it is, so that
it still tells the request.

Waits are made of words, by ``1 + floor(offset + u * width)``, for one kind of waits after the
other; the words are drawn once for all, and stand in a table of the same form. A cell that waits
like no other takes its words from there, and needs no table of waits. How many rows pay depends on
how often requests fail, so it is learned: if more waits of the table's requests were drawn for want
of rows than `ROWS_PAY` says, the next replication has `STEP` rows more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import compiled, inlined
from mc.kernel.choice import LEAST_ROWS, MOST_PLACES
from mc.kernel.draws import U, draw_jitter, remembered_jitter, wait_of, wide_vectors
from mc.kernel.layout import REQUEST_SHIFT, ROUND_SHIFT, CellTables
from mc.kernel.traffic import list_requests

STEP: Final = LEAST_ROWS
"""Rows are drawn four at a time: that is a block of words."""

MOST_ROWS: Final = 32

ROWS_PAY: Final = 0.1
"""Waits drawn beyond the last row, by request in the table, for which `STEP` rows more pay."""

# --- the entry ------------------------------------------------------------------------------------

ARRIVAL_SHIFT: Final = 41
ATTEMPT_SHIFT: Final = 25
NEXT_ATTEMPT: Final = 1 << ATTEMPT_SHIFT
PLACE_MASK: Final = MOST_PLACES - 1
ATTEMPTS: Final = 0xFFFF


class Waits(NamedTuple):
    """The table and what it is made of.

    Attributes
    ----------
    table : ndarray of uint16, shape ((most rows + 1) * stride,)
        Rounds to wait, by attempt and request; 0 where it is to be drawn.
    words : ndarray of uint32, shape ((most rows + 1) * stride,)
        JITTER words, each at the place of the wait that is made of it; 0 where none is drawn.
    stride : int
        Places in a row.
    rows : ndarray of int64, shape (B,)
        How many are in use for each kind of waits, or for all of them.
    missed : ndarray of int64, shape (B,)
        Waits that have been drawn in this replication because there were not more.
    filled : ndarray of int64, shape (4,)
        What of the table is not 0: how many rows, from which request on, and how many of them; how
        many rows of the words.
    """

    table: NDArray[np.uint16]
    words: NDArray[np.uint32]
    stride: int
    rows: NDArray[np.int64]
    missed: NDArray[np.int64]
    filled: NDArray[np.int64]


N_ROWS: Final = 0
BEGIN: Final = 1
SIZE: Final = 2
N_DRAWN: Final = 3


def empty_waits(tables: CellTables, n_kinds: int) -> Waits:
    """A table without a wait; rows are learned for each kind of waits, or for all of them."""
    stride = tables.n_requests + 1
    most_rows = max(STEP, min(MOST_ROWS, MOST_PLACES // stride - 1)) // STEP * STEP
    return Waits(
        table=np.zeros((most_rows + 1) * stride, np.uint16),
        words=np.zeros((most_rows + 1) * stride, np.uint32),
        stride=stride,
        rows=np.full(n_kinds, STEP),
        missed=np.zeros(n_kinds, np.int64),
        filled=np.zeros(4, np.int64),
    )


@compiled()
def draw_words(waits, begin, end, traffic, stream):
    """Draw the words of the requests that arrive in some rounds, and empty the table."""
    _empty(waits, np.int64(0))
    words, stride, filled = waits.words, waits.stride, waits.filled
    n = list_requests(begin, end, traffic)
    first = np.int64(traffic.first[begin])
    old_first, old_end = filled[BEGIN], filled[BEGIN] + filled[SIZE]
    for at in range(0, filled[N_DRAWN] * stride, stride):  # those that are not drawn anew
        words[at + old_first : at + min(old_end, first)] = 0
        words[at + max(old_first, first + n) : at + old_end] = 0
    filled[BEGIN], filled[SIZE] = first, n
    for b in range(waits.rows.size):
        filled[N_DRAWN] = max(filled[N_DRAWN], waits.rows[b])
    for k in range(0, filled[N_DRAWN], STEP):
        at = k * stride + first
        rows = words[at:], words[at + stride :], words[at + 2 * stride :], words[at + 3 * stride :]
        draw_jitter(stream, n, traffic.listed, k, rows)


@compiled()
def _empty(waits, rows):
    """Empty the table from a row on."""
    filled = waits.filled
    for k in range(rows, filled[N_ROWS]):
        at = k * waits.stride + filled[BEGIN]
        waits.table[at : at + filled[SIZE]] = 0
    filled[N_ROWS] = min(filled[N_ROWS], rows)


@compiled()
def fill(waits, b, widths, offsets):
    """Fill in the table for one kind of waits."""
    wide_vectors()
    n, n_rows = waits.filled[SIZE], min(waits.rows[b], widths.size)
    _empty(waits, n_rows)
    waits.filled[N_ROWS] = n_rows
    for k in range(n_rows):
        at = k * waits.stride + waits.filled[BEGIN]
        row, words = waits.table[at : at + n], waits.words[at : at + n]
        high, low, offset = widths[k] >> U(32), widths[k] & U(0xFFFFFFFF), offsets[k]
        if low == U(0):
            for i in range(n):
                row[i] = np.uint16(U(1) + ((U(words[i]) * high + offset) >> U(32)))
        else:  # the product in two halves
            for i in range(n):
                word = U(words[i])
                total = word * high + ((word * low) >> U(32)) + offset
                row[i] = np.uint16(U(1) + (total >> U(32)))


@compiled()
def learn_rows(waits):
    """Take more rows into use where that pays, for the replications to come."""
    for b in range(waits.rows.size):
        pays = waits.missed[b] > ROWS_PAY * waits.filled[SIZE]
        if pays and (waits.rows[b] + STEP + 1) * waits.stride <= waits.words.size:
            waits.rows[b] += STEP
        waits.missed[b] = 0


# --- a wait that is not in the table --------------------------------------------------------------


@inlined
def attempt_of(entry):
    """The number of the attempt."""
    return (entry >> ATTEMPT_SHIFT) & ATTEMPTS


@inlined
def plain_entry(entry, rows, stride):
    """The entry of the same call on the wheel of the other loops."""
    attempt = attempt_of(entry)
    request = (entry & PLACE_MASK) - min(attempt, rows) * stride
    return ((entry >> ARRIVAL_SHIFT) << ROUND_SHIFT) | (request << REQUEST_SHIFT) | attempt


@inlined
def wait_drawn(waits, b, widths, offsets, entry, stream, first, jitter):
    """The wait after the call of an entry, from its JITTER word."""
    rows = waits.rows[b]
    plain = plain_entry(entry, rows, waits.stride)
    attempt = attempt_of(entry)
    waits.missed[b] += np.int64(attempt >= rows)
    word = remembered_jitter(stream, first, jitter, plain)
    return wait_of(word, widths[U(attempt)], offsets[U(attempt)])
