"""What was charged is delivered: rows without a violation, whatever the table, rules and noise.

And its report: the facts and plots of all columns.
"""

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from calls import calls
from hospital import hospital
from leavers import leavers
from random_persons import random_persons
from random_tables import random_table
from selected import selected
from shape import release_once

from cloister.constraints.counting import count_violations
from cloister.errors import PlanError
from cloister.models.one_table import OneTableModel
from cloister.models.task import DatabaseTask
from cloister.schema.relations import Database
from cloister.tasks.release.analyst_facts import table_facts
from cloister.tasks.release.analyst_page import column_plot, matrix

TABLES = int(os.environ.get("CLOISTER_TEST_TABLES", "100"))
# In the default suite, of each method: as many as take a few seconds.
FEW = {
    "independent": 8, "dpview": 3, "bayes": 2, "deniability": 2, "copula": 2,
    "mixture": 1, "kamino": 1,
}  # fmt: skip
# The same of tables of persons, which are fitted twice.
FEW_OF_PERSONS = {"independent": 8, "dpview": 5, "copula": 3, "mixture": 5}
MANY = product(("auto", *FEW, "dpview+", "kamino-parallel"), (random_table, random_persons))


def declared_for(method, shape):
    """The shape, whose records made from seeds need no epsilon: hundreds of rows have none left."""
    if method != "deniability":
        return shape
    seeds = {"guarantee": "plausible-deniability", "options": {"k": 5}}
    return replace(shape, spec={**shape.spec, "release": {**shape.spec["release"], **seeds}})


def delivered(method, seed, random_shape=random_table):
    """Whether a random table was charged for; its release has every row and no violation."""
    shape = declared_for(method, random_shape(seed))
    epsilon = round(float(np.exp(np.random.default_rng(seed).uniform(-3, 2.3))), 3)
    try:
        trial = release_once(shape, epsilon, method)
    except PlanError:
        return False
    assert trial.synthetic.rows == trial.task.output_rows
    broken = [rule.name for rule in trial.task.hard if count_violations(rule, trial.synthetic)]
    assert not broken, (method, seed, epsilon)
    assert not persons_at_odds(trial), (method, seed, epsilon)
    assert_reported(trial)
    return True


def assert_reported(trial):
    """Check that the report has every column, with all rows in its groups, and can be drawn."""
    task = DatabaseTask.of("rows", trial.task)
    released = Database(task.schema, {"rows": trial.synthetic})
    (facts,) = table_facts(task, OneTableModel(task.schema, trial.model), released)
    assert [column.name for column in facts.columns] == list(trial.task.domain.modelled)
    matrix(facts)
    for column in facts.columns:
        groups = [*column.groups, *column.apart]
        assert sum(group.share for group in groups) == pytest.approx(1)
        assert len(groups) <= 20
        assert all(group.low <= group.high for group in groups if group.low is not None)
        column_plot(column)


@pytest.mark.parametrize("method", ["independent", pytest.param("copula", marks=pytest.mark.slow)])
def test_a_key_beside_orders_has_room(method):
    """Feasible sets of both orders left eleven values of a number that a key of 265 rows needs."""
    assert delivered(method, 2_001)


def persons_at_odds(trial):
    """Persons with more rows than they may have, or whose rows disagree on an attribute."""
    if trial.task.persons is None:
        return 0
    codes, persons = trial.synthetic.codes, trial.task.persons
    of_key = [np.stack([codes[persons.key], codes[name]]) for name in persons.attributes]
    several = [len(np.unique(pairs[0])) != np.unique(pairs, axis=1).shape[1] for pairs in of_key]
    return sum(several) + (np.bincount(codes[persons.key]) > trial.task.neighbours.max_rows).sum()


@pytest.mark.parametrize("shape", [leavers, calls])
@pytest.mark.parametrize("method", selected(FEW))
def test_what_checks_say_of_rows_holds_in_all(method, shape, brief_training):
    assert delivered(method, 1, lambda seed: shape(1_500, seed))


@pytest.mark.parametrize(
    ("shape", "numbers", "method"),
    [
        pytest.param(shape, numbers, *own.values, marks=own.marks)
        for shape, numbers in ((random_table, FEW), (random_persons, FEW_OF_PERSONS))
        for own in selected(numbers)
    ],
)
def test_random_tables_with_random_rules_are_released(shape, numbers, method, brief_training):
    charged = [delivered(method, seed, shape) for seed in range(numbers[method])]
    assert any(charged)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("method", "shape"), [*MANY, ("copula-paper", random_table)])
def test_many_random_tables_with_random_rules_are_released(method, shape):
    charged = sum(delivered(method, seed, shape) for seed in range(1_000, 1_000 + TABLES))
    print(f"{method}: {charged} of {TABLES} charged, all delivered")


SLOWER = [pytest.param(method, marks=pytest.mark.slow) for method in ("mixture", "kamino")]


@pytest.mark.parametrize("method", ["independent", "dpview", *SLOWER])
def test_a_deep_hierarchy_keeps_its_values(method):
    trial = release_once(hospital(), 1, method)
    assert not any(count_violations(rule, trial.synthetic) for rule in trial.task.hard)
    for name in ("provider", "city", "zip", "measure code"):
        kept = len(np.unique(trial.synthetic.codes[name]))
        # Releases keep from 0.43 to all (60 measured, deviation up to 0.26); a collapse, one value.
        assert kept > 0.1 * len(np.unique(trial.real.codes[name])), name
