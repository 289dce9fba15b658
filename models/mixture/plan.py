"""The parameter search of the mixture: from a budget and public sizes to every parameter of a fit.

Public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

from cloister.errors import PlanError
from cloister.models import planning
from cloister.models.core.budget_split import (
    BY_RHO,
    BudgetSplit,
    Kind,
    NoiseLaw,
    choices,
    counts,
    in_proportion,
    weighted_counts,
)
from cloister.models.core.histograms import counted_by_value, histogram_weights, levels_above
from cloister.models.mixture.schedule import (
    GROWTH,
    MOST_MODELLED,
    PURE_GROWTH,
    TARGETS,
    TYPICAL_SCALED_SIZE,
    Schedule,
    TargetTables,
    components_for,
    forecast_fit,
    joint_budget,
    penalty_for,
    schedule_for,
)
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Budget, Counted, Parameters, Plan, Task
from cloister.privacy.accounting.accountants import zcdp_rho
from cloister.schema.partition import declared_cells, tree_of

_HISTOGRAMS = 0.12
"""Part of the budget, as a share of rho, for one-way histograms at the typical scaled size."""

LEAST_HISTOGRAMS = 0.05
"""Least part of the budget for one-way histograms."""

MOST_HISTOGRAMS = 0.65
"""Greatest part of the budget for one-way histograms.

With 0.45 pairs of 2,000 rows of 50 attributes had an error of 0.113 in place of 0.104 at epsilon
0.5, of dependent ones 0.158 and 0.160; of 15 attributes 0.117 in place of 0.119 at 0.3. One made
table and one release each.
"""

MOST_ALONE = 0.9
"""The same at delta 0, of what joint tables leave: at small sizes noise drowns other tables."""

_SOFT_CONSTRAINTS = 0.06
"""Part of the budget for counts of violating pairs, if there are soft constraints."""

_SELECTION = 0.10
"""Part of the rounds' budget that chooses tables, as in AIM; the rest measures them."""

MIXTURE_BINS = 32
"""Most bins of a numeric attribute, besides special and missing values."""

_SPIKE = 0.01
"""Share of rows of a value for which counting single values pays."""

_STANDS_OUT = 4.6
"""Standard deviations of the noise above which a single value of a large domain stands out."""

_PURE_QUERIES = 200
"""Queries that share epsilon at delta 0, to begin with: the outline then says how many."""

_TURNS = 5
"""Times that the outline and its scaled size follow from each other; they settle after three."""

WEIGHER = PairCounts()

MIXTURE_SAMPLINGS = (planning.SUPPORTS, planning.SEQUENTIAL)
"""The ways in which rows of a mixture can be drawn, the default first."""


@dataclass(frozen=True)
class MixtureParameters(Parameters):
    """Everything that a fit needs besides the task.

    ``noise`` holds the noise multiplier of each kind of count, or its epsilon if the plan is
    ``pure``, and the epsilon of one selection; ``histogram_noise`` that of each attribute's
    histogram, and ``tree_noise`` that of the levels above the values of a tree, coarse first.
    ``by_value`` names the attributes whose single values are counted, ``two_levels`` those counted
    in wide cells as well, ``valued`` those whose values have bins of their own, ``joint_tables``
    the attributes of each joint table of a hard constraint, ``joint_noise`` its noise multiplier,
    ``groups`` the bins of a numeric attribute at most. After each of the ``rounds``, in each of
    which ``picks`` tables are chosen, the fit takes ``steps``; ``dependence_penalty`` is what
    dependence costs it. With ``pair_parts``, all pairs of attributes, in at most so many parts
    each, are candidates. Tables of ``targets`` are counted before the rounds.
    """

    noise: Mapping[str, Fraction]
    histogram_noise: Mapping[str, Fraction]
    by_value: tuple[str, ...]
    joint_tables: tuple[tuple[str, ...], ...]
    joint_noise: tuple[Fraction, ...]
    rounds: int
    steps: int
    groups: int
    components: int
    dependence_penalty: float
    valued: tuple[str, ...] = ()
    two_levels: tuple[str, ...] = ()
    picks: int = 1
    pair_parts: int | None = None
    pure: bool = False
    tree_noise: Mapping[str, tuple[Fraction, ...]] = field(default_factory=dict)
    targets: TargetTables = field(default_factory=TargetTables)

    @property
    def law(self) -> NoiseLaw:
        """How the noise composes."""
        return NoiseLaw(self.pure)

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values; what most plans lack is left out."""
        absent = {"pure": not self.pure, "tree_noise": not self.tree_noise}
        absent["targets"] = not self.targets.pairs
        return {name: value for name, value in super().to_json().items() if not absent.get(name)}


@dataclass(frozen=True)
class _Outline:
    """The queries of a plan, before the noise is known.

    Histograms are counted of all attributes of the ``sequence``. The single values of ``by_value``
    attributes are counted as well, or how round they are, those of ``valued`` as precisely as most
    of ``joint``, the tables of hard constraints.
    """

    task: Task
    sequence: tuple[str, ...]
    sizes: Mapping[str, int]
    by_value: tuple[str, ...]
    joint: tuple[tuple[str, ...], ...]
    schedule: Schedule
    scaled_size: float
    valued: tuple[str, ...]
    law: NoiseLaw
    targets: TargetTables

    @property
    def values(self) -> tuple[str, ...]:
        """The attributes whose single values are counted as precisely as joint tables."""
        return tuple(name for name in self.valued if name in self.by_value)

    @cached_property
    def weights(self) -> dict[str, tuple[Fraction, ...]]:
        """The factor by which each attribute's histograms have less noise, that of cells last."""
        once = {*self.by_value} - {*self.valued}
        return {
            name: histogram_weights(declared_cells(self.task.domain[name]), name in once)
            for name in self.sequence
        }

    @cached_property
    def trees(self) -> tuple[str, ...]:
        """The attributes whose values are counted by the nodes of a tree too."""
        return tuple(name for name in self.sequence if tree_of(self.task.domain[name]))

    @property
    def two_levels(self) -> tuple[str, ...]:
        """The attributes that are counted in wide cells too."""
        cells = {name: declared_cells(self.task.domain[name]) for name in self.sequence}
        return tuple(n for n in self.sequence if n not in self.trees and levels_above(cells[n]))

    @cached_property
    def joint_weights(self) -> tuple[float, dict[tuple[str, ...], Fraction]]:
        """The part of the budget for joint tables, and the factor by which each has less noise."""
        return joint_budget(self.task, self.joint, len(self.values), self.sizes, self.scaled_size)

    @cached_property
    def split(self) -> BudgetSplit:
        """How all queries share the budget."""
        return self.split_by(self.law)

    def split_by(self, law: NoiseLaw) -> BudgetSplit:
        """How all queries would share a budget that composes by another law."""
        task, tables, picks = self.task, self.schedule.tables, self.schedule.picks
        part, weights = self.joint_weights
        joint = [(weight, 1) for weight in (*weights.values(), *(Fraction(1) for _ in self.values))]
        most = MOST_ALONE * (1.0 - part) if law.pure else MOST_HISTOGRAMS
        share = histograms_for(self.scaled_size, most)
        weighed = [(weight, 1) for weights in self.weights.values() for weight in weights]
        words = self._words_of_histograms(), self._words_of_joint_tables()
        first = [
            weighted_counts(task, "histograms", share, weighed, words[0], law=law),
            weighted_counts(task, "joint tables", part, joint, words[1], law=law),
        ]
        soft = Kind(
            "soft constraints",
            _SOFT_CONSTRAINTS,
            bool(task.measured_soft) and not law.pure,
            partial(WEIGHER.stage, task),
        )
        rest = 1.0 - sum(kind.share for kind in (*first, soft) if kind.number)
        of_targets = self.targets.kind(task, rest, law)
        rest -= of_targets.share if of_targets.number else 0.0
        chosen = choices(
            "selection",
            rest * _SELECTION,
            tables,
            "which joint table to measure next, round by round",
            law,
        )
        explanation = f"the joint tables chosen, {'one' if picks == 1 else picks} a round"
        rounds = counts(task, "rounds", rest * (1 - _SELECTION), tables, explanation, law=law)
        return law.split(in_proportion((*first, of_targets, chosen, rounds, soft)))

    def counted(
        self, noise: Mapping[str, Fraction], mapped: Mapping[tuple[str, ...], float]
    ) -> Iterator[Counted]:
        """All counted tables, with their noise."""
        partition = self.task.neighbours.partition
        for names, deviation in mapped.items():
            yield Counted({name: self.sizes[name] for name in names}, deviation)
        for name, weights in self.weights.items():
            cells = declared_cells(self.task.domain[name])
            levels = (*levels_above(cells), cells)
            for each, weight in zip(levels, weights[-len(levels) :], strict=True):
                deviation = self.law.counts(noise["histograms"], weight).deviation(partition)
                yield Counted({name: each.size}, deviation)
        if self.targets.pairs:
            deviation = self.law.counts(noise[TARGETS]).deviation(partition)
            yield from self.targets.counted(self.sizes, deviation)
        if self.schedule.tables:
            most = self.schedule.pair_parts or max(self.sizes.values())
            sizes = {name: min(size, most) for name, size in self.sizes.items()}
            deviation = self.law.counts(noise["rounds"]).deviation(partition)
            yield Counted(sizes, deviation, self.schedule.tables)

    def _words_of_joint_tables(self) -> str:
        words = "joint tables of hard constraints: "
        words += ", ".join(" x ".join(names) for names in self.joint)
        return words + (f"; the single values of {', '.join(self.values)}" if self.values else "")

    def _words_of_histograms(self) -> str:
        words = "one-way histograms of all attributes, those of many cells with less noise"
        if self.two_levels:
            words += f" and in wide cells too: {', '.join(self.two_levels)}"
        if self.trees:
            words += f"; codes on all levels of their trees: {', '.join(self.trees)}"
        return words


def plan_mixture(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[MixtureParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: the noise would drown the rows, or soft constraints need a delta.
    """
    if not budget.delta and planning.choose_sampling(task, MIXTURE_SAMPLINGS).sequential:
        raise PlanError(
            "rows drawn one after the other by soft constraints need a delta above 0; allow one, "
            "such as 1e-6, or leave sampling and known weights out"
        )
    outline = _outline_for(task, sequence, budget)
    law = outline.law
    estimate = outline.split.estimate(budget)["histograms"]
    outline = _without_drowned_values(outline, estimate)
    estimate = outline.split.estimate(budget)["histograms"]
    planning.require_signal(law.counts(estimate), task, budget)
    noise = outline.split.calibrate(task, budget)
    soft, partition = noise.get("soft constraints"), task.neighbours.partition
    parameters = _parameters(outline, noise)
    mapped = {
        names: law.counts(level).deviation(partition)
        for names, level in zip(parameters.joint_tables, parameters.joint_noise, strict=True)
    }
    return Plan(
        "mixture",
        sequence,
        outline.split.stages(noise),
        parameters,
        forecast_fit(task, outline.sizes, outline.joint, outline.schedule, parameters.components),
        mapped,
        None if soft is None else WEIGHER.deviation(float(soft), task),
        counted=tuple(outline.counted(noise, mapped)),
        balanced=not task.weighted_soft and task.sampling.way != planning.SEQUENTIAL,
    )


def _parameters(outline: _Outline, noise: Mapping[str, Fraction]) -> MixtureParameters:
    law, schedule, scaled_size = outline.law, outline.schedule, outline.scaled_size
    levels = outline.weights
    joint = outline.joint_weights[1].values() if outline.joint else ()
    return MixtureParameters(
        noise=noise,
        histogram_noise={n: law.level(noise["histograms"], w[-1]) for n, w in levels.items()},
        by_value=outline.by_value,
        valued=outline.valued,
        two_levels=outline.two_levels,
        joint_tables=outline.joint,
        joint_noise=tuple(law.level(noise["joint tables"], weight) for weight in joint),
        rounds=schedule.rounds,
        picks=schedule.picks,
        pair_parts=schedule.pair_parts,
        steps=schedule.steps,
        groups=MIXTURE_BINS,
        components=components_for(scaled_size),
        dependence_penalty=penalty_for(scaled_size),
        pure=law.pure,
        tree_noise={
            n: tuple(law.level(noise["histograms"], weight) for weight in levels[n][:-1])
            for n in outline.trees
        },
        targets=outline.targets,
    )


def _outline_for(task: Task, sequence: tuple[str, ...], budget: Budget) -> _Outline:
    """The outline for the scaled size of a budget.

    At delta 0 it follows from the rho at which Gaussian noise would be as strong as the outline's.
    """
    if budget.delta:
        return _outline(task, sequence, float(zcdp_rho(budget.epsilon, budget.delta)), BY_RHO)
    rho = float(budget.epsilon) ** 2 / _PURE_QUERIES
    for _ in range(_TURNS):
        outline = _outline(task, sequence, rho, NoiseLaw(pure=True))
        laplace = outline.split.estimate(budget)["histograms"]
        gaussian = outline.split_by(BY_RHO).noise_of(1.0)["histograms"]
        rho = float(gaussian * laplace) ** 2 / 2
    return _outline(task, sequence, rho, NoiseLaw(pure=True))


def _outline(task: Task, sequence: tuple[str, ...], rho: float, law: NoiseLaw) -> _Outline:
    scaled_size = scaled_size_of(task, rho)
    by_value = counted_by_value(task.domain, sequence, task.data_rows)
    valued = planning.valued_attributes(task, by_value)
    sizes = planning.sizes_by_value(task, planning.public_sizes(task.domain, MIXTURE_BINS), valued)
    joint = planning.wanted_tables(task, sizes)
    learnt = {name for names in joint for name in names}
    growth = PURE_GROWTH if law.pure else GROWTH
    schedule = schedule_for(
        scaled_size, len(sequence), task.data_rows, growth, list(sizes.values())
    )
    modelled = [name for name in sequence if sizes[name] <= MOST_MODELLED]
    return _Outline(
        task,
        sequence,
        sizes,
        by_value,
        joint,
        schedule,
        scaled_size,
        tuple(name for name in valued if name in learnt),
        law,
        TargetTables.of(task.targets, modelled, schedule, scaled_size),
    )


def _without_drowned_values(outline: _Outline, noise: Fraction) -> _Outline:
    """The outline without counts of single values that noise of about this level would drown."""
    partition, most = outline.task.neighbours.partition, _SPIKE * outline.task.data_rows
    counted = tuple(
        name
        for name in outline.by_value
        if name in outline.valued
        or outline.task.domain[name].roundings
        or _STANDS_OUT * outline.law.counts(noise, outline.weights[name][-1]).deviation(partition)
        <= most
    )
    return replace(outline, by_value=counted)


def scaled_size_of(task: Task, rho: float) -> float:
    """The rho-scaled sample size: rows times the square root of rho, over the rows of a unit.

    All noise is proportional to the rows that one unit may have, over the square root of rho.
    """
    return task.data_rows * math.sqrt(rho) / task.neighbours.max_rows


def histograms_for(scaled_size: float, most: float = MOST_HISTOGRAMS) -> float:
    """The part of the budget for one-way histograms, by the scaled size: the smaller, the more."""
    wanted = _HISTOGRAMS * (TYPICAL_SCALED_SIZE / scaled_size) ** 0.6
    return min(max(wanted, LEAST_HISTOGRAMS), most)
