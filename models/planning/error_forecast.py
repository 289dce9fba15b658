"""How wrong the pairs of attributes of a release will be, before it is paid for; public.

The error is the mean half-L1 distance of two-way marginals, numbers in 16 bins, as
``cloister.evaluation.marginals`` measures it. It is forecast by a curve in two public figures of
each pair of attributes of k and l values, among n rows and m attributes (a number counts for as
many values as the method's curve says, since methods smooth and few have even shares):

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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from cloister.arrays import Floats
from cloister.models.task import Budget, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.privacy.events import Relation
from cloister.schema.columns import Column
from cloister.schema.domain import declared_cells


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
