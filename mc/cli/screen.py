"""The one screen with which a run ends: scorecards, how the claims fall, what to do next."""

from __future__ import annotations

import shlex
import shutil
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from mc.cli.result_tables import VERDICT_STYLES, claim_texts, is_single, reproduced
from mc.cli.stdout import print_rich
from mc.cli.trace import MAX_CELLS
from mc.model import NO_STORM_STAYS
from mc.model.digits import UNSURE, counted, percent, share_ends
from mc.model.thresholds import DEPENDS, FAILS, OPEN

if TYPE_CHECKING:
    from mc.decisions.scorecard import Score, Scorecard
    from mc.store import Results

MAX_LINES: Final = 40
"""As many as a terminal shows, with what the report adds."""

_AFTER: Final = 2
"""Lines that follow: where the page is."""

WIDTH: Final = 100
"""Of a file or a pipe, in characters."""

MAX_CLAIMS: Final = 10

_CLAIM_LINES: Final = 7
"""Lines that are kept for claims, if there are as many."""

_HEAD_LINES: Final = 7
"""Lines of a scorecard beside those of its cells, the caption of a sweep included."""

_LEAST_NAME: Final = 16
"""A name has at least as many characters of a line; ranges are left out before it gets fewer."""

UNDECIDED_MARK: Final = " †"
"""After the name of a cell."""

_GAP: Final = 2
"""Spaces between columns."""


def print_screen(results: Results, file: Path) -> None:
    """Print the lines of `screen`, as wide as the terminal, or 100 characters without one."""
    width = terminal_width()
    print_rich(screen(results, file, width), width)


def terminal_width() -> int:
    """Return how many characters a line has."""
    return shutil.get_terminal_size((WIDTH, MAX_LINES)).columns


def screen(results: Results, file: Path, width: int) -> list[Text]:
    """Make the lines that a finished run prints.

    Parameters
    ----------
    results : Results
    file : Path
        Its experiment.
    width : int
        Characters in a line.

    Returns
    -------
    list of Text
        At most `MAX_LINES` less those of the report.
    """
    head = [Text(line, "bold") for line in textwrap.wrap(_title(results), width)]
    tail = [*_warnings(results, width), Text(""), *next_steps(results, file, width)]
    claims = _claim_lines(results, width)
    room = MAX_LINES - _AFTER - len(head) - len(tail)
    for_cards = room - min(len(claims), _CLAIM_LINES)
    cards = scorecard_lines(results, for_cards, width)
    return [*head, *cards, *_cut(claims, room - len(cards)), *tail]


def _title(results: Results) -> str:
    manifest = results.manifest
    counts = results.cells["replications"]
    fewest, most = (int(end()) for end in (counts.min, counts.max))  # type: ignore[arg-type]
    n = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    each = " each" if manifest["n_cells"] > 1 else ""
    runs = "1 replication" if most == 1 else f"{n} replications{each}"
    return f"{manifest['title']}: {counted(manifest['n_cells'], 'cell')}, {runs}"


# --- scorecards -----------------------------------------------------------------------------------


def scorecard_lines(
    results: Results, room: int, width: int, without: Collection[str] = ()
) -> list[Text]:
    """Write the scorecards of the scenarios in which most happens; of the others a sentence each.

    As many as fit `room` lines; the first of them even if it does not. The metrics in `without`
    get no column.
    """
    from mc.decisions.scorecard import MOST_LINES, scorecards

    n_scenarios = results.cells["scenario"].n_unique()
    most_lines = max(3, min(MOST_LINES, (room - 2) // n_scenarios - _HEAD_LINES))
    cards = scorecards(results, most_lines, without)
    with_name = len(cards) > 1
    texts = {card.scenario: _sentence(card, with_name, width) for card in cards}
    tables = {card.scenario: _Table(card, with_name) for card in cards if not card.alike}
    layout = next(
        (one for one in _LAYOUTS if all(table.fits(one, width) for table in tables.values())),
        _LAYOUTS[-1],
    )
    legend = _legend(tables.values(), layout, width)
    by_weight = sorted(cards, key=lambda card: card.weight, reverse=True)
    shown: dict[str, list[Text]] = {}
    n_lines = len(legend)
    first = next((card for card in by_weight if card.scenario in tables), None)
    if first is not None:
        shown[first.scenario] = [Text(""), *tables[first.scenario].lines(layout, width)]
        n_lines += len(shown[first.scenario])
    for card in by_weight:
        sentence = texts[card.scenario]
        if card is not first and n_lines + len(sentence) < room:
            shown[card.scenario] = sentence
            n_lines += len(sentence)
    n_left = len(cards) - len(shown)
    n_lines += n_left > 0
    for card in by_weight:
        if card is first or card.scenario not in tables or card.scenario not in shown:
            continue
        table = [Text(""), *tables[card.scenario].lines(layout, width)]
        n_more = len(table) - len(shown[card.scenario])
        if n_lines + n_more > room:
            break
        shown[card.scenario] = table
        n_lines += n_more
    lines = [line for card in cards for line in shown.get(card.scenario, [])]
    if n_left:
        lines.append(Text(f"{n_left} more scenarios: see show", "dim"))
    return lines + legend


def _sentence(card: Scorecard, with_name: bool, width: int) -> list[Text]:
    name = f"{card.scenario}: " if with_name else ""
    return [Text(line) for line in textwrap.wrap(name + card.finding, width)]


class _Layout(NamedTuple):
    """Whether means have errors, or as many digits as are known; whether ranges follow."""

    with_errors: bool
    with_ranges: bool
    legend: str


_LAYOUTS: Final = (
    _Layout(True, True, "Means ± half of their 95 % interval, then where 9 of 10 single runs lie"),
    _Layout(False, True, "Means, last digit ±1 (95 %), then where 9 of 10 single runs lie"),
    _Layout(True, False, "Means ± half of their 95 % interval"),
    _Layout(False, False, "Means, last digit ±1 (95 %)"),
)
"""The first that fits is taken."""


class _Table:
    """A scorecard as a table: the heads, then a line for each cell."""

    def __init__(self, card: Scorecard, with_name: bool) -> None:
        self.card = card
        self.title = card.scenario if with_name else ""
        self.places = [
            [
                of.place.get(name, "any") + (UNDECIDED_MARK if of.undecided and not i else "")
                for i, name in enumerate(card.coordinates)
            ]
            for of in card.lines
        ]
        self.place_heads = [
            ("", "") if name == "policy" else _axis_head(name) for name in card.coordinates
        ]
        self.place_widths = [
            max(*map(len, head), *(len(place[i]) for place in self.places))
            for i, head in enumerate(self.place_heads)
        ]
        self.heads = [_head(column.head, column.unit) for column in card.columns]

    def _entries(self, layout: _Layout) -> tuple[list[list[tuple[str, str]]], list[_Width]]:
        entries = [
            [
                (
                    _number(score, layout, column.metric != "recovery"),
                    _range(score, 3 if layout.with_errors else 2) if layout.with_ranges else "",
                )
                for column, score in zip(self.card.columns, line.scores, strict=True)
            ]
            for line in self.card.lines
        ]
        widths = [
            _Width(
                max(len(row[i][0].removeprefix("*")) for row in entries),
                max(len(row[i][1]) for row in entries),
                max(map(len, head)),
            )
            for i, head in enumerate(self.heads)
        ]
        return entries, widths

    def _for_name(self, widths: Sequence[_Width], width: int) -> int:
        used = sum(w.whole + _GAP for w in widths) + sum(w + _GAP for w in self.place_widths[1:])
        return width - used

    def fits(self, layout: _Layout, width: int) -> bool:
        """Whether enough of a line is left for names."""
        left = self._for_name(self._entries(layout)[1], width)
        return left >= min(self.place_widths[0], _LEAST_NAME)

    def lines(self, layout: _Layout, width: int) -> list[Text]:
        """A name that is too long goes on below."""
        entries, widths = self._entries(layout)
        room = max(self._for_name(widths, width), min(6, self.place_widths[0]))
        first = min(room, max(8, self.place_widths[0]))
        place_widths = [first, *self.place_widths[1:]]
        gap = " " * _GAP
        heads = list(self.place_heads)
        lines = []
        if self.title and (len(self.title) > first or heads[0][1]):
            lines.append(Text(self.title, "bold"))
        elif self.title:
            heads[0] = ("", self.title)
        for i in range(2):
            named = zip(heads, place_widths, strict=True)
            text = Text(gap.join(f"{head[i][:w]:<{w}}" for head, w in named), "bold")
            for head, w in zip(self.heads, widths, strict=True):
                text.append(f"{gap}{head[i]:>{w.whole}}", "not bold dim")
            lines.append(text)
        for line, place, row in zip(self.card.lines, self.places, entries, strict=True):
            name, *rest = textwrap.wrap(place[0], first) or [""]
            parts = zip([name, *place[1:]], place_widths, strict=True)
            text = Text(gap.join(f"{part:<{w}}" for part, w in parts))
            for score, (number, span), w in zip(line.scores, row, widths, strict=True):
                style = "bold green" if score is not None and score.is_best else ""
                # the star stands in the gap, so that it takes no room from all the others
                text.append(f"{number:>{_GAP + w.whole - w.entry + w.number}}", style)
                text.append(f"{' ' if w.span else ''}{span:<{w.span}}", "dim")
            lines += [text, *(Text(f"  {part}") for part in rest)]
        lines += [Text(part, "dim") for part in textwrap.wrap(self.card.caption, width)]
        return lines


class _Width(NamedTuple):
    """Characters of a column: its numbers, its ranges, its head."""

    number: int
    span: int
    head: int

    @property
    def entry(self) -> int:
        """Characters of a number with its range."""
        return self.number + self.span + (self.span > 0)

    @property
    def whole(self) -> int:
        """Characters of the column."""
        return max(self.entry, self.head)


def _axis_head(name: str) -> tuple[str, str]:
    """The name of an axis in two lines."""
    first, _, second = name.rpartition("_")
    return first, second


def _head(head: str, unit: str) -> tuple[str, str]:
    first, second = head.split("\n")
    return first, f"{second}, {unit}" if unit not in ("", "x") else second


def _number(score: Score | None, layout: _Layout, with_share: bool) -> str:
    """Write a score; of `recovery` the share of runs that have one has a column of its own."""
    if score is None:
        return "-"
    text = score.text
    if not layout.with_errors:
        text = score.known(score.ends() if layout.with_ranges else ())
    if not score.is_known:
        text += f" {score.n_of}" if with_share else ""
    elif score.share < 1 and with_share:
        text += f" in {percent(score.share)} %"
    return f"{'*' if score.is_best else ''}{text}"


def _range(score: Score | None, n_digits: int) -> str:
    if score is None:
        return ""
    ends = score.ends(n_digits)
    if score.of_runs and score.low is not None and score.high is not None:
        return f"({share_ends(score.low, score.high)})" if ends else ""
    return "–".join(dict.fromkeys(ends))


def _legend(tables: Collection[_Table], layout: _Layout, width: int) -> list[Text]:
    scores = [s for table in tables for line in table.card.lines for s in line.scores if s]
    parts = [layout.legend] if any(score.half_width for score in scores) else []
    if any(score.is_best for score in scores):
        parts.append("* surely best of its column, or tied")
    if any(score.of_runs and score.n > 1 for score in scores) and layout.with_ranges:
        parts.append("in parentheses the 95 % interval of a share of runs")
    shown = {column.metric for table in tables for column in table.card.columns}
    if "drain" in shown:
        parts.append(f"gone after: {NO_STORM_STAYS}")
    if any(score.known().startswith(UNSURE) for score in scores):
        parts.append(f"{UNSURE}: too skewed for an error")
    if any(not score.is_known for score in scores):
        parts.append("–: so few runs have one, or so skewed, that their mean is not known")
    if any(line.undecided for table in tables for line in table.card.lines):
        parts.append("†: requests are undecided: failed and late are not compared")
    left_out = dict.fromkeys(name for table in tables for name in table.card.left_out)
    if left_out:
        parts.append(f"no room for {' and '.join(left_out)}: show --metric NAME")
    text = f"{'; '.join(parts)}."
    return [Text(line, "dim") for line in textwrap.wrap(text, width)] if parts else []


# --- claims ---------------------------------------------------------------------------------------


def _claim_lines(results: Results, width: int) -> list[Text]:
    """How the claims fall, in a line, and those that do not hold, a line each."""
    from mc.store import claims_told

    if results.claims.is_empty():
        return []
    lines = [Text(""), Text(claims_told(results), "bold")]
    if is_single(results):
        return lines
    order = [FAILS, DEPENDS, OPEN]
    cited = [claim for claim in claim_texts(results) if claim.verdict in order]
    cited.sort(key=lambda claim: order.index(claim.verdict))
    for claim in cited:
        share = f"in {claim.share} %"
        if claim.verdict == OPEN and claim.to_decide:
            share += f", about {claim.to_decide} decide"
        room = width - 10 - max(10, len(share) + 2)
        text = claim.text if len(claim.text) <= room else f"{claim.text[: room - 1]}…"
        verdict = "depends" if claim.verdict == DEPENDS else claim.verdict
        style = VERDICT_STYLES.get(claim.verdict, "")
        lines.append(
            Text.assemble(
                (f"  {verdict:<8}", style), f"{text:<{room}}", f"{share:>{width - 10 - room}}"
            )
        )
    return lines


def _cut(claims: Sequence[Text], room: int) -> list[Text]:
    """As many claims as there is room for, at most `MAX_CLAIMS`."""
    most = max(3, min(2 + MAX_CLAIMS, room))
    if len(claims) <= most:
        return list(claims)
    n_more = len(claims) - most + 1
    return [*claims[: most - 1], Text(f"  and {n_more} more, see show", "dim")]


# --- what else ------------------------------------------------------------------------------------


def _warnings(results: Results, width: int) -> list[Text]:
    from mc.model.digits import MIN_REPLICATIONS
    from mc.store import undecided_told

    lines = [undecided_told(results), reproduced(results)]
    fewest = int(results.cells["replications"].min())  # type: ignore[arg-type]
    if 1 < fewest < MIN_REPLICATIONS:
        lines.append(f"Fewer than {MIN_REPLICATIONS} replications: intervals are rough.")
    return [Text(part) for line in lines if line for part in textwrap.wrap(line, width)]


def _in_a_shell(path: Path) -> str:
    """Write a path as an argument; what would move a terminal's cursor is a question mark."""
    return shlex.quote("".join(c if c.isprintable() else "?" for c in str(path)))


def next_steps(results: Results, file: Path, width: int) -> list[Text]:
    """Name up to three commands that go on from here."""
    import polars as pl

    from mc.decisions.rivals import MIN_REPLICATIONS
    from mc.decisions.scorecard import LOADS

    folder = _in_a_shell(results.folder)
    commands = {f"retrystorm show {folder}": "every number"}
    made = results.scan_summary().filter(pl.col("n") > 0)
    known = set(made.select("metric").unique().collect().to_series())
    load = next((name for name in LOADS if name in known), None)
    fewest = int(results.cells["replications"].min())  # type: ignore[arg-type]
    can_answer = results.keeps_rows and fewest >= MIN_REPLICATIONS and load is not None
    if can_answer and results.cells.height > 1:
        question = f'best {folder} --metric dropped --subject-to "{load} <= 2"'
        commands[f"retrystorm {question}"] = "the best for a load"
    if results.cells.height <= MAX_CELLS:
        commands[f"retrystorm trace {_in_a_shell(file)}"] = "one run, round by round"
    elif can_answer:
        commands[f"retrystorm frontier {folder} failed_share multiplier"] = "what is worth it"
    longest = max(map(len, commands))
    lines = []
    for command, told in commands.items():
        line = f"{command:<{longest}}  {told}"
        lines.append(Text(line if len(line) <= width else command, no_wrap=True, overflow="ignore"))
    return lines
