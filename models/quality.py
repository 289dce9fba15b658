"""What a release says of its own quality: forecasts before it is paid for, checks of drawn rows.

Public inputs and released numbers alone; checks are post-processing.

*Which dependencies a plan will learn.* A dependency always holds in the rows that are drawn.
Whether the right side of a left side is that of the data, the noise decides: it is found where the
left side has more rows than a few standard deviations of the noise of their joint table.

*How wrong the pairs of attributes will be.* The error is the mean half-L1 distance of two-way
marginals, numbers in 16 bins, as ``cloister.evaluation.marginals`` measures it. It is forecast by a
curve in two public figures of each pair of attributes of k and l values, among n rows and m
attributes (a number counts for as many values as the method's curve says, since methods smooth and
few have even shares):

    noise      sqrt(k l m) / (n sqrt(rho)), cells times the noise of a count, as a share of rows
    sampling   sqrt(k l / n), what even exact shares lose in n rows

    error      mean over pairs of 1 - exp(-(a noise^p + b sampling^q)), each at most 1

The constants of each method were fitted by least squares of the logarithms. For `mixture` to 29
releases of 16 tables of at most 38,000 rows and 5 to 120 attributes, at epsilon 0.2 to 6: three in
four were within a factor of 1.5, all within 2.3; those of 2,000 rows and more between 0.88 and 1.33
of what was measured, but for loans (1.25 to 1.8), whose numbers lie in few of their 16 bins. The
share of pairs that have no round explained nothing beside these. Of 21 later releases of eight
tables (tests/benchmarks/test_forecasts.py) two in three were within 1.5, all from 0.45 to 1.7; 150
items of 2,500 rows had half the error told, and a table with 4,000 listed values of 84 rows each,
which noise drowns, six times as much. For the others to 42 to 120
releases of random tables of 94 to 1,637 rows, tables of hospitals and loans, parts of Adult and
BR2000, at epsilon 0.1 to 10: four in five were within a factor of 1.5, all within 3.3
(tests/benchmarks/test_forecasts.py). How skewed the attributes are and what they have to do with
each other is not public, and is what remains.

*Whether drawn rows keep the values that the released histograms have.* Noise can be too strong for
what binds attributes together, as a deep hierarchy of dependencies: rows then satisfy every
constraint and hold next to nothing. Released numbers alone show it.

*Whether drawn rows refer as often as the released histograms say.* A reference that may be missing
is dropped where it has no place: no row is above itself, none has more rows than the bound, no
constraint across it is violated. Released numbers show how many were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from cloister.arrays import Floats
from cloister.constraints import DenialConstraint, functional_dependency
from cloister.models.core.bins import Histogram
from cloister.models.task import AnyPlan, Budget, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.privacy.events import Relation
from cloister.schema.columns import Codes, Column
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells
from cloister.schema.relations import MISSING, Database, ForeignKey

SURE = 5.0
"""Standard deviations of the noise in the rows of a left side whose right side is learnt.

Nineteen of twenty and more were right at 5 to 8, all above 8 (docs/benchmarks/shapes.md).
"""

EPSILONS = tuple(
    Fraction(digits, 10) * Fraction(10) ** power
    for power in range(-2, 3)
    for digits in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
)
"""Epsilons from 0.01 to 800 among which one is looked for."""

_COLLAPSED = 0.5
"""Share of the values that a histogram lets expect, below which an attribute has collapsed."""

_MORE_GAPS = 0.15
"""Share of the rows by which more lack a value than a histogram says, from which that is told: well
above what attributes of persons differ between persons and their rows."""

_FEWEST = 4.0
"""Values that a histogram lets expect at least, to speak of a collapse."""

_LOST = 0.02
"""Share of the references that released counts let expect; below it none is missed."""

_DEVIATIONS = 3.0
"""Standard deviations of drawing independent rows: fewer than that are chance."""


@dataclass(frozen=True)
class DependencyForecast:
    """What is to be expected of one functional dependency.

    ``left_sides`` is the declared number of left sides, ``rows`` how many rows each has on average
    if all occur; ``deviation`` that of the noise, in rows, None if no joint table is counted.
    """

    name: str
    left: tuple[str, ...]
    right: str
    left_sides: int
    rows: float
    deviation: float | None

    @property
    def least_rows(self) -> float | None:
        """Rows of a left side from which on its right side is learnt; None if none is."""
        return None if self.deviation is None else SURE * self.deviation

    @property
    def learnt(self) -> bool:
        """Whether a left side of average size is learnt."""
        return self.least_rows is not None and self.rows >= self.least_rows

    def epsilon(self, budget: Budget) -> Fraction | None:
        """From about which epsilon on it is learnt, given its noise under a budget; None if none.

        The variance of Gaussian noise falls with rho, that of Laplace noise with epsilon squared.
        """
        if self.least_rows is None:
            return None
        wanted = (self.least_rows / self.rows) ** 2 * _strength(budget.epsilon, budget.delta)
        enough = (e for e in EPSILONS if _strength(e, budget.delta) >= wanted)
        return next(enough, None)


def _strength(epsilon: Fraction, delta: Fraction) -> float:
    return float(zcdp_rho(epsilon, delta)) if delta else float(epsilon) ** 2


def forecast_dependencies(task: Task, plan: AnyPlan) -> tuple[DependencyForecast, ...]:
    """The forecast of every hard functional dependency of a task."""
    known = set(plan.sequence)
    found = ((rule, functional_dependency(rule)) for rule in task.hard)
    return tuple(
        _forecast(task, plan, rule, *own)
        for rule, own in found
        if own is not None and known.issuperset((*own[0], own[1]))
    )


def _forecast(
    task: Task, plan: AnyPlan, rule: DenialConstraint, left: tuple[str, ...], right: str
) -> DependencyForecast:
    sides = math.prod(task.domain[name].values for name in left)
    rows = task.data_rows / sides
    return DependencyForecast(rule.name, left, right, sides, rows, plan.mapped.get((*left, right)))


@dataclass(frozen=True)
class ErrorCurve:
    """The constants of one method: of the noise (a, p) and of sampling (b, q).

    A number or an ordered attribute counts for ``parts`` values at most.
    """

    noise: float
    noise_power: float
    sampling: float
    sampling_power: float
    parts: int


CURVES: Mapping[str, ErrorCurve] = MappingProxyType(
    {
        "mixture": ErrorCurve(0.88, 0.88, 0.26, 0.97, 5),
        "kamino": ErrorCurve(0.76, 0.72, 0.13, 2.00, 16),
        "dpview": ErrorCurve(0.68, 0.99, 0.13, 0.58, 16),
        "independent": ErrorCurve(0.59, 1.67, 0.28, 0.58, 16),
    }
)
"""The methods whose releases were measured, under approximate differential privacy."""


def forecast_error(task: Task, method: str, budget: Budget) -> float | None:
    """The expected two-way error of a release; None where no such releases were measured.

    Those are of rows, not of persons, at a delta above 0.
    """
    curve = CURVES.get(method)
    if curve is None or task.persons is not None or not budget.delta:
        return None
    sizes = [_values(task.domain[name], curve.parts) for name in task.domain.modelled]
    if len(sizes) < 2:
        return None
    cells = np.sqrt(_products(sizes))
    rho = float(zcdp_rho(budget.epsilon, budget.delta))
    signal = task.data_rows * math.sqrt(rho) / _sensitivity(task)
    noise = np.minimum(cells * math.sqrt(len(sizes)) / signal, 1.0)
    sampling = np.minimum(cells / math.sqrt(task.data_rows), 1.0)
    lost = curve.noise * noise**curve.noise_power
    lost += curve.sampling * sampling**curve.sampling_power
    return float(-np.expm1(-lost).mean())


def _sensitivity(task: Task) -> float:
    exchanged = task.neighbours.relation is Relation.REPLACE_ONE
    return task.neighbours.max_rows * (math.sqrt(2) if exchanged else 1.0)


def _values(column: Column, parts: int) -> int:
    size = declared_cells(column).size
    return size if column.kind == "nominal" else min(size, parts)


def _products(sizes: list[int]) -> Floats:
    """The number of cells of each pair of attributes."""
    table = np.outer(sizes, sizes).astype(np.float64)
    return table[np.triu_indices(len(sizes), 1)]


@dataclass(frozen=True)
class Collapse:
    """An attribute with fewer different values in the rows than its released histogram has.

    ``kept`` and ``expected`` are numbers of cells: of values, or of ranges of numbers.
    """

    attribute: str
    kept: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' has {self.kept} different values (or ranges) where its own "
            f"noisy histogram has about {self.expected}: the noise is too strong for the "
            "constraints that bind it to others; a larger epsilon keeps more"
        )


@dataclass(frozen=True)
class Gaps:
    """An attribute that is missing in many more rows than its released histogram says.

    A missing value breaks no rule, so rows end there that rules leave no other room.
    ``found`` and ``expected`` are shares of rows.
    """

    attribute: str
    found: float
    expected: float

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' is missing in {self.found:.0%} of the rows where its own "
            f"noisy histogram has {self.expected:.0%}: the noise is too strong for the constraints "
            "that bind it to others; a larger epsilon keeps more"
        )


def find_collapses(histograms: Mapping[str, Histogram], rows: Table) -> tuple[Collapse | Gaps, ...]:
    """The attributes of rows that keep far fewer values than their released histograms say.

    Both the number of different values and the effective number must say so: a histogram's noise
    alone makes many values, of next to no rows. Also those that are missing far more often.
    """
    found = (
        (_collapse(bins, rows.codes[name]), _gaps(bins, rows.codes[name]))
        for name, bins in histograms.items()
    )
    return tuple(own for both in found for own in both if own is not None)


def _gaps(bins: Histogram, codes: Codes) -> Gaps | None:
    if bins.levels.null is None or not len(codes):
        return None
    found = float((bins.index(codes) == bins.levels.null).mean())
    expected = float(bins.mass[bins.levels.null] / bins.mass.sum())
    return Gaps(bins.name, found, expected) if found > expected + _MORE_GAPS else None


def _collapse(bins: Histogram, codes: Codes) -> Collapse | None:
    counts = np.bincount(bins.cell_index(codes), minlength=bins.cells)
    kept, expected = int((counts > 0).sum()), _expected_cells(bins.shares, len(codes))
    fewer = expected >= _FEWEST and kept < _COLLAPSED * expected
    effective = _effective(counts / len(codes)) < _COLLAPSED * _effective(bins.shares)
    return Collapse(bins.name, kept, round(expected)) if fewer and effective else None


def _expected_cells(shares: Floats, rows: int) -> float:
    """How many cells of a histogram so many independent rows have, in the mean."""
    return float(-np.expm1(rows * np.log1p(-np.minimum(shares, 1 - 1e-9))).sum())


def _effective(shares: Floats) -> float:
    """The effective number of values: the exponential of the entropy of their shares."""
    there = shares[shares > 0]
    return float(np.exp(-(there * np.log(there)).sum()))


@dataclass(frozen=True)
class LostReferences:
    """A reference that fewer synthetic rows have than released counts say.

    ``kept`` and ``expected`` are numbers of synthetic ``rows``.
    """

    key: ForeignKey
    rows: int
    kept: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.key.column}' of table '{self.key.table}' names a row in {self.kept:,} "
            f"of {self.rows:,} rows, and in about {self.expected:,} by its noisy count: the others "
            "were left without, as the constraints across it, the most rows that may refer to the "
            "same, or that no row is above itself, demand"
        )


def find_lost_references(
    histograms: Mapping[str, Mapping[str, Histogram]], database: Database
) -> tuple[LostReferences, ...]:
    """The references that clearly fewer rows have than the histograms of their tables say.

    ``histograms`` are by table and column; that of a reference that may be missing counts whether
    rows have one.
    """
    optional = (key for key in database.schema.keys if key.optional)
    return tuple(
        own
        for key in optional
        if (bins := histograms.get(key.table, {}).get(key.column))
        and (own := _lost(key, bins, database))
    )


def _lost(key: ForeignKey, bins: Histogram, database: Database) -> LostReferences | None:
    named = database.references(key) != MISSING
    share = float(bins.shares[bins.cell_index(np.array([1]))[0]])
    expected = share * len(named)
    lost = expected - named.sum()
    chance = _DEVIATIONS * float(np.sqrt(expected * (1 - share)))
    if lost <= max(_LOST * expected, chance):
        return None
    return LostReferences(key, len(named), int(named.sum()), round(expected))
