"""A plan is charged only if it keeps its epsilon, to the last digit."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from cloister.errors import PrivacyError
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.tasks.requests.plan import require_within_budget

DOMAIN = Domain.of(
    {name: Integer(type="integer", min=0, max=4) for name in ("a", "b", "c")}, Path()
)


@pytest.mark.parametrize(
    "neighbours", [Neighbours(), Neighbours("replace_one"), Neighbours(max_rows=5)]
)
@pytest.mark.parametrize(
    ("method", "budget"),
    [
        ("mixture", Budget(Fraction(1, 3), Fraction(1, 10**6))),
        ("mixture", Budget(Fraction("0.7"), Fraction(0))),
        ("dpview", Budget(Fraction("0.1"), Fraction(0))),
        ("dpview+", Budget(Fraction("1.1"), Fraction(0))),
        ("copula", Budget(Fraction(1), Fraction(0))),
        ("copula", Budget(Fraction("0.3"), Fraction(0))),
        ("bayes", Budget(Fraction(1), Fraction(1, 10**6))),
        ("kamino", Budget(Fraction(1), Fraction(1, 10**6))),
        ("independent", Budget(Fraction("0.7"), Fraction(1, 10**6))),
    ],
)
def test_plans_keep_their_epsilon_and_nothing_more_is_charged(method, budget, neighbours):
    task = Task(DOMAIN, (), 20_000, neighbours)
    made = make_plan(create(method), task, budget)
    require_within_budget(made, budget, task)
    with pytest.raises(PrivacyError, match="costs more than its epsilon"):
        require_within_budget(replace(made, stages=made.stages * 2), budget, task)
