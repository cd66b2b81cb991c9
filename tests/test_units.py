"""Quantities with units: what is read, what is refused and with which advice, what is printed."""

from __future__ import annotations

import pytest

from mc.model import units


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("250 ms", "time", 0.25),
        ("250ms", "time", 0.25),
        ("45 s", "time", 45.0),
        ("2 min", "time", 120.0),
        ("1.5 h", "time", 5400.0),
        ("1e3 us", "time", 1e-3),
        ("400/s", "rate", 400.0),
        ("400 / s", "rate", 400.0),
        ("30/min", "rate", 0.5),
        ("30 %", "share", 0.3),
        ("0.5 %", "share", 0.005),
    ],
)
def test_a_quantity_is_read(text: str, dimension: units.Dimension, value: float) -> None:
    got = units.parse(text, dimension)
    assert got is not None
    assert got.value == pytest.approx(value, rel=1e-15)
    assert str(got) == text


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        *[(text, "time") for text in ("250", "ms", "250 m", "-1 s", "1 s 2", "0,5 s", "400/s", "")],
        *[(text, "rate") for text in ("400", "400/", "400 s", "-1/s", "1e999/s")],
        *[(text, "share") for text in ("30%", "30", "-1 %", "30 %%")],
    ],
)
def test_what_is_not_written_so_is_no_quantity(text: str, dimension: units.Dimension) -> None:
    assert units.parse(text, dimension) is None


@pytest.mark.parametrize(
    ("text", "dimension", "advice"),
    [
        ("30%", "share", 'write "30 %" or 0.3'),
        ("0,5", "share", "write 0.5 with a decimal point"),
        ("1,000", None, "write 1.000 with a decimal point, or 1000 without a comma"),
        ("1,000,000", "time", "write 1000000 without commas"),
        ("soon", "time", 'write a number, or a text such as "250 ms", "45 s", "2 min" or "1 h"'),
        ("soon", None, ""),
    ],
)
def test_advice_names_the_right_form(
    text: str, dimension: units.Dimension | None, advice: str
) -> None:
    assert units.advice(text, dimension) == advice


def test_a_time_of_whole_rounds_is_a_whole_number() -> None:
    assert units.in_rounds(0.3, 100.0) == 30.0  # 0.3 * 100 is 30.000000000000004 or so for some
    assert units.in_rounds(0.07, 100.0) == 7.0  # 0.07 * 100 > 7 in doubles
    assert units.in_rounds(3600.0, 1e3 / 3) == 1_200_000.0
    assert units.in_rounds(0.025, 100.0) == 2.5


def test_the_nearest_times_are_named_in_the_users_unit() -> None:
    assert units.neighbours(2.5, 100.0) == "20 ms (2 rounds) or 30 ms (3 rounds)"
    expected = "39.999 s (13333 rounds) or 40.002 s (13334 rounds)"
    assert units.neighbours(13333.3, 1000 / 3) == expected, "40 s is what was refused"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (5e-5, "50 us"), (0.02, "20 ms"), (7.34, "7.34 s"), (119.0, "119 s"),
     (120.0, "2 min"), (5400.0, "1.5 h"), (7.2e6, "2 000 h")],
)  # fmt: skip
def test_a_time_is_printed_in_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert units.format_time(seconds) == text


def test_a_printed_time_is_read_again_as_the_same() -> None:
    for seconds in (5e-5, 0.02, 7.34, 119.0, 600.0, 5400.0):
        got = units.parse(units.format_time(seconds), "time")
        assert got is not None
        assert got.value == pytest.approx(seconds, rel=1e-12)
