"""The command check: what an experiment file spans, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.readable import first_three
from mc.cli.result_tables import known_to
from mc.cli.stderr import errors_as_messages, progress_lines, write_message

if TYPE_CHECKING:
    from mc.experiment import Claim, Experiment


def check(
    file: options.File,
    replications: options.Replications = None,
    seed: options.Seed = None,
    settings: options.Settings = None,
    form: options.Format = "table",
) -> None:
    """Check an experiment file and say what it spans; nothing is run.

    All faults are reported at once, each with its place. `plan` says what a run would cost.
    """
    from mc import experiment as experiments

    with errors_as_messages():
        overrides = options.name_values(settings)
        experiment = experiments.read(
            file,
            replications=replications,
            seed=seed,
            overrides=overrides,
            progress=progress_lines("cells"),
        )
        for remark in (*experiment.remarks, *experiment.hints):
            write_message(f"{file}: {remark}")
        print_facts(_facts(experiment), form)


def _facts(experiment: Experiment) -> Facts:
    from mc.experiment.messages import values_text

    source = experiment.source
    scenarios, policies = (
        [point["name"] for point in source[kind]] for kind in ("scenario", "policy")
    )
    baseline = source["baseline"]
    axes = {axis["name"]: axis["values"] for axis in source["grid"]}
    factors = {"scenarios": len(scenarios), "policies": len(policies)}
    factors |= {f"of {name}": len(values) for name, values in axes.items()}
    factors["points"] = source["design"]["points"] if source["design"] else 1
    n_cells = len(experiment.points)
    n_left_out = math.prod(factors.values()) - n_cells
    product = " x ".join(f"{n:,} {name}" for name, n in factors.items() if n > 1) or "1"
    n_rows = n_cells * experiment.replications
    at_most = "at most " if experiment.precision else ""
    seeds = experiment.seeds
    drawn = f"seed {experiment.seed}" if seeds is None else f"seeds {first_three(seeds)}"
    claims = list(map(_claim_text, experiment.claims))
    return Facts(
        title=experiment.title,
        data={
            "title": experiment.title,
            "file": experiment.path,
            "scenarios": scenarios,
            "policies": policies,
            "baseline": baseline,
            "axes": [{"name": name, "values": values} for name, values in axes.items()],
            "design": source["design"],
            "n_cells": n_cells,
            "n_left_out": n_left_out,
            "replications": experiment.replications,
            "precision": source["precision"],
            "n_rows": n_rows,
            "generator": experiment.generator,
            "seed": experiment.seed,
            "n_claims": len(claims),
            "claims": claims,
            "n_published": len(experiment.published),
        },
        texts={
            "scenarios": "\n".join(scenarios),
            "policies": "\n".join(
                f"{name} (baseline)" if name == baseline and len(policies) > 1 else name
                for name in policies
            ),
            **{name: values_text(values) for name, values in axes.items()},
            "design": _design_text(source["design"]),
            "cells": product
            + (f" - {n_left_out:,} left out" if n_left_out else "")
            + f" = {n_cells:,}",
            "replications": f"{at_most}{experiment.replications:,} of each cell",
            "until": _stopping_rule(experiment),
            "rows": f"{at_most}{n_rows:,}",
            "draws": f"generator {experiment.generator}, {drawn}",
            "published": f"{len(experiment.published):,} figures" if experiment.published else "",
            "claims": "\n".join(claims),
        },
        wrap=True,
        after=("No fault was found; nothing was run.",),
    )


def _design_text(design: Mapping[str, Any] | None) -> str:
    from mc.experiment.messages import value_text

    if design is None:
        return ""
    ranges = (
        f"{r['name']} {value_text(r['from'])} to {value_text(r['to'])}"
        + (" (log)" if r["scale"] == "log" else "")
        for r in design["ranges"]
    )
    return f"{design['kind']}, {design['points']:,} points over {', '.join(ranges)}"


def _stopping_rule(experiment: Experiment) -> str:
    """When a cell has enough replications; empty where their number is fixed."""
    precision = experiment.source["precision"]
    if precision is None:
        return ""
    stages = ", ".join(f"{n:,}" for n in experiment.stages[:3])
    if len(experiment.stages) > 3:
        stages += f", ..., {experiment.stages[-1]:,}"
    return f"{known_to(precision, ' of the mean')}; looked at after {stages} replications"


def _claim_text(claim: Claim) -> str:
    """The text of a claim, and what it compares."""
    return f"{claim.text} ({', '.join(_compared(claim))})"


def _compared(claim: Claim) -> Iterator[str]:
    if claim.scenario != "default":
        yield claim.scenario
    metrics = " & ".join(claim.metrics)
    if claim.value is None:
        times = "" if claim.times == 1 else f"{claim.times:g} x "
        within = "" if claim.margin is None else f" within {claim.margin:g}"
        yield f"{metrics}: " + f" {claim.relation} {times}".join(claim.labels) + within
    elif isinstance(claim.value, tuple):
        low, high = claim.value
        yield f"{metrics}: {', '.join(claim.labels)} between {low:g} and {high:g}"
    else:
        yield f"{metrics}: {', '.join(claim.labels)} {claim.relation} {claim.value:g}"
