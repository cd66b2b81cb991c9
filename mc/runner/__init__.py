"""From an experiment to its results.

`simulate` gives rows, `trace` their rounds, `run` fills a results folder; `plan` says before what
that costs, `verify` after whether the folder is what it says.
"""

from mc.runner.folder import merge, run
from mc.runner.planning import Plan, plan
from mc.runner.tasks import Block, plan_blocks, simulate, simulate_block
from mc.runner.tracing import Rounds, choose, indices_of, rounds_of, trace, trace_points
from mc.runner.verification import Verification, verify
from mc.runner.worker import ClusterError

__all__ = [
    "Block",
    "ClusterError",
    "Plan",
    "Rounds",
    "Verification",
    "choose",
    "indices_of",
    "merge",
    "plan",
    "plan_blocks",
    "rounds_of",
    "run",
    "simulate",
    "simulate_block",
    "trace",
    "trace_points",
    "verify",
]
