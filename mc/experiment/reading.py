"""Reading an experiment file: every table in order, then what holds between them."""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mc.experiment.axes import MAX_CELLS, Axes, n_values, read_grid, read_named
from mc.experiment.claims import Cells, Printed, read_claims, read_published
from mc.experiment.design import Design, design_points, read_design
from mc.experiment.exclude import Exclude, Remaining, check_cells, read_excludes
from mc.experiment.precision import Precision, read_precision
from mc.experiment.result import Claim, Experiment, ExperimentError, Point, Published
from mc.experiment.tables import (
    DEFAULT_SEED,
    SEEDS,
    File,
    Generator,
    keys,
    others,
    parameters,
)
from mc.experiment.words import add, hint, plain, quote
from mc.model import PARAMETERS, Cell


def read(
    path: str | Path,
    *,
    replications: int | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Experiment:
    """Read an experiment file and check all of it.

    Parameters
    ----------
    path : str or Path
        The TOML file.
    replications : int, optional
        Used instead of the file's `replications`, `seeds` or [precision].
    seed : int, optional
        Used instead of the file's `seed`; where the file lists `seeds`, alone in their place.
        The points of a design remain those of the file.
    overrides : mapping of str to str, optional
        Parameters that every cell shall share, written as in TOML (``{"tries": "[3, 3]"}``;
        a bare ``none`` is allowed). One that the file varies cannot be overridden.

    Returns
    -------
    Experiment

    Raises
    ------
    ExperimentError
        Every fault of the file and of the overrides.
    """
    data = _load(path)
    file_seed = data.get("seed")
    if (replications is not None or seed is not None) and data.pop("seeds", None) is not None:
        data["replications"] = 1  # one seed alone: replication 0 is drawn from it
    if replications is not None:
        data["replications"] = replications
        data.pop("precision", None)
    data |= {} if seed is None else {"seed": seed}
    faults: list[str] = []
    top = keys(File, data, "", faults)
    for name in others(File, data):
        cure = ": write it under [fixed]" if name in PARAMETERS else hint(name, File.model_fields)
        add(faults, "", f"unknown key {quote(name)}{cure}")
    _check_seeds(data, top, faults)
    precision = read_precision(top["precision"], faults)
    # a fault of the file's seed is reported once, there
    design_seed = file_seed if type(file_seed) is int and file_seed >= 0 else DEFAULT_SEED
    axes, design = _axes(top, design_seed, faults)
    fixed = _fixed(top["fixed"] or {}, overrides or {}, axes, faults)
    _check_axes(axes, fixed, faults)
    excludes = read_excludes(top["exclude"] or [], axes, fixed, faults)
    remaining = Remaining()
    # which cells are meant is known only if every exclude is
    if axes.n_cells <= MAX_CELLS and len(excludes) == len(top["exclude"] or []):
        remaining = check_cells(axes, fixed, excludes, top["generator"], faults)
    _check_baseline(top["baseline"], axes, remaining, faults)
    cells = Cells(axes, remaining)
    claims = read_claims(top["claim"] or [], cells, faults)
    published = read_published(top["published"] or [], cells, faults)
    if faults:
        raise ExperimentError([f"{path}: {fault}" for fault in faults])
    return _experiment(str(path), top, precision, cells, fixed, design, excludes, claims, published)


def _load(path: str | Path) -> dict[str, Any]:
    """Parse the file, floats as `Printed`."""
    try:
        # Windows editors put a byte order mark in front
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        fault = f"{path}: cannot be read: {error.strerror}{_near(Path(path))}"
        raise ExperimentError([fault]) from error
    except UnicodeDecodeError as error:
        fault = f"{path}: not a TOML file: byte {error.start} is not UTF-8"
        raise ExperimentError([fault]) from error
    try:
        return tomllib.loads(text, parse_float=Printed)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError says line and column
        raise ExperimentError([f"{path}: not a TOML file: {error}"]) from error


def _near(path: Path) -> str:
    """Suggest the nearest file beside one that is not there."""
    if path.exists():
        return ""
    names = [str(other) for other in path.parent.glob("*.toml")]
    near = difflib.get_close_matches(str(path), names, n=1)
    return f"; did you mean {quote(near[0])}?" if near else ""


def _axes(
    top: Mapping[str, Any], design_seed: int, faults: list[str]
) -> tuple[Axes, Design | None]:
    """Read all axes; ranges and designs are written out only if there are not too many cells."""
    scenario = read_named("scenario", top["scenario"], faults)
    policy = read_named("policy", top["policy"], faults)
    table = top["design"]
    design = None if table is None else read_design(table, design_seed, faults)
    n_points = 1 if design is None else design.n_points
    n_named = max(1, len(scenario)) * max(1, len(policy))
    n_cells = n_named * n_values(top["grid"] or {}) * n_points
    expand = n_cells <= MAX_CELLS
    if not expand:
        add(faults, "", f"the axes must span <= {MAX_CELLS} cells, got {n_cells}")
    grid = read_grid(top["grid"] or {}, faults, expand=expand)
    points = design_points(design if expand else None, table, faults)
    return Axes(scenario, policy, grid, points), design


def _fixed(
    table: dict[str, Any], overrides: Mapping[str, str], axes: Axes, faults: list[str]
) -> dict[str, Any]:
    """Read [fixed], the overrides in place of the file's values."""
    kept = {name: value for name, value in table.items() if name not in overrides}
    fixed = parameters(kept, "[fixed]", faults)
    for name, text in overrides.items():
        setters = axes.setters(name)
        if setters:
            places = " and by ".join(setters)
            add(faults, "--set", f"{name} is set by {places}: change it in the file")
        else:
            fixed |= parameters({name: _toml_value(text)}, "--set", faults)
    return fixed


def _toml_value(text: str) -> object:
    """Parse one TOML value; what is none, such as a bare none, remains a text."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if len(table) == 1 else text


# ---- Checks across tables --------------------------------------------------------------------


def _check_seeds(data: Mapping[str, Any], top: dict[str, Any], faults: list[str]) -> None:
    """Check the range of the seeds, and that replications are asked for in one way."""
    given = [name for name in ("seeds", "replications", "precision") if name in data]
    for name in given[1:]:
        add(faults, "", f"{given[0]} and {name} are both given: keep one of them")
    generator: Generator | None = top["generator"]
    if generator is None:
        return
    if "seeds" in data and generator != "lesson":
        add(faults, "", 'seeds need generator = "lesson": replace them by seed and replications')
        return
    low, high = SEEDS[generator]
    rule = f"a whole number >= {low} and <= {high} for generator {quote(generator)}"
    if top["seed"] is not None and not low <= top["seed"] <= high:
        add(faults, "", f"seed must be {rule}, got {top['seed']}")
    if top["lesson_shares"] and generator == "lesson":
        add(
            faults, "", 'lesson_shares is for generator = "philox": here all is as the lesson draws'
        )
    for seed, n in Counter(top["seeds"] or []).items():
        if not low <= seed <= high:
            add(faults, "", f"seeds must each be {rule}, got {seed}")
        if n > 1:
            add(faults, "", f"seeds must differ, got {seed} {n} times")


def _check_axes(axes: Axes, fixed: dict[str, Any], faults: list[str]) -> None:
    """Check that no two axes set a parameter (a scenario or a policy may override [fixed])."""
    for name in PARAMETERS:
        setters = axes.setters(name)
        if name in fixed and (name in axes.grid or name in axes.design[0]):
            setters.insert(0, "[fixed]")
        if len(setters) > 1:
            places = " and by ".join(setters)
            add(faults, "", f"{name} is set by {places}: keep it in one of them")


def _check_baseline(
    baseline: str | None, axes: Axes, remaining: Remaining, faults: list[str]
) -> None:
    """Check that the baseline is a policy, and not left out everywhere."""
    if baseline is not None and baseline not in axes.policy:
        add(faults, "", f"baseline {quote(baseline)} is not a policy{hint(baseline, axes.policy)}")
        return
    if not remaining.left_out or not remaining.numbers:
        return
    name = baseline or next(iter(axes.policy))
    row = list(axes.policy).index(name)
    if not any(index // axes.n_places % len(axes.policy) == row for index in remaining.numbers):
        cure = "name a policy that remains: baseline = ..."
        add(faults, "", f"baseline {quote(name)} is left out everywhere: {cure}")


# ---- The experiment --------------------------------------------------------------------------


def _experiment(
    path: str,
    top: dict[str, Any],
    precision: Precision | None,
    cells: Cells,
    fixed: dict[str, Any],
    design: Design | None,
    excludes: list[Exclude],
    claims: list[Claim],
    published: list[Published],
) -> Experiment:
    """Put the checked parts together."""
    axes, numbers = cells.axes, cells.remaining.numbers
    points = tuple(
        Point(numbers[index], scenario, policy, at, Cell(**values))
        for index, (scenario, policy, at, values) in enumerate(axes.cells(fixed))
        if index in numbers
    )
    baseline = top["baseline"] or next(iter(axes.policy))
    seeds = None if top["seeds"] is None else tuple(top["seeds"])
    n = top["replications"] if seeds is None else len(seeds)
    source = {
        "title": top["title"],
        "generator": top["generator"],
        "seed": top["seed"],
        "replications": n if precision is None else None,
        "precision": None if precision is None else vars(precision),
        "seeds": seeds,
        "keep": top["keep"],
        "lesson_shares": top["lesson_shares"],
        "baseline": baseline,
        "fixed": fixed,
        "scenario": [{"name": name} | values for name, values in axes.scenario.items()],
        "policy": [{"name": name} | values for name, values in axes.policy.items()],
        "grid": [{"name": name, "values": values} for name, values in axes.grid.items()],
        "design": None if design is None else design.source,
        "exclude": [exclude.conditions for exclude in excludes],
        "claim": top["claim"],
        "published": top["published"],
    }
    return Experiment(
        path=path,
        title=top["title"],
        generator=top["generator"],
        seed=top["seed"],
        replications=n if precision is None else precision.max,
        precision=precision,
        seeds=seeds,
        keep=top["keep"],
        lesson_shares=top["lesson_shares"],
        points=points,
        baselines=_baselines(axes, baseline, numbers),
        claims=tuple(claims),
        published=tuple(published),
        source=plain(source),
    )


def _baselines(axes: Axes, baseline: str, numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Find each cell's baseline: itself, where the baseline's own cell was left out."""
    n_places, n_policies = axes.n_places, len(axes.policy)
    row = list(axes.policy).index(baseline)
    found = []
    for index, number in numbers.items():
        scenario, place = index // (n_policies * n_places), index % n_places
        found.append(numbers.get((scenario * n_policies + row) * n_places + place, number))
    return tuple(found)
