"""Which rows a mixture's factors and dependent attributes allow, and how evenly they are drawn."""

from itertools import product

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.mixture.factors import arrange_factors
from cloister.models.mixture.products import DependentAttribute, Factor
from cloister.models.mixture.sampler import allocate, even_quantiles, follow

WIDER = {"a": 3, "b": 4, "c": 2, "y": 5, "z": 9}

ATTRIBUTE_SETS = [
    [("b", "z")],
    [("a", "b"), ("b", "z"), ("c", "z")],
    [("b", "y", "z")],
    [("a", "b"), ("b", "y"), ("a", "b"), ("y", "b")],
    [("z", "y"), ("a", "c"), ("c", "b"), ("b", "a")],
]


def some_set(names, rng):
    whole = np.array(list(product(*(range(WIDER[name]) for name in names))))
    return FeasibleSet(names, whole[rng.random(len(whole)) < 0.6])


def rows_of(arrangement, inside):
    """All rows that an arrangement allows, as dictionaries, found by following it."""
    rows = [{}]
    for factor in arrangement.layout.factors:
        if not {dependent.name for dependent in arrangement.dependents} & set(factor.attributes):
            levels = [
                dict(zip(factor.attributes, level.tolist(), strict=True)) for level in factor.levels
            ]
            rows = [row | level for row in rows for level in levels]
    for dependent in arrangement.dependents:
        followed = []
        for row in rows:
            at = dependent.key_index(
                np.array([[row[name] for name in dependent.parents]], dtype=np.int64)
            )[0]
            children = dependent.children[dependent.begins[at] : dependent.begins[at + 1]]
            followed += [row | {dependent.name: int(child)} for child in children]
        rows = followed
    return rows


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from(ATTRIBUTE_SETS))
def test_factors_and_dependents_allow_just_the_rows_that_keep_all_supports(seed, names):
    rng = np.random.default_rng(seed)
    feasible_sets, inside = [some_set(each, rng) for each in names], ("a", "b", "c")
    arrangement = arrange_factors(WIDER, inside, feasible_sets)
    mentioned = {name for each in names for name in each} | set(inside)
    allowed = [dict(zip(WIDER, row, strict=True)) for row in product(*map(range, WIDER.values()))]
    levels = [
        (feasible_set.attributes, set(map(tuple, feasible_set.levels.tolist())))
        for feasible_set in feasible_sets
    ]
    kept = {
        tuple(row[name] for name in sorted(mentioned))
        for row in allowed
        if all(tuple(row[name] for name in attributes) in rows for attributes, rows in levels)
    }
    if not kept:
        return
    assert arrangement is not None
    found = [tuple(row[name] for name in sorted(mentioned)) for row in rows_of(arrangement, inside)]
    assert set(found) == kept
    assert len(found) == len(kept)


def test_an_attribute_is_dependent_where_the_joint_factor_would_be_too_large():
    sizes = {"few": 2, "town": 300, "street": 90}
    grid = np.array(list(product(range(300), range(90))))
    arrangement = arrange_factors(
        sizes, tuple(sizes), [FeasibleSet(("town", "street"), grid[grid.sum(1) % 3 > 0])]
    )
    assert [dependent.name for dependent in arrangement.dependents] == ["town"]
    assert arrangement.dependents[0].parents == ("street",)
    assert all(len(factor.attributes) == 1 for factor in arrangement.layout.factors)


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.integers(1, 500))
def test_a_dependent_attribute_is_drawn_within_a_row_or_two_of_its_shares(seed, rows):
    rng = np.random.default_rng(seed)
    levels = np.array([(p, c) for p in range(3) for c in range(7) if c in (p, p + 3, 6)])
    dependent = DependentAttribute.of("child", Factor(("parent", "child"), levels), {"parent": 3})
    shares, kinds, parents = (
        rng.dirichlet(np.ones(7), 2),
        rng.integers(0, 2, rows),
        rng.integers(0, 3, (rows, 1)),
    )
    drawn = follow(dependent, parents, shares, kinds, rng)
    for kind, parent in product(range(2), range(3)):
        own = (kinds == kind) & (parents[:, 0] == parent)
        allowed = levels[levels[:, 0] == parent, 1]
        wanted = own.sum() * shares[kind][allowed] / shares[kind][allowed].sum()
        counts = np.bincount(drawn[own], minlength=7)
        assert counts[allowed].sum() == own.sum()
        assert np.all(np.abs(counts[allowed] - wanted) < 2 + 1e-6)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(1, 6))
def test_allocation_is_within_a_row_of_the_shares(seed, rows, kinds):
    rng = np.random.default_rng(seed)
    shares, kind = rng.dirichlet(np.full(4, 0.5), kinds), rng.integers(0, kinds, rows)
    level = allocate(shares, kind, rng)
    for k in range(kinds):
        counts = np.bincount(level[kind == k], minlength=4)
        assert np.all(np.abs(counts - shares[k] * (kind == k).sum()) < 2 + 1e-6)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(1, 300))
def test_quantiles_are_spread_evenly_over_each_kind(seed, rows):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, rows)
    quantiles = even_quantiles(kinds, rng)
    for kind in np.unique(kinds):
        own = np.sort(quantiles[kinds == kind])
        assert np.all(np.floor(own * len(own)) == np.arange(len(own)))


def test_what_is_independent_inside_a_component_is_drawn_so():
    """Systematic draws without a shuffle would make the attributes of a component dependent."""
    rng = np.random.default_rng(5)
    kind = np.zeros(100_000, dtype=np.int64)
    first, second = (allocate(np.array([[0.25, 0.25, 0.5]]), kind, rng) for _ in range(2))
    table = np.histogram2d(first, second, bins=3)[0] / len(kind)
    expected_table = np.outer([0.25, 0.25, 0.5], [0.25, 0.25, 0.5])
    assert np.abs(table - expected_table).max() < 6 * np.sqrt(0.25 / len(kind))
