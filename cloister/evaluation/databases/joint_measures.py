"""Distances of synthetic rows from real ones across a foreign key: joint tables, and queries.

Privacy: computed from real rows without noise; internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb

import numpy as np

from cloister.evaluation.databases.joined_rows import joined_with_all_above, joined_with_parents
from cloister.evaluation.marginals import Marginals, compare_sets
from cloister.evaluation.queries import RangeQueries, compare_answers, queries_over
from cloister.schema.relations.database import Database, ForeignKey

_MOST_SETS = {2: 500, 3: 100}
"""Sets of attributes of both sides at most that are measured, by the attributes of a set."""

_QUERIES = 200
"""Queries with joins for each foreign key."""

_MOST_JOINED = 1_000_000
"""Joined rows that queries are asked of: a random part of more, whose shares err by 0.0005."""

_SEED = 20_261_122
"""Seed of choices of sets, queries and rows, fixed so that all databases get the same."""


def compare_across(real: Database, synthetic: Database, key: ForeignKey) -> tuple[Marginals, ...]:
    """Distances of the 2- and 3-way joint tables with attributes of both tables."""
    (one, above), (other, _) = (
        joined_with_parents(database, key) for database in (real, synthetic)
    )
    if not (one.rows and other.rows):
        return ()
    names = one.domain.names
    chosen = {
        ways: _mixed(names[:above], names[above:], ways)
        for ways in (2, 3)
        if above and len(names) > max(above, ways - 1)
    }
    possible = {ways: _possible(above, len(names) - above, ways) for ways in chosen}
    return tuple(
        Marginals(ways, possible[ways], compare_sets(one, other, sets))
        for ways, sets in chosen.items()
    )


def _possible(above: int, below: int, ways: int) -> int:
    """How many sets have an attribute of each side at least."""
    return comb(above + below, ways) - comb(above, ways) - comb(below, ways)


def _mixed(above: Sequence[str], below: Sequence[str], ways: int) -> list[tuple[str, ...]]:
    """Sets of attributes with one of each side at least: all, or a fixed random choice of many."""
    if _possible(len(above), len(below), ways) <= _MOST_SETS[ways]:
        return list(_all_mixed(above, below, ways))
    rng = np.random.default_rng([_SEED, ways])
    found: dict[tuple[str, ...], None] = {}
    while len(found) < _MOST_SETS[ways]:
        one, other = rng.choice(len(above)), rng.choice(len(below))
        rest = [name for name in (*above, *below) if name not in (above[one], below[other])]
        third = [rest[rng.choice(len(rest))]] if ways == 3 else []
        found[tuple(sorted([above[one], below[other], *third]))] = None
    return sorted(found)


def _all_mixed(above: Sequence[str], below: Sequence[str], ways: int) -> Iterator[tuple[str, ...]]:
    for upper in range(1, ways):
        for one, other in product(combinations(above, upper), combinations(below, ways - upper)):
            yield (*one, *other)


def compare_joins(real: Database, synthetic: Database, key: ForeignKey) -> RangeQueries | None:
    """Errors of random range queries over a table joined with all that it refers to.

    Each query has an attribute of the parent of ``key``, one of the table, and a third of any.
    """
    one, other = (
        joined_with_all_above(database, key, _MOST_JOINED, np.random.default_rng(_SEED))
        for database in (real, synthetic)
    )
    if not (one.rows and other.rows):
        return None
    names = one.domain.names
    above = [name for name in names if name.startswith(f"{key.column}: ")]
    own = [name for name in real.tables[key.table].domain.modelled if name in names]
    if not (above and own):
        return None
    rng = np.random.default_rng(_SEED)
    pools = (above, own, names)
    chosen = [dict.fromkeys(pool[rng.choice(len(pool))] for pool in pools) for _ in range(_QUERIES)]
    queries = queries_over([[one.domain[name] for name in each] for each in chosen], rng)
    return compare_answers(one, other, queries)
