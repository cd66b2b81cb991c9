"""The command demo: the lesson's experiment, which comes with the program."""

from __future__ import annotations

from importlib.resources import as_file, files

from mc.cli import options
from mc.cli.run import run


def demo(
    out: options.Out = None,
    replications: options.Replications = None,
    jobs: options.Jobs = None,
    no_report: options.NoReport = False,
    quiet: options.Quiet = False,
) -> None:
    """Run an experiment that comes with the program.

    It puts a published lesson on retry storms to the test: 21 cells, 10,000 replications each.
    Nothing else is needed. Results go to results/lesson in the current folder.
    """
    with as_file(files("mc.experiment") / "lesson.toml") as file:
        run(
            file,
            out=out,
            replications=replications,
            jobs=jobs,
            no_report=no_report,
            quiet=quiet,
        )
