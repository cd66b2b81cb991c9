"""[design]: points that fill a box of parameters evenly, where a grid would have too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mc.experiment.axes import Ends, read_ends
from mc.experiment.tables import (
    FAULTY,
    DesignKeys,
    DesignKind,
    Span,
    key_names,
    keys,
    others,
    refuse_others,
)
from mc.experiment.words import add, hint, quote, show
from mc.model import PARAMETERS


@dataclass(frozen=True)
class Design:
    """A definition of points; they depend on nothing else.

    Attributes
    ----------
    kind : {"latin-hypercube", "sobol"}
        In a Latin hypercube each parameter is stratified: of N points one lies in each N-th of
        its range. A Sobol sequence fills the box in all parameters together, and more points
        leave the first as they are.
    n_points : int
        For "sobol" a power of two.
    seed : int
        Of the scrambling, or of the shuffling.
    ends : dict
        By parameter, in the order of the file.
    """

    kind: DesignKind
    n_points: int
    seed: int
    ends: dict[str, Ends]

    def points(self) -> list[dict[str, Any]]:
        """Make the points: a value for each parameter.

        Notes
        -----
        McKay, Beckman & Conover 1979 (Latin hypercube); Sobol' 1967, with the directions of
        Joe & Kuo 2008 and the scrambling of Matousek 1998, as `scipy.stats.qmc` has them.
        """
        import numpy as np
        from scipy.stats import qmc  # half a second, which only a file with a design pays

        make = qmc.Sobol if self.kind == "sobol" else qmc.LatinHypercube
        # the bit generator by its name: which one is the default, numpy may change
        unit = make(len(self.ends), seed=np.random.Generator(np.random.PCG64(self.seed)))
        parts = unit.random(self.n_points).T.tolist()
        columns = [
            ends.shares(column) for ends, column in zip(self.ends.values(), parts, strict=True)
        ]
        return [dict(zip(self.ends, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def source(self) -> dict[str, Any]:
        """The definition, in types that JSON knows; the order of the parameters counts."""
        return {
            "kind": self.kind,
            "points": self.n_points,
            "seed": self.seed,
            "ranges": [
                {"name": name, "from": ends.low, "to": ends.high, "scale": ends.scale}
                for name, ends in self.ends.items()
            ],
        }


def read_design(table: Mapping[str, Any], seed: int, faults: list[str]) -> Design | None:
    """Read [design], with `seed` where it gives none; None if there is a fault (reported)."""
    n_faults = len(faults)
    given = keys(DesignKeys, {"seed": seed} | dict(table), "[design]", faults)
    kind, n_points = given["kind"], given["points"]
    if kind == "sobol" and n_points is not None and n_points & (n_points - 1):
        below = 1 << (n_points.bit_length() - 1)
        rule = 'a power of two for kind "sobol" (only then is it balanced)'
        add(
            faults,
            "[design]",
            f"points must be {rule}, got {n_points}: take {below} or {2 * below}",
        )
    ends: dict[str, Ends | None] = {}
    for name, span in others(DesignKeys, table).items():
        if name not in PARAMETERS:
            known = [*key_names(DesignKeys), *PARAMETERS]
            add(faults, "[design]", f"unknown parameter {quote(name)}{hint(name, known)}")
        elif not isinstance(span, dict):
            add(faults, "[design]", f"{name} must be a range {{from, to}}, got {show(span)}")
        else:
            where = f"[design]: {name}"
            refuse_others(Span, span, where, faults)
            ends[name] = read_ends(name, keys(Span, span, where, faults), where, faults)
    if not others(DesignKeys, table):
        add(faults, "[design]", "one or more parameters must be given a range {from, to}")
    known_ends = {name: entry for name, entry in ends.items() if entry is not None}
    if len(faults) > n_faults:
        return None
    return Design(kind, n_points, given["seed"], known_ends)


def design_points(
    design: Design | None, table: Mapping[str, Any] | None, faults: list[str]
) -> list[dict[str, Any]]:
    """Points of the axis: one without parameters where there is no design.

    A design with a fault, or not to be expanded, has one point with faulty parameters.
    """
    if design is None:
        return [{name: FAULTY for name in table or {} if name in PARAMETERS}]
    points = design.points()
    n_different = len({tuple(point.values()) for point in points})
    if n_different < len(points):
        cure = "use fewer points or wider ranges"
        add(faults, "[design]", f"{len(points)} points give only {n_different} different; {cure}")
    return points
