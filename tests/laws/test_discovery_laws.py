"""Measured domains keep their epsilon on neighbouring columns; the test catches a broken door."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.discovery import DomainPlan, discover, plan_domains
from cloister.privacy.door.table import PrivateColumns
from cloister.privacy.events import Event, repeat
from cloister.privacy.mechanisms.noise import DiscreteLaplace, Neighbours, SparseHistogram
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.raw_columns import BucketCounts, Line, Presence, RowCount, TextCounts
from cloister.schema.attributes import Boolean, Categorical, Integer

CHANCE = 1e-10
FEW, MANY = 1_200, pytest.param(20_000, marks=pytest.mark.slow)
KEY = b"k" * 32
AGE = Integer(type="integer", min=0, max=0)
CITY = Categorical(type="categorical", values=["none"])

Draw = Callable[[int, int], np.ndarray]


class Memory:
    """A journal that stores nothing."""

    def answer(self, _request, draw):
        return np.array(draw())


def door(
    frame: pd.DataFrame, planned: Event, neighbours: Neighbours = Neighbours(), seed: int = 0
) -> PrivateColumns:
    return PrivateColumns(frame, KEY, neighbours, planned, Memory(), NoiseSource.insecure(seed))


def at_least(first: np.ndarray, second: np.ndarray, delta: float) -> float:
    """A lower bound of epsilon from how often one event happened (Clopper and Pearson)."""
    hits, others, trials = int(first.sum()), int(second.sum()), len(first)
    low = float(beta.ppf(CHANCE, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.isf(CHANCE, others + 1, trials - others)) if others < trials else 1.0
    return math.log((low - delta) / high) if low > delta else 0.0


def measured(draw: Draw, trials: int, delta: float) -> float:
    """A lower bound of epsilon, from half-lines of each statistic (trials, k)."""
    first, second = draw(0, trials), draw(1, trials)
    found = [0.0]
    for column in range(first.shape[1]):
        for point in range(-12, 14):
            for a, b in ((first, second), (second, first)):
                upper = a[:, column] >= point, b[:, column] >= point
                found += [at_least(*upper, delta), at_least(~upper[0], ~upper[1], delta)]
    return max(found)


@dataclass(frozen=True)
class Loud(DiscreteLaplace):
    """A third of the noise that is claimed."""

    def release(self, counts, sensitivity, source):
        return DiscreteLaplace(3 * self.epsilon).release(counts, sensitivity, source)


@dataclass(frozen=True)
class Eager(SparseHistogram):
    """Releases every value that noise left positive."""

    def threshold(self, sensitivity):
        return 1


class Leaky(RowCount):
    """Returns the exact number of rows, which it kept for that."""

    def exact(self, rows, source):
        self.kept.append(len(rows.frame))
        return super().exact(rows, source)

    def outcome(self, noisy):
        return self.kept[-1]

    kept: ClassVar[list[int]] = []


NEIGHBOURS = (
    pd.DataFrame({"flag": ["True", "False"]}),
    pd.DataFrame({"flag": ["True", "False", None]}),
)
LOUD, ONE = Loud(Fraction(1)), DiscreteLaplace(Fraction(1))


def counts_draw(mechanism: DiscreteLaplace) -> Draw:
    """Noise on counts of a column, and of the same column with a row added, less the counts."""
    flag = Presence("flag", Boolean(type="boolean"))

    def draw(which: int, trials: int) -> np.ndarray:
        planned = repeat(mechanism.event(Neighbours().partition), trials)
        private, query = door(NEIGHBOURS[which], planned, seed=which), BucketCounts(flag)
        answers = [private.answer(query, mechanism, "flag") for _ in range(trials)]
        return np.array(answers) - np.array([2, 0, 0])

    return draw


def rows_draw(query: RowCount) -> Draw:
    def draw(which: int, trials: int) -> np.ndarray:
        planned = repeat(ONE.event(Neighbours().partition), trials)
        private = door(NEIGHBOURS[which], planned, seed=which)
        return np.array([[private.answer(query, ONE, "rows") - 2] for _ in range(trials)])

    return draw


def values_draw(mechanism: SparseHistogram) -> Draw:
    """The released count, or 0, of a value that only one row holds: another one each trial."""

    def draw(which: int, trials: int) -> np.ndarray:
        words = [f"word {number}" for number in range(trials)] if which else [None] * trials
        frame = pd.DataFrame({"city": words}, dtype="str")
        private = door(frame, mechanism.event(Neighbours().partition), seed=which)
        numbers, counts = private.answer(TextCounts("city", CITY), mechanism, "city")
        released = dict(zip(private.words("city", CITY, numbers), counts, strict=True))
        return np.array([[released.get(f"word {number}", 0)] for number in range(trials)])

    return draw


@pytest.mark.parametrize("trials", [FEW, MANY])
@pytest.mark.parametrize("draw", [counts_draw(ONE), rows_draw(RowCount())], ids=["counts", "rows"])
def test_noisy_answers_stay_under_their_claim_and_come_near(draw: Draw, trials: int) -> None:
    claim = epsilon(ONE.event(Neighbours().partition), 0, "add_remove")
    assert 0.5 * claim < measured(draw, trials, 0.0) <= claim


SPARSE = SparseHistogram(ONE, Fraction(1, 100))


@pytest.mark.parametrize("trials", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_value_that_occurs_once_is_released_with_a_chance_of_at_most_delta(trials: int) -> None:
    released = values_draw(SPARSE)(1, trials)[:, 0] > 0
    least_rate = float(beta.ppf(CHANCE, max(1, released.sum()), trials - released.sum() + 1))
    assert least_rate <= SPARSE.delta
    assert measured(values_draw(SPARSE), trials, 0.01) <= 1


@pytest.mark.parametrize(
    ("draw", "trials", "delta"),
    [
        (counts_draw(LOUD), FEW, 0.0),
        (rows_draw(Leaky()), FEW, 0.0),
        (values_draw(Eager(ONE, Fraction(1, 100))), 20_000, 0.01),
    ],
    ids=["too little noise", "no noise", "eager"],
)
def test_a_broken_door_is_caught(draw: Draw, trials: int, delta: float) -> None:
    assert measured(draw, trials, delta) > 1


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "budget", [(Fraction(1, 2), Fraction(1, 10**6)), (Fraction(4), Fraction(1, 10**9))]
)
def test_the_plan_is_charged_and_no_more_than_the_budget(relation, rows, budget) -> None:
    attributes = {"age": AGE, "city": CITY, "flag": Boolean(type="boolean")}
    neighbours = Neighbours(relation, rows)
    plan = plan_domains(attributes, neighbours, *budget)
    assert 0.98 * budget[0] < epsilon(plan.event, budget[1], relation) <= budget[0]
    frame = pd.DataFrame({"age": ["3"] * 50, "city": ["Rome"] * 50, "flag": ["True"] * 50})
    private = door(frame, plan.event, neighbours)
    discover(private, plan, lambda *_: None)
    assert not private.plan_budget.remaining


def test_an_empty_part_seldom_reaches_the_threshold() -> None:
    plan, line = DomainPlan({"age": AGE}, Neighbours(), ONE, Fraction(0)), Line("age", AGE)
    frame = pd.DataFrame({"age": [None] * 3}, dtype="str")
    private = door(frame, repeat(ONE.event(Neighbours().partition), 200))
    answers = [private.answer(BucketCounts(line), ONE, "age") for _ in range(200)]
    mistakes = sum((answer[: line.missing] >= plan.threshold).any() for answer in answers)
    assert mistakes < 6  # at most 0.2 are expected; 6 have a chance below 1e-7
