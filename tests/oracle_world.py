"""The world in plain Python, slow and readable: what every number of the package means.

Nothing here is imported from `mc` or shared with it; chance enters through functions (`Draws`), so
the same loop is driven by Philox words, by the lesson's single stream, or by a script in a test.
`World` holds the parameters, each with its meaning and with what was decided where the model's
description leaves it open. `simulate` runs one replication. `oracle_waits` says how long a layer
waits, `oracle_budgets` what budgets and breakers do, `oracle_draws` which draw decides what.

A round t, in this order
------------------------
1. New requests arrive.
2. The calls of the round are the retries due at t, in the order in which they were scheduled, then
   the first calls of the new requests in order of arrival. Each passes down the chain: budgets
   may reject it, then the breaker. What passes reaches the dependency.
3. The dependency serves the first `capacity` calls that reach it; a served call fails with the
   failure rate of the round. All others fail at once, or wait where there is a queue.
4. Decisions: a success ends its request; after a failure the chain decides (`Replication.failed`).
   Without a queue each call of step 2 passes, is served and is decided before the next one
   passes. With a queue all calls pass first; then the decisions follow: calls that failed at once
   (rejected or refused) in the order of step 2, served calls in the order of the queue, and
   calls that ran out of time, oldest first.

The chain
---------
Layers are numbered from 0, the outermost. A layer makes `tries[layer]` attempts at each call that
it receives, and each of its attempts is a call that the next layer receives. So the calls of
a request have running numbers n in mixed radix, with one digit for each layer, the innermost
layer's last: ``n = (d[0] * tries[1] + d[1]) * tries[2] + d[2]``. `stride[layer]`, the product of
the tries of the layers inside, is the value of its digit. A retry of a layer raises its digit by 1
and sets those inside to 0: ``n = (n // stride + 1) * stride``. Where layers gave up before their
attempts were used up, n jumps over the numbers that never run. The wait before call n is drawn by
number n - 1, so two layers that consider a retry after the same failure use different draws, and
with no layer giving up early it is the number of the call that failed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from oracle_budgets import (
    FAILED,
    GIVEN_UP,
    OK,
    Breaker,
    BreakerKind,
    Budget,
    BudgetKind,
    Outcome,
    Ratio,
)
from oracle_units import Rate, Share, Time, exact, in_rounds, per_round, share, whole_rounds
from oracle_waits import Backoff, Formula, Jitter, wait

# Parameters --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A time in which the dependency serves less, or fails more.

    Attributes
    ----------
    start, length : time
        First round and number of rounds; whole numbers of rounds.
    capacity : rate
        Calls served in a round.
    failure_rate : float or None
        Chance that a served call fails; None: the usual one.
    capacity_end : rate or None
        The capacity goes to this one along a straight line over the whole length: C(x) calls
        are served in the first x rounds, C the integral of the line, so round k of the fault
        serves ``floor(C(k + 1)) - floor(C(k))``. None: it stays.
    """

    start: Time
    length: Time
    capacity: Rate = 0
    failure_rate: Share | None = None
    capacity_end: Rate | None = None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Requests other than a constant Poisson stream.

    Attributes
    ----------
    rates : tuple of (time, rate)
        Mean of the Poisson arrivals, straight between the points, constant before the first and
        after the last; two points at one time make a step. Points lie at whole rounds and do not
        go back in time. The mean of a round is that of its middle, which is its integral.
    counts : tuple of int or float
        Requests of each step of `per`, from round 0; nothing arrives after the last step. Over
        the m rounds of a step they are spread evenly: its round k has
        ``floor((k + 1) n / m) - floor(k n / m)`` of n.
    per : time
        Length of a step, a whole number of rounds.
    noise : {"poisson"} or None
        `poisson`: the counts are means, of which each round has the m-th part, and may be
        fractional.
    bursts : tuple of (time, int)
        At a round, so many requests beside the others.
    workers : int
        A closed loop: each makes its first request in round 0, and after one that ended in round t
        the next in round t + 1 + `think`. A request ends when it succeeds or is dropped.
    think : time
        Whole number of rounds.
    """

    rates: tuple[tuple[Time, Rate], ...] = ()
    counts: tuple[float, ...] = ()
    per: Time = "1 s"
    noise: Literal["poisson"] | None = None
    bursts: tuple[tuple[Time, int], ...] = ()
    workers: int = 0
    think: Time = 0


PerLayer = tuple[Any, ...]
"""One value for each layer, the outermost first."""


@dataclass(frozen=True, kw_only=True)
class World:
    """One cell of the world; the defaults are the lesson's.

    Attributes
    ----------
    rounds : int
        Length of the run. Retries due later never run: their requests are in flight at the end.
    rounds_per_second : float
        For times and rates with units, and for the seconds of `recovery`.
    arrivals_per_second : float or None
        Mean of the Poisson arrivals. None: 97.22, or 0 where `traffic` has rates, counts or
        workers. With rates or counts only None or 0 is possible; beside workers or bursts it adds
        to them.
    traffic : Traffic or None
        Other arrivals. Within a round the open traffic comes first, then bursts, then workers, and
        requests are numbered j = 0, 1, ... in that order; so what stands beside the open traffic
        does not change its luck.
    capacity : rate
        Calls served in a round. If it is fractional, round k of a phase (before the fault, each
        fault, between, after) serves ``floor((k + 1) c) - floor(k c)``, c the decimal that was
        written.
    failure_rate : float
        Chance that a served call fails.
    fault_start, fault_rounds, fault_capacity, fault_failure_rate
        One fault without a ramp; `fault_rounds` of 0: none.
    faults : tuple of Fault
        Any number, in order of time, not overlapping. Numbers of the fault window are of the
        first start to the last end.
    queue : int
        Calls that may wait at the end of a round; 0: all that are not served fail at once. A call
        joins if fewer than `queue` + capacity of the round stand there, so with a queue of 0 it
        would be the same. Calls in vain take room like others.
    timeout : time or None
        A call that has waited so many rounds, the one in which it came included, fails for its
        caller. None: callers wait as long as it takes.
    cancel : bool
        Whether a call that its caller gave up, for a time-out or a deadline, leaves the queue. If
        not it is served in its turn, in vain; no failure is drawn for it, and nobody hears of it.
    tries : tuple of int
        Attempts of each layer, the first included, the outermost layer first.
    chain : {"nested", "flattened"}
        `nested`: each layer knows its own calls only. `flattened`: one layer with the product of
        the tries; then every list of one value for each layer has one.
    backoff_base, backoff_factor, backoff_cap : time (factor: float), or one for each layer
        See `oracle_waits.Backoff`.
    jitter, jitter_share, first_wait
        The same for all layers; see `oracle_waits`.
    deadline : time, None, or one for each layer
        A number is the request's, from its arrival: the same as that number for the outermost layer
        alone. A layer's time runs from the round in which the first call of what it received ran.
        A retry that would run later than the deadline of its layer, or of a layer outside, is not
        scheduled: the outermost layer whose time would be over gives up what it received at the
        time of the decision, and its caller decides; the layers between decide nothing. That comes
        before the budget, which hears nothing of such a retry. A call that waits in the queue is
        given up at the end of the round t in which t + 1 is past a deadline, in the same way, and
        before a time-out of the same round. Each giving up is one `expired`.
    budget : float, a kind of `oracle_budgets`, None, or one for each layer
        A number is `Ratio` with it. A list needs the scope `layer`.
    budget_scope : {"chain", "layer"}
        `chain`: one budget before the dependency, asked by whichever layer wants to retry. Its
        primary calls are the first calls of requests, its retries all others, and it sees every
        failed call once. `layer`: each layer asks a budget of its own, whose primary calls are the
        calls that the layer receives; it sees what the layer's own calls came to. Each refusal
        is one `denied`: a chain's budget may refuse several layers after one failure.
    breaker : a kind of `oracle_budgets` or None
        Between the innermost layer and the dependency, one for each client. A refused or timed-out
        call is a failure to it, and so is one that a deadline ended while it waited.
    clients : int
        Each request belongs to one of so many clients, evenly; budgets and breakers are a client's.
    threshold : int
        A success that took more rounds counts as late.
    """

    rounds: int = 4000
    rounds_per_second: float = 100.0
    arrivals_per_second: float | None = None
    traffic: Traffic | None = None
    capacity: Rate = 6
    failure_rate: Share = 0.0
    fault_start: Time = 500
    fault_rounds: Time = 0
    fault_capacity: Rate = 0
    fault_failure_rate: Share | None = None
    faults: tuple[Fault, ...] = ()
    queue: int = 0
    timeout: Time | None = None
    cancel: bool = False
    tries: tuple[int, ...] = (1,)
    chain: Literal["nested", "flattened"] = "nested"
    backoff_base: Time | PerLayer = 2.0
    backoff_factor: float | PerLayer = 2.0
    backoff_cap: Time | PerLayer = 32.0
    jitter: Jitter = "full"
    jitter_share: Share = 0.2
    first_wait: Time | None = None
    deadline: Time | PerLayer | None = None
    budget: float | BudgetKind | PerLayer | None = None
    budget_scope: Literal["chain", "layer"] = "chain"
    breaker: BreakerKind | None = None
    clients: int = 1
    threshold: int = 20

    def parameters(self) -> dict[str, Any]:
        """Return what differs from the defaults, as an experiment file would say it."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        written = asdict(self)
        return {f.name: written[f.name] for f in fields(self) if chosen[f.name] != f.default}

    def rounds_of(self, time: Time) -> int:
        """Return a time in whole rounds."""
        return whole_rounds(time, self.rounds_per_second)

    @property
    def all_faults(self) -> tuple[Fault, ...]:
        """The faults, however they are given."""
        one = Fault(
            start=self.fault_start,
            length=self.fault_rounds,
            capacity=self.fault_capacity,
            failure_rate=self.fault_failure_rate,
        )
        return self.faults or ((one,) if self.rounds_of(self.fault_rounds) else ())

    @property
    def window(self) -> tuple[int, int]:
        """First round of the first fault, and the round after the last; (0, 0) without a fault."""
        if not self.all_faults:
            return 0, 0
        first, last = self.all_faults[0], self.all_faults[-1]
        return self.rounds_of(first.start), self.rounds_of(last.start) + self.rounds_of(last.length)


# What a round brings, as lists ------------------------------------------------------------------


class Service(NamedTuple):
    """What the dependency does in one round: calls served, and the chance that one fails."""

    capacity: int
    failure_rate: Fraction


def services(world: World) -> list[Service]:
    """Return the service of each round.

    A phase has served, after its first x rounds, the whole part of the integral of its capacity.
    """
    rps = world.rounds_per_second
    usual = per_round(world.capacity, rps)
    usual_rate = _double(world.failure_rate)
    table: list[Service] = []

    def phase(end: int, capacity: Fraction, rise: Fraction, failure_rate: Fraction) -> None:
        x = range(min(end, world.rounds) - len(table) + 1)
        if rise == 0:  # the same in integers, which are faster
            served = [i * capacity.numerator // capacity.denominator for i in x]
        else:
            served = [math.floor(capacity * i + rise * i * i / 2) for i in x]
        table.extend(Service(after - before, failure_rate) for before, after in pairwise(served))

    for fault in world.all_faults:
        start, length = world.rounds_of(fault.start), world.rounds_of(fault.length)
        capacity = per_round(fault.capacity, rps)
        rise = Fraction(0)
        if fault.capacity_end is not None:
            rise = (per_round(fault.capacity_end, rps) - capacity) / length
        rate = usual_rate if fault.failure_rate is None else _double(fault.failure_rate)
        phase(start, usual, Fraction(0), usual_rate)
        phase(start + length, capacity, rise, rate)
    phase(world.rounds, usual, Fraction(0), usual_rate)
    return table


def _double(part: Share) -> Fraction:
    """Return a failure rate as the lesson takes it: the nearest double."""
    return Fraction(float(share(part)))


class Open(NamedTuple):
    """The open traffic of a round: requests that are known, beside a Poisson mean of others."""

    known: int
    mean: float


def open_traffic(world: World) -> list[Open]:
    """Return the open traffic of each round, bursts not included.

    A mean is the double nearest to its exact value; the constant one is, as in the lesson, the
    quotient of two doubles.
    """
    traffic = world.traffic or Traffic()
    if traffic.rates:
        rps = world.rounds_per_second
        points = [(world.rounds_of(time), per_round(rate, rps)) for time, rate in traffic.rates]
        return [Open(0, float(_mean_in(points, t))) for t in range(world.rounds)]
    if traffic.counts:
        m = world.rounds_of(traffic.per)
        counts = [exact(n) for n in traffic.counts]
        if traffic.noise == "poisson":
            table = [Open(0, float(n / m)) for n in counts for _ in range(m)]
        else:
            table = [
                Open(math.floor((k + 1) * n / m) - math.floor(k * n / m), 0.0)
                for n in counts
                for k in range(m)
            ]
        return [*table, *[Open(0, 0.0)] * world.rounds][: world.rounds]
    per_second = world.arrivals_per_second
    if per_second is None:
        per_second = 0.0 if traffic.workers else 97.22
    return [Open(0, per_second / world.rounds_per_second)] * world.rounds


def _mean_in(points: list[tuple[int, Fraction]], t: int) -> Fraction:
    middle = t + Fraction(1, 2)
    after = sum(time < middle for time, _ in points)
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[after - 1 : after + 1]
    return low + (high - low) * (middle - left) / (right - left)


def bursts(world: World) -> dict[int, int]:
    """Return how many requests come at once in which round."""
    at: dict[int, int] = {}
    for time, count in world.traffic.bursts if world.traffic else ():
        t = world.rounds_of(time)
        at[t] = at.get(t, 0) + count
    return at


# The chain, and what a request and a client carry -----------------------------------------------


class Layer(NamedTuple):
    """One layer of the chain: its attempts, the value of its digit, its waits, its deadline."""

    tries: int
    stride: int
    backoff: Backoff
    deadline: int | None

    def digit(self, n: int) -> int:
        """Return the layer's own attempt number in call number n of a request."""
        return n // self.stride % self.tries

    def makes(self, n: int) -> bool:
        """Say whether the layer itself makes call n: it is no retry of a layer inside."""
        return n % self.stride == 0

    def receives(self, n: int) -> bool:
        """Say whether call n is the first of something that the layer received."""
        return n % (self.stride * self.tries) == 0

    def next(self, n: int) -> int:
        """Return the number of the call that is the layer's retry after call n."""
        return (n // self.stride + 1) * self.stride


def chain(world: World) -> list[Layer]:
    """Return the layers, the outermost first."""
    tries = world.tries if world.chain == "nested" else (math.prod(world.tries),)
    rps = world.rounds_per_second

    def each(value: Any) -> PerLayer:
        values = value if isinstance(value, tuple) else (value,) * len(tries)
        if len(values) != len(tries):
            raise ValueError(f"one value for each of {len(tries)} layers is needed, got {values}")
        return values

    bases, factors = each(world.backoff_base), each(world.backoff_factor)
    caps = each(world.backoff_cap)
    deadline = world.deadline
    if not isinstance(deadline, tuple):  # the request's
        deadline = (deadline, *[None] * (len(tries) - 1))
    first_wait = None if world.first_wait is None else in_rounds(world.first_wait, rps)
    return [
        Layer(
            tries=tries[i],
            stride=math.prod(tries[i + 1 :]),
            backoff=Backoff(
                base=float(in_rounds(bases[i], rps)),
                factor=factors[i],
                cap=float(in_rounds(caps[i], rps)),
                jitter=world.jitter,
                share=share(world.jitter_share),
                first_wait=first_wait,
            ),
            deadline=None if limit is None else world.rounds_of(limit),
        )
        for i, limit in enumerate(each(deadline))
    ]


@dataclass(slots=True)
class Request:
    """A request on its way.

    Attributes
    ----------
    arrival, j : int
        Its name: the round of its arrival, and its number among those of that round.
    client, by_worker
        Whose it is; whether a worker waits for it.
    attempt : int
        Number of the call that is made, or due, or waits.
    started : list of int
        For each layer, the round in which what it works on began.
    memory : list of int
        For each layer, what its next wait needs to know of the one before (`oracle_waits`).
    generation : int
        The breaker's, in which the present call passed it.
    """

    arrival: int
    j: int
    client: Client
    by_worker: bool
    started: list[int]
    memory: list[int]
    attempt: int = 0
    generation: int = 0


class Client:
    """What a client owns: its budgets and its breaker.

    Attributes
    ----------
    sees : list of Budget
        The budget that sees the calls of each layer. That of a chain stands at the innermost layer.
    asked : list of Budget
        The budget that each layer asks.
    breaker : Breaker or None
    """

    def __init__(self, world: World, n_layers: int) -> None:
        def start(kind: float | BudgetKind | None) -> Budget:
            if kind is None:
                return Budget()
            if isinstance(kind, int | float):
                kind = Ratio(ratio=kind)
            return kind.start(world.rounds_per_second)

        if world.budget_scope == "chain":
            if isinstance(world.budget, tuple):
                raise ValueError("a budget for each layer needs budget_scope 'layer'")
            budget = start(world.budget)
            self.asked = [budget] * n_layers
            self.sees = [*[Budget()] * (n_layers - 1), budget]
        else:
            kinds = world.budget if isinstance(world.budget, tuple) else (world.budget,) * n_layers
            self.asked = self.sees = [start(kind) for kind in kinds]
        self.breaker: Breaker | None = (
            None if world.breaker is None else world.breaker.start(world.rounds_per_second)
        )


@dataclass(slots=True)
class Waiting:
    """A call in the queue: whose it is (None: nobody waits for it any more), and since when."""

    request: Request | None
    since: int


# Chance -----------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One try: the request's arrival round, its index j in that round, and the attempt from 0."""

    arrival: int
    j: int
    attempt: int


@dataclass(frozen=True)
class Draws:
    """Everything that the world leaves to chance.

    Attributes
    ----------
    arrivals : callable (t, mean) -> int
        Poisson arrivals of round t; asked once in every round, in order.
    fails : callable (call, rate) -> bool
        Whether a served call fails, with probability `rate`; asked of every served call.
    delay : callable (call, formula) -> int
        Ticks from a failed call to the next, `formula` of the word that is drawn. Its attempt is
        the one before that of the retry. Without deadlines it is asked only for retries that will
        happen.
    client : callable (call, clients) -> int
        The client, from 0, of a request (attempt 0); asked where there are more than one.
    throttled : callable (call, layer, chance) -> bool
        Whether a call is rejected at a layer (0 for a chain's budget), with probability
        `chance` > 0.
    """

    arrivals: Callable[[int, float], int]
    fails: Callable[[Call, Fraction], bool]
    delay: Callable[[Call, Formula], int]
    client: Callable[[Call, int], int]
    throttled: Callable[[Call, int, Fraction], bool]


# One replication --------------------------------------------------------------------------------

Row = dict[str, int | None]


@dataclass
class Counts:
    """What is counted while the rounds go by; the names are those of the row's columns.

    Lists have one entry for each round, or for each layer (`calls_of_layer`).
    """

    requests_in: list[int] = field(default_factory=list)
    calls_in: list[int] = field(default_factory=list)  # that reach the dependency
    successes_in: list[int] = field(default_factory=list)
    pending_at: list[int] = field(default_factory=list)  # retries, at the beginning of the round
    calls_of_layer: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # of each success
    primary: int = 0
    retries: int = 0
    dropped: int = 0
    window_dropped: int = 0
    denied: int = 0
    expired: int = 0
    rejected: int = 0
    refused: int = 0
    timed_out: int = 0
    wasted: int = 0
    queue_peak: int = 0


def simulate(world: World, draws: Draws) -> Row:
    """Run one replication.

    Parameters
    ----------
    world : World
        The cell.
    draws : Draws
        The generator.

    Returns
    -------
    dict of str to int or None
        The columns of a row, see `row`.
    """
    return row(world, Replication(world, draws).run())


class Replication:
    """One run of the world: what is scheduled and what waits, and the counts so far."""

    def __init__(self, world: World, draws: Draws) -> None:
        self.world = world
        self.draws = draws
        self.layers = chain(world)
        self.innermost = len(self.layers) - 1
        self.has_deadlines = any(layer.deadline is not None for layer in self.layers)
        self.timeout = math.inf if world.timeout is None else world.rounds_of(world.timeout)
        self.think = world.rounds_of(world.traffic.think) if world.traffic else 0
        self.window = world.window

        self.clients: dict[int, Client] = {}
        self.due: dict[int, list[Request]] = {}  # retries of each round, as they were scheduled
        self.n_scheduled = 0  # those that have not run, however late they are due
        self.queue: deque[Waiting] = deque()
        self.waiting: list[Waiting] = []  # those of the queue for which somebody waits, in order
        self.starting: dict[int, int] = {}  # workers that make a request in each round
        self.counts = Counts(calls_of_layer=[0] * len(self.layers))

    def run(self) -> Counts:
        """Go through the rounds."""
        world, counts = self.world, self.counts
        opens, burst = open_traffic(world), bursts(world)
        self.starting[0] = world.traffic.workers if world.traffic else 0
        for t, service in enumerate(services(world)):
            counts.pending_at.append(self.n_pending())
            n_open = opens[t].known + self.draws.arrivals(t, opens[t].mean)
            new = self.arrivals(t, n_open + burst.get(t, 0), self.starting.pop(t, 0))
            counts.requests_in.append(len(new))
            counts.calls_in.append(0)
            counts.successes_in.append(0)
            calls = [*self.due.pop(t, []), *new]
            self.n_scheduled -= len(calls) - len(new)
            if world.budget is not None:
                for request in calls:
                    self.announce(request, t)
            if world.queue == 0:
                self.serve_at_once(t, calls, service)
            else:
                self.serve_from_queue(t, calls, service)
        counts.pending_at.append(self.n_pending())
        return counts

    def n_pending(self) -> int:
        """Retries that are scheduled, or wait in the queue for somebody."""
        waits = sum(w.request is not None and w.request.attempt > 0 for w in self.waiting)
        return self.n_scheduled + waits

    # Step 1 --------------------------------------------------------------------------------------

    def arrivals(self, t: int, n_others: int, n_workers: int) -> list[Request]:
        """Return the new requests of a round; those of workers come last."""
        nothing = [0] * len(self.layers)
        return [
            Request(t, j, self.client(t, j), j >= n_others, nothing.copy(), nothing.copy())
            for j in range(n_others + n_workers)
        ]

    def client(self, t: int, j: int) -> Client:
        """Return the client to whom request (t, j) belongs."""
        clients = self.world.clients
        number = self.draws.client(Call(t, j, 0), clients) if clients > 1 else 0
        if number not in self.clients:
            self.clients[number] = Client(self.world, len(self.layers))
        return self.clients[number]

    # Steps 2 to 4 --------------------------------------------------------------------------------

    def serve_at_once(self, t: int, calls: list[Request], service: Service) -> None:
        """Play a round without a queue: call by call."""
        room = service.capacity
        for request in calls:
            stopped_at = self.passes(request, t)
            if stopped_at is not None:
                self.failed(request, t, stopped_at)
                continue
            served, room = room > 0, max(room - 1, 0)
            self.answered(request, t, served and not self.fails(request, service))

    def serve_from_queue(self, t: int, calls: list[Request], service: Service) -> None:
        """Play a round with a queue: first all calls join, then everything is decided."""
        failed_at_once: list[tuple[Request, int | None]] = []
        for request in calls:
            stopped_at = self.passes(request, t)
            if stopped_at is not None:
                failed_at_once.append((request, stopped_at))
            elif len(self.queue) >= self.world.queue + service.capacity:
                self.counts.refused += 1
                failed_at_once.append((request, None))
            else:
                self.queue.append(Waiting(request, t))
                self.waiting.append(self.queue[-1])
        self.counts.queue_peak = max(self.counts.queue_peak, len(self.queue))
        n_served = min(service.capacity, len(self.queue))
        served = [self.queue.popleft() for _ in range(n_served)]

        for request, stopped_at in failed_at_once:
            if stopped_at is None:
                self.answered(request, t, False)
            else:
                self.failed(request, t, stopped_at)
        for waiting in served:
            if waiting.request is None:
                self.counts.wasted += 1
            else:
                request, waiting.request = waiting.request, None
                self.answered(request, t, not self.fails(request, service))
        self.run_out_of_time(t)
        self.waiting = [waiting for waiting in self.waiting if waiting.request is not None]
        if self.world.cancel:
            self.queue = deque(self.waiting)

    def run_out_of_time(self, t: int) -> None:
        """End of a round: callers give up calls that waited too long, the oldest first."""
        for waiting in self.waiting:
            request = waiting.request
            if request is None:
                continue
            over = self.out_of_time(request, t + 1, self.innermost) if self.has_deadlines else None
            if over is None and t + 1 - waiting.since < self.timeout:
                continue
            waiting.request = None
            if over is None:
                self.counts.timed_out += 1
                self.answered(request, t, False)
            else:
                self.tell_breaker(request, t, False)
                self.gives_up(request, t, over, self.innermost)
                self.failed(request, t, over - 1)

    def announce(self, request: Request, t: int) -> None:
        """Tell the budgets that this call is one of the round."""
        for layer, budget in zip(self.layers, request.client.sees, strict=True):
            if layer.makes(request.attempt):
                budget.announce(t)

    def passes(self, request: Request, t: int) -> int | None:
        """Send a call down the chain; the layer where it is rejected, None if it gets through.

        A call counts for every layer that makes it (`calls_1`, ...), unless it is rejected there.
        """
        client, n = request.client, request.attempt
        for i, layer in enumerate(self.layers):
            if not layer.makes(n):
                continue
            if layer.receives(n):
                request.started[i] = t
                request.memory[i] = layer.backoff.first_memory
            budget = client.sees[i]
            chance = budget.rejection(t)
            budget.begins(t, self.is_retry(i, n))
            if chance and self.throttled(request, i, chance):
                self.counts.rejected += 1
                return i
            if i == self.innermost and client.breaker is not None:
                if not client.breaker.permits(t):
                    self.counts.rejected += 1
                    return i
                request.generation = client.breaker.generation
            self.counts.calls_of_layer[i] += 1
        self.counts.calls_in[-1] += 1
        if n == 0:
            self.counts.primary += 1
        else:
            self.counts.retries += 1
        return None

    def is_retry(self, i: int, n: int) -> bool:
        """Say whether call n is a retry to the budget that sees the calls of layer i."""
        return n > 0 if self.world.budget_scope == "chain" else self.layers[i].digit(n) > 0

    def fails(self, request: Request, service: Service) -> bool:
        """Draw whether a served call fails."""
        call = Call(request.arrival, request.j, request.attempt)
        return self.draws.fails(call, service.failure_rate)

    def throttled(self, request: Request, i: int, chance: Fraction) -> bool:
        """Draw whether a call is rejected by the budget at layer i."""
        call = Call(request.arrival, request.j, request.attempt)
        return self.draws.throttled(call, 0 if self.world.budget_scope == "chain" else i, chance)

    def tell_breaker(self, request: Request, t: int, ok: bool) -> None:
        """Tell the breaker what became of a call that passed it."""
        if request.client.breaker is not None:
            request.client.breaker.records(t, ok, request.generation)

    # What follows an outcome ---------------------------------------------------------------------

    def answered(self, request: Request, t: int, ok: bool) -> None:
        """Take the outcome of a call that reached the dependency."""
        self.tell_breaker(request, t, ok)
        if not ok:
            self.failed(request, t, self.innermost)
            return
        for i in reversed(range(len(self.layers))):
            self.tell_budget(request, t, i, OK)
        self.counts.successes_in[-1] += 1
        self.counts.waits.append(t - request.arrival)
        self.ended(request, t)

    def failed(self, request: Request, t: int, i: int) -> None:
        """Let layer i decide after its call has failed, and then those outside; -1 has none."""
        while i >= 0:
            layer = self.layers[i]
            self.tell_budget(request, t, i, FAILED)
            if layer.digit(request.attempt) + 1 < layer.tries:
                waited = None
                if self.has_deadlines:
                    waited = self.wait(request, i)
                    over = self.out_of_time(request, t + waited[0], i)
                    if over is not None:
                        self.gives_up(request, t, over, i - 1)
                        i = over - 1
                        continue
                if request.client.asked[i].allows(t):
                    self.schedule(request, t, i, waited or self.wait(request, i))
                    return
                self.counts.denied += 1
            i -= 1
        self.counts.dropped += 1
        self.counts.window_dropped += self.window[0] <= request.arrival < self.window[1]
        self.ended(request, t)

    def wait(self, request: Request, i: int) -> tuple[int, int]:
        """Return the rounds until layer i would retry, and its memory then."""
        layer = self.layers[i]
        drawn_by = Call(request.arrival, request.j, layer.next(request.attempt) - 1)
        return wait(
            layer.backoff,
            layer.digit(request.attempt),
            request.memory[i],
            lambda formula: self.draws.delay(drawn_by, formula),
        )

    def schedule(self, request: Request, t: int, i: int, waited: tuple[int, int]) -> None:
        """Let layer i retry."""
        rounds, request.memory[i] = waited
        request.attempt = self.layers[i].next(request.attempt)
        self.due.setdefault(t + rounds, []).append(request)
        self.n_scheduled += 1

    def out_of_time(self, request: Request, t: int, i: int) -> int | None:
        """Return the outermost layer, down to i, whose time is over in round t, or None."""
        for outer, layer in enumerate(self.layers[: i + 1]):
            if layer.deadline is not None and t - request.started[outer] > layer.deadline:
                return outer
        return None

    def gives_up(self, request: Request, t: int, i: int, innermost: int) -> None:
        """Layer i's time is over: its own call and those inside, down to `innermost`, end."""
        self.counts.expired += 1
        for inner in range(innermost, i - 1, -1):
            self.tell_budget(request, t, inner, GIVEN_UP)

    def tell_budget(self, request: Request, t: int, i: int, outcome: Outcome) -> None:
        """Tell the budget that sees the calls of layer i how the present one ended."""
        request.client.sees[i].ends(t, self.is_retry(i, request.attempt), outcome)

    def ended(self, request: Request, t: int) -> None:
        """Let the worker of a request that ended think and start over."""
        if request.by_worker:
            next_one = t + 1 + self.think
            self.starting[next_one] = self.starting.get(next_one, 0) + 1


# What a row says --------------------------------------------------------------------------------


def row(world: World, counts: Counts) -> Row:
    """Return the columns of a row.

    `calls` and all numbers made of calls (`primary`, `retries`, `peak`, `window_calls`,
    `second_peak`, and the last `calls_l`) count calls that reach the dependency, refused ones
    included and `rejected` ones not. `drain` is the time from the end of the last fault until a
    round begins with no retry scheduled or waiting. It and `second_peak` are None where the run
    knows no time after a fault, `drain` also where retries are pending to the end.
    """
    start, end = world.window
    window = slice(start, end)
    has_after = start < end < world.rounds
    calm = [d for d, n in enumerate(counts.pending_at[end:]) if n == 0]
    n_requests, n_successful = sum(counts.requests_in), len(counts.waits)
    recovery, recovered = _recovery(world, counts) if has_after else (None, None)
    return {
        "requests": n_requests,
        "window_requests": sum(counts.requests_in[window]),
        "calls": sum(counts.calls_in),
        "primary": counts.primary,
        "retries": counts.retries,
        "successful": n_successful,
        "dropped": counts.dropped,
        "in_flight": n_requests - n_successful - counts.dropped,
        "peak": max(counts.calls_in),
        "window_calls": sum(counts.calls_in[window]),
        "second_peak": max(counts.calls_in[end:]) if has_after else None,
        "wait_total": sum(counts.waits),
        "wait_max": max(counts.waits, default=0),
        "late": sum(waited > world.threshold for waited in counts.waits),
        "drain": calm[0] if has_after and calm else None,
        "window_dropped": counts.window_dropped,
        "denied": counts.denied,
        "expired": counts.expired,
        "rejected": counts.rejected,
        "refused": counts.refused,
        "timed_out": counts.timed_out,
        "wasted": counts.wasted,
        "queue_peak": counts.queue_peak,
        "recovery": recovery,
        "recovered": recovered,
        **{f"calls_{i}": calls for i, calls in enumerate(counts.calls_of_layer, start=1)},
    }


ENOUGH: Final = Fraction(9, 10)
"""A second is bad if less than this part of it succeeds."""

CALM_SECONDS: Final = 5
"""So many seconds at the end of the run must not be bad if it has recovered."""


def _recovery(world: World, counts: Counts) -> tuple[int | None, int | None]:
    """Return `recovery` and `recovered` of a run that goes on after its last fault.

    Second k has the rounds from ``ceil(k * rounds_per_second)`` on to before the next one's first.
    Only whole seconds are judged: those that begin at the end of the last fault or later and are
    over when the run is. What must succeed in one is a part of what arrives in it; in a closed
    loop, whose arrivals follow its successes, a part of the mean of the seconds that are over
    before the first fault begins. Both are None where there is no second to judge, or none before
    the fault to compare with; `recovery` is None where the run has not recovered.
    """
    start, end = world.window
    per_second = exact(world.rounds_per_second)
    n_seconds = math.floor(world.rounds / per_second)
    firsts = [math.ceil(k * per_second) for k in range(n_seconds + 1)]
    seconds = [(a, b) for a, b in pairwise(firsts) if a < b]
    calm_before = [(a, b) for a, b in seconds if b <= start]
    after = [(a, b) for a, b in seconds if a >= end]
    closed = world.traffic is not None and world.traffic.workers > 0
    if not after or (closed and not calm_before):
        return None, None

    def succeeded(a: int, b: int) -> int:
        return sum(counts.successes_in[a:b])

    def expected(a: int, b: int) -> Fraction:
        if closed:
            usual = sum(succeeded(*second) for second in calm_before)
            return Fraction(usual, len(calm_before))
        return Fraction(sum(counts.requests_in[a:b]))

    bad = [b for a, b in after if succeeded(a, b) < ENOUGH * expected(a, b)]
    if not bad:
        return 0, 1
    if bad[-1] in [b for _, b in seconds[-CALM_SECONDS:]]:
        return None, 0
    return bad[-1] - end, 1
