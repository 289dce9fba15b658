"""How a plan divides its budget between queries: noise and stages; public.

Shares are only a plan: accountants price all stages together, and noise is the least that they
allow. Parts of a plan that are plans themselves have a share of epsilon each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from cloister.errors import PlanError
from cloister.figures import count_of, figure_range
from cloister.models.task import AnyPlan, Budget, Stage, Task
from cloister.privacy.accounting.accountants import calibrate, noise_multiplier, spend, zcdp_rho
from cloister.privacy.accounting.composition import accountable, event_of_stages
from cloister.privacy.events import Composed, Relation, Sensitivity, repeat
from cloister.privacy.mechanisms.noise import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.mechanisms.selection import Exponential, PermuteAndFlip

CountNoise = DiscreteGaussian | DiscreteLaplace

_ENOUGH = 0.995
"""Share of epsilon above which a division counts as spending all of it."""

_DIVISIONS = 6
"""Most divisions tried to spend the budget; the price is nearly linear in their scale."""

_RETREAT = 0.97
"""Factor on the scale of a division that still exceeds the budget after all of them."""

_RETREATS = 40
"""Most reductions: the scale is then below that of parts that simply add up."""

DIGITS = 10**9
"""Denominator of the epsilons of a division."""

PlanT = TypeVar("PlanT", bound=AnyPlan)

KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class NoiseLaw:
    """How noise composes: by rho, or at delta 0, where it is ``pure``, by epsilon.

    Counts have discrete Gaussian noise or discrete Laplace noise, choices are by the exponential
    mechanism or by permute-and-flip. A level is the noise multiplier of counts, or their epsilon.
    """

    pure: bool = False

    def counts(self, level: Fraction, weight: Fraction = Fraction(1)) -> CountNoise:
        """The noise of counts at a level, ``weight`` times less."""
        mechanism = DiscreteLaplace if self.pure else DiscreteGaussian
        return mechanism(self.level(level, weight))

    def level(self, level: Fraction, weight: Fraction) -> Fraction:
        """The level of ``weight`` times less noise."""
        return level * weight if self.pure else level / weight

    def choice(self, epsilon: Fraction) -> Exponential | PermuteAndFlip:
        """The choice of an epsilon."""
        return PermuteAndFlip(epsilon) if self.pure else Exponential(epsilon)

    def split(self, kinds: Sequence[Kind], decimals: int = 6) -> BudgetSplit:
        """The split of a budget between kinds whose shares are of rho.

        At delta 0 their shares of epsilon keep the ratios between the noise of kinds: noise of a
        kind falls with the root of its share of rho, but in proportion to its share of epsilon.
        """
        if not self.pure:
            return BudgetSplit(kinds, decimals)
        of_epsilon = (float(kind.number) * math.sqrt(kind.share / kind.squares) for kind in kinds)
        shares = [rounded_up(share, 9) for share in of_epsilon]
        shared = [replace(kind, share=s) for kind, s in zip(kinds, shares, strict=True)]
        return EpsilonSplit(shared, decimals)


BY_RHO = NoiseLaw()


@dataclass(frozen=True)
class Kind:
    """Queries of one kind: their share of the budget, and how many of equal noise share it.

    ``stage`` makes their stage from that noise. They read all rows, or one disjoint ``part``. Where
    queries have weights w, w times less noise, ``number`` is the sum of w, their cost in epsilon,
    and ``squared`` the sum of its squares, their cost in rho.
    """

    name: str
    share: float | Fraction
    number: float | Fraction
    stage: Callable[[Fraction], Stage]
    part: str | None = None
    squared: float | None = None

    @property
    def squares(self) -> float:
        """The sum of the squares of weights: the number of queries, if all weights are 1."""
        return float(self.number) if self.squared is None else self.squared

    def noise(self, multiplier: Fraction) -> Fraction:
        """The mechanism's parameter, for the noise multiplier of counts that cost as much."""
        return multiplier


@dataclass(frozen=True)
class Choices(Kind):
    """Choices by the exponential mechanism: epsilon costs a rho of epsilon^2 / 8 (lemma 3.4).

    Source: Cesar, Rogers (arXiv 2010.13981).
    """

    def noise(self, multiplier: Fraction) -> Fraction:
        """The epsilon of a choice."""
        return 2 / multiplier


@dataclass(frozen=True)
class BudgetSplit:
    """How a budget is divided between kinds of queries: by shares of rho.

    Kinds without queries are left out. A level of noise m stands for a rho of 1 / (2 m^2) in all;
    multipliers at level 1 are rounded up to ``decimals``.
    """

    kinds: Sequence[Kind]
    decimals: int = 6

    def noise(self, level: Fraction) -> dict[str, Fraction]:
        """The noise of each kind: a noise multiplier, or the parameter of its mechanism."""
        return {kind.name: kind.noise(level * self._multiplier(kind, 0.5)) for kind in self._asked}

    def noise_of(self, rho: float) -> dict[str, Fraction]:
        """The noise if all kinds together have a rho."""
        return {kind.name: kind.noise(self._multiplier(kind, rho)) for kind in self._asked}

    def stages(self, noise: Mapping[str, Fraction]) -> tuple[Stage, ...]:
        """The steps that query the data."""
        return tuple(replace(kind.stage(noise[kind.name]), part=kind.part) for kind in self._asked)

    def estimate(self, budget: Budget) -> dict[str, Fraction]:
        """An estimate of the noise, without calibration, which is slow for hopeless budgets."""
        return self.noise(self._level_at_once(budget))

    def calibrate(
        self, task: Task, budget: Budget, beside: tuple[Stage, ...] = ()
    ) -> dict[str, Fraction]:
        """The least noise with which all stages, with those ``beside``, stay within the budget."""
        return self.noise(self._least_level(task, budget, beside))

    def _level_at_once(self, budget: Budget) -> Fraction:
        rho = zcdp_rho(budget.epsilon, budget.delta)
        return rounded_up(math.sqrt(1 / (2 * rho)), self.decimals)

    def _least_level(self, task: Task, budget: Budget, beside: tuple[Stage, ...]) -> Fraction:
        return least_noise(lambda level: (*self.stages(self.noise(level)), *beside), task, budget)

    @property
    def _asked(self) -> list[Kind]:
        return [kind for kind in self.kinds if kind.number]

    def _multiplier(self, kind: Kind, rho: float) -> Fraction:
        return rounded_up(math.sqrt(kind.squares / (2 * float(kind.share) * rho)), self.decimals)


@dataclass(frozen=True)
class EpsilonSplit(BudgetSplit):
    """Shares of epsilon in proportion, for Laplace noise; a level of noise is 1 / epsilon.

    They add up exactly. With a delta, tighter accounting allows less noise.
    """

    def noise(self, level: Fraction) -> dict[str, Fraction]:
        """The epsilon of each query of a kind."""
        whole = level * sum(Fraction(kind.share) for kind in self._asked)
        return {
            kind.name: Fraction(kind.share) / whole / Fraction(kind.number) for kind in self._asked
        }

    def _level_at_once(self, budget: Budget) -> Fraction:
        return 1 / budget.epsilon

    def _least_level(self, task: Task, budget: Budget, beside: tuple[Stage, ...]) -> Fraction:
        adding_up = self._level_at_once(budget)
        if not budget.delta:
            return adding_up
        return min(super()._least_level(task, budget, beside), adding_up)


def in_proportion(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """The kinds that have queries, with shares that add up to 1 on each part of the rows."""
    used = [kind for kind in kinds if kind.number]
    wholes: dict[str | None, float | Fraction] = {}
    for kind in used:
        wholes[kind.part] = wholes.get(kind.part, 0) + kind.share
    return tuple(replace(kind, share=kind.share / wholes[kind.part]) for kind in used)


def least_noise(
    stages_at: Callable[[Fraction], Iterable[Stage]], task: Task, budget: Budget
) -> Fraction:
    """The least level of noise at which all stages stay within the budget, by the accountants."""
    return calibrate(
        lambda level: event_of_stages(accountable(stages_at(level))),
        budget.epsilon,
        budget.delta,
        task.neighbours.relation,
    )


def weighted_counts(
    task: Task,
    name: str,
    share: float,
    tables: Sequence[tuple[Fraction, int]],
    words: str,
    part: str | None = None,
    law: NoiseLaw = BY_RHO,
) -> Kind:
    """Tables of counts: weights, and how many tables have each.

    A weight of w means w times less noise.
    """

    def stage(noise: Fraction) -> Stage:
        weighed = [(law.counts(noise, weight), times) for weight, times in tables]
        return counts_stage(name, weighed, task.neighbours.partition, words)

    squares = sum(float(weight) ** 2 * times for weight, times in tables)
    number = sum((weight * times for weight, times in tables), Fraction(0))
    return Kind(name, share, number, stage, part, squares)


def counts(
    task: Task,
    name: str,
    share: float,
    number: int,
    words: str,
    part: str | None = None,
    law: NoiseLaw = BY_RHO,
) -> Kind:
    """``number`` tables of counts with equal noise."""
    return weighted_counts(task, name, share, [(Fraction(1), number)], words, part, law)


def choices(name: str, share: float, number: int, words: str, law: NoiseLaw = BY_RHO) -> Kind:
    """``number`` choices of candidates."""

    def stage(epsilon: Fraction) -> Stage:
        return Stage(name, repeat(law.choice(epsilon).event(), number), words)

    return Choices(name, share, number, stage)


def counts_stage(
    name: str,
    noises: Iterable[tuple[CountNoise, int]],
    sensitivity: Sensitivity,
    words: str,
    unit: str = "row",
) -> Stage:
    """The stage of tables of counts, a number with each noise; scales are stated in ``unit``."""
    noises = tuple(noises)
    scales = figure_range([noise.scale(sensitivity) for noise, _ in noises])
    return Stage(
        name,
        Composed(tuple((noise.event(sensitivity), times) for noise, times in noises)),
        f"{words}; noise of {count_of(scales, unit)} a count",
    )


def noise_of_counts(amount: Fraction, delta: Fraction, number: int = 1) -> CountNoise:
    """The noise of partitions that share an epsilon: Laplace at delta 0, else Gaussian."""
    if not delta:
        return DiscreteLaplace(amount / number)
    return DiscreteGaussian(noise_multiplier(zcdp_rho(amount, delta) / number))


def rounded_up(number: float, decimals: int) -> Fraction:
    """A number rounded up, as an exact fraction."""
    return Fraction(math.ceil(number * 10**decimals), 10**decimals)


def divide(
    plan_of: Callable[[Mapping[KeyT, Fraction]], PlanT],
    shares: Mapping[KeyT, Fraction],
    budget: Budget,
    relation: Relation,
    refusal: str,
) -> PlanT:
    """The plan of parts that are plans themselves, each with its share, at the delta of the whole.

    At delta 0 their epsilons add up. With a delta each gets the root of its share, since Gaussian
    noise composes by the sum of squares, at nearly the largest scale within the budget.

    Raises:
        PlanError: the ``refusal``, if no scale does.
    """
    if not budget.delta:
        return plan_of({name: share * budget.epsilon for name, share in shares.items()})

    def scaled(scale: float) -> PlanT:
        whole = scale * float(budget.epsilon)
        return plan_of({name: _down(math.sqrt(share) * whole) for name, share in shares.items()})

    plan = _largest_within(scaled, budget, relation)
    if plan is None:
        raise PlanError(f"no division of epsilon {float(budget.epsilon):g} between {refusal}")
    return plan


def _down(epsilon: float) -> Fraction:
    return Fraction(math.floor(epsilon * DIGITS), DIGITS)


def _largest_within(
    plan_at: Callable[[float], PlanT], budget: Budget, relation: Relation
) -> PlanT | None:
    """The plan of nearly the largest scale within the budget; None if there is none."""

    def price(plan: PlanT) -> float:
        return spend(plan.event, budget.delta, relation).epsilon / float(budget.epsilon)

    best, scale = None, 1.0
    for _ in range(_DIVISIONS):
        plan = plan_at(scale)
        cost = price(plan)
        if cost <= 1 and (best is None or cost > best[1]):
            best = plan, cost
        if _ENOUGH <= cost <= 1:
            break
        scale *= (1 + _ENOUGH) / 2 / cost
    for _ in range(_RETREATS):
        if best is not None:
            return best[0]
        scale *= _RETREAT
        plan = plan_at(scale)
        cost = price(plan)
        best = (plan, cost) if cost <= 1 else None
    return None


def label_stage(stage: Stage, table: str, words: str) -> Stage:
    """A stage of one table's plan, as one of the plan of all tables."""
    return replace(stage, name=f"{table}: {stage.name}", explanation=f"{words}{stage.explanation}")
