"""The report of a sweep: its frontier, its maps, and which cells are drawn alone."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from folders import run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize, to_hex
from matplotlib.patches import Rectangle
from reported import GRID, Page, contrast

import mc
from mc.decisions.scorecard import scorecards
from mc.experiment import read
from mc.model import PARAMETERS
from mc.reports import maps
from mc.reports.distributions import draw_distributions, histograms
from mc.reports.notation import short, with_error
from mc.reports.style import ON_DARK, ON_LIGHT, style
from mc.reports.sweeps import draw_design
from mc.reports.tradeoff import draw_tradeoff
from mc.reports.view import Axis, View
from mc.statistics import half_width


def test_a_grid_becomes_maps_with_their_numbers(grid: Path) -> None:
    svg = (grid / "figures" / "sweep-1-times-usual.svg").read_text()
    results = mc.load(grid)
    tried = results.cells.filter(policy="nine tries")["cell"].implode()
    for line in results.summary.filter(
        pl.col("metric") == "times_usual", pl.col("cell").is_in(tried)
    ).iter_rows(named=True):
        assert f">{short(line['mean'])}<" in svg


def test_a_policy_that_no_axis_changes_has_no_map_but_a_sentence(grid: Path) -> None:
    svg = (grid / "figures" / "sweep-1-times-usual.svg").read_text()
    assert "nine tries" in svg
    assert "one try" not in svg
    page = Page((grid / "report.html").read_text("utf-8"))
    assert re.search(r"“one try” has [\d.]+ ± [\d.]+ in all of its 15 cells", page.read)


def test_an_axis_that_changes_nothing_has_no_map_but_a_sentence(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    planned = maps.plan_maps(scenario, "times_usual")
    assert [axis.name for axis in planned.axes] == ["budget", "backoff_cap"]
    assert [axis.name for axis in planned.idle] == ["threshold"]  # it only tells what is late
    page = Page((grid / "report.html").read_text("utf-8"))
    assert "threshold changes nothing." in page.read


def test_a_map_has_a_scale_of_its_own_and_outlines_the_frontier(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    planned = maps.plan_maps(scenario, "times_usual")
    with style():
        drawing = maps.draw_maps(scenario, planned, "times_usual")
    for (policy,), figure in zip(planned.drawn, drawing.panels, strict=True):
        mesh, scale = figure.axes[0].collections[:2]
        cells = [cell for key, cell in planned.fields.items() if key[0] == policy]
        means = [view.mean(cell, "times_usual") for cell in cells]
        for colored in (mesh, scale):
            assert isinstance(colored.norm, Normalize)
            assert (colored.norm.vmin, colored.norm.vmax) == (min(means), max(means))  # type: ignore[type-var]
        got = sum(isinstance(patch, Rectangle) for patch in figure.axes[0].patches)
        expected = sum(scenario.on_frontier[cell] == "yes" for cell in cells)
        assert got == expected > 0


def test_an_axis_that_a_design_samples_in_logarithms_is_drawn_so(tmp_path: Path) -> None:
    text = (
        'title = "Design"\nreplications = 10\n[fixed]\nrounds = 200\nfault_start = 20\n'
        'fault_rounds = 30\ntries = [3]\n[design]\nkind = "sobol"\npoints = 8\n'
        'backoff_base = {from = 0.5, to = 16, scale = "log"}\n'
        "arrivals_per_second = {from = 50, to = 90}\n"
    )
    run(text, tmp_path / "results")
    view = View(mc.load(tmp_path / "results"))
    with style():
        drawing = draw_design(view.scenarios[0])
    got = [figure.axes[0].get_xscale() for figure in drawing.panels]
    assert got == ["log", "log", "linear", "linear"]


def test_text_stands_out_on_every_colour_of_a_map() -> None:
    colors = mpl.colormaps["cividis"]
    for x in np.linspace(0, 1, 256):
        ground = colors(x)
        got = contrast(maps.text_color(ground), to_hex(ground))
        assert got >= 4.5, x


def test_text_in_a_figure_follows_the_page_unless_it_stands_on_a_colour(grid: Path) -> None:
    page = (grid / "report.html").read_text("utf-8")
    got = {re.search(r"fill: ([^;\"]+)", text[0]) for text in re.finditer("<text[^>]*>", page)}
    colors = {fill[1] for fill in got if fill is not None}
    assert {"var(--ink)", ON_DARK, ON_LIGHT} <= colors
    assert colors <= {"var(--ink)", "var(--muted)", "var(--series-0)", ON_DARK, ON_LIGHT}
    assert None not in got


def test_of_a_sweep_some_of_the_scorecard_and_the_worst_are_drawn_alone(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    assert len(scenario.cells) == 60
    highest = max(view.mean(cell, "times_usual") or 0.0 for cell in scenario.cells)
    *others, last = scenario.chosen
    assert view.mean(last, "times_usual") == highest
    assert 3 <= len(others) <= 7
    assert set(others) <= set(scenario.marks)


def test_the_frontier_of_the_page_is_that_of_the_command(grid: Path) -> None:
    (scenario,) = View(mc.load(grid)).scenarios
    answers = mc.frontier(grid, "times_usual", "failed_share")
    got = scenario.on_frontier
    expected = dict(answers.select("cell", "group_on").iter_rows())
    assert got == expected
    assert set(got.values()) == {"yes", "no", "undecided"}


def test_the_scorecard_of_the_page_is_that_of_the_terminal(grid: Path) -> None:
    page = Page((grid / "report.html").read_text("utf-8"))
    svg = (grid / "figures" / "frontier.svg").read_text()
    (card,) = scorecards(mc.load(grid))
    assert card.finding in page.read
    for letter, line in zip(ascii_uppercase, card.lines, strict=False):
        numbers = [score.text.replace("±", " ± ") for score in line.scores if score is not None]
        assert f"{letter}: {line.name}" in page.read
        assert all(number in page.read for number in numbers)
        assert f">{letter}</text>" in svg


def test_without_rows_no_cell_is_surely_on_the_frontier(tmp_path: Path) -> None:
    counted = GRID.replace("replications = 200", 'replications = 40\nkeep = "histograms"')
    run(counted, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert "Surely on that frontier" not in page.read
    assert "Outlined" not in page.read


def test_a_claim_against_a_number_is_told_as_a_mean_and_its_distance(grid: Path) -> None:
    view = View(mc.load(grid))
    line = view.claims[0]
    cells = view.results.cells
    cell = cells.filter(policy="nine tries", budget=0.1, backoff_cap=4, threshold=1)["cell"]
    mean = view.mean(cell.item(), "times_usual") or 0.0
    name = "nine tries, budget 0.1, backoff_cap 4, threshold 1"
    assert line["names"] == f"{name} against 2"
    expected = f"{with_error(mean, half_width(line))}, {2 - mean:.3g} below 2"
    assert line["difference"] == expected
    page = Page((grid / "report.html").read_text("utf-8"))
    assert f"{expected} {name} against 2" in page.read


def test_no_axis_of_the_trade_off_begins_below_0(grid: Path) -> None:
    with style():
        view = View(mc.load(grid))
        drawing = draw_tradeoff(view, view.scenarios)
    (panel,) = (figure.axes[0] for figure in drawing.panels)
    assert panel.get_xlim()[0] >= 0
    assert panel.get_ylim()[0] >= 0


@pytest.mark.parametrize(
    ("grid", "title", "texts", "numbers"),
    [
        ('budget.kind = "finagle"\nbudget.ttl = ["1 s", "2 s"]', "budget.ttl", ["1 s", "2 s"],
         [100, 200]),
        ('budget.kind = "grpc"\nbudget.max_tokens = [5, 10]', "budget.max_tokens (tokens)",
         ["5", "10"], [5, 10]),
        ('budget = ["none", "10 %", {kind = "ratio", ratio = 0.1, window = "1 s"}]',
         "budget.window", ["no budget", "none", "1 s"], None),
        ('budget = [{kind = "grpc"}, {kind = "aws"}, "none"]', "budget", ["grpc", "aws", "none"],
         None),
        ("budget = [0.1, 0.2]", "budget (retries/primary)", ["0.1", "0.2"], [0.1, 0.2]),
        ("traffic.workers = [1, 2]", "traffic.workers (workers)", ["1", "2"], [1, 2]),
    ],
)  # fmt: skip
def test_an_axis_of_tables_shows_what_differs(
    tmp_path: Path, grid: str, title: str, texts: list[str], numbers: list[float] | None
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'title = "t"\nreplications = 1\n[fixed]\ntries = [2]\n[grid]\n{grid}')
    experiment = read(path)
    (name,) = (axis["name"] for axis in experiment.source["grid"])
    kind = PARAMETERS[name].kind
    values = [kind.to_column(getattr(point.parameters, name)) for point in experiment.points]
    axis = Axis(name, values, experiment.source)
    assert axis.title == title
    assert [axis.text(value) for value in values] == texts
    assert axis.numbers == numbers


TABLES = """
title = "Values that are tables"
replications = 4
[fixed]
rounds = 300
fault_start = 100
fault_rounds = 50
tries = [3]
[grid]
backoff_base = [1, 4]
budget = [
    {kind = "finagle", percent_can_retry = 0.1, min_retries_per_sec = 0},
    {kind = "finagle", percent_can_retry = 0.2, min_retries_per_sec = 1},
    {kind = "finagle", percent_can_retry = 0.2, min_retries_per_sec = 10},
    {kind = "finagle", percent_can_retry = 0.3, min_retries_per_sec = 10},
    {kind = "finagle", percent_can_retry = 0.5, min_retries_per_sec = 20},
    {kind = "finagle", percent_can_retry = 0.6, min_retries_per_sec = 120},
]
"""


def test_no_text_of_a_map_of_tables_touches_another(tmp_path: Path) -> None:
    run(TABLES, tmp_path / "results")
    (scenario,) = View(mc.load(tmp_path / "results")).scenarios
    with style():
        drawing = maps.draw_maps(scenario, maps.plan_maps(scenario, "times_usual"), "times_usual")
        (figure,) = drawing.panels
        canvas: Any = FigureCanvasAgg(figure)
        texts = [text for text in figure.axes[0].texts if text.get_text()]
        boxes = {text.get_text(): text.get_window_extent(canvas.get_renderer()) for text in texts}
    assert "120/s,\n60 %" in boxes
    assert "budget: min_retries_per_sec, percent_can_retry" in boxes
    assert min(box.y0 for box in boxes.values()) >= 0
    for one, other in itertools.combinations(boxes.values(), 2):
        assert not one.overlaps(other)


def test_a_value_that_all_runs_have_is_a_narrow_bar_with_one_number(tmp_path: Path) -> None:
    run(TABLES, tmp_path / "results")
    (scenario,) = View(mc.load(tmp_path / "results")).scenarios
    counts = {(cell, "dropped"): (np.array([0.0]), np.array([4])) for cell in scenario.chosen}
    with style():
        drawing = draw_distributions(scenario, histograms(scenario, counts))
    ((panel,),) = (figure.axes for figure in drawing.panels)
    low, high = panel.get_xlim()
    assert high - low > 10  # of whole numbers a bar is as wide as 1
    numbers = [text.get_text() for text in panel.texts if text.get_position()[1] < 0]
    assert [text for text in numbers if re.fullmatch(r"[-0-9.]+", text)] == ["0"]
