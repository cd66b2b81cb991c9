"""From an experiment to its results.

simulation   cells -> rows: blocks for the kernel, tasks for the threads
storage      what a run keeps of its replications: one interface, and behind it
rows, histograms
             how each is cut into tasks, simulated, saved, read, checked, estimated
shards       a task -> its shards
resume       which shards exist, and which ranges are missing
stages       [precision]: which cells have enough replications
tables       shards -> tallies -> summary, comparisons, claims
running      all of it: `run`, `merge`
dask         the workers of a cluster in place of threads
costs, planning
             what a run will cost
shorter      the same experiment with shorter rounds
verification whether a folder is what it says
tracing      replications round by round
"""

from mc.runner.dask import ClusterError
from mc.runner.planning import Plan, plan
from mc.runner.running import merge, run
from mc.runner.shorter import sensitivity
from mc.runner.simulation import Block, Draws, plan_blocks, simulate, simulate_block
from mc.runner.tracing import Rounds, choose, most_recorded, rounds_of, trace, trace_points
from mc.runner.verification import Verification, verify

__all__ = [
    "Block",
    "ClusterError",
    "Draws",
    "Plan",
    "Rounds",
    "Verification",
    "choose",
    "merge",
    "most_recorded",
    "plan",
    "plan_blocks",
    "rounds_of",
    "run",
    "sensitivity",
    "simulate",
    "simulate_block",
    "trace",
    "trace_points",
    "verify",
]
