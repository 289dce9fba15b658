"""Kamino's search spends the budget, never wastes a greater one, and says what it will do.

All from public inputs.
"""

from fractions import Fraction

import pytest
from declared_table import domain_of
from examples import examples, few
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints import parse_denial
from cloister.errors import PlanError
from cloister.models.kamino.paper.recipes import HYPER_LEVELS, hyper_runs
from cloister.models.kamino.plan import learning_rate
from cloister.models.kamino.recipe import single_runs
from cloister.models.protocol import make_plan
from cloister.models.registry import create
from cloister.models.task import Budget, Task
from cloister.privacy.accounting.accountants import epsilon
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.schema.attributes import Boolean, Categorical, Integer


def late_imports():
    global Units
    from cloister.models.kamino.paper.heads import Units


DELTA = Fraction(1, 10**6)
DOMAIN = domain_of(
    **{f"flag {at}": Boolean(type="boolean") for at in range(5)},
    town=Categorical(type="categorical", values=list("ABCDEFG")),
    region=Categorical(type="categorical", values=list("XYZ")),
    wage=Integer(type="integer", min=0, max=10**6, special=[0], nullable=True),
)
HARD = parse_denial("t1.town = t2.town and t1.region != t2.region", "regions")
SOFT = parse_denial("t1.region = t2.region and t1.wage > t2.wage", "wages", hard=False)
VARIANTS = ["kamino", "kamino-sequential", "kamino-parallel", "kamino-paper"]


def searched(method, eps, rows=20_000, constraints=(HARD, SOFT)):
    task = Task(DOMAIN, constraints, rows, Neighbours())
    return make_plan(create(method), task, Budget(eps, DELTA))


def noises(made):
    names = ("histogram_noise", "joint_noise", "weight_noise", "training_noise")
    return [float(getattr(made.parameters, name) or 0) for name in names]


@pytest.mark.parametrize("method", few(VARIANTS, 1))
@settings(max_examples=examples(6))
@given(
    eps=st.fractions(Fraction(1, 10), 10, max_denominator=100),
    more=st.fractions(Fraction(1, 50), 3, max_denominator=50),
)
def test_a_greater_budget_never_gives_a_noisier_plan(method, eps, more):
    small, large = searched(method, eps), searched(method, eps * (1 + more))
    assert all(b <= a for a, b in zip(noises(small), noises(large), strict=True))
    if method == "kamino-paper":  # Algorithm 6 lowers the steps too
        assert large.parameters.steps >= small.parameters.steps
    else:
        assert large.parameters.steps == small.parameters.steps
    assert large.parameters.learning_rate >= small.parameters.learning_rate


@pytest.mark.parametrize("method", VARIANTS)
@pytest.mark.parametrize("eps", [Fraction(1, 10), Fraction(1), Fraction(10)])
def test_the_plan_spends_the_budget_and_no_more(method, eps):
    assert 0.97 * eps < epsilon(searched(method, eps).event, DELTA, "add_remove") <= eps


def test_small_tables_and_budgets_have_a_plan_or_say_what_would_do():
    for method in VARIANTS:
        assert searched(method, Fraction(1), rows=500).parameters.sampling_rate == Fraction(1, 2)
        assert searched(method, Fraction(10), rows=20).stages
        with pytest.raises(PlanError, match="500 rows.*use at least about"):
            searched(method, Fraction(1, 20), rows=500)


def test_each_stage_is_explained_in_words():
    texts = {stage.name: stage.explanation for stage in searched("kamino", Fraction(1)).stages}
    assert "histogram of 8 attributes; noise of" in texts["histograms"]
    assert "town x region" in texts["joint tables"]
    assert "1 soft constraint" in texts["soft constraints"]
    said = "200 steps of DP-SGD on 8 attributes together, in batches of about 1,250 rows"
    assert said in texts["training"]
    assert "sub-model" in searched("kamino-sequential", Fraction(1)).stages[-1].explanation


def test_hyper_attributes_join_neighbours_of_small_domains():
    assert hyper_runs([*[2] * 7, 5, 100, 300]) == (tuple(range(7)), (7,), (8,), (9,))
    assert single_runs([2, 3]) == ((0,), (1,))
    assert max(Units(hyper_runs([2] * 20), (2,) * 20).levels) == HYPER_LEVELS


def test_the_learning_rate_falls_with_the_noise():
    rates = [learning_rate(2000, 200, noise) for noise in (1, 5, 50, 500, 5000)]
    assert rates == sorted(rates, reverse=True) and rates[0] == 4 * rates[-1]
