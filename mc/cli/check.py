"""The command check: what an experiment file spans, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mc.cli import options
from mc.cli.formats import Facts, print_facts
from mc.cli.readable import first_three, size
from mc.cli.result_tables import known_to
from mc.cli.stderr import errors_as_messages, progress_lines, write_message

if TYPE_CHECKING:
    from mc.experiment import Claim, Experiment
    from mc.model import Cell, Parameter
    from mc.model.waits import Wait

MANY_CELLS: Final = 10_000
"""From so many on it is said how much memory they take."""

MAX_CHAINS: Final = 12
"""Chains whose waits are printed; a grid may have thousands."""

OF_WAITS: Final = (
    *("tries", "chain", "backoff_base", "backoff_factor", "backoff_cap", "jitter", "jitter_share"),
    *("first_wait", "deadline", "queue", "timeout", "rounds_per_second"),
)
"""Parameters on which waits depend."""

MAX_VALUES: Final = 8
"""Values of a parameter that are printed."""

MAX_WAITS: Final = 6
"""Waits of a layer that are printed; of more the first ones and the last."""


def check(
    file: options.File,
    replications: options.Replications = None,
    seed: options.Seed = None,
    settings: options.Settings = None,
    form: options.Format = "table",
) -> None:
    """Check an experiment file, and say what it spans.

    Nothing is run. All faults are reported at once, each with its place. `plan` says what a run
    would cost.
    """
    from mc import experiment as experiments
    from mc.store import check_run

    with errors_as_messages():
        overrides = options.name_values(settings)
        experiment = experiments.read(
            file,
            replications=replications,
            seed=seed,
            overrides=overrides,
            progress=progress_lines("cells"),
        )
        check_run(file, len(experiment.points))
        for remark in (*experiment.remarks, *experiment.hints):
            write_message(f"{file}: {remark}")
        print_facts(_facts(experiment), form)


def _facts(experiment: Experiment) -> Facts:
    from mc.store import of_run

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
    claims = [_claim_text(claim, experiment.source) for claim in experiment.claims]
    parameters = _parameters(experiment)
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
            "parameters": parameters,
            "longest_lives": _lives(experiment),
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
            **{name: _axis_values(source, name, values) for name, values in axes.items()},
            "design": _design_text(source),
            "cells": product
            + (f" - {n_left_out:,} left out" if n_left_out else "")
            + f" = {n_cells:,}",
            "replications": f"{at_most}{experiment.replications:,} of each cell",
            "until": _stopping_rule(experiment),
            "rows": f"{at_most}{n_rows:,}",
            "memory": f"about {size(of_run(n_cells))}" if n_cells >= MANY_CELLS else "",
            "draws": f"generator {experiment.generator}, {drawn}",
            "published": f"{len(experiment.published):,} figures" if experiment.published else "",
            "claims": "\n".join(claims),
            "parameters": "\n".join(parameters),
            "waits": "\n".join(_wait_lines(experiment)),
        },
        wrap=True,
        after=("No fault was found; nothing was run.",),
    )


def _axis_values(source: Mapping[str, Any], name: str, values: list[Any]) -> str:
    from mc.experiment.messages import values_text
    from mc.model import PARAMETERS
    from mc.model.digits import axis_text

    has_tables = bool(PARAMETERS[name].kind.tables) and any(isinstance(x, str) for x in values)
    if name not in source.get("in_units", ()) and not has_tables:
        return values_text(values)
    return ", ".join(axis_text(source, name, value) for value in values)


def _parameters(experiment: Experiment) -> list[str]:
    """Every parameter with its value for a reader; defaults are marked, and what varies."""
    from mc.model import PARAMETERS, units

    lines = []
    for name, parameter in PARAMETERS.items():
        values = dict.fromkeys(
            (getattr(point.parameters, name), point.parameters.rounds_per_second)
            for point in experiment.points
        )

        def text_of(value: Any, per_second: float, of: Parameter = parameter) -> str:
            text = units.text_of(of.dimension, value, per_second, of.unit)
            is_length = of is PARAMETERS["rounds_per_second"]  # which a file may give as `round`
            return f"{text}, rounds of {units.format_time(1 / per_second)}" if is_length else text

        texts = list(dict.fromkeys(text_of(*value) for value in values))
        if len(texts) == 1:
            lines.append(f"{name} {texts[0]}" + ("" if name in experiment.given else " (default)"))
            continue
        shown = "; ".join(texts)
        if len(texts) > MAX_VALUES:
            shown = f"{texts[0]}; ...; {texts[-1]} ({len(texts):,} values)"
            if all(isinstance(value, int | float) for value, _ in values):
                shown = f"{text_of(*min(values))} to {text_of(*max(values))}"
        lines.append(f"{name} {shown} ({_varied_by(experiment.source, name)})")
    return lines


def _varied_by(source: Mapping[str, Any], name: str) -> str:
    """What gives a parameter several values."""
    kinds = [kind for kind in ("scenario", "policy") if any(name in at for at in source[kind])]
    axes = [axis["name"] for axis in source["grid"]]
    return f"by {' and '.join(kinds) or ('the grid' if name in axes else 'the design')}"


def _lives(experiment: Experiment) -> dict[str, float | None]:
    """The longest time that a request can live in each policy, in seconds; None: no limit."""
    lives: dict[str, float] = {}
    for point in experiment.points:
        cell = point.parameters
        life = math.inf if cell.longest_life is None else cell.longest_life / cell.rounds_per_second
        lives[point.policy] = max(life, lives.get(point.policy, 0.0))
    return {policy: life if life < math.inf else None for policy, life in lives.items()}


def _wait_lines(experiment: Experiment) -> list[str]:
    """The waits of each layer, and how long a request can live, for each kind of chain."""
    from mc.model.digits import axis_text, layer_names

    chains: dict[str, dict[str, None]] = {}
    for point in experiment.points:
        cell = point.parameters
        values = [
            f"{name} {axis_text(experiment.source, name, value)}"
            for name, value in point.at.items()
            if name in OF_WAITS
        ]
        named = ", ".join([*([] if point.policy == "default" else [point.policy]), *values])
        if cell.max_attempts > 1:
            names = layer_names(experiment.source, len(cell.layers))
            text = _chain_text(cell, names)
            chains.setdefault(text, {})[named or point.scenario] = None
    lines = [
        f"{next(iter(names))}{f' and {len(names) - 1:,} more' if len(names) > 1 else ''}: {text}"
        for text, names in list(chains.items())[:MAX_CHAINS]
    ]
    return lines + ([f"and {len(chains) - MAX_CHAINS:,} more"] if len(chains) > MAX_CHAINS else [])


def _chain_text(cell: Cell, names: Sequence[str]) -> str:
    from mc.model import units, waits

    layers, per_second = cell.layers, cell.rounds_per_second

    def time(rounds: float) -> str:
        return units.format_time(rounds / per_second)

    texts = []
    for layer, name in zip(layers, names, strict=True):
        if layer.tries > 1:
            own = "waits" if len(layers) == 1 else f"{name} waits"
            within = "" if layer.deadline is None else f" within {time(layer.deadline)}"
            texts.append(f"{own} {_waits_text(waits.waits_of(layer), per_second)}{within}")
    life = cell.longest_life
    lives = "as long as its calls wait in the queue" if life is None else f"up to {time(life)}"
    included = " with its time-outs" if cell.queue and cell.timeout is not None else ""
    return f"{'; '.join(texts)}; a request lives {lives}{included}"


def _waits_text(listed: Sequence[Wait], per_second: float) -> str:
    """The waits of a layer, each with its shortest and its longest time."""
    from mc.model import units

    from_zero = all(wait.offset == 0 for wait in listed)
    texts = []
    for wait in listed:
        least, most = (
            units.format_time(n / per_second)
            for n in (max(1, math.ceil(wait.offset)), wait.longest)
        )
        texts.append(most if from_zero or least == most else f"{least} to {most}")
    if len(texts) > MAX_WAITS:
        texts = [*texts[: MAX_WAITS - 2], "...", f"{texts[-1]} ({len(texts)} waits)"]
    return f"{'up to ' if from_zero else ''}{', '.join(texts)}"


def _design_text(source: Mapping[str, Any]) -> str:
    from mc.model.digits import axis_text

    design = source["design"]
    if design is None:
        return ""
    ranges = (
        f"{r['name']} {axis_text(source, r['name'], r['from'])} to "
        f"{axis_text(source, r['name'], r['to'])}" + (" (log)" if r["scale"] == "log" else "")
        for r in design["ranges"]
    )
    return f"{design['kind']}, {design['points']:,} points over {', '.join(ranges)}"


def _stopping_rule(experiment: Experiment) -> str:
    """When a cell has enough replications; empty where their number is fixed."""
    from mc.model import digits

    precision = experiment.source["precision"]
    if precision is None:
        return ""
    stages = ", ".join(f"{n:,}" for n in experiment.stages[:3])
    if len(experiment.stages) > 3:
        stages += f", ..., {experiment.stages[-1]:,}"
    known = known_to(precision, digits.readers_second(experiment.source), " of the mean")
    return f"{known}; looked at after {stages} replications"


def _claim_text(claim: Claim, source: Mapping[str, Any]) -> str:
    """The text of a claim, and what it compares."""
    return f"{claim.text} ({', '.join(_compared(claim, source))})"


def _compared(claim: Claim, source: Mapping[str, Any]) -> Iterator[str]:
    from mc.model import digits

    def number(value: float) -> str:
        return digits.number_text(value, claim.metrics, digits.readers_second(source))

    if claim.scenario != "default":
        yield claim.scenario
    metrics = " & ".join(claim.metrics)
    if claim.value is None:
        times = "" if claim.times == 1 else f"{claim.times:g} x "
        within = "" if claim.margin is None else f" within {number(claim.margin)}"
        yield f"{metrics}: " + f" {claim.relation} {times}".join(claim.labels) + within
    elif isinstance(claim.value, tuple):
        low, high = claim.value
        yield f"{metrics}: {', '.join(claim.labels)} between {number(low)} and {number(high)}"
    else:
        yield f"{metrics}: {', '.join(claim.labels)} {claim.relation} {number(claim.value)}"
