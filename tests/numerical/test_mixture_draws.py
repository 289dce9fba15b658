"""Which rows a mixture's factors and dependent attributes allow, and how evenly they are drawn."""

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.core.bins import bin_cells
from cloister.models.feasible_sets.feasible_set import FeasibleSet
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells


def late_imports():
    global \
        DependentAttribute, \
        EvenSampler, \
        Factor, \
        Mixture, \
        allocate, \
        arrange_factors, \
        chain_of, \
        follow, \
        separate_factors, \
        torch
    import torch

    from cloister.models.mixture.factors import arrange_factors, separate_factors
    from cloister.models.mixture.model import chain_of
    from cloister.models.mixture.products import DependentAttribute, Factor, Mixture
    from cloister.models.mixture.sampler import EvenSampler, allocate, follow


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
def test_a_dependent_attribute_is_drawn_by_its_shares_among_what_parents_allow(seed, rows):
    rng = np.random.default_rng(seed)
    levels = np.array([(p, c) for p in range(3) for c in range(7) if c in (p, p + 3, 6)])
    dependent = DependentAttribute.of("child", Factor(("parent", "child"), levels), {"parent": 3})
    shares = rng.dirichlet(np.ones(7), 2)
    for kind, parent in product(range(2), range(3)):
        parents, kinds = np.full((rows, 1), parent), np.full(rows, kind)
        drawn = follow(dependent, parents, shares, kinds, (np.arange(rows) + 0.5) / rows)
        allowed = levels[levels[:, 0] == parent, 1]
        wanted = rows * shares[kind][allowed] / shares[kind][allowed].sum()
        counts = np.bincount(drawn, minlength=7)
        assert counts[allowed].sum() == rows
        assert np.all(np.abs(counts[allowed] - wanted) < 1 + 1e-6)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(1, 6))
def test_even_quantiles_give_levels_within_a_row_of_their_shares(seed, rows, kinds):
    rng = np.random.default_rng(seed)
    shares, kind = rng.dirichlet(np.full(4, 0.5), kinds), np.repeat(np.arange(kinds), rows)
    level = allocate(shares, kind, np.tile((np.arange(rows) + rng.random()) / rows, kinds))
    for k in range(kinds):
        counts = np.bincount(level[kind == k], minlength=4)
        assert np.all(np.abs(counts - shares[k] * rows) < 1 + 1e-6)


SIZES = {"a": 2, "b": 3, "c": 5, "d": 7}


@pytest.fixture(scope="module")
def sampler():
    """Rows of a mixture of three components over four attributes."""
    rng = np.random.default_rng(8)
    attributes = {
        name: Integer(type="integer", min=0, max=size - 1) for name, size in SIZES.items()
    }
    domain = Domain.of(attributes, Path())
    shares = np.concatenate([rng.dirichlet(np.ones(size), 3).T for size in SIZES.values()])
    mixture = Mixture(
        separate_factors(SIZES), torch.tensor([0.2, 0.3, 0.5]), torch.as_tensor(shares).float()
    )
    bins = {
        name: bin_cells(
            declared_cells(domain[name]),
            mixture.shares_of(name).numpy() @ [0.2, 0.3, 0.5],
            1e-6,
            keep=True,
            most=7,
        )
        for name in SIZES
    }
    plain = ConstraintSampler(domain, domain.names, bins, chain_of(mixture, domain.names, bins))
    return EvenSampler(plain, mixture)


def error_of_pairs(mixture, codes):
    """Greatest half L1 distance of the joint shares of two attributes from the mixture's."""
    errors = []
    for first, second in combinations(SIZES, 2):
        weighted = mixture.shares_of(first) * mixture.weights
        wanted = (weighted @ mixture.shares_of(second).T).numpy()
        counts = np.zeros_like(wanted)
        np.add.at(counts, (codes[first], codes[second]), 1 / len(codes[first]))
        errors.append(np.abs(counts - wanted).sum() / 2)
    return max(errors)


def test_what_is_independent_inside_a_component_is_drawn_so(sampler):
    drawn = sampler.draw(1 << 14, SamplingSource(5))
    independent = sampler.plain.draw(1 << 14, SamplingSource(5))
    assert error_of_pairs(sampler.mixture, drawn.codes) < 0.005
    assert error_of_pairs(sampler.mixture, drawn.codes) < 0.5 * error_of_pairs(
        sampler.mixture, independent.codes
    )


def test_chunks_of_many_rows_are_points_of_one_sequence(sampler, monkeypatch):
    monkeypatch.setattr("cloister.models.mixture.sampler.MANY_ROWS", 1 << 16)
    chunks = [chunk.codes for chunk in sampler.chunks(1 << 17, SamplingSource(3))]
    together = {name: np.concatenate([codes[name] for codes in chunks]) for name in SIZES}
    alone = np.mean([error_of_pairs(sampler.mixture, codes) for codes in chunks])
    assert error_of_pairs(sampler.mixture, together) < 0.4 * alone  # half, if chunks were unrelated


def test_a_chunk_of_many_rows_is_drawn_without_those_before_it(sampler, monkeypatch):
    monkeypatch.setattr("cloister.models.mixture.sampler.MANY_ROWS", 1 << 16)
    third = [*sampler.chunks(100_000, SamplingSource(3))][2]
    again = next(sampler.chunks(100_000, SamplingSource(3), first=2))
    assert all((third.codes[name] == again.codes[name]).all() for name in SIZES)


def test_rows_follow_their_order_no_more_than_independent_ones(sampler):
    """Points of a sequence in order would alternate between halves of every attribute."""
    codes = sampler.draw(1 << 14, SamplingSource(9)).codes["d"].astype(float)
    assert abs(np.corrcoef(codes[:-1], codes[1:])[0, 1]) < 0.03
