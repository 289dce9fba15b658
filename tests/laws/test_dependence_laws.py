"""Laws of entropies and of distances from independence: what one row changes them by."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_tables import domain_of, random_rows, table_of

from cloister.errors import PrivacyError
from cloister.privacy.mechanisms.noise import GRID_STEPS, Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.distances import Distances, ExpectedTable
from cloister.privacy.queries.entropies import Entropies, entropy_bound, paper_entropy_bound
from cloister.privacy.queries.query import TableRows
from cloister.schema.partition import declared_cells


class TrueEntropies(Entropies):
    """A broken query: the true number of rows divides, so that the public bound may not hold."""

    def _entropy(self, counts):
        return Entropies(self.of, max(int(counts.sum()), 1), self.bound)._entropy(counts)


def largest_step(query_type, seed):
    """The most grid steps by which a row more changes an entropy, for tables of any size."""
    rng = np.random.default_rng(seed)
    domain = domain_of(3, 2, 4)
    cells = [declared_cells(domain[name]) for name in domain.names]
    rows = random_rows(rng, int(rng.integers(0, 40)))
    if seed % 2:
        rows[:] = 0
    public = int(rng.integers(3, 60))
    of = ((cells[0],), (cells[1],), (cells[0], cells[2]))
    query = query_type(of, public, entropy_bound(public))
    answers = [
        query.exact(TableRows(table_of(some)), NoiseSource.insecure(1))
        for some in (rows, np.vstack([rows, random_rows(rng, 1)]))
    ]
    return int(np.abs(answers[0] - answers[1]).max())


def test_a_row_changes_an_entropy_by_at_most_its_bound_whatever_the_number_of_rows():
    steps = [largest_step(Entropies, seed) for seed in range(300)]
    assert 0.9 * GRID_STEPS < max(steps) <= GRID_STEPS
    assert max(largest_step(TrueEntropies, seed) for seed in range(300)) > GRID_STEPS


def test_a_bound_below_what_a_row_may_change_is_refused():
    own = declared_cells(domain_of(3, 2, 4)["c0"])
    with pytest.raises(PrivacyError, match="use entropy_bound"):
        Entropies(((own,),), 100, entropy_bound(1_000)).sensitivity(Neighbours())


class SquaredDistances(Distances):
    """A broken query: each count is squared, so that a row in a large cell changes it by more."""

    def exact(self, rows, source):
        squared = [
            ((rows.counts(t.partitions) - t.expected) ** 2).sum() * GRID_STEPS for t in self.tables
        ]
        return np.rint(np.array(squared)).astype(np.int64)


def furthest(query_type, seed):
    """The most grid steps by which a row more changes a distance."""
    rng = np.random.default_rng(seed)
    domain = domain_of(3, 2, 4)
    cells = tuple(declared_cells(domain[name]) for name in ("c0", "c2"))
    rows = random_rows(rng, int(rng.integers(0, 40)))
    query = query_type((ExpectedTable(cells, rng.random(12) * 5),))
    answers = [
        query.exact(TableRows(table_of(some)), NoiseSource.insecure(1))
        for some in (rows, np.vstack([rows, random_rows(rng, 1)]))
    ]
    return int(np.abs(answers[0] - answers[1]).max())


def test_a_row_changes_a_distance_by_at_most_one_row():
    assert 0.9 * GRID_STEPS < max(furthest(Distances, seed) for seed in range(200)) <= GRID_STEPS
    assert max(furthest(SquaredDistances, seed) for seed in range(200)) > GRID_STEPS


def test_the_bound_of_the_paper_is_never_below_the_tight_one():
    sizes = [3, 4, 10, 1_000, 280_000, 10**9]
    assert all(paper_entropy_bound(rows) > entropy_bound(rows) for rows in sizes)
    # equation (9) at the paper's 280,000 rows, by hand
    assert paper_entropy_bound(280_000) == pytest.approx(1.41546e-4, rel=1e-5)
