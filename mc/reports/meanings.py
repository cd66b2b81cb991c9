"""What stands behind the numbers of the page: meanings, parameters, how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mc.experiment import CELL_COLUMNS
from mc.model import HEADLINE, METRICS, PARAMETERS
from mc.reports.tables import Field, Table
from mc.reports.view import NAMES, View, value_text
from mc.reports.words import precision_words
from mc.store import axis_names

_MOST_VALUES: Final = 12
"""Values of a parameter that are listed."""


def meanings(view: View) -> Table:
    """Unit and meaning of every metric that the page shows."""
    shown = [m for m in HEADLINE if any(view.mean(cell, m) is not None for cell in view.lines)]
    results = view.results
    of_claims = results.claims["link_metric"].to_list()
    published = results.summary.drop_nulls("published")["metric"].to_list()
    lines = [
        (Field(NAMES.get(name, name)), Field(metric.unit or "1"), Field(metric.meaning))
        for name, metric in METRICS.items()
        if name in {*shown, *of_claims, *published}
    ]
    attempts = CELL_COLUMNS["max_attempts"]
    lines += [
        (Field("max_attempts"), Field(attempts.unit), Field(attempts.meaning)),
        (
            Field("replications"),
            Field("1"),
            Field("independent runs of a cell"),
        ),
        (Field("±"), Field("of the number"), Field("half-width of the 95 % interval of a mean")),
    ]
    return _plain(
        "Metrics",
        "Numbers of one replication; what is shown of them is mostly the mean.",
        ("number", "unit", "meaning"),
        lines,
    )


def parameters(view: View) -> Table:
    """Every parameter with its values, whether the file gives them or not."""
    given = _given(view)
    lines = []
    for name, parameter in PARAMETERS.items():
        values = view.results.cells[name].unique(maintain_order=True).to_list()
        texts = [value_text(value) for value in values[:_MOST_VALUES]]
        more = f" and {len(values) - _MOST_VALUES:,} more" if len(values) > _MOST_VALUES else ""
        lines.append(
            (
                Field(name),
                Field(", ".join(texts) + more),
                Field(parameter.unit),
                Field(parameter.meaning),
                Field("" if name in given else "default"),
            )
        )
    return _plain(
        "Parameters of the cells",
        "One value holds for all cells; of several each cell has one, see cells.parquet.",
        ("parameter", "values", "unit", "meaning", ""),
        lines,
    )


def _given(view: View) -> set[str]:
    """Parameters that stand in the experiment."""
    source = view.source
    groups = [source["fixed"], *source["scenario"], *source["policy"]]
    return {name for group in groups for name in group} | set(axis_names(view.results.manifest))


def _plain(
    title: str, note: str, heads: Sequence[str], lines: Sequence[tuple[Field, ...]]
) -> Table:
    return Table(title, note, tuple((head, False) for head in heads), tuple(lines), len(lines), "")


def making(view: View) -> Sequence[tuple[str, str]]:
    """How the results were made: what the manifest says."""
    manifest = view.results.manifest
    source = view.source
    seeds = source["seeds"]
    drawn = str(manifest["seed"]) if seeds is None else ", ".join(map(str, seeds[:10]))
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    precision = source["precision"]
    entries = [
        ("command", f"retrystorm run {manifest['file']}"),
        ("generator", manifest["generator"]),
        ("seed" if seeds is None else "seeds", drawn + (" ..." if len(seeds or ()) > 10 else "")),
        ("cells", f"{manifest['n_cells']:,}"),
        ("rows", f"{manifest['n_rows']:,}"),
        (
            "replications",
            f"{manifest['replications']:,} of each cell"
            if precision is None
            else f"{precision['min']:,} to {manifest['replications']:,} of each cell, until "
            f"{precision_words(precision)} ({100 * precision['confidence']:g} % intervals)",
        ),
        ("baseline", source.get("baseline") or ""),
        ("versions", versions),
        ("started", manifest["started"]),
        ("took", f"{manifest['seconds']:.1f} s on {manifest['jobs']} threads"),
        ("experiment", f"SHA-256 {manifest['experiment_sha256']}"),
    ]
    return [(name, text) for name, text in entries if text]
