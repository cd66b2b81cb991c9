"""One grid point of the experiment, what it is simulated from, and what it is measured by.

A `Cell` holds the parameters of one grid point, `tables` makes what the kernel reads of them,
`MEANINGS` says which numbers a replication has.
"""

from mc.model.cell import (
    MAX_ATTEMPTS,
    MAX_CALLS,
    MAX_RATE,
    MAX_REQUESTS,
    PARAMETERS,
    Cell,
    Generator,
    Parameter,
    check_parameter,
    check_together,
)
from mc.model.kernel_tables import arrival_thresholds, table_bytes, tables, traffic_key
from mc.model.metrics import COUNTERS, MEANINGS, RATIOS

__all__ = [
    "COUNTERS",
    "MAX_ATTEMPTS",
    "MAX_CALLS",
    "MAX_RATE",
    "MAX_REQUESTS",
    "MEANINGS",
    "PARAMETERS",
    "RATIOS",
    "Cell",
    "Generator",
    "Parameter",
    "arrival_thresholds",
    "check_parameter",
    "check_together",
    "table_bytes",
    "tables",
    "traffic_key",
]
