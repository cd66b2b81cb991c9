"""The explorer: the scores and the storm of every cell of a grid, for the page's script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from mc.decisions.scorecard import scores_of
from mc.experiment import cells_of
from mc.reports import page_tables
from mc.reports.curves import Stretch, equally_long
from mc.reports.notation import json_for_page
from mc.reports.view import View

MOST_BYTES: Final = 4_000_000
"""Of the data on the page; beyond that there are no storms, then no explorer."""

_CELL_BYTES: Final = 50
"""The scores of a cell take more."""

_SLIDER: Final = 3
"""Values of an axis from which it is a slider, if they have an order."""


def explorer(view: View, storms: pl.DataFrame) -> str:
    """What the explorer shows, as JSON; empty where there is no grid, or too large a one.

    Parameters
    ----------
    view : View
    storms : polars.DataFrame
        Of `curves.curves`; a cell that is not in it has no storm.

    Returns
    -------
    str
    """
    if not view.axes or len(view.lines) * _CELL_BYTES > MOST_BYTES:
        return ""
    coordinates = _coordinates(view)
    data: dict[str, Any] = {
        "axes": [axis for axis, _ in coordinates.values()],
        "heads": [page_tables.score_heads(scenario) for scenario in view.scenarios],
        "cells": [_cell(view, number, coordinates) for number in view.lines],
        "first": _cell(view, view.stormy[0].card.lines[0].cells[0], coordinates),
        "scores": _scores(view),
        "storms": {},
    }
    drawn = set(storms["cell"].unique()) if len(view.lines) > 1 else set()
    if drawn >= {cell for scenario in view.drawn for cell in scenario.cells}:
        data["storms"] = _storms(view, storms)
    for _ in range(2):
        text = json_for_page(data)
        if len(text.encode()) <= MOST_BYTES:
            return text
        data["storms"] = {}
    return ""


def _coordinates(view: View) -> dict[str, tuple[dict[str, Any], list[Any]]]:
    """By name: what is said of each coordinate that varies, and its values."""
    found: dict[str, tuple[dict[str, Any], list[Any]]] = {}
    names = [scenario.name for scenario in view.scenarios]
    for name, values in (("scenario", names), ("policy", view.policies)):
        if len(values) > 1:
            found[name] = {"name": name, "values": values, "slider": False}, values
    for axis in sorted(view.axes, key=lambda one: view.grid.index(one.name)):
        drawn: Sequence[Any] = axis.numbers or axis.values
        is_ordered = all(isinstance(value, int | float | None) for value in drawn)
        told = {
            "name": axis.title,
            "values": [axis.text(value) for value in axis.values],
            "slider": is_ordered and len(axis.values) >= _SLIDER,
        }
        found[axis.name] = told, axis.values
    return found


def _cell(
    view: View, number: int, coordinates: Mapping[str, tuple[dict[str, Any], Sequence[Any]]]
) -> list[int]:
    """Where a cell is on each axis, its number, and that of its scenario from 0."""
    line = view.lines[number]
    at = [values.index(line[name]) for name, (_, values) in coordinates.items()]
    scenario = next(s.number for s in view.scenarios if s.name == line["scenario"])
    return [*at, number, scenario - 1]


def _scores(view: View) -> dict[int, list[list[str]]]:
    """The entries of the scorecard of each cell: number and range."""
    fields = {
        cell: map(page_tables.score_field, scores)
        for scenario in view.scenarios
        for cell, scores in scores_of(view.results, scenario.card).items()
    }
    return {cell: [[field.text, field.more] for field in some] for cell, some in fields.items()}


def _storms(view: View, storms: pl.DataFrame) -> dict[int, dict[str, Any]]:
    """The curves of each cell in calls per second, and when and how much is served."""
    found = {}
    for scenario in view.drawn:
        lines = view.results.cells.filter(pl.col("cell").is_in(scenario.cells))
        cells = cells_of(lines)
        alike = dict(zip(cells, equally_long(cells.values()), strict=True))
        for (number,), line in storms.filter(pl.col("cell").is_in(scenario.cells)).group_by(
            "cell", maintain_order=True
        ):
            cell = alike[int(str(number))]
            edges = Stretch(line["round"][0], line.height, line["rounds"][0]).seconds(cell)
            per_second = cell.rounds_per_second
            found[int(str(number))] = {
                "start": round(float(edges[0]), 4),
                "step": round(float(edges[1] - edges[0]), 6),
                **{
                    name: [float(f"{x * per_second:.3g}") for x in line[column]]
                    for name, column in (
                        *(("low", "low_95"), ("median", "median"), ("high", "high_95")),
                        ("capacity", "capacity"),
                    )
                },
            }
    return found
