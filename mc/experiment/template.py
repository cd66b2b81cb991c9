"""An experiment file to start from: it runs as it is, and says what may be changed."""

from __future__ import annotations

import json
from typing import Final

from mc.model import PARAMETERS, Parameter, units

SCHEMA_FILE: Final = "retrystorm.schema.json"
"""Where the template's first line has editors look for the schema: beside the template."""

_TEXT: Final = """\
#:schema ./SCHEMA
# A question about retries, to be made yours. It runs as it is, in a few seconds:
#
#     retrystorm check FILE      is it right, and what does it span?
#     retrystorm run FILE        prints the answer, and keeps every number of it
#
# Time goes in rounds. In each the dependency serves so many calls; the others fail, and are
# retried after a random wait. All parameters are listed at the end; a time or a rate may also be a
# number of rounds, or of calls in a round.

title = "How large a retry budget?"
seed = 1                        # same seed, same numbers
replications = 1000             # simulations of each cell; more of them narrow the intervals

# What all cells share.
[fixed]
rounds = "40 s"
round = "10 ms"                 # nothing that happens is told apart more finely
arrivals_per_second = "97.22/s" # requests
capacity = "600/s"              # calls served
fault_start = "5 s"
# Traffic that varies, in place of arrivals_per_second: at 0 s 50/s, then rising to 200/s at 30 s.
# traffic = {rates = [[0, "50/s"], ["30 s", "200/s"]]}

# What may happen. A scenario sets one or more parameters.
[[scenario]]
name = "outage"                 # nothing is served for 1 s
fault_rounds = "1 s"
fault_capacity = 0

[[scenario]]
name = "degradation"
fault_rounds = "10 s"
fault_capacity = "100/s"

# What may be done. The same requests meet every policy; the first is what others are compared with.
[[policy]]
name = "one layer"
tries = [3]                     # attempts, the first one included

[[policy]]
name = "three layers"
tries = [3, 3, 3]               # layers that retry one after another: up to 27 attempts

# Further axes; all of them are crossed with all scenarios and policies.
[grid]
budget = ["none", 0.05, 0.1, 0.2, 0.3, 0.5]    # retries allowed per first attempt
# backoff_cap = ["80 ms", "320 ms", "1.28 s"]
# backoff_base = {from = "10 ms", to = "80 ms", steps = 4, scale = "log"}    # 10, 20, 40, 80 ms

# Sentences to be put to the test in every replication.
[[claim]]
text = "three layers make a larger storm than one"
scenario = "outage"
metric = "window_calls"
policies = ["one layer", "three layers"]
relation = "<"
at = {budget = "none"}

[[claim]]
text = "a budget of 0.1 keeps the storm below twice the usual rate"
scenario = "outage"
metric = "times_usual"
policies = ["three layers"]
relation = "<"
value = 2
at = {budget = 0.1}

# Cells that make no sense can be left out; a cell that meets all of a table is:
#
#     [[exclude]]
#     policy = "one layer"
#     budget = {above = 0.3}
#
# In place of `replications`, the file may say how precisely you want to know:
#
#     [precision]
#     metric = ["window_rate", "dropped"]
#     relative = 0.01             # to 1 % of the mean ...
#     absolute = 0.05             # ... or to 0.05, whichever is wider
#     max = 64_000
#
# Parameters, with their defaults:
#
"""


def template(name: str) -> str:
    """Write an experiment file to start from.

    Parameters
    ----------
    name : str
        What it will be called: it mentions itself.

    Returns
    -------
    str
        TOML. `read` accepts it.
    """
    entries = dict(map(_entry, PARAMETERS, PARAMETERS.values()))
    width = max(map(len, entries))
    lines = (f"#     {entry:<{width}}  # {meaning}\n" for entry, meaning in entries.items())
    return _TEXT.replace("SCHEMA", SCHEMA_FILE).replace("FILE", name) + "".join(lines)


def _entry(name: str, parameter: Parameter) -> tuple[str, str]:
    """Write a parameter with its default, and what it means; the unit stands with one of them."""
    default = parameter.default
    if parameter.dimension in ("time", "rate") and default is not None:
        per_second = PARAMETERS["rounds_per_second"].default
        text = units.text_of(parameter.dimension, default, per_second, parameter.unit)
        return f'{name} = "{text}"', parameter.meaning
    number = json.dumps(parameter.toml_default).removesuffix(".0")
    return f"{name} = {number}", parameter.meaning_with_unit
