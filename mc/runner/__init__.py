"""From an experiment to its results: `simulate` gives rows, `run` fills a results folder."""

from mc.runner.folder import merge, run
from mc.runner.tasks import Block, plan_blocks, simulate, simulate_block

__all__ = ["Block", "merge", "plan_blocks", "run", "simulate", "simulate_block"]
