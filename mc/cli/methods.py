"""The command methods: how the numbers of a folder were made, and tables of them, for a paper."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from mc.cli import options
from mc.cli.formats import escaped, markdown_table
from mc.cli.questions import Where
from mc.cli.stderr import errors_as_messages
from mc.cli.stdout import print_lines
from mc.model.digits import counted

if TYPE_CHECKING:
    import polars as pl

    from mc.cli.references import Source
    from mc.store import Results

WIDTH: Final = 100
"""Characters of a line of the paragraph."""

MAX_ROWS: Final = 40
"""So many rows of a table fit a page."""

GENERATORS: Final = {
    "philox": "Random numbers are those of Philox4x32-10 (Salmon et al. 2011), keyed with the "
    "seed {seed}: each is a function of its replication and its purpose, so that cells of the same "
    "traffic meet the same requests in a replication: differences between them are paired.",
    "lesson": "Random numbers are those of the published lesson's generator, one stream for each "
    "cell and seed: {seeds}",
}
"""By generator, how numbers are drawn."""


class Part(NamedTuple):
    """A table of a paper.

    Attributes
    ----------
    label, caption : str
    heads : list of str
    rows : list of list of str
    n_texts : int
        So many of its first columns are texts.
    """

    label: str
    caption: str
    heads: list[str]
    rows: list[list[str]]
    n_texts: int


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
    where: Where = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Markdown; LaTeX, of which tables of more than "
            f"{MAX_ROWS} rows need \\usepackage{{longtable}}; or the sources as BibTeX.",
            **options.one_of(lambda: ("markdown", "latex", "bibtex")),
        ),
    ] = "markdown",
) -> None:
    """Print a paragraph on methods, tables and sources, for a paper.

    The paragraph says how the numbers were made: model, parameters that all cells share, random
    numbers, seeds, replications, intervals, verdicts, versions, and the hash of the experiment. The
    first table has the mean of each metric in every cell with its 95 % interval, a second one the
    claims. The sources are those that the paragraph cites.
    """
    with errors_as_messages():
        from mc import store
        from mc.cli.references import bibtex, cited_in
        from mc.decisions import metric_named
        from mc.decisions.choosing import where_all

        results = store.load(folder)
        metrics = [metric_named(name, results).name for name in metric or ()]
        metrics = metrics or _default_metrics(results)
        tables = [_means(results, metrics, where_all(results, where or ()))]
        if results.claims.height:
            tables.append(_claims(results))
        text = " ".join(sentences(results))
        sources = cited_in(text)
        lines = textwrap.wrap(text, WIDTH, break_on_hyphens=False)
        if form == "bibtex":
            print_lines(bibtex(sources))
        elif form == "latex":
            print_lines([*map(latex, lines), *_latex_tables(tables), *_latex_sources(sources)])
        else:
            print_lines(
                [*map(escaped, lines), *_markdown_tables(tables), *_markdown_sources(sources)]
            )


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
    yield from _parameters(results)
    yield from _replications(results)
    seeds = f"{manifest['seed']} and others hashed from it."
    if source["seeds"] is not None:
        seeds = "they are listed in the experiment."
    yield GENERATORS[manifest["generator"]].format(seed=manifest["seed"], seeds=seeds)
    counts = results.cells["replications"].to_list()
    if max(counts) > 1:
        yield (
            "Means over replications are given with 95 % intervals, each for itself (Student "
            "1908), unless values are too rare or too skewed for one (Cochran 1977); shares of "
            "replications with those of Wilson 1927, or of Clopper and Pearson 1934 where few hold "
            "or fail."
        )
        if min(counts) < MIN_REPLICATIONS:
            yield f"With fewer than {MIN_REPLICATIONS} replications intervals are rough."
        if results.claims.height:
            yield from _verdicts(results)
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


def _parameters(results: Results) -> Iterator[str]:
    """The values that all cells share, and which parameters differ."""
    from mc.model import PARAMETERS
    from mc.model.units import text_of

    shared, absent, varied = [], [], []
    for name, of in PARAMETERS.items():
        if name not in results.cells.columns or name == "rounds_per_second":
            continue
        values = results.cells.select(name, "rounds_per_second").unique(maintain_order=True)
        texts = {
            text_of(of.dimension, None if x is None else of.kind.from_column(x), speed, of.unit)
            for x, speed in values.iter_rows()
        }
        if len(texts) > 1:
            varied.append(name)
        elif (text := texts.pop()) in ("none", "false"):
            absent.append(name)
        else:
            shared.append(f"{name} {text}")
    alone = results.cells.height == 1
    if shared:
        yield f"{'Its parameters are' if alone else 'All cells share'} {'; '.join(shared)}."
    if absent:
        yield f"{'It has' if alone else 'None has'} {'no ' if alone else ''}{', '.join(absent)}."
    if varied:
        yield f"Cells differ in {', '.join(varied)}."


def _replications(results: Results) -> Iterator[str]:
    """How many each cell has, and why."""
    precision = results.manifest["experiment"]["precision"]
    counts = results.cells["replications"].unique().sort().to_list()
    if precision is None:
        yield f"Each was simulated for {counted(counts[0], 'replication')}."
        return
    from mc.cli.result_tables import known_to, readers_second

    n_short = results.cells["stopped_by"].to_list().count("max")
    yield (
        f"Replications grew in stages, from {precision['min']:,} on each twice those of the one "
        f"before, at most {precision['max']:,}, until "
        f"{known_to(precision, readers_second(results))} in all policies of a scenario at a place "
        "of the grid (Law 2015)."
    )
    numbers = " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))
    cells = counted(results.cells.height, "cell")
    if n_short:
        yield (
            f"Cells have {numbers} replications: {results.cells.height - n_short:,} of {cells} "
            f"reached this precision, {n_short:,} stopped at {precision['max']:,} without."
        )
    else:
        yield f"All {cells} reached this precision, with {numbers} replications."


def _verdicts(results: Results) -> Iterator[str]:
    """By which rule claims are judged, and how they fall."""
    from mc.model.thresholds import Thresholds
    from mc.store import claims_told

    limits = Thresholds(**(results.manifest["experiment"].get("thresholds") or {}))
    yield (
        "A claim is checked in every replication: it holds where it surely is true in at least "
        f"{100 * limits.holds:g} % of them, fails where surely in at most "
        f"{100 * limits.fails:g} %, depends on the seed where its share is surely in between, and "
        "is open otherwise. Surely means by confidence sequences that hold with 95 % for all "
        "claims together (Bonferroni; Dunn 1961) and at every number of replications: of shares "
        "by Robbins 1970, of mean differences by Waudby-Smith et al. 2024."
    )
    yield f"{claims_told(results)}."


def _default_metrics(results: Results) -> list[str]:
    wanted = ("failed_share", "times_usual", "peak")
    known = results.summary.filter(results.summary["n"] > 0)["metric"].unique()
    return [name for name in wanted if name in known]


def _means(results: Results, metrics: Sequence[str], cells: pl.DataFrame) -> Part:
    """A row for each cell: its coordinates as far as they differ, replications, and estimates."""
    from mc.cli.questions import metric_for_reader
    from mc.decisions import coordinates
    from mc.model.digits import axis_text
    from mc.store import for_reader

    source = results.manifest["experiment"]
    names = [name for name in coordinates(results) if cells[name].n_unique() > 1]
    own_counts = results.cells["replications"].n_unique() > 1
    summary = for_reader(results.summary, "summary", results.manifest)
    summary = summary.filter(summary["metric"].is_in(list(metrics)))
    estimates = {(line["cell"], line["metric"]): line for line in summary.iter_rows(named=True)}
    rows = []
    for cell in cells.iter_rows(named=True):
        texts = (
            str(cell[name])
            if name in ("scenario", "policy")
            else axis_text(source, name, cell[name])
            for name in names
        )
        n = [f"{cell['replications']:,}"] if own_counts else []
        rows.append([*texts, *n, *(_interval(estimates[cell["cell"], m]) for m in metrics)])
    heads = [*names, *(["replications"] if own_counts else [])]
    heads += [metric_for_reader(metric, source)[0] for metric in metrics]
    caption = "Means over replications; in brackets 95 % intervals, each for itself."
    return Part("means", f"{results.manifest['title']}. {caption}", heads, rows, len(names))


def _claims(results: Results) -> Part:
    """A row for each claim."""
    from mc.cli.result_tables import claim_texts

    caption = "Claims, and the share of replications in which each is true."
    caption += " Intervals of 95 %, each for itself; verdicts hold together."
    rows = [
        [of.text, of.verdict, f"{of.share} [{of.interval}]" if of.interval else of.share]
        for of in claim_texts(results)
    ]
    return Part("claims", caption, ["claim", "verdict", "true in %"], rows, 2)


def _interval(estimate: Mapping[str, Any]) -> str:
    """A mean and the ends of its interval, all with the digits that its error supports."""
    from mc.cli.result_tables import percent_defined
    from mc.model.digits import format_estimate, half_width

    half = half_width(estimate)
    mean = format_estimate(estimate["mean"], half)[0]
    share = percent_defined(estimate)
    of_runs = f" in {share} % of runs" if share else ""
    if half is None:
        return mean + of_runs
    low, high = (format_estimate(estimate[end], half)[0] for end in ("ci_low", "ci_high"))
    return f"{mean} [{low}, {high}]{of_runs}"


# --- Markdown -------------------------------------------------------------------------------------


def _markdown_tables(tables: Sequence[Part]) -> Iterator[str]:
    for of in tables:
        yield from ("", f"**{escaped(of.caption)}**", "")
        yield from markdown_table(of.heads, of.rows, n_texts=of.n_texts)


def _markdown_sources(sources: Sequence[Source]) -> Iterator[str]:
    yield ""
    yield from (f"- {escaped(of.text)}" for of in sources)


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


def _latex_tables(tables: Sequence[Part]) -> Iterator[str]:
    """A table that fits a page floats; a longer one is broken between its rows."""
    for of in tables:
        n_numbers = len(of.heads) - of.n_texts
        # what a claim says has no end: its column is broken
        first = "p{0.5\\linewidth}" if of.label == "claims" else "l" * (of.n_texts > 0)
        columns = f"{{{first}{'l' * (of.n_texts - 1)}{'r' * n_numbers}}}"
        caption = f"\\caption{{{latex(of.caption)}}}\\label{{tab:{of.label}}}"
        head = ["\\hline", f"{' & '.join(map(latex, of.heads))} \\\\", "\\hline"]
        rows = [f"{' & '.join(map(latex, row))} \\\\" for row in of.rows]
        yield ""
        if len(rows) > MAX_ROWS:
            yield f"\\begin{{longtable}}{columns}"
            yield from (f"{caption} \\\\", *head, "\\endfirsthead", *head, "\\endhead")
            yield from ("\\hline", "\\endfoot", *rows)
            yield "\\end{longtable}"
        else:
            yield from ("\\begin{table}", "\\centering", caption)
            yield f"\\begin{{tabular}}{columns}"
            yield from (*head, *rows, "\\hline", "\\end{tabular}", "\\end{table}")


def _latex_sources(sources: Sequence[Source]) -> Iterator[str]:
    yield from ("", f"\\begin{{thebibliography}}{{{len(sources)}}}")
    yield from (f"\\bibitem{{{of.key}}} {latex(of.text)}" for of in sources)
    yield "\\end{thebibliography}"
