"""Values that many rows hold are found inside wide cells, and no share is lost."""

from pathlib import Path

import numpy as np
from declared_table import domain_of

from cloister.models.core.estimator import with_values
from cloister.models.core.histograms import HistogramCounts, counted_by_value
from cloister.models.core.noisy_table import NoisyTable
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells, intervals

DOMAIN = domain_of(
    fee=Integer(type="integer", min=0, max=9999, bins=20, special=[0]),
    huge=Integer(type="integer", min=0, max=10**9, bins=20),
    age=Integer(type="integer", min=0, max=99),
    town=Categorical(type="categorical", values=["A", "B"]),
)


def test_only_numbers_in_wide_cells_of_modest_domains_are_counted_by_value():
    assert counted_by_value(DOMAIN, DOMAIN.names, 5_000) == ("fee",)
    assert counted_by_value(DOMAIN, DOMAIN.names, 100) == ()


def test_a_value_that_stands_out_becomes_a_cell_and_shares_are_kept():
    cells = declared_cells(DOMAIN["fee"])
    rng = np.random.default_rng(4)
    truth = np.full(10_000, 0.5 / 10_000)
    truth[[0, 2500, 7777]] += [0.3, 0.15, 0.05]
    shares = np.bincount(cells.index(np.arange(10_000)), weights=truth)
    noise = 0.002
    finer, finer_shares = with_values(cells, shares, truth + rng.normal(0, noise, 10_000), noise)
    share_at = {int(start): share for start, share in zip(finer.starts, finer_shares, strict=True)}
    assert abs(share_at[2500] - 0.15) < 5 * noise and abs(share_at[7777] - 0.05) < 5 * noise
    assert finer.size <= cells.size + 2 * 4
    assert abs(finer_shares.sum() - 1) < 1e-12 and (finer_shares >= 0).all()
    back = np.bincount(cells.index(finer.starts), weights=finer_shares)
    assert np.allclose(back, shares, atol=1e-9)


def test_noise_alone_makes_few_cells():
    cells, extra = declared_cells(DOMAIN["fee"]), 0
    even = np.full(cells.size, 1 / cells.size)
    for seed in range(40):
        single = np.random.default_rng(seed).normal(0, 0.002, 10_000)
        extra += with_values(cells, even, single, 0.002)[0].size - cells.size
    assert extra <= 2 * 40


def test_a_wide_cell_keeps_its_rows_where_the_curve_to_its_neighbours_falls_below_zero():
    column = Domain.of({"fee": Integer(type="integer", min=0, max=639, bins=64)}, Path())["fee"]
    cells = declared_cells(column)
    totals = np.full(8, 10_000)
    totals[3] = 400
    even = NoisyTable((cells,), np.repeat(totals / 8, 8), 1e3)  # much noise: its shape says nothing
    wide = NoisyTable((intervals(column, cells.starts[::8]),), totals, 1.0)
    rows = int(totals.sum())
    inside = HistogramCounts(even, (wide,)).shares(rows)[1][24:32] * rows
    position = (np.arange(8) + 0.5) / 8
    curve = np.maximum(650 - 6 * 600 * position * (1 - position), 0)  # rows a cell: mean 50
    np.testing.assert_allclose(inside, curve / curve.sum() * 400, atol=0.1)
