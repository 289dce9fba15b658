"""The plan of the copula: queries, their noise, and a forecast; public.

The default divides its budget between histograms, conjunctions of all pairs and joint tables of
hard constraints, and prices all of it together. The paper gives each histogram and each pair of
attributes the same epsilon, by advanced composition.

Source: Asghar et al., sections 3.2 and 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from cloister.errors import PlanError
from cloister.models import planning
from cloister.models.core import costs
from cloister.models.core.bins import NUMERIC_BINS
from cloister.models.core.budget_split import (
    BudgetSplit,
    CountNoise,
    EpsilonSplit,
    Kind,
    counts_stage,
    rounded_up,
)
from cloister.models.core.histograms import counted_by_rounding
from cloister.models.task import Budget, Counted, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import epsilon_of_each
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.queries.counts import DummyCoding, conjunction_sensitivity
from cloister.schema.partition import declared_cells

_LOOKUP = 4e-9
"""Seconds per row and pair of attributes, to count it."""

_PRODUCT = 2.6e-11
"""Seconds per row and product of two columns."""

_PAIR = 2e-5
"""Seconds per pair of columns, to solve its correlation, with refinements."""

_CUBE = 4e-9
"""Seconds of all eigendecompositions of a fit, per cube of the columns."""

_DRAWN = 2.5e-8
"""Seconds per binary column of a row, to draw and decode it."""

_HELD = 400_000_000
"""Bytes of the rows counted or drawn at a time, in all copies."""

_ROW = 24
"""Bytes per row: one column is counted, or assembled, at a time."""

_SQUARE = 120
"""Bytes per pair of columns: counts, correlations, eigenvectors, and their copies."""

_START = 4.0
"""Seconds of a fit and a draw that do not depend on the table's size."""

_BINS = (NUMERIC_BINS, 12, 8, 6, 4)
"""Most bins of a numeric attribute, tried until there are few enough columns."""

_WANTED_COLUMNS = 2_000
"""Binary columns at which bins of numbers are few enough."""

MOST_COLUMNS = 6_000
"""Most binary columns of a plan: memory and time grow with their square."""

_JOINT_TABLES = 0.06
"""Part of the budget for joint tables of hard constraints, if there are any."""

_HISTOGRAM_ADVANTAGE = 2.0
"""Variance of a conjunction's noise over that of a histogram's.

Histograms are few, and all conjunctions are fitted to them.
"""

_DECIMALS = 9
"""Decimals to which shares and noise multipliers are rounded."""

HISTOGRAMS, CONJUNCTIONS, JOINT = "histograms", "conjunctions", "joint tables"


def forecast_copula(task: Task, coding: DummyCoding, *, pairs: bool) -> Forecast:
    """Seconds of processor time and bytes of memory of counting, fitting and drawing."""
    width, attributes, rows = coding.width, len(coding.sizes), task.data_rows
    products = _PRODUCT * width**2
    counted = rows * min(_LOOKUP * attributes**2 / 2, products) + costs.NOISE * width**2 / 2
    fitted = _PAIR * width**2 / 2 + _CUBE * width**3
    drawn = task.output_rows * (_DRAWN * width + products)
    histograms = costs.histogram_counts(task)
    seconds = _START + costs.NOISE * histograms + drawn + (counted + fitted if pairs else 0.0)
    memory = (
        _HELD + _ROW * max(rows, task.output_rows) + _SQUARE * width**2 + costs.COUNT * histograms
    )
    return Forecast(round(seconds, 1), int(memory))


@dataclass(frozen=True)
class CopulaParameters(Parameters):
    """Everything that a fit needs besides the task.

    ``noise`` holds the noise multiplier of each kind of count, or its epsilon if the plan is
    ``pure``. ``groups`` are the bins of a numeric attribute at most, ``coded`` how many attributes,
    from the front of the sequence, the copula has, ``joint_tables`` the attributes of each joint
    table of a hard constraint.
    """

    noise: Mapping[str, Fraction]
    pure: bool
    groups: int
    coded: int
    joint_tables: tuple[tuple[str, ...], ...] = ()

    def mechanism(self, kind: str) -> CountNoise:
        """The mechanism of one kind of count."""
        level = self.noise[kind]
        return DiscreteLaplace(level) if self.pure else DiscreteGaussian(level)


def public_coding(task: Task, names: Sequence[str], groups: int) -> DummyCoding:
    """The binary columns of attributes, from public sizes: the most there can be."""
    sizes = planning.public_sizes(task.domain, groups)
    cells = [declared_cells(task.domain[name]).size for name in names]
    return DummyCoding(
        tuple(sizes[name] for name in names), tuple(declared <= 2 for declared in cells)
    )


@dataclass(frozen=True)
class _Outline:
    """The queries of a plan before their noise is known; with ``pairs`` or without."""

    task: Task
    sequence: tuple[str, ...]
    groups: int
    pairs: bool
    pure: bool

    @cached_property
    def coded(self) -> tuple[str, ...]:
        sizes = planning.public_sizes(self.task.domain, self.groups)
        return tuple(name for name in self.sequence if sizes[name] <= planning.NETWORKED_LEVELS)

    @cached_property
    def coding(self) -> DummyCoding:
        return public_coding(self.task, self.coded, self.groups)

    @cached_property
    def rounded(self) -> tuple[str, ...]:
        return counted_by_rounding(self.task.domain, self.sequence)

    @cached_property
    def joint(self) -> tuple[tuple[str, ...], ...]:
        return planning.wanted_tables(
            self.task, planning.public_sizes(self.task.domain, self.groups)
        )

    @cached_property
    def queries(self) -> dict[str, tuple[Sensitivity, int]]:
        """The sensitivity and number of each kind of count."""
        partition = self.task.neighbours.partition
        queries = {HISTOGRAMS: (partition, len(self.sequence) + len(self.rounded))}
        if self.pairs and sum(map(bool, self.coding.widths)) > 1:
            whole = conjunction_sensitivity(self.coding, self.task.neighbours)
            queries[CONJUNCTIONS] = (whole, 1)
        if self.joint:
            queries[JOINT] = (partition, len(self.joint))
        return queries

    @cached_property
    def shares(self) -> dict[str, Fraction]:
        """The share of the budget of each kind: of epsilon if pure, of rho if not."""
        parts = {
            kind: (sensitivity.l1 if self.pure else sensitivity.l2_squared) * times
            for kind, (sensitivity, times) in self.queries.items()
        }
        advantage = math.sqrt(_HISTOGRAM_ADVANTAGE) if self.pure else _HISTOGRAM_ADVANTAGE
        weights = {kind: float(part) for kind, part in parts.items()}
        weights[HISTOGRAMS] *= advantage
        rest = sum(weight for kind, weight in weights.items() if kind != JOINT)
        if JOINT in weights:
            weights[JOINT] = rest * _JOINT_TABLES / (1 - _JOINT_TABLES)
        whole = sum(weights.values())
        return {kind: rounded_up(weight / whole, _DECIMALS) for kind, weight in weights.items()}

    @cached_property
    def split(self) -> BudgetSplit:
        """How all kinds share the budget."""
        words = {
            HISTOGRAMS: "one-way histograms of all attributes",
            CONJUNCTIONS: f"conjunctions of {self.coding.width:,} binary columns, all pairs",
            JOINT: "joint tables of hard constraints",
        }
        make = EpsilonSplit if self.pure else BudgetSplit
        mechanism = DiscreteLaplace if self.pure else DiscreteGaussian

        def kind(name: str, sensitivity: Sensitivity, times: int) -> Kind:
            def stage(noise: Fraction) -> Stage:
                return counts_stage(name, [(mechanism(noise), times)], sensitivity, words[name])

            return Kind(name, self.shares[name], times, stage)

        return make([kind(name, *query) for name, query in self.queries.items()], _DECIMALS)

    def parameters(self, noise: Mapping[str, Fraction]) -> CopulaParameters:
        """The parameters of a fit with this noise."""
        return CopulaParameters(noise, self.pure, self.groups, len(self.coded), self.joint)

    def counted(self, made: CopulaParameters) -> Iterator[Counted]:
        """All counted tables, with their noise."""
        sizes = planning.public_sizes(self.task.domain, self.groups)
        tables = {
            HISTOGRAMS: [{n: declared_cells(self.task.domain[n]).size} for n in self.sequence],
            CONJUNCTIONS: [{name: sizes[name] for name in self.coded}],
            JOINT: [{name: sizes[name] for name in names} for names in self.joint],
        }
        for kind, (sensitivity, _) in self.queries.items():
            deviation = made.mechanism(kind).deviation(sensitivity)
            pairs = math.comb(len(self.coded), 2) if kind == CONJUNCTIONS else None
            yield from (Counted(cells, deviation, pairs) for cells in tables[kind])


def plan_copula(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[CopulaParameters]:
    """The plan of the default: Gaussian noise priced together; Laplace where delta is 0.

    Raises:
        PlanError: there are too many columns, or the noise would drown the rows.
    """
    return _planned(method, task, sequence, budget, pairs=True)


def plan_alone(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[CopulaParameters]:
    """The plan of a copula whose correlations are given: histograms alone.

    Raises:
        PlanError: as :func:`plan_copula`.
    """
    return _planned(method, task, sequence, budget, pairs=False)


def _planned(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget, *, pairs: bool
) -> Plan[CopulaParameters]:
    if budget.epsilon <= 0:
        raise PlanError("no noise keeps an epsilon of 0; allow a larger epsilon")
    outline = _Outline(task, sequence, _groups_for(task, sequence), pairs, not budget.delta)
    require_few_columns(outline.coding)
    split, partition = outline.split, task.neighbours.partition
    estimate = outline.parameters(split.estimate(budget)).mechanism(HISTOGRAMS)
    planning.require_signal(estimate, task, budget)
    noise = split.calibrate(task, budget)
    made = outline.parameters(noise)
    mapped = {names: made.mechanism(JOINT).deviation(partition) for names in made.joint_tables}
    expected = forecast_copula(task, outline.coding, pairs=CONJUNCTIONS in outline.queries)
    counted = tuple(outline.counted(made))
    return Plan(method, sequence, split.stages(noise), made, expected, mapped, counted=counted)


def _groups_for(task: Task, sequence: Sequence[str]) -> int:
    """Most bins of a numeric attribute with which columns are few enough, if possible."""
    for groups in _BINS:
        sizes = planning.public_sizes(task.domain, groups)
        if (
            sum(sizes[n] for n in sequence if sizes[n] <= planning.NETWORKED_LEVELS)
            <= _WANTED_COLUMNS
        ):
            return groups
    return _BINS[-1]


def require_few_columns(coding: DummyCoding) -> None:
    """Check that there are not too many binary columns.

    Raises:
        PlanError: there are.
    """
    if coding.width > MOST_COLUMNS:
        raise PlanError(
            f"the copula would have {coding.width:,} binary columns, of which at most "
            f"{MOST_COLUMNS:,} are planned; declare fewer values or bins, or ignore columns"
        )


def plan_copula_paper(
    method: str, task: Task, sequence: tuple[str, ...], budget: Budget
) -> Plan[CopulaParameters]:
    """The paper's plan: Laplace noise of one epsilon for all attributes and pairs.

    Source: section 3.4; all declared cells have columns of their own (section 3.1.2).

    Raises:
        PlanError: there is no delta, too many columns, or the noise would drown the rows.
    """
    if budget.delta <= 0 or budget.epsilon <= 0:
        raise PlanError(
            f"method {method} composes by theorem 3 of the paper, which needs an epsilon and a "
            "delta above 0; allow a delta such as 1e-9, or use copula"
        )
    coding = paper_coding(task, sequence)
    require_few_columns(coding)
    pairs = math.comb(len(sequence), 2)
    each = epsilon_of_each(budget.epsilon, budget.delta, len(sequence) + pairs)
    mechanism, partition = DiscreteLaplace(each), task.neighbours.partition
    planning.require_signal(mechanism, task, budget, needed=planning.epsilon_in_proportion)
    explained = {
        HISTOGRAMS: ("one-way counts (algorithm 1)", len(sequence)),
        CONJUNCTIONS: ("two-way counts of all pairs of attributes (algorithm 2)", pairs),
    }
    stages = [
        counts_stage(kind, [(mechanism, times)], partition, f"{words}; epsilon {float(each)} each")
        for kind, (words, times) in explained.items()
        if times
    ]
    made = CopulaParameters(
        {stage.name: each for stage in stages}, pure=True, groups=0, coded=len(sequence)
    )
    expected = forecast_copula(task, coding, pairs=bool(pairs))
    cells = {name: declared_cells(task.domain[name]).size for name in sequence}
    deviation = mechanism.deviation(partition)
    mapped: dict[tuple[str, ...], float] = dict.fromkeys(paper_tables(task, sequence), deviation)
    counted = (
        *(Counted({name: size}, deviation) for name, size in cells.items()),
        Counted(cells, deviation, pairs),
    )
    return Plan(method, sequence, tuple(stages), made, expected, mapped, counted=counted)


def paper_coding(task: Task, sequence: Sequence[str]) -> DummyCoding:
    """A binary column for each declared cell of each attribute."""
    cells = tuple(declared_cells(task.domain[name]).size for name in sequence)
    return DummyCoding(cells, (False,) * len(cells))


def paper_tables(task: Task, sequence: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of attributes, in the order of counting, that hard constraints need joint."""
    sizes = {name: declared_cells(task.domain[name]).size for name in sequence}
    wanted = {frozenset(names) for names in planning.wanted_tables(task, sizes) if len(names) == 2}
    return tuple(pair for pair in combinations(sequence, 2) if frozenset(pair) in wanted)
