"""How the budget of joint tables of hard constraints is shared, from public sizes."""

import math
from fractions import Fraction

import pytest
from noisy_tables import partition_of

from cloister.constraints import parse_denial
from cloister.models.mixture.schedule import joint_budget
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.domain import Domain

SIZES = {"zip": 300, "city": 80, "state": 12}
TABLES = [("zip", "city"), ("city", "state")]


def task() -> Task:
    domain = Domain(tuple(partition_of(name, size).column for name, size in SIZES.items()))
    rules = (
        parse_denial("t1.zip = t2.zip and t1.city != t2.city", "zip"),
        parse_denial("t1.city = t2.city and t1.state != t2.state", "city"),
    )
    return Task(domain, rules, 20_000, Neighbours())


def shares_of(part: float, weights: dict[tuple[str, ...], Fraction], values: int) -> list[float]:
    """The share of each table, of those of tables and of single values."""
    squares = [float(weight) ** 2 for weight in weights.values()]
    return [part * square / (sum(squares) + values) for square in squares]


def test_a_dependency_of_many_left_sides_gets_more_where_that_is_enough() -> None:
    signal = 3_347.0  # 20,000 rows at epsilon 1
    part, weights = joint_budget(task(), TABLES, 0, SIZES, signal)
    assert weights["city", "state"] == 1
    assert weights["zip", "city"] > 2
    share = dict(zip(weights, shares_of(part, weights, 0), strict=True))["zip", "city"]
    assert math.sqrt(2 * share) * signal / 300 == pytest.approx(6, rel=0.01)


@pytest.mark.parametrize("signal", [100.0, 200.0, 60_000.0])
def test_all_get_the_same_where_it_is_no_use_or_not_needed(signal: float) -> None:
    part, weights = joint_budget(task(), TABLES, 1, SIZES, signal)
    assert set(weights.values()) == {1}
    assert part == pytest.approx(0.06)
    assert len(weights) == 2


@pytest.mark.parametrize("signal", [50.0, 1_500.0, 2_000.0, 3_000.0, 10_000.0])
def test_tables_take_no_more_than_their_bounds(signal: float) -> None:
    part, weights = joint_budget(task(), TABLES, 2, SIZES, signal)
    assert max(shares_of(part, weights, 2)) <= 0.2 + 1e-6
    assert part <= 0.3 + 1e-6


def test_other_rules_and_no_tables_get_what_they_had() -> None:
    assert joint_budget(task(), [("state", "zip")], 0, SIZES, 3_347.0)[1] == {("state", "zip"): 1}
    assert joint_budget(task(), [], 0, SIZES, 3_347.0)[1] == {}
