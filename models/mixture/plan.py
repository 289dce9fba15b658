"""The parameter search of the mixture: from a budget and public sizes to every parameter of a fit.

Public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from cloister.models import planning
from cloister.models.core import budget_split
from cloister.models.core.histograms import TwoLevels, counted_by_value
from cloister.models.mixture.schedule import (
    TYPICAL_SIGNAL,
    JointBudget,
    Schedule,
    forecast_fit,
    joint_budget,
    schedule_for,
)
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Budget, Counted, Parameters, Plan, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, zcdp_rho
from cloister.privacy.events import Composed, Event, repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.mechanisms.selection import Exponential
from cloister.schema.partition import declared_cells

_HISTOGRAMS = 0.12
"""Part of the budget, as a share of rho, of one-way histograms at the typical signal."""

LEAST_HISTOGRAMS = 0.05
"""Part of the budget of one-way histograms at least."""

MOST_HISTOGRAMS = 0.45
"""Part of the budget of one-way histograms at most."""

_SOFT_CONSTRAINTS = 0.06
"""Part of the budget of counts of violating pairs, if there are soft constraints."""

_SELECTION = 0.10
"""Part of the rounds' budget that chooses tables, as in AIM; the rest measures them."""

MOST_COMPONENTS = 800
"""Components of the mixture at the typical signal, and at most."""

FEWEST_COMPONENTS = 100
"""Components of the mixture at least."""

_DEPENDENCE_PENALTY = 450.0
"""Loss for one nat of information that components have on rows, at the typical signal."""

_PENALTY_POWER = 1.25
"""The penalty falls with this power of a signal below the typical one (docs/papers.md)."""

LEAST_PENALTY = 12.0
"""The penalty on dependence at least."""

MIXTURE_BINS = 32
"""Bins of a numeric attribute at most, special and missing values apart."""

_SPIKE = 0.01
"""Share of rows of a value that single values are counted for."""

_STANDS_OUT = 4.6
"""Standard deviations of the noise above which a single value of a large domain stands out."""

_EMPHASIS_POWER = 0.25
"""The noise of a histogram falls with this power of its cells; see `emphasis_for`."""

MOST_EMPHASIS_CELLS = 128
"""Cells of a histogram from which on its noise falls no further."""

WEIGHER = PairCounts()

MIXTURE_SAMPLINGS = (planning.SUPPORTS, planning.SEQUENTIAL)
"""The ways in which rows of a mixture can be drawn, the usual one first."""


@dataclass(frozen=True)
class MixtureParameters(Parameters):
    """Everything that a fit needs besides the task.

    ``noise`` holds the noise multiplier of each kind of count, and the epsilon of one selection;
    ``histogram_noise`` that of each attribute's histogram. ``by_value`` names the attributes whose
    single values are counted, ``two_levels`` those counted in wide cells as well, ``valued`` those
    whose values have bins of their own, ``joint_tables`` the attributes of each joint table of a
    hard constraint, ``joint_noise`` its noise multiplier, ``groups`` the bins of a numeric
    attribute at most. After each of the ``rounds``, in each of which ``picks`` tables are chosen,
    the fit takes ``steps``; ``dependence_penalty`` is what dependence costs it. With
    ``pair_parts``, all pairs of attributes, in at most so many parts each, are candidates.
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


@dataclass(frozen=True)
class _Outline:
    """The queries of a plan, before the noise is known.

    ``emphasis`` is what the noise of an attribute's histogram would be divided by without wide
    cells, which are counted for ``two_levels``. The single values of ``by_value`` attributes are
    counted as well, those of ``valued`` as precisely as most of ``joint``, the tables of hard
    constraints.
    """

    task: Task
    sizes: Mapping[str, int]
    emphasis: Mapping[str, Fraction]
    by_value: tuple[str, ...]
    joint: tuple[tuple[str, ...], ...]
    schedule: Schedule
    signal: float
    valued: tuple[str, ...]
    two_levels: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The attributes whose single values are counted as precisely as joint tables."""
        return tuple(name for name in self.valued if name in self.by_value)

    @property
    def parts(self) -> dict[str, tuple[float, float]]:
        """For each kind of query, its part of the budget, as a share of rho, and its number."""
        histograms = sum(
            float(self._factor(name)) ** 2 * self._times(name) for name in self.emphasis
        )
        parts = {"histograms": (histograms_for(self.signal), histograms)}
        if self.joint:
            budget = self._joint_budget
            parts |= {"joint tables": (budget.part, budget.times + len(self.values))}
        parts |= {"soft constraints": (_SOFT_CONSTRAINTS, 1)} if self.task.measured_soft else {}
        if self.schedule.tables:
            rest = 1.0 - sum(part for part, _ in parts.values())
            parts |= {
                "selection": (rest * _SELECTION, self.schedule.tables),
                "rounds": (rest * (1 - _SELECTION), self.schedule.tables),
            }
        whole = sum(part for part, _ in parts.values())
        return {name: (part / whole, times) for name, (part, times) in parts.items()}

    def levels(self, noise: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each kind of count, and the epsilon of one selection.

        The level ``noise`` stands for a rho of 1 / (2 noise^2), of which each kind of query has its
        part.
        """
        ratios = {
            name: _exact(math.sqrt(times / part)) for name, (part, times) in self.parts.items()
        }
        return {
            name: 2 / (noise * r) if name == "selection" else noise * r
            for name, r in ratios.items()
        }

    def stages(self, noise: Fraction) -> Iterator[Stage]:
        """The steps that query the data, at a level of noise."""
        levels = self.levels(noise)
        yield self._histograms(levels["histograms"])
        if self.joint:
            yield self._joint_tables(levels["joint tables"])
        if self.schedule.tables:
            choice: Event = Exponential(levels["selection"]).event()
            yield Stage(
                "selection",
                repeat(choice, self.schedule.tables),
                "which joint table to measure next, round by round",
            )
            picks, tables = self.schedule.picks, self.schedule.tables
            words = f"the joint tables chosen, {'one' if picks == 1 else picks} a round"
            yield budget_split.counts_stage(self.task, "rounds", levels["rounds"], tables, words)
        if self.task.measured_soft:
            yield WEIGHER.stage(self.task, levels["soft constraints"])

    def mapped(self, noise: Fraction) -> dict[tuple[str, ...], float]:
        """The standard deviation of the noise of each joint table, in rows."""
        if not self.joint:
            return {}
        levels, partition = self.levels(noise), self.task.neighbours.partition
        return {
            names: DiscreteGaussian(own).scale(partition)
            for names, own in zip(self.joint, self.joint_noise(levels["joint tables"]), strict=True)
        }

    def counted(self, noise: Fraction) -> Iterator[Counted]:
        """All tables that are counted, and with how much noise."""
        levels, partition = self.levels(noise), self.task.neighbours.partition
        for names, deviation in self.mapped(noise).items():
            yield Counted({name: self.sizes[name] for name in names}, deviation)
        for name, level in self.histogram_noise(levels["histograms"]).items():
            cells = declared_cells(self.task.domain[name])
            levelled = TwoLevels.of(cells)
            for counts in (cells, levelled.wide) if levelled else (cells,):
                yield Counted({name: counts.size}, DiscreteGaussian(level).scale(partition))
        if self.schedule.tables:
            most = self.schedule.pair_parts or max(self.sizes.values())
            sizes = {name: min(size, most) for name, size in self.sizes.items()}
            deviation = DiscreteGaussian(levels["rounds"]).scale(partition)
            yield Counted(sizes, deviation, self.schedule.tables)

    def joint_noise(self, level: Fraction) -> tuple[Fraction, ...]:
        """The noise multiplier of each joint table."""
        return tuple(level / self._joint_budget.emphasis[names] for names in self.joint)

    @cached_property
    def _joint_budget(self) -> JointBudget:
        return joint_budget(self.task, self.joint, len(self.values), self.sizes, self.signal)

    def histogram_noise(self, level: Fraction) -> dict[str, Fraction]:
        """The noise multiplier of each attribute's histogram."""
        return {name: level / self._factor(name) for name in self.emphasis}

    def _factor(self, name: str) -> Fraction:
        """The emphasis of each count of an attribute: wide cells take from the others' budget."""
        once = self._times(name) - (name in self.two_levels)
        return self.emphasis[name] * _exact(math.sqrt(once / self._times(name)))

    def _times(self, name: str) -> int:
        """How many histograms of an attribute have the noise of histograms."""
        by_value = name in self.by_value and name not in self.valued
        return 1 + by_value + (name in self.two_levels)

    def _joint_tables(self, level: Fraction) -> Stage:
        listed = ", ".join(" x ".join(names) for names in self.joint)
        words = f"joint tables of hard constraints: {listed}"
        if self.values:
            words += f"; the single values of {', '.join(self.values)}"
        noises = (*self.joint_noise(level), *(level for _ in self.values))
        return budget_split.uneven_counts_stage(
            self.task, "joint tables", [(own, 1) for own in noises], words
        )

    def _histograms(self, level: Fraction) -> Stage:
        words = "one-way histograms of all attributes, those of many cells with less noise"
        if differences := [
            own.name for own in self.task.domain if getattr(own, "geometric", False)
        ]:
            words += f"; of differences of ordered numbers as well: {', '.join(differences)}"
        if self.two_levels:
            words += f" and in wide cells too: {', '.join(self.two_levels)}"
        noises = [(own, self._times(name)) for name, own in self.histogram_noise(level).items()]
        return budget_split.uneven_counts_stage(self.task, "histograms", noises, words)


def plan_mixture(task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[MixtureParameters]:
    """The plan that spends just the budget.

    Raises:
        PlanError: there is no delta to spend, or the noise would drown the rows.
    """
    budget_split.require_delta("mixture", budget)
    rho = zcdp_rho(budget.epsilon, budget.delta)
    signal = signal_of(task, float(rho))
    about = _exact(math.sqrt(1 / (2 * rho)))
    outline = _without_drowned_values(_outline(task, sequence, signal), about)
    counted = DiscreteGaussian(outline.levels(about)["histograms"])
    budget_split.require_signal(counted.scale(task.neighbours.partition), task.data_rows, budget)
    noise = calibrate(
        lambda level: Composed(tuple((stage.event, 1) for stage in outline.stages(level))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )
    levels = outline.levels(noise)
    schedule = outline.schedule
    parameters = MixtureParameters(
        noise=levels,
        histogram_noise=outline.histogram_noise(levels["histograms"]),
        by_value=outline.by_value,
        valued=outline.valued,
        two_levels=outline.two_levels,
        joint_tables=outline.joint,
        joint_noise=outline.joint_noise(levels["joint tables"]) if outline.joint else (),
        rounds=schedule.rounds,
        picks=schedule.picks,
        pair_parts=schedule.pair_parts,
        steps=schedule.steps,
        groups=MIXTURE_BINS,
        components=components_for(signal),
        dependence_penalty=penalty_for(signal),
    )
    stages = tuple(outline.stages(noise))
    soft = levels.get("soft constraints")
    rate = None if soft is None else WEIGHER.deviation(float(soft), task)
    mapped = outline.mapped(noise)
    expected = forecast_fit(task, outline.sizes, outline.joint, schedule, parameters.components)
    return Plan(
        *("mixture", sequence, stages, parameters, expected, mapped, rate),
        counted=tuple(outline.counted(noise)),
        balanced=not task.weighted_soft and task.sampling.way != planning.SEQUENTIAL,
    )


def _outline(task: Task, sequence: tuple[str, ...], signal: float) -> _Outline:
    by_value = counted_by_value(task.domain, sequence, task.data_rows)
    valued = planning.valued_attributes(task, by_value)
    sizes = planning.sizes_by_value(task, planning.public_sizes(task.domain, MIXTURE_BINS), valued)
    joint = planning.wanted_tables(task, sizes)
    learnt = {name for names in joint for name in names}
    return _Outline(
        task,
        sizes,
        {name: emphasis_for(declared_cells(task.domain[name]).size) for name in sequence},
        by_value,
        joint,
        schedule_for(signal, len(sequence), task.data_rows),
        signal,
        tuple(name for name in valued if name in learnt),
        tuple(name for name in sequence if TwoLevels.of(declared_cells(task.domain[name]))),
    )


def _without_drowned_values(outline: _Outline, noise: Fraction) -> _Outline:
    """The outline without counts of single values that noise of about this level would drown."""
    levels = outline.histogram_noise(outline.levels(noise)["histograms"])
    partition, most = outline.task.neighbours.partition, _SPIKE * outline.task.data_rows
    kept = tuple(
        name
        for name in outline.by_value
        if name in outline.valued
        or _STANDS_OUT * DiscreteGaussian(levels[name]).scale(partition) <= most
    )
    return replace(outline, by_value=kept)


def signal_of(task: Task, rho: float) -> float:
    """The rows, times the square root of rho, by the rows of a unit: how weak the noise is.

    All noise is in proportion to the rows that one unit may have, over the square root of rho.
    """
    return task.data_rows * math.sqrt(rho) / task.neighbours.max_rows


def components_for(signal: float) -> int:
    """Number of components, by the signal: fewer where the noise is strong."""
    wanted = round(MOST_COMPONENTS * math.sqrt(signal / TYPICAL_SIGNAL))
    return min(max(wanted, FEWEST_COMPONENTS), MOST_COMPONENTS)


def penalty_for(signal: float) -> float:
    """The penalty on dependence, by the signal: in proportion to it, or less where it is weak."""
    ratio = signal / TYPICAL_SIGNAL
    return max(_DEPENDENCE_PENALTY * min(ratio, ratio**_PENALTY_POWER), LEAST_PENALTY)


def histograms_for(signal: float) -> float:
    """The part of the budget of one-way histograms, by the signal: the more, the weaker it is."""
    wanted = _HISTOGRAMS * (TYPICAL_SIGNAL / signal) ** 0.6
    return min(max(wanted, LEAST_HISTOGRAMS), MOST_HISTOGRAMS)


def emphasis_for(cells: int) -> Fraction:
    """How many times less noise a histogram of ``cells`` cells gets than one of two.

    The error of a histogram grows with its cells times the noise, and the cost with the inverse
    square of the noise, so the sum of all errors would be least with the cube root of cells. In
    large histograms few cells matter, so it is the fourth root here.
    """
    return _exact(min(max(cells - 1, 1), MOST_EMPHASIS_CELLS) ** _EMPHASIS_POWER)


def _exact(number: float) -> Fraction:
    return Fraction(math.ceil(number * 10**6), 10**6)
