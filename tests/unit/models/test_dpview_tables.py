"""Consistency, non-negativity, interactions and whole counts of view tables."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_tables import noisy_table

from cloister.models.dpview import tables
from cloister.models.dpview.views import best_views

SHAPES = {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3, "f": 2}
OVERLAPS = st.lists(
    st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=2,
    max_size=5,
)


def noisy(names, seed, level=20.0, total=1_000):
    rng = np.random.default_rng([seed, *map(ord, "".join(names))])
    shape = tuple(SHAPES[name] for name in names)
    counts = rng.dirichlet(np.full(int(np.prod(shape)), 0.3)).reshape(shape) * total
    return noisy_table(names, counts + rng.laplace(0, level, shape), level * 2**0.5)


def disagreement(views):
    worst = 0.0
    for index, first in enumerate(views):
        for second in views[:index]:
            shared = [name for name in first.names if name in second.names]
            worst = max(
                worst,
                float(np.abs(first.project(shared).counts - second.project(shared).counts).max()),
            )
    return worst


@given(OVERLAPS, st.integers(0, 99))
@settings(max_examples=60)
def test_one_pass_makes_views_of_any_overlaps_agree_and_a_second_changes_nothing(overlaps, seed):
    views = tables.impose_agreement([noisy(names, seed) for names in overlaps], 1_000)
    assert disagreement(views) < 1e-6
    assert all(view.counts.sum() == pytest.approx(1_000) for view in views)
    twice = tables.impose_agreement(views, 1_000)
    assert all(np.allclose(a.counts, b.counts) for a, b in zip(views, twice, strict=True))


def test_shared_sets_are_closed_and_smaller_ones_come_first():
    sets = tables.shared_sets([("a", "b", "c"), ("b", "c", "d"), ("c", "d", "a")])
    assert sets[0] == frozenset() and frozenset("c") in sets
    assert [len(names) for names in sets] == sorted(map(len, sets))


def test_a_view_weighs_by_the_precision_of_its_margin():
    narrow, broad = noisy(("a", "b"), 1), noisy(("a", "c", "e"), 1)
    weights = tables.consistency_weights([narrow, broad], frozenset("a"))
    assert weights == pytest.approx([6 / 7, 1 / 7])


def test_weighted_agreement_brings_noisy_margins_nearer_to_the_truth():
    rng = np.random.default_rng(0)
    truth = rng.integers(50, 200, (3, 2, 4)).astype(float)
    before, after = [], []
    for _ in range(200):
        first = noisy_table(("a", "b"), truth.sum(2) + rng.laplace(0, 10, (3, 2)), 14.1)
        second = noisy_table(("b", "c"), truth.sum(0) + rng.laplace(0, 10, (2, 4)), 14.1)
        agreeing = tables.impose_agreement([first, second], float(truth.sum()))
        before.append(np.square(first.counts - truth.sum(2)).sum())
        after.append(np.square(agreeing[0].counts - truth.sum(2)).sum())
    assert np.mean(after) < 0.9 * np.mean(before)


@given(st.lists(st.floats(-50, 100), min_size=1, max_size=30))
def test_non_negative_counts_keep_their_sum_and_are_the_nearest(values):
    counts = np.array(values)
    projected = tables.project_non_negative(counts)
    assert (projected >= 0).all()
    assert projected.sum() == pytest.approx(max(counts.sum(), 0.0), abs=1e-6)
    assert (np.diff(projected[np.argsort(counts)]) >= -1e-9).all()
    if counts.sum() > 0:
        moved = (projected - counts)[projected > 0]
        assert np.allclose(moved, moved[0], atol=1e-6)


@given(OVERLAPS, st.integers(0, 50))
@settings(max_examples=20)
def test_consistent_views_are_not_negative_and_nearly_agree(overlaps, seed):
    views = tables.make_consistent([noisy(names, seed) for names in overlaps], 1_000)
    assert all((view.counts >= 0).all() for view in views)
    assert disagreement(views) < 5.0


@given(st.integers(0, 200), st.integers(2, 3), st.integers(0, 3_000))
@settings(max_examples=40)
def test_rounded_views_are_whole_not_negative_agree_and_sum_to_n(seed, width, rows):
    linked = best_views(SHAPES, width).linked
    views = tables.make_consistent([noisy(names, seed) for names in linked], 1_000)
    whole = tables.round_views(views, rows, np.random.default_rng(seed))
    for index, first in enumerate(whole):
        assert (
            first.counts.dtype == np.int64
            and (first.counts >= 0).all()
            and first.counts.sum() == rows
        )
        for second in whole[:index]:
            shared = [name for name in first.names if name in second.names]
            assert (first.margin(shared) == second.margin(shared)).all()


def test_rounding_changes_no_count_by_much_where_views_agree():
    views = tables.make_consistent(
        [noisy(names, 3, level=1.0, total=100_000) for names in best_views(SHAPES, 3).linked],
        100_000,
    )
    whole = tables.round_views(views, 100_000, np.random.default_rng(1))
    for view, counts in zip(views, whole, strict=True):
        assert np.abs(view.counts - counts.counts).sum() < 0.005 * 100_000


def test_rounding_keeps_sums_and_expectations():
    rng = np.random.default_rng(2)
    counts = np.array([[0.4, 3.3, 1.3], [0.0, 0.0, 0.0]])
    drawn = np.array([tables.round_rows(counts, np.array([5, 2]), rng) for _ in range(4_000)])
    assert (drawn.sum(2) == [5, 2]).all()
    assert np.abs(drawn[:, 0].mean(0) - counts[0]).max() < 0.06
    assert (np.abs(drawn[:, 0] - counts[0]) < 1).all()


def test_the_initial_view_holds_most_rows_above_the_noise():
    flat, peaked = np.full((3, 2), 10.0), np.zeros((3, 4))
    peaked[0, 0] = 60.0
    views = [noisy_table(("a", "b"), flat, 8.0), noisy_table(("a", "c"), peaked, 8.0)]
    assert tables.initial_view(views, 60.0) == 1


def test_interactions_of_pure_noise_are_dropped_and_clear_ones_stay():
    rng = np.random.default_rng(4)
    product = np.multiply.outer([300.0, 500.0, 200.0], [0.5, 0.3, 0.1, 0.1])
    drowned = tables.shrink_view(
        noisy_table(("a", "c"), product + rng.laplace(0, 3, product.shape), 3 * 2**0.5)
    )
    assert np.abs(drowned.counts - tables.independent_table(drowned.counts)).sum() < 20
    clear = np.diag([400.0, 300.0, 300.0])
    shrunk = tables.shrink_view(
        noisy_table(("a", "e"), clear + rng.laplace(0, 3, (3, 3)), 3 * 2**0.5)
    )
    assert np.abs(shrunk.counts - clear).sum() < 60
    assert np.allclose(shrunk.project("a").counts, shrunk.counts.sum(1))


def test_shrinking_three_ways_keeps_one_way_margins():
    view = noisy(("a", "b", "c"), 9, level=2.0)
    shrunk = tables.shrink_view(view)
    for name in view.names:
        assert np.allclose(
            shrunk.project(name).counts, np.maximum(view.project(name).counts, 0.0), atol=60
        )
