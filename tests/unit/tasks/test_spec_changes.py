"""Changes of a spec that a plan names: what gains by the forecast, and nothing that may not go."""

from dataclasses import replace
from fractions import Fraction

import pytest
from diagnoses import diagnoses
from panel import panel
from questionnaire import questionnaire

from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Counted, table_task
from cloister.schema.declarations import AcceptanceSpec, CriterionSpec
from cloister.tasks.requests.error_forecast import forecast_errors
from cloister.tasks.requests.spec_changes import changes_that_gain

ROWS = 2_000
NUMBERS = tuple(f"q{number:02d}" for number in range(4, 50, 5))
"""The numbers of the panel, from 0 to 100."""


def task_of_shape(shape, **without):
    spec = dict(shape.spec)
    attributes = {
        name: {key: value for key, value in attribute.items() if key != without.get(name)}
        for name, attribute in spec["attributes"].items()
    }
    return table_task(replace(shape, spec=spec | {"attributes": attributes}).declared(), ROWS)


def changes_of(task, epsilon, method="mixture"):
    budget = Budget(Fraction(str(epsilon)), Fraction("1e-6"))
    plan = make_plan(create(method), task, budget)
    return changes_that_gain(task, plan, budget), plan


def test_numbers_of_many_cells_are_named_with_the_error_that_the_plan_forecasts():
    task = task_of_shape(panel(ROWS, 50))
    changes, plan = changes_of(task, 1)
    (coarser,) = (change for change in changes if change.write == "bins: 16")
    assert coarser.columns == NUMBERS
    assert coarser.before == pytest.approx(forecast_errors(task, plan).two_way)
    assert 0.05 <= coarser.gain < 0.3
    assert changes == sorted(changes, key=lambda change: -change.gain)


def test_columns_left_out_are_those_of_most_cells_and_let_pairs_be_counted():
    changes, _ = changes_of(task_of_shape(panel(ROWS, 50)), 0.3)
    begins = [change for change in changes if change.begins_pairs]
    assert [change.write for change in begins] == ["ignore"]
    assert begins[0].pairs_before == 0 < begins[0].pairs_after
    assert set(NUMBERS) < {*begins[0].columns}


@pytest.mark.parametrize("method", ["independent", "dpview", "copula"])
def test_every_method_that_forecasts_errors_has_its_changes(method):
    changes, _ = changes_of(task_of_shape(panel(ROWS, 20)), 0.5, method)
    assert changes
    assert all(change.after < change.before for change in changes)


def test_nothing_is_named_that_gains_next_to_nothing():
    changes, _ = changes_of(task_of_shape(panel(ROWS, 20)), 100)
    assert not changes


def test_columns_of_targets_stay_as_they_are():
    task = replace(task_of_shape(panel(ROWS, 50)), targets=dict.fromkeys(NUMBERS[:3]))
    changes, _ = changes_of(task, 0.3)
    assert changes
    assert not {name for change in changes for name in change.columns} & {*NUMBERS[:3]}


def test_a_list_of_codes_is_named_with_its_prefixes_until_it_has_a_tree():
    shape = diagnoses(ROWS)
    changes, _ = changes_of(task_of_shape(shape, code="hierarchy"), 1)
    (tree,) = (change for change in changes if change.write == "hierarchy: [1, 3]")
    assert tree.columns == ("code",)
    assert tree.marginals == "the 18 nodes of the first level"
    assert tree.after < tree.before / 2
    declared, _ = changes_of(task_of_shape(shape), 1)
    assert not any("hierarchy" in change.write for change in declared)


def test_bins_that_grow_from_zero_stay():
    changes, _ = changes_of(task_of_shape(questionnaire(ROWS, 50)), 0.3)
    coarser = {name for c in changes if c.write == "bins: 16" for name in c.columns}
    assert coarser == {f"q{number:02d}" for number in range(2, 50, 4)}


def test_nothing_is_tried_under_acceptance_criteria_or_without_a_forecast():
    task = task_of_shape(panel(ROWS, 20))
    _, plan = changes_of(task, 0.5)
    budget = Budget(Fraction(1), Fraction("1e-6"))
    criterion = CriterionSpec(marginal=("q00", "q01"), largest=0.1)
    accepted = replace(task, acceptance=AcceptanceSpec(criteria=(criterion,)))
    assert not changes_that_gain(accepted, plan, budget)
    unknown = replace(plan, counted=(Counted({"q00": 2}, 1.0),))
    assert not changes_that_gain(task, unknown, budget)
