"""The cells that compete in a question, and their values in the same replications."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mc.decisions.choosing import QuestionError, Wanted, coordinates, where_all
from mc.experiment.messages import hint, listed, quote
from mc.model import Metric
from mc.model.columns import BUDGET_TEXT
from mc.model.digits import counted
from mc.statistics import Stack
from mc.statistics.best import Paired
from mc.statistics.rows import RATIO_STEPS, Numbers, span_of
from mc.store import FolderError, Results, cell_name, not_comparable

MIN_REPLICATIONS: Final = 30
"""With fewer no paired interval is to be trusted."""

MAX_CELLS: Final = 2000
"""Each is compared with each other."""

UNDECIDED_REQUESTS: Final = "undecided requests"
"""The answer about a cell that does not compete, see `store.not_comparable`."""

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
    digests : list of bytes, of length K
        A hash of all values of each rival, and of whether it competes: equal if they are.
    competes : ndarray of bool, shape (K,)
        Whether its values can be compared with others in all settings.
    """

    names: pl.DataFrame
    n: int
    values: Mapping[str, list[Paired]]
    digests: list[bytes]
    competes: NDArray[np.bool_]


# --- which cells ----------------------------------------------------------------------------------


def questions(
    results: Results,
    per: Sequence[str],
    where: Wanted | Sequence[Wanted],
    across: Sequence[str] = (),
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
        say(f"{counted(n_out, 'cell')} left out, not in every {' and '.join(across)}")
    numbers = [
        rivals.select(names)
        .join(setting, on=names, how="left", nulls_equal=True, maintain_order="left")["cell"]
        .to_list()
        for setting in settings
    ]
    taken, spans, n_rows = _read(results, [n for part in numbers for n in part], metrics)
    for message in _warnings(taken, n_rows):
        say(message)
    if n_rows < int(cells["replications"].max()):  # type: ignore[arg-type]
        say(f"only the first {n_rows:,} replications are used, which all of these cells have")
    known, undefined = _known(taken, len(settings), rivals.height)
    n = int(np.count_nonzero(known))
    for name, k in undefined if len(settings) > 1 else ():
        source = results.manifest["experiment"]
        where = cell_name(settings[k].row(0, named=True), across, source)
        say(f"{where}: {name} is undefined, it is left out there")
    if n < MIN_REPLICATIONS:
        raise QuestionError(_too_few(cells, n, list(dict.fromkeys(name for name, _ in undefined))))
    parts = {
        name: [
            (part, spans[name][i * rivals.height : (i + 1) * rivals.height])
            for i, part in enumerate(_parts(numbers_of, len(settings), rivals.height))
            if (name, i) not in undefined
        ]
        for name, numbers_of in taken.items()
    }
    out = not_comparable(results, [metric.name for metric in metrics])
    competes = np.array([out.isdisjoint(of) for of in zip(*numbers, strict=True)], np.bool_)
    chosen = slice(None) if known.all() else known  # of millions of rows no copy for nothing
    return Rivals(
        names=rivals.select(([] if across else ["cell"]) + names + _budget_texts(names)),
        n=n,
        values={
            name: [Paired(part.numbers[:, chosen], part.divisors, span) for part, span in some]
            for name, some in parts.items()
        },
        digests=_digests([part for some in parts.values() for part, _ in some], known, competes),
        competes=competes,
    )


def _budget_texts(names: Sequence[str]) -> list[str]:
    return [BUDGET_TEXT] if "budget" in names else []


def _warnings(taken: Mapping[str, Numbers], n_rows: int) -> Iterator[str]:
    """Where a number stands for what did not come within the run."""
    for name, numbers in taken.items():
        if numbers.later.any():
            n_later = np.count_nonzero(numbers.later.any(axis=0))
            yield (
                f"{name}: in {n_later:,} of {n_rows:,} replications it did not come within the run "
                "in some cell; there it counts as the length of the run, so means are too small"
            )


def _read(
    results: Results, wanted: Sequence[int], metrics: Sequence[Metric]
) -> tuple[dict[str, Numbers], dict[str, NDArray[np.float64]], int]:
    """The values of some metrics in the cells of these numbers, in their order.

    With them the spans of all values there can be, and the replications that all cells have.
    """
    cells = results.cells.filter(pl.col("cell").is_in(list(wanted))).sort("cell")
    n = int(cells["replications"].min())  # type: ignore[arg-type]
    counters = {name for metric in metrics for name in (metric.counter, metric.per) if name}
    rows = (
        results.scan()
        .filter(pl.col("cell").is_in(list(wanted)), pl.col("replication") < n)
        .select("cell", "replication", *sorted(counters))
        .collect()
    )
    if rows.height != n * cells.height:
        raise FolderError(
            f"{results.folder}: has not the rows that its table of cells names; retrystorm verify "
            "says what is wrong"
        )
    stack = Stack.of_first(cells, n, rows)
    order = np.searchsorted(cells["cell"].to_numpy(), wanted)
    rounds = cells["rounds"].to_numpy().astype(np.int64)
    taken = {metric.name: _restricted(stack.numbers(metric), rounds) for metric in metrics}
    spans = {metric.name: span_of(metric, cells)[order] for metric in metrics}
    return {name: numbers.of(order) for name, numbers in taken.items()}, spans, n


def _restricted(numbers: Numbers, rounds: NDArray[np.int64]) -> Numbers:
    """Take what did not come within the run as the length of the run.

    A mean of the others alone would be the better the less often it comes. This is a restricted
    mean (Irwin 1949): the mean of min(value, length).
    """
    if not numbers.later.any():
        return numbers
    as_run = (rounds * (RATIO_STEPS if numbers.fractions else 1))[:, np.newaxis]
    filled = np.where(numbers.later, as_run, numbers.numbers)
    return replace(numbers, numbers=filled, known=numbers.known | numbers.later)


def _known(
    taken: Mapping[str, Numbers], n_settings: int, k: int
) -> tuple[NDArray[np.bool_], list[tuple[str, int]]]:
    """Find the replications in which all values are known.

    Returns
    -------
    known : ndarray of bool, shape (R,)
        Nowhere where a metric is defined in no setting.
    undefined : list of (str, int)
        Metrics and settings without a value.
    """
    known = np.ones(next(iter(taken.values())).known.shape[1], np.bool_)
    undefined = []
    for name, numbers in taken.items():
        parts = _parts(numbers, n_settings, k)
        undefined += [(name, i) for i, part in enumerate(parts) if not part.known.any()]
        defined = [part.known.all(axis=0) for part in parts if part.known.any()]
        known &= np.logical_and.reduce(defined) if defined else np.False_
    return known, undefined


def _parts(numbers: Numbers, n_settings: int, k: int) -> list[Numbers]:
    """The values of k rivals in each setting."""
    return [numbers.of(np.arange(i * k, (i + 1) * k)) for i in range(n_settings)]


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
        A line for each rival, and `group`: the rivals of one group never differ.
    """
    first = {digest: rivals.digests.index(digest) for digest in dict.fromkeys(rivals.digests)}
    lines = {digest: i for i, digest in enumerate(first)}
    groups = [lines[digest] for digest in rivals.digests]
    answers = answer(_some(rivals, list(first.values()))).drop(rivals.names.columns)
    return rivals.names.hstack(answers[groups]).with_columns(
        group=pl.Series(groups, dtype=pl.Int32)
    )


def _digests(
    parts: Sequence[Numbers], known: NDArray[np.bool_], competes: NDArray[np.bool_]
) -> list[bytes]:
    """A hash of each rival, see `Rivals`; ratios of counters are the fractions that they are."""
    digests = [hashlib.sha256(own.tobytes()) for own in competes]
    for part in parts:
        quotients = part.quotients
        values: NDArray[Any] = part.numbers if quotients is None else quotients
        for digest, own, divisor in zip(digests, values, part.divisors, strict=True):
            digest.update(own[known].tobytes() + divisor.tobytes())
    return [digest.digest() for digest in digests]


def _some(rivals: Rivals, chosen: list[int]) -> Rivals:
    def of(part: Paired) -> Paired:
        divisors: Any = np.broadcast_to(part.divisors, len(part.numbers))
        return Paired(part.numbers[chosen], divisors[chosen], part.spans[chosen])

    values = {name: [of(part) for part in parts] for name, parts in rivals.values.items()}
    digests = [rivals.digests[k] for k in chosen]
    return Rivals(rivals.names[chosen], rivals.n, values, digests, rivals.competes[chosen])
