"""The report: the same bytes from the same results, and a page that says what is in them."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from folders import run, write
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import mc
from mc.cli import app
from mc.reports import is_current
from mc.reports.storm import draw_trace
from mc.reports.style import SERIES, inlined, style
from mc.reports.view import View

SMALL: Final = """
title = "Small & <safe>"
replications = 250
[fixed]
rounds = 700
[[scenario]]
name = "outage"
fault_rounds = 60
[[scenario]]
name = "healthy"
failure_rate = 0.02
[[policy]]
name = "one try"
[[policy]]
name = "nine tries"
tries = [3, 3]
[[claim]]
text = "the storm grows"
scenario = "outage"
metric = "window_calls"
policies = ["one try", "nine tries"]
relation = "<"
[[claim]]
text = "nobody is dropped"
scenario = "outage"
metric = "dropped"
policies = ["one try"]
relation = "="
value = 0
[[published]]
scenario = "outage"
policy = "one try"
calls = 650
"""

SWEEP: Final = """
title = "Sweep"
replications = 200
[fixed]
rounds = 300
fault_start = 50
fault_rounds = 40
tries = [3, 3]
[grid]
budget = ["none", 0.1]
backoff_cap = [4, 32]
threshold = [1, 20]
"""

VARIANTS: Final = {
    "histograms": SMALL.replace("replications = 250", 'replications = 30\nkeep = "histograms"'),
    "one cell, no axis": 'title = "One"\nreplications = 12\n[fixed]\nrounds = 300\n',
    "one replication": SMALL.replace("replications = 250", "replications = 1"),
    "one round": 'title = "Short"\nreplications = 3\n[fixed]\nrounds = 1\n',
    "nobody comes": (
        'title = "Quiet"\nreplications = 5\n[fixed]\nrounds = 200\narrivals_per_second = 0\n'
        "fault_start = 20\nfault_rounds = 9\n[grid]\nbackoff_cap = [4, 32]\n"
    ),
    "one axis": SWEEP.replace("threshold = [1, 20]", "").replace("backoff_cap = [4, 32]", ""),
    "three axes": SWEEP,
    "a design": (
        'title = "Design"\nreplications = 10\n[fixed]\nrounds = 200\nfault_start = 20\n'
        'fault_rounds = 30\ntries = [3]\n[design]\nkind = "sobol"\npoints = 4\n'
        "backoff_base = {from = 0.5, to = 16}\narrivals_per_second = {from = 50, to = 90}\n"
    ),
    "precision": (
        'title = "Precision"\n[precision]\nmetric = "calls"\nrelative = 0.01\nmin = 10\nmax = 40\n'
        '[fixed]\nrounds = 300\n[[scenario]]\nname = "a"\n[[scenario]]\nname = "b"\n'
        "arrivals_per_second = 20\n"
    ),
    "the lesson's generator": (
        'title = "Lesson"\ngenerator = "lesson"\nseeds = [20260802, 7]\n[fixed]\nrounds = 700\n'
        "fault_rounds = 50\ntries = [3]\n"
    ),
}


class Page(HTMLParser):
    """What the tests ask of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def read(self) -> str:
        """What a reader reads, in one line."""
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its report."""
    folder = tmp_path_factory.mktemp("small") / "results"
    run(SMALL, folder)
    mc.report(folder)
    return folder


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


def test_every_kind_of_figure_is_there_as_svg_and_as_png(small: Path) -> None:
    got = {path.name for path in (small / "figures").iterdir()}
    stems = {"claims-1", "distribution-1", "distribution-2", "frontier", "storm-1", "storm-2"}
    expected = {f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")}
    assert got == expected | {"storm.parquet", "distribution.parquet"}


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
    figures = [svg for svg in page.all("svg") if svg.get("role") == "img"]
    assert len(figures) == len(page.all("figure")) == 6
    assert all(len(svg["aria-label"] or "") > 30 for svg in figures)
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
    # an element that scrolls can be reached with the keyboard, and says what it is
    scrolling = [x for _, x in page.tags if x.get("class") == "scroll"]
    assert all(
        x["tabindex"] == "0" and ("aria-label" in x or "aria-labelledby" in x) for x in scrolling
    )


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_lines_stand_out_in_light_and_dark_mode(page: Page) -> None:
    modes = re.findall(r":root \{(.*?)\}", page.text, re.DOTALL)
    assert len(modes) == 2
    for mode in modes:
        colors = dict(re.findall(r"--([\w-]+): (#\w{6})", mode))
        for name in ("ink", "muted", "link"):  # WCAG 2.2: 4.5 for text, 3 for what is drawn
            assert contrast(colors[name], colors["paper"]) >= 4.5, name
        for i in range(len(SERIES)):
            assert contrast(colors[f"series-{i}"], colors["paper"]) >= 3, i


def test_the_answer_is_made_from_the_numbers(small: Path, page: Page) -> None:
    results = mc.load(small)
    verdicts = dict(results.claims.select("text", "verdict").iter_rows())
    assert verdicts == {"the storm grows": "holds", "nobody is dropped": "fails"}
    assert "Of 2 claims, 1 holds, 1 fails, and 0 depend on the seed." in page.read
    drops = results.summary.filter(cell=0, metric="dropped").row(0, named=True)
    from mc.statistics import format_estimate

    mean, error = format_estimate(drops["mean"], (drops["ci_high"] - drops["ci_low"]) / 2)
    assert f"most: {mean} ± {error} requests, one try" in page.read
    answer = page.read.index("Answer Claims")
    assert answer < page.read.index("The storm outage") < page.read.index("How it was made command")


def test_what_the_file_says_is_escaped(page: Page) -> None:
    assert "Small &amp; &lt;safe&gt;" in page.text
    assert "<safe>" not in page.text
    assert "Small & <safe>" in page.read


def test_the_page_says_how_it_was_made(small: Path, page: Page) -> None:
    manifest = mc.load(small).manifest
    for told in (str(manifest["seed"]), manifest["experiment_sha256"], "philox", "small.toml"):
        assert told in page.read


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
    assert joined.height == 2 * 7 + 2 * 5  # the healthy cells have no window


@pytest.mark.parametrize("name", VARIANTS)
def test_a_folder_of_any_kind_has_a_report(name: str, tmp_path: Path) -> None:
    run(VARIANTS[name], tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    n_figures = len(list((tmp_path / "results" / "figures").glob("*.svg")))
    assert len(page.all("figure")) == n_figures >= 1
    assert "nan" not in page.read.lower().split()
    assert "None" not in page.read


def test_a_grid_of_two_axes_becomes_maps_with_their_half_widths(tmp_path: Path) -> None:
    run(SWEEP, tmp_path / "results")
    mc.report(tmp_path / "results")
    svg = (tmp_path / "results" / "figures" / "sweep-1-window-rate.svg").read_text()
    results = mc.load(tmp_path / "results")
    from mc.statistics import format_estimate

    for line in results.summary.filter(metric="window_rate").iter_rows(named=True):
        mean, error = format_estimate(line["mean"], (line["ci_high"] - line["ci_low"]) / 2)
        assert f">{mean}<" in svg
        assert f">±{error}<" in svg


def test_histograms_in_place_of_rows_give_the_same_pictures(small: Path, tmp_path: Path) -> None:
    run(SMALL.replace("[fixed]", 'keep = "histograms"\n[fixed]'), tmp_path / "results")
    mc.report(tmp_path / "results")
    names = [path.name for path in (small / "figures").iterdir()]
    # millionths are kept of the multiplier: its bars may begin elsewhere
    bars = [
        pl.read_parquet(folder / "figures" / "distribution.parquet").filter(
            pl.col("metric") != "multiplier"
        )
        for folder in (tmp_path / "results", small)
    ]
    assert_frame_equal(*bars)
    for name in names:
        if not name.startswith("distribution"):
            got = (tmp_path / "results" / "figures" / name).read_bytes()
            expected = (small / "figures" / name).read_bytes()
            assert got == expected, name


def test_a_large_sweep_has_a_page_of_bounded_length(tmp_path: Path) -> None:
    text = (
        'title = "Large"\nreplications = 2\n[fixed]\nrounds = 30\nfault_start = 5\n'
        "fault_rounds = 5\n[grid]\nbackoff_cap = {from = 1, to = 300, steps = 300}\n"
        "threshold = [1, 5, 9]\n"
    )
    run(text, tmp_path / "results")
    page = Page(mc.report(tmp_path / "results").read_text("utf-8"))
    assert len(page.all("tr")) < 700
    assert "The first 200 of 900 lines." in page.read


def test_cells_that_are_drawn_alone_are_spread_from_the_lowest_to_the_highest(
    tmp_path: Path,
) -> None:
    run(SWEEP, tmp_path / "results")
    view = View(mc.load(tmp_path / "results"))
    rates = [view.mean(cell, "window_rate") for cell in view.in_scenario("default")]
    chosen = [view.mean(cell, "window_rate") for cell in view.chosen("default")]
    assert len(rates) == 8
    assert len(chosen) == 6
    assert chosen == sorted(chosen)  # type: ignore[type-var]
    assert (chosen[0], chosen[-1]) == (min(rates), max(rates))  # type: ignore[type-var]


def test_figures_of_an_earlier_report_go_and_other_files_stay(tmp_path: Path) -> None:
    run(SMALL, tmp_path / "results")
    figures = tmp_path / "results" / "figures"
    figures.mkdir()
    (figures / "storm-9.svg").write_text("old")
    (figures / "notes.txt").write_text("mine")
    mc.report(tmp_path / "results")
    assert not (figures / "storm-9.svg").exists()
    assert (figures / "notes.txt").read_text() == "mine"


def test_an_inlined_figure_takes_the_colours_and_the_ids_of_the_page() -> None:
    svg = (
        '<?xml version="1.0"?><svg width="9"><!-- x --><g id="unused"/><clipPath id="p1"/>'
        f'<path clip-path="url(#p1)" style="fill: {SERIES[0]}"/></svg>'
    )
    got = inlined(svg, "a", "what it shows")
    expected = (
        '<svg role="img" aria-label="what it shows" width="9"><g/><clipPath id="a-p1"/>'
        '<path clip-path="url(#a-p1)" style="fill: var(--series-0)"/></svg>'
    )
    assert got == expected


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def _reporting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RETRYSTORM_NO_REPORT")


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("_reporting")
def test_a_run_ends_with_its_report_unless_told_not_to(tmp_path: Path) -> None:
    file, out = write(tmp_path, VARIANTS["one cell, no axis"]), tmp_path / "results"
    assert invoke("run", file, "--out", out, "--no-report").exit_code == 0
    assert not (out / "report.html").exists()
    got = invoke("run", file, "--out", out)
    assert got.exit_code == 0
    assert f"Report: {out / 'report.html'}" in got.stderr
    written = (out / "report.html").stat().st_mtime_ns
    again = invoke("run", file, "--out", out)
    assert again.exit_code == 0
    assert "drawing" not in again.stderr
    assert (out / "report.html").stat().st_mtime_ns == written
    more = invoke("run", file, "--out", out, "--replications", 20)
    assert "drawing the report" in more.stderr


def test_report_prints_where_the_page_is(small: Path) -> None:
    got = invoke("report", small)
    assert got.exit_code == 0
    assert got.stdout == f"{small / 'report.html'}\n"


def test_a_folder_without_results_has_no_report(tmp_path: Path) -> None:
    got = invoke("report", tmp_path)
    assert got.exit_code == 2
    assert "no results here" in got.stderr
    assert not list(tmp_path.iterdir())


def test_trace_writes_a_table_and_a_picture(tmp_path: Path) -> None:
    file, out = write(tmp_path, SMALL), tmp_path / "storm.parquet"
    options = ["--scenario", "outage", "--policy", "nine tries", "--replication", 3]
    got = invoke("trace", file, *options, "--out", out)
    assert got.exit_code == 0, got.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        *("small.toml", "storm.parquet", "storm.png", "storm.svg")
    }
    rounds = pl.read_parquet(out)
    cell = mc.Cell(rounds=700, fault_rounds=60, tries=(3, 3))
    expected = mc.simulate([cell], replications=[3])["calls"].item()
    assert rounds["calls"].sum() == expected
    assert rounds["cell"].unique().to_list() == [1]
    first = out.with_suffix(".svg").read_bytes()
    assert invoke("trace", file, *options, "--out", out).exit_code == 0
    assert out.with_suffix(".svg").read_bytes() == first


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--scenario", "outag"], '--scenario "outag" does not exist; did you mean "outage"?'),
        (["--policy", "zzz"], '--policy "zzz" does not exist; there are "one try", "nine tries"'),
        (["--at", "budget=1"], "--at: budget is no axis"),
        (["--at", "budget"], "--at: must be name=value, got 'budget'"),
        (["--out", "x.csv"], "--out: must end with .parquet, got 'x.csv'"),
    ],
)
def test_trace_says_what_is_wrong_and_writes_nothing(
    options: list[str], expected: str, tmp_path: Path
) -> None:
    got = invoke("trace", write(tmp_path, SMALL), *options)
    assert got.exit_code == 2
    assert expected in got.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]


def test_trace_finds_a_value_on_an_axis_however_it_is_written(tmp_path: Path) -> None:
    file, out = write(tmp_path, SWEEP), tmp_path / "t.parquet"
    at = ["--at", "budget=none", "--at", "backoff_cap=4", "--at", "threshold=20"]
    assert invoke("trace", file, *at, "--out", out).exit_code == 0
    got = pl.read_parquet(out)["cell"].unique().to_list()
    expected = [1]  # of the axes budget, backoff_cap and threshold the last varies fastest
    assert got == expected


def test_neither_help_nor_a_run_without_report_imports_matplotlib(tmp_path: Path) -> None:
    file = write(tmp_path, VARIANTS["one cell, no axis"])
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom mc.cli import app\n"
        f"for line in (['--help'], ['run', {str(file)!r}, '--out', {str(tmp_path / 'r')!r}, "
        "'--no-report']):\n"
        "    assert CliRunner().invoke(app, line).exit_code == 0\n"
        "    print(sorted({'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    got = done.stdout.splitlines()
    expected = ["[]", "[]"]
    assert got == expected


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
    assert [set(script) for script in page.all("script")] == [set()]
    assert not page.all("img")
    for name in ("<script>alert(1)</script> $x^2$ {{7*7}}", "_$a_b^^$%", "</svg></script> ]]> -->"):
        assert name in page.read
    for path in (tmp_path / "results" / "figures").glob("*.svg"):
        ElementTree.parse(path)
    # the legend, where matplotlib leaves out what begins with an underscore
    assert "_$a_b^^$%" in (tmp_path / "results" / "figures" / "sweep-1.svg").read_text("utf-8")
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


def test_a_long_name_is_cut_in_a_figure(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    long = "name " * 60 + "x" * 200
    text = SMALL.replace('"one try"', f'"{long}"').replace("250", "4")
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
        figure = draw_trace(rounds, cells, {0: "short", 1: "long"})
    assert {axis.get_xlim() for axis in figure.axes} == {figure.axes[0].get_xlim()}


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


def test_a_place_or_a_replication_that_cannot_be_is_told_before_a_trace_is_made(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, 'title = "x"\n[fixed]\nrounds = 9\n[grid]\ntries = [[1], [3, 3]]\n')
    for options, told in (
        (["--out", str(tmp_path / "none" / "x.parquet")], "must be in a folder that exists"),
        (["--replication", str(2**32)], f"must be < {2**32 - 1}, got {2**32}"),
    ):
        got = CliRunner().invoke(app, ["trace", str(file), *options])
        assert got.exit_code == 2
        assert told in got.stderr
    args = ["trace", str(file), "--out", str(tmp_path / "x.parquet"), "--at", "tries=3x3"]
    assert CliRunner().invoke(app, args).exit_code == 0
