"""The errors that a plan lets expect: from public facts, falling with epsilon and rows."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clinic import clinic
from homes import of_two_kinds
from panel import panel
from random_tables import random_table
from shape import release_once
from specs import spec_of

from cloister.evaluation.marginals import compare_marginals
from cloister.evaluation.persons import PersonColumns, compare_persons
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Counted, Forecast, Parameters, Plan, table_task, task_of
from cloister.schema.spec import Spec
from cloister.tasks.requests.error_forecast import (
    errors_by_unit,
    forecast_errors,
    pair_facts,
    unit_facts,
)

METHODS = ("mixture", "dpview", "dpview+", "copula", "copula-paper", "independent")
ROWS = 1_000


def random_task(rows=ROWS):
    return task_of(random_table(7).declared(), {"random": rows}).lead


def expected(task, method, epsilon):
    budget = Budget(Fraction(epsilon), Fraction(1, 10**6))
    return forecast_errors(task, make_plan(create(method), task, budget))


def of_lists(*sizes):
    """A task of lists of so many values."""
    attributes = {
        f"c{number}": {"type": "categorical", "values": [f"v{value}" for value in range(size)]}
        for number, size in enumerate(sizes)
    }
    spec = Spec.declared_in(Path(), spec_of("lists", ROWS, attributes, []))
    return task_of(spec, {"lists": ROWS}).lead


def counting(*tables, balanced=False):
    """A plan that counts tables."""
    return Plan("counts", (), (), Parameters(), Forecast(1, 1), counted=tables, balanced=balanced)


@pytest.mark.parametrize("method", METHODS)
def test_more_rows_or_epsilon_mean_less_error(method):
    by_epsilon = [expected(random_task(), method, e) for e in (4, 32, 128)]
    by_rows = [expected(random_task(n), method, 4) for n in (ROWS, 40 * ROWS)]
    for forecasts in (by_epsilon, by_rows):
        for errors in zip(*((each.one_way, each.two_way) for each in forecasts), strict=True):
            # views of another shape may leave an attribute a little less
            assert all(later < 1.03 * earlier for earlier, later in pairwise(errors))
            assert 1 > errors[0] > errors[-1] > 0


def test_one_histogram_of_even_shares_is_wrong_as_by_hand_and_as_often_as_simulated():
    # noise of 10 rows a count and drawing of 250 rows a cell, by hand
    errors = forecast_errors(of_lists(4), counting(Counted({"c0": 4}, 10.0)))
    noise = 100 * 250**2 / (100 + 250**2)
    by_hand = 4 * math.sqrt(noise + 250) / math.sqrt(2 * math.pi) / ROWS
    assert errors.one_way == pytest.approx(by_hand)
    assert errors.two_way is None
    rng = np.random.default_rng(5)
    drawn = rng.multinomial(ROWS, np.maximum(250 + rng.normal(0, 10, (4_000, 4)), 0) / ROWS * 0.999)
    simulated = np.abs(drawn - 250).sum(1).mean() / 2 / ROWS
    assert errors.one_way == pytest.approx(simulated, rel=0.15)


def test_tables_that_hold_an_attribute_add_to_what_is_known_of_it():
    lists, first = of_lists(4, 5), Counted({"c0": 4}, 10.0)
    second, both = Counted({"c1": 5}, 10.0), Counted({"c0": 4, "c1": 5}, 2.0)
    alone, more = (
        forecast_errors(lists, counting(*tables))
        for tables in ((first, second), (first, second, both))
    )
    assert more.one_way < alone.one_way
    assert more.two_way < alone.two_way
    assert (alone.uncounted, more.uncounted) == (1, 0)
    balanced = forecast_errors(lists, counting(first, second, both, balanced=True))
    assert balanced.two_way < more.two_way


def test_noise_without_end_leaves_no_more_than_all_rows_and_what_is_not_counted_no_forecast():
    lists = of_lists(40, 50)
    errors = forecast_errors(lists, counting(Counted({"c0": 40}, 1e9), Counted({"c1": 50}, 1e9)))
    assert errors.one_way < errors.two_way <= 1
    assert forecast_errors(lists, counting(Counted({"c0": 40}, 10.0))) is None
    assert expected(random_task(), "kamino", 4) is None


def test_the_forecast_is_of_the_order_of_a_release():
    # within 2 of most releases; a factor of four would be a broken formula
    trial = release_once(random_table(4), 4, "independent")
    errors = forecast_errors(trial.task, trial.plan)
    one, two, *_ = compare_marginals(trial.real, trial.synthetic)
    assert one.half_l1 / 4 < errors.one_way < 4 * one.half_l1
    assert two.half_l1 / 4 < errors.two_way < 4 * two.half_l1


def test_users_of_many_rows_are_told_of_their_noise():
    one = random_task(20 * ROWS)
    many = replace(one, neighbours=replace(one.neighbours, max_rows=10))
    assert expected(many, "mixture", 2).two_way > expected(one, "mixture", 2).two_way


def facts_of(task, method="mixture", epsilon=1):
    budget, method = Budget(Fraction(str(epsilon)), Fraction("1e-6")), create(method)
    plan = method.search(task, method.sequence(task), budget)
    return pair_facts("", SimpleNamespace(budget=budget), task, plan)


@pytest.mark.parametrize(
    ("columns", "epsilon", "said"),
    [
        (50, 0.3, r"^none, .* from about epsilon 0\.\d+ on \(about \d+ of 1,225\)$"),
        (50, 1, r"^about 34 of 1,225, those that tell most; in about \d parts each of q0"),
        (4, 30, r"^all 6, foremost those that tell most"),
    ],
)
def test_a_plan_says_how_many_pairs_are_learnt_and_what_would_add_to_them(columns, epsilon, said):
    spec = panel(2_000, columns).declared()
    (words,) = facts_of(table_task(spec, 2_000), "mixture", epsilon).values()
    assert re.search(said, words), words


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (1, "counted with each other column"),
        (7, "not counted with each other column, but chosen like all pairs: "),
    ],
)
def test_a_plan_says_which_declared_targets_are_counted_with_each_other_column(targets, said):
    task = table_task(panel(20_000, 10).declared(), 20_000)
    task = replace(task, targets=dict.fromkeys(task.domain.modelled[:targets]))
    assert facts_of(task)["targets"].startswith(said)


def test_of_a_method_of_single_columns_no_pairs_are_said_to_be_learnt():
    assert not facts_of(table_task(panel(2_000, 9).declared(), 2_000), "independent")


def test_the_forecast_of_rows_of_one_home_is_of_the_order_of_a_release():
    trial = release_once(of_two_kinds(), 1)
    (errors,) = errors_by_unit(trial.plan).values()
    homes = PersonColumns("home", (), 4)
    measured = compare_persons(trial.real, trial.synthetic, homes).units.metrics()
    assert measured["sizes.half_l1"] / 3 < errors.sizes < 3 * measured["sizes.half_l1"]
    assert measured["siblings.half_l1"] / 2 < errors.siblings < 2 * measured["siblings.half_l1"]
    assert (errors.across, errors.uncounted) == (None, 0)


def test_the_forecast_of_a_plan_that_counts_no_two_rows_is_a_bound():
    shape = clinic()
    rows = {name: len(frame) for name, frame in shape.frames.items()}
    task = task_of(Spec.declared_in(Path(), shape.spec), rows)
    few, many = (
        errors_by_unit(make_plan(create("relational"), task, Budget(Fraction(e), Fraction("1e-6"))))
        for e in ("0.5", 8)
    )
    assert few.keys() == many.keys() == {"visits", "calls", "drugs"}
    for table, errors in many.items():
        assert 0 < errors.sizes < few[table].sizes
        assert 0 < errors.across < few[table].across
        assert 0 < errors.siblings < few[table].siblings < 1
    said = [
        unit_facts(" in visits", errors["visits"])["siblings error in visits"]
        for errors in (few, many)
    ]
    assert re.fullmatch(r"at most about 0\.\d+; no column is counted in two rows.*", said[0])
    assert re.fullmatch(r"about 0\.\d+", said[1])
