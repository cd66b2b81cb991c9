"""An experiment: what its file becomes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from mc.experiment.messages import first_of
from mc.experiment.precision import Precision
from mc.experiment.remarks import (
    HARDLY_MEANT,
    MAY_BE_IDLE,
    MOST_SAVED,
    calm_remark,
    effect_of,
    has_peaks_of_chance,
    memory_remark,
    place_of,
    saving_remark,
    share_saved,
    ties_remark,
)
from mc.model import PARAMETERS, Cell, Generator, Thresholds, has_queue, rejects, units
from mc.model.digits import MIN_REPLICATIONS, counted

Relation = Literal["<", "<=", "=", ">=", ">", "between"]
Keep = Literal["rows", "histograms"]

_OF_RETRIES: Final = {
    *("chain", "backoff_base", "backoff_factor", "backoff_cap", "jitter", "jitter_share"),
    *("first_wait", "deadline", "budget", "budget_scope", "clients"),
}

_USED_WITHOUT_RETRIES: Final = operator.attrgetter(
    *(name for name in PARAMETERS if name not in _OF_RETRIES)
)


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
    thresholds : Thresholds
        By which claims are judged.
    claims : tuple of Claim
        In the order of the file.
    published : tuple of Published
        In the order of the file.
    source : dict
        The experiment in one canonical form that JSON can hold, overrides included: two files
        that differ only in layout or in 8 against 8.0 have the same. The axes of the grid are a
        list, because their order decides the order of the cells; their ranges are written out. A
        design is kept as its definition.
    options : tuple of str
        Of the command line: what was given in place of what the file says.
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
    thresholds: Thresholds
    claims: tuple[Claim, ...]
    published: tuple[Published, ...]
    source: dict[str, Any]
    options: tuple[str, ...] = ()

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
        remarks = []
        for remark, is_so in HARDLY_MEANT.items():
            points = [point for point in self.points if is_so(point.parameters)]
            if points:
                remarks.append(f"{remark}, in {self._where(points)}")
        calm = calm_remark((point.scenario, point.parameters) for point in self.points)
        named = [
            (place_of(point.scenario, point.policy), point.parameters) for point in self.points
        ]
        remarks += filter(None, (calm, ties_remark(named), memory_remark(named)))
        remarks += [*self._saved_up(), *self._cut_waits(), *self._idle()]
        return (*remarks, *self._without_baseline())

    def _where(self, points: Sequence[Point]) -> str:
        """Name the scenarios of some cells, or their policies if others have none of them."""
        policies = dict.fromkeys(point.policy for point in points)
        if len(policies) < len({point.policy for point in self.points}):
            return first_of(list(policies))
        return ", ".join(sorted({point.scenario for point in points}))

    def _saved_up(self) -> list[str]:
        """Where the calm before the fault decides what a budget does."""
        shares: dict[str, float] = {}
        for point in self.points:
            share = share_saved(point.parameters)
            if share > MOST_SAVED:
                shares[point.scenario] = max(share, shares.get(point.scenario, 0.0))
        return [saving_remark(shares)] if shares else []

    def _cut_waits(self) -> list[str]:
        """Where a cap makes waits shorter than the backoff says, and hardly on purpose."""
        is_default = "backoff_cap" not in self.given
        cut: dict[str, dict[str, None]] = {}
        checked = set()
        for point in self.points:
            cell = point.parameters
            if (point.policy, cell.layers) in checked:
                continue
            checked.add((point.policy, cell.layers))
            name = place_of(point.scenario, point.policy)
            for layer in cell.layers:
                base, factor, cap = layer.backoff[:3]
                texts = [units.format_time(x / cell.rounds_per_second) for x in (base, cap)]
                said = f"backoff_cap, {texts[1]}{' by default' if is_default else ''}"
                if layer.tries > 1 and base > cap:
                    remark = f"backoff_base, {texts[0]}, is cut to {said}"
                elif is_default and _grows_beyond(cap, base, factor, layer.tries):
                    remark = f"waits grow to {said}, and no further: set backoff_cap"
                else:
                    continue
                cut.setdefault(remark, {})[name] = None
        return [f"{remark}, in {first_of(list(names))}" for remark, names in cut.items()]

    def _idle(self) -> list[str]:
        """Which values of a parameter make no difference, all others being equal."""
        remarks = []
        several = [point for point in self.points if point.parameters.max_attempts > 1]
        effects = [effect_of(point.parameters) for point in several]
        for name, why in MAY_BE_IDLE.items():
            if name not in self.given:
                continue
            others = operator.attrgetter(*(other for other in MAY_BE_IDLE if other != name))
            alike: dict[tuple[Any, ...], list[Point]] = {}
            for point, effect in zip(several, effects, strict=True):
                key = (point.scenario, effect, others(point.parameters))
                alike.setdefault(key, []).append(point)
            largest: dict[str, list[str]] = {}  # by policy the most values that are alike
            for points in alike.values():
                texts = list(dict.fromkeys(_value_text(name, p.parameters) for p in points))
                for point in points:
                    place = point.scenario if point.policy == "default" else point.policy
                    if len(texts) > max(1, len(largest.get(place, ()))):
                        largest[place] = texts
            places: dict[str, list[str]] = {}
            for place, texts in largest.items():
                places.setdefault(first_of(texts), []).append(place)
            remarks += [
                f"{name} {texts}: the same rows in some cells or all, in {first_of(some)}: {why}"
                for texts, some in places.items()
            ]
        return remarks

    @property
    def given(self) -> set[str]:
        """The parameters that the file or the command line sets."""
        points = (*self.source["scenario"], *self.source["policy"])
        design = self.source["design"] or {"ranges": []}
        axes = (axis["name"] for axis in (*self.source["grid"], *design["ranges"]))
        return {*self.source["fixed"], *axes, *(name for point in points for name in point)}

    def _without_baseline(self) -> list[str]:
        """How many cells are compared with nothing, as their baseline's own cell was left out."""
        policy = self.source["baseline"]
        n = sum(
            p.policy != policy and p.cell == baseline
            for p, baseline in zip(self.points, self.baselines, strict=True)
        )
        if not n:
            return []
        are = "is" if n == 1 else "are"
        return [
            f"{counted(n, 'cell')} {are} compared with nothing: exclude leaves the baseline out"
        ]

    @property
    def hints(self) -> tuple[str, ...]:
        """What costs more than it gains, or says less than it seems."""
        once = [
            (point.scenario, _USED_WITHOUT_RETRIES(point.parameters))
            for point in self.points
            if point.parameters.max_attempts == 1
            and not rejects(point.parameters)
            and not has_queue(point.parameters)
        ]
        n = len(once) - len(set(once))
        hints = []
        if n:
            hints.append(
                f"{counted(n, 'cell')} repeat{'s' if n == 1 else ''} others: without retries, "
                "budget and backoff change nothing"
            )
        by_chance = [point for point in self.points if has_peaks_of_chance(point.parameters)]
        if by_chance:
            hints.append(
                "peak is the most calls in one round, and chance alone brings more than the "
                "capacity into a round of the calm: compare peaks only in rounds as long, in "
                f"{self._where(by_chance)}"
            )
        if self.precision is not None and self.precision.min < MIN_REPLICATIONS:
            n = MIN_REPLICATIONS
            hints.append(f"intervals of fewer than {n} replications are rough: min = {n}")
        return tuple(hints)


def _grows_beyond(cap: float, base: float, factor: float, tries: int) -> bool:
    """Whether the ceiling of a layer's last wait would be above the cap without it."""
    if tries < 3 or base <= 0 or cap <= 0:
        return False
    return math.log2(base) + (tries - 2) * math.log2(factor) > math.log2(cap)


def _value_text(name: str, cell: Cell) -> str:
    """A parameter of a cell as a reader is given it."""
    return _text(name, getattr(cell, name), cell.rounds_per_second)


@functools.lru_cache(maxsize=1024)  # a grid has each value in many cells
def _text(name: str, value: Hashable, per_second: float) -> str:
    of = PARAMETERS[name]
    return units.text_of(of.dimension, value, per_second, of.unit)


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
