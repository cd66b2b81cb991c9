"""What may refuse a retry: one budget before the dependency, or one of each layer.

A budget allows a retry while the retries that have run, this one's call included, are at most a
share of the primary calls that have run. To the chain's budget the first call of a request is
primary; to a layer's budget, each call that the layer receives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mc.kernel.cache import form_for
from mc.kernel.chain import maker_of
from mc.kernel.layout import (
    ATTEMPT_MASK,
    C_LAYERS,
    C_LIMIT_MASK,
    C_LIMITS,
    PRIMARY,
    RETRIES,
    CellTables,
)


class LayerBudgets(NamedTuple):
    """A budget of each layer.

    Attributes
    ----------
    retries : ndarray of int64, shape (L,)
        That have run.
    allowed, rest : ndarray of int64, shape (L,)
        The share of the primary calls that have run: its whole part, and the numerator of the rest.
    """

    retries: NDArray[np.int64]
    allowed: NDArray[np.int64]
    rest: NDArray[np.int64]


def empty_budgets(tables: CellTables) -> LayerBudgets:
    """Budgets that have seen nothing."""
    n_layers = tables.tries.shape[1]
    return LayerBudgets(*np.zeros((3, n_layers), np.int64))


def has_budget(budgets, tables, c):
    """Whether a cell has a budget at all."""


def start_budgets(budgets):
    """Begin a cell."""


def begins(budgets, tables, c, entry):
    """Hear that a call leaves."""


def allows(budgets, tables, c, i, row):
    """Whether layer i may retry."""


@form_for(None, has_budget)
def _(budgets, tables, c):
    return tables.scalars[c, C_LIMIT_MASK] != 0


@form_for(None, start_budgets)
def _(budgets):
    pass


@form_for(None, begins)
def _(budgets, tables, c, entry):
    pass


@form_for(None, allows)
def _(budgets, tables, c, i, row):
    limits = tables.limits[tables.scalars[c, C_LIMITS]]
    return row[RETRIES] <= limits[row[PRIMARY] & tables.scalars[c, C_LIMIT_MASK]]


@form_for(LayerBudgets, has_budget)
def _(budgets, tables, c):
    return True


@form_for(LayerBudgets, start_budgets)
def _(budgets):
    budgets.retries[:] = 0
    budgets.allowed[:] = 0
    budgets.rest[:] = 0


@form_for(LayerBudgets, begins)
def _(budgets, tables, c, entry):
    i = maker_of(tables, c, entry)
    if entry & ATTEMPT_MASK > 0:
        budgets.retries[i] += 1
        i += 1
    while i < tables.scalars[c, C_LAYERS]:
        budgets.allowed[i] += tables.ratios[c, i, 0]
        budgets.rest[i] += tables.ratios[c, i, 1]
        if budgets.rest[i] >= tables.ratios[c, i, 2]:
            budgets.rest[i] -= tables.ratios[c, i, 2]
            budgets.allowed[i] += 1
        i += 1


@form_for(LayerBudgets, allows)
def _(budgets, tables, c, i, row):
    return budgets.retries[i] <= budgets.allowed[i]
