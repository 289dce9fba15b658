"""Law: whatever the constraints, rows drawn from any tuple model violate none that is hard."""

import numpy as np
import pytest
from arbitrary_rows import bins_of, with_supports
from declared_table import domain_of
from examples import examples, few
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Date, Float, Integer, Ordinal

DOMAIN = domain_of(
    state=Categorical(type="categorical", values=list("ABCDE"), nullable=True),
    zip=Categorical(type="categorical", values=[f"z{i}" for i in range(40)]),
    grade=Ordinal(type="ordinal", values=["low", "mid", "high"], nullable=True),
    salary=Integer(type="integer", min=0, max=100_000, special=[0, -1], nullable=True),
    rate=Float(type="float", min=0, max=10, decimals=3),
    tax=Integer(type="integer", min=0, max=50),
    **{
        "from date": Date(type="date", min="2000-01-01", max="2020-12-31"),
        "to-date": Date(type="date", min="2000-01-01", max="2020-12-31", nullable=True),
    },
)

RULES = [
    "t1.zip = t2.zip and t1.state != t2.state",
    "t1.state = t2.state and t1.grade = t2.grade and t1.tax != t2.tax",
    "t1.state = t2.state and t1.salary > t2.salary and t1.rate < t2.rate",
    "t1.salary < t2.salary and t1.tax < t2.tax",
    "t1.grade >= t2.grade and t1.tax < t2.tax",
    "t1.`from date` > t1.`to-date`",
    "t1.grade = 'low' and t1.salary > 50000",
    "t1.grade != t2.grade and t1.tax <= t2.tax and t1.state = t2.state",
    "t1.rate > t2.rate and t1.tax > t2.tax",
    "t1.grade > t2.grade and t1.rate <= t2.rate and t1.state != t2.state",
    "t1.salary = t2.salary and t1.rate != t2.rate",
    "t.grade is missing and t.tax > 25",
    "t.`to-date` is not missing and t.state = 'A'",
    "t.`to-date` is missing and t.state is not missing and t.state != 'A'",
    "t1.state = t2.state and t1.grade is missing and t2.tax < 20",
]


def sampler_for(rules, seed):
    constraints = tuple(parse_denial(text, f"rule {at}") for at, text in enumerate(rules))
    bins = bins_of(DOMAIN, np.random.default_rng(seed))
    return constraints, *with_supports(DOMAIN, constraints, DOMAIN.names, bins, seed)


@pytest.mark.parametrize("rule", few(RULES, 8))
def test_each_rule_alone_is_taken_by_a_support(rule):
    constraints, sampler, built = sampler_for([rule], 1)
    table = sampler.sample(3000, SamplingSource(1))
    assert built.feasible_sets and not built.pair_rules
    assert table.rows == 3000
    assert count_violations(constraints[0], table) == 0


def test_numbers_that_a_text_determines_differ_as_much_as_texts_do():
    constraints, sampler, _ = sampler_for(["t1.zip = t2.zip and t1.rate != t2.rate"], 2)
    table = sampler.sample(3000, SamplingSource(1))
    assert count_violations(constraints[0], table) == 0
    zips, rates = (len(np.unique(table.codes[name])) for name in ("zip", "rate"))
    assert rates > 0.9 * zips


@settings(max_examples=examples(25))
@given(
    rules=st.lists(st.sampled_from(RULES), min_size=2, max_size=3, unique=True),
    seed=st.integers(0, 10**6),
)
def test_rules_together_are_kept(rules, seed):
    constraints, sampler, _ = sampler_for(rules, seed)
    table = sampler.sample(400, SamplingSource(seed))
    assert not any(count_violations(constraint, table) for constraint in constraints)


GRADED = "t1.tax = t2.tax and t1.grade != t2.grade"


@pytest.mark.parametrize(
    "other", ["t1.tax > t2.tax and t1.grade < t2.grade", "t.tax > 10 and t.grade = 'low'"]
)
@pytest.mark.parametrize("seed", few(range(5), 2))
def test_a_right_side_that_another_rule_forbids_is_not_chosen(other, seed):
    """Nothing but a missing grade would be left."""
    _, _, built = sampler_for([GRADED, other], seed)
    pairs = []
    for feasible_set in built.feasible_sets:
        tax, grade = (feasible_set.attributes.index(name) for name in ("tax", "grade"))
        pairs.append({(row[tax], row[grade]) for row in feasible_set.levels.tolist()})
    missing = len(DOMAIN["grade"].labels)
    taxes = {tax for tax, _ in pairs[0]}
    assert {tax for tax, grade in set.intersection(*pairs) if grade != missing} == taxes


def test_chunks_do_not_depend_on_how_many_rows_are_asked():
    _, sampler, _ = sampler_for(RULES[:1], 3)
    few, many = sampler.sample(40_000, SamplingSource(5)), sampler.sample(70_000, SamplingSource(5))
    assert all(
        (few.codes[name][:32_768] == many.codes[name][:32_768]).all() for name in DOMAIN.names
    )
