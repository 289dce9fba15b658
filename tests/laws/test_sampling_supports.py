"""Laws of chosen feasible sets: margins are kept where a rule allows it; missing values count."""

from pathlib import Path

import numpy as np
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.models.core.bins import bin_cells
from cloister.models.feasible_sets.selection import likely_right, monotone_coupling
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

some = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)
masses = some.map(lambda drawn: np.array(drawn) + 1e-6)


@given(masses, masses)
def test_a_monotone_coupling_has_its_margins_and_lies_on_a_rising_path(rows, columns):
    joint = monotone_coupling(rows, columns)
    np.testing.assert_allclose(joint.sum(1), rows / rows.sum(), atol=1e-9)
    np.testing.assert_allclose(joint.sum(0), columns / columns.sum(), atol=1e-9)
    assert (np.diff(np.argwhere(joint > 1e-12), axis=0) >= 0).all()


def levels_of(values):
    domain = Domain.of({"right": Integer(type="integer", min=0, max=values - 1)}, Path())
    cells = declared_cells(domain["right"])
    return bin_cells(cells, np.full(values, 1 / values), 0.0, keep=True).levels


@settings(max_examples=examples(20))
@given(st.integers(0, 10**6))
def test_right_sides_without_evidence_have_their_shares(seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(8, 2.0))
    left_mass = rng.dirichlet(np.full(20_000, 5.0))
    chosen = likely_right(levels_of(8), np.zeros((20_000, 8)), left_mass, shares, rng)
    found = np.bincount(chosen, left_mass, 8)
    assert np.abs(found - shares).max() < 6 * np.sqrt(0.25 * np.square(left_mass).sum())


def test_clear_evidence_is_not_overruled_by_shares():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 4, 500)
    evidence = np.where(np.arange(4) == truth[:, None], 60.0, 0.0)
    shares, mass = np.array([0.97, 0.01, 0.01, 0.01]), np.full(500, 1 / 500)
    assert (likely_right(levels_of(4), evidence, mass, shares, rng) == truth).all()
