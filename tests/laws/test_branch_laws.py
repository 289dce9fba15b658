"""Laws: branches share no row, and together have the rows that rules on single rows allow."""

from pathlib import Path

import numpy as np
import pytest
from arbitrary_rows import bins_of
from declared_table import domain_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints import bind, constraints_of, parse_denial
from cloister.models.feasible_sets import selection
from cloister.models.feasible_sets.branches import find_branches
from cloister.models.feasible_sets.feasible_set import grid
from cloister.schema.attributes import Boolean, Categorical, Integer, Ordinal
from cloister.schema.declarations import ConstraintDeclaration

DOMAIN = domain_of(
    work=Categorical(type="categorical", values=["full", "part", "none"], nullable=True),
    pay=Integer(type="integer", min=0, max=3, nullable=True),
    hours=Integer(type="integer", min=0, max=3),
    boss=Categorical(type="categorical", values=["yes", "no"], nullable=True),
)
PREDICATES = [
    *(f"t.work {op} '{value}'" for op in ("=", "!=") for value in ("full", "part", "none")),
    *(
        f"t.{name} is {word}"
        for name in ("work", "pay", "boss")
        for word in ("missing", "not missing")
    ),
    *("t.pay > 1", "t.pay < t.hours", "t.hours = 0", "t.boss = 'yes'", "t.hours >= 2"),
]


def branches_by(domain, rules):
    return find_branches(domain, rules, bins_of(domain, np.random.default_rng(1)), domain.names)


@settings(max_examples=examples(60))
@given(
    rules=st.lists(
        st.lists(st.sampled_from(PREDICATES), min_size=1, max_size=3, unique=True),
        min_size=1,
        max_size=5,
    )
)
def test_branches_are_disjoint_and_have_what_the_rules_allow(rules):
    parsed = [parse_denial(" and ".join(rule), f"rule {at}") for at, rule in enumerate(rules)]
    bins = bins_of(DOMAIN, np.random.default_rng(1))
    joint = grid([bins[name].size for name in DOMAIN.names])
    allowed = np.ones(len(joint), dtype=bool)
    for rule in parsed:
        levels = [bins[name].levels for name in rule.attributes]
        listed = selection.row_set(bind(rule, DOMAIN), levels).levels
        columns = joint[:, [DOMAIN.names.index(name) for name in rule.attributes]]
        allowed &= (columns[:, None] == listed[None]).all(2).any(1)
    groups = find_branches(DOMAIN, parsed, bins, DOMAIN.names)
    if not allowed.any():
        return
    inside = np.ones(len(joint), dtype=int)
    for branches in groups:
        times = np.zeros(len(joint), dtype=int)
        for branch in range(branches.count):
            rows = np.ones(len(joint), dtype=bool)
            for name, levels in zip(branches.attributes, branches.allowed, strict=True):
                rows &= levels[branch][joint[:, DOMAIN.names.index(name)]]
            times += rows
        inside *= times
    np.testing.assert_array_equal(inside, allowed)


def test_questions_asked_of_the_employed_alone_are_one_event():
    names = [f"q{number:02}" for number in range(20)]
    asked = {name: Boolean(type="boolean", true="yes", false="no", nullable=True) for name in names}
    work = Categorical(type="categorical", values=["full", "part", "retired", "student"])
    checks = [
        ConstraintDeclaration(
            check=f"t.{name} is not missing exactly if t.work = 'full' or t.work = 'part'"
        )
        for name in names
    ]
    domain = domain_of(work=work, **asked)
    rules = constraints_of(checks, domain.names, Path(), domain=domain)
    (branches,) = branches_by(domain, rules)
    assert branches.count == 2
    assert {tuple(sets.sum(1)) for sets, _ in branches.variants} == {(2, 2), (1, 2)}


@pytest.mark.parametrize(
    ("rules", "of"),
    [
        (["t.pay > 1 and t.work = 'none'", "t1.work = t2.work and t1.boss != t2.boss"], []),
        (["t.pay > 1 and t.work = 'none'", "t1.hours = t2.hours and t1.boss != t2.boss"], [2]),
        (["t.hours > 2"], [1]),
    ],
)
def test_attributes_that_rules_on_pairs_bind_are_in_no_branch(rules, of):
    parsed = [parse_denial(rule, f"rule {at}") for at, rule in enumerate(rules)]
    assert [branches.count for branches in branches_by(DOMAIN, parsed)] == of


def test_chains_of_many_ordered_values_are_not_split():
    grade = Ordinal(type="ordinal", values=[f"g{number:02}" for number in range(40)])
    rule = parse_denial("t.low > t.high", "order")
    assert branches_by(domain_of(low=grade, high=grade), [rule]) == ()
