"""The error that a plan lets expect: from public facts, falling with epsilon and rows."""

from dataclasses import replace
from fractions import Fraction

import pytest
from random_tables import random_table
from shape import release_once

from cloister.evaluation.marginals import compare_marginals
from cloister.models.quality import CURVES, forecast_error
from cloister.models.task import Budget, task_of

DELTA = Fraction(1, 10**6)


def task(rows=1_000):
    return task_of(random_table(7).declared(), {"random": rows})


def predicted(task, method, epsilon):
    return forecast_error(task, method, Budget(Fraction(epsilon), DELTA))


@pytest.mark.parametrize("method", CURVES)
def test_more_rows_or_epsilon_never_mean_more_error(method):
    by_epsilon = [forecast_error(task(), method, Budget(Fraction(e), DELTA)) for e in (1, 2, 8, 64)]
    by_rows = [
        forecast_error(task(n), method, Budget(Fraction(1), DELTA)) for n in (99, 999, 9_999)
    ]
    for errors in (by_epsilon, by_rows):
        assert errors == sorted(errors, reverse=True)
        assert all(0 < error < 1 for error in errors)


def test_what_was_not_measured_is_not_forecast():
    assert forecast_error(task(), "halves", Budget(Fraction(1), DELTA)) is None
    assert forecast_error(task(), "dpview", Budget(Fraction(1), Fraction(0))) is None


def test_the_forecast_is_of_the_order_of_a_release():
    # within 1.5 of most releases; a factor of four would be a broken formula
    trial = release_once(random_table(4), 1, "independent")
    forecast = forecast_error(trial.task, "independent", Budget(Fraction(1), DELTA))
    measured = next(
        w.half_l1 for w in compare_marginals(trial.real, trial.synthetic) if w.ways == 2
    )
    assert measured / 4 < forecast < 4 * measured


def test_users_of_many_rows_are_told_of_their_noise():
    one = task()
    many = replace(one, neighbours=replace(one.neighbours, max_rows=10))
    assert predicted(many, "mixture", 1) > predicted(one, "mixture", 1)
