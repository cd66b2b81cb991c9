"""The report in a browser: nothing is missing, nothing overflows, what can be pressed works.

Needs Chromium and the extra `browser`; without, one line says how to get them.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import mc
from mc.decisions.scorecard import scorecards, scores_of
from mc.reports import page_tables
from mc.reports.page import page as page_of
from mc.reports.view import View

pytestmark = pytest.mark.browser

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOW_TO_RUN: Final = 'to run: apt install chromium; pip install -e ".[test,browser]"'
PATIENCE_MS: Final = 300_000
"""Of a machine that has much else to do."""
MODES: Final = {
    "phone": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "desk": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason=HOW_TO_RUN)
    if CHROMIUM is None:
        pytest.skip(HOW_TO_RUN)
    # root, and many a container, can have no sandbox; it opens no page but ours
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def path(small: Path) -> Path:
    return small / "report.html"


def new_page(browser: Any, **options: Any) -> Any:
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE_MS)
    return page


def opened(browser: Any, path: Path, mode: str) -> tuple[Any, list[str]]:
    """Open the page; the list takes what the console says and what is asked of the network."""
    page = new_page(browser, **MODES[mode])
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on(
        "request", lambda asked: messages.append(asked.url) if asked.url != path.as_uri() else None
    )
    page.goto(path.as_uri())
    return page, messages


@pytest.mark.parametrize("mode", MODES)
def test_the_page_opens_without_a_word_and_shows_every_figure(
    mode: str, browser: Any, path: Path
) -> None:
    page, messages = opened(browser, path, mode)
    assert [line for line in messages if not line.startswith("data:")] == []
    figures = page.query_selector_all("figure [role=img]")
    assert len(figures) == len(list((path.parent / "figures").glob("*.svg")))
    assert all(figure.query_selector("svg") is not None for figure in figures)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width == MODES[mode]["viewport"]["width"]  # type: ignore[index]


@pytest.mark.parametrize("width", [400, 700, 1000, 1200])
def test_nothing_is_wider_than_the_page(width: int, browser: Any, small: Path, grid: Path) -> None:
    script = """() => [...document.querySelectorAll("main *")]
        .filter((x) => !x.closest("pre") && x.getBoundingClientRect().right > innerWidth + 1)
        .map((x) => x.tagName + ": " + x.textContent.slice(0, 50))"""
    for folder in (small, grid):
        page = new_page(browser, viewport={"width": width, "height": 800})
        page.goto((folder / "report.html").as_uri())
        for tab in page.get_by_role("tab").all():
            tab.click()
            assert page.evaluate(script) == []


@pytest.mark.parametrize(("mode", "fewest", "most"), [("phone", 1, 1), ("desk", 2, 4)])
def test_as_many_panels_stand_in_a_row_as_there_is_room_for_and_are_legible(
    mode: str, fewest: int, most: int, browser: Any, small: Path, grid: Path
) -> None:
    script = """() => [...document.querySelectorAll(".panels")].map(
        (group) => [...group.querySelectorAll("svg.panel")].map((svg) => {
            const box = svg.getBoundingClientRect();
            return [box.bottom, box.width / svg.viewBox.baseVal.width];
        }))"""
    for folder in (small, grid):
        page, _ = opened(browser, folder / "report.html", mode)
        for panels in page.evaluate(script):
            rows = Counter(round(bottom) for bottom, _ in panels)
            assert min(fewest, len(panels)) <= max(rows.values()) <= most
            assert all(1.05 <= scale <= 1.6 for _, scale in panels)  # of 9 points: 9 to 14 pixels


def test_dark_mode_is_dark_and_its_text_is_light(browser: Any, path: Path) -> None:
    script = """() => {
        const sum = (text) => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0);
        const tick = document.querySelector("figure svg text");
        return [sum(getComputedStyle(document.body).backgroundColor),
                sum(getComputedStyle(tick).fill)];
    }"""
    for mode, is_dark in (("desk", False), ("dark", True)):
        page, _ = opened(browser, path, mode)
        ground, text = page.evaluate(script)
        assert (ground < text) == is_dark
        assert abs(ground - text) > 400  # of 765


def test_a_table_sorts_by_the_number_and_back(browser: Any, path: Path) -> None:
    page, _ = opened(browser, path, "desk")
    table = page.locator(".tab table").first
    head = table.locator("th[scope=col]", has_text="window rate")
    column = head.evaluate("cell => cell.cellIndex")

    def numbers() -> list[float]:
        cells = table.locator(f"tbody tr > *:nth-child({column + 1})")
        values = cells.evaluate_all("all => all.map(x => x.dataset.v)")
        return [float(text) for text in values if text is not None]

    for direction in ("ascending", "descending"):
        head.locator("button").press("Enter")  # with the keyboard
        got = numbers()
        expected = sorted(got, reverse=direction == "descending")
        assert got == expected
        assert head.get_attribute("aria-sort") == direction
    assert len(set(numbers())) > 1


def test_tables_stand_behind_tabs_and_a_word_leaves_the_lines_that_have_it(
    browser: Any, grid: Path
) -> None:
    page, _ = opened(browser, grid / "report.html", "desk")
    tabs = page.get_by_role("tab")
    assert tabs.all_inner_texts()[:3] == ["Load", "Failures and waits", "Tails"]
    tabs.nth(0).press("ArrowRight")
    assert page.locator(".tab:visible").count() == 1
    panel = page.locator("#table-failures-and-waits")
    assert panel.is_visible()
    lines = panel.locator("tbody tr:visible")
    assert lines.count() == 60
    panel.get_by_label("Only lines with").fill("NINE budget 0.1,")
    got = lines.locator("th").all_inner_texts()
    assert len(got) == 6
    assert all(name.startswith("nine tries, budget 0.1,") for name in got)


@pytest.mark.parametrize(("held", "among"), [(5000, ""), (45, " of the first 45")])
def test_a_filter_searches_the_lines_that_are_not_shown_and_says_if_none_matches(
    held: int, among: str, browser: Any, grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_tables, "MOST_LINES", 15)
    monkeypatch.setattr(page_tables, "MOST_HELD", held)
    (tmp_path / "page.html").write_text(page_of(View(mc.load(grid)), [], "", ""), "utf-8")
    page, messages = opened(browser, tmp_path / "page.html", "desk")
    panel = page.locator("#table-load")
    lines, told = panel.locator("tbody tr"), panel.locator("output")
    words = panel.get_by_label("Only lines with")
    assert lines.count() == 15
    words.fill("nine tries, budget 0.05")
    means = mc.load(grid).summary.filter(metric="calls", policy="nine tries", budget=0.05)["mean"]
    assert lines.count() == means.len() == 6
    assert told.inner_text() == f"6 of {min(60, held)} lines"
    with page.expect_download() as download:
        panel.get_by_role("button", name="CSV").click()
    table = pl.read_csv(download.value.path())
    assert table["calls"].to_list() == pytest.approx(means.to_list())
    assert table["calls, as shown"][0].startswith(f"{means[0]:.0f}"[:2])
    assert table["cell"].str.contains("nine tries, budget 0.05").all()
    words.fill("no such line")
    assert (lines.count(), told.inner_text()) == (0, f"No line{among} matches.")
    words.fill("")
    panel.locator("th[scope=col]", has_text="multiplier").locator("button").click()
    got = panel.locator("tbody td:nth-child(4)").evaluate_all("all => all.map(x => +x.dataset.v)")
    every = mc.load(grid).summary.filter(metric="multiplier")["mean"].head(held).sort()
    assert got == pytest.approx(every.head(15).to_list())
    assert [line for line in messages if not line.startswith("data:")] == []


def test_the_explorer_shows_any_cell_and_another_one_pinned_beside_it(
    browser: Any, grid: Path
) -> None:
    page, messages = opened(browser, grid / "report.html", "desk")
    explorer = page.locator(".explorer")
    (card,) = scorecards(mc.load(grid))
    cells = mc.load(grid).cells
    scores = scores_of(mc.load(grid), card)

    def expected(policy: str, budget: float) -> list[str]:
        (cell,) = cells.filter(policy=policy, budget=budget, backoff_cap=4, threshold=1)["cell"]
        return ["–" if score is None else score.text for score in scores[cell]]

    def shown(which: str) -> list[str]:
        texts = explorer.locator(f"td.{which} span").all_inner_texts()
        return [text.split("\n")[0].replace("\u00a0", "") for text in texts]

    explorer.get_by_label("policy").select_option("nine tries")
    explorer.get_by_label("backoff_cap").fill("0")
    explorer.get_by_label("threshold").select_option(label="1")
    budget = explorer.get_by_label("budget")
    budget.fill("1")
    assert shown("here") == expected("nine tries", 0.1)
    assert explorer.locator("polyline.median").count() == 1
    explorer.get_by_role("button").click()
    budget.fill("3")
    assert shown("here") == expected("nine tries", 0.3)
    assert shown("pinned") == expected("nine tries", 0.1)
    assert explorer.locator("polyline.median").count() == 2
    explorer.get_by_role("button").click()
    assert shown("pinned") == []
    assert [line for line in messages if not line.startswith("data:")] == []


def test_without_scripts_the_page_says_the_same(browser: Any, path: Path) -> None:
    page = new_page(browser, java_script_enabled=False)
    page.goto(path.as_uri())
    assert "Claims: 1 holds, 1 fails" in page.inner_text("main")
    assert page.locator("tbody tr").count() > 4


def test_the_page_prints_on_paper_with_all_its_tables(browser: Any, path: Path) -> None:
    page, _ = opened(browser, path, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')")
    assert ground.strip() == "#ffffff"  # ink is dear
    page.set_viewport_size({"width": 700, "height": 1000})  # an A4 page without its margins
    assert page.evaluate("document.documentElement.scrollWidth") == 700
    assert page.locator(".tab:visible").count() == page.locator(".tab").count() > 3
    assert len(page.pdf(format="A4")) > 20_000


def test_a_page_prints_on_ten_sheets(browser: Any, grid: Path) -> None:
    page, _ = opened(browser, grid / "report.html", "desk")
    n_sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 3 <= n_sheets <= 10
