"""What `ask` prints: sentences about the present policy and the alternatives to it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from mc.cli.screen import WIDTH, next_steps, scorecard_lines
from mc.decisions.alternatives import FAILURES, Alternative, alternatives, present_of
from mc.decisions.scorecard import score_of
from mc.experiment.question import Question
from mc.model import digits
from mc.model.units import format_time
from mc.store import Results


def answer(question: Question, results: Results, file: Path, width: int) -> Iterator[Text]:
    """Yield the lines of the answer: what it is to the question, the scorecard, what to do next."""

    def wrapped(text: str, indent: str = "") -> Iterator[Text]:
        for line in textwrap.wrap(text, min(width, WIDTH), subsequent_indent=indent):
            yield Text(line)

    yield from wrapped(_told(question, results))
    yield Text("")
    yield from wrapped(_present(results))
    found = alternatives(results)
    for verdict, heading in (("better", "Surely better:"), ("trade", "Better at a price:")):
        some = [one for one in found if one.verdict == verdict]
        if some:
            yield Text("")
            yield Text(heading, "bold")
            for one in some:
                yield from wrapped(f"  {one.policy}: {_changes(one, results)}.", "    ")
    rest = [one for one in found if one.verdict in ("alike", "worse")]
    if rest:
        names = "; ".join(one.policy for one in rest)
        yield Text("")
        yield from wrapped(f"Not surely better: {names}.")
    yield from scorecard_lines(results, 16, width)
    yield Text("")
    if question.timeout is None:
        how = (
            "fails at once what it cannot serve. One in which calls wait and time out can stay "
            "down after the fault: ask again with --timeout"
        )
    else:
        how = (
            f"serves calls in their turn, in vain those that their callers gave up after "
            f"{format_time(question.timeout)}"
        )
    yield from wrapped(
        f"The table counts the requests of the whole run, the sentences those of the fault. The "
        f"model: the dependency {how}. Every layer retries a failure without telling kinds of "
        "failure apart."
    )
    yield Text("")
    yield from next_steps(results, file, width)


def _told(question: Question, results: Results) -> str:
    """The question, as it was understood."""
    fault = question.fault
    left = f"serves {fault.capacity:g} calls/s in place of {question.capacity:g}"
    if fault.failure_rate:
        left = f"fails {100 * fault.failure_rate:g} % of the {question.capacity:g} calls/s"
    elif not fault.capacity:
        left = f"serves nothing in place of {question.capacity:g} calls/s"
    n = math.prod(question.layers)
    shape = "x".join(map(str, question.layers))
    deadline = (
        "no deadline" if question.deadline is None else f"deadline {format_time(question.deadline)}"
    )
    waits = " to ".join(map(format_time, question.backoff))
    runs = int(results.cells["replications"].max())  # type: ignore[arg-type]
    return (
        f"{question.rate:g} requests/s; for {format_time(fault.seconds)} the dependency {left}; "
        f"layers {shape}, up to {n} attempt{'s' if n > 1 else ''}; {deadline}; backoff up to "
        f"{waits}, drawn at random. {runs:,} runs of each policy, all under the same traffic."
    )


def _present(results: Results) -> str:
    """What the present policy does, with the range of single runs."""
    cell = present_of(results)["cell"]

    def told(metric: str, unit: str) -> str:
        score = score_of(results, cell, metric)
        if score is None or not score.is_known or score.low is None or score.high is None:
            return ""
        low, high = (digits.short_estimate(end, None) for end in (score.low, score.high))
        spread = "" if low == high else f" ({low} to {high})"
        return f"{score.known}{unit}{spread}"

    failed = next(filter(None, (told(metric, " %") for metric in FAILURES)))
    text = (
        f"As it is, {failed} of the requests of the fault fail. Meanwhile the dependency gets "
        f"{told('times_usual', '')} times the usual load; the peak is {told('peak', '')} times its "
        "capacity."
    )
    recovered, recovery, gone = (
        told(metric, unit)
        for metric, unit in (("recovered", " %"), ("recovery", " s"), ("drain", " s"))
    )
    if recovered:
        text += f" {recovered} of the runs recover before they end"
        text += f", {recovery} after the fault." if recovery else "."
    elif gone:
        text += f" The last retry is gone {gone} after the fault."
    return f"{text} In parentheses: where nine of ten runs lie."


def _changes(one: Alternative, results: Results) -> str:
    """What a policy gains, and what it costs."""
    parts = []
    for change, factor, unit, alike in (
        (one.failures, 100, " % fail", "as many fail"),
        (one.load, 1, " times the usual load", "the same load"),
    ):
        then, now = (
            digits.short_estimate(factor * mean, None) for mean in (change.other, change.present)
        )
        perhaps = "" if change.is_sure else "perhaps "
        told = f"{perhaps}{then}{unit} instead of {now}{' %' if '%' in unit else ''}"
        parts.append(alike if change.is_alike else told)
    before, after = (
        score_of(results, cell, "recovered") for cell in (present_of(results)["cell"], one.cell)
    )
    if before is not None and after is not None and before.known != after.known:
        [line] = results.comparisons.filter(cell=one.cell, metric="recovered").iter_rows(named=True)
        # without an interval they differ in every replication, or in hardly any
        is_sure = line["ci_low"] is None or line["ci_low"] * line["ci_high"] > 0
        if is_sure:
            parts.append(f"{after.known} % of the runs recover instead of {before.known} %")
    return "; ".join(parts)
