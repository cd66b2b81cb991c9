"""One grid point of the experiment, what it is simulated from, and what it is measured by.

A `Cell` holds the parameters of one grid point, `tables` makes what the kernel reads of them,
`METRICS` declares the numbers of a replication, a `Column` one column of a results table.
"""

from mc.model.cell import (
    MAX_ATTEMPTS,
    MAX_CALLS,
    MAX_LAYERS,
    MAX_RATE,
    MAX_REQUESTS,
    PARAMETERS,
    Cell,
    Generator,
    as_number,
    conflicts,
    lesson_conflicts,
    parse_parameter,
)
from mc.model.columns import Column, ColumnType, schema_of
from mc.model.kernel_tables import (
    arrival_thresholds,
    chain_kind,
    table_bytes,
    tables,
    traffic_key,
    wheel_key,
)
from mc.model.metrics import (
    COUNTERS,
    HEADLINE,
    METRICS,
    RATIOS,
    RECOVERY,
    Metric,
    Most,
    PerCell,
    Worst,
    calls_per_request,
    counters_of,
    metrics_of,
    rejects,
)
from mc.model.parameters import Kind, Parameter
from mc.model.thresholds import Thresholds
from mc.model.waits import Schedule, schedule

__all__ = [
    "COUNTERS",
    "HEADLINE",
    "MAX_ATTEMPTS",
    "MAX_CALLS",
    "MAX_LAYERS",
    "MAX_RATE",
    "MAX_REQUESTS",
    "METRICS",
    "PARAMETERS",
    "RATIOS",
    "RECOVERY",
    "Cell",
    "Column",
    "ColumnType",
    "Generator",
    "Kind",
    "Metric",
    "Most",
    "Parameter",
    "PerCell",
    "Schedule",
    "Thresholds",
    "Worst",
    "arrival_thresholds",
    "as_number",
    "calls_per_request",
    "chain_kind",
    "conflicts",
    "counters_of",
    "lesson_conflicts",
    "metrics_of",
    "parse_parameter",
    "rejects",
    "schedule",
    "schema_of",
    "table_bytes",
    "tables",
    "traffic_key",
    "wheel_key",
]
