"""The report in a browser: nothing is missing, nothing overflows, tables sort.

Needs Chromium (Debian: ``apt install chromium``) and the extra `browser`; skipped without.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.browser

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MODES: Final = {
    "phone": {"viewport": {"width": 400, "height": 800}, "color_scheme": "light"},
    "desk": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra: browser")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture
def path(small: Path) -> Path:
    return small / "report.html"


def opened(browser: Any, path: Path, mode: str) -> tuple[Any, list[str]]:
    """Open the page; the list takes what the console says and what is asked of the network."""
    page = browser.new_page(**MODES[mode])
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


@pytest.mark.parametrize(("mode", "fewest", "most"), [("phone", 1, 1), ("desk", 2, 3)])
def test_as_many_panels_stand_in_a_row_as_there_is_room_for_and_are_legible(
    mode: str, fewest: int, most: int, browser: Any, small: Path, grid: Path
) -> None:
    script = """() => [...document.querySelectorAll(".panels")].map(
        (group) => [...group.querySelectorAll("svg.panel")].map((svg) => {
            const box = svg.getBoundingClientRect();
            return [box.y, box.width / svg.viewBox.baseVal.width];
        }))"""
    for folder in (small, grid):
        page, _ = opened(browser, folder / "report.html", mode)
        for panels in page.evaluate(script):
            rows = Counter(round(y) for y, _ in panels)
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
    table = page.locator("table").nth(1)
    head = table.locator("th[scope=col]", has_text="dropped")
    column = head.evaluate("cell => cell.cellIndex")

    def numbers() -> list[float]:
        cells = table.locator(f"tbody tr > *:nth-child({column + 1})")
        return [float(text) for text in cells.evaluate_all("all => all.map(x => x.dataset.v)")]

    for direction in ("ascending", "descending"):
        head.locator("button").press("Enter")  # with the keyboard
        got = numbers()
        expected = sorted(got, reverse=direction == "descending")
        assert got == expected
        assert head.get_attribute("aria-sort") == direction
    assert len(set(numbers())) > 1


def test_without_scripts_the_page_says_the_same(browser: Any, path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert "Of 2 claims, 1 holds, 1 fails" in page.inner_text("main")
    assert page.locator("tbody tr").count() > 4


def test_the_page_prints_on_paper_with_all_its_tables(browser: Any, path: Path) -> None:
    page, _ = opened(browser, path, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')")
    assert ground.strip() == "#ffffff"  # ink is dear
    page.set_viewport_size({"width": 700, "height": 1000})  # an A4 page without its margins
    assert page.evaluate("document.documentElement.scrollWidth") == 700
    assert len(page.pdf(format="A4")) > 20_000
