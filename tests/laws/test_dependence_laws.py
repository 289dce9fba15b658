"""Laws of entropies and of distances from independence: what one row changes them by."""

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

CELLS = [declared_cells(column) for column in domain_of(3, 2, 4)]


class TrueEntropies(Entropies):
    """A broken query: the true number of rows divides, so that the public bound may not hold."""

    def _entropy(self, counts):
        return Entropies(self.of, max(int(counts.sum()), 1), self.bound)._entropy(counts)


class SquaredDistances(Distances):
    """A broken query: each count is squared, so that a row in a large cell changes it by more."""

    def exact(self, rows, source):
        squared = [
            ((rows.counts(t.partitions) - t.expected) ** 2).sum() * GRID_STEPS for t in self.tables
        ]
        return np.rint(np.array(squared)).astype(np.int64)


def entropies(kind, rng):
    public = int(rng.integers(3, 60))
    of = ((CELLS[0],), (CELLS[1],), (CELLS[0], CELLS[2]))
    return kind(of, public, entropy_bound(public))


def distances(kind, rng):
    return kind((ExpectedTable((CELLS[0], CELLS[2]), rng.random(12) * 5),))


def largest_step(make, kind):
    """The most grid steps by which a row more changes an answer, for tables of any size."""
    steps = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = random_rows(rng, int(rng.integers(0, 40)))
        if seed % 2:
            rows[:] = 0
        query, more = make(kind, rng), np.vstack([rows, random_rows(rng, 1)])
        before, after = (
            query.exact(TableRows(table_of(some)), NoiseSource.insecure(1)) for some in (rows, more)
        )
        steps.append(int(np.abs(before - after).max()))
    return max(steps)


@pytest.mark.parametrize(
    ("make", "kind", "broken"),
    [(entropies, Entropies, TrueEntropies), (distances, Distances, SquaredDistances)],
)
def test_a_row_changes_an_answer_by_at_most_its_bound_and_nearly_by_that(make, kind, broken):
    assert 0.9 * GRID_STEPS < largest_step(make, kind) <= GRID_STEPS
    assert largest_step(make, broken) > GRID_STEPS


def test_a_bound_below_what_a_row_may_change_is_refused():
    own = declared_cells(domain_of(3, 2, 4)["c0"])
    with pytest.raises(PrivacyError, match="use entropy_bound"):
        Entropies(((own,),), 100, entropy_bound(1_000)).sensitivity(Neighbours())


def test_the_bound_of_the_paper_is_never_below_the_tight_one():
    sizes = [3, 4, 10, 1_000, 280_000, 10**9]
    assert all(paper_entropy_bound(rows) > entropy_bound(rows) for rows in sizes)
    # equation (9) at the paper's 280,000 rows, by hand
    assert paper_entropy_bound(280_000) == pytest.approx(1.41546e-4, rel=1e-5)
