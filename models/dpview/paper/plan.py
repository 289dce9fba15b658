"""What is counted as the paper prints it: equal buckets, a width by its guideline, views alone.

Source: Lin, Yu, Huang, "DPView", sections IV-B to IV-D and IV-G.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from cloister.errors import PlanError
from cloister.models.dpview.paper.guideline import width_by_guideline
from cloister.models.dpview.paper.view_list import random_views
from cloister.models.dpview.plan import DPViewRecipe
from cloister.models.dpview.view_choice import Arrange, PlannedTable, Shape
from cloister.models.dpview.views import ViewList, cells, with_upper
from cloister.models.task import Task
from cloister.schema.domain import equal_cells

BUCKETS = 16
"""Equal buckets of a number, if the spec names none: the paper prints no number."""

_EXPLANATIONS: Mapping[str, str] = {
    "views": "base and cross views over equal buckets, chosen from public sizes alone",
    "upper views": "upper cross views over equal buckets, referees of the linking",
}


def bucket_sizes(task: Task, buckets: int) -> dict[str, int]:
    """The number of values or buckets of each attribute that has several; of all if none has."""
    sizes = {name: equal_cells(task.domain[name], buckets).size for name in task.domain.modelled}
    return {name: size for name, size in sizes.items() if size > 1} or sizes


def printed_tables(task: Task, shape: Shape) -> Iterator[PlannedTable]:
    """The views alone, each of the same weight (equation 2)."""
    sizes = bucket_sizes(task, shape.parts)
    if shape.views:
        for names in shape.views.linked:
            yield PlannedTable("views", names, cells(names, sizes))
        for names in shape.views.referees:
            yield PlannedTable("upper views", names, cells(names, sizes))


@dataclass(frozen=True)
class PrintedShaping:
    """The views of a task: its width as asked for, or by the guideline; then algorithm 3."""

    arrange: Arrange

    def __call__(self, task: Task, epsilon: Fraction) -> Shape:
        """The shape, of all attributes with several values.

        Raises:
            PlanError: there is no attribute besides keys.
        """
        buckets = task.dpview.parts or BUCKETS
        sizes = bucket_sizes(task, buckets)
        if not sizes:
            raise PlanError("there is no attribute besides keys to count; declare one")
        asked = task.dpview.view_width
        width = asked or width_by_guideline(sizes, float(epsilon), task.data_rows)
        return Shape(self.arrange(random_views(sizes, min(width, len(sizes)))), buckets, ())


def _as_found(views: ViewList) -> ViewList:
    return views


PAPER_RECIPES = (
    DPViewRecipe(
        "dpview-paper",
        "dpview as its paper prints it: equal buckets, views alone, largest fractions",
        PrintedShaping(_as_found),
        printed_tables,
        _EXPLANATIONS,
    ),
    DPViewRecipe(
        "dpview+-paper",
        "dpview-paper with upper cross views as referees of the linking",
        PrintedShaping(with_upper),
        printed_tables,
        _EXPLANATIONS,
    ),
)
