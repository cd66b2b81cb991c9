"""What the tests of the report share: experiments, and how a page is asked."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

import numpy as np
from numpy.typing import NDArray

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

OUTAGE: Final = SMALL.replace('[[scenario]]\nname = "healthy"\nfailure_rate = 0.02\n', "")
"""The same with one scenario."""

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

GRID: Final = """
title = "Grid"
replications = 200
[fixed]
chain = "flattened"
rounds = 300
fault_start = 50
fault_rounds = 40
[[policy]]
name = "one try"
[[policy]]
name = "nine tries"
tries = [3, 3]
[grid]
budget = ["none", 0.05, 0.1, 0.2, 0.3]
backoff_cap = [4, 16, 32]
threshold = [1, 20]
[[claim]]
text = "few calls"
scenario = "default"
metric = "times_usual"
policies = ["nine tries"]
relation = "<"
value = 2
at = {budget = 0.1, backoff_cap = 4, threshold = 1}
"""

VARIANTS: Final = {
    "histograms": SMALL.replace("[fixed]", 'keep = "histograms"\n[fixed]'),
    "one cell, no axis": 'title = "One"\nreplications = 12\n[fixed]\nrounds = 300\n',
    "one replication": OUTAGE.replace("replications = 250", "replications = 1"),
    "one round": 'title = "Short"\nreplications = 3\n[fixed]\nrounds = 1\n',
    "nobody comes": (
        'title = "Quiet"\nreplications = 5\n[fixed]\nrounds = 200\narrivals_per_second = 0\n'
        "fault_start = 20\nfault_rounds = 9\n[grid]\nbackoff_cap = [4, 32]\n"
    ),
    "one axis": SWEEP.replace("threshold = [1, 20]", "").replace("backoff_cap = [4, 32]", ""),
    "three axes": GRID,
    "a design": (
        'title = "Design"\nreplications = 10\n[fixed]\nrounds = 200\nfault_start = 20\n'
        'fault_rounds = 30\ntries = [3]\n[design]\nkind = "sobol"\npoints = 2\n'
        "backoff_base = {from = 0.5, to = 16}\narrivals_per_second = {from = 50, to = 90}\n"
    ),
    "precision": (
        'title = "Precision"\n[precision]\nmetric = "calls"\nrelative = 0.01\nmin = 10\nmax = 40\n'
        "[fixed]\nrounds = 300\n[grid]\narrivals_per_second = [20, 400]\n"
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


def linear(color: str) -> NDArray[np.float64]:
    """The light of a colour, red, green and blue; sRGB."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    return float(np.dot([0.2126, 0.7152, 0.0722], linear(color)))


DEUTERANOPIA: Final = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
"""How light is seen without the pigment for green: Machado, Oliveira and Fernandes 2009."""


def lab_with_deuteranopia(color: str) -> NDArray[np.float64]:
    """CIE 1976 of what is seen with it."""
    return _lab(np.clip(DEUTERANOPIA @ linear(color), 0, 1))


def lab(color: str) -> NDArray[np.float64]:
    """CIE 1976, L*, a* and b*."""
    return _lab(linear(color))


def _lab(light: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = to_xyz @ light / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)
