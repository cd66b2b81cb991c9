"""The command sensitivity: the same experiment with shorter rounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from mc.cli import options
from mc.cli.questions import print_answers
from mc.cli.signals import interruptible
from mc.cli.stderr import write_message

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from mc.runner.shorter import Sensitivity


def sensitivity(
    file: options.File,
    replications: options.Replications = None,
    seed: options.Seed = None,
    jobs: options.Jobs = None,
    settings: options.Settings = None,
    form: options.Format = "table",
) -> None:
    """Say how far results depend on the length of a round.

    Nothing is written. FILE is run as it is, and with rounds half as long, every time and capacity
    converted: the same system, but what arrives within a round meets its capacity together, so
    shorter rounds drop more as a rule. Where rounds of that length still decide whether a call is
    in time (`check` names such cells) they are a tenth as long. At the end it says whether runs
    recover with both, whether the order of the policies, the best of them and the verdicts of the
    claims are the same, and what changes much. The peak is that of a round, so it says how much of
    it chance within a round makes. At most 1,000 replications of each cell are made unless
    --replications asks for more.
    """
    with interruptible("stopped; run the same command again"):
        from mc import runner

        found = runner.sensitivity(
            file,
            replications=replications,
            seed=seed,
            jobs=jobs,
            overrides=options.name_values(settings),
            say=write_message,
        )
        print_answers(found.means, form, partial(_blocks, of=found))


def _blocks(found: pl.DataFrame, of: Sensitivity) -> Iterator[RenderableType]:
    from rich.text import Text

    from mc.cli.result_tables import ROUGH, is_rough
    from mc.cli.terminal_tables import table_of
    from mc.model.digits import counted, format_estimate, half_width, to_fixed
    from mc.runner.shorter import LENGTHS, place_text

    n = counted(int(found["n"].max() or 0), "replication")  # type: ignore[arg-type]
    yield f"Means of {n}, with rounds as in the file and {LENGTHS[of.times]}, and"
    yield "their difference with the half-width of its 95 % interval (each alone)."
    names = found.columns[1 : found.columns.index("metric")]
    for key, lines in found.group_by(names, maintain_order=True):
        place = dict(zip(names, map(str, key), strict=True))
        yield Text(f"\n{place_text(place)}", "bold")
        table = table_of("metric", "as given", "shorter rounds", "difference", "±", "change in %")
        for line in lines.iter_rows(named=True):
            difference, error = format_estimate(
                line["difference"], half_width({"ci_low": line["low"], "ci_high": line["high"]})
            )
            means = (
                _mean(line["mean"], line["share_defined"]),
                _mean(line["shorter_rounds"], line["shorter_rounds_share_defined"]),
            )
            unit = f", {line['unit']}" if line["unit"] in ("s", "x capacity") else ""
            change = "" if line["change"] is None else to_fixed(100 * line["change"], 1)
            error = f"~{error}" if error and is_rough(line) else error
            table.add_row(line["metric"] + unit, *means, difference, error, change)
        yield table
    if (found.select("share_defined", "shorter_rounds_share_defined").min_horizontal() < 1).any():
        yield Text("in ... %: runs in which it comes before they end; the mean is of these", "dim")
    if any(map(is_rough, found.drop_nulls("low").iter_rows(named=True))):
        yield Text(ROUGH, "dim")
    yield f"\n{of.conclusion}"


def _mean(mean: float | None, share: float) -> str:
    """A mean, and in which share of the replications there is one if not in all."""
    from mc.model.digits import format_estimate, percent

    if mean is None:
        return ""
    text, _ = format_estimate(mean, None)
    return text if share == 1 else f"{text}\nin {percent(share)} %"
