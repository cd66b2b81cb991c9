"""The page: one file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jinja2
from markupsafe import Markup

from mc.reports.answer import answer, missed, size
from mc.reports.meanings import making, meanings, parameters
from mc.reports.parts import inlined
from mc.reports.pictures import Picture
from mc.reports.tables import tables
from mc.reports.view import View

_BROAD: Final = 320.0
"""Points of a panel above which only two stand in a row."""


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
        The page as HTML, figures and style included.
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
        missed=missed(view),
        answer=answer(view),
        sections=_sections(pictures),
        tables=tables(view),
        meanings=meanings(view),
        parameters=parameters(view),
        making=making(view),
        experiment=json.dumps(view.source, indent=1, ensure_ascii=False),
    )


def _sections(pictures: Sequence[Picture]) -> list[_Section]:
    sections: dict[str, _Section] = {}
    for picture in pictures:
        section = sections.setdefault(picture.section, _Section(picture.section, []))
        svg = inlined(picture.svg, picture.name, picture.parts)  # our own text
        widths = [part.box[2] for part in picture.parts if not part.wide]
        shape = "whole" if not widths else "panels broad" if max(widths) > _BROAD else "panels"
        section.pictures.append(vars(picture) | {"inlined": Markup(svg), "shape": shape})
    return list(sections.values())
