"""The command methods: how the numbers of a folder were made, and a table of them, for a paper."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mc.cli import options
from mc.cli.formats import escaped, markdown_table
from mc.cli.stderr import errors_as_messages
from mc.cli.stdout import print_lines
from mc.model.digits import counted

if TYPE_CHECKING:
    from mc.store import Results

WIDTH: Final = 100
"""Characters of a line of the paragraph."""

SOURCES: Final = {
    "philox": "Random numbers are those of Philox4x32-10 (Salmon et al. 2011), keyed with the "
    "seed {seed}: each is a function of its replication and its purpose, so that cells of the same "
    "traffic meet the same requests in a replication: differences between them are paired.",
    "lesson": "Random numbers are those of the published lesson's generator, one stream for each "
    "cell and seed: {seeds}",
}
"""By generator, how numbers are drawn."""


def methods(
    folder: options.Folder,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="A column of the table; may be repeated.  [default: failed_share, times_usual, "
            "peak]",
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Markdown, or LaTeX that needs no package.",
            **options.one_of(lambda: ("markdown", "latex")),
        ),
    ] = "markdown",
) -> None:
    """Print a paragraph on methods and a table, for a paper.

    The paragraph says how the numbers were made: model, random numbers, seeds, replications,
    intervals, versions, and the hash of the experiment. The table has the mean of each metric in
    every cell with its 95 % interval.
    """
    with errors_as_messages():
        from mc import store
        from mc.decisions import metric_named

        results = store.load(folder)
        metrics = [metric_named(name, results).name for name in metric or ()]
        metrics = metrics or _default_metrics(results)
        heads, rows = _table(results, metrics)
        lines = textwrap.wrap(" ".join(sentences(results)), WIDTH, break_on_hyphens=False)
        if form == "latex":
            print_lines([*map(latex, lines), "", *_latex_table(heads, rows, len(metrics))])
        else:
            n_texts = len(heads) - len(metrics)
            table = markdown_table(heads, rows, n_texts=n_texts)
            print_lines([*map(escaped, lines), "", *table])


def sentences(results: Results) -> Iterator[str]:
    """Yield what a paper says of the methods, as far as the folder knows it."""
    from mc.model.digits import MIN_REPLICATIONS
    from mc.model.units import format_time
    from mc.store import undecided_told

    manifest = results.manifest
    source, versions = manifest["experiment"], manifest["versions"]
    yield (
        f"Simulations were made with retrystorm {versions['retrystorm']} (Python "
        f"{versions['python']}, numpy {versions['numpy']}, numba {versions['numba']})."
    )
    lengths = (1 / results.cells["rounds_per_second"].unique().sort(descending=True)).to_list()
    yield (
        f"Time runs in rounds of {' or '.join(map(format_time, lengths))}, in each of which "
        "requests arrive; a dependency serves at most its capacity of calls in a round, and layers "
        "of callers retry calls that fail."
    )
    yield _cells(results)
    counts = results.cells["replications"].unique().sort().to_list()
    if source["precision"] is not None:
        from mc.cli.result_tables import known_to

        yield (
            f"Each was simulated until {known_to(source['precision'])}: for {counts[0]:,} to "
            f"{counts[-1]:,} replications."
        )
    else:
        yield f"Each was simulated for {counted(counts[0], 'replication')}."
    seeds = f"{manifest['seed']} and others hashed from it."
    if source["seeds"] is not None:
        seeds = "they are listed in the experiment."
    yield SOURCES[manifest["generator"]].format(seed=manifest["seed"], seeds=seeds)
    if max(counts) > 1:
        method = manifest["columns"]["summary"]["ci_low"]["meaning"].rpartition(": ")[2]
        yield (
            "Means over replications are given with 95 % intervals, each for itself "
            f"({method.partition(', NULL')[0]}), unless values are too rare or too skewed for one."
        )
        if min(counts) < MIN_REPLICATIONS:
            yield f"With fewer than {MIN_REPLICATIONS} replications intervals are rough."
    if told := undecided_told(results):
        yield told
    yield (
        f"SHA-256 of the experiment {manifest['file']}: {manifest['experiment_sha256']}; run "
        f"{manifest['started'][:10]}."
    )


def _cells(results: Results) -> str:
    from mc.store import axis_names

    cells = results.cells
    parts = [
        f"{n} {noun if n > 1 else singular}"
        for name, noun, singular in (
            ("scenario", "scenarios", "scenario"),
            ("policy", "policies", "policy"),
        )
        if (n := cells[name].n_unique()) > 1
    ]
    parts += [f"{cells[name].n_unique()} values of {name}" for name in axis_names(results.manifest)]
    spanned = f": {', '.join(parts)}" if parts else ""
    return (
        f'The experiment "{results.manifest["title"]}" has {counted(cells.height, "cell")}, '
        f"combinations of parameters{spanned}."
    )


def _default_metrics(results: Results) -> list[str]:
    wanted = ("failed_share", "times_usual", "peak")
    known = results.summary.filter(results.summary["n"] > 0)["metric"].unique()
    return [name for name in wanted if name in known]


def _table(results: Results, metrics: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Heads, and a row for each cell: its coordinates as far as they differ, and the estimates."""
    from mc.cli.questions import metric_for_reader
    from mc.decisions import coordinates
    from mc.model.digits import axis_text
    from mc.store import for_reader

    source = results.manifest["experiment"]
    names = [name for name in coordinates(results) if results.cells[name].n_unique() > 1]
    summary = for_reader(results.summary, "summary", results.manifest)
    summary = summary.filter(summary["metric"].is_in(list(metrics)))
    estimates = {(line["cell"], line["metric"]): line for line in summary.iter_rows(named=True)}
    rows = []
    for cell in results.cells.iter_rows(named=True):
        texts = (
            str(cell[name])
            if name in ("scenario", "policy")
            else axis_text(source, name, cell[name])
            for name in names
        )
        rows.append([*texts, *(_interval(estimates[cell["cell"], m]) for m in metrics)])
    return [*names, *(metric_for_reader(metric, source)[0] for metric in metrics)], rows


def _interval(estimate: Mapping[str, Any]) -> str:
    """A mean and the ends of its interval, all with the digits that its error supports."""
    from mc.model.digits import format_estimate, half_width

    half = half_width(estimate)
    mean = format_estimate(estimate["mean"], half)[0]
    if half is None:
        return mean
    low, high = (format_estimate(estimate[end], half)[0] for end in ("ci_low", "ci_high"))
    return f"{mean} [{low}, {high}]"


# --- LaTeX ----------------------------------------------------------------------------------------

_SPECIAL: Final = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    # behind a line break a bracket would be its argument
    "[": "{[}",
    "]": "{]}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
}


def latex(text: str) -> str:
    """Escape all that would be a command."""
    return re.sub(r"[&%$#_{}\\~^<>\[\]]", lambda found: _SPECIAL[found[0]], text)


def _latex_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], n_numbers: int
) -> Iterator[str]:
    yield f"\\begin{{tabular}}{{{'l' * (len(heads) - n_numbers)}{'r' * n_numbers}}}"
    yield "\\hline"
    yield f"{' & '.join(map(latex, heads))} \\\\"
    yield "\\hline"
    for row in rows:
        yield f"{' & '.join(map(latex, row))} \\\\"
    yield "\\hline"
    yield "\\end{tabular}"
