"""The tables of a plan: views that suit public sizes and the budget, and each table's share.

The paper's guideline for the size of views assumes that a view's table is standard normal, and
computes how much of it is above the noise. The information of a noisy view lies in the joint tables
of its pairs, so here the normal table is that of a pair, and the noise is the view's, summed within
a cell of it. Each candidate is a view list with the noise it would get. For each pair of attributes
that a view joins, it scores the share of the pair's table above the noise times the share of a
dependence that remains in merged parts. The candidate of highest score is chosen: wider and finer
views have more pairs and parts, and more noise.

Source: Lin, Yu, Huang, "DPView", sections IV-C (views, their size; C7 for the guideline) and IV-D
(budget allocation); loss by merging: Cox, "Note on grouping" (1957).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtr, ndtri

from cloister.arrays import Floats
from cloister.constraints import functional_dependency
from cloister.models.core.histograms import counted_by_rounding
from cloister.models.dpview.views import Names, Sizes, ViewList, best_views, cells, dealt_views
from cloister.models.planning import NETWORKED_LEVELS, public_sizes, wanted_tables
from cloister.models.task import Parameters, Task, options_of
from cloister.schema.attributes import Declared
from cloister.schema.partition import counted_values, declared_cells

_MOST_WIDTH = 20
"""Most attributes of a view: with two values each they have a million cells."""

_MOST_PARTS = 1_000
"""Most parts of an attribute: a view of two has a million cells."""

MOST_TABLE_CELLS = 10_000_000
"""Most cells of any table in a plan: bounds memory."""

_WIDTHS = (2, 3, 4, 5, 6)
"""Attributes of a view, tried one after the other."""

_PARTS = (3, 4, 5, 6, 7, 8, 10, 12, 14, 20)
"""Most parts of an attribute, tried one after the other; 20 are all bins of a number."""

_MOST_PER_ROW = 4
"""Most cells of a view per row."""

_MOST_OF_VIEW = 250_000
"""Most cells of a view."""

_LEAST_OF_VIEWS = 0.1
"""Least score of base and cross views, as a share of that without noise, to use views at all."""

_LEAST_OF_UPPER = 0.7
"""Least score of upper cross views, as a share of that without noise, to count them."""

_NO_VIEWS = "no views: noise would drown them"
_NO_UPPER = "no upper views: noise would drown them, so that this is the plan of dpview"

_ADVICE = 1 / 27
"""Weight of the errors of advisory tables: their part of the budget is then a third."""

_FINE = 1000
"""Parts of the budget are proportional to multiples of 1 / this."""

_DEPENDENCE = 0.2
"""The dependence to detect: the share of a cell's rows by which it changes the cell."""

REACH = 3.0
"""Deviations of the normal table on either side."""

Arrange = Callable[[ViewList], ViewList]


Linking = Literal["priority", "matching"]


class DPViewOptions(Declared):
    """How attributes are counted and linked; omitted options are chosen by public facts."""

    view_width: int | None = Field(
        default=None,
        ge=2,
        le=_MOST_WIDTH,
        description="how many attributes a view joins (the paper's d)",
        examples=[5],
    )
    parts: int | None = Field(
        default=None,
        ge=2,
        le=_MOST_PARTS,
        description="the most parts of an attribute: of equal mass, or equal buckets as printed",
        examples=[16],
    )
    linking: Linking = Field(
        default="priority",
        description="of records, by `priority` of their counts, or by a `matching` of maximum "
        "cardinality, which is slower",
        examples=["matching"],
    )


@dataclass(frozen=True)
class Shape:
    """What is counted: ``views`` and joint ``tables`` of hard constraints.

    Views are over at most ``parts`` parts of each attribute. ``left_out`` says what of the method
    is not counted, and why.
    """

    views: ViewList | None
    parts: int
    tables: tuple[Names, ...]
    left_out: str = ""


@dataclass(frozen=True)
class ViewParameters(Parameters):
    """What is counted, and the epsilon of each table's noise, by the label of its query."""

    shape: Shape
    epsilons: Mapping[str, Fraction]


@dataclass(frozen=True)
class PlannedTable:
    """One table that is counted: its stage, attributes, and weight of its errors.

    ``sizes`` are the most cells of attributes.
    """

    stage: str
    names: Names
    sizes: Sizes
    importance: float = 1.0

    @property
    def cells(self) -> int:
        """Cells at most."""
        return cells(self.names, self.sizes)

    @property
    def label(self) -> str:
        """The name of the table in the journal and the plan."""
        return f"{self.stage}: {' x '.join(self.names)}"


ROUNDINGS = "roundings"
"""The stage of counts of attributes by how round their values are."""


def planned_tables(task: Task, shape: Shape) -> Iterator[PlannedTable]:
    """All counted tables, attributes first."""
    sizes = public_sizes(task.domain)
    for name in task.domain.modelled:
        yield PlannedTable("attributes", (name,), {name: declared_cells(task.domain[name]).size})
    for name in counted_by_rounding(task.domain, task.domain.modelled):
        yield PlannedTable(ROUNDINGS, (name,), {name: counted_values(task.domain[name]).size})
    for names in shape.tables:
        yield PlannedTable("joint tables", names, sizes, _ADVICE)
    if shape.views:
        coarse = coarse_sizes(sizes, shape.parts)
        for names in shape.views.linked:
            yield PlannedTable("views", names, coarse)
        for names in shape.views.referees:
            yield PlannedTable("upper views", names, coarse, _ADVICE)


def weights(tables: list[PlannedTable]) -> dict[str, int]:
    """The weight of each table in the budget, by label: the cube root of its cells.

    This minimises the sum of squared errors (equation 2). Upper views and joint tables of
    constraints only advise on how records are made: their errors count a 27th, so that their share
    is a third.
    """
    return {
        table.label: max(1, round(_FINE * (table.importance * table.cells) ** (1 / 3)))
        for table in tables
    }


def coarse_sizes(sizes: Sizes, parts: int) -> dict[str, int]:
    """Sizes of attributes merged to at most ``parts`` parts."""
    return {name: min(size, parts) for name, size in sizes.items()}


def determined_attributes(task: Task, tables: tuple[Names, ...]) -> set[str]:
    """The right sides of functional dependencies whose joint table is counted."""
    dependencies = [functional_dependency(constraint) for constraint in task.hard]
    return {d[1] for d in dependencies if d is not None and (*d[0], d[1]) in tables}


def attributes_alone(_task: Task, _epsilon: Fraction) -> Shape:
    """Every attribute alone."""
    return Shape(None, 1, ())


@dataclass(frozen=True)
class Shaping:
    """The choice of views for a task and an epsilon, from public sizes alone.

    ``arrange`` may add upper cross views. A declared width is taken.
    """

    arrange: Arrange

    def __call__(self, task: Task, epsilon: Fraction) -> Shape:
        """The shape; without views, or without upper views, where noise would drown them."""
        tables = wanted_tables(task, public_sizes(task.domain))
        sizes = joinable(task, tables)
        empty, options = Shape(None, 1, tables, _NO_VIEWS), options_of(task, DPViewOptions)
        if len(sizes) < 2:
            return Shape(None, 1, tables)
        widths = (min(options.view_width, len(sizes)),) if options.view_width else _WIDTHS
        tried = [(w, p) for w in widths for p in ((options.parts,) if options.parts else _PARTS)]
        width, parts = max(
            tried, key=lambda candidate: _worth(task, epsilon, sizes, tables, *candidate)
        )
        shape = Shape(self.arrange(best_views(coarse_sizes(sizes, parts), width)), parts, tables)
        drowned = _clarity(task, epsilon, sizes, shape, "views") < _LEAST_OF_VIEWS
        if drowned and not options.view_width:
            return empty
        if not shape.views or not shape.views.referees:
            return shape
        if _clarity(task, epsilon, sizes, shape, "upper views") < _LEAST_OF_UPPER:
            return Shape(replace(shape.views, upper=()), parts, tables, _NO_UPPER)
        return shape


def _worth(
    task: Task, epsilon: Fraction, sizes: Sizes, tables: tuple[Names, ...], width: int, parts: int
) -> float:
    """The score of base and cross views of this width, over at most ``parts`` parts.

    0 if a table would be too large.
    """
    views, rows = dealt_views(coarse_sizes(sizes, parts), width), task.data_rows
    if max(cells(view, coarse_sizes(sizes, parts)) for view in views.all) > min(
        _MOST_PER_ROW * rows, _MOST_OF_VIEW
    ):
        return 0.0
    return worth_of_views(
        _noisy(list(planned_tables(task, Shape(views, parts, tables))), epsilon, "views"),
        sizes,
        parts,
        rows,
    )


def _clarity(task: Task, epsilon: Fraction, sizes: Sizes, shape: Shape, stage: str) -> float:
    """The score of a stage's views, as a share of that without noise; 0 if there are none."""
    views = _noisy(list(planned_tables(task, shape)), epsilon, stage)
    noiseless = {view: replace(about, epsilon=math.inf) for view, about in views.items()}
    worth, best = (
        worth_of_views(these, sizes, shape.parts, task.data_rows) for these in (views, noiseless)
    )
    return worth / best if best else 0.0


def joinable(task: Task, tables: tuple[Names, ...]) -> dict[str, int]:
    """The attributes of views, with sizes: not constant, very large, or determined by others."""
    sizes, followed = public_sizes(task.domain), determined_attributes(task, tables)
    return {
        name: size
        for name, size in sizes.items()
        if 1 < size <= NETWORKED_LEVELS and name not in followed
    }


def _noisy(planned: list[PlannedTable], epsilon: Fraction, stage: str) -> dict[Names, ViewNoise]:
    """The views of a stage, and the noise of each."""
    shares = weights(planned)
    whole = sum(shares.values())
    return {
        table.names: ViewNoise(table.cells, float(shares[table.label] * epsilon / whole))
        for table in planned
        if table.stage == stage
    }


@lru_cache(maxsize=4096)
def above_noise(first: int, second: int, rows: int, deviation: float) -> float:
    """The share of a dependence above the noise, in a normal table of ``first`` x ``second`` parts.

    A dependence that changes a cell of c rows by 0.2 c is above it in the share
    (0.2 c)^2 / ((0.2 c)^2 + deviation^2).
    """
    masses = np.outer(normal_masses(first), normal_masses(second))
    moved = np.square(_DEPENDENCE * rows * masses)
    return float((masses * moved / (moved + deviation**2)).sum())


@lru_cache
def normal_masses(size: int) -> Floats:
    """Masses (size,) of equally wide parts of a standard normal variable, within 3 deviations."""
    masses = np.diff(ndtr(np.linspace(-REACH, REACH, size + 1)))
    return np.asarray(masses / masses.sum())


@lru_cache
def variance_between(parts: int, size: int) -> float:
    """The share of a normal variable's variance between ``parts`` parts of equal mass.

    1 if these are all values.
    """
    if parts >= size:
        return 1.0
    density = np.exp(-np.square(ndtri(np.linspace(0.0, 1.0, parts + 1))) / 2) / math.sqrt(
        2 * math.pi
    )
    return float(parts * np.square(np.diff(density)).sum())


@dataclass(frozen=True)
class ViewNoise:
    """A view's cells, and the epsilon that its noise would have."""

    cells: int
    epsilon: float

    def deviation(self, pair: int) -> float:
        """The deviation of the noise, in rows, of a cell of a margin of ``pair`` cells."""
        return math.sqrt(2.0 * self.cells / pair) / self.epsilon


def worth_of_views(views: Mapping[Names, ViewNoise], sizes: Sizes, parts: int, rows: int) -> float:
    """The score of views: the mean over all pairs of the share of a dependence above the noise.

    ``sizes`` are those of the attributes before they are merged to at most ``parts`` parts.
    """
    best: dict[frozenset[str], float] = {}
    for view, about in views.items():
        for first, second in combinations(view, 2):
            a, b = (min(sizes[name], parts) for name in (first, second))
            clear = above_noise(a, b, rows, about.deviation(a * b))
            pair = frozenset((first, second))
            worth = clear * variance_between(a, sizes[first]) * variance_between(b, sizes[second])
            best[pair] = max(best.get(pair, 0.0), worth)
    return sum(best.values()) / max(math.comb(len(sizes), 2), 1)
