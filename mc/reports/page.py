"""The page: one file that needs nothing else. Its text is in page.html and what that includes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

import jinja2
from markupsafe import Markup

from mc.model import NO_STORM_STAYS, OF_QUEUE, digits
from mc.reports import answer, notation, page_tables
from mc.reports.distributions import SHOWN
from mc.reports.pictures import Picture
from mc.reports.rendering import svg_for_page
from mc.reports.scenario import Scenario
from mc.reports.sweeps import MOST_POLICIES
from mc.reports.view import View
from mc.statistics import half_width
from mc.store import claims_told, undecided_told

_NARROWER: Final = 0.95


def page(
    view: View, pictures: Sequence[Picture], explorer: str, mark: str, *, png: bool = False
) -> str:
    """Write report.html, figures and style included.

    The explorer's data may be empty. The mark, written into the page, tells what it was made from;
    `png`, whether there are such files.
    """
    environment = _environment()
    environment.filters |= {
        "metric_title": view.title,
        "precision_words": partial(notation.precision_words, per_second=view.per_second),
    }
    template = environment.get_template("page.html")
    return template.render(
        view=view, pictures=pictures, explorer=Markup(explorer), mark=mark, png=png
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mc", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        name: getattr(answer, name)
        for name in ("by_verdict", "n_missed", "published_figures", "remarks")
    }
    environment.globals |= {
        "MOST_POLICIES": MOST_POLICIES,
        "NAMES": notation.NAMES,
        "NO_STORM_STAYS": NO_STORM_STAYS,
        "OF_QUEUE": OF_QUEUE,
        "ROUGH": digits.MIN_REPLICATIONS,
        "has_published": _has_published,
        "numeric": _numeric,
        "claims_told": claims_told,
        "tables": page_tables,
        "undecided_told": undecided_told,
        "widest": _widest,
    }
    environment.filters |= {
        "count": notation.count,
        "percent": digits.percent,
        "short": notation.short,
    }
    environment.filters |= {
        "anchor": lambda text: text.lower().replace(" ", "-"),
        "inline_svg": lambda pieces: Markup(svg_for_page(pieces)),  # our own text
        "json_text": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
        "mean_of_line": lambda line: notation.with_error(
            line["mean"], half_width(line), n=line["n"]
        ),
        "one_line": lambda text: Markup(" ".join(text.split())),  # escaped by the macro
        "column": _column,
    }
    return environment


def _numeric(lines: Sequence[page_tables.Line]) -> list[bool]:
    """Which columns of a table hold numbers."""
    return [any(field.value is not None for field in column) for column in zip(*lines, strict=True)]


def _column(picture: Picture) -> str:
    """How wide a column of panels is at least, in CSS pixels: a little less than a panel."""
    widths = [piece.width for piece in picture.pieces if not piece.is_head]
    return f"{_NARROWER * max(widths) * 4 / 3:.0f}px"


def _has_published(scenario: Scenario) -> bool:
    """Whether a cell that is drawn has a published figure."""
    return any(
        scenario.view.estimate(cell, metric)["published"] is not None
        for cell in scenario.chosen
        for metric in scenario.view.known(SHOWN)
    )


def _widest(scenario: Scenario, metric: str) -> str:
    """The largest half-width of a mean."""
    widths = (scenario.view.half_width(cell, metric) or 0.0 for cell in scenario.cells)
    return digits.rounded_up(max(widths))
