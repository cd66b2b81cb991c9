"""The page: one file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import jinja2
from markupsafe import Markup

from mc.reports.answer import answer, size
from mc.reports.pictures import Picture
from mc.reports.style import inlined
from mc.reports.tables import making, tables
from mc.reports.view import View


@dataclass(frozen=True)
class _Section:
    """Pictures under one heading."""

    title: str
    pictures: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """The heading as an address."""
        return self.title.lower().replace(" ", "-")


def page(view: View, pictures: Sequence[Picture], mark: str) -> str:
    """Write report.html.

    Parameters
    ----------
    view : View
        The results.
    pictures : sequence of Picture
        All figures, in the order in which they are shown.
    mark : str
        Written into the page: what it was made from.

    Returns
    -------
    str
        HTML.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mc", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=view.results.manifest["title"],
        mark=mark,
        size=size(view),
        answer=answer(view),
        sections=_sections(pictures),
        tables=tables(view),
        making=making(view),
        experiment=json.dumps(view.source, indent=1, ensure_ascii=False),
    )


def _sections(pictures: Sequence[Picture]) -> list[_Section]:
    sections: dict[str, _Section] = {}
    for picture in pictures:
        section = sections.setdefault(picture.section, _Section(picture.section, []))
        svg = inlined(picture.svg, picture.name, escape(picture.alt))
        # our own text, escaped where it was made
        section.pictures.append(vars(picture) | {"inlined": Markup(svg)})
    return list(sections.values())
