"""What a plan counts: the views that suit the public sizes and the budget, and the share of the budget of each.

Source: Lin, Yu, Huang, "DPView", sections IV-C (views, their size) and IV-D (budget allocation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.constraints import functional_dependency
from cloister.privacy.accounting.calibration import shares
from cloister.schema.cells import declared_cells
from models.discretization.attribute_order import NETWORKED, public_sizes
from models.dpview.view_search import best_views, dealt_views
from models.dpview.view_size import Noisy, earned
from models.dpview.views import Names, Sizes, ViewList, cells
from models.planning.constraint_marginals import wanted_tables
from models.protocol import Parameters, Task

MOST_CELLS = 10_000_000
WIDTHS = (2, 3, 4, 5, 6)
PARTS = (3, 4, 5, 6, 7, 8, 10, 12, 14, 20)
MOST_PER_ROW, MOST_OF_VIEW = 4, 250_000
LEAST_OF_VIEWS, LEAST_OF_UPPER = 0.1, 0.7
ADVICE = 1 / 27
FINE = 1000

EXPLANATIONS = {
    "attributes": "one-way histograms of all attributes",
    "views": "base and cross views over merged parts, chosen from public sizes alone",
    "upper views": "upper cross views over merged parts, referees of the linking",
    "joint tables": "joint tables of hard constraints",
}

Arrange = Callable[[ViewList], ViewList]


@dataclass(frozen=True)
class Shape:
    """What is counted: ``views`` over at most ``parts`` parts of each attribute, and ``tables`` of hard constraints."""

    views: ViewList | None
    parts: int
    tables: tuple[Names, ...]


@dataclass(frozen=True)
class ViewParameters(Parameters):
    """What is counted, and the epsilon of each table's noise, by the label of its query."""

    shape: Shape
    epsilons: Mapping[str, Fraction]


@dataclass(frozen=True)
class Query:
    """One table that is counted: its stage, its attributes, its cells at most, and how much its errors matter."""

    stage: str
    names: Names
    cells: int
    importance: float = 1.0

    @property
    def label(self) -> str:
        """The name of the query in the journal and the plan."""
        return f"{self.stage}: {' x '.join(self.names)}"


def queries(task: Task, shape: Shape) -> Iterator[Query]:
    """Everything that is counted, attributes first."""
    sizes = public_sizes(task.domain)
    for name in task.domain.modelled:
        yield Query("attributes", (name,), declared_cells(task.domain[name]).size)
    for names in shape.tables:
        yield Query("joint tables", names, cells(names, sizes), ADVICE)
    if shape.views:
        coarse = coarsened(sizes, shape.parts)
        for names in shape.views.linked:
            yield Query("views", names, cells(names, coarse))
        for names in shape.views.referees:
            yield Query("upper views", names, cells(names, coarse), ADVICE)


def allocated(asked: list[Query]) -> dict[str, Fraction]:
    """The share of the budget of each query, by label: in proportion to the cube root of its cells.

    That makes the sum of squared errors least (equation 2). Upper views and joint tables of
    constraints only advise on how records are made: their errors count a 27th, so that their share
    is a third.
    """
    roots = [max(1, round(FINE * (query.importance * query.cells) ** (1 / 3))) for query in asked]
    return {
        query.label: part for query, part in zip(asked, shares(Fraction(1), roots), strict=True)
    }


def coarsened(sizes: Sizes, parts: int) -> dict[str, int]:
    """Sizes of attributes merged to at most so many parts."""
    return {name: min(size, parts) for name, size in sizes.items()}


def determined(task: Task, tables: tuple[Names, ...]) -> set[str]:
    """The right sides of functional dependencies whose joint table is counted: they follow from the left sides."""
    found = [functional_dependency(constraint) for constraint in task.hard]
    return {d[1] for d in found if d is not None and (*d[0], d[1]) in tables}


def alone(_task: Task, _epsilon: Fraction) -> Shape:
    """Every attribute alone."""
    return Shape(None, 1, ())


@dataclass(frozen=True)
class Shaping:
    """The choice of views for a task and an epsilon, from public sizes alone.

    ``arrange`` may add upper cross views.
    """

    arrange: Arrange

    def __call__(self, task: Task, epsilon: Fraction) -> Shape:
        """The shape; without views where noise would drown them all, without upper ones where it would drown these."""
        tables = wanted_tables(task, public_sizes(task.domain))
        sizes = joinable(task, tables)
        empty = Shape(None, 1, tables)
        if len(sizes) < 2:
            return empty
        tried = [(width, parts) for width in WIDTHS for parts in PARTS]
        width, parts = max(tried, key=lambda at: _worth(task, epsilon, sizes, tables, *at))
        shape = Shape(self.arrange(best_views(coarsened(sizes, parts), width)), parts, tables)
        if _clarity(task, epsilon, sizes, shape, "views") < LEAST_OF_VIEWS:
            return empty
        if _clarity(task, epsilon, sizes, shape, "upper views") < LEAST_OF_UPPER:
            return Shape(best_views(coarsened(sizes, parts), width), parts, tables)
        return shape


def _worth(
    task: Task, epsilon: Fraction, sizes: Sizes, tables: tuple[Names, ...], width: int, parts: int
) -> float:
    """What base and cross views of this width over so many parts would earn.

    Nothing if a table would be too large.
    """
    views, rows = dealt_views(coarsened(sizes, parts), width), task.data_rows
    if max(cells(view, coarsened(sizes, parts)) for view in views.all) > min(
        MOST_PER_ROW * rows, MOST_OF_VIEW
    ):
        return 0.0
    return earned(
        _noisy(list(queries(task, Shape(views, parts, tables))), epsilon, "views"),
        sizes,
        parts,
        rows,
    )


def _clarity(task: Task, epsilon: Fraction, sizes: Sizes, shape: Shape, stage: str) -> float:
    """What the views of a stage earn, as a share of what they would earn without noise; 0 if there are none."""
    views = _noisy(list(queries(task, shape)), epsilon, stage)
    noiseless = {view: replace(about, epsilon=math.inf) for view, about in views.items()}
    found, best = (
        earned(these, sizes, shape.parts, task.data_rows) for these in (views, noiseless)
    )
    return found / best if best else 0.0


def joinable(task: Task, tables: tuple[Names, ...]) -> dict[str, int]:
    """The attributes that views are made of, with their sizes: neither constant nor huge nor determined by others."""
    sizes, followed = public_sizes(task.domain), determined(task, tables)
    return {
        name: size for name, size in sizes.items() if 1 < size <= NETWORKED and name not in followed
    }


def _noisy(asked: list[Query], epsilon: Fraction, stage: str) -> dict[Names, Noisy]:
    """The views of a stage, and the noise that each would get."""
    shared = allocated(asked)
    return {
        q.names: Noisy(q.cells, float(shared[q.label] * epsilon)) for q in asked if q.stage == stage
    }
