"""The plan of the copula: what is counted, with how much noise, and what it will need; public.

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
from cloister.figures import count_of, figure
from cloister.models import planning
from cloister.models.core import budget_split, costs
from cloister.models.core.bins import NUMERIC_BINS
from cloister.models.task import Budget, Counted, Forecast, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, epsilon_of_each, zcdp_rho
from cloister.privacy.events import Composed, Event, Sensitivity, repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.queries.counts import DummyCoding, conjunction_sensitivity
from cloister.schema.partition import declared_cells

_LOOKUP = 4e-9
"""Seconds to count a row in one pair of attributes."""

_PRODUCT = 2.6e-11
"""Seconds for a row, for each product of two columns."""

_PAIR = 2e-5
"""Seconds to find the correlations of a pair of columns, refinements included."""

_CUBE = 4e-9
"""Seconds for each cubed column of all eigendecompositions of a fit."""

_DRAWN = 2.5e-8
"""Seconds for a binary column of a row that is drawn and decoded."""

_HELD = 400_000_000
"""Bytes of the rows that are counted or drawn at a time, in all copies."""

_ROW = 24
"""Bytes for each row: one column is counted, or put together, at a time."""

_SQUARE = 120
"""Bytes for each pair of columns: counts, correlations, eigenvectors, and their copies."""

_START = 4.0
"""Seconds of a fit and a draw that do not depend on the table."""

Mechanism = DiscreteGaussian | DiscreteLaplace

_BINS = (NUMERIC_BINS, 12, 8, 6, 4)
"""Bins of a numeric attribute at most, tried until there are few enough columns."""

_WANTED_COLUMNS = 2_000
"""Binary columns at which bins of numbers stop being made fewer."""

MOST_COLUMNS = 6_000
"""Binary columns at most, for a plan to be made: memory and time grow with their square."""

_JOINT_TABLES = 0.06
"""Part of the budget of joint tables of hard constraints, if there are any."""

_HISTOGRAM_ADVANTAGE = 2.0
"""How many times smaller the variance of a histogram's noise is than that of a conjunction's.

A histogram is one of few, and all conjunctions are fitted to it.
"""

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

    def mechanism(self, kind: str) -> Mechanism:
        """The mechanism of one kind of count."""
        level = self.noise[kind]
        return DiscreteLaplace(level) if self.pure else DiscreteGaussian(level)


def public_coding(task: Task, names: Sequence[str], groups: int) -> DummyCoding:
    """The binary columns of attributes, from public sizes: as many as there may be."""
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
    def joint(self) -> tuple[tuple[str, ...], ...]:
        return planning.wanted_tables(
            self.task, planning.public_sizes(self.task.domain, self.groups)
        )

    @cached_property
    def queries(self) -> dict[str, tuple[Sensitivity, int]]:
        """Of each kind of count, its sensitivity and number."""
        partition = self.task.neighbours.partition
        found = {HISTOGRAMS: (partition, len(self.sequence))}
        if self.pairs and sum(map(bool, self.coding.widths)) > 1:
            whole = conjunction_sensitivity(self.coding, self.task.neighbours)
            found[CONJUNCTIONS] = (whole, 1)
        if self.joint:
            found[JOINT] = (partition, len(self.joint))
        return found

    @cached_property
    def parts(self) -> dict[str, Fraction]:
        """The part of the budget of each kind: of epsilon if pure, of rho if not."""
        parts = {
            kind: (own.l1 if self.pure else own.l2_squared) * times
            for kind, (own, times) in self.queries.items()
        }
        advantage = math.sqrt(_HISTOGRAM_ADVANTAGE) if self.pure else _HISTOGRAM_ADVANTAGE
        weights = {kind: float(part) for kind, part in parts.items()}
        weights[HISTOGRAMS] *= advantage
        rest = sum(weight for kind, weight in weights.items() if kind != JOINT)
        if JOINT in weights:
            weights[JOINT] = rest * _JOINT_TABLES / (1 - _JOINT_TABLES)
        whole = sum(weights.values())
        return {kind: _exact(weight / whole) for kind, weight in weights.items()}

    def noise(self, level: Fraction) -> dict[str, Fraction]:
        """The noise of each kind, at the level of all: the inverse of epsilon if pure."""
        if self.pure:
            return {kind: part / level / self.queries[kind][1] for kind, part in self.parts.items()}
        return {
            kind: level * _exact(math.sqrt(self.queries[kind][1] / part))
            for kind, part in self.parts.items()
        }

    def parameters(self, level: Fraction) -> CopulaParameters:
        return CopulaParameters(
            self.noise(level), self.pure, self.groups, len(self.coded), self.joint
        )

    def stages(self, level: Fraction) -> Iterator[Stage]:
        """The steps that query the data."""
        made = self.parameters(level)
        words = {
            HISTOGRAMS: "one-way histograms of all attributes",
            CONJUNCTIONS: f"conjunctions of {self.coding.width:,} binary columns, all pairs",
            JOINT: "joint tables of hard constraints",
        }
        for kind, (sensitivity, times) in self.queries.items():
            mechanism = made.mechanism(kind)
            scale = figure(mechanism.scale(sensitivity))
            yield Stage(
                kind,
                repeat(mechanism.event(sensitivity), times),
                f"{words[kind]}; noise of {count_of(scale, 'row')} a count",
            )

    def counted(self, made: CopulaParameters) -> Iterator[Counted]:
        """All tables that are counted, and with how much noise."""
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

    def event(self, level: Fraction) -> Event:
        return Composed(tuple((stage.event, 1) for stage in self.stages(level)))


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
    estimated = outline.parameters(_level_by_rho(outline, budget)).mechanism(HISTOGRAMS)
    budget_split.require_signal(estimated.scale(task.neighbours.partition), task.data_rows, budget)
    level = _level(outline, budget)
    made = outline.parameters(level)
    mapped = {
        names: made.mechanism(JOINT).deviation(task.neighbours.partition)
        for names in made.joint_tables
    }
    expected = forecast_copula(task, outline.coding, pairs=CONJUNCTIONS in outline.queries)
    stages, counted = tuple(outline.stages(level)), tuple(outline.counted(made))
    return Plan(method, sequence, stages, made, expected, mapped, counted=counted)


def _level_by_rho(outline: _Outline, budget: Budget) -> Fraction:
    """About the level of noise, at once: where it is hopeless, calibration takes long."""
    if outline.pure:
        return 1 / budget.epsilon
    return _exact(math.sqrt(1 / (2 * zcdp_rho(budget.epsilon, budget.delta))))


def _level(outline: _Outline, budget: Budget) -> Fraction:
    if outline.pure:
        return 1 / budget.epsilon
    relation = outline.task.neighbours.relation
    return calibrate(outline.event, budget.epsilon, budget.delta, relation)


def _groups_for(task: Task, sequence: Sequence[str]) -> int:
    """Bins of a numeric attribute at most, for columns to be few enough, if they can be."""
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
    scale = mechanism.scale(partition)
    budget_split.require_laplace_signal(scale, task.data_rows, budget)
    noise = f"epsilon {float(each)} each; noise of {count_of(figure(scale), 'row')} a count"
    event = mechanism.event(partition)
    stages = [
        Stage(HISTOGRAMS, repeat(event, len(sequence)), f"one-way counts (algorithm 1); {noise}")
    ]
    if pairs:
        words = f"two-way counts of all pairs of attributes (algorithm 2); {noise}"
        stages.append(Stage(CONJUNCTIONS, repeat(event, pairs), words))
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


def _exact(number: float) -> Fraction:
    return Fraction(math.ceil(number * 10**9), 10**9)
