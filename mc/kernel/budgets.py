"""What may refuse a retry, or a call before it leaves: budgets, with a form for each kind.

A budget stands at a layer, or before the dependency (then at the innermost layer, but every layer
asks it), and sees the calls that leave there:

    announce   a call of this round is about to leave; told of all before the first of them does
    rejects    is the next call rejected before it leaves?
    begins     a call leaves, a retry or the first try of something new, rejected or not
    ends       a call that left has ended: OK, FAILED, or GIVEN_UP (somebody's time is over)
    allows     may there be a retry? Asked when attempts and deadline permit one; yes books it

All numbers are integers, so a comparison with a ratio is exact. A budget that a table by the number
of primary calls can say (one ratio before the dependency, no window) is None here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import form_for, inlined
from mc.kernel.chain import digit_of, maker_of
from mc.kernel.draws import U, scaled
from mc.kernel.generators import client_drawn, throttle
from mc.kernel.layout import (
    ATTEMPT_MASK,
    AWS,
    B_COST,
    B_DENOMINATOR,
    B_GAIN,
    B_K,
    B_KIND,
    B_MOST,
    B_NUMERATOR,
    B_ON_DECISION,
    B_RESERVE,
    B_WHOLE,
    B_WINDOW,
    C_CLIENTS,
    C_LAYERS,
    C_LIMIT_MASK,
    C_LIMITS,
    C_SEES,
    ENVOY,
    FINAGLE,
    GRPC,
    INDEX_MASK,
    LINKERD,
    MIXED,
    PRIMARY,
    RATIO,
    REQUEST_SHIFT,
    RETRIES,
    SRE,
    CellTables,
)
from mc.kernel.workers import request_of

OK: Final = 0
FAILED: Final = 1
GIVEN_UP: Final = 2
"""How a call ended for the one who made it; the last is to budgets neither success nor failure."""

# --- clients -------------------------------------------------------------------------------------


class Clients(NamedTuple):
    """Whose each request is: every client has budgets and breakers of its own.

    Attributes
    ----------
    of : ndarray of int32, shape (n_requests,), or (0,) where there is one client
        The client of each request.
    """

    of: NDArray[np.int32]


def empty_clients(tables: CellTables) -> Clients:
    """Room for the requests of one replication after another."""
    has_several = (tables.scalars[:, C_CLIENTS] > 1).any()
    return Clients(np.empty(tables.n_requests if has_several else 0, np.int32))


def client_of(clients, tables, c, entry):
    """Whose request an entry belongs to."""


def draw_clients(clients, draws, workers, tables, c, t, first, n):
    """Say whose the n new requests of a round are."""


@form_for(None, client_of)
def _(clients, tables, c, entry):
    return 0


@form_for(None, draw_clients)
def _(clients, draws, workers, tables, c, t, first, n):
    pass


@form_for(Clients, client_of)
def _(clients, tables, c, entry):
    if tables.scalars[c, C_CLIENTS] == 1:
        return 0
    return np.int64(clients.of[(entry & INDEX_MASK) >> REQUEST_SHIFT])


@form_for(Clients, draw_clients)
def _(clients, draws, workers, tables, c, t, first, n):
    n_clients = tables.scalars[c, C_CLIENTS]
    if n_clients > 1:
        for j in range(n):
            request = request_of(workers, tables, first, j)
            clients.of[request] = scaled(client_drawn(draws, t, j), U(n_clients))


# --- what budgets remember -----------------------------------------------------------------------


class Memory(NamedTuple):
    """What the budgets of N clients remember, at L layers.

    Attributes
    ----------
    numbers : ndarray of int64, shape (N, L, 14)
        Of each budget: what its kind counts; all that a usual call needs stands together.
    events : ndarray of int64, shape (L, N * W + 1, 3)
        What is counted in a window of at most W rounds, a ring for each layer in the order of
        rounds: round << 32 | client, and what is counted of the client in the round.
    ends : ndarray of int64, shape (L, 2)
        Of each ring: the place of the first event, and that behind the last.
    """

    numbers: NDArray[np.int64]
    events: NDArray[np.int64]
    ends: NDArray[np.int64]


_N_NUMBERS: Final = 14

REQUESTS: Final = 0
RETRIES_MADE: Final = 1
CALLS_MADE: Final = 2
ACCEPTS: Final = 3
"""What is counted in a window: two in one number, the second from bit 32 on."""

_LATEST: Final = 2
_PLACE: Final = 3
"""What follows the counts: the round of the budget's last event, and its place."""

_LOW: Final = 0xFFFFFFFF


@inlined
def _following(events, place):
    return U(0) if place + U(1) == U(events.shape[1]) else place + U(1)


@inlined
def forget(memory, i, window, t):
    """Let go of events at layer i before the last `window` rounds, this one included.

    Only when counts are asked for: how many events there are cannot be foretold, and to go astray
    in every round takes longer than to count.
    """
    events, ends, oldest = memory.events[U(i)], memory.ends[U(i)], (t - window + 1) << 32
    first, behind = U(ends[0]), U(ends[1])
    while first != behind and events[first, 0] < oldest:
        numbers = memory.numbers[U(events[first, 0] & _LOW), U(i)]
        numbers[0] -= events[first, 1]
        numbers[1] -= events[first, 2]
        first = _following(memory.events, first)
    ends[0] = first


@inlined
def count(memory, client, i, q):
    """How often something has happened that is not forgotten."""
    return (memory.numbers[U(client), U(i), q >> 1] >> (32 * (q & 1))) & _LOW


@inlined
def remember(memory, client, i, q, window, t):
    """Count what happens in round t, to be forgotten again if there is a window."""
    numbers, events, ends = memory.numbers[U(client), U(i)], memory.events[U(i)], memory.ends[U(i)]
    once = 1 << (32 * (q & 1))
    numbers[q >> 1] += once
    if window == 0:
        return
    if numbers[_LATEST] != t:
        place = U(ends[1])
        following = _following(memory.events, place)
        if following == U(ends[0]):  # full, but not of events that are still in the window
            forget(memory, i, window, t)
        ends[1] = following
        numbers[_LATEST] = t
        numbers[_PLACE] = place
        events[place, 0] = t << 32 | client
        events[place, 1] = 0
        events[place, 2] = 0
    events[U(numbers[_PLACE]), 1 + (q >> 1)] += once


SUM: Final = 0
SLICE: Final = 1
NEXT: Final = 2
SLICES: Final = 3
"""Of deposits: those that count; the present slice, and the round in which the next begins; from
here on the sums of slices."""


@inlined
def turn_slices(numbers, ttl, past, t):
    """Go to the slice of round t, ``10 t // ttl``; the sum is of it and the `past` ones before."""
    if t >= numbers[NEXT]:
        now = 10 * t // ttl
        for k in range(max(numbers[SLICE] + 1, now - past), now + 1):
            at = SLICES + k % (past + 1)
            numbers[SUM] -= numbers[at]  # of the slice that goes out
            numbers[at] = 0
        numbers[SLICE] = now
        numbers[NEXT] = ((now + 1) * ttl + 9) // 10


@inlined
def add_to_slice(numbers, past, amount):
    """Add to the present slice."""
    numbers[SLICES + numbers[SLICE] % (past + 1)] += amount
    numbers[SUM] += amount


@inlined
def at_most(n, settings, of):
    """Whether ``n <= ratio * of``, exactly."""
    excess = n - settings[B_WHOLE] * of
    return excess <= 0 or excess * settings[B_DENOMINATOR] <= settings[B_NUMERATOR] * of


@inlined
def below(n, settings, of):
    """Whether ``n < ratio * of``, exactly."""
    excess = n - settings[B_WHOLE] * of
    return excess < 0 or excess * settings[B_DENOMINATOR] < settings[B_NUMERATOR] * of


@inlined
def is_retry(tables, c, i, entry):
    """Whether a call is a retry to the budget that sees the calls of layer i."""
    if tables.scalars[c, C_SEES] == tables.scalars[c, C_LAYERS] - 1:  # the chain's, or one layer
        return entry & ATTEMPT_MASK > 0
    return digit_of(tables, c, i, entry) > 0


# --- the kinds -----------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """Retries may be a share of the requests: the lesson's budget, with a window or without.

    A retry counts when it runs (allowed while ``retries <= ratio * requests``, the lesson), or when
    it is decided (``retries + 1 <= ratio * requests``).
    """

    memory: Memory


class Finagle(NamedTuple):
    """A request deposits when it begins, a retry withdraws when it is decided; both are forgotten.

    Ten slices of a tenth of the ttl, the present one among them, and a reserve.

    Notes
    -----
    twitter/finagle: finagle-core/.../service/RetryBudget.scala, RetryFilter.scala; twitter/util:
    TokenBucket.scala, WindowedAdder.scala.
    """

    memory: Memory


class Linkerd(NamedTuple):
    """As Finagle's, but a request deposits when it succeeds, and eleven slices count.

    Notes
    -----
    linkerd/linkerd2-proxy: linkerd/app/outbound/src/http/retry.rs; tower-rs/tower:
    tower/src/retry/budget/tps_budget.rs: ten slots, and the one that is next to be overwritten.
    """

    memory: Memory


class Grpc(NamedTuple):
    """Tokens in thousandths: a failed call costs 1000, a success gains; allowed above half.

    Notes
    -----
    grpc/proposal: A6-client-retries.md, "Throttling Retry Attempts and Hedged RPCs";
    grpc/grpc-go: stream.go, shouldRetry.
    """

    memory: Memory


class Aws(NamedTuple):
    """A quota: a retry takes its cost, a success gives 1 back, or the cost if it was a retry.

    Notes
    -----
    boto/botocore: botocore/retries/standard.py, quota.py.
    """

    memory: Memory


class Envoy(NamedTuple):
    """Retries under way at once, from their decision to their outcome, of the calls under way.

    Active are the calls of the round and those that were under way when it began.

    Notes
    -----
    envoyproxy/envoy: source/common/upstream/resource_manager_impl.h,
    source/common/router/retry_state_impl.cc.
    """

    memory: Memory


class Sre(NamedTuple):
    """A client's retry ratio, and adaptive throttling of its calls if there is a k.

    Notes
    -----
    Beyer et al. 2016, "Site Reliability Engineering", chapter 21, "Client-Side Throttling" and
    "Deciding to Retry".
    """

    memory: Memory


class Mixed(NamedTuple):
    """Layers whose budgets are not of one kind: which it is, is looked up at every call."""

    memory: Memory


Kind = Ratio | Finagle | Linkerd | Grpc | Aws | Envoy | Sre | Mixed

_KINDS: Final[dict[int, type[Kind]]] = {
    RATIO: Ratio,
    FINAGLE: Finagle,
    LINKERD: Linkerd,
    GRPC: Grpc,
    AWS: Aws,
    ENVOY: Envoy,
    SRE: Sre,
    MIXED: Mixed,
}


def empty_budgets(tables: CellTables, cells: NDArray[np.int64], kind: int) -> Kind:
    """Room for what the budgets of some cells remember."""
    n_clients, n_layers = tables.scalars[cells, C_CLIENTS].max(), tables.tries.shape[1]
    windows = tables.budgets[cells, :, B_WINDOW]
    events = np.isin(tables.budgets[cells, :, B_KIND], (RATIO, SRE))
    longest = min(windows.max(where=events, initial=0), tables.n_rounds)
    return _KINDS[kind](
        Memory(
            np.empty((n_clients, n_layers, _N_NUMBERS), np.int64),
            np.empty((n_layers, n_clients * longest + 1, 3), np.int64),
            np.zeros((n_layers, 2), np.int64),
        )
    )


def start_budgets(budgets, tables, c):
    """Begin a cell."""


def sees(budgets, tables, c, i):
    """Whether a budget sees the calls of layer i."""


def announce(budgets, clients, tables, c, t, entry):
    """Hear that a call is about to leave in round t."""


def rejects(budgets, draws, tables, c, i, client, t, entry):
    """Whether a call is rejected before it leaves."""


def begins(budgets, tables, c, i, client, t, retry):
    """Hear that a call leaves, even if it is then rejected on its way."""


def ends(budgets, tables, c, i, client, t, entry, outcome):
    """Hear that a call that left has ended."""


def allows(budgets, tables, c, i, client, t, row):
    """Whether there may be a retry; if so, it is booked."""


@inlined
def may_retry(budgets, tables, c, i, client, t, row):
    """Whether the budget that layer i asks allows a retry."""
    return allows(budgets, tables, c, max(i, tables.scalars[c, C_SEES]), client, t, row)


# No budget, or that of a table ------------------------------------------------------------------


@form_for(None, start_budgets)
def _(budgets, tables, c):
    pass


@form_for(None, sees)
def _(budgets, tables, c, i):
    return False


@form_for(None, allows)
def _(budgets, tables, c, i, client, t, row):
    limits = tables.limits[tables.scalars[c, C_LIMITS]]
    return row[RETRIES] <= limits[row[PRIMARY] & tables.scalars[c, C_LIMIT_MASK]]


# What most kinds have in common -----------------------------------------------------------------

_ALL: Final = tuple(_KINDS.values())


@form_for(_ALL, start_budgets)
def _(budgets, tables, c):
    budgets.memory.ends[:] = 0
    for client in range(tables.scalars[c, C_CLIENTS]):
        for i in range(tables.scalars[c, C_SEES], tables.scalars[c, C_LAYERS]):
            numbers = budgets.memory.numbers[client, i]
            numbers[:] = 0
            kind = tables.budgets[c, i, B_KIND]
            if kind in (GRPC, AWS):
                numbers[0] = tables.budgets[c, i, B_MOST]
            elif kind in (FINAGLE, LINKERD):
                numbers[SLICE] = -1
            elif kind == ENVOY:
                numbers[_ROUND] = -1
            else:
                numbers[_LATEST] = -1


@form_for(_ALL, sees)
def _(budgets, tables, c, i):
    return i >= tables.scalars[c, C_SEES]


@form_for((None, Ratio, Finagle, Linkerd, Grpc, Aws, Sre), announce)
def _(budgets, clients, tables, c, t, entry):
    pass


@form_for((None, Ratio, Finagle, Linkerd, Grpc, Aws, Envoy), rejects)
def _(budgets, draws, tables, c, i, client, t, entry):
    return False


@form_for((None, Linkerd, Grpc, Aws), begins)
def _(budgets, tables, c, i, client, t, retry):
    pass


@form_for((None, Ratio, Finagle), ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    pass


# A ratio of retries to requests -----------------------------------------------------------------


@form_for(Ratio, begins)
def _(budgets, tables, c, i, client, t, retry):
    window = tables.budgets[c, i, B_WINDOW]
    if not retry:
        remember(budgets.memory, client, i, REQUESTS, window, t)
    elif tables.budgets[c, i, B_ON_DECISION] == 0:
        remember(budgets.memory, client, i, RETRIES_MADE, window, t)


@form_for(Ratio, allows)
def _(budgets, tables, c, i, client, t, row):
    memory, settings = budgets.memory, tables.budgets[c, i]
    forget(memory, i, settings[B_WINDOW], t)
    on_decision = settings[B_ON_DECISION]
    retries = count(memory, client, i, RETRIES_MADE) + on_decision
    allowed = at_most(retries, settings, count(memory, client, i, REQUESTS))
    if allowed and on_decision == 1:
        remember(memory, client, i, RETRIES_MADE, settings[B_WINDOW], t)
    return allowed


@form_for(Sre, rejects)
def _(budgets, draws, tables, c, i, client, t, entry):
    memory, k = budgets.memory, tables.budgets[c, i, B_K]
    if k == 0:
        return False
    forget(memory, i, tables.budgets[c, i, B_WINDOW], t)
    calls = count(memory, client, i, CALLS_MADE)
    excess = 100 * calls - k * count(memory, client, i, ACCEPTS)
    if excess <= 0:
        return False
    at = i if tables.scalars[c, C_SEES] == 0 else 0
    return scaled(throttle(draws, tables, entry, at), U(100 * (calls + 1))) < U(excess)


@form_for(Sre, begins)
def _(budgets, tables, c, i, client, t, retry):
    window = tables.budgets[c, i, B_WINDOW]
    if tables.budgets[c, i, B_K] > 0:
        remember(budgets.memory, client, i, CALLS_MADE, window, t)
    if not retry:
        remember(budgets.memory, client, i, REQUESTS, window, t)


@form_for(Sre, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    if outcome == OK and tables.budgets[c, i, B_K] > 0:
        remember(budgets.memory, client, i, ACCEPTS, tables.budgets[c, i, B_WINDOW], t)


@form_for(Sre, allows)
def _(budgets, tables, c, i, client, t, row):
    memory, settings = budgets.memory, tables.budgets[c, i]
    forget(memory, i, settings[B_WINDOW], t)
    retries = count(memory, client, i, RETRIES_MADE)
    allowed = below(retries, settings, count(memory, client, i, REQUESTS))
    if allowed:
        remember(memory, client, i, RETRIES_MADE, settings[B_WINDOW], t)
    return allowed


# Deposits and withdrawals -----------------------------------------------------------------------

_FINAGLE_PAST: Final = 9
_LINKERD_PAST: Final = 10


@inlined
def deposit(memory, tables, c, i, client, past, t):
    """Take the deposit of a request."""
    numbers = memory.numbers[client, i]
    turn_slices(numbers, tables.budgets[c, i, B_WINDOW], past, t)
    add_to_slice(numbers, past, tables.budgets[c, i, B_GAIN])


@inlined
def withdraw(memory, tables, c, i, client, past, t):
    """Take the cost of a retry out of the balance, if it is there."""
    numbers, settings = memory.numbers[client, i], tables.budgets[c, i]
    turn_slices(numbers, settings[B_WINDOW], past, t)
    allowed = numbers[SUM] + settings[B_RESERVE] >= settings[B_COST]
    if allowed:
        add_to_slice(numbers, past, -settings[B_COST])
    return allowed


@form_for(Finagle, begins)
def _(budgets, tables, c, i, client, t, retry):
    if not retry:
        deposit(budgets.memory, tables, c, i, client, _FINAGLE_PAST, t)


@form_for(Finagle, allows)
def _(budgets, tables, c, i, client, t, row):
    return withdraw(budgets.memory, tables, c, i, client, _FINAGLE_PAST, t)


@form_for(Linkerd, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    if outcome == OK:
        deposit(budgets.memory, tables, c, i, client, _LINKERD_PAST, t)


@form_for(Linkerd, allows)
def _(budgets, tables, c, i, client, t, row):
    return withdraw(budgets.memory, tables, c, i, client, _LINKERD_PAST, t)


# Tokens and quotas ------------------------------------------------------------------------------

_TOKENS: Final = 0
_PER_TOKEN: Final = 1000


@form_for(Grpc, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    numbers, settings = budgets.memory.numbers[client, i], tables.budgets[c, i]
    if outcome == OK:
        numbers[_TOKENS] = min(settings[B_MOST], numbers[_TOKENS] + settings[B_GAIN])
    elif outcome == FAILED:
        numbers[_TOKENS] = max(0, numbers[_TOKENS] - _PER_TOKEN)


@form_for(Grpc, allows)
def _(budgets, tables, c, i, client, t, row):
    return 2 * budgets.memory.numbers[client, i, _TOKENS] > tables.budgets[c, i, B_MOST]


@form_for(Aws, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    if outcome == OK:
        numbers, settings = budgets.memory.numbers[client, i], tables.budgets[c, i]
        back = settings[B_COST] if is_retry(tables, c, i, entry) else 1
        numbers[_TOKENS] = min(settings[B_MOST], numbers[_TOKENS] + back)


@form_for(Aws, allows)
def _(budgets, tables, c, i, client, t, row):
    numbers, cost = budgets.memory.numbers[client, i], tables.budgets[c, i, B_COST]
    allowed = cost <= numbers[_TOKENS]
    if allowed:
        numbers[_TOKENS] -= cost
    return allowed


# Retries at once --------------------------------------------------------------------------------

_AT_ONCE: Final = 0
_UNDER_WAY: Final = 1
_ACTIVE: Final = 2
_ROUND: Final = 3


@inlined
def enter(numbers, t):
    """Take the calls that are under way as active when a round begins."""
    if numbers[_ROUND] != t:
        numbers[_ROUND] = t
        numbers[_ACTIVE] = numbers[_UNDER_WAY]


@form_for(Envoy, announce)
def _(budgets, clients, tables, c, t, entry):
    client = client_of(clients, tables, c, entry)
    first = max(maker_of(tables, c, entry), tables.scalars[c, C_SEES])
    for i in range(first, tables.scalars[c, C_LAYERS]):
        numbers = budgets.memory.numbers[client, i]
        enter(numbers, t)
        numbers[_ACTIVE] += 1


@form_for(Envoy, begins)
def _(budgets, tables, c, i, client, t, retry):
    numbers = budgets.memory.numbers[client, i]
    enter(numbers, t)
    numbers[_UNDER_WAY] += 1


@form_for(Envoy, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    numbers = budgets.memory.numbers[client, i]
    enter(numbers, t)
    numbers[_UNDER_WAY] -= 1
    numbers[_AT_ONCE] -= np.int64(is_retry(tables, c, i, entry))


@form_for(Envoy, allows)
def _(budgets, tables, c, i, client, t, row):
    numbers, settings = budgets.memory.numbers[client, i], tables.budgets[c, i]
    enter(numbers, t)
    retries = numbers[_AT_ONCE]
    allowed = retries < settings[B_MOST] or at_most(retries + 1, settings, numbers[_ACTIVE])
    numbers[_AT_ONCE] += np.int64(allowed)
    return allowed


# Layers of different kinds ----------------------------------------------------------------------


@form_for(Mixed, announce)
def _(budgets, clients, tables, c, t, entry):
    client = client_of(clients, tables, c, entry)
    for i in range(maker_of(tables, c, entry), tables.scalars[c, C_LAYERS]):
        if tables.budgets[c, i, B_KIND] == ENVOY:
            numbers = budgets.memory.numbers[client, i]
            enter(numbers, t)
            numbers[_ACTIVE] += 1


@form_for(Mixed, rejects)
def _(budgets, draws, tables, c, i, client, t, entry):
    if tables.budgets[c, i, B_KIND] == SRE:
        return rejects(Sre(budgets.memory), draws, tables, c, i, client, t, entry)
    return False


@form_for(Mixed, begins)
def _(budgets, tables, c, i, client, t, retry):
    kind = tables.budgets[c, i, B_KIND]
    if kind == RATIO:
        begins(Ratio(budgets.memory), tables, c, i, client, t, retry)
    elif kind == SRE:
        begins(Sre(budgets.memory), tables, c, i, client, t, retry)
    elif kind == FINAGLE:
        begins(Finagle(budgets.memory), tables, c, i, client, t, retry)
    elif kind == ENVOY:
        begins(Envoy(budgets.memory), tables, c, i, client, t, retry)


@form_for(Mixed, ends)
def _(budgets, tables, c, i, client, t, entry, outcome):
    kind = tables.budgets[c, i, B_KIND]
    if kind == SRE:
        ends(Sre(budgets.memory), tables, c, i, client, t, entry, outcome)
    elif kind == LINKERD:
        ends(Linkerd(budgets.memory), tables, c, i, client, t, entry, outcome)
    elif kind == GRPC:
        ends(Grpc(budgets.memory), tables, c, i, client, t, entry, outcome)
    elif kind == AWS:
        ends(Aws(budgets.memory), tables, c, i, client, t, entry, outcome)
    elif kind == ENVOY:
        ends(Envoy(budgets.memory), tables, c, i, client, t, entry, outcome)


@form_for(Mixed, allows)
def _(budgets, tables, c, i, client, t, row):
    kind = tables.budgets[c, i, B_KIND]
    if kind == RATIO:
        return allows(Ratio(budgets.memory), tables, c, i, client, t, row)
    if kind == SRE:
        return allows(Sre(budgets.memory), tables, c, i, client, t, row)
    if kind == FINAGLE:
        return allows(Finagle(budgets.memory), tables, c, i, client, t, row)
    if kind == LINKERD:
        return allows(Linkerd(budgets.memory), tables, c, i, client, t, row)
    if kind == GRPC:
        return allows(Grpc(budgets.memory), tables, c, i, client, t, row)
    if kind == AWS:
        return allows(Aws(budgets.memory), tables, c, i, client, t, row)
    return allows(Envoy(budgets.memory), tables, c, i, client, t, row)
