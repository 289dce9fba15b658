"""Balanced samples: rows of the pool, whose pair tables are nearer to the pool's.

The distribution of a row stays the model's.
"""

from itertools import combinations

import numpy as np
import pytest
from declared_table import domain_of
from hypothesis import given
from hypothesis import strategies as st

from cloister.models.core.bins import bin_cells
from cloister.models.core.costs import MOST_PAIRS, OVERSAMPLING
from cloister.models.core.noisy_table import to_shares
from cloister.models.sampling import whole_tables
from cloister.models.sampling.drawing import ANYTHING, Sampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, TextKey
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells

SIZES = (3, 4, 5)
DOMAIN = domain_of(
    id=TextKey(type="text", pattern="K{001..300}"),
    **{f"a{size}": Categorical(type="categorical", values=[*"ABCDE"[:size]]) for size in SIZES},
)
CELLS = {name: declared_cells(DOMAIN[name]) for name in DOMAIN.modelled}
BINS = {
    name: bin_cells(cells, to_shares(np.ones(cells.size), 1_000), 0.0, keep=True)
    for name, cells in CELLS.items()
}


class Independent(Sampler):
    """Rows whose attributes follow one skewed law each."""

    domain = DOMAIN

    def draw(self, rows, rng, given=ANYTHING):
        codes = {"id": np.zeros(rows, dtype=np.int64)}
        for size in SIZES:
            codes[f"a{size}"] = rng.generator.choice(size, rows, p=law(size))
        return Table(DOMAIN, codes)


def law(size):
    return np.arange(1, size + 1) / (size * (size + 1) / 2)


def distance(levels, chosen):
    """Half L1 between the pair tables of some rows and those of all, summed over pairs."""
    total = 0.0
    for a, b in combinations(range(len(SIZES)), 2):
        cells, size = levels[a] * SIZES[b] + levels[b], SIZES[a] * SIZES[b]
        part = np.bincount(cells[chosen], minlength=size) / len(chosen)
        total += np.abs(part - np.bincount(cells, minlength=size) / len(cells)).sum() / 2
    return total


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4))
def test_as_many_different_rows_as_wanted_are_chosen(seed, wanted, factor):
    rng = np.random.default_rng(seed)
    levels = [rng.integers(0, size, wanted * factor) for size in SIZES]
    chosen = whole_tables.choose_balanced(levels, SIZES, wanted, rng)
    assert len(np.unique(chosen)) == wanted
    assert chosen.min() >= 0
    assert chosen.max() < wanted * factor


def test_tables_of_pairs_come_nearer_to_those_of_the_pool():
    rng = np.random.default_rng(1)
    levels = [rng.choice(size, 6_000, p=law(size)) for size in SIZES]
    chosen = whole_tables.choose_balanced(levels, SIZES, 2_000, rng)
    assert distance(levels, chosen) < 0.3 * distance(levels, np.arange(2_000))


def test_the_law_of_a_row_stays_and_keys_are_those_of_the_rows_and_not_of_the_pool():
    table = whole_tables.BalancedSampler(Independent(), BINS).sample(300, SamplingSource(3))
    assert table.codes["id"].tolist() == list(range(300))
    rows = 200
    counts = np.zeros(5)
    for seed in range(60):
        table = whole_tables.BalancedSampler(Independent(), BINS).sample(rows, SamplingSource(seed))
        counts += np.bincount(table.codes["a5"], minlength=5)
    pooled = rows * 60 * OVERSAMPLING
    allowed = 6 * np.sqrt(law(5) * (1 - law(5)) / pooled) + 1 / rows
    assert np.all(np.abs(counts / counts.sum() - law(5)) < allowed)


@pytest.mark.parametrize("sizes", [(), (7,), (whole_tables.MOST_PAIR_CELLS, 2)])
def test_without_a_table_of_modest_size_the_first_rows_stay(sizes):
    levels = [np.zeros(9, dtype=np.int64) for _ in sizes] or [np.zeros(9, dtype=np.int64)]
    assert whole_tables.choose_balanced(
        levels, sizes or (1,), 3, np.random.default_rng(1)
    ).tolist() == [0, 1, 2]


def test_tables_of_many_attributes_are_an_even_choice():
    chosen = whole_tables.choose_pairs([2] * 100)
    assert len(chosen) == MOST_PAIRS
    assert len({attribute for pair in chosen for attribute in pair}) > 90
