"""The command ask: five questions about a service, and what its retries do to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    "fault": "What happens (45 s at 20 %; 45 s; 8 s failing 30 %)",
    "layers": "Attempts of each layer that retries, the outermost first (2x3x2)",
    "deadline": "After which time is a request given up (300 ms, or none)",
}


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
            '"45 s at 80/s", or "8 s failing 30 %".',
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
        typer.Option(metavar="TIME", help='When a request is given up: "300 ms", or none.'),
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
        str,
        typer.Option(
            metavar="TIME",
            help="How long a caller waits for its call, which stands in a queue at the dependency "
            "meanwhile, and is served in vain later; none where calls fail at once.",
        ),
    ] = "none",
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
    """Answer five questions, and see what retries do to a service.

    The questions that are not answered by options are asked at the terminal. The experiment that
    answers them is written to FILE, with comments, and run: the present policy and others that
    might be better, under the same traffic. `retrystorm run FILE` runs it again after any change.
    """
    from mc.experiment.question import AskError, experiment_text

    given = {
        "rate": rate,
        "capacity": capacity,
        "fault": fault,
        "layers": layers,
        "deadline": deadline,
    }
    question = _question(given, backoff, timeout)
    try:
        text = experiment_text(question, str(file))
    except AskError as error:
        fail(str(error), 2)
    _write(file, text)
    told = "stopped; what was done is saved: run the same command again to go on"
    with interruptible(told, "scipy.special", quiet=quiet):
        from mc import runner
        from mc.cli.answer_text import answer
        from mc.cli.screen import terminal_width

        with progress(quiet) as show:
            results = runner.run(
                file, jobs=jobs, progress=show, say=write_caution if quiet else write_message
            )
        width = terminal_width()
        print_rich(answer(question, results, file, width), width)
        if not no_report:
            draw_report(results, quiet)


def _question(given: dict[str, str | None], backoff: str, timeout: str) -> Question:
    """Read the answers that were given, and ask for the others."""
    from mc.experiment import question as questions

    missing = [name for name, text in given.items() if text is None]
    if missing and not _has_terminal():
        fail(
            f"{', '.join(f'--{name}' for name in missing)}: "
            f"{'is' if len(missing) == 1 else 'are'} needed where there is no terminal to ask at",
            2,
        )
    readers: dict[str, Callable[[str], Any]] = {
        "rate": questions.read_rate,
        "capacity": questions.read_rate,
        "fault": lambda text: questions.read_fault(text, read["capacity"]),
        "layers": questions.read_layers,
        "deadline": questions.read_deadline,
    }
    read: dict[str, Any] = {}
    for name, text in given.items():
        read[name] = _read(name, text, readers[name])
    longest = _read("backoff", backoff, questions.read_time)
    patience = _read("timeout", timeout, questions.read_deadline)
    return questions.Question(**read, backoff=(longest, 10 * longest), timeout=patience)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _read(name: str, text: str | None, reader: Callable[[str], Any]) -> Any:
    """Read an answer; one that was typed at a terminal may be wrong at first."""
    from mc.experiment.question import AskError

    while True:
        answer = typer.prompt(_QUESTIONS[name], err=True) if text is None else text
        try:
            return reader(answer)
        except AskError as error:
            message = f"--{name}: {error}" if text is not None else str(error)
            if text is not None:
                fail(message, 2)
            write_message(message)


def _write(file: Path, text: str) -> None:
    """Write the experiment; one that is there is kept, and must be the same."""
    if file.suffix != ".toml":
        fail(f"--file: the name must end in .toml, got {file}", 2)
    try:
        if file.exists():
            if file.read_text("utf-8") != text:
                fail(
                    f"{file}: is there already, with another question; give --file another name", 2
                )
            return
        file.write_text(text, "utf-8")
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}", 2)
