"""What `ask` prints: sentences about the present policy and the alternatives to it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl
from rich.text import Text

from mc.cli.screen import WIDTH, next_steps, scorecard_lines
from mc.decisions.alternatives import (
    AS_GOOD,
    FAILURES,
    LATE,
    LOAD,
    WORTH_HALF,
    Alternative,
    Change,
    alternatives,
    fewest_failures,
    mean_of,
    present_of,
    recommended,
)
from mc.decisions.scorecard import ALIKE_SHARE, score_of
from mc.experiment import cells_of
from mc.experiment.question import CALM_LOSS, Fault, Question, shape
from mc.model import digits
from mc.model.units import format_time
from mc.reports.curves import STORM_DATA
from mc.statistics import intervals
from mc.store import Results


def answer(
    question: Question,
    results: Results,
    storm: Mapping[str, pl.DataFrame],
    file: Path,
    width: int,
) -> Iterator[Text]:
    """Yield the lines of the answer: what it is to the question, the scorecard, what to do next.

    `storm`: calls over time, see `mc.reports.storm_of`.
    """

    def wrapped(text: str, indent: str = "") -> Iterator[Text]:
        for line in textwrap.wrap(text, min(width, WIDTH), subsequent_indent=indent):
            yield Text(line)

    of_cells = {line["cell"]: line for line in storm[STORM_DATA].unique("cell").to_dicts()}
    cells = cells_of(results.cells)
    # the calls of the worst second, over what the dependency usually serves in one
    peaks = {
        number: line["worst_second"] / (cells[number].capacity * cells[number].rounds_per_second)
        for number, line in of_cells.items()
    }
    yield from wrapped(_told(question, results))
    for part in (*_calm(results, of_cells), _present(question, results, peaks)):
        yield Text("")
        yield from wrapped(part)
    found = alternatives(results)
    best = recommended(results, found)
    yield Text("")
    yield from wrapped(_advice(best, fewest_failures(results, found), results, peaks))
    for verdict, heading in (("better", "Surely better:"), ("trade", "A gain at a price:")):
        some = [one for one in found if one.verdict == verdict and one is not best]
        if some:
            yield Text("")
            yield Text(heading, "bold")
            for one in some:
                yield from wrapped(f"  {one.policy}: {_changes(one, results, peaks)}.", "    ")
    rest = [one for one in found if one.verdict in ("alike", "worse")]
    if rest:
        names = "; ".join(one.policy for one in rest)
        yield Text("")
        yield from wrapped(f"Not surely better: {names}.")
    # where nobody times out only the breaker keeps a run from coming back, and its line says so
    without = ("recovered", "recovery", "drain") if question.timeout is None else ("recovery",)
    # the sentences have the worst second; what comes in a round is chance
    yield from scorecard_lines(results, 18, width, ("peak", *without))
    yield Text("")
    yield from wrapped(_model(question))
    yield Text("")
    yield from next_steps(results, file, width)


def _told(question: Question, results: Results) -> str:
    """The question, as it was understood."""
    usual = question.capacity

    def left(fault: Fault) -> str:
        if fault.failure_rate:
            return (
                f"fails {100 * fault.failure_rate:g} % of the {usual:,.10g} calls/s that it serves"
            )
        if fault.end is not None:
            return (
                f"goes from {fault.capacity:,.10g} to {fault.end:,.10g} calls/s in place of "
                f"{usual:,.10g}"
            )
        if not fault.capacity:
            return f"serves nothing in place of {usual:,.10g} calls/s"
        return f"serves {fault.capacity:,.10g} calls/s in place of {usual:,.10g}"

    happens = ", then ".join(
        f"for {format_time(fault.seconds)} {'the dependency ' if i == 0 else ''}{left(fault)}"
        for i, fault in enumerate(question.faults)
    )
    n = math.prod(question.layers)
    clients = f" of {question.clients:,} clients" if question.clients > 1 else ""
    deadline = (
        "no deadline" if question.deadline is None else f"deadline {format_time(question.deadline)}"
    )
    patience = ""
    if question.timeout is not None:
        patience = f", and are given up after {format_time(question.timeout)}"
    waits = " to ".join(map(format_time, question.backoff))
    runs = int(results.cells["replications"].max())  # type: ignore[arg-type]
    return (
        f"{question.rate:,.10g} requests/s{clients}; {happens}; {_queue(question)}{patience}; "
        f"layers {shape(question.layers)}, up to {n} attempt{'s' if n > 1 else ''}; {deadline}; "
        f"backoff up to {waits}, drawn at random. {runs:,} runs of each policy, all under the same "
        "traffic."
    )


def _queue(question: Question) -> str:
    if not question.queue:
        return "what it cannot serve fails at once"
    calls = f"{question.queue:,} call{'s' if question.queue > 1 else ''}"
    return f"{calls} can wait there ({format_time(question.queue / question.capacity)} of its work)"


def _calm(results: Results, of_cells: Mapping[int, Mapping[str, int]]) -> Iterator[str]:
    """Say what fails before the fault, if that surely is more than nothing."""
    present = present_of(results)["cell"]
    attempts = {number: cell.max_attempts for number, cell in cells_of(results.cells).items()}
    once = next((number for number, most in attempts.items() if most == 1), present)
    policies = {present: "as it is"} | ({} if once == present else {once: "without retries"})
    dropped, requests = (
        [of_cells[number][name] for number in policies]
        for name in ("calm_dropped", "calm_requests")
    )
    least, _ = intervals.share_interval(dropped, requests)
    if max(least) > CALM_LOSS:
        failing = " and ".join(
            f"{_number(100 * lost / of)} % of the requests {name}"
            for lost, of, name in zip(dropped, requests, policies.values(), strict=True)
        )
        yield (
            f"First of all: {failing} fail already before the fault. So many calls need a larger "
            "capacity or a longer --queue."
        )


def _present(question: Question, results: Results, peaks: dict[int, float]) -> str:
    """What the present policy does, with the range of single runs."""
    cell = present_of(results)["cell"]

    def told(metric: str, unit: str) -> str:
        score = score_of(results, cell, metric)
        if score is None or not score.is_known or score.low is None or score.high is None:
            return ""
        if score.of_runs:
            return f"{score.known()}{unit} (95 %: {digits.share_ends(score.low, score.high)})"
        spread = f" ({' to '.join(score.ends())})" if score.ends() else ""
        return f"{score.known(score.ends())}{unit}{spread}"

    def count(metric: str) -> str:
        return f"{mean_of(results, cell, metric):,.0f}"

    whole = cells_of(results.cells)[cell]
    text = (
        f"As it is, {told('window_failed_share', ' %')} of the requests of the fault fail: "
        f"{count('window_dropped')} of {count('window_requests')}. In the whole run of "
        f"{format_time(whole.rounds / whole.rounds_per_second)} it is {count(FAILURES)} of "
        f"{count('requests')}, {told('failed_share', ' %')}. In the fault the dependency gets "
        f"{told(LOAD, '')} times the usual load, in the worst second {_number(peaks[cell])} "
        f"times its capacity.{_late(question, results, cell)}"
    )
    recovered, recovery, gone = (
        told(metric, unit)
        for metric, unit in (("recovered", " %"), ("recovery", " s"), ("drain", " s"))
    )
    if recovered and question.timeout is not None:
        text += f" {recovered} of the runs recover before they end"
        text += f", {recovery} after the fault." if recovery else "."
    elif gone:
        text += f" The last retry is gone {gone} after the fault."
    slowest = min((fault.slowest for fault in question.faults if fault.slowest), default=math.inf)
    in_queue = question.queue / slowest
    if question.deadline is not None and in_queue > question.deadline:
        text += (
            f" A full queue takes {format_time(in_queue)} in the fault, and the deadline is "
            f"{format_time(question.deadline)}: most is served in vain."
        )
    return f"{text} In parentheses: where nine of ten runs lie."


def _late(question: Question, results: Results, cell: int) -> str:
    """How many succeed late, and how long successes take; nothing where hardly any is late."""
    late = mean_of(results, cell, LATE)
    if late < ALIKE_SHARE * mean_of(results, cell, "requests"):
        return ""
    waited = score_of(results, cell, "wait_mean")
    on_average = "" if waited is None else f"; a success takes {waited.known} s on average"
    return f" {late:,.0f} succeed later than {format_time(question.late_s)}{on_average}."


def _advice(
    best: Alternative | None,
    fewest: Alternative | None,
    results: Results,
    peaks: dict[int, float],
) -> str:
    """What to do, what it costs, and by which rule."""
    rule = (
        "The rule: of the policies that retry (without, every small failure reaches a caller) the "
        f"fewest failures, or less load where that costs less than {100 * AS_GOOD:g} % of the "
        f"requests of the fault, or at most half of the load where that costs less than "
        f"{100 * WORTH_HALF:g} %."
    )
    if best is None:
        return f"Keep the present policy: nothing here is surely better. {rule}"
    dear = {
        f"{best.failures.difference:,.0f} more failures": best.failures,
        f"{100 * best.load.difference / best.load.present:.0f} % more load": best.load,
        f"{best.late.difference:,.0f} more late successes": best.late,
    }
    more = [
        f"{'' if one.is_sure else 'perhaps '}{text}"
        for text, one in dear.items()
        if one.difference > 0 and not one.is_alike
    ]
    costs = f"That costs {' and '.join(more) or 'nothing that is seen here'}."
    if fewest is not None and fewest is not best:
        costs += f" Fewest failures: {fewest.policy}: {_changes(fewest, results, peaks)}."
    return f"Best here: {best.policy}: {_changes(best, results, peaks)}. {costs} {rule}"


def _changes(one: Alternative, results: Results, peaks: dict[int, float]) -> str:
    """What a policy does; the numbers of the present one stand above."""

    def told(change: Change, text: str, alike: str) -> str:
        return alike if change.is_alike else f"{'' if change.is_sure else 'perhaps '}{text}"

    parts = [
        told(one.failures, f"{one.failures.other:,.0f} fail", "as many fail"),
        told(one.load, f"load {_number(one.load.other)} x usual", "as much load")
        + f", worst second {_number(peaks[one.cell])} x capacity",
    ]
    if not one.late.is_alike:
        parts.append(told(one.late, f"{one.late.other:,.0f} late", ""))
    before, after = (
        score_of(results, cell, "recovered") for cell in (present_of(results)["cell"], one.cell)
    )
    if before is not None and after is not None and before.known() != after.known():
        [line] = results.comparisons.filter(cell=one.cell, metric="recovered").iter_rows(named=True)
        # without an interval they differ in every replication, or in hardly any
        if line["ci_low"] is None or line["ci_low"] * line["ci_high"] > 0:
            parts.append(f"{after.known()} % of the runs recover instead of {before.known()} %")
    return "; ".join(parts)


def _number(mean: float) -> str:
    return digits.short_estimate(mean, None)


def _model(question: Question) -> str:
    """What the answer assumes, and how to ask with another assumption."""
    if not question.queue:
        how = (
            "what comes in a round meets its capacity together, the rest fails at once, so rounds "
            "of another length have another answer; with a --queue they have the same"
        )
    elif question.timeout is None:
        how = (
            "calls wait in one queue until they are served or their deadline is over, and nobody "
            "gives one up before; ask again with --timeout, and a storm may outlive its fault; "
            "--queue sets how many wait"
        )
    else:
        how = (
            "calls are served in their turn, in vain those that their callers have given up; "
            "--queue sets how many wait, and without --timeout nobody gives one up"
        )
    return (
        f"The model: {how}. Every layer retries a failure without telling kinds of failure apart. "
        "The breaker is resilience4j's, one for each client, open for 10 s, not 60 s; the retries "
        "that wait for it to close may open it again. Others: experiments/README.md has the keys."
    )
