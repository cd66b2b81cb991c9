"""The command line: parses, calls one function, prints. Data go to stdout, all else to stderr."""

from __future__ import annotations

import io
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

# Everything else is imported where it is used: numba and polars would cost `--help` a second.
if TYPE_CHECKING:
    import polars as pl

    from mc.runner import Plan, Verification
    from mc.store import Results, Status

app = typer.Typer(
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # a bug keeps its plain traceback
    help="Rerun a retry-storm model for thousands of seeds at every point of a grid, and say of "
    "each number how large it is, how sure that is, and whether a claim survives other seeds.",
)

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C or SIGTERM, as shells have it."""

HEADLINE: Final[dict[str, tuple[str, int]]] = {
    "calls": ("calls", 0),
    "multiplier": ("multi-\nplier", 2),
    "peak": ("peak", 0),
    "successful": ("success-\nful", 0),
    "dropped": ("dropped", 0),
    "window_rate": ("window\nrate", 2),
    "times_usual": ("times\nusual", 1),
}
"""Metrics of the table that a run prints, in the lesson's order: the head of the column, and the
decimals of the value in a single replication."""

RECOVERY: Final[dict[str, tuple[str, int]]] = {
    "wait_mean": ("mean\nwait", 2),
    "wait_max": ("longest\nwait", 0),
    "late": ("late", 0),
    "second_peak": ("second\npeak", 0),
    "drain": ("drain", 0),
}
"""Metrics of the second table: what the callers wait, and what follows the fault."""

HEADS: Final = HEADLINE | RECOVERY

CELLS_SHOWN: Final = 40
"""Cells whose tables are printed unasked; a sweep is read from its files."""

_MOST_DIFFERENCES: Final = 20

stderr = Console(stderr=True, highlight=False)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(code)


@contextmanager
def _faults() -> Iterator[None]:
    """Turn what the user can mend into a message and an exit code."""
    from mc.experiment import ExperimentError
    from mc.runner import ClusterError
    from mc.store import FolderError

    try:
        yield
    except (ExperimentError, FolderError, ClusterError) as error:
        _fail(str(error), 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}; once that is mended, the same command goes on", 1)


@contextmanager
def _on_signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM, unless whoever started us has them ignored."""
    previous = {
        number: signal.signal(number, handler)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_at_once(signum: int, frame: object) -> None:
    """End the process: an exception can get lost where compiled code imports something."""
    os.write(2, b"stopped before anything was done\n")
    os._exit(INTERRUPTED)


@contextmanager
def _told_of_compiling() -> Iterator[None]:
    """Say so when the kernel is compiled: that takes longer than all other imports together."""
    from numba.core import event

    class Teller(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                kept = event.data["dispatcher"].stats.cache_path is not None
                typer.echo(f"compiling the kernel{' (once)' if kept else ''}", err=True)
            self.told = True

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Teller()):
        yield


def _import_all() -> None:
    """Import what a run needs, while an interrupt can still end it on the spot."""
    with _on_signals(_end_at_once), _told_of_compiling():
        for room in ("mc.runner", "mc.statistics"):
            import_module(room)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"retrystorm {version('retrystorm')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options before the command."""


def _parse_overrides(settings: Sequence[str]) -> dict[str, str]:
    overrides = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            _fail(f"--set: must be name=value, got {setting!r}", 2)
        if name.strip() in overrides:
            _fail(f"--set: {name.strip()} is given twice", 2)
        overrides[name.strip()] = value.strip()
    return overrides


# What `run` and `plan` have in common.
_File = Annotated[Path, typer.Argument(help="The experiment: a TOML file.", show_default=False)]
_Out = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Results folder, or a URL: s3://bucket/folder.  [default: results/<name of FILE>]",
        show_default=False,
    ),
]
_Replications = Annotated[
    int | None,
    typer.Option(help="Replications of every cell, in place of the file's.", min=1),
]
_Seed = Annotated[int | None, typer.Option(help="Seed, in place of the file's.")]
_Jobs = Annotated[
    int | None,
    typer.Option(help="Threads; results do not depend on it.  [default: all cores]", min=1),
]
_Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of every cell, in place of the file's; may be repeated.",
    ),
]
_Force = Annotated[
    bool, typer.Option("--force", help="Start afresh in a folder that holds other results.")
]
_Folder = Annotated[
    str, typer.Argument(help="A results folder, or the URL of one.", show_default=False)
]


@app.command()
def run(
    file: _File,
    out: _Out = None,
    replications: _Replications = None,
    seed: _Seed = None,
    jobs: _Jobs = None,
    settings: _Settings = None,
    force: _Force = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would cost, as `plan` does.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Do only the K-th of N parts of the work, beside processes that do the others, "
            "on this machine or on others that share the folder; then use merge.",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A Dask scheduler, tcp://host:8786, whose workers make the rows and write them "
            "into the results folder, which all machines must share.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run an experiment, or finish a run that was stopped, and print its results.

    Every cell of FILE is simulated for all replications; rows, summary, comparisons and claims
    are written to the results folder as Parquet. The same command continues a run that was
    stopped, and does nothing but print if it is finished.

    If FILE has a [precision] in place of replications, these grow in stages until the numbers
    are known as precisely as asked; with --shard each call does the current stage.
    """
    work = _plan_and_print if dry_run else _run_and_print
    try:
        with _on_signals(_interrupt):
            _import_all()
            part = _part(shard, force)
            if part is not None and dry_run:
                _fail("--shard and --dry-run exclude each other: a plan is of the whole run", 2)
            options: dict[str, Any] = {} if part is None else {"shard": part}
            if scheduler is not None:
                if part is not None or jobs is not None or dry_run:
                    _fail("--scheduler goes without --jobs, --shard and --dry-run", 2)
                # Dask tells at length of each connection that is lost; what matters of it we say
                logging.disable(logging.ERROR)
                options["scheduler"] = scheduler
            work(
                file,
                out,
                replications=replications,
                seed=seed,
                jobs=jobs,
                overrides=_parse_overrides(settings or []),
                force=force,
                **options,
            )
    except KeyboardInterrupt:
        _fail("stopped; what was done is saved: the same command continues", INTERRUPTED)


def _run_and_print(file: Path, out: str | None, **options: Any) -> None:
    from mc import runner

    with _faults():
        with _progress() as progress:
            results = runner.run(
                file,
                out,
                progress=progress,
                say=lambda message: typer.echo(message, err=True),
                **options,
            )
        if "shard" not in options:
            _print_results(results)


def _part(text: str | None, force: bool) -> tuple[int, int] | None:
    """Read K/N."""
    if text is None:
        return None
    k, slash, n = text.partition("/")
    if not slash or not (k.isdecimal() and n.isdecimal()) or not 1 <= int(k) <= int(n):
        _fail(f"--shard: must be K/N with whole numbers 1 <= K <= N, got {text!r}", 2)
    if force:
        _fail("--shard and --force exclude each other: it would remove what the others make", 2)
    return int(k), int(n)


@app.command()
def merge(
    file: _File,
    out: _Out = None,
    replications: _Replications = None,
    seed: _Seed = None,
    settings: _Settings = None,
) -> None:
    """Finish a run that was done in parts, by run --shard, and print its results.

    The tables are made from the rows that are there. If some are missing, merge says which and
    changes nothing: it simulates nothing itself. The options are those that the parts were given.
    """
    try:
        with _on_signals(_interrupt):
            _import_all()
            from mc import runner

            with _faults():
                results = runner.merge(
                    file,
                    out,
                    replications=replications,
                    seed=seed,
                    overrides=_parse_overrides(settings or []),
                    say=lambda message: typer.echo(message, err=True),
                )
                _print_results(results)
    except KeyboardInterrupt:
        _fail("stopped; the same command starts again", INTERRUPTED)


@app.command()
def plan(
    file: _File,
    out: _Out = None,
    replications: _Replications = None,
    seed: _Seed = None,
    jobs: _Jobs = None,
    settings: _Settings = None,
    force: _Force = False,
) -> None:
    """Say what a run would cost: rows, files, bytes, time. Nothing is written.

    The options are those of `run`. A little of the run is done to see how long it takes on this
    machine; what the results folder has already is not counted again.
    """
    run(file, out, replications, seed, jobs, settings, force, dry_run=True)


def _plan_and_print(file: Path, out: str | None, **options: Any) -> None:
    from mc import runner

    with _faults():
        _print_lines(_plan_lines(runner.plan(file, out, **options)))


@app.command()
def show(
    folder: _Folder,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Every cell, not only the first {CELLS_SHOWN}.")
    ] = False,
) -> None:
    """Print the tables of a finished run again."""
    from mc import store

    with _faults():
        _print_results(store.load(folder), everything=everything)


@app.command()
def status(folder: _Folder) -> None:
    """Say how far a run is; it may be at work, or stopped, or finished.

    Nothing is changed, and no file is checked but for what it says of itself: see `verify`.
    """
    from mc import store

    with _faults():
        _print_lines(_status_lines(store.status(folder)))


@app.command()
def verify(
    folder: _Folder,
    every: Annotated[
        bool, typer.Option("--all", help="Make every row once more, not a random sample.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="How long to go on with the random sample.", min=0.0)
    ] = 3.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Draws the same sample again.  [default: a fresh sample]", min=0),
    ] = None,
    jobs: _Jobs = None,
) -> None:
    """Check that a results folder is what it says.

    Every file is compared with its hash, and rows are made once more, from nothing but what the
    folder says of them, and compared with those in it. Exit code 1 if anything differs.
    """
    try:
        with _on_signals(_interrupt):
            _import_all()
            from mc import runner

            with _faults():
                with _progress() as progress:
                    found = runner.verify(
                        folder,
                        all_rows=every,
                        seconds=seconds,
                        seed=seed,
                        jobs=jobs,
                        progress=progress,
                    )
                _print_lines(_verify_lines(found))
    except KeyboardInterrupt:
        _fail("stopped before the end: nothing can be said of the folder", INTERRUPTED)
    if not found.ok:
        raise typer.Exit(1)


# --- progress ------------------------------------------------------------------------------------

_LINE_SECONDS: Final = 5.0


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show progress on stderr: a bar on a terminal, else a line every few seconds."""
    if stderr.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=stderr, transient=True) as bar:
            task = bar.add_task("rows", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return
    started = last = time.monotonic()
    first: int | None = None

    def line(done: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first is None else first
        if now - last < _LINE_SECONDS:
            return
        last = now
        seconds_left = (now - started) * (total - done) / max(done - first, 1)
        typer.echo(f"{done:,} of {total:,} rows, {_duration(seconds_left)} left", err=True)

    yield line


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _in_words(seconds: float) -> str:
    """A time that was estimated: two digits of it count."""
    if seconds < 60:
        return f"{float(f'{seconds:.2g}'):g} s"
    return _duration(seconds)


# --- what is before and after a run ---------------------------------------------------------------


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield plan.title
    yield from _labelled(
        {
            "cells": f"{plan.n_cells:,}",
            "replications": f"{plan.most}{plan.replications:,} of each cell",
            "rows": f"{plan.most}{plan.n_rows:,}"
            + (f", of which {plan.n_done:,} are there" if plan.n_done else ""),
            "shards": f"{plan.n_shards:,}",
            "on disk": f"about {_size(plan.n_bytes)}"
            + (f", of which {_size(plan.n_bytes_there)} are there" if plan.n_bytes_there else ""),
            "time": "none: it is finished"
            if plan.finished
            else f"about {_in_words(plan.seconds)} on {_threads(plan)}; "
            f"{_in_words(plan.core_seconds + plan.table_seconds)} on one core",
            "results": str(plan.folder),
        }
    )
    yield "Nothing was written."


def _threads(plan: Plan) -> str:
    threads = f"{plan.jobs} thread{'s' if plan.jobs > 1 else ''}"
    return threads if plan.jobs == plan.n_cores else f"{threads} and {plan.n_cores} cores"


def _status_lines(status: Status) -> Iterator[str]:
    yield status.manifest["title"]
    share = status.n_done / status.n_rows
    yield from _labelled(
        {
            "state": _state(status),
            "rows": f"{status.n_done:,} of {status.n_rows:,} "
            f"({math.floor(1000 * share) / 10:.1f} %), {status.n_missing:,} are missing",
            "shards": f"{status.n_shards:,}, {_size(status.n_bytes)}",
            "put aside": f"{status.n_rejected:,} files (in rejected/)" if status.n_rejected else "",
            "not of it": ", ".join(path.name for path in status.faulty),
            "tables": ", ".join(status.tables) or "none yet",
            "time left": ""
            if status.seconds_left is None
            else f"about {_in_words(status.seconds_left)}",
            "results": str(status.folder),
        }
    )


def _state(status: Status) -> str:
    if (holder := status.holder) is None:
        if not status.complete:
            return "not finished; the command that began it continues"
        seconds = status.manifest["seconds"]
        return f"finished, in {_in_words(seconds)}"
    who = f"process {holder.pid} on {holder.host}"
    if holder.alive is False:
        return f"stopped: {who} is gone; the command that began it continues"
    return f"at work: {who}, since {holder.started}" + ("" if holder.alive else " (or was)")


def _verify_lines(found: Verification) -> Iterator[str]:
    yield from found.faults
    for line in found.differences.head(_MOST_DIFFERENCES).iter_rows(named=True):
        stored, recomputed = (
            "NULL" if line[name] is None else line[name] for name in ("stored", "recomputed")
        )
        yield (
            f"{line['file']}: cell {line['cell']}, replication {line['replication']}: "
            f"{line['counter']} is {stored}, made once more {recomputed}"
        )
    if found.differences.height > _MOST_DIFFERENCES:
        yield f"... and {found.differences.height - _MOST_DIFFERENCES:,} further differences"
    n_wrong = found.differences.select("cell", "replication").n_unique()
    drawn = "" if found.n_checked == found.n_rows else f", drawn with seed {found.seed}"
    yield from _labelled(
        {
            "files": f"{found.n_files:,} as they were written"
            + (f", {len(found.faults):,} faults" if found.faults else ""),
            "rows": f"{found.n_checked:,} of {found.n_rows:,} made once more{drawn}: "
            + (f"{n_wrong:,} differ" if n_wrong else "all equal"),
            "results": str(found.folder) + ("" if found.complete else " (not finished)"),
        }
    )


def _labelled(entries: Mapping[str, str]) -> Iterator[str]:
    """A line for each entry that has something to say."""
    width = max(map(len, entries))
    return (f"  {label:<{width}}  {text}" for label, text in entries.items() if text)


def _size(n_bytes: float) -> str:
    """A number of bytes, in units of a thousand."""
    power = min(4, max(0, int(math.log10(max(n_bytes, 1)) // 3)))
    number = n_bytes / 1000**power
    digits = f"{number:.0f}" if number >= 100 or power == 0 else f"{float(f'{number:.2g}'):g}"
    return f"{digits} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _print_lines(lines: Iterator[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    with _to_stdout():
        sys.stdout.write(text)


# --- tables --------------------------------------------------------------------------------------


def _print_results(results: Results, *, everything: bool = False) -> None:
    """Print all tables; nothing if one of them cannot be read."""
    console = Console(highlight=False)
    with _to_stdout():
        with console.capture() as captured:  # at the end of which rich writes, too
            _render_results(console, results, everything)
        sys.stdout.write(captured.get())


@contextmanager
def _to_stdout() -> Iterator[None]:
    """End without a traceback if stdout cannot take what is written to it."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:  # of stdout: a file that cannot be read is a `FolderError`
        # what is still in the buffer would fail a second time when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            raise typer.Exit(1) from error
        _fail(f"stdout: {error.strerror}", 1)


def _render_results(console: Console, results: Results, everything: bool) -> None:
    import polars as pl

    manifest = results.manifest
    counts = results.cells["replications"].unique().sort().to_list()
    n = counts[-1]
    seeds = manifest["experiment"]["seeds"]
    drawn = f"seed {manifest['seed']}" if seeds is None else f"seeds {_some(seeds)}"
    console.print(
        Text(
            f"{manifest['title']}: {manifest['n_cells']} cells x {_span(counts)} replications, "
            f"generator {manifest['generator']}, {drawn}"
        )
    )
    precision = manifest["experiment"]["precision"]
    if precision is not None:
        console.print(Text(_stopping_rule(precision, results.cells)))
    figures = results.summary.filter(pl.col("published").is_not_null())
    if n > 1:
        console.print(
            "Mean over replications, with the half-width of its 95 % interval (each alone)."
        )
        if figures.height:
            console.print(
                "Published figure, and the percentage of replications below it (ties count half)."
            )
    shown = results.cells if everything else results.cells.head(CELLS_SHOWN)
    for (scenario,), cells in shown.group_by("scenario", maintain_order=True):
        here = cells["replications"].unique().sort().to_list()
        differs = len(here) > 1
        estimates: dict[int, dict[str, Any]] = {}
        some = results.summary.filter(pl.col("cell").is_in(cells["cell"].implode()))
        for estimate in some.iter_rows(named=True):
            estimates.setdefault(estimate["cell"], {})[estimate["metric"]] = estimate
        named = {
            _name(cell, manifest): cell
            | {"n_shown": f", {cell['replications']:,} replications" if differs else ""}
            | estimates[cell["cell"]]
            for cell in cells.iter_rows(named=True)
        }
        head = f"{scenario} ({_span(here)} replications)" if len(counts) > 1 else str(scenario)
        for title, wanted in ((head, HEADLINE), (f"{scenario}: waits and recovery", RECOVERY)):
            metrics = [m for m in wanted if any(cell[m]["n"] for cell in named.values())]
            if n > 1:
                console.print(Text(f"\n{title}", "bold underline"))
                for line in _mean_lines(named, metrics):
                    console.print(line, crop=False)
            elif wanted is HEADLINE:
                console.print(Text(f"\n{title}", "bold underline"))
                console.print(_fitted(_single_table(named, metrics), console), crop=False)
    if shown.height < results.cells.height:
        console.print(
            f"\n{results.cells.height - shown.height} more cells: "
            f"retrystorm show {results.folder} --all, or read summary.parquet"
        )
    if n == 1 and figures.height:
        same = figures.filter(pl.col("published_percentile") == 50.0).height
        console.print(f"{same} of {figures.height} published figures are reproduced.")
    if results.claims.height:
        console.print(_claims_table(results.claims))
    console.print(_unbroken(f"Results: {results.folder}"), crop=False)


def _span(numbers: Sequence[int]) -> str:
    """Write one number, or the first and the last of several."""
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def _stopping_rule(precision: Mapping[str, Any], cells: pl.DataFrame) -> str:
    """Say what the replications depended on, and whether that was reached."""
    widths = [f"{100 * precision['relative']:g} %"] if precision["relative"] else []
    widths += [f"{precision['absolute']:g}"] if precision["absolute"] else []
    n_short = cells["stopped_by"].to_list().count("max")
    return (
        f"Replications until {', '.join(precision['metrics'])} "
        f"{'are' if len(precision['metrics']) > 1 else 'is'} known to {' or '.join(widths)} "
        f"({100 * precision['confidence']:g} % intervals), at most {precision['max']:,}: "
        + ("reached in all cells." if n_short == 0 else f"not reached in {n_short:,} cells.")
    )


def _some(numbers: Sequence[int]) -> str:
    more = ", ..." if len(numbers) > 3 else ""
    return ", ".join(map(str, numbers[:3])) + more


def _unbroken(text: str, style: str = "") -> Text:
    """Text that is neither wrapped nor cut off."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def _name(cell: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Policy and place on the grid; an absent axis of policies is not named beside a grid."""
    design = manifest["experiment"]["design"] or {"ranges": []}
    axes = [axis["name"] for axis in (*manifest["experiment"]["grid"], *design["ranges"])]
    places = [f"{axis} {_plain(cell[axis])}" for axis in axes]
    named = cell["policy"] != "default" or not places
    return ", ".join([cell["policy"], *places] if named else places)


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _single_table(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> Table:
    """One replication: a line of values for each cell, in the lesson's layout.

    Published figures are shown only where one differs.
    """
    from mc.statistics import MISSING, to_fixed

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("policy", overflow="fold")
    table.add_column("max at-\ntempts", justify="right")
    for metric in metrics:
        table.add_column(HEADS[metric][0], justify="right", no_wrap=True)
    for name, cell in cells.items():
        values, published = (
            [
                none if e[key] is None else to_fixed(e[key], HEADS[e["metric"]][1])
                for e in (cell[metric] for metric in metrics)
            ]
            for key, none in (("mean", MISSING), ("published", ""))
        )
        table.add_row(name, str(cell["max_attempts"]), *values)
        if any(p not in ("", v) for p, v in zip(published, values, strict=True)):
            table.add_row("  published", "", *published)
    return table


def _fitted(table: Table, console: Console) -> Table:
    """Let the first column take what the others leave of the screen, but at least 8 characters."""
    names = table.columns[0]
    longest = max(cell_len(str(name)) for name in names.cells)
    wide = console.options.update(max_width=10_000)
    others = Measurement.get(console, wide, table).maximum - longest
    names.width = max(8, min(longest, console.width - others))
    table.width = others + names.width
    return table


def _mean_lines(cells: Mapping[str, dict[str, Any]], metrics: Sequence[str]) -> Iterator[Text]:
    """Many replications: below each cell's name a line of means, of half-widths, and so on.

    The name has a line of its own, so that seven columns of numbers fit 80 characters.
    """
    from mc.statistics import MISSING, format_estimate

    blocks = {}
    for name, cell in cells.items():
        estimates = [cell[metric] for metric in metrics]
        pairs = [format_estimate(e["mean"], _half_width(e)) for e in estimates]
        lines = {"mean": [mean for mean, _ in pairs], "±": [error for _, error in pairs]}
        if any(e["published"] is not None for e in estimates):
            lines["published"] = [
                "" if e["published"] is None else f"{e['published']:g}" for e in estimates
            ]
            lines["percentile"] = [
                ""
                if e["published"] is None
                else MISSING
                if e["published_percentile"] is None
                else f"{e['published_percentile']:.1f}"
                for e in estimates
            ]
        blocks[f"{name} (max_attempts {cell['max_attempts']}{cell['n_shown']})"] = lines
    widths = [
        max(
            *(len(line) for line in HEADS[metric][0].split("\n")),
            *(len(line[i]) for lines in blocks.values() for line in lines.values()),
        )
        for i, metric in enumerate(metrics)
    ]

    def line(label: str, entries: Sequence[str], style: str = "") -> Text:
        columns = (f"{entry:>{width}}" for entry, width in zip(entries, widths, strict=True))
        return _unbroken(f"  {label:<10}  " + "  ".join(columns), style)

    heads = [("\n" + HEADS[metric][0]).split("\n")[-2:] for metric in metrics]
    for i in range(2):
        yield line("", [head[i] for head in heads])
    for title, lines in blocks.items():
        yield Text(title, "bold")
        for label, entries in lines.items():
            yield line(label, entries, "" if label == "mean" else "dim")


def _half_width(estimate: Mapping[str, Any]) -> float | None:
    if estimate["ci_low"] is None:
        return None
    return float(estimate["ci_high"] - estimate["ci_low"]) / 2


def _claims_table(claims: pl.DataFrame) -> Table:
    """Share of replications in which each claim holds, mean difference, verdict."""
    from mc.statistics import format_estimate

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("claim", ratio=1, overflow="fold")
    table.add_column("holds in %\n(95 % interval)", justify="right", no_wrap=True)
    table.add_column("difference\nleft - right", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for claim in claims.iter_rows(named=True):
        estimate, error = format_estimate(claim["mean_difference"], _half_width(claim))
        share = "-"
        if claim["share"] is not None:
            share = f"{100 * claim['share']:.1f}"
            if claim["share_low"] is not None:
                share += f"\n{100 * claim['share_low']:.1f} .. {100 * claim['share_high']:.1f}"
        table.add_row(
            Text(claim["text"]),
            share,
            f"{estimate}\n± {error}" if error else estimate,
            claim["verdict"] or "-",
        )
    return table


def main() -> None:
    """Entry point of `retrystorm` and of `python -m mc`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where ± cannot be written, ? is better than none
    app(prog_name="retrystorm" if not sys.argv[0].endswith("__main__.py") else "python -m mc")
