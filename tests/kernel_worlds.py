"""Cells of the package that are cells of the oracle's world, and their rows from both."""

from __future__ import annotations

from typing import Any

from oracle_draws import philox_world
from oracle_world import World, simulate

from mc.model import PARAMETERS, Cell


def cell_of(world: World) -> Cell:
    """Give the cell that a world is."""
    given: dict[str, Any] = {name: getattr(world, name) for name in PARAMETERS}
    if world.chain == "flattened":  # the oracle takes a list for its one layer, too
        for name, value in given.items():
            if isinstance(value, tuple) and name != "tries":
                given[name] = value[0]
    if given["arrivals_per_second"] is None:
        given["arrivals_per_second"] = 97.22
    return Cell(**given)


def oracle_row(world: World, seed: int, replication: int) -> dict[str, int | None]:
    """Simulate a world under Philox by the oracle."""
    return simulate(world, philox_world(seed, replication))
