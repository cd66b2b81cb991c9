"""What an experiment file becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mc.experiment.precision import Precision
from mc.experiment.tables import Generator, Keep, Relation
from mc.model import PARAMETERS, Cell, Column, ColumnType, schema_of

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Point:
    """One cell with its place on the axes.

    Attributes
    ----------
    cell : int
        Index of the cell, 0 .. C-1 without the cells that an exclude leaves out: scenarios vary
        slowest, then policies, then the axes of the grid in the order of the file, then the
        points of the design.
    scenario, policy : str
        Names on the two axes of named points; ``default`` where the file has no such axis.
    at : dict
        The value on each axis of the grid and of each parameter of the design, exactly as in
        `parameters`. One that a range or a design made may have 17 digits: show six.
    parameters : Cell
        All parameters.
    """

    cell: int
    scenario: str
    policy: str
    at: dict[str, Any]
    parameters: Cell


@dataclass(frozen=True)
class Claim:
    """A sentence put to the test in every replication.

    Attributes
    ----------
    text, scenario : str
        The sentence, and where it is said to hold.
    metrics : tuple of str
        It must hold for all of these in the same replication.
    relation : {"<", "<=", "=", ">=", ">", "between"}
        Between each cell and the next; with a `value`, between every cell and the value.
    cells : tuple of int
        What is compared, in this order.
    labels : tuple of str
        The policy of each of the cells, and its place on the grid as the claim gives it.
    value : float, tuple of float or None
        A number to compare with; for "between" the two ends, both included.
    times : float
        Each cell is compared with this many times the next.
    margin : float or None
        With the relation "=": how far apart two values may be and still count as equal.
    """

    text: str
    scenario: str
    metrics: tuple[str, ...]
    relation: Relation
    cells: tuple[int, ...]
    labels: tuple[str, ...]
    value: float | tuple[float, float] | None
    times: float = 1.0
    margin: float | None = None


@dataclass(frozen=True)
class Published:
    """A published figure, to be placed in the distribution of its metric.

    Attributes
    ----------
    cell : int
        Index of the cell.
    metric : str
        One of `METRICS`.
    value : float
        The figure, in the metric's unit.
    decimals : int or None
        Digits after the point as printed (``1.00`` has 2); None for ``1e3``.
    """

    cell: int
    metric: str
    value: float
    decimals: int | None


@dataclass(frozen=True)
class Experiment:
    """An experiment file without a fault.

    Attributes
    ----------
    path, title : str
        Where it was read, and what it calls itself.
    generator : {"philox", "lesson"}
        Which draws are used.
    seed, replications : int
        Replications 0 .. `replications` - 1 are drawn from `seed`; with a `precision` a cell may
        need fewer.
    precision : Precision or None
        When a cell has enough of them; None where the number is fixed.
    seeds : tuple of int or None
        With the lesson's generator: the seed of each replication, where the file lists them.
    keep : {"rows", "histograms"}
        What is stored: every row, or exact counts from which the same tables are made.
    lesson_shares : bool
        Whether claims are counted a second time with the lesson's draws.
    points : tuple of Point
        Every cell, in order of its index.
    baselines : tuple of int
        For each cell the one it is compared with: the baseline policy in the same scenario and
        at the same point of grid and design; the cell itself where that one was left out.
    claims : tuple of Claim
        In the order of the file.
    published : tuple of Published
        In the order of the file.
    source : dict
        The experiment in one canonical form that JSON can hold, overrides included: two files
        that differ only in layout or in 8 against 8.0 have the same. The axes of the grid are a
        list, because their order decides the order of the cells; their ranges are written out. A
        design is kept as its definition.
    """

    path: str
    title: str
    generator: Generator
    seed: int
    replications: int
    precision: Precision | None
    seeds: tuple[int, ...] | None
    keep: Keep
    lesson_shares: bool
    points: tuple[Point, ...]
    baselines: tuple[int, ...]
    claims: tuple[Claim, ...]
    published: tuple[Published, ...]
    source: dict[str, Any]

    @property
    def name(self) -> str:
        """The file's name without folder and ending; names the results folder."""
        return Path(self.path).stem

    @property
    def stages(self) -> tuple[int, ...]:
        """Replications at which may be stopped, ascending; the last is `replications`."""
        return (self.replications,) if self.precision is None else self.precision.stages

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Cells that have the same number of replications, whatever that will be.

        All policies of a scenario at one point of grid and design: they are compared with one
        another, replication by replication. All cells, where the number is fixed.
        """
        if self.precision is None:
            return (tuple(point.cell for point in self.points),)
        groups: dict[tuple[Any, ...], list[int]] = {}
        for point in self.points:
            groups.setdefault((point.scenario, *point.at.values()), []).append(point.cell)
        return tuple(map(tuple, groups.values()))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is allowed, but hardly meant."""
        cells = [point.parameters for point in self.points]
        found = {
            "the fault begins after the last round": [
                c.fault_rounds > 0 and c.fault_start >= c.rounds for c in cells
            ],
            "the fault lasts until the last round, so no recovery is seen": [
                c.fault_start < c.rounds <= c.fault_start + c.fault_rounds for c in cells
            ],
            "more requests arrive than the capacity serves, fault or not": [
                c.rate_per_round > c.capacity for c in cells
            ],
        }
        remarks = []
        for remark, holds in found.items():
            where = {p.scenario for p, h in zip(self.points, holds, strict=True) if h}
            if where:
                remarks.append(f"{remark}, in {', '.join(sorted(where))}")
        return (*remarks, *self._without_baseline())

    def _without_baseline(self) -> list[str]:
        """How many cells are compared with nothing, as their baseline's own cell was left out."""
        policy = self.source["baseline"]
        n = sum(
            p.policy != policy and p.cell == baseline
            for p, baseline in zip(self.points, self.baselines, strict=True)
        )
        if not n:
            return []
        return [f"{n} cells are compared with nothing: their baseline cell is left out by exclude"]

    @property
    def hints(self) -> tuple[str, ...]:
        """What costs more than it gains."""
        unused = {"budget", "backoff_base", "backoff_cap"}
        once = [
            (p.scenario, *(v for k, v in p.parameters.parameters.items() if k not in unused))
            for p in self.points
            if p.parameters.max_attempts == 1
        ]
        n = len(once) - len(set(once))
        hints = []
        if n:
            hints.append(
                f"{n} cells repeat others: without retries, budget and backoff change nothing"
            )
        if self.precision is not None and self.precision.min < ROUGH:
            hints.append(f"intervals of fewer than {ROUGH} replications are rough: min = {ROUGH}")
        return tuple(hints)


class ExperimentError(ValueError):
    """All faults of an experiment file.

    Attributes
    ----------
    faults : list of str
        One line each: ``<path>: <place>: <what is wrong>``. `str` of the error joins them.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(self.faults)


ROUGH: Final = 200
"""Replications from which on intervals cover what they promise."""

FIXED: Final = "fixed"
PRECISION: Final = "precision"
MAX: Final = "max"


@dataclass(frozen=True)
class Stop:
    """Where a cell has stopped.

    Attributes
    ----------
    n : int
        Its replications.
    by : {"fixed", "precision", "max"}
        As many were asked for; it is as precise as asked; it is not, but there may be no more.
    """

    n: int
    by: str


_TYPES: Final[dict[str, ColumnType]] = {
    "int": "int32",
    "float": "float",
    "budget": "float",
    "tries": "text",
}

CELL_COLUMNS: Final[dict[str, Column]] = (
    {
        "cell": Column("int32", "", "number of the cell"),
        "scenario": Column("text", "", "name of the scenario"),
        "policy": Column("text", "", "name of the policy"),
    }
    | {
        name: Column(_TYPES[parameter.kind], parameter.unit, parameter.meaning)
        for name, parameter in PARAMETERS.items()
    }
    | {
        "max_attempts": Column(
            "int32", "attempts", "most attempts of one request: the product of tries"
        ),
        "longest_wait": Column(
            "int64", "rounds", "most rounds between an arrival and its last attempt"
        ),
        "baseline": Column("int32", "", "number of the cell it is compared with"),
        "identity": Column("text", "", "hash of the parameters"),
        "replications": Column(
            "int64", "replications", "how many the cell has; NULL until that is known"
        ),
        "stopped_by": Column(
            "text",
            "",
            f"why there are no more: {FIXED} (as many were asked for), {PRECISION} (it is known "
            f"as precisely as asked) or {MAX} (it is not, but there may be no more)",
        ),
    }
)
"""The columns of `cell_table`, in their order."""


def cell_table(experiment: Experiment, stops: Mapping[int, Stop] | None = None) -> pl.DataFrame:
    """One row per cell, as stored in ``cells.parquet``.

    Parameters
    ----------
    experiment : Experiment
    stops : mapping of int to Stop, optional
        Of the cells that have stopped. Not needed where the number of replications is fixed.

    Returns
    -------
    polars.DataFrame
        `cell`, `scenario`, `policy`, every parameter in its unit (`tries` as the text
        ``3x3x3``, no budget as null), `max_attempts`, `longest_wait` (rounds) and `baseline`
        (a `cell`), the cell's `identity`, its number of `replications` and what it was
        `stopped_by` (null until it has stopped). In the order of the file.
    """
    import polars as pl

    points = experiment.points
    cells = [point.parameters for point in points]
    if experiment.precision is None:
        stops = {point.cell: Stop(experiment.replications, FIXED) for point in points}
    stopped = [(stops or {}).get(point.cell) for point in points]
    columns: dict[str, Sequence[Any]] = {
        "cell": [point.cell for point in points],
        "scenario": [point.scenario for point in points],
        "policy": [point.policy for point in points],
    }
    columns |= {name: [getattr(cell, name) for cell in cells] for name in PARAMETERS}
    columns |= {
        "tries": ["x".join(map(str, cell.tries)) for cell in cells],
        "max_attempts": [cell.max_attempts for cell in cells],
        "longest_wait": [cell.longest_wait for cell in cells],
        "baseline": experiment.baselines,
        "identity": [cell.identity for cell in cells],
        "replications": [stop and stop.n for stop in stopped],
        "stopped_by": [stop and stop.by for stop in stopped],
    }
    return pl.DataFrame(columns, schema_of(CELL_COLUMNS))


def renumber(experiment: Experiment, numbers: Sequence[int]) -> Experiment:
    """Give every cell another index, in all places where cells are named.

    Parameters
    ----------
    experiment : Experiment
        Cells 0 .. C-1, as `read` numbers them.
    numbers : sequence of int, length C
        The new index of each, without repeats.

    Returns
    -------
    Experiment
    """
    return replace(
        experiment,
        points=tuple(replace(point, cell=numbers[point.cell]) for point in experiment.points),
        baselines=tuple(numbers[cell] for cell in experiment.baselines),
        claims=tuple(
            replace(claim, cells=tuple(numbers[cell] for cell in claim.cells))
            for claim in experiment.claims
        ),
        published=tuple(
            replace(figure, cell=numbers[figure.cell]) for figure in experiment.published
        ),
    )


def cells_of(table: pl.DataFrame) -> dict[int, Cell]:
    """Make the cells again from the table of them: the way back from `cell_table`.

    Parameters
    ----------
    table : polars.DataFrame
        As `cell_table` gives it.

    Returns
    -------
    dict of int to Cell
        Each by its number.

    Raises
    ------
    ValueError
        A line is not that of a cell.
    """
    cells = {}
    for line in table.select("cell", *PARAMETERS).iter_rows(named=True):
        number = line.pop("cell")
        tries = tuple(int(n) for n in line.pop("tries").split("x"))
        cells[number] = Cell(**line, tries=tries)
    return cells
