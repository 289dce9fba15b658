"""Scores of all pairs at once are those of pairs that are listed."""

from itertools import combinations

import numpy as np
import pytest
from noisy_tables import partition_of

from cloister.privacy.queries.distances import Candidate, CandidateScores, PairScores
from cloister.privacy.queries.query import TableRows
from cloister.schema.domain import Domain, Table


def rows_of(sizes, count, rng):
    partitions = tuple(partition_of(f"a{index}", size) for index, size in enumerate(sizes))
    domain = Domain(tuple(own.column for own in partitions))
    codes = {own.name: rng.integers(0, own.size, count) for own in partitions}
    return partitions, TableRows(Table(domain, codes))


@pytest.mark.parametrize("sizes", [(3, 2, 4, 5), (2,) * 9, (90, 40, 70)])  # products, lookups
def test_pairs_are_scored_as_if_they_were_listed(sizes):
    rng = np.random.default_rng(1)
    partitions, rows = rows_of(sizes, 500, rng)
    width, pairs = sum(sizes), list(combinations(range(len(sizes)), 2))
    expected = 500 * rng.random((width, width)) / max(sizes)
    penalties = 10 * rng.random((len(sizes), len(sizes)))
    begins = np.cumsum([0, *sizes])
    listed = CandidateScores(
        tuple(
            Candidate(
                (partitions[first], partitions[second]),
                expected[begins[first] : begins[first + 1], begins[second] : begins[second + 1]],
                penalties[first, second],
            )
            for first, second in pairs
        )
    )
    apart = np.triu(np.full(penalties.shape, True), 1)
    query = PairScores(partitions, expected, penalties, apart)
    assert query.exact(rows, None).tolist() == listed.exact(rows, None).tolist()
    assert query.outcome(np.array([1])) == pairs[1]
    apart[0, 1] = False
    assert query.outcome(np.array([0])) == pairs[1]
    assert query.exact(rows, None).tolist() == listed.exact(rows, None).tolist()[1:]
