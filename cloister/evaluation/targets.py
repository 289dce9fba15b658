"""What a classifier predicts: whether an attribute of a row is in its positive class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Booleans
from cloister.errors import SpecError
from cloister.evaluation.marginals import declared_range
from cloister.schema.attributes import Scalar
from cloister.schema.columns import Column
from cloister.schema.domain import Domain, Table
from cloister.schema.spec import Above

_MOST_TARGETS = 16
"""Targets at most, if a spec declares none."""


@dataclass(frozen=True)
class PositiveLabels:
    """The positive class is a set of labels."""

    labels: frozenset[str]

    def holds(self, column: Column, table: Table) -> Booleans:
        """Where a row (n,) is positive; nowhere if it is missing."""
        assert column.labels is not None
        positive = np.zeros(column.size, dtype=bool)
        positive[: len(column.labels)] = [label in self.labels for label in column.labels]
        return positive[table.codes[column.name]]


@dataclass(frozen=True)
class PositiveAbove:
    """The positive class is all numbers above a threshold.

    The threshold is on the scale of the column's comparable numbers.
    """

    threshold: float

    def holds(self, column: Column, table: Table) -> Booleans:
        """Where a row (n,) is positive; nowhere if it is missing."""
        positive: Booleans = table.comparable(column.name) > self.threshold
        return positive


@dataclass(frozen=True)
class PredictionTarget:
    """An attribute and its positive class; missing values are negative."""

    attribute: str
    positive: PositiveLabels | PositiveAbove

    def of(self, table: Table) -> Booleans:
        """Where a row (n,) is positive."""
        return self.positive.holds(table.domain[self.attribute], table)


def targets_of(
    declared: Mapping[str, Sequence[Scalar] | Above], domain: Domain
) -> tuple[PredictionTarget, ...]:
    """The targets that a spec declares; those of :func:`default_targets` if it declares none.

    Raises:
        SpecError: a target names no attribute of the domain, or its positive class has the wrong
            form.
        ConstraintError: the threshold is of another type than the attribute.
    """
    if not declared:
        return default_targets(domain)
    return tuple(_target(name, positive, domain) for name, positive in declared.items())


def default_targets(domain: Domain) -> tuple[PredictionTarget, ...]:
    """The targets of a spec that declares none: every attribute, or 16 evenly spaced ones.

    The choice depends on the public domain alone. The positive class is the second half of a list
    of values (True, if boolean), or the upper half of a range. Attributes with a single value are
    left out.
    """
    columns = [column for column in domain if column.kind != "key" and column.values > 1]
    if len(columns) > _MOST_TARGETS:
        columns = [
            columns[position]
            for position in np.linspace(0, len(columns) - 1, _MOST_TARGETS).astype(int)
        ]
    return tuple(PredictionTarget(column.name, _upper_half(column)) for column in columns)


def _upper_half(column: Column) -> PositiveLabels | PositiveAbove:
    if column.labels is not None:
        return PositiveLabels(frozenset(column.labels[len(column.labels) // 2 :]))
    return PositiveAbove(sum(declared_range(column)) / 2)


def _target(name: str, positive: Sequence[Scalar] | Above, domain: Domain) -> PredictionTarget:
    if name not in domain:
        raise SpecError(
            f"evaluation.targets: no attribute '{name}'; declare it or correct the name"
        )
    column = domain[name]
    if column.kind == "key" or isinstance(positive, Above) != (column.labels is None):
        raise SpecError(
            f"evaluation.targets.{name}: give a list of values, "
            "or {above: NUMBER} for a numeric one"
        )
    if isinstance(positive, Above):
        return PredictionTarget(name, PositiveAbove(column.constant(positive.above)))
    return PredictionTarget(name, PositiveLabels(frozenset(map(str, positive))))
