"""Figures and a page from a results folder.

    report.html                  one file that needs nothing else: the answer, figures, tables
    figures/*.svg, *.png         each figure, as it can go into a paper
    figures/*.parquet            what figures are made of, where no table holds it

The rooms of this folder: `view` (what all take from the results), `style` (how figures look and
are written), `storm`, `distributions`, `sweeps`, `forest` (each kind of figure), `pictures` (which of
them there are, with their texts), `answer`, `tables`, `page` (the page around them).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mc import store

if TYPE_CHECKING:
    import polars as pl

    from mc.model import Cell
    from mc.store import Results

__all__ = ["PAGE", "draw_trace", "report"]

PAGE: Final = "report.html"
_FIGURES: Final = "figures"


def report(folder: str | Path | Results) -> Path:
    """Draw the figures of a finished run and write its page.

    Parameters
    ----------
    folder : path or Results
        A results folder.

    Returns
    -------
    Path
        Of the page. The same results give the same bytes, of it and of every figure.

    Raises
    ------
    FolderError
        There are no results, or the run is not finished, or files of it are damaged.

    Notes
    -----
    The storm curves are simulated once more, round by round, for a few hundred of the
    replications.
    """
    results = folder if isinstance(folder, store.Results) else store.load(folder)
    import polars as pl

    from mc.reports.page import page
    from mc.reports.pictures import SPREAD_DATA, STORM_DATA, pictures, spread_tables, storm_tables
    from mc.reports.view import View

    view = View(results)
    storms, spreads = storm_tables(view), spread_tables(view)
    drawn = list(pictures(view, storms, spreads))
    files = {f"{_FIGURES}/{picture.name}.svg": picture.svg.encode() for picture in drawn}
    files |= {f"{_FIGURES}/{picture.name}.png": picture.png for picture in drawn}
    for name, parts in ((STORM_DATA, storms), (SPREAD_DATA, spreads)):
        if parts:
            files[name] = store.table_bytes(pl.concat(parts.values()))
    files[PAGE] = page(view, drawn).encode()  # last: it links to the others
    (results.folder / _FIGURES).mkdir(exist_ok=True)
    for path in (results.folder / _FIGURES).iterdir():
        if path.suffix in (".svg", ".png", ".parquet") and f"{_FIGURES}/{path.name}" not in files:
            path.unlink()  # of an earlier report
    for name, content in files.items():
        store.write(results.folder, name, content)
    return results.folder / PAGE


def draw_trace(
    rounds: pl.DataFrame, cells: Mapping[int, Cell], labels: Mapping[int, str]
) -> tuple[str, bytes]:
    """Draw one replication of some cells, see `mc.trace`.

    Parameters
    ----------
    rounds : polars.DataFrame
        As `mc.trace` gives it, one replication of each cell.
    cells, labels : mapping
        By the number of the cell: what it is, and what it is called.

    Returns
    -------
    svg : str
    png : bytes
    """
    from mc.reports import storm
    from mc.reports.style import style, written

    with style():
        return written(storm.draw_trace(rounds, cells, labels))
