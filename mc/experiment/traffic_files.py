"""Traffic that was recorded: files of counts, or of the times of requests.

Nothing in them is mended: the first line that cannot be right is a fault of the experiment.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mc.experiment.messages import listed, quote
from mc.model import MAX_REQUESTS, units
from mc.model.traffic import MAX_ROUNDS, Counts

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

_MICROSECONDS: Final = 10**6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def with_counts(value: Any, folder: Path, per_second: float) -> Any:
    """Put the counts of a file into a table of `traffic`, or into each of a list of such tables.

    Parameters
    ----------
    value : object
        What the experiment file gives. All but a table with a ``file`` is returned as it is.
    folder : Path
        Where the experiment file is.
    per_second : float
        Rounds in a second.

    Returns
    -------
    object
        The same with counts in place of the file.

    Raises
    ------
    ValueError
        The first thing that is wrong with the file, with its line.
    """
    if isinstance(value, list):
        return [with_counts(entry, folder, per_second) for entry in value]
    if not isinstance(value, dict) or not isinstance(value.get("file"), str):
        return value
    if "counts" in value:
        raise ValueError("traffic must have counts or a file with them, got both")
    trace = _Trace(folder / Path(value["file"]).expanduser(), value["file"])
    if "timestamps" in value:
        for other in {"column", "per", "noise", "times"} & value.keys():
            raise ValueError(f"traffic.{other} goes with counts, not with timestamps")
        return value | {"counts": trace.requests(value["timestamps"], per_second), "per": 1}
    counts = trace.counts(value.get("column"), is_whole=value.get("noise", "none") == "none")
    if "times" in value:
        trace.check_steps(value["times"], _seconds(value.get("per"), per_second))
    return value | {"counts": counts}


def _seconds(per: object, per_second: float) -> float:
    quantity = units.parse(per, "time") if isinstance(per, str) else None
    if quantity is not None:
        return quantity.value
    if not isinstance(per, int | float):
        raise ValueError('traffic.per must be the length of a step, such as "1 s"')
    return per / per_second


_MOST_BYTES: Final = 1_000_000_000
"""Of a file of traffic: a device may have no end."""


class _Trace:
    """A file of counts or times; its name stands in front of every message."""

    def __init__(self, path: Path, name: str) -> None:
        import polars as pl

        self._name = name
        self._is_text = path.suffix.lower() == ".csv"
        if not self._is_text and path.suffix.lower() != ".parquet":
            self._refuse("must end in .csv or .parquet")
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror} ({path})")
        if len(content) > _MOST_BYTES:
            self._refuse(f"is longer than {_MOST_BYTES} bytes")
        if not content.strip():
            self._refuse("is empty")
        try:
            if self._is_text:
                self._table = pl.read_csv(io.BytesIO(content), infer_schema=False)
            else:
                self._table = pl.read_parquet(io.BytesIO(content))
        except (pl.exceptions.PolarsError, OSError) as error:
            kind = "CSV" if self._is_text else "Parquet"
            self._refuse(f"is no {kind} file: {str(error).splitlines()[0]}")
        if self._table.height == 0:
            self._refuse("has no rows")

    def _refuse(self, fault: str) -> NoReturn:
        raise ValueError(f"traffic.file {quote(self._name)} {fault}")

    def _refuse_row(self, i: int, fault: str) -> NoReturn:
        """Refuse row i, from 0: of a CSV file its line, the names being the first."""
        where = f"line {i + 2}" if self._is_text else f"row {i + 1}"
        self._refuse(f"{where}: {fault}")

    def _column(self, name: object) -> pl.Series:
        columns = self._table.columns
        if name is None and len(columns) == 1:
            return self._table.to_series()
        if name is None:
            self._refuse(f"has several columns: name one with column, of {listed(columns)}")
        if name not in columns:
            self._refuse(f"has no column {quote(str(name))}; there are {listed(columns)}")
        return self._table[str(name)]

    def _first(self, is_bad: pl.Series) -> int | None:
        return is_bad.arg_max() if is_bad.any() else None

    def _numbers(self, column: pl.Series, what: str) -> NDArray[np.float64]:
        """The numbers of a column, all finite."""
        import polars as pl

        if not (self._is_text or column.dtype.is_numeric()):
            self._refuse(f"column {quote(column.name)} must be of numbers, it is {column.dtype}")
        numbers = column.cast(pl.Float64, strict=False)
        i = self._first(numbers.is_null() | ~numbers.is_finite().fill_null(value=True))
        if i is not None:
            given = column[i]
            got = "nothing" if given is None else repr(given)
            self._refuse_row(i, f"{column.name} must be {what}, got {got}")
        return numbers.to_numpy()

    def counts(self, name: object, *, is_whole: bool) -> Counts:
        """The counts of a column."""
        column = self._column(name)
        if len(column) > MAX_ROUNDS:
            self._refuse(f"has {len(column)} rows, a run has <= {MAX_ROUNDS} rounds: add steps up")
        numbers = self._numbers(column, "a number >= 0")
        what = "a whole number >= 0" if is_whole else "a number >= 0"
        bad = (numbers < 0) | ((numbers % 1 != 0) if is_whole else False)
        if bad.any():
            i = int(bad.argmax())
            cure = ' (or a mean, with noise = "poisson")' if numbers[i] > 0 else ""
            self._refuse_row(i, f"{column.name} must be {what}{cure}, got {numbers[i]:g}")
        return Counts.of(numbers)

    def _times(self, name: object) -> NDArray[np.int64]:
        """The times of a column in microseconds, in order."""
        import numpy as np
        import polars as pl

        column = self._column(name)
        if column.dtype in (pl.Datetime, pl.Date):
            if column.null_count():
                self._refuse_row(int(column.is_null().arg_max() or 0), f"{name} is missing")
            times = column.cast(pl.Datetime("us")).cast(pl.Int64).to_numpy()
        elif column.dtype == pl.String and not _is_number(column[0]):
            times = self._dates(column)
        else:
            seconds = self._numbers(column, "a time in seconds, or a date with time")
            times = np.rint((seconds - seconds[0]) * _MICROSECONDS).astype(np.int64)
        later = np.diff(times) < 0
        if later.any():
            i = int(later.argmax()) + 1
            self._refuse_row(i, f"{name} must not be earlier than before it, got {column[i]!r}")
        return np.asarray(times - times[0], np.int64)

    def _dates(self, column: pl.Series) -> NDArray[np.int64]:
        import numpy as np

        times = np.empty(len(column), np.int64)
        has_zone: bool | None = None
        for i, text in enumerate(column):
            try:
                date = datetime.fromisoformat(text)
            except (TypeError, ValueError):
                got = "nothing" if text is None else repr(text)
                rule = 'a time in seconds, or a date with time ("2026-12-01 06:30:00.25")'
                self._refuse_row(i, f"{column.name} must be {rule}, got {got}")
            if has_zone is None:
                has_zone = date.tzinfo is not None
            if has_zone != (date.tzinfo is not None):
                rule = f"{'have a' if has_zone else 'be without'} time zone as before it"
                self._refuse_row(i, f"{column.name} must {rule}, got {text!r}")
            since = (date if has_zone else date.replace(tzinfo=UTC)) - _EPOCH
            times[i] = since // timedelta(microseconds=1)
        return times

    def check_steps(self, name: object, seconds: float) -> None:
        """Refuse steps that do not follow one another."""
        import numpy as np

        bad = np.diff(self._times(name)) != round(seconds * _MICROSECONDS)
        if bad.any():
            rule = f"{units.format_time(seconds)} after the row before it"
            got = self._column(name)[int(bad.argmax()) + 1]
            self._refuse_row(int(bad.argmax()) + 1, f"{name} must be {rule}, got {got!r}")

    def requests(self, name: object, per_second: float) -> Counts:
        """Requests of each round, by the times of a column; the first comes in round 0."""
        import numpy as np

        if self._table.height > MAX_REQUESTS:
            self._refuse(f"has {self._table.height} rows, a run has <= {MAX_REQUESTS} requests")
        times = self._times(name)
        # round t begins at t / per_second; exact in integers, be it in Python's
        rate = Fraction(repr(per_second)) / _MICROSECONDS
        last = int(times[-1]) * rate
        if last >= MAX_ROUNDS:
            length = units.format_time(int(times[-1]) / _MICROSECONDS)
            self._refuse(f"goes on for {length}, a run has <= {MAX_ROUNDS} rounds")
        is_small = int(times[-1]) * rate.numerator < 2**63
        exact = times if is_small else times.astype(object)
        rounds = (exact * rate.numerator // rate.denominator).astype(np.int64)
        return Counts.of(np.bincount(rounds))


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True
