"""The command report: figures and a page of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mc.cli import options
from mc.cli.signals import interruptible
from mc.cli.stderr import write_message
from mc.cli.stdout import print_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from mc.store import Results


def report(
    folder: options.Folder,
    png: Annotated[
        bool, typer.Option("--png", help="Write each figure as a PNG file, too.")
    ] = False,
) -> None:
    """Draw the figures of a finished run, and write its page.

    The page, report.html, is one file that needs no network. Each figure is also written to the
    folder figures, as SVG.
    """
    with interruptible("stopped; run the same command again"):
        from mc import reports, store

        print_text(f"{reports.report(store.load(folder), png=png)}\n")


def draw_report(
    results: Results, quiet: bool = False, simulated: Mapping[str, pl.DataFrame] | None = None
) -> None:
    """Draw the report of a finished run, unless it is there, and say where it is.

    `simulated`: what was simulated for it already, see `mc.reports.storm_of`.
    """
    from mc import reports, store

    if not reports.is_current(results):
        try:
            store.check_page(results.folder, results.manifest["n_cells"])
        except store.FolderError as error:
            write_message(f"no page: {error}")
            return
        if not quiet:
            write_message("drawing the report")
        reports.report(results, simulated=simulated)
    if not quiet:
        write_message(f"Report: {results.folder / store.PAGE}")


def warn_if_stale(results: Results) -> None:
    """Write a message if the report that is there is of earlier results."""
    from mc import reports, store

    if reports.is_stale(results):
        write_message(
            f"{results.folder / store.PAGE} shows earlier results: "
            f"`retrystorm report {results.folder}` makes it anew"
        )
