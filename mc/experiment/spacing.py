"""Values between two ends: ranges on the axes of [grid], and the points of [design]."""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

from pydantic import ConfigDict, create_model

from mc.experiment.keys import HIDDEN, ParameterTable, key
from mc.experiment.validation import FAULTY, Checked, Table, with_keys, within
from mc.model import PARAMETERS
from mc.model.digits import value_text
from mc.model.parameters import Kind
from mc.model.settings import Settings

DIGITS: Final = 30
"""Nearly twice those of a double: a value between two ends is rounded once, at the end."""


def _narrow_ends(schema: dict[str, Any], span: type[Span]) -> None:
    """Have the JSON schema say what the ends may be."""
    number = span.kind_of_values.number
    for end in ("from", "to"):
        schema["properties"][end] |= number.schema if number else {}


class Span(Table):
    """Two values of a parameter, both included, and the scale between them."""

    model_config = ConfigDict(json_schema_extra=_narrow_ends)
    kind_of_values: ClassVar[Kind]
    source: ClassVar[str] = ""
    """Whose rule a message quotes, see `Settings.source`."""
    start: float = key("a number", alias="from")
    end: float = key("a number", alias="to")
    scale: Literal["linear", "log"] = key('"linear" or "log"', "linear")

    @classmethod
    def of(cls, name: str) -> Any:
        """Make the model for one parameter; one without numbers is left out of the schema."""
        model = create_model(f"{name}_{cls.__name__.lower()}", __base__=cls)
        model.kind_of_values = PARAMETERS[name].kind
        return model if PARAMETERS[name].kind.number else HIDDEN[model]

    @classmethod
    def of_entry(cls, name: str, settings: type[Settings]) -> Any:
        """Make the model for an entry of a table."""
        model = create_model(f"{name}_{cls.__name__.lower()}", __base__=cls)
        model.kind_of_values = settings.declared()[name].kind
        model.source = settings.source()
        return model

    def check(self) -> Checked[None]:
        """Check the ends, each by itself and together."""
        number = self.kind_of_values.number
        if number is None:
            yield "this is no number: write a list of values in [grid]"
            return
        ends = {"from": self.start, "to": self.end}
        outside = [name for name, x in ends.items() if x is not FAULTY and not number.accepts(x)]
        for name in outside:
            yield f"{name} must be {number.rule}, got {ends[name]}{self.source}"
        if outside or FAULTY in (self.start, self.end, self.scale):
            return
        if not self.start < self.end:
            yield f"from must be < to, got {value_text(self.start)} and {value_text(self.end)}"
        elif self.scale == "log" and self.start <= 0:
            yield f'from must be > 0 for scale "log", got {value_text(self.start)}'

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends in their canonical form."""
        kind = self.kind_of_values
        return kind.parse(self.start), kind.parse(self.end)

    @property
    def whole(self) -> bool:
        """Whether the values between are rounded to whole numbers, a half upwards: as both ends."""
        return all(isinstance(end, int) for end in self.ends)

    def at_shares(self, shares: Iterable[float]) -> list[float]:
        """Map shares of 0 .. 1 evenly to all values: each whole number has an equal part."""
        low, high = self.ends
        # a whole number stands for all that is rounded to it: half a step at either end
        margin = 0.5 if self.whole else 0
        return [min(x, high) for x in self.between(low - margin, high + margin, shares, 1)]

    def between(self, low: float, high: float, parts: Iterable[float], of: int) -> list[float]:
        """Go each of `parts` / `of` of the way from `low` to `high`.

        In decimal arithmetic: the second step of 0.05, 0.1, ... 0.5 is 0.15 and not
        0.15000000000000002, so the cell is the same as one with the value written out; and the
        last bit of a double's exp differs between platforms.
        """
        with decimal.localcontext(decimal.Context(prec=DIGITS)):
            start, end = Decimal(repr(low)), Decimal(repr(high))
            if self.scale == "log":
                start, end = start.ln(), end.ln()
            values = [start + (end - start) * Decimal(part) / of for part in parts]
            if self.scale == "log":
                values = [value.exp() for value in values]
            if self.whole:
                return [int(value.to_integral_value(decimal.ROUND_HALF_UP)) for value in values]
            return [self.kind_of_values.parse(float(value)) for value in values]


class Range(Span):
    """An axis of [grid] that is not written out: from one end to the other in equal steps.

    The differences are equal on a linear scale, the ratios on a logarithmic one.
    """

    steps: int = key("a whole number >= 2", ge=2)

    def values(self) -> list[float]:
        """Write all values out, both ends as they are."""
        low, high = self.ends
        return [low, *self.between(low, high, range(1, self.steps - 1), self.steps - 1), high]


def _side_key(name: str) -> Any:
    return Span.of(name), key("a range {from, to}", None)


@with_keys(PARAMETERS, _side_key)
class Design(ParameterTable):
    """[design]: points that fill a box of parameters evenly; they depend on nothing else.

    In a Latin hypercube each parameter is stratified: of N points one lies in each N-th of its
    range. A Sobol sequence fills the box in all parameters together, and more points leave the
    first as they are.
    """

    kind: Literal["latin-hypercube", "sobol"] = key('"latin-hypercube" or "sobol"')
    n_points: int = key("a whole number >= 1", alias="points", ge=1)
    seed: int | None = key("a whole number >= 0", None, ge=0)

    def check(self) -> Checked[None]:
        """Check the number of points, and every side of the box."""
        if self.kind == "sobol" and self.n_points is not FAULTY and self.n_points.bit_count() > 1:
            below = 1 << (self.n_points.bit_length() - 1)
            rule = 'a power of two for kind "sobol" (only then is it balanced)'
            yield f"points must be {rule}, got {self.n_points}: take {below} or {2 * below}"
        if not self.contents.keys() - {"kind", "points", "seed"}:
            yield "one or more parameters must be given a range {from, to}"
        for name, span in self.entries.items():
            if span is not FAULTY:
                yield from within(name, span.check())

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
        unit = make(len(self.entries), seed=np.random.Generator(np.random.PCG64(self.seed)))
        shares = unit.random(self.n_points).T.tolist()
        spans = self.entries.values()
        columns = [span.at_shares(column) for span, column in zip(spans, shares, strict=True)]
        return [dict(zip(self.entries, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def source(self) -> dict[str, Any]:
        """The definition, in types that JSON knows; the order of the parameters counts."""
        return {
            "kind": self.kind,
            "points": self.n_points,
            "seed": self.seed,
            "ranges": [
                {"name": name, "from": span.ends[0], "to": span.ends[1], "scale": span.scale}
                for name, span in self.entries.items()
            ],
        }
