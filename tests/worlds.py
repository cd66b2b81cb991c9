"""Worlds of the oracle as cells of the package, and rows of both side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from oracle_cells import Section, random_world
from oracle_draws import philox_world
from oracle_world import Traffic, World, simulate

import mc
from mc.model import METRICS, PARAMETERS, Cell

Row = dict[str, int | None]


def cell_of(world: World) -> Cell:
    """Give the cell that a world is."""
    given: dict[str, Any] = {name: getattr(world, name) for name in PARAMETERS}
    if world.chain == "flattened":  # the oracle takes a list for its one layer, too
        for name, value in given.items():
            if isinstance(value, tuple) and name not in ("tries", "faults"):
                (given[name],) = value
    if given["arrivals_per_second"] is None:
        del given["arrivals_per_second"]
    if world.faults:  # the oracle does not mind what else is given
        simple = ("fault_start", "fault_rounds", "fault_capacity", "fault_failure_rate")
        given |= {name: PARAMETERS[name].default for name in simple}
    given["traffic"] = _traffic(world)
    for name in ("budget", "breaker", "faults"):
        given[name] = _as_table(given[name])
    return Cell(**given)


def _traffic(world: World) -> dict[str, Any] | None:
    """Give the traffic as an experiment file has it; the oracle's may end before the run."""
    if world.traffic is None:
        return None
    given = asdict(world.traffic)
    table = {f.name: given[f.name] for f in fields(Traffic) if given[f.name] != f.default}
    if world.traffic.counts:
        per = table.setdefault("per", world.rounds_of(world.traffic.per))
        missing = -(-world.rounds // per) - len(world.traffic.counts)
        table["counts"] = [*world.traffic.counts, *[0] * missing]
    return table or None


def _as_table(value: Any) -> Any:
    """Give a budget or a breaker as an experiment file has it."""
    if isinstance(value, tuple):
        return tuple(map(_as_table, value))
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def random_worlds(seed: int, n: int, section: Section = "chains") -> list[World]:
    """Give random worlds, always the same for one seed."""
    rng = random.Random(seed)
    return [random_world(rng, section) for _ in range(n)]


def differences(
    worlds: Sequence[World], replications: Sequence[int], seed: int
) -> list[tuple[World, int, dict[str, tuple[int | None, int | None]]]]:
    """Compare rows of the package with those of the oracle, column by column.

    A counter that there is not in a cell is NULL in its rows, and 0 in the oracle's.
    """
    cells = [cell_of(world) for world in worlds]
    rows = mc.simulate(cells, replications=replications, seed=seed, jobs=1)
    found = []
    for row in rows.iter_rows(named=True):
        c, replication = row.pop("cell"), row.pop("replication")
        expected = simulate(worlds[c], philox_world(seed, replication))
        for name in row:
            exists = METRICS[name].exists
            if exists is not None and not exists(cells[c]):
                if name in expected and not name.startswith(("calls_", "recover")):
                    assert expected[name] == 0, name
                expected[name] = None
        wrong = {name: (row[name], expected[name]) for name in row if row[name] != expected[name]}
        if wrong:
            found.append((worlds[c], replication, wrong))
    return found
