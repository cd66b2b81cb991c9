"""Rerun a retry-storm model for thousands of seeds at every point of a grid.

    cell = mc.Cell(fault_rounds=100, tries=(3, 3, 3), budget=0.3)
    frame = mc.simulate([cell], replications=1000, seed=1)

The rooms of the package; each imports only from rooms with a smaller number. `mc/README.md` says
what is in them, how a run goes through them, and where a change goes:

    6  cli          typer: parses, calls one function, prints
    5  reports      figures and report.html from a results folder
    4  decisions    questions put to a results folder: compare, best, frontier
    4  runner       experiment -> tasks -> kernel -> shards
    3  store        the results folder: schema, shards, manifest, reading back
    3  statistics   rows -> estimates, intervals, comparisons, claims
    2  experiment   a TOML file -> cells, claims, published figures
    1  model        the parameters of a cell, checked and hashed; the tables the kernel reads
    0  kernel       all compiled code
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mc.decisions import QuestionError, best, compare, frontier
    from mc.experiment import ExperimentError
    from mc.model import Cell
    from mc.reports import report
    from mc.runner import (
        ClusterError,
        Plan,
        Verification,
        merge,
        plan,
        run,
        sensitivity,
        simulate,
        trace,
        verify,
    )
    from mc.store import DamagedError, FolderError, Results, Status, load, status

    __version__: str

__all__ = [
    "Cell",
    "ClusterError",
    "DamagedError",
    "ExperimentError",
    "FolderError",
    "Plan",
    "QuestionError",
    "Results",
    "Status",
    "Verification",
    "best",
    "compare",
    "frontier",
    "load",
    "merge",
    "plan",
    "report",
    "run",
    "sensitivity",
    "simulate",
    "status",
    "trace",
    "verify",
]

_HOMES = {
    "Cell": "mc.model",
    "ClusterError": "mc.runner",
    "DamagedError": "mc.store",
    "ExperimentError": "mc.experiment",
    "FolderError": "mc.store",
    "Plan": "mc.runner",
    "QuestionError": "mc.decisions",
    "Results": "mc.store",
    "Status": "mc.store",
    "Verification": "mc.runner",
    "best": "mc.decisions",
    "compare": "mc.decisions",
    "frontier": "mc.decisions",
    "load": "mc.store",
    "merge": "mc.runner",
    "plan": "mc.runner",
    "report": "mc.reports",
    "run": "mc.runner",
    "sensitivity": "mc.runner",
    "simulate": "mc.runner",
    "status": "mc.store",
    "trace": "mc.runner",
    "verify": "mc.runner",
}


def __getattr__(name: str) -> Any:
    """Import on first use: numba and polars would make `retrystorm --help` slow."""
    if name == "__version__":
        from importlib.metadata import version

        return version("retrystorm")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
