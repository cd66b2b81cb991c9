"""Commands before the first run: new, check, schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mc.cli.common import (
    File,
    Replications,
    Seed,
    Settings,
    fail,
    faults,
    parse_overrides,
    print_text,
    tell,
)
from mc.cli.formats import Figures, Format, print_figures
from mc.cli.words import some

Axes = Mapping[str, list[Any]]

if TYPE_CHECKING:
    from mc.experiment import Claim, Experiment


def new(
    file: Annotated[
        Path, typer.Argument(help="The file to be made: a name.toml.", show_default=False)
    ],
) -> None:
    """Write an experiment file to start from. It runs as it is.

    What it says is explained in it. A JSON schema is put beside it, so that editors complete and
    check it without a network; a file that is there already is never written over.
    """
    from mc.experiment import SCHEMA_FILE, template

    if file.suffix != ".toml":
        fail(f"{file}: the name must end in .toml", 2)
    try:
        _write_new(file, template(file.name))
    except FileExistsError:
        fail(f"{file}: is there already; give another name", 2)
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}", 2)
    schema_file = file.with_name(SCHEMA_FILE)
    try:
        _write_new(schema_file, _schema_text())
        tell(f"{schema_file}: for editors")
    except FileExistsError:
        pass  # of a file that was made before
    except OSError as error:  # the experiment can do without
        tell(f"{schema_file}: cannot be written: {error.strerror}; editors will not know the keys")
    tell(f"{file}: edit it, then: retrystorm check {file}; retrystorm run {file}")


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)


def schema() -> None:
    """Print the JSON schema of experiment files, for editors.

    With it they complete and check what is written. Those with taplo (Even Better TOML) look for
    it where the first line of the file says: #:schema ./retrystorm.schema.json
    """
    print_text(_schema_text())


def _schema_text() -> str:
    from mc.experiment import json_schema

    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def check(
    file: File,
    replications: Replications = None,
    seed: Seed = None,
    settings: Settings = None,
    form: Format = "table",
) -> None:
    """Check an experiment file and say what it spans; nothing is run.

    All faults are told at once, each with its place. What a run would cost, `plan` says.
    """
    from mc import experiment as experiments

    with faults():
        overrides = parse_overrides(settings or [])
        found = experiments.read(file, replications=replications, seed=seed, overrides=overrides)
        for remark in (*found.remarks, *found.hints):
            tell(f"{file}: {remark}")
        print_figures(_check_figures(found), form)


def _check_figures(found: Experiment) -> Figures:
    source = found.source
    scenarios, policies = (
        [point["name"] for point in source[kind]] for kind in ("scenario", "policy")
    )
    axes = {axis["name"]: axis["values"] for axis in source["grid"]}
    n_points = source["design"]["points"] if source["design"] else 1
    n_all = len(scenarios) * len(policies) * n_points
    for values in axes.values():
        n_all *= len(values)
    n_left_out = n_all - len(found.points)
    n_rows = len(found.points) * found.replications
    most = "at most " if found.precision else ""
    seeds = f"seed {found.seed}" if found.seeds is None else f"seeds {some(found.seeds)}"
    labels = {
        "scenarios": "\n".join(scenarios),
        "policies": "\n".join(
            f"{name} (baseline)" if name == source["baseline"] and len(policies) > 1 else name
            for name in policies
        ),
        **{name: _values(values) for name, values in axes.items()},
        "design": _design(source["design"]),
        "cells": _product(len(scenarios), len(policies), axes, n_points)
        + (f" - {n_left_out:,} left out" if n_left_out else "")
        + f" = {len(found.points):,}",
        "replications": f"{most}{found.replications:,} of each cell",
        "until": _until(found),
        "rows": f"{most}{n_rows:,}",
        "draws": f"generator {found.generator}, {seeds}",
        "published": f"{len(found.published):,} figures" if found.published else "",
    }
    return Figures(
        title=found.title,
        data={
            "title": found.title,
            "file": found.path,
            "scenarios": scenarios,
            "policies": policies,
            "baseline": source["baseline"],
            "axes": [{"name": name, "values": values} for name, values in axes.items()],
            "design": source["design"],
            "n_cells": len(found.points),
            "n_left_out": n_left_out,
            "replications": found.replications,
            "precision": source["precision"],
            "n_rows": n_rows,
            "generator": found.generator,
            "seed": found.seed,
            "n_claims": len(found.claims),
            "claims": [_claim(claim) for claim in found.claims],
            "n_published": len(found.published),
        },
        labels=labels | {"claims": "\n".join(map(_claim, found.claims))},
        wrap=True,
        after=("No fault was found; nothing was run.",),
    )


def _product(
    n_scenarios: int, n_policies: int, axes: Mapping[str, list[Any]], n_points: int
) -> str:
    """The cells as a product of what is crossed; what has one point only is left out."""
    counts = {"scenarios": n_scenarios, "policies": n_policies}
    counts |= {f"of {name}": len(values) for name, values in axes.items()} | {"points": n_points}
    factors = [f"{n:,} {name}" for name, n in counts.items() if n > 1]
    return " x ".join(factors) or "1"


def _values(values: list[Any]) -> str:
    from mc.experiment.messages import values_text

    return values_text(values)


def _design(design: Mapping[str, Any] | None) -> str:
    if design is None:
        return ""
    from mc.experiment.messages import value_text

    ranges = (
        f"{r['name']} {value_text(r['from'])} to {value_text(r['to'])}"
        + (" (log)" if r["scale"] == "log" else "")
        for r in design["ranges"]
    )
    return f"{design['kind']}, {design['points']:,} points over {', '.join(ranges)}"


def _until(found: Experiment) -> str:
    """When a cell has enough replications."""
    precision = found.precision
    if precision is None:
        return ""
    widths = [f"{100 * precision.relative:g} % of the mean"] if precision.relative else []
    widths += [f"{precision.absolute:g}"] if precision.absolute else []
    verb = "are" if len(precision.metrics) > 1 else "is"
    return (
        f"{', '.join(precision.metrics)} {verb} known to {' or '.join(widths)} "
        f"({100 * precision.confidence:g} % intervals); looked at after "
        f"{_stages(found.stages)} replications"
    )


def _stages(stages: tuple[int, ...]) -> str:
    first = ", ".join(f"{n:,}" for n in stages[:3])
    return first if len(stages) <= 3 else f"{first}, ..., {stages[-1]:,}"


def _claim(claim: Claim) -> str:
    """A claim, and what is compared for it."""
    return f"{claim.text} ({', '.join(_compared(claim))})"


def _compared(claim: Claim) -> Iterator[str]:
    times = "" if claim.times == 1 else f"{claim.times:g} x "
    names = f" {claim.relation} {times}".join(claim.labels) if claim.value is None else ""
    if claim.margin is not None:
        names += f" within {claim.margin:g}"
    if claim.relation == "between" and isinstance(claim.value, tuple):
        names = f"{', '.join(claim.labels)} between {claim.value[0]:g} and {claim.value[1]:g}"
    elif claim.value is not None:
        names = f"{', '.join(claim.labels)} {claim.relation} {claim.value:g}"
    if claim.scenario != "default":
        yield claim.scenario
    yield f"{' & '.join(claim.metrics)}: {names}"
