"""How records are made from seeds and tested: from a budget and public sizes alone.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), sections 2, 3.2 and 6.1.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from cloister.errors import PlanError, UnsupportedEvent
from cloister.models.task import Budget, Parameters, Task, options_of
from cloister.privacy.accounting import composition
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.accounting.loss import response_epsilon
from cloister.privacy.events import SeededRecords, UncountedRecords
from cloister.privacy.mechanisms import selection
from cloister.schema.attributes import Declared
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY, DeclaredEpsilon, Exact

PLAUSIBLE_DENIABILITY = "plausible-deniability"
"""The guarantee of records protected by a test alone; not differential privacy of the table."""

PAPER_K, PAPER_GAMMA, PAPER_EPSILON0 = 50, Fraction(4), Fraction(1)
"""The parameters of section 6.1: plausible seeds, ratio of probabilities, noise of k."""

_PAPER_RESAMPLED = Fraction(5, 11)
"""Least share of attributes drawn anew in section 6.1: omega from 5 to 11 of 11."""

_TIGHT_GAMMA = Fraction(101, 100)
"""The ratio for a fixed omega: all rows that can make a record do so with equal probability."""

_MOST_OF_SEEDS = 10
"""One over the greatest share of seeds that must agree, if k is chosen."""

_CANDIDATES_PER_ROW = 2
"""Candidates per wanted row if they are not charged: at least half pass the test."""

_LEAST_SEEDS = 2
"""One over the least share of the expected seeds for which the guarantee is as stated; missing
seeds leave candidates empty."""

_ROUNDING = 0.999
"""Share of an epsilon that is spent; the rest is for rounding up and the accountants' grid."""


class DeniabilityOptions(Declared):
    """How records are made from seeds; what is left out is chosen by public facts.

    A record is released if rows of at least ``k`` units could have made it with probabilities that
    differ by a factor of at most ``gamma``. The threshold k gets Laplace noise of scale
    1 / ``epsilon0``, unless the ``test`` is deterministic.
    """

    k: int | None = Field(
        default=None,
        ge=2,
        description="how many units must be able to make a record: rows, or `max_rows` times as "
        "many rows if persons have several",
    )
    gamma: Annotated[Exact, Field(gt=1)] | None = Field(
        default=None, description="the factor by which their probabilities may differ"
    )
    epsilon0: DeclaredEpsilon | None = Field(
        default=None, description="of the noise of the threshold"
    )
    resampled: Annotated[int, Field(ge=0)] | tuple[int, int] | None = Field(
        default=None,
        description="omega, how many attributes are drawn anew: `9`, or drawn from `[5, 11]`",
        examples=[9],
    )
    test: Literal["randomised", "deterministic"] = Field(
        default="randomised", description="`deterministic` for a threshold without noise"
    )
    candidates: int | None = Field(
        default=None, ge=1, description="how many records are made and tested"
    )


@dataclass(frozen=True)
class SeedParameters(Parameters):
    """How records are made and tested.

    ``k`` counts rows: as many for each of the declared units as one may have. A record keeps the
    first ``kept`` attributes of its seed, a number drawn from this range. ``guarantee`` says
    whether records are charged as differential privacy of the whole table, or released under
    plausible deniability alone; ``epsilon0`` is 0 for the deterministic test.
    """

    k: int
    gamma: Fraction
    epsilon0: Fraction
    t: int
    kept: tuple[int, int]
    candidates: int
    withheld: Fraction
    least_seeds: int
    guarantee: str

    def made(self, rows: int) -> selection.CandidateSet:
        """How candidates are made, for units of at most ``rows`` rows."""
        return selection.CandidateSet(
            self.gamma, self.candidates, self.withheld, self.least_seeds, rows
        )

    @property
    def test(
        self,
    ) -> selection.RandomisedTest | selection.UncountedTest | selection.DeterministicTest:
        """The test of the candidates, as accounted for."""
        if not self.epsilon0:
            return selection.DeterministicTest(self.k)
        test = selection.RandomisedTest(self.k, self.epsilon0, self.t)
        return test if self.guarantee == DIFFERENTIAL_PRIVACY else selection.UncountedTest(test)

    def event(self, task: Task) -> SeededRecords | UncountedRecords:
        """The event of making and testing the records."""
        return self.test.event(self.made(task.neighbours.max_rows))


def choose_seeding(task: Task, seeds: int, attributes: int, budget: Budget) -> SeedParameters:
    """How to make the wanted records from about ``seeds`` seeds of ``attributes`` attributes.

    ``budget`` is the most that may be charged for them, if they are charged.

    Raises:
        PlanError: says how many records would fit, or what is impossible.
    """
    if task.guarantee == PLAUSIBLE_DENIABILITY:
        return _deniable(task, seeds, attributes, budget)
    options = options_of(task, DeniabilityOptions)
    if options.test == "deterministic":
        raise PlanError(
            "the deterministic privacy test is not differentially private; leave it out, or "
            "declare release.guarantee: plausible-deniability"
        )
    wanted = options.candidates or task.output_rows
    seeding = _charged(task, seeds, attributes, budget, wanted)
    if seeding is None or not _within(seeding, task, budget):
        raise PlanError(_too_many(task, seeds, attributes, budget, wanted))
    return seeding


def kept_range(options: DeniabilityOptions, attributes: int, least: int) -> tuple[int, int]:
    """How many first attributes of a seed are kept: all but those drawn anew.

    At least ``least`` are drawn anew if the spec does not say.

    Raises:
        PlanError: more are to be drawn anew than there are.
    """
    declared = options.resampled
    if declared is None:
        return 0, attributes - least
    low, high = (declared, declared) if isinstance(declared, int) else declared
    if not 0 <= low <= high <= attributes:
        raise PlanError(
            f"release.options.resampled should be from 0 to {attributes}, the attributes that "
            "are modelled; declare fewer"
        )
    return attributes - high, attributes - low


def _deniable(task: Task, seeds: int, attributes: int, budget: Budget) -> SeedParameters:
    """Records under plausible deniability alone, with the parameters of the spec or the paper."""
    options = options_of(task, DeniabilityOptions)
    k = (options.k or PAPER_K) * task.neighbours.max_rows
    gamma = options.gamma or PAPER_GAMMA
    epsilon0 = (
        Fraction(0) if options.test == "deterministic" else options.epsilon0 or PAPER_EPSILON0
    )
    candidates = options.candidates or _CANDIDATES_PER_ROW * task.output_rows
    least_seeds = max(seeds // _LEAST_SEEDS, 1)
    _require_seeds(k, least_seeds, task)
    share = float(budget.delta) / (2 * candidates)
    steps, noise = _row_steps(task), epsilon0 or PAPER_EPSILON0
    t = composition.best_record_guarantee(k, gamma, noise, share, steps).t
    least = math.ceil(_PAPER_RESAMPLED * attributes)
    prefix = kept_range(options, attributes, least)
    return _parameters(task, gamma, (k, epsilon0, t), prefix, candidates, least_seeds)


def _charged(
    task: Task, seeds: int, attributes: int, budget: Budget, candidates: int
) -> SeedParameters | None:
    """The test with which ``candidates`` stay within the budget; None if there is none."""
    options, least_seeds = options_of(task, DeniabilityOptions), max(seeds // _LEAST_SEEDS, 1)
    prefix = kept_range(options, attributes, max(attributes - 1, 0))
    if options.resampled is None:
        prefix = (min(1, attributes), min(1, attributes))
    gamma = options.gamma or (_TIGHT_GAMMA if prefix[0] == prefix[1] else PAPER_GAMMA)
    chosen = _test_for(task, budget, gamma, candidates, least_seeds)
    if chosen is None:
        return None
    seeding = _parameters(task, gamma, chosen, prefix, candidates, least_seeds)
    return seeding if seeding.withheld < 1 else None


def _parameters(
    task: Task,
    gamma: Fraction,
    test: tuple[int, Fraction, int],
    prefix: tuple[int, int],
    candidates: int,
    least_seeds: int,
) -> SeedParameters:
    """The parameters of a ``test``: k, epsilon0 and t."""
    k, epsilon0, t = test
    one = composition.record_guarantee(k, gamma, epsilon0 or PAPER_EPSILON0, t)
    return SeedParameters(
        k=k,
        gamma=gamma,
        epsilon0=epsilon0,
        t=t,
        kept=prefix,
        candidates=candidates,
        withheld=composition.least_withheld(one.epsilon, least_seeds) if epsilon0 else Fraction(0),
        least_seeds=least_seeds,
        guarantee=task.guarantee,
    )


def _test_for(
    task: Task, budget: Budget, gamma: Fraction, candidates: int, least_seeds: int
) -> tuple[int, Fraction, int] | None:
    """k, epsilon0 and t for ``candidates``: those of the spec, or the least k."""
    options = options_of(task, DeniabilityOptions)
    steps = _row_steps(task)
    half = float(budget.delta) / 2
    one = _ROUNDING * response_epsilon(budget.epsilon, half, candidates) / steps
    delta = half / candidates * math.expm1(one) / math.expm1(steps * one)
    log = -math.log(delta)
    share = math.sqrt(log) / (math.sqrt(log) + math.sqrt(float(gamma)))
    epsilon0 = options.epsilon0 or _down(one * share)
    left = one - float(epsilon0)
    if left <= 0:
        return None
    t = math.ceil(float(gamma) / math.expm1(left))
    declared = options.k and options.k * task.neighbours.max_rows
    k = declared or t + math.ceil(log / float(epsilon0))
    most = least_seeds if declared else _LEAST_SEEDS * least_seeds // _MOST_OF_SEEDS
    hidden = float(epsilon0) * (k - t) >= log * (1 - 1e-12)
    return (k, epsilon0, t) if hidden and t < k <= most else None


def _row_steps(task: Task) -> int:
    return composition.row_steps(task.neighbours.max_rows, task.neighbours.relation)


def _within(seeding: SeedParameters, task: Task, budget: Budget) -> bool:
    event = seeding.event(task)
    if isinstance(event, UncountedRecords):
        return False
    try:
        return epsilon(event, budget.delta, task.neighbours.relation) <= budget.epsilon
    except UnsupportedEvent:
        return False


def _too_many(task: Task, seeds: int, attributes: int, budget: Budget, wanted: int) -> str:
    """Why the wanted records exceed the budget, and how many would fit."""

    def refused(candidates: int) -> bool:
        return _charged(task, seeds, attributes, budget, candidates) is None

    most = bisect.bisect_left(range(1, wanted + 1), True, key=refused)
    fits = f"at most {most:,} records made from seeds fit" if most else "no such record fits"
    return (
        f"{wanted:,} records made from seeds would cost more than epsilon "
        f"{float(budget.epsilon):g} and delta {float(budget.delta):g}: {fits} about {seeds:,} "
        "seeds; ask for fewer with --rows, use method bayes, which makes any number, or declare "
        "release.guarantee: plausible-deniability, which is not differential privacy of the table"
    )


def _require_seeds(k: int, least_seeds: int, task: Task) -> None:
    if k > least_seeds:
        several = task.neighbours.max_rows
        units = f", {several} for each unit," if several > 1 else ""
        raise PlanError(
            f"{k} plausible seeds{units} are more than the {least_seeds} that "
            f"{task.data_rows:,} rows give at least; declare a smaller release.options.k"
        )


def _down(number: float) -> Fraction:
    """A number rounded down to four significant digits."""
    digits = 3 - math.floor(math.log10(number))
    return Fraction(math.floor(Fraction(number) * 10**digits), 10**digits)
