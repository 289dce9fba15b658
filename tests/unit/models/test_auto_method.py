"""The method that `auto` means: by public facts, with a plan, and a reason."""

from fractions import Fraction

import pytest
from declared_table import domain_of

from cloister.errors import PlanError
from cloister.models.protocol import make_plan
from cloister.models.registry import choose_method, create
from cloister.models.task import Budget, Task
from cloister.privacy.events import Relation
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Boolean, Categorical, Integer

DOMAIN = domain_of(
    town=Categorical(type="categorical", values=list("ABCDE")),
    wage=Integer(type="integer", min=0, max=500, bins=25),
    member=Boolean(type="boolean"),
)
USUAL = Fraction(1, 10**6)


def task_of(rows=5_000, neighbours=None):
    return Task(DOMAIN, (), rows, neighbours or Neighbours())


@pytest.mark.parametrize(
    ("task", "delta", "method"),
    [
        (task_of(), USUAL, "mixture"),
        (task_of(), Fraction(0), "mixture"),
        (task_of(rows=900), Fraction(0), "independent"),
        (task_of(neighbours=Neighbours(max_rows=6)), Fraction(0), "independent"),
        (task_of(rows=900), USUAL, "mixture"),
        (task_of(neighbours=Neighbours(Relation.REPLACE_ONE, 3)), USUAL, "mixture"),
    ],
)
def test_the_choice_has_a_plan_and_a_reason(task, delta, method):
    budget = Budget(Fraction(1), delta)
    choice = choose_method(task, budget)
    assert choice.method == method
    assert "least error" in choice.reason or "few rows" in choice.reason
    assert make_plan(create(choice.method), task, budget).method == method


def test_a_budget_that_no_method_can_use_is_refused_with_the_reason():
    with pytest.raises(PlanError, match="epsilon"):
        choose_method(task_of(rows=5), Budget(Fraction(1, 1000), USUAL))
