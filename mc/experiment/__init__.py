"""A TOML experiment file, read into cells, claims and published figures.

`read` checks the whole file before anything runs and reports every fault at once, each with its
place: ``experiments/budget.toml: policy "two layers": budget must be ..., got -0.3``. The rule
of a parameter comes from `model.PARAMETERS`, that of any other key is the description of its field
in a pydantic model.

The cells are spanned by four kinds of axes, each crossed with all others; all are optional::

    [fixed]                            # what all cells share
    breaker = {kind = "consecutive"}

    [[scenario]]                       # one named point: a bundle of parameters set together
    name = "outage (1 s)"
    fault_rounds = 100

    [[policy]]                         # the same; one of them is the baseline of the others
    name = "three layers"
    tries = [3, 3, 3]

    [grid]                             # each parameter is an axis of its own
    backoff_cap = [8, 16, 32, 64]
    budget = {from = 0.05, to = 0.5, steps = 10}
    threshold = {from = 1, to = 1000, steps = 4, scale = "log"}
    breaker.timeout = ["1 s", "5 s"]   # an entry of a table, whose others are those of [fixed]

    [design]                           # one axis of points that fill a box evenly
    kind = "sobol"                     # 2^n points, more of them extend it; or "latin-hypercube"
    points = 64
    seed = 7                           # if not given, the seed that the file gives its draws
    backoff_base = {from = 0.5, to = 16, scale = "log"}
    arrivals_per_second = {from = 50, to = 110}

    [[exclude]]                        # cells that meet all of it are left out
    policy = "three layers"            # a name, a value, a list of them, or a range:
    backoff_cap = {above = 16}         # above, below, at_least, at_most; none is in no range
    threshold = [1, 10]

How many replications a cell has is fixed (``replications = 10_000`` at the top), or follows from
what they show::

    [precision]                        # in place of replications
    metric = ["window_rate", "dropped"]
    relative = 0.005                   # stop when each is known to 0.5 % of its mean ...
    absolute = 0.05                    # ... or to 0.05, whichever is wider; one of them is enough
    confidence = 0.95
    min = 1000                         # looked at after 1000, 2000, 4000, ...
    max = 64_000                       # ... and not continued beyond this

All policies of a scenario at one point of grid and design stop together: cells that are compared
have the same replications.

Where even rows are too many, ``keep = "histograms"`` at the top keeps, in place of them, how often
each value of each metric occurs in each cell, and exact sums. All tables are the same to the last
bit; but what was not counted, as a further claim or another baseline, cannot be had of them later.

What an exclude leaves out is neither checked nor numbered. A cell whose baseline is left out is
its own baseline: it is compared with nothing.

The files of this folder, each of which imports only those before it: `messages` (how names and
values are written), `validation` (from tables to pydantic models, or to messages), `keys` (types
that several tables share), `precision`, `experiment` (what a file becomes), `cell_table` (its
cells as a data frame), `spacing` (ranges and designs), `axes` (what spans the cells), `cells`
(which combinations remain), `claims` (with published figures), `file` (all tables together, and
their JSON schema), `reading` (from the path to the experiment), `template` (a file to start from).
"""

from mc.experiment.cell_table import (
    CELL_COLUMNS,
    FIXED,
    MAX,
    PRECISION,
    Stop,
    cell_table,
    cells_of,
    completed,
    counts_of,
    with_stops,
)
from mc.experiment.cells import Progress
from mc.experiment.experiment import (
    Claim,
    Experiment,
    ExperimentError,
    Point,
    Published,
    Relation,
    renumber,
)
from mc.experiment.file import SEEDS, json_schema
from mc.experiment.precision import MAX_REPLICATIONS, Precision
from mc.experiment.reading import of_source, read
from mc.experiment.template import SCHEMA_FILE, template
from mc.model import Generator

__all__ = [
    "CELL_COLUMNS",
    "FIXED",
    "MAX",
    "MAX_REPLICATIONS",
    "PRECISION",
    "SCHEMA_FILE",
    "SEEDS",
    "Claim",
    "Experiment",
    "ExperimentError",
    "Generator",
    "Point",
    "Precision",
    "Progress",
    "Published",
    "Relation",
    "Stop",
    "cell_table",
    "cells_of",
    "completed",
    "counts_of",
    "json_schema",
    "of_source",
    "read",
    "renumber",
    "template",
    "with_stops",
]
