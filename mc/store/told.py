"""What the terminal and the page say of a run, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mc.model.digits import UNDECIDED, counted
from mc.model.thresholds import DEPENDS, FAILS, HOLDS, OPEN

if TYPE_CHECKING:
    from mc.store.results import Results

_WORDS: Final = {
    HOLDS: ("holds", "hold"),
    FAILS: ("fails", "fail"),
    DEPENDS: ("depends on the seed", "depend on the seed"),
    OPEN: ("is open", "are open"),
}
"""Of one claim, and of several."""

OF_UNDECIDED: Final = (
    *("dropped", "failed_share", "window_dropped", "window_failed_share", "successful"),
    *("late", "late_share", "wait_total", "wait_mean", "wait_max"),
)
"""Metrics that would be others if all requests were decided."""


def claims_told(results: Results) -> str:
    """Say in a line how many claims have each verdict; of one replication, are true in it."""
    verdicts = results.claims["verdict"].to_list()
    if results.cells["replications"].max() == 1:
        n_true = int(results.claims["n_holds"].eq(1).sum())
        are = "is" if n_true == 1 else "are"
        return f"Claims: {n_true} of {len(verdicts)} {are} true in this one replication"
    counts = {verdict: verdicts.count(verdict) for verdict in _WORDS}
    told = ", ".join(f"{n} {_WORDS[verdict][n != 1]}" for verdict, n in counts.items() if n)
    return f"Claims: {told}"


def undecided_told(results: Results) -> str:
    """Say that requests are neither successful nor dropped when the runs end; empty if few are."""
    import polars as pl

    means = results.summary.filter(pl.col("metric").is_in(["in_flight", "requests"]))
    by_cell = means.pivot("metric", index="cell", values="mean").filter(pl.col("requests") > 0)
    share = by_cell.select(share=pl.col("in_flight") / pl.col("requests"))["share"]
    late = share.filter(share > UNDECIDED)
    if late.is_empty():
        return ""
    most = 100 * float(late.max() or 0)  # type: ignore[arg-type]
    return (
        f"Undecided when the runs end, neither successful nor dropped: up to {most:.2g} % of the "
        f"requests, more than {100 * UNDECIDED:g} % in {late.len()} of "
        f"{counted(results.cells.height, 'cell')}. Compare no drops there."
    )
