"""The columns of differences beside a table's own, and which take the place of a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloister.models.differences.orders import prepared
from cloister.models.differences.pairs import Difference
from cloister.models.discretization.bins import Bins
from cloister.models.task import Task
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain, Table

_LEAST_SHARE = 1e-12
"""Share of a cell at least, so that its logarithm is finite."""


@dataclass(frozen=True, eq=False)
class WithDifferences:
    """Rows with a column for each difference.

    Implements :class:`cloister.privacy.queries.query.Derivation`: a difference is one of two
    values of its row.
    """

    differences: tuple[Difference, ...]

    def of(self, table: Table) -> Table:
        """The table with the columns of differences after its own."""
        found = {
            own.name: own.of(table.codes[own.base.name], table.codes[own.moved.name])
            for own in self.differences
        }
        domain = domain_with(table.domain, self.differences)
        return Table(domain, {**table.stored, **found}).narrow()


def domain_with(domain: Domain, differences: Sequence[Difference]) -> Domain:
    """The columns of a domain, then those of differences."""
    return Domain((*domain.columns, *(own.column for own in differences)))


def task_with(task: Task, differences: Sequence[Difference]) -> Task:
    """The task on rows with the columns of differences."""
    return replace(task, domain=domain_with(task.domain, differences)) if differences else task


def task_without(task: Task, left_out: Sequence[str]) -> Task:
    """The task on rows without some columns, and without the constraints on these."""
    domain = Domain(tuple(column for column in task.domain if column.name not in left_out))
    rules = tuple(c for c in task.constraints if not set(left_out).intersection(c.attributes))
    return replace(task, domain=domain, constraints=rules)


def choose_differences(
    differences: Sequence[Difference], task: Task, bins: Mapping[str, Bins]
) -> tuple[Difference, ...]:
    """The differences that vary less than the number that they replace, by released histograms.

    A model of few joint tables is the nearer to the rows the less its attributes vary. A number
    that other rules bind gives way after those numbers that follow it.
    """
    rules = prepared(task).constraints
    chosen: list[Difference] = []
    narrow = [
        own
        for own in differences
        if differential_entropy(bins[own.name]) < differential_entropy(bins[own.moved.name])
    ]
    while True:
        kept = {own.rule.name for own in chosen}
        free = [
            own
            for own in narrow
            if own not in chosen
            and all(
                rule is own.rule or rule.name in kept or own.allows(rule)
                for rule in rules
                if own.moved.name in rule.attributes
            )
        ]
        if not free:
            return tuple(chosen)
        chosen.extend(free)


def differential_entropy(bins: Bins) -> float:
    """The differential entropy, in nats, of the values in ticks of a number.

    Of those that are neither missing nor special.
    """
    cells, column = bins.cells, bins.cells.column
    assert isinstance(column, Grid)
    there = (cells.starts < column.steps) & ~np.isin(cells.starts, column.special_codes)
    shares = bins.shares[there] + _LEAST_SHARE
    shares = shares / shares.sum()
    return float(-(shares * np.log(shares / (cells.widths[there] * column.stride))).sum())
