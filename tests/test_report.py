"""The report: the same bytes from the same results, and a page that says what is in them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from folders import run
from matplotlib.figure import Figure
from matplotlib.image import imread
from polars.testing import assert_frame_equal
from reported import OUTAGE, VARIANTS, Page, contrast, lab, lab_with_deuteranopia

import mc
from mc.decisions.scorecard import Score, scorecards
from mc.experiment import read
from mc.model import METRICS, PARAMETERS, Cell
from mc.reports import answer, is_current, pictures, storm_of
from mc.reports.curves import choose_stretch
from mc.reports.page_tables import score_field
from mc.reports.panels import Drawing
from mc.reports.rendering import draw, svg_file, svg_for_page
from mc.reports.replication import draw_replication
from mc.reports.style import SERIES, style
from mc.reports.view import View
from mc.runner.tracing import Rounds, rounds_of
from mc.store import undecided_told


@pytest.fixture(scope="module")
def page(small: Path) -> Page:
    return Page((small / "report.html").read_text("utf-8"))


def files(folder: Path) -> dict[str, bytes]:
    paths = [folder / "report.html", *sorted((folder / "figures").iterdir())]
    return {path.name: path.read_bytes() for path in paths}


def test_the_same_results_give_the_same_bytes_in_another_process(small: Path) -> None:
    expected = files(small)
    code = f"import mc; mc.report({str(small)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    got = files(small)
    assert got == expected


def test_what_was_simulated_is_not_simulated_again_unless_it_is_of_other_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results"
    run(VARIANTS["one axis"], folder)
    mc.report(folder)
    expected = files(folder)

    def refuse(*arguments: object) -> None:
        raise AssertionError("simulated again")

    with monkeypatch.context() as patched:
        patched.setattr(pictures, "curves", refuse)
        patched.setattr(pictures, "one_run", refuse)
        mc.report(folder)
        assert files(folder) == expected
        (folder / "report.html").unlink()  # which vouches for the tables
        with pytest.raises(AssertionError, match="simulated again"):
            mc.report(folder)
    mc.report(folder)
    assert files(folder) == expected


FIGURES: Final = {
    *("distribution-1", "frontier", "replication", "storm-1"),
}


def test_every_kind_of_figure_is_there_as_svg(small: Path) -> None:
    got = {path.name for path in (small / "figures").iterdir()}
    expected = {f"{name}.svg" for name in FIGURES} | {
        f"{name}.parquet" for name in ("storm", "distribution", "replication")
    }
    assert got == expected


def test_bitmaps_are_made_on_request_and_go_with_the_next_report(tmp_path: Path) -> None:
    run(OUTAGE, tmp_path / "results")
    figures = tmp_path / "results" / "figures"
    page = Page(mc.report(tmp_path / "results", png=True).read_text("utf-8"))
    names = {path.stem for path in figures.glob("*.png")}
    assert names == {path.stem for path in figures.glob("*.svg")}
    linked = {a["href"] for a in page.all("a")}
    for name in names:
        assert f"figures/{name}.png" in linked
        image = imread(figures / f"{name}.png")
        assert 0.02 < np.mean(image[..., :3].min(axis=2) < 0.9) < 0.5, "some of it is drawn on"
    mc.report(tmp_path / "results")
    assert not list(figures.glob("*.png"))


def test_a_figure_has_no_date_and_no_version(small: Path) -> None:
    for path in (small / "figures").glob("*.svg"):
        assert not re.search(r"dc:date|[Mm]atplotlib v|\b20\d\d-\d\d-\d\d\b", path.read_text())


def test_the_page_needs_no_network(page: Page) -> None:
    links = [a["href"] or "" for a in page.all("a")]
    loads = [
        x for tag in ("script", "img", "iframe", "source") for x in page.all(tag) if "src" in x
    ]
    assert not loads
    assert not [link for link in links if ":" in link]
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert "default-src 'none'" in page.text
    assert "@import" not in page.text


def test_every_link_of_the_page_leads_somewhere(small: Path, page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    for attributes in page.all("a"):
        link = attributes["href"] or ""
        assert link[1:] in ids if link.startswith("#") else (small / link).is_file(), link


def test_every_figure_has_an_alternative_text_and_its_data(page: Page) -> None:
    figures = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(figures) == len(page.all("figure")) == len(FIGURES)
    assert all(len(figure["aria-label"] or "") > 30 for figure in figures)
    data = [a["href"] for a in page.all("a") if (a["href"] or "").endswith(".parquet")]
    assert len(data) >= 6


def test_ids_on_the_page_are_unique(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page.text))
    assert used <= set(ids)


def test_the_page_is_accessible_in_its_basics(page: Page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert len(page.all("main")) == 1
    heads = page.all("th")
    assert heads
    assert {head["scope"] for head in heads} == {"col", "row"}
    assert len(page.all("caption")) == len(page.all("table"))


def test_text_and_lines_stand_out_in_light_and_dark_mode(page: Page) -> None:
    modes = re.findall(r":root \{(.*?)\}", page.text, re.DOTALL)
    assert len(modes) == 2
    for mode in modes:
        colors = dict(re.findall(r"--([\w-]+): (#\w{6})", mode))
        for name in ("ink", "muted", "link", "best"):  # WCAG 2.2: 4.5 for text, 3 for what is drawn
            assert contrast(colors[name], colors["paper"]) >= 4.5, name
        for i in range(len(SERIES)):
            assert contrast(colors[f"series-{i}"], colors["paper"]) >= 3, i


def test_any_two_colours_are_told_apart_with_deuteranopia_too(page: Page) -> None:
    for mode in re.findall(r":root \{(.*?)\}", page.text, re.DOTALL):
        colors = [color for _, color in re.findall(r"--(series-\d): (#\w{6})", mode)]
        assert len(colors) == len(SERIES)
        for one, other in itertools.combinations(colors, 2):
            for seen in (lab, lab_with_deuteranopia):
                # 2.3 is just noticeable; ten times that in marks of a few pixels
                assert np.linalg.norm(seen(one) - seen(other)) >= 20, (one, other)


def test_the_answer_is_made_from_the_numbers(small: Path, page: Page) -> None:
    results = mc.load(small)
    verdicts = dict(results.claims.select("text", "verdict").iter_rows())
    assert verdicts == {"the storm grows": "holds", "nobody is dropped": "fails"}
    assert "Claims: 1 holds, 1 fails." in page.read, "as on the terminal"
    first, second = scorecards(results)
    order = [
        f"outage: {first.finding}",
        "Calls rise to",
        f"healthy: {second.finding}",
        "What fewer failures cost in calls",
        "nobody is dropped",
        "One run of",
        "How it was made command",
    ]
    places = [page.read.index(text) for text in order]
    assert places == sorted(places)


def test_what_the_file_says_is_escaped(page: Page) -> None:
    assert "Small &amp; &lt;safe&gt;" in page.text
    assert "<safe>" not in page.text
    assert "Small & <safe>" in page.read


def test_the_page_says_how_it_was_made(small: Path, page: Page) -> None:
    manifest = mc.load(small).manifest
    for sentence in (str(manifest["seed"]), manifest["experiment_sha256"], "philox", "small.toml"):
        assert sentence in page.read


def test_the_command_that_made_the_results_has_its_options(tmp_path: Path) -> None:
    file = tmp_path / "short.toml"
    file.write_text(
        "title = 'Short'\nreplications = 40\n[fixed]\nrounds = 300\nfault_start = 100\n"
    )
    given = {"replications": 3, "seed": 7, "overrides": {"tries": "[3,\n 2]"}}
    results = mc.run(file, tmp_path / "it's", **given)  # type: ignore[arg-type]
    again = "retrystorm run short.toml --replications 3 --seed 7 --set 'tries=[3, 2]' --out "
    assert View(results).command == again + shlex.quote("it's")
    assert mc.verify(results.folder, all_rows=True).ok
    assert View(mc.run(file, tmp_path / "short")).command == "retrystorm run short.toml"


@pytest.mark.parametrize(
    ("drain", "recovery", "stop"),
    [(0, 0, 1150), (120, 0, 1256), (5000, 0, 1600), (5000, 5000, 6600), (9000, 9000, 9000)],
)
def test_a_storm_curve_ends_when_the_service_is_back(drain: int, recovery: int, stop: int) -> None:
    cell = Cell(rounds=9000, fault_start=1000, fault_rounds=100)
    shown = choose_stretch([cell], drain, recovery)
    assert shown.start <= 990
    assert stop - shown.step < shown.stop <= stop


def test_the_storm_curve_is_made_of_the_calls_of_the_replications(small: Path) -> None:
    table = pl.read_parquet(small / "figures" / "storm.parquet").filter(cell=1)
    cell = mc.Cell(rounds=700, fault_rounds=60, tries=(3, 3))
    rounds = mc.trace(cell, replications=250, seed=mc.load(small).manifest["seed"])
    step, start = table["rounds"][0], table["round"][0]
    calls = rounds["calls"].to_numpy().reshape(250, 700)[:, start : start + step * table.height]
    means = calls.reshape(250, -1, step).mean(axis=2)
    got = table["median"].to_numpy()
    expected = np.sort(means, axis=0)[124]  # of 250 the 125th: a value that occurred
    np.testing.assert_array_equal(got, expected)
    assert (500 - start) % step == 0, "a step begins with the fault"


def test_the_histograms_hold_every_replication(small: Path) -> None:
    bars = pl.read_parquet(small / "figures" / "distribution.parquet")
    counted = bars.group_by("cell", "metric").agg(pl.col("replications").sum())
    known = mc.load(small).summary.filter(pl.col("n") > 0).select("cell", "metric", "n")
    joined = counted.join(known, on=["cell", "metric"], how="left")
    got = joined["replications"].to_list()
    expected = joined["n"].to_list()
    assert got == expected
    assert joined.height == 2 * 3  # nothing happens in the healthy cells


def test_a_score_of_fewer_than_200_replications_is_marked() -> None:
    got = [score_field(Score(2.0, 0.1, 1.0, 3.0, 1.0, n, False, False)).text for n in (199, 200)]
    expected = ["2.00 ± ~0.10", "2.00 ± 0.10"]
    assert [" ".join(text.split()) for text in got] == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_a_folder_of_any_kind_has_a_report(name: str, drawn: Callable[[str], Path]) -> None:
    folder = drawn(VARIANTS[name])
    page = Page((folder / "report.html").read_text("utf-8"))
    n_figures = len(list((folder / "figures").glob("*.svg")))
    assert len(page.all("figure")) == n_figures >= 1
    results = mc.load(folder)
    assert undecided_told(results) in page.read
    n = results.cells["replications"].min()
    assert ("intervals marked ~ are rough" in page.read) == (1 < n < 200)  # type: ignore[operator]
    assert "nan" not in page.read.lower().split()
    assert "None" not in page.read


def test_histograms_in_place_of_rows_give_the_same_pictures(
    small: Path, drawn: Callable[[str], Path]
) -> None:
    counted = drawn(VARIANTS["histograms"])
    names = [path.name for path in (small / "figures").iterdir()]
    # millionths are kept of the multiplier: its bars may begin elsewhere
    bars = [
        pl.read_parquet(folder / "figures" / "distribution.parquet").filter(
            pl.col("metric") != "multiplier"
        )
        for folder in (counted, small)
    ]
    assert_frame_equal(*bars)
    for name in names:
        if not name.startswith(("distribution", "frontier")):  # the frontier is found in rows
            got = (counted / "figures" / name).read_bytes()
            expected = (small / "figures" / name).read_bytes()
            assert got == expected, name


def test_histograms_and_the_data_of_figures_say_unit_and_meaning(
    drawn: Callable[[str], Path],
) -> None:
    folder = drawn(VARIANTS["histograms"])
    files = [*(folder / "histograms").iterdir(), *(folder / "figures").glob("*.parquet")]
    assert len(files) >= 4
    for path in files:
        about = {field.name: field.metadata for field in pq.read_schema(path)}
        assert all(said[b"meaning"] for said in about.values()), path
        units = json.loads(pq.read_metadata(path).metadata[b"units"])
        expected = {name: said[b"unit"].decode() for name, said in about.items() if said[b"unit"]}
        assert units == expected
    names = mc.load(folder).manifest["columns"]["histograms"]
    assert "window_calls" in names["value"]["meaning"], "not of the metric itself"


def test_a_large_sweep_has_a_page_of_bounded_length(tmp_path: Path) -> None:
    text = (
        'title = "Large"\nreplications = 2\n[fixed]\nrounds = 30\nfault_start = 5\n'
        "fault_rounds = 5\n[grid]\nbackoff_cap = {from = 1, to = 300, steps = 300}\n"
        "threshold = [1, 5, 9]\n"
    )
    run(text, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert len(page.all("tr")) < 700
    assert "The first 200 of 900 lines; the filter searches all of them." in page.read


def test_a_precision_that_was_not_reached_is_told_below_the_title(
    drawn: Callable[[str], Path],
) -> None:
    folder = drawn(VARIANTS["precision"])
    assert mc.load(folder).cells["stopped_by"].to_list() == ["max", "precision"]
    page = Page((folder / "report.html").read_text("utf-8"))
    sentence = (
        "1 of 2 cells is not as precise as asked (calls to 1 %): 40 replications did not suffice"
    )
    assert page.read.index(sentence) < page.read.index("Answer")
    assert page.read.count("40 †") == 2  # in two tables
    assert "†: not as precise as asked." in page.read


def test_the_page_says_what_its_numbers_and_parameters_mean(page: Page) -> None:
    read = page.read[page.read.index("parameter values unit") :]
    for name in ("calls", "dropped", "peak"):
        metric = METRICS[name]
        assert f"{name} {metric.unit} {metric.meaning}" in read
    assert "fault_rounds 60, 0 rounds" in read
    for name, parameter in PARAMETERS.items():
        assert f" {parameter.meaning} " in read[read.index(f" {name} ") :]
    assert f"threshold 20 rounds {PARAMETERS['threshold'].meaning} default" in read


def test_the_page_shows_every_panel_of_a_figure_once(grid: Path) -> None:
    page = (grid / "report.html").read_text("utf-8")
    for name in ("storm-1", "distribution-1"):
        svg = (grid / "figures" / f"{name}.svg").read_text()
        start = page.index(f'<figure id="figure-{name}">')
        figure = page[start : page.index("</figure>", start)]
        assert figure.count("<svg ") == svg.count("<svg ") - 1 > 1  # one is the file
        got = re.findall(r"<text[^>]*>([^<]*)<", figure)
        expected = re.findall(r"<text[^>]*>([^<]*)<", svg)
        assert got == expected


def test_figures_of_an_earlier_report_go_and_other_files_stay(tmp_path: Path) -> None:
    run(VARIANTS["one cell, no axis"], tmp_path / "results")
    figures = tmp_path / "results" / "figures"
    figures.mkdir()
    (figures / "storm-9.svg").write_text("old")
    (figures / "notes.txt").write_text("mine")
    mc.report(tmp_path / "results")
    assert not (figures / "storm-9.svg").exists()
    assert (figures / "notes.txt").read_text() == "mine"


def test_on_the_page_a_figure_has_the_colours_of_the_page_and_ids_of_its_own() -> None:
    with style():
        panels = [Figure((2, 1)), Figure((2, 1))]
        for panel in panels:
            panel.add_axes((0.1, 0.1, 0.8, 0.8)).plot([0.0, 1.0], color=SERIES[0], marker="o")
        pieces = draw(Drawing(panels, n_columns=2), "name")
    page, file = svg_for_page(pieces), svg_file(pieces, 2)
    assert SERIES[0] in file
    assert SERIES[0] not in page
    assert "stroke: var(--series-0)" in page
    for text in (page, file):
        ids = re.findall(r' id="([^"]+)"', text)
        assert len(ids) == len(set(ids)) >= 4, "a clip path and a marker of each"
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) == set(ids)


NASTY: Final = r"""
title = "<script>alert(1)</script> $x^2$ {{7*7}}"
replications = 4
[fixed]
rounds = 200
fault_start = 20
fault_rounds = 20
[[scenario]]
name = "<img src=x onerror=alert(1)> $\\frac{1}$"
[[policy]]
name = "_$a_b^^$%"
[[policy]]
name = "</svg></script> ]]> --> \u0F3A"
tries = [3]
[grid]
budget = [0.1, 0.2]
[[claim]]
text = "$$ </table> $a_{"
metric = "dropped"
policies = ["_$a_b^^$%"]
relation = ">"
value = 1
at = {budget = 0.1}
"""


def test_names_are_names_and_neither_markup_nor_formulas(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    run(NASTY, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert [set(script) for script in page.all("script")] == [{"type"}, set()]
    assert not page.all("img")
    for name in ("<script>alert(1)</script> $x^2$ {{7*7}}", "_$a_b^^$%", "</svg></script> ]]> -->"):
        assert name in page.read
    for path in (tmp_path / "results" / "figures").glob("*.svg"):
        ElementTree.parse(path)
    # the legend, where matplotlib leaves out what begins with an underscore
    assert "_$a_b^^$%" in (tmp_path / "results" / "figures" / "frontier.svg").read_text("utf-8")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_two_claims_with_one_text_may_compare_with_a_number_and_with_a_cell(tmp_path: Path) -> None:
    run(OUTAGE.replace("nobody is dropped", "the storm grows"), tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert "one try − nine tries" in page.read
    assert "one try against 0" in page.read


def test_a_long_name_is_cut_in_a_figure(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    long = "name " * 60 + "x" * 200
    text = OUTAGE.replace('"one try"', f'"{long}"').replace("250", "4")
    run(text, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert long in page.read
    assert not [w for w in recwarn if "constrained_layout" in str(w.message)]


def test_a_run_that_ends_before_the_fault_of_another_begins_is_drawn(tmp_path: Path) -> None:
    text = (
        'title = "Short and long"\nreplications = 4\n[fixed]\nfault_start = 300\n'
        "fault_rounds = 50\ntries = [3]\n[grid]\nrounds = [200, 600]\n"
    )
    run(text, tmp_path / "results")
    mc.report(tmp_path / "results")
    got = pl.read_parquet(tmp_path / "results" / "figures" / "storm.parquet")
    assert got.group_by("cell").agg(pl.col("round").max() < 200)["round"].to_list() == [True, True]
    rounds = mc.trace([mc.Cell(rounds=200), mc.Cell(rounds=600, fault_start=300, fault_rounds=50)])
    cells = {0: mc.Cell(rounds=200), 1: mc.Cell(rounds=600, fault_start=300, fault_rounds=50)}
    with style():
        drawing = draw_replication(rounds, cells, {0: "short", 1: "long"}, 100.0)
    assert len({panel.axes[0].get_xlim() for panel in drawing.panels}) == 1


def test_what_is_simulated_for_an_answer_is_not_simulated_for_its_page_or_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the one run of which the page has a figure of its own."""
    simulated: list[mc.Cell] = []

    def noted(cell: mc.Cell, *rest: Any) -> Rounds:
        simulated.append(cell)
        return rounds_of(cell, *rest)

    folder = tmp_path / "results"
    run(VARIANTS["one round"], folder)
    monkeypatch.setattr("mc.runner.rounds_of", noted)
    results = mc.load(folder)
    storm = storm_of(results)
    mc.report(results, simulated=storm)
    assert len(simulated) == results.cells.height + 1
    again = storm_of(results)
    assert len(simulated) == results.cells.height + 1
    assert again.keys() == storm.keys()
    assert all(again[name].equals(storm[name]) for name in storm)


def test_what_others_put_beside_the_figures_stays(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run(VARIANTS["one round"], folder)
    (folder / "figures" / "claims-9.svg").mkdir(parents=True)
    for name in ("mine.svg", "storm.txt", "claims-7.svg"):
        (folder / "figures" / name).write_text("kept")
    mc.report(folder)
    got = {path.name for path in (folder / "figures").iterdir()}
    assert got >= {"mine.svg", "storm.txt", "claims-9.svg"}
    assert "claims-7.svg" not in got  # of an earlier report


def test_a_report_without_its_figures_or_its_end_is_drawn_again(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    run(VARIANTS["one round"], folder)
    page = mc.report(folder)
    whole = files(folder)
    assert is_current(mc.load(folder))
    (folder / "figures" / "storm-1.svg").unlink()
    assert not is_current(mc.load(folder))
    mc.report(folder)
    assert is_current(mc.load(folder))
    page.write_bytes(whole["report.html"][:-9])
    assert not is_current(mc.load(folder))
    page.write_bytes(b"\xff")
    assert not is_current(mc.load(folder))


def test_a_signal_waits_for_the_figure_that_is_being_drawn(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    draw_storm = pictures._storm

    def interrupted(*arguments: Any) -> pictures.Picture:
        os.kill(os.getpid(), signal.SIGINT)
        picture = draw_storm(*arguments)
        drawn.append(picture.name)
        return picture

    monkeypatch.setattr(pictures, "_storm", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mc.report(small)
    assert drawn == ["storm-1"]  # and not the next


def test_the_page_says_what_check_says_of_rounding_and_of_memories(tmp_path: Path) -> None:
    """With the same words, which name the policy."""
    text = """
title = "tie"
replications = 2
[fixed]
rounds = "9 s"
fault_rounds = "1 s"
queue = 9
timeout = 5
tries = 2
[[policy]]
name = "tied"
deadline = 5
[[policy]]
name = "open"
breaker = {kind = "resilience4j"}
"""
    run(text, tmp_path / "results")
    found = answer.remarks(View(mc.load(tmp_path / "results")))
    tied, memory = read(tmp_path / "small.toml").remarks
    assert [one.lower() for one in found] == [f"{tied}.".lower(), f"{memory}.".lower()]
    assert "in policy tied" in tied
    assert "in policy open" in memory
