"""Figures and a page from a results folder.

    report.html                  one file that needs nothing else: the answer, figures, tables
    figures/*.svg, *.png         each figure, as it can go into a paper; PNG on request
    figures/*.parquet            what figures are made of, where no table holds it

`view` and `scenario` have what is taken from the results, `curves` what is simulated once more,
`notation` how numbers and names are written. `storm`, `distributions`, `sweeps`, `maps`, `tradeoff`
and `replication` are the kinds of figures, made of `panels` in one `style` and drawn by
`rendering`; `pictures` says which of them there are. `page` writes the page: its text is in
page.html and captions.html, and what the text says is found by `answer`, `page_tables` and
`pictures`. `explorer` makes the data of its script.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mc import store
from mc.model.columns import about
from mc.store.threads import deferred_signals

if TYPE_CHECKING:
    import polars as pl

    from mc.experiment import Point
    from mc.store import Results

__all__ = ["draw_trace", "is_current", "is_stale", "report", "storm_of"]

_FIGURES: Final = "figures"


def report(
    folder: str | Path | Results,
    *,
    png: bool = False,
    simulated: Mapping[str, pl.DataFrame] | None = None,
) -> Path:
    """Draw the figures of a finished run and write its page.

    Parameters
    ----------
    folder : path or Results
        A results folder.
    png : bool
        Whether each figure is written as a bitmap, too.
    simulated : mapping of str to polars.DataFrame, optional
        What `storm_of` has made of the same results.

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
    replications, unless an earlier report of the same results has done so.

    Examples
    --------
    >>> import mc
    >>> mc.report("results/lesson").as_posix()
    'results/lesson/report.html'
    """
    results = store.load(folder)
    results.must_be_complete()
    store.check_page(results.folder, results.manifest["n_cells"])

    # A handler that raises, in the middle of matplotlib's C++, can end the process or stop it for
    # ever: signals wait for the figure that is being drawn.
    with deferred_signals() as stop:
        from mc.reports.curves import STORM_DATA
        from mc.reports.explorer import explorer
        from mc.reports.page import page  # these take a second
        from mc.reports.pictures import DATA, FILE_NAME, SIMULATED, pictures
        from mc.reports.view import View

        view, kept = View(results), _kept(results, SIMULATED) | dict(simulated or {})
        with _without_collection():
            drawn, tables = pictures(view, kept, stop)
            files = {
                name: store.table_bytes(table, about(DATA[name])) for name, table in tables.items()
            }
            for picture in drawn:
                stop.check()
                files[f"{_FIGURES}/{picture.name}.svg"] = picture.svg.encode()
                if png:
                    files[f"{_FIGURES}/{picture.name}.png"] = picture.png
        # the page comes last: it links to the others
        text = page(view, drawn, explorer(view, tables[STORM_DATA]), _mark(results), png=png)
        files[store.PAGE] = store.sealed(text.rstrip("\n").encode(), files)
    for name, content in files.items():
        store.write(results.folder, name, content)
    for path in (results.folder / _FIGURES).iterdir():
        is_ours = FILE_NAME.fullmatch(path.name) and not path.is_dir()
        if is_ours and f"{_FIGURES}/{path.name}" not in files:
            path.unlink(missing_ok=True)  # of an earlier one; or another report has done it
    return results.folder / store.PAGE


def storm_of(results: Results) -> dict[str, pl.DataFrame]:
    """Record the calls of every cell over time, for an answer before its page, see `report`.

    The results are of one scenario, with as few cells as a page has storm curves of. Nothing is
    simulated where there is an earlier report of the same results.

    Returns
    -------
    dict of str to polars.DataFrame
        The table of `curves.curves` under the name of its file.
    """
    from mc.reports.curves import CURVE_COLUMNS, STORM_DATA, curves

    kept = _kept(results, {STORM_DATA: CURVE_COLUMNS})
    return kept or {STORM_DATA: curves(results, results.cells["cell"].to_list())}


def _kept(results: Results, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, pl.DataFrame]:
    """Of some tables, given with their columns, those that an earlier report has simulated.

    It was of just these results; but the program that made it may have been another.
    """
    import polars as pl

    if not is_current(results):
        return {}
    there = [name for name in wanted if (results.folder / name).exists()]
    read = {name: pl.read_parquet(store.content_of(results.folder / name)) for name in there}
    return {name: table for name, table in read.items() if table.columns == [*wanted[name]]}


@contextmanager
def _without_collection() -> Iterator[None]:
    """Do not look for garbage among the many objects of a figure, all of which are in use.

    That would be a seventh of the time of drawing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_current(results: Results) -> bool:
    """Whether there is a page of just these results, whole and with all to which it links."""
    try:
        is_of_these = _mark(results).encode() in store.content_of(results.folder / store.PAGE)
        return is_of_these and not store.page_faults(results.folder)
    except OSError:
        return False


def is_stale(results: Results) -> bool:
    """Whether there is a page, of other results: earlier ones."""
    try:
        return _mark(results).encode() not in store.content_of(results.folder / store.PAGE)
    except OSError:
        return False


def _mark(results: Results) -> str:
    """What tells these results, in the version of this program, from all others."""
    manifest = results.manifest
    tables = "".join(manifest["tables"].values())
    parts = [manifest["experiment"], tables, manifest["title"], manifest["versions"]]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def draw_trace(
    rounds: pl.DataFrame, points: Sequence[Point], source: Mapping[str, Any]
) -> tuple[str, bytes]:
    """Draw one replication of some cells, see `mc.runner.trace_points`.

    Parameters
    ----------
    rounds : polars.DataFrame
        As `trace_points` gives it, one replication of each cell.
    points : sequence of Point
        The cells.
    source : mapping
        The experiment, see `Experiment.source`.

    Returns
    -------
    svg : str
    png : bytes
    """
    with deferred_signals():  # as in `report`
        from mc.model.digits import axis_text, readers_second
        from mc.reports.rendering import draw, png_file, svg_file
        from mc.reports.replication import draw_replication
        from mc.reports.style import style

        cells = {point.cell: point.parameters for point in points}
        labels = {}
        for point in points:
            names = [name for name in (point.scenario, point.policy) if name != "default"]
            names += [
                f"{name} {axis_text(source, name, value)}" for name, value in point.at.items()
            ]
            labels[point.cell] = ", ".join([*names, f"replication {rounds['replication'][0]}"])
        with style():
            drawing = draw_replication(rounds, cells, labels, readers_second(source))
            return svg_file(draw(drawing, "trace"), drawing.n_columns), png_file(drawing)
