"""Shares of violation against loops over all pairs; weights reach the shares they are fitted to."""

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.constraints import bind, parse_denial
from cloister.constraints.counting import violation_share
from cloister.models.soft_constraints.reweighting import (
    TuplesOf,
    Violating,
    fit_weights,
    quantize,
    shares_against,
)
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table

DOMAIN = domain_of(
    a=Integer(type="integer", min=0, max=9, nullable=True),
    b=Integer(type="integer", min=0, max=9),
    c=Categorical(type="categorical", values=["x", "y", "z"], nullable=True),
)
RULES = (
    parse_denial("t1.a < t2.a and t1.b > t2.b", "order", hard=False),
    parse_denial("t1.c = t2.c and t1.b != t2.b", "function", hard=False),
    parse_denial("t1.c != t2.c and t1.a <= t2.a and t2.b = 3", "sided", hard=False),
    parse_denial("t.a > 2 and t.b < 2", "row", hard=False),
)


def table_of(rng, rows, spread=99):
    return Table(
        DOMAIN, {c.name: np.minimum(rng.integers(0, c.size, rows), spread) for c in DOMAIN}
    )


def violated(rule, first, second):
    """Whether each row of the first table violates with each of the second; (n, m)."""
    n, m = first.rows, second.rows
    left, right = first.take(np.repeat(np.arange(n), m)), second.take(np.tile(np.arange(m), n))
    bound = bind(rule, DOMAIN)
    return (bound.violation_mask(left, right) | bound.violation_mask(right, left)).reshape(n, m)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 30), st.sampled_from([2, 99]))
def test_shares_are_those_of_loops_over_the_reference(seed, rows, others, spread):
    rng = np.random.default_rng(seed)
    first, second = table_of(rng, rows, spread), table_of(rng, others, spread)
    found = shares_against(RULES, TuplesOf(first), TuplesOf(second))
    for rule, shares in zip(RULES, found, strict=True):
        alone = bind(rule, DOMAIN).violation_mask(first, first)
        expected = violated(rule, first, second).mean(axis=1) if rule.arity == 2 else alone
        assert np.allclose(shares, expected)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.sampled_from([2, 99]))
def test_expected_violations_of_kept_rows_are_those_of_loops(seed, rows, spread):
    rng = np.random.default_rng(seed)
    table, keep = table_of(rng, rows, spread), rng.random(rows)
    for rule in RULES:
        found = Violating.of(rule, TuplesOf(table)).expected_violations(quantize(keep))
        if rule.arity == 1:
            expected = keep * bind(rule, DOMAIN).violation_mask(table, table) / keep.sum()
        else:
            together = np.outer(keep, keep) * ~np.eye(rows, dtype=bool)
            expected = (together * violated(rule, table, table)).sum(axis=1) / together.sum()
        assert np.allclose(found, expected, atol=1e-4)


def test_rows_kept_for_sure_violate_as_the_table_does():
    table = table_of(np.random.default_rng(4), 500)
    for rule in RULES:
        share = (
            Violating.of(rule, TuplesOf(table)).expected_violations(quantize(np.ones(500))).sum()
        )
        assert share == pytest.approx(float(violation_share(rule, table)))


@pytest.mark.parametrize(
    "factors", [(0.8, 0.9, 1.2, 0.6), (1.15, 1.02, 0.7, 1.3), (1.0, 1.0, 1.0, 1.0)]
)
def test_weights_reach_the_shares_they_are_fitted_to(factors):
    rng = np.random.default_rng(5)
    pool = table_of(rng, 20_000)
    targets = [
        float(violation_share(rule, pool)) * by for rule, by in zip(RULES, factors, strict=True)
    ]
    reweighting = fit_weights(RULES, targets, pool, rng)
    fresh = table_of(rng, 40_000)
    kept = fresh.take(reweighting.keep(fresh, rng))
    for rule, target in zip(RULES, targets, strict=True):
        assert float(violation_share(rule, kept)) == pytest.approx(target, rel=0.15)


def test_contradictory_targets_give_a_compromise_and_one_of_none_leaves_rows():
    rng = np.random.default_rng(6)
    pool, rule = table_of(rng, 10_000), RULES[0]
    twin = parse_denial("t1.a < t2.a and t1.b > t2.b", "twin", hard=False)
    own = float(violation_share(rule, pool))
    kept = fit_weights((rule, twin), (own / 2, own * 2), pool, rng).keep(pool, rng)
    assert kept.mean() > 0.5
    assert float(violation_share(rule, pool.take(kept))) == pytest.approx(own, rel=0.2)
    rule = RULES[3]
    kept = pool.take(fit_weights((rule,), (0.0,), pool, rng).keep(pool, rng))
    assert float(violation_share(rule, kept)) < 0.5 * float(violation_share(rule, pool))
    assert kept.rows > 1_000
