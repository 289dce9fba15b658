"""What a release says of its own quality: of dependencies before it is paid for, of drawn rows.

Public inputs and released numbers alone; checks are post-processing.

*Which dependencies a plan will learn.* A dependency always holds in the rows that are drawn.
Whether the right side of a left side is that of the data, the noise of their joint table decides.
All r rows of a left side are in one cell, and another of its l cells has a larger noisy count with
probability Phi(-r / (s sqrt(2))), for noise of standard deviation s; so one of l - 1 has with no
more than l - 1 times that, which is to be one in twenty at most.

*What noise leaves of long lists.* A value with fewer rows than the noise of its count is not told
from one without rows. Where an average value is such, most rows have a value by noise alone, unless
a tree says which values belong together.

*Whether drawn rows keep the values that the released histograms have.* Noise can be too strong for
what binds attributes together, as a deep hierarchy of dependencies: rows then satisfy every
constraint and hold next to nothing. Released numbers alone show it.

*Whether drawn rows refer as often as the released histograms say.* A reference that may be missing
is dropped where it has no place: no row is above itself, none has more rows than the bound, no
constraint across it is violated. Released numbers show how many were.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from scipy.special import ndtri

from cloister.arrays import Floats, Integers
from cloister.constraints import DenialConstraint, functional_dependency
from cloister.figures import figure
from cloister.models.core.bins import Histogram
from cloister.models.task import Budget, Counted, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.schema.domain import Table
from cloister.schema.partition import tree_of
from cloister.schema.relations import MISSING, Database, ForeignKey

_WRONG = 0.05
"""Probability at most that a left side gets a wrong right side, to be called learnt."""

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

    ``left_sides`` and ``right_sides`` are declared numbers, ``rows`` how many rows a left side has
    on average if all occur; ``deviation`` that of the noise, in rows, None if no joint table is
    counted.
    """

    name: str
    left: tuple[str, ...]
    right: str
    left_sides: int
    right_sides: int
    rows: float
    deviation: float | None

    @property
    def least_rows(self) -> float | None:
        """Rows of a left side from which on its right side is learnt; None if none is."""
        if self.deviation is None:
            return None
        quantile = float(ndtri(1 - _WRONG / max(self.right_sides - 1, 1)))
        return math.sqrt(2) * quantile * self.deviation

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


def forecast_dependencies(
    task: Task, sequence: Sequence[str], mapped: Mapping[tuple[str, ...], float]
) -> tuple[DependencyForecast, ...]:
    """The forecast of every hard functional dependency between attributes of a ``sequence``.

    ``mapped`` is the deviation of the noise of the joint table of left and right sides, in rows.
    """
    known = set(sequence)
    rules = ((rule, functional_dependency(rule)) for rule in task.hard)
    return tuple(
        _forecast(task, mapped, rule, *dependency)
        for rule, dependency in rules
        if dependency is not None and known.issuperset((*dependency[0], dependency[1]))
    )


def _forecast(
    task: Task,
    mapped: Mapping[tuple[str, ...], float],
    rule: DenialConstraint,
    left: tuple[str, ...],
    right: str,
) -> DependencyForecast:
    sides = math.prod(task.domain[name].values for name in left)
    deviation = mapped.get((*left, right))
    values = task.domain[right].values
    return DependencyForecast(
        *(rule.name, left, right, sides, values, task.data_rows / sides, deviation)
    )


@dataclass(frozen=True)
class Collapse:
    """An attribute with fewer different values in the rows than its released histogram has.

    ``values`` and ``expected`` are numbers of cells: of values, or of ranges of numbers.
    """

    attribute: str
    values: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' has {self.values} different values (or ranges), and its "
            f"own noisy histogram about {self.expected}: the noise is too strong for the "
            "constraints that tie it to other columns; a larger epsilon keeps more"
        )


@dataclass(frozen=True)
class Gaps:
    """An attribute that is missing in many more rows than its released histogram says.

    A missing value breaks no rule, so rows for which rules leave no other value end there.
    ``missing`` and ``expected`` are shares of rows.
    """

    attribute: str
    missing: float
    expected: float

    def __str__(self) -> str:
        return (
            f"column '{self.attribute}' is missing in {self.missing:.0%} of the rows, and in "
            f"{self.expected:.0%} by its own noisy histogram: the noise is too strong for the "
            "constraints that tie it to other columns; a larger epsilon leaves fewer gaps"
        )


_FLAT = (
    "'{name}' lists {values:,} values, and noise of {noise} rows a count lets at most {told} of "
    "them be told from values without rows: many rows will have a value that no real row has; "
    "declare hierarchy, which values belong together, list fewer values, or allow more epsilon"
)
_TREE = (
    "'{name}' lists {values:,} values: those of fewer than about {least} rows are drawn as the "
    "nearest more common value, so common values have too many rows, and as a guess below a node "
    "of which no value is more common; counts of the {nodes} nodes at the top are right to about "
    "{noise} rows"
)


def forecast_lists(task: Task, counted: Sequence[Counted]) -> Iterator[str]:
    """Sentences on the lists of values without order that noise of ``counted`` tables drowns."""
    for column in (task.domain[name] for name in task.domain.modelled):
        noise = {
            each.cells[column.name]: each.deviation
            for each in counted
            if [*each.cells] == [column.name]
        }
        deviation = noise.get(column.size, 0.0)
        if column.kind != "nominal" or column.size * deviation <= task.data_rows:
            continue
        levels, least = tree_of(column), _DEVIATIONS * deviation
        sentence = _TREE if levels else _FLAT
        yield sentence.format(
            name=column.name,
            values=column.values,
            told=f"{int(task.data_rows / least):,}",
            least=figure(least, 2),
            nodes=levels[0].size if levels else 0,
            noise=figure(noise.get(levels[0].size, deviation) if levels else deviation, 2),
        )


def find_collapses(histograms: Mapping[str, Histogram], rows: Table) -> tuple[Collapse | Gaps, ...]:
    """The attributes with far fewer values, or far more gaps, than their released histograms.

    Both the number of distinct values and the effective number must be lower: a histogram's noise
    alone makes many values with next to no rows.
    """
    counted = ((bins, _cell_counts(bins, rows)) for bins in histograms.values())
    pairs = ((_collapse(bins, counts), _gaps(bins, counts)) for bins, counts in counted)
    return tuple(message for pair in pairs for message in pair if message is not None)


def _cell_counts(bins: Histogram, rows: Table) -> Integers:
    """Number of rows in each cell (cells,)."""
    return rows.select([bins.name]).total(partial(_cells_of_block, bins))


def _cells_of_block(bins: Histogram, block: Table) -> Integers:
    return np.bincount(bins.cell_index(block.codes[bins.name]), minlength=bins.cells)


def _gaps(bins: Histogram, counts: Integers) -> Gaps | None:
    if bins.levels.null is None or not counts.any():
        return None
    missing = float(counts[bins.parts == bins.levels.null].sum() / counts.sum())
    expected = float(bins.mass[bins.levels.null] / bins.mass.sum())
    return Gaps(bins.name, missing, expected) if missing > expected + _MORE_GAPS else None


def _collapse(bins: Histogram, counts: Integers) -> Collapse | None:
    rows = int(counts.sum())
    values, expected = int((counts > 0).sum()), _expected_cells(bins.shares, rows)
    fewer = expected >= _FEWEST and values < _COLLAPSED * expected
    effective = _effective(counts / max(rows, 1)) < _COLLAPSED * _effective(bins.shares)
    return Collapse(bins.name, values, round(expected)) if fewer and effective else None


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

    ``named`` and ``expected`` are numbers of synthetic ``rows``.
    """

    key: ForeignKey
    rows: int
    named: int
    expected: int

    def __str__(self) -> str:
        return (
            f"column '{self.key.column}' of table '{self.key.table}' names a row in {self.named:,} "
            f"of {self.rows:,} rows, and in about {self.expected:,} by its noisy count: the rest "
            "have none, because the constraints across it, its max_rows, or the rule that no row "
            "is its own ancestor left no parent for them"
        )


def find_lost_references(
    histograms: Mapping[str, Mapping[str, Histogram]], database: Database
) -> tuple[LostReferences, ...]:
    """The references that clearly fewer rows have than their tables' histograms say.

    ``histograms`` are by table and column; that of a reference that may be missing counts whether
    rows have one.
    """
    optional = (key for key in database.schema.keys if key.optional)
    return tuple(
        lost
        for key in optional
        if (bins := histograms.get(key.table, {}).get(key.column))
        and (lost := _lost(key, bins, database))
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
