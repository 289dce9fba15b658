"""Attacks on rows alone: all is found in the data released as they are, nothing in fresh units."""

import numpy as np
import pytest
from scipy.stats import binom

from cloister.audit.bounds import epsilon_of_guesses
from cloister.audit.tables import PERSON, ROW, TABLES


def late_imports():
    global COPIES, FRESH, Field, RowAttack, RowsShown
    from cloister.audit.rows import COPIES, FRESH, Field, RowAttack, RowsShown


SLOW = pytest.mark.slow
UNITS = (ROW, pytest.param(PERSON, marks=SLOW), TABLES)


def shown(method, folder, unit=ROW, releases=16):
    attack = RowAttack(method, "1", "1e-6", unit=unit, units=200)
    field = Field(attack, folder)
    return RowsShown.of(attack, [field.trial(number) for number in range(releases)])


@pytest.mark.parametrize("unit", UNITS)
def test_data_released_as_they_are_are_found(unit, tmp_path):
    seen = shown(COPIES, tmp_path, unit)
    assert seen.membership["distance"].low > 0.98
    assert seen.membership["cells"].low > 0.7
    assert seen.membership["trained"].low > 0.95
    assert seen.epsilon > 3
    assert seen.ordinary.value > 0.9
    assert all(leak.value > 0.3 for leak in seen.leakage.values())


@pytest.mark.parametrize(
    "unit", [ROW, *(pytest.param(unit, marks=SLOW) for unit in (PERSON, TABLES))]
)
def test_nothing_is_found_in_fresh_units(unit, tmp_path):
    seen = shown(FRESH, tmp_path, unit)
    assert all(abs(by.auc - 0.5) < 0.07 for by in seen.membership.values())
    assert all(hits < 0.2 for hits in seen.hits.values())
    assert seen.epsilon < 0.5
    assert abs(seen.ordinary.value - 0.5) < 0.03
    assert all(abs(leak.value) < 0.1 for leak in seen.leakage.values())


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        ("independent", ROW),
        pytest.param("independent", PERSON, marks=SLOW),
        pytest.param("relational-independent", TABLES, marks=SLOW),
    ],
)
def test_releases_show_little_of_what_there_is_to_find(method, unit, tmp_path):
    """Their noise is new each time: bounds are five deviations or more above the means."""
    seen = shown(method, tmp_path, unit)
    assert all(abs(by.auc - 0.5) < 0.3 for by in seen.membership.values())
    assert all(hits < 0.5 for hits in seen.hits.values())
    assert seen.epsilon < 1
    assert abs(seen.ordinary.value - 0.5) < 0.06
    assert all(abs(leak.value) < 0.25 for leak in seen.leakage.values())


def test_halves_and_coins_follow_from_the_number_and_a_method_without_a_plan_gets_more(tmp_path):
    field = Field(RowAttack(FRESH, "1", "1e-6", units=200), tmp_path)
    first, again, second = (field.trial(number)._replace(seconds=0) for number in (0, 0, 1))
    assert first == again
    assert first.coins != second.coins
    assert RowAttack.of("deniability", "4", "1e-6", None).drawn == 20
    assert RowAttack.of("independent", "4", "1e-6", None).drawn is None


def test_the_bound_of_guesses_is_that_of_the_binomial_tail():
    """At delta 0 all of 100 right need q^100 > 0.05, q = exp(eps) / (1 + exp(eps))."""
    q = 0.05**0.01
    assert epsilon_of_guesses(100, 100, 1_000, 0) == pytest.approx(np.log(q / (1 - q)), abs=0.01)
    assert epsilon_of_guesses(60, 100, 1_000, 0) == pytest.approx(0.06, abs=0.02)
    assert epsilon_of_guesses(50, 100, 1_000, 0) == epsilon_of_guesses(0, 100, 1_000, 0) == 0
    bounds = [epsilon_of_guesses(100, 100, 1_000, delta) for delta in (0, 1e-5, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] - bounds[1] < 0.2 and bounds[2] == 0


@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_guesses_of_a_randomised_response_seldom_need_more_than_it_has(epsilon):
    """How likely a wrong bound is, over all numbers of right guesses."""
    right = np.arange(201)
    wrong = [epsilon_of_guesses(int(k), 200, 200, 0) > epsilon for k in right]
    assert 0.01 < binom.pmf(right, 200, 1 / (1 + np.exp(-epsilon)))[wrong].sum() <= 0.05
