"""The report of a sweep: its frontier, its maps, and which cells are drawn alone."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import polars as pl
from folders import run
from matplotlib.colors import to_hex
from reported import GRID, Page, contrast

import mc
from mc.reports import maps
from mc.reports.notation import with_error
from mc.reports.style import ON_DARK, ON_LIGHT, style
from mc.reports.tradeoff import draw_tradeoff
from mc.reports.view import View
from mc.statistics import half_width


def test_a_grid_becomes_maps_with_their_half_widths(grid: Path) -> None:
    svg = (grid / "figures" / "sweep-1-window-rate.svg").read_text()
    results = mc.load(grid)
    from mc.statistics import format_estimate

    tried = results.cells.filter(policy="nine tries")["cell"].implode()
    for line in results.summary.filter(
        pl.col("metric") == "window_rate", pl.col("cell").is_in(tried)
    ).iter_rows(named=True):
        # per second: a second has 100 rounds
        half_width = 50 * (line["ci_high"] - line["ci_low"])
        mean, error = format_estimate(100 * line["mean"], half_width)
        assert f">{mean}<" in svg
        assert f">±{error}<" in svg


def test_a_policy_that_no_axis_changes_has_no_map_but_a_sentence(grid: Path) -> None:
    svg = (grid / "figures" / "sweep-1-window-rate.svg").read_text()
    assert "nine tries" in svg
    assert "one try" not in svg
    page = Page((grid / "report.html").read_text("utf-8"))
    assert re.search(r"“one try” has [\d.]+ ± [\d.]+ calls/s in all of its 30 cells", page.read)


def test_what_lies_far_out_does_not_flatten_the_colours_of_the_others(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    planned = maps.plan_maps(scenario, "window_rate")
    tried = view.results.cells.filter(policy="nine tries")
    rates = {
        kind: [view.mean(cell, "window_rate") or 0.0 for cell in some["cell"]]
        for kind, some in (
            ("none", tried.filter(pl.col("budget").is_null())),
            ("some", tried.filter(pl.col("budget").is_not_null())),
        )
    }
    assert (planned.scale.vmin, planned.scale.vmax) == (min(rates["some"]), max(rates["some"]))
    assert planned.outside == sorted(rates["none"])


def test_text_stands_out_on_every_colour_of_a_map() -> None:
    colors = mpl.colormaps["cividis"].with_extremes(**maps.BEYOND)
    for x in np.linspace(-0.01, 1.01, 256):
        ground = colors(x)
        got = contrast(maps.text_color(ground), to_hex(ground))
        assert got >= 4.5, x


def test_text_in_a_figure_follows_the_page_unless_it_stands_on_a_colour(grid: Path) -> None:
    page = (grid / "report.html").read_text("utf-8")
    got = {re.search(r"fill: ([^;\"]+)", text[0]) for text in re.finditer("<text[^>]*>", page)}
    colors = {fill[1] for fill in got if fill is not None}
    assert {"var(--ink)", ON_DARK, ON_LIGHT} <= colors
    assert colors <= {"var(--ink)", "var(--muted)", ON_DARK, ON_LIGHT}
    assert None not in got


def test_of_a_sweep_the_baseline_the_frontier_and_the_worst_are_drawn_alone(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    chosen = scenario.chosen
    rates = [view.mean(cell, "window_rate") or 0.0 for cell in chosen]
    every = {cell: view.mean(cell, "window_rate") or 0.0 for cell in scenario.cells}
    assert len(every) == 60
    assert 3 <= len(chosen) <= 6
    assert rates == sorted(rates)
    assert rates[-1] == max(every.values())
    baseline = view.results.comparisons["baseline"].min()
    assert baseline in chosen
    assert set(chosen[:-1]) - {baseline} <= set(scenario.marks)


def test_the_frontier_of_the_page_is_that_of_the_command(grid: Path) -> None:
    view = View(mc.load(grid))
    answers = mc.frontier(grid, "window_rate", "dropped")
    (scenario,) = view.scenarios
    frontier = scenario.frontier
    assert frontier is not None
    assert frontier.on == dict(answers.select("cell", "group_on").iter_rows())
    assert frontier.n == 200
    groups = answers.unique("group")
    assert frontier.n_equal == 60 - groups.height > 0
    n = dict(groups["group_on"].value_counts().iter_rows())
    assert min(n["yes"], n["no"], n["undecided"]) > 1
    page = Page((grid / "report.html").read_text("utf-8"))
    assert (
        f"Of 60 cells ({frontier.n_equal} are equal to another one in every replication and "
        f"counted with it), {n['yes']} are surely on the frontier of window rate and requests "
        f"dropped: no other is as good in both and better in one. {n['no']} surely are not, and "
        f"{n['undecided']} are undecided after 200 replications."
    ) in page.read


def test_a_letter_is_for_a_cell_that_may_be_on_the_frontier(grid: Path) -> None:
    view = View(mc.load(grid))
    (scenario,) = view.scenarios
    frontier = scenario.frontier
    assert frontier is not None
    on = {cell: frontier.on[cell] for cell in scenario.marks}
    assert set(on.values()) <= {"yes", "undecided"}
    means = [(view.mean(cell, "window_rate"), view.mean(cell, "dropped")) for cell in on]
    rates, drops = zip(*means, strict=True)
    assert list(rates) == sorted(rates)
    assert list(drops) == sorted(drops, reverse=True)
    page = Page((grid / "report.html").read_text("utf-8"))
    for cell, letter in scenario.marks.items():
        assert re.search(rf"{letter}: {view.lines[cell]['label']}[^:]* {on[cell]} ", page.read)


def test_without_rows_the_page_says_that_the_frontier_is_not_known(tmp_path: Path) -> None:
    counted = GRID.replace("replications = 200", 'replications = 40\nkeep = "histograms"')
    run(counted, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert "Which of the 60 cells are on the frontier" in page.read
    assert "Lowest mean window rate" in page.read
    assert "the ones with the lowest window rate and the fewest drops" in page.read
    assert "surely" not in page.read


def test_the_table_of_the_frontier_says_what_the_letters_in_the_figure_are(grid: Path) -> None:
    page = Page((grid / "report.html").read_text("utf-8"))
    svg = (grid / "figures" / "frontier.svg").read_text()
    view = View(mc.load(grid))
    marks = view.scenarios[0].marks
    assert 3 <= len(marks) <= 8
    assert list(marks.values()) == list("ABCDEFGH")[: len(marks)]
    for cell, letter in marks.items():
        assert f">{letter}</text>" in svg
        assert f"{letter}: {view.lines[cell]['label']}" in page.read


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
    assert f"mean times usual of {name}: {expected}." in page.read


def test_equal_means_are_a_tie_whether_they_have_an_interval_or_not(tmp_path: Path) -> None:
    text = (
        'title = "Ties"\nreplications = 20\n[fixed]\nrounds = 200\nfailure_rate = 0.05\n'
        "[[policy]]\nname = 'one'\n[[policy]]\nname = 'many'\ntries = [9]\n"
        "[[policy]]\nname = 'more'\ntries = [3, 9]\n"
    )
    run(text, tmp_path / "results")
    assert View(mc.load(tmp_path / "results")).half_width(1, "dropped") is None
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert "Fewest requests dropped: 0 requests in 2 cells: many; more; most:" in page.read
    assert re.search(r"highest: \S+ ± \S+ calls, the same in 2 cells: many; more", page.read)


def test_no_axis_of_the_trade_off_begins_below_0(grid: Path) -> None:
    with style():
        view = View(mc.load(grid))
        drawing = draw_tradeoff(view, view.scenarios)
    (panel,) = (figure.axes[0] for figure in drawing.panels)
    assert panel.get_xlim()[0] >= 0
    assert panel.get_ylim()[0] >= 0
