"""Questions put to a results folder: this cell or that one, which is best, what is the price.

Every answer is paired: the cells have met the same traffic and the same luck.
"""

from mc.decisions.choosing import (
    QuestionError,
    coordinates,
    metric_named,
    places,
    select,
)
from mc.decisions.comparing import compare
from mc.decisions.ranking import best, best_among, condition, frontier, frontier_among
from mc.store import cell_name, place_name

__all__ = [
    "QuestionError",
    "best",
    "best_among",
    "cell_name",
    "compare",
    "condition",
    "coordinates",
    "frontier",
    "frontier_among",
    "metric_named",
    "place_name",
    "places",
    "select",
]
