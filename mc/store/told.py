"""What the terminal and the page say of a run, in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mc.model.digits import UNDECIDED, axis_text, counted, percent
from mc.model.thresholds import DEPENDS, FAILS, HOLDS, OPEN
from mc.store.results import axis_names

if TYPE_CHECKING:
    from mc.store.results import Results

_WORDS: Final = {
    HOLDS: ("holds", "hold"),
    FAILS: ("fails", "fail"),
    DEPENDS: ("depends on the seed", "depend on the seed"),
    OPEN: ("is open", "are open"),
}
"""Of one claim, and of several."""

N_NAMED: Final = 3
"""So many cells are named in a sentence."""

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


def undecided(results: Results) -> dict[int, float]:
    """The share of requests that are neither successful nor dropped when the runs of a cell end.

    Returns
    -------
    dict of int to float
        By cell, where it is more than `UNDECIDED`; the largest first.
    """
    if ("undecided",) not in results.answers:
        results.answers["undecided",] = _undecided(results)
    answer: dict[int, float] = results.answers["undecided",]
    return answer


def not_comparable(results: Results, metrics: Iterable[str]) -> set[int]:
    """The cells of which nobody knows whether they are better in one of these metrics.

    Of too many of their requests it is not known whether they fail, or are late: who has answered
    nobody has not failed either.
    """
    return set(undecided(results)) if any(name in OF_UNDECIDED for name in metrics) else set()


def _undecided(results: Results) -> dict[int, float]:
    import polars as pl

    of_both = results.scan_summary().filter(pl.col("metric").is_in(["in_flight", "requests"]))
    means = of_both.select("cell", "metric", "mean").collect()
    by_cell = means.pivot("metric", index="cell", values="mean").filter(pl.col("requests") > 0)
    shares = by_cell.select("cell", share=pl.col("in_flight") / pl.col("requests"))
    late = shares.filter(pl.col("share") > UNDECIDED)
    return dict(late.sort("share", "cell", descending=[True, False]).iter_rows())


def undecided_told(results: Results) -> str:
    """Say which cells have many undecided requests; empty if none has."""
    import polars as pl

    late = undecided(results)
    if not late:
        return ""
    names = ["scenario", "policy", *axis_names(results.manifest)]
    lines = results.cells.filter(pl.col("cell").is_in(list(late)[:N_NAMED]))
    by_cell = {line["cell"]: line for line in lines.iter_rows(named=True)}
    named = [
        f"{percent(share)} % in {cell_name(by_cell[cell], names, results.manifest['experiment'])}"
        for cell, share in list(late.items())[:N_NAMED]
    ]
    more = f"; {len(late) - N_NAMED:,} more" if len(late) > N_NAMED else ""
    return (
        "Requests are undecided when the runs end, neither successful nor dropped, in "
        f"{len(late):,} of {counted(results.cells.height, 'cell')}: {'; '.join(named)}{more}. "
        "Compare no drops there."
    )


def cell_name(cell: Mapping[str, Any], names: Sequence[str], source: Mapping[str, Any]) -> str:
    """Call a cell by some of its coordinates, as the experiment `source` writes them."""
    place = {
        name: coordinate_text(source, name, cell[name]) for name in names if cell[name] != "default"
    }
    return place_name(place) or "default"


def coordinate_text(source: Mapping[str, Any], name: str, value: Any) -> str:
    """Write the value of a coordinate, as the experiment `source` does."""
    return str(value) if name in ("scenario", "policy") else axis_text(source, name, value)


def place_name(place: Mapping[str, str]) -> str:
    """Write a place as the name of its cell."""
    return ", ".join(
        text if name in ("scenario", "policy") else f"{name} {text}" for name, text in place.items()
    )
