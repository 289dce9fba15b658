"""Tails of noisy histograms: wide public bounds do not stretch what is released."""

from pathlib import Path

import numpy as np
import pytest
from noisy_tables import shares_of

from cloister.models.core.noisy_table import to_shares
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import Partition, declared_cells

ROWS, LAST, NOISE, REPEATS = 6_000, 999_999, 25.0, 5
TAILS = {
    "lognormal": lambda rng: rng.lognormal(10.5, 0.6, ROWS),
    "gamma": lambda rng: rng.gamma(1.5, 30_000, ROWS),
    "pareto": lambda rng: 20_000 * (1 + rng.pareto(3.5, ROWS)),
    "delays": lambda rng: 900_000 - rng.lognormal(10.5, 0.6, ROWS),
}


def cells_of(bins: int | None = None) -> Partition:
    column = Integer(type="integer", min=0, max=LAST, bins=bins)
    return declared_cells(Domain.of({"amount": column}, Path())["amount"])


def counts_of(values: np.ndarray, cells: Partition) -> np.ndarray:
    codes = np.clip(values, 0, LAST).astype(np.int64)
    return np.bincount(cells.index(codes), minlength=cells.size)


def deviation_of(shares: np.ndarray, cells: Partition) -> float:
    middle = (cells.starts + cells.stops) / 2
    return float(np.sqrt(np.average((middle - shares @ middle) ** 2, weights=shares)))


def noisy_of(counts: np.ndarray, rng: np.random.Generator, noise: float = NOISE) -> np.ndarray:
    return counts + np.rint(rng.normal(0, noise, len(counts))).astype(np.int64)


@pytest.mark.parametrize("name", TAILS)
def test_the_deviation_of_a_heavy_tail_is_kept_under_noise_and_far_bounds(name):
    cells, found, naive = cells_of(), [], []
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        counts = counts_of(TAILS[name](rng), cells)
        noisy, true = noisy_of(counts, rng), deviation_of(counts / ROWS, cells)
        estimated = shares_of(noisy, NOISE, cells, ROWS)
        assert estimated.sum() == pytest.approx(1)
        assert (estimated >= 0).all()
        found.append(deviation_of(estimated, cells) / true)
        naive.append(deviation_of(to_shares(noisy, ROWS), cells) / true)
    assert np.median(found) == pytest.approx(1, abs=0.2)
    assert np.mean(np.abs(np.log(found))) < 0.35 * np.mean(np.abs(np.log(naive)))


@pytest.mark.parametrize("name", TAILS)
def test_counts_that_are_nearly_exact_are_kept(name):
    cells, rng = cells_of(), np.random.default_rng(1)
    counts = counts_of(TAILS[name](rng), cells)
    estimated = shares_of(noisy_of(counts, rng, 0.5), 0.5, cells, ROWS)
    assert np.abs(estimated - counts / ROWS).sum() < 0.01


def test_a_top_code_far_beyond_all_others_is_kept_and_even_counts_have_no_tail():
    cells, rng = cells_of(), np.random.default_rng(2)
    counts = counts_of(TAILS["lognormal"](rng), cells)
    counts[-1] += 400
    estimated = shares_of(noisy_of(counts, rng), NOISE, cells, counts.sum())
    assert estimated[-1] * counts.sum() == pytest.approx(counts[-1], abs=5 * NOISE)
    assert estimated[64:-1].sum() < 0.02
    even = np.full(cells.size, 100)
    shares = shares_of(noisy_of(even, rng, 10), 10, cells, 12_800)
    assert deviation_of(shares, cells) == pytest.approx(
        deviation_of(even / 12_800, cells), rel=0.03
    )


def test_what_follows_a_value_of_most_rows_falls_from_it_on():
    """Noise far out is no tail that falls towards that value."""
    column, far = Integer(type="integer", min=0, max=15), []
    cells = declared_cells(Domain.of({"count": column}, Path())["count"])
    counts = np.zeros(cells.size, dtype=np.int64)
    counts[:7] = [5_300, 60, 20, 15, 10, 5, 3]
    for seed in range(REPEATS):
        noisy = noisy_of(counts, np.random.default_rng(seed), 35.0)
        far.append(shares_of(noisy, 35.0, cells, counts.sum())[8:].sum())
    assert max(far) < 0.01


def test_many_cells_are_estimated_like_few():
    values, rng = TAILS["gamma"](np.random.default_rng(3)), np.random.default_rng(4)
    for cells in map(cells_of, (100, 5_000)):
        counts = counts_of(values, cells)
        shares = shares_of(noisy_of(counts, rng, 5.0), 5.0, cells, ROWS)
        true = deviation_of(counts / ROWS, cells)
        assert deviation_of(shares, cells) == pytest.approx(true, rel=0.25)
        assert np.abs(shares - counts / ROWS).sum() < 0.45  # beside rows by chance in 5,000 cells


def test_even_counts_under_strong_noise_do_not_fall_into_one_cell():
    """The rows in all are known: a tail of next to no rows is no estimate of all of them."""
    cells, largest = cells_of(60), []
    for seed in range(REPEATS):
        noisy = noisy_of(np.full(60, 600), np.random.default_rng(seed), 4_000.0)
        largest.append(shares_of(noisy, 4_000.0, cells, 36_000).max())
    assert np.median(largest) < 0.1
