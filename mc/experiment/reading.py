"""Reading an experiment file: every table in order, then what holds between them."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from mc.experiment.axes import (
    MAX_CELLS,
    Axes,
    read_axes,
    read_axes_of_tables,
    read_named_entries,
    read_presets,
    read_ranges_in_tables,
    with_entries,
)
from mc.experiment.cells import Cells, Condition, Progress, make_cells, read_excludes
from mc.experiment.claims import Printed, read_claims, read_published
from mc.experiment.experiment import Claim, Experiment, ExperimentError, Published
from mc.experiment.file import DEFAULT_SEED, File
from mc.experiment.keys import Parameters, as_list
from mc.experiment.messages import LIKE, hint, quote, show
from mc.experiment.quantities import read_quantities
from mc.experiment.validation import FAULTY, Checked, checked, outcome, validate, within
from mc.model import METRICS, PARAMETERS, Thresholds, has_entries, metrics_of, units
from mc.model.digits import axis_text
from mc.model.settings import Settings, is_range
from mc.model.settings import read as table_of
from mc.model.traffic import Counts, Traffic


def read(
    path: str | Path,
    *,
    replications: int | None = None,
    seed: int | None = None,
    overrides: Mapping[str, str] | None = None,
    progress: Progress | None = None,
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
        a bare ``none`` is allowed), or entries of its table (``{"budget.ratio": "0.2"}``). One
        that the file varies cannot be overridden.
    progress : callable, optional
        Called now and then with the number of cells that are made, and that of all.

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
    if isinstance(data.get("design"), dict):
        # a fault of the file's seed is reported once, there
        is_sound = type(file_seed) is int and file_seed >= 0
        data["design"].setdefault("seed", file_seed if is_sound else DEFAULT_SEED)
    unset, set_values = outcome(within("--set", _set_values(overrides or {}, data)))
    folder = Path(os.path.expanduser(path)).parent
    faults, parts = outcome(_check(data, set_values, folder, progress))
    faults = unset + faults
    if faults:
        raise ExperimentError([f"{path}: {fault}" for fault in faults])
    given = {"--replications": replications, "--seed": seed}
    options = [text for name, n in given.items() if n is not None for text in (name, str(n))]
    for name, text in (overrides or {}).items():
        options += ["--set", " ".join(f"{name}={text}".split())]
    return dataclasses.replace(_experiment(str(path), data, parts), options=tuple(options))


def of_source(
    source: Mapping[str, Any], path: str, counts: Mapping[str, Counts] | None = None
) -> Experiment:
    """Read an experiment again from its `source`, as a manifest has it: the way back.

    Parameters
    ----------
    source : mapping
        See `Experiment.source`.
    path : str
        Where it stands, for the messages.
    counts : mapping of str to Counts, optional
        Those of recorded traffic by their hash, which is all that the source has of them.

    Returns
    -------
    Experiment
        With the cells numbered as in a file.

    Raises
    ------
    ExperimentError
        It is not the source of an experiment.
    """
    given = {key: _as_in_file(value) for key, value in source.items() if value not in (None, [])}
    given = _with_numbers(given, counts or {})
    in_units = given.pop("in_units", [])
    if "seeds" in given:
        del given["replications"]  # their number
    given["grid"] = {
        axis["name"]: _with_numbers(_as_in_file(axis["values"], axis["name"]), counts or {})
        for axis in given.get("grid", [])
    }
    if "design" in given:
        ranges = {side.pop("name"): side for side in given["design"].pop("ranges")}
        given["design"] |= ranges
    if "precision" in given:
        given["precision"] = {
            "metric" if key == "metrics" else key: value
            for key, value in given["precision"].items()
            if value is not None
        }
    given["published"] = [
        {key: _printed(value) if key in METRICS else value for key, value in figures.items()}
        for figures in given.get("published", [])
    ]
    faults, parts = outcome(_check(given, {}, Path(), None, in_units))
    if faults:
        raise ExperimentError([f"{path}: {fault}" for fault in faults])
    return _experiment(path, given, parts)


def _as_in_file(value: Any, name: str = "") -> Any:
    """Copy a value of a source; the text of a table becomes the table."""
    if isinstance(value, dict):
        return {key: _as_in_file(entry, key) for key, entry in value.items()}
    if isinstance(value, list):
        return [_as_in_file(entry, name) for entry in value]
    is_table = isinstance(value, str) and name in PARAMETERS and PARAMETERS[name].kind.tables
    if not is_table or value == "none":
        return value
    # an entry of a list of tables is none of its own
    return PARAMETERS[name].kind.from_column(value) if name == "traffic" else table_of(value)


def _with_numbers(value: Any, counts: Mapping[str, Counts]) -> Any:
    """Put the numbers into recorded traffic of which a source has the hash alone."""
    if isinstance(value, dict):
        return {key: _with_numbers(entry, counts) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_numbers(entry, counts) for entry in value]
    if isinstance(value, Traffic) and value.counts is not None:
        return dataclasses.replace(value, counts=counts.get(value.counts.sha256, value.counts))
    return value


def _printed(figure: Any) -> Any:
    """A published figure with the digits that the file has."""
    return figure if isinstance(figure, int) else Printed(str(figure))


_MOST_CHARACTERS: Final = 100_000_000
"""Of an experiment: a device may have no end."""


def _load(path: str | Path) -> dict[str, Any]:
    """Parse the file, floats as `Printed`."""
    try:
        # Windows editors put a byte order mark in front
        with open(os.path.expanduser(path), encoding="utf-8-sig") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except OSError as error:
        fault = f"{path}: cannot be read: {error.strerror}{_near(Path(path))}"
        raise ExperimentError([fault]) from error
    except UnicodeDecodeError as error:
        fault = f"{path}: not a TOML file: byte {error.start} is not UTF-8"
        raise ExperimentError([fault]) from error
    if len(text) > _MOST_CHARACTERS:
        raise ExperimentError([f"{path}: longer than {_MOST_CHARACTERS} characters"])
    try:
        return tomllib.loads(text, parse_float=Printed)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError says line and column
        fault = f"{path}: not a TOML file: {error}{_cure(text, str(error))}"
        raise ExperimentError([fault]) from error


def _cure(text: str, error: str) -> str:
    """Say what to write in a line of which TOML could read a number, and not what follows."""
    line = re.search(r"at line ([0-9]+), ", error)
    advice = units.unquoted(text.split("\n")[int(line[1]) - 1]) if line else ""
    return f"; {advice}" if advice else ""


def _near(path: Path) -> str:
    """Suggest the nearest file beside one that is not there."""
    if path.exists():
        return ""
    # folder and ending are alike in all, and would make any two names alike
    files = {other.stem: str(other) for other in path.parent.glob("*.toml")}
    near = difflib.get_close_matches(path.stem, files, n=1, cutoff=LIKE)
    return f"; did you mean {quote(files[near[0]])}?" if near else ""


# ---- Checks ----------------------------------------------------------------------------------


class _Parts(NamedTuple):
    """What a file is made of; sound if no fault was found in any of it."""

    file: File
    in_units: list[str]
    fixed: dict[str, Any]
    excludes: dict[str, dict[str, Condition]] | None
    cells: Cells
    claims: list[Claim]
    published: list[Published]


def _check(
    data: dict[str, Any],
    overrides: dict[str, Any],
    folder: Path,
    progress: Progress | None,
    read_before: Sequence[str] = (),
) -> Checked[_Parts]:
    """Check each table by itself, then what holds between them.

    The axes of `read_before` were given in units, and are numbers already.
    """
    yield from read_presets(data)
    yield from read_axes_of_tables(data)
    in_units = [*read_before, *(yield from read_quantities(data, overrides, folder))]
    yield from read_ranges_in_tables(data)
    yield from read_named_entries(data)
    file = yield from validate(File, data)
    yield from file.check()
    if file.precision is not None:
        yield from within("[precision]", checked(file.precision))
    if file.thresholds is not None:
        yield from within("[thresholds]", checked(file.thresholds))
    axes = yield from read_axes(file.scenario, file.policy, file.grid, file.design)
    fixed = {} if file.fixed is FAULTY else file.fixed.entries
    fixed |= yield from within("--set", _overrides(overrides, axes))
    yield from axes.check(fixed)
    sound = {name: value for name, value in fixed.items() if value is not FAULTY}
    axes_alone: dict[str, Any] = {"grid": [], "design": None, "scenario": [], "policy": []}
    written = partial(axis_text, {"fixed": sound, "in_units": in_units, **axes_alone})
    excludes = yield from read_excludes(file.exclude, axes, fixed, written)
    cells = Cells(axes)
    if excludes is not None and axes.n_cells <= MAX_CELLS:
        cells = yield from make_cells(axes, fixed, excludes, file.generator, progress)
    yield from _check_baseline(file.baseline, cells)
    yield from _check_layer_names(file.layer_names, cells)
    claims = yield from read_claims(file.claim, cells, written)
    published = yield from read_published(file.published, cells, written)
    yield from _check_metrics(file.precision, cells, claims, published)
    return _Parts(file, in_units, fixed, excludes, cells, claims, published)


def _set_values(overrides: Mapping[str, str], data: Mapping[str, Any]) -> Checked[dict[str, Any]]:
    """Parse what the command line sets, and take it out of [fixed].

    ``budget.ratio`` changes an entry of the table that [fixed] or the command line has, and with it
    what a grid that varies other entries takes from [fixed].
    """
    fixed, grid = (
        table if isinstance(table, dict) else {} for table in (data.get("fixed"), data.get("grid"))
    )
    values: dict[str, Any] = {}
    # whole values first, so that their order does not count
    for key, text in sorted(overrides.items(), key=lambda item: "." in item[0]):
        name, _, entry = key.partition(".")
        if not entry or not has_entries(name):
            values[key] = _toml_value(text)
            continue
        before, change = values.get(name, fixed.get(name)), {entry: _toml_value(text)}
        changed = yield from within(key, with_entries(before, change))
        axis = grid.get(name)
        if name in fixed and isinstance(axis, dict) and not is_range(axis) and entry not in axis:
            fixed[name] = changed
        else:
            values[name] = changed
    for name in values.keys() & fixed.keys() - grid.keys():
        del fixed[name]
    return values


def _overrides(overrides: Mapping[str, Any], axes: Axes) -> Checked[dict[str, Any]]:
    """Read the parameters that the command line sets."""
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        setters = axes.setters(name)
        if setters:
            yield f"{name} is set by {' and by '.join(setters)}: change it in the file"
        else:
            values |= (yield from validate(Parameters, {name: value})).entries
    return values


def _toml_value(text: str) -> object:
    """Parse one TOML value, texts with or without quotation marks: none, [20 ms, 40 ms]."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        inner = re.fullmatch(r"\s*\[([^\[\]\"']*)\]\s*", text)
        return [_toml_value(part.strip()) for part in inner[1].split(",")] if inner else text
    return table["value"] if len(table) == 1 else text


def _check_baseline(baseline: str | None, cells: Cells) -> Checked[None]:
    """Check that the baseline is a policy, and not left out everywhere."""
    if baseline is FAULTY:
        return
    if baseline is not None and baseline not in cells.axes.policy:
        yield f"baseline {quote(baseline)} is not a policy{hint(baseline, cells.axes.policy)}"
    elif cells.points:
        name = baseline or next(iter(cells.axes.policy))
        numbers = (n for scenario in cells.axes.scenario for n in cells.numbers[scenario, name])
        if all(isinstance(number, str) for number in numbers):
            cure = "name a policy that remains: baseline = ..."
            yield f"baseline {quote(name)} is left out everywhere: {cure}"


def _check_layer_names(names: list[str] | None, cells: Cells) -> Checked[None]:
    """Check that there are as many names as some cell has layers."""
    lengths = sorted({len(point.parameters.tries) for point in cells.points})
    if names not in (None, FAULTY) and lengths and len(names or ()) not in lengths:
        n = " or ".join(map(str, lengths))
        yield f"layer_names must have a name for each layer of tries ({n}), got {show(names)}"
    elif names not in (None, FAULTY) and len(set(names or ())) < len(names or ()):
        yield f"layer_names must differ from one another, got {show(names)}"


def _check_metrics(
    precision: Any, cells: Cells, claims: Sequence[Claim], published: Sequence[Published]
) -> Checked[None]:
    """Check that what is asked about exists: without a deadline, nothing expires."""
    asked = {f"claim {quote(claim.text)}": claim.metrics for claim in claims}
    asked["[[published]]"] = tuple(dict.fromkeys(figure.metric for figure in published))
    asked["[precision]"] = () if precision in (None, FAULTY) else tuple(as_list(precision.metric))
    known = metrics_of(point.parameters for point in cells.points) if cells.points else METRICS
    for place, names in asked.items():
        for name in names:
            if name in METRICS and name not in known:
                yield f"{place}: metric {name} is of no cell: {METRICS[name].meaning}"


# ---- The experiment --------------------------------------------------------------------------


def _experiment(path: str, data: Mapping[str, Any], parts: _Parts) -> Experiment:
    """Put the sound parts together."""
    file, cells, axes = parts.file, parts.cells, parts.cells.axes
    baseline = file.baseline or next(iter(axes.policy))
    seeds = None if file.seeds is None else tuple(file.seeds)
    n = file.replications if seeds is None else len(seeds)
    precision = None if file.precision is None else file.precision.precision
    source = {
        "title": file.title,
        "generator": file.generator,
        "seed": file.seed,
        "replications": n if precision is None else None,
        "precision": None if precision is None else vars(precision),
        "seeds": seeds,
        "keep": file.keep,
        "lesson_shares": file.lesson_shares,
        "baseline": baseline,
        "fixed": parts.fixed,
        "scenario": [{"name": name} | values for name, values in axes.scenario.items()],
        "policy": [{"name": name} | values for name, values in axes.policy.items()],
        "grid": [{"name": name, "values": values} for name, values in axes.grid.items()],
        "design": None if file.design is None else file.design.source,
        "exclude": list((parts.excludes or {}).values()),
        "claim": data.get("claim", []),
        "published": [
            {key: _with_digits(value) for key, value in figures.items()}
            for figures in data.get("published", [])
        ],
    }
    if file.layer_names:
        source["layer_names"] = file.layer_names
    if parts.in_units:
        source["in_units"] = parts.in_units
    thresholds = Thresholds() if file.thresholds is None else file.thresholds.thresholds
    if thresholds != Thresholds():
        source["thresholds"] = thresholds._asdict()
    return Experiment(
        path=path,
        thresholds=thresholds,
        title=file.title,
        generator=file.generator,
        seed=file.seed,
        replications=n if precision is None else precision.max,
        precision=precision,
        seeds=seeds,
        keep=file.keep,
        lesson_shares=file.lesson_shares,
        points=tuple(cells.points),
        baselines=cells.baselines(baseline),
        claims=tuple(parts.claims),
        published=tuple(parts.published),
        source=_plain(source),
    )


def _with_digits(figure: Any) -> Any:
    """A published figure as a number, or as its text where a number would not print like it."""
    return figure.text if isinstance(figure, Printed) and figure.text != repr(figure) else figure


def _plain(value: Any) -> Any:
    """Bring a value to types that JSON gives back as they were."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Settings):
        return str(value)
    return float(value) if isinstance(value, float) else value
