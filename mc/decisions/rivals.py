"""The cells that compete in a question, and their values in the same replications."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from mc.decisions.choosing import QuestionError, cell_name, coordinates, where_all
from mc.experiment.messages import hint, listed, quote
from mc.model import Metric
from mc.statistics import Stack
from mc.statistics.best import Paired
from mc.statistics.rows import Numbers
from mc.store import Results

MIN_REPLICATIONS: Final = 30
"""With fewer no paired interval is to be trusted."""

MAX_CELLS: Final = 2000
"""Each is compared with each other."""

Say = Callable[[str], None]
"""Takes a sentence for the user: what is left out of an answer, or why there is none."""


@dataclass(frozen=True)
class Rivals:
    """K rivals in S settings, and their values in n replications.

    With one answer for all scenarios, each scenario is a setting.

    Attributes
    ----------
    names : polars.DataFrame, height K
        The coordinates that tell the rivals apart, and their `cell` if S is 1.
    n : int
        Replications in which all values are known.
    values : mapping of str to list of Paired
        For each metric its values in those settings in which it is defined.
    """

    names: pl.DataFrame
    n: int
    values: Mapping[str, list[Paired]]


# --- which cells ----------------------------------------------------------------------------------


def questions(
    results: Results, per: Sequence[str], where: Sequence[str], across: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """The cells of each question: one question for each value of the coordinates `per`.

    Raises
    ------
    QuestionError
        There is no such coordinate or cell, or no question has two cells that compete.
    """
    known = coordinates(results)
    for name in (*per, *across):
        if name not in known:
            raise QuestionError(f"{quote(name)} is not a coordinate{hint(name, known)}")
    groups = _groups(where_all(results, where), per)
    apart = [name for name in known if name not in across]
    if max(group.n_unique(apart) for group in groups) < 2:
        fixed = [*per, *across]
        raise QuestionError(
            f"there is a single cell for each combination of {listed(fixed)}: nothing competes"
            if fixed
            else "there is a single cell"
        )
    yield from groups


def _groups(cells: pl.DataFrame, names: Sequence[str]) -> list[pl.DataFrame]:
    """Cells with equal coordinates together; without coordinates all of them."""
    keys = list(dict.fromkeys(names))  # each once
    return [group for _, group in cells.group_by(keys, maintain_order=True)] if keys else [cells]


# --- their values ---------------------------------------------------------------------------------


def read_rivals(
    results: Results,
    cells: pl.DataFrame,
    metrics: Sequence[Metric],
    across: Sequence[str] = (),
    say: Say = lambda message: None,
) -> Rivals:
    """Read some metrics, in all replications in which every rival has all of them.

    Parameters
    ----------
    results : Results
        With rows.
    cells : polars.DataFrame
        Lines of its table of cells.
    metrics : sequence of Metric
        What is asked for.
    across : sequence of str
        Coordinates whose values are the settings.
    say : callable
        Told which cells and which replications are left out.

    Returns
    -------
    Rivals

    Raises
    ------
    QuestionError
        Too many compete, or there are too few such replications.
    FolderError
        The folder keeps no rows.
    """
    names = [name for name in coordinates(results) if name not in across]
    settings = _groups(cells, across)
    rivals = settings[0]
    for setting in settings[1:]:
        rivals = rivals.join(setting, on=names, how="semi", nulls_equal=True, maintain_order="left")
    if rivals.height > MAX_CELLS:
        raise QuestionError(
            f"{rivals.height:,} cells compete, at most {MAX_CELLS:,} can be compared each with "
            "each: narrow them with --where, or split them with --per"
        )
    n_out = max(setting.height for setting in settings) - rivals.height
    if n_out:
        say(f"{n_out} cells are left out: they are not in every {' and '.join(across)}")
    numbers = [
        rivals.select(names)
        .join(setting, on=names, how="left", nulls_equal=True, maintain_order="left")["cell"]
        .to_list()
        for setting in settings
    ]
    taken, n_rows = _read(results, [n for part in numbers for n in part], metrics)
    if n_rows < int(cells["replications"].max()):  # type: ignore[arg-type]
        say(f"only the first {n_rows:,} replications are used, which all of these cells have")
    values, n, undefined = _known_values(taken, len(settings), rivals.height)
    for name, k in undefined if len(settings) > 1 else ():
        source = results.manifest["experiment"]
        where = cell_name(settings[k].row(0, named=True), across, source)
        say(f"{where}: {name} is undefined, it is left out there")
    if n < MIN_REPLICATIONS:
        raise QuestionError(_too_few(cells, n, list(dict.fromkeys(name for name, _ in undefined))))
    return Rivals(rivals.select(names if across else ["cell", *names]), n, values)


def _read(
    results: Results, wanted: Sequence[int], metrics: Sequence[Metric]
) -> tuple[dict[str, Numbers], int]:
    """The values of some metrics in the cells of these numbers, in their order."""
    cells = results.cells.filter(pl.col("cell").is_in(list(wanted))).sort("cell")
    n = int(cells["replications"].min())  # type: ignore[arg-type]
    counters = {name for metric in metrics for name in (metric.counter, metric.per) if name}
    rows = (
        results.scan()
        .filter(pl.col("cell").is_in(list(wanted)), pl.col("replication") < n)
        .select("cell", "replication", *sorted(counters))
        .sort("cell", "replication")
        .collect()
    )
    stack = Stack.of(cells, np.arange(cells.height), rows)
    order = np.searchsorted(cells["cell"].to_numpy(), wanted)
    return {metric.name: stack.numbers(metric).of(order) for metric in metrics}, n


def _known_values(
    taken: Mapping[str, Numbers], n_settings: int, k: int
) -> tuple[dict[str, list[Paired]], int, list[tuple[str, int]]]:
    """Cut the values to the replications in which all of them are known.

    Returns
    -------
    values : dict of str to list of Paired
        For each metric its values in the settings in which it is defined.
    n : int
        How many replications these are; 0 where a metric is defined nowhere.
    undefined : list of (str, int)
        Metrics and settings without a value.
    """
    n_rows = next(iter(taken.values())).known.shape[1]
    known = np.ones(n_rows, np.bool_)
    defined: dict[str, list[Numbers]] = {}
    undefined = []
    for name, numbers in taken.items():
        parts = [numbers.of(np.arange(i * k, (i + 1) * k)) for i in range(n_settings)]
        undefined += [(name, i) for i, part in enumerate(parts) if not part.known.any()]
        defined[name] = [part for part in parts if part.known.any()]
        for part in defined[name]:
            known &= part.known.all(axis=0)
    if not all(defined.values()):
        known[:] = False
    values = {
        name: [Paired(part.numbers[:, known], part.divisors) for part in parts]
        for name, parts in defined.items()
    }
    return values, int(np.count_nonzero(known)), undefined


def _too_few(cells: pl.DataFrame, n: int, undefined: Sequence[str]) -> str:
    """Why there is no answer."""
    where = "there"
    if cells["scenario"].n_unique() == 1:
        where = str(cells[0, "scenario"])
    if undefined:
        return f"{where}: no answer, for {listed(undefined)} is undefined without a fault window"
    return (
        f"{where}: no answer, for at least {MIN_REPLICATIONS} replications are needed in which "
        f"every cell has a value, and there are {n}"
    )


# --- rivals that are the same ---------------------------------------------------------------------


def ask(rivals: Rivals, answer: Callable[[Rivals], pl.DataFrame]) -> pl.DataFrame:
    """Put a question to the rivals; those that never differ count as one, and share its answer.

    Most often these are the same by their parameters, as with a backoff cap that is never reached.

    Parameters
    ----------
    rivals : Rivals
    answer : callable
        Gives a line for each rival: its names, then the answer.

    Returns
    -------
    polars.DataFrame
        A line for each rival.
    """
    digests = [_digest(rivals, k) for k in range(rivals.names.height)]
    first = {digest: digests.index(digest) for digest in dict.fromkeys(digests)}
    different = list(first.values())
    lines = {digest: i for i, digest in enumerate(first)}
    answers = answer(_some(rivals, different)).drop(rivals.names.columns)
    return rivals.names.hstack(answers[[lines[digest] for digest in digests]])


def _digest(rivals: Rivals, k: int) -> bytes:
    """A hash of all values of a rival."""
    digest = hashlib.sha256()
    for parts in rivals.values.values():
        for part in parts:
            divisor = np.broadcast_to(part.divisors, len(part.numbers))[k]
            digest.update(np.ascontiguousarray(part.numbers[k]).tobytes() + divisor.tobytes())
    return digest.digest()


def _some(rivals: Rivals, chosen: list[int]) -> Rivals:
    def of(part: Paired) -> Paired:
        divisors: Any = np.broadcast_to(part.divisors, len(part.numbers))
        return Paired(part.numbers[chosen], divisors[chosen])

    values = {name: [of(part) for part in parts] for name, parts in rivals.values.items()}
    return Rivals(rivals.names[chosen], rivals.n, values)
