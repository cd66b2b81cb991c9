"""The table of claims, for the eye and for a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import polars as pl


class Claimed(NamedTuple):
    """A claim and what came of it, as it is printed."""

    text: str
    share: str
    interval: str
    difference: str
    error: str
    verdict: str
    lesson: str


def claimed(claims: pl.DataFrame) -> Iterator[Claimed]:
    """Share of replications in which each claim holds, mean difference, verdict."""
    from mc.statistics import MISSING, format_estimate, half_width

    for claim in claims.iter_rows(named=True):
        difference, error = format_estimate(claim["mean_difference"], half_width(claim))
        share = MISSING if claim["share"] is None else f"{100 * claim['share']:.1f}"
        interval = ""
        if claim["share_low"] is not None:
            interval = " .. ".join(_percent(claim[end]) for end in ("share_low", "share_high"))
        verdict = claim["verdict"] or MISSING
        lesson = "" if claim["lesson_share"] is None else f"{100 * claim['lesson_share']:.1f}"
        yield Claimed(claim["text"], share, interval, difference, error, verdict, lesson)


def _percent(end: float) -> str:
    """The end of an interval in percent: as many digits as tell it from 0 and from 100."""
    for decimals in range(1, 8):
        text = f"{100 * end:.{decimals}f}"
        if end in (0, 1) or float(text) not in (0, 100):
            break
    return text


def has_lesson(claims: pl.DataFrame) -> bool:
    """Whether claims were counted with the lesson's draws, too."""
    return claims["lesson_share"].count() > 0


def claims_table(claims: pl.DataFrame) -> Table:
    """The claims for the terminal."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("claim", ratio=1, overflow="fold")
    table.add_column("holds in %\n(95 % interval)", justify="right", no_wrap=True)
    table.add_column("difference\nleft - right", justify="right", no_wrap=True)
    with_lesson = has_lesson(claims)
    if with_lesson:
        table.add_column("as lesson\ndraws, %", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=not with_lesson)
    for claim in claimed(claims):
        table.add_row(
            Text(claim.text),
            f"{claim.share}\n{claim.interval}" if claim.interval else claim.share,
            f"{claim.difference}\n± {claim.error}" if claim.error else claim.difference,
            *([claim.lesson] if with_lesson else []),
            claim.verdict,
        )
    return table


def claim_row(claim: Claimed) -> list[str]:
    """A claim for a page."""
    difference = f"{claim.difference} ± {claim.error}" if claim.error else claim.difference
    row = [claim.text, claim.verdict, claim.share, claim.interval, difference]
    return [*row, claim.lesson] if claim.lesson else row
