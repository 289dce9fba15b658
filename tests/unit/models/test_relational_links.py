"""Links: no two alike, no orphan, no degree above its bound, as many as asked; no circles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.relational.constraints import on_cycles, without_cycles, without_duplicates
from cloister.models.relational.degrees import DegreeGroups
from cloister.schema.relations import ForeignKey


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.data())
def test_links_are_made_distinct_with_their_left_ends_and_their_number(seed, lefts, rights, data):
    """As dense as a complete graph, where only augmenting paths help."""
    most = data.draw(st.integers(1, lefts))
    rng = np.random.default_rng(seed)
    number = data.draw(st.integers(1, min(lefts * rights, rights * most)))
    left = rng.permutation(np.repeat(np.arange(lefts), rights))[:number]
    right = rng.permutation(np.repeat(np.arange(rights), most))[:number]
    alike = rng.integers(0, 3, rights)
    ends = without_duplicates(left, right, (lefts, rights), alike, most, rng)
    assert len(set(zip(left.tolist(), ends.tolist(), strict=True))) == number
    assert ends.min() >= 0
    assert ends.max() < rights
    assert np.bincount(ends).max() <= most


def test_few_doubled_links_keep_all_degrees_and_joint_tables() -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 500, 3_000), rng.integers(0, 300, 3_000)
    alike = np.arange(300) % 7
    ends = without_duplicates(left, right, (500, 300), alike, 99, rng)
    assert (np.bincount(ends) == np.bincount(right)).all()
    assert (alike[ends] == alike[right]).all()
    assert (ends != right).mean() < 0.1


@given(st.lists(st.integers(-1, 9), min_size=10, max_size=10), st.integers(0, 99))
def test_no_row_is_above_itself(owners: list[int], seed: int) -> None:
    acyclic = without_cycles(np.array(owners), np.random.default_rng(seed))
    assert not on_cycles(acyclic).any()
    for row in range(10):
        above, steps = int(acyclic[row]), 0
        while above >= 0:
            assert above != row
            above, steps = int(acyclic[above]), steps + 1
            assert steps <= 10
    counts, before = (
        np.bincount(np.array(references)[np.array(references) >= 0], minlength=10)
        for references in (acyclic, owners)
    )
    assert (counts <= before).all()


def test_degrees_are_spread_inside_groups_and_those_that_noise_drowns_have_the_mean() -> None:
    key = ForeignKey("visits", "patient", "patients", "id", 200)
    rng, groups = np.random.default_rng(5), DegreeGroups.of(key)
    degrees = rng.gamma(2.0, 20.0, 1_000).astype(int).clip(0, 200)
    size, parts = groups.partition.size, groups.partition.index(degrees)
    counts = np.bincount(parts, minlength=size).astype(float)
    clear = groups.shares(counts + rng.normal(0, 10, len(counts)), 10.0, 40.0)
    assert clear.max() < 0.04
    assert abs(clear @ np.arange(201) - degrees.mean()) < 3
    drowned = [
        groups.shares(counts + rng.normal(0, 9_000, len(counts)), 9_000.0, 40.0) for _ in range(20)
    ]
    assert np.median([shares.max() for shares in drowned]) < 0.03
    assert np.median([shares @ np.arange(201) for shares in drowned]) == pytest.approx(40, abs=1)
    few = DegreeGroups.of(ForeignKey("visits", "patient", "patients", "id", 4))
    shares = few.shares(np.array([1.0, 2, 3, 2, 2]), 0.0, 2.2)  # counted one by one
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.2, 0.2])
