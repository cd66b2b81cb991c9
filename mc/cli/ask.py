"""The command ask: a few questions about a service, and what its retries do to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mc.cli import options
from mc.cli.report import draw_report
from mc.cli.signals import interruptible
from mc.cli.stderr import fail, progress, write_caution, write_message
from mc.cli.stdout import print_rich

if TYPE_CHECKING:
    from mc.experiment.question import Question

_QUESTIONS: Final = {
    "rate": "How many requests arrive, in a second (250/s)",
    "capacity": "How many calls can the dependency serve (400/s)",
    "fault": "What happens (45 s at 20 %; 45 s; 8 s failing 30 %; 30 s from 20 % to 100 %)",
    "layers": "Attempts of each layer that retries, the outermost first (2x3x2)",
    "deadline": "After which time is a request given up and not retried any more (300 ms, or none)",
    "timeout": "After which time does a caller give up a call that waits, to retry (1 s, or none)",
    "queue": "How much may wait at the dependency, as time at its usual capacity (20 ms, or none)",
}
"""What is asked at a terminal where an option is missing."""

_NEEDED: Final = ("rate", "capacity", "fault", "layers", "deadline")
"""The others have an answer that will do."""


def ask(
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help='Requests that arrive: "250/s".')
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(metavar="RATE", help='Calls that the dependency can serve: "400/s".'),
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(
            metavar="FAULT",
            help='What happens: "45 s" (nothing is served), "45 s at 20 %" of the capacity, '
            '"45 s at 80/s", "30 s from 20 % to 100 %" (a straight line), "8 s failing 30 %", or '
            'several, one after the other: "45 s at 20 %, 30 s from 20 % to 100 %".',
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            metavar="AxBxC",
            help="Attempts of each layer, the first included, the outermost layer first: 2x3x2.",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help='After which a request is given up, and not retried any more: "300 ms", or none.',
        ),
    ] = None,
    backoff: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Longest first wait before a retry; it doubles with each attempt, up to ten times "
            "as much, and is drawn at random up to that.",
        ),
    ] = "50 ms",
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="After which a caller gives up a call that waits at the dependency, to retry; it "
            "is served later, in vain. None by default: it waits until the deadline.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTH",
            help='How much may wait at the dependency: "20 ms" at its usual capacity, "8" calls, '
            "or none. By default 20 ms, or as many calls as a calm service needs; with --timeout "
            "three times as long as that.",
        ),
    ] = None,
    clients: Annotated[
        str,
        typer.Option(
            metavar="N", help="Clients that send the requests, each with budgets of its own."
        ),
    ] = "1",
    file: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="The experiment that is written; its results go to results/<name of FILE>.",
            callback=options.home_expanded,
        ),
    ] = Path("question.toml"),
    jobs: options.Jobs = None,
    no_report: options.NoReport = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer a few questions, and see what retries do to a service.

    Questions that no option answers are asked at the terminal. The experiment that answers them is
    written to FILE, with comments, and run: the present policy and others that might be better,
    under the same traffic. `retrystorm run FILE` runs it again after any change.
    """
    from mc.experiment.question import AskError, experiment_text

    given = {
        "rate": rate,
        "capacity": capacity,
        "fault": fault,
        "layers": layers,
        "deadline": deadline,
        "timeout": timeout,
        "queue": queue,
    }
    question = _question(given, backoff, clients)
    try:
        text = experiment_text(question, str(file))
    except AskError as error:
        fail(str(error), 2)
    _write(file, text)
    told = "stopped; what was done is saved: run the same command again to go on"
    with interruptible(told, "scipy.special", quiet=quiet):
        from mc import reports, runner
        from mc.cli.answer_text import answer
        from mc.cli.screen import terminal_width

        with progress(quiet) as show:
            results = runner.run(
                file, jobs=jobs, progress=show, say=write_caution if quiet else write_message
            )
        storm, width = reports.storm_of(results), terminal_width()
        print_rich(answer(question, results, storm, file, width), width)
        if not no_report:
            draw_report(results, quiet, storm)


def _question(given: dict[str, str | None], backoff: str, clients: str) -> Question:
    """Read the answers that were given, and ask for the others where one is needed."""
    from mc.experiment import question as questions

    missing = [name for name in _NEEDED if given[name] is None]
    if missing and not _has_terminal():
        fail(
            f"{', '.join(f'--{name}' for name in missing)}: "
            f"{'is' if len(missing) == 1 else 'are'} needed where there is no terminal to ask at",
            2,
        )
    read: dict[str, Any] = {}
    readers: dict[str, Callable[[str], Any]] = {
        "rate": questions.read_rate,
        "capacity": questions.read_rate,
        "fault": lambda text: questions.read_faults(text, read["capacity"]),
        "layers": questions.read_layers,
        "deadline": questions.read_deadline,
    }
    for name, reader in readers.items():
        read[name] = _read(name, given[name], reader)
    read["faults"] = read.pop("fault")
    longest = _read("backoff", backoff, questions.read_time)
    if given["timeout"] or missing:
        read["timeout"] = _read("timeout", given["timeout"], questions.read_deadline, "none")
    n_clients = _read("clients", clients, questions.read_clients)
    question = questions.Question(**read, backoff=(longest, 10 * longest), clients=n_clients)
    if given["queue"] or missing:
        usual = f"{question.queue} calls"
        room = _read(
            "queue",
            given["queue"],
            lambda text: questions.read_queue(text, read["capacity"]),
            usual,
        )
        question = replace(question, room=room)
    if question.timeout is not None and not question.queue:
        fail("--queue: with --timeout some calls must be able to wait", 2)
    return question


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _read(
    name: str, text: str | None, reader: Callable[[str], Any], usual: str | None = None
) -> Any:
    """Read an answer; one that was typed at a terminal may be wrong at first."""
    from mc.experiment.question import AskError

    while True:
        answer = text
        if answer is None:
            answer = typer.prompt(_QUESTIONS[name], err=True, default=usual)
        try:
            return reader(answer)
        except AskError as error:
            if text is not None:
                fail(f"--{name}: {error}", 2)
            write_message(str(error))


def _write(file: Path, text: str) -> None:
    """Write the experiment; one that is there is kept, and must be the same."""
    if file.suffix != ".toml":
        fail(f"--file: the name must end in .toml, got {file}", 2)
    try:
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
        except FileExistsError:
            if file.read_text("utf-8") != text:
                fail(
                    f"{file}: is there already, with another question; give --file another name", 2
                )
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}", 2)
