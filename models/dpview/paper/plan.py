"""The tables of the paper's plan: views over equal buckets, of the guideline's width.

The view list is the smallest of random partitions. The guideline gives the number of attributes of
a view from domain sizes alone: of a standard normal table over the cells of a view, enough should
lie above the noise. What is printed of the size of a view, D d / m, is read as D^(d/m), the
geometric mean; gamma is that of section IV-E3, and the threshold is ours: the paper prints neither.
With it Adult's 48,842 rows get the views of five that the paper takes.

Source: Lin, Yu, Huang, "DPView", sections IV-B to IV-D (C7 for the guideline) and IV-G, algorithms
    1 and 3; all inputs are public.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import chdtr

from cloister.errors import PlanError
from cloister.models.dpview.plan import DPViewRecipe
from cloister.models.dpview.tables import GAMMA
from cloister.models.dpview.view_choice import REACH, Arrange, DPViewOptions, PlannedTable, Shape
from cloister.models.dpview.views import (
    Names,
    Sizes,
    ViewList,
    add_cross_views,
    ordered_base,
    with_upper,
)
from cloister.models.task import Task, options_of
from cloister.schema.partition import equal_cells

_RUNS = 2_000
"""Most random partitions, x in algorithm 3; the paper prints no number."""

_PATIENCE = 500
"""The search ends after this many partitions in a row without a smaller list."""

_SEED = 20_211_002
"""Public seed of the partitions, the same in every plan."""

_WIDTHS = range(2, 9)
"""Widths of views that are tried."""

_LEAST_ABOVE = 0.5
"""Least share of rows in cells that exceed the noise, for a width to be a candidate."""

_MOST_CELLS = 250_000
"""Most cells of an average view: making larger ones agree takes minutes."""

BUCKETS = 16
"""Default number of equal buckets; the paper prints none."""

_EXPLANATIONS: Mapping[str, str] = {
    "views": "base and cross views over equal buckets, chosen from public sizes alone",
    "upper views": "upper cross views over equal buckets, referees of the linking",
}


def random_views(sizes: Sizes, width: int) -> ViewList:
    """The smallest of many random lists in which no cross view exceeds all base views.

    If all have such a cross view, the smallest of these.
    """
    rng = random.Random(_SEED)  # noqa: S311 - a public choice

    def any_of(names: Names, number: int) -> Names:
        return tuple(rng.sample(names, number))

    best: tuple[bool, int] | None = None
    chosen, stale, names = ViewList(()), 0, sorted(sizes)
    for _ in range(_RUNS):
        rng.shuffle(names)
        parts = [names[begin : begin + width] for begin in range(0, len(names), width)]
        views = add_cross_views(ordered_base(parts, sizes, width), sizes, width, any_of)
        cost = (not views.within_bounds(sizes), views.size(sizes))
        stale += 1
        if best is None or cost < best:
            best, chosen, stale = cost, views, 0
        if stale > _PATIENCE:
            break
    return chosen


def width_by_guideline(sizes: Sizes, epsilon: float, rows: int) -> int:
    """The greatest width with enough of a normal table above the noise, at least 2."""
    mean = geometric_mean(sizes)
    widths = [w for w in _WIDTHS if w <= len(sizes) and mean**w <= _MOST_CELLS]
    enough = [w for w in widths if share_above_noise(w, sizes, epsilon, rows) >= _LEAST_ABOVE]
    return max(enough, default=2)


def geometric_mean(sizes: Sizes) -> float:
    """The geometric mean of the sizes of all attributes."""
    return math.exp(sum(map(math.log, sizes.values())) / len(sizes))


def share_above_noise(width: int, sizes: Sizes, epsilon: float, rows: int) -> float:
    """The share of a normal table's rows in cells of more rows than rho = -ln(1 - gamma) / epsilon.

    The table has ``width`` attributes, each cut into as many parts of six deviations as the
    geometric mean of all sizes. A cell at distance r from the middle holds
    rows * side^width * exp(-r^2 / 2) / (2 pi)^(width / 2), and r^2 is chi-squared.
    """
    side = 2 * REACH / geometric_mean(sizes)
    rho = -math.log(1 - GAMMA) / epsilon
    middle = math.log(rows / rho) + width * (math.log(side) - math.log(2 * math.pi) / 2)
    return float(chdtr(width, max(2 * middle, 0.0)))


def bucket_sizes(task: Task, buckets: int) -> dict[str, int]:
    """The number of values or buckets of each attribute that has several; of all if none has."""
    sizes = {name: equal_cells(task.domain[name], buckets).size for name in task.domain.modelled}
    return {name: size for name, size in sizes.items() if size > 1} or sizes


def printed_tables(task: Task, shape: Shape) -> Iterator[PlannedTable]:
    """The views alone, each of the same weight (equation 2)."""
    sizes = bucket_sizes(task, shape.parts)
    if shape.views:
        for names in shape.views.linked:
            yield PlannedTable("views", names, sizes)
        for names in shape.views.referees:
            yield PlannedTable("upper views", names, sizes)


@dataclass(frozen=True)
class PrintedShaping:
    """The views of a task: of the declared width, or by the guideline; then algorithm 3."""

    arrange: Arrange

    def __call__(self, task: Task, epsilon: Fraction) -> Shape:
        """The shape, of all attributes with several values.

        Raises:
            PlanError: there is no attribute besides keys.
        """
        options = options_of(task, DPViewOptions)
        buckets = options.parts or BUCKETS
        sizes = bucket_sizes(task, buckets)
        if not sizes:
            raise PlanError("there is no attribute besides keys to count; declare one")
        width = options.view_width or width_by_guideline(sizes, float(epsilon), task.data_rows)
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
