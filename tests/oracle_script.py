"""Runs of the world in which a test writes down what chance does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from oracle_waits import Formula
from oracle_world import Call, Counts, Draws, Replication, World

HALF = 2**31
"""The word of u = 1/2."""


@dataclass
class Script:
    """Chance as a test writes it down, and what was asked of it.

    Attributes
    ----------
    arrivals : sequence of int
        New requests of each round, whatever the mean; none in later ones.
    failing : collection of Call
        Served calls that fail.
    words : dict of Call to int
        JITTER words; `HALF` where none is given.
    drawn : list of Call
        Whose JITTER words were asked for.

    Request j of a round belongs to client ``j % clients``; throttles reject nothing.
    """

    arrivals: Sequence[int]
    failing: Iterable[Call] = ()
    words: dict[Call, int] = field(default_factory=dict)
    drawn: list[Call] = field(default_factory=list)

    def draws(self) -> Draws:
        """Return the script as a generator."""

        def delay(call: Call, formula: Formula) -> int:
            self.drawn.append(call)
            return formula(self.words.get(call, HALF))

        return Draws(
            arrivals=lambda t, _: self.arrivals[t] if t < len(self.arrivals) else 0,
            fails=lambda call, _: call in self.failing,
            delay=delay,
            client=lambda call, clients: call.j % clients,
            throttled=lambda call, layer, chance: False,
        )


def play(world: World, script: Script) -> Counts:
    """Run the world by the script."""
    return Replication(world, script.draws()).run()


def plain(world: World, arrivals: Sequence[int], failing: Iterable[Call] = ()) -> Counts:
    """Run the world without jitter."""
    return play(replace(world, jitter="none"), Script(arrivals, failing))


def rounds_with_calls(counts: Counts) -> list[int]:
    """Return the round of each call, in order."""
    return [t for t, n in enumerate(counts.calls_in) for _ in range(n)]
