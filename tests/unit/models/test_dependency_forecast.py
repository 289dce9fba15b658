"""What a plan says of dependencies before a charge, and the epsilon that it looks for."""

from fractions import Fraction
from functools import cache

import pytest
from hospital import hospital

from cloister.models.protocol import make_plan
from cloister.models.quality import forecast_dependencies
from cloister.models.registry import create
from cloister.models.task import Budget, task_of

METHODS = ("mixture", "kamino", "dpview", "independent")


@cache
def hospital_task(rows):
    return task_of(hospital(rows).declared(), {"hospital": rows}).lead


def forecasts(method, epsilon, rows=1_000):
    task = hospital_task(rows)
    budget = Budget(Fraction(str(epsilon)), Fraction(1, 10**6))
    plan = make_plan(create(method), task, budget)
    return forecast_dependencies(task, plan.sequence, plan.mapped), budget


@pytest.mark.parametrize("method", METHODS)
def test_every_dependency_has_a_forecast_that_more_epsilon_betters(method):
    small, _ = forecasts(method, 2)
    large, _ = forecasts(method, 400)
    assert len(small) == len(large) == 15
    for before, after in zip(small, large, strict=True):
        assert before.name == after.name
        assert after.deviation is None or after.deviation < before.deviation


def test_the_epsilon_that_is_named_is_enough():
    small, budget = forecasts("mixture", 2, rows=20_000)
    named = [(forecast.epsilon(budget), forecast.name) for forecast in small]
    found = sorted((enough, name) for enough, name in named if enough is not None)
    for enough, name in (found[0], found[-1]):
        later, _ = forecasts("mixture", float(enough), rows=20_000)
        with_more = next(after for after in later if after.name == name)
        # shares of the budget move a little with epsilon
        assert with_more.rows > 0.7 * with_more.least_rows, name


def test_left_sides_without_a_table_are_said_to_be_arbitrary():
    few, budget = forecasts("mixture", 2, rows=300)
    uncounted = [forecast for forecast in few if forecast.deviation is None]
    assert uncounted
    assert all(not forecast.learnt and forecast.epsilon(budget) is None for forecast in uncounted)
