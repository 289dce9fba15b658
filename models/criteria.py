"""Criteria that rows must meet: errors of marginals and regressions, from noisy counts.

Everything is a table of counts, so that no criterion needs a sensitivity of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.errors import PlanError
from cloister.privacy.queries.counts import PartitionCounts
from cloister.privacy.queries.query import TableRows
from cloister.schema.columns import Column, Grid
from cloister.schema.declarations import AcceptanceSpec, CriterionSpec
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition, declared_cells, equal_cells

_EQUAL_PARTS = 10
"""Parts of a number's range where no bins are declared: a criterion is about coarse errors, and
each cell has noise."""

_MOST_CELLS = 100_000
"""Cells of one criterion at most: of more, each has next to no rows and a noise of its own."""

_EVEN_VARIANCE = 1 / 12
"""Variance of a number that is even from 0 to 1."""


@dataclass(frozen=True)
class Criterion(ABC):
    """One criterion: a table over ``cells``, and the error of shares that is accepted."""

    name: str
    cells: tuple[Partition, ...]
    largest: float

    @property
    def size(self) -> int:
        """Cells of the table."""
        return math.prod(cells.size for cells in self.cells)

    @property
    def query(self) -> PartitionCounts:
        """The counts that it is measured against."""
        return PartitionCounts(self.cells)

    def counts(self, table: Table) -> Integers:
        """The counts (*shape) of drawn rows."""
        return TableRows(table).counts(self.cells).reshape(self.query.shape)

    @abstractmethod
    def error(self, noisy: Integers, drawn: Integers) -> float:
        """The error of drawn rows against noisy counts, both of the query's shape."""

    @abstractmethod
    def noise_alone(self, deviation: float, rows: int) -> float:
        """About the error of rows that are as the data, by noise of this mean absolute size."""


@dataclass(frozen=True)
class MarginalCriterion(Criterion):
    """Total variation distance of a marginal: half the absolute differences of shares."""

    def error(self, noisy: Integers, drawn: Integers) -> float:
        return float(np.abs(_shares(noisy) - _shares(drawn)).sum() / 2)

    def noise_alone(self, deviation: float, rows: int) -> float:
        return self.size * deviation / rows / 2


@dataclass(frozen=True)
class RegressionCriterion(Criterion):
    """The largest difference of a coefficient of the linear regression of the last attribute.

    Numbers are the middles of their cells, other values their positions, all scaled to 0 to 1; the
    intercept is a coefficient too. Rows that lack a value, or have a special one outside the range,
    are left out.
    """

    def error(self, noisy: Integers, drawn: Integers) -> float:
        return float(np.abs(self._coefficients(noisy) - self._coefficients(drawn)).max())

    def noise_alone(self, deviation: float, rows: int) -> float:
        """To first order, of rows that are even on the cells, with residuals as of an even target.

        A count that is off by d moves the coefficients by d inv(moments) x residual / rows.
        """
        predictors, _, used = self._design
        inverse = np.linalg.pinv(predictors.T @ predictors / len(used), hermitian=True)
        worst = float(np.sqrt(np.diag(inverse).max() * len(used) * _EVEN_VARIANCE))
        return deviation / rows * worst

    def _coefficients(self, counts: Integers) -> Floats:
        """Least squares over the cells, weighted by counts: noise below zero is not cut off.

        Moments are sums of counts, in which noise averages out; cut off at zero it would not.
        """
        predictors, target, used = self._design
        weights = counts.ravel()[used].astype(np.float64)
        moments = predictors.T @ (predictors * weights[:, None])
        inverse = np.linalg.pinv(moments, hermitian=True)
        coefficients: Floats = inverse @ (predictors.T @ (weights * target))
        return coefficients

    @cached_property
    def _design(self) -> tuple[Floats, Floats, Integers]:
        """Predictors (n, k) of the usable cells, an intercept first, their targets (n,), places."""
        grid = np.meshgrid(*(_positions(cells) for cells in self.cells), indexing="ij")
        values = np.stack([axis.ravel() for axis in grid], axis=1)
        used = np.flatnonzero(np.isfinite(values).all(axis=1))
        *predictors, target = values[used].T
        return np.stack([np.ones(len(used)), *predictors], axis=1), target, used


def _shares(counts: Integers) -> Floats:
    shares: Floats = counts / max(int(counts.sum()), 1)
    return shares


def _positions(cells: Partition) -> Floats:
    """From 0 to 1 the place of each cell in its range; NaN if it is outside, or missing."""
    column = cells.column
    middles = (column.comparable(cells.starts) + column.comparable(cells.stops - 1)) / 2
    last = column.steps if isinstance(column, Grid) else column.values
    first, most = column.comparable(np.array([0, last - 1]))
    positions: Floats = (middles - first) / max(most - first, np.finfo(float).tiny)
    return np.where(cells.starts < last, positions, np.nan)


def criteria_of(declared: AcceptanceSpec, domain: Domain) -> tuple[Criterion, ...]:
    """The criteria that a spec declares, of the columns of a table; public.

    Raises:
        PlanError: a column does not exist, or cannot be used so.
    """
    return tuple(_criterion(each, domain) for each in declared.criteria)


def _criterion(declared: CriterionSpec, domain: Domain) -> Criterion:
    names = declared.attributes
    for name in names:
        _require_modelled(name, domain)
    cells = tuple(_cells(domain[name]) for name in names)
    if declared.regression is None:
        made: Criterion = MarginalCriterion(
            f"marginal of {', '.join(names)}", cells, declared.largest
        )
    else:
        for name in names:
            _require_ordered(domain[name])
        on = ", ".join(declared.regression.on)
        name = f"regression of {declared.regression.target} on {on}"
        made = RegressionCriterion(name, cells, declared.largest)
    if made.size > _MOST_CELLS:
        raise PlanError(
            f"release.acceptance: the {made.name} has {made.size:,} cells, and {_MOST_CELLS:,} can "
            "be measured; name fewer attributes, or declare fewer bins"
        )
    return made


def _require_modelled(name: str, domain: Domain) -> None:
    if name not in domain.modelled:
        raise PlanError(
            f"release.acceptance: '{name}' is no attribute that is modelled; name one of the "
            "spec's attributes that is no key"
        )


def _require_ordered(column: Column) -> None:
    if column.kind == "nominal" and column.values > 2:
        raise PlanError(
            f"release.acceptance: '{column.name}' is categorical, and a regression needs numbers, "
            "an order, or two values; leave it out, or declare it ordinal"
        )


def _cells(column: Column) -> Partition:
    binned = not isinstance(column, Grid) or getattr(column.attribute, "bins", None)
    return declared_cells(column) if binned else equal_cells(column, _EQUAL_PARTS)
