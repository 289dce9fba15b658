"""Nearly functional pairs: what measured tables do not show is drawn less often, and no more."""

from pathlib import Path

import numpy as np

from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.mixture.sampler import recalibrate
from cloister.models.sampling.drawing import ANYTHING, Sampler
from cloister.models.sampling.whole_tables import BalancedSampler, PairChange, calibrate_weights
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells

ROWS, SIZE, NOISE = 100_000, 24, 30.0
NUMBER = Integer(type="integer", min=0, max=SIZE - 1)
DOMAIN = Domain.of({"first": NUMBER, "second": NUMBER, "other": NUMBER}, Path())
DIAGONAL = np.eye(SIZE) / SIZE
"""Joint shares of two numbers that are the same."""

SPREAD = 0.9 * DIAGONAL + 0.1 / SIZE**2
"""What a fit makes of them: each cell off the diagonal has 17 rows, half the noise."""


def bins_of(name):
    cells = declared_cells(DOMAIN[name])
    return Histogram.over(cells, cells.parts, np.full(SIZE, 1 / SIZE))


def measured(truth, parts=SIZE, seed=1):
    """A noisy table of joint shares, over parts of the bins, the second attribute first."""
    of = [coarse(bins_of(name), parts) for name in ("second", "first")]
    counts = np.zeros((of[0].size, of[1].size))
    np.add.at(counts, (of[0].joined[:, None], of[1].joined[None]), ROWS * truth.T)
    noise = np.random.default_rng(seed).normal(0, NOISE, counts.shape)
    return NoisyTable(tuple(of), counts + noise, NOISE).project(("first", "second"))


def test_a_spread_that_no_single_cell_shows_is_taken_back():
    found = recalibrate(SPREAD, [measured(DIAGONAL)], ROWS)
    for axis in (0, 1):
        assert np.abs(found.sum(axis) - 1 / SIZE).max() < 1e-3
    off = 1.0 - np.trace(found)
    assert off < 0.02 < 0.09 < 1.0 - np.trace(SPREAD)


def test_a_model_that_the_table_bears_out_stays():
    """Groups differ from the table by their noise alone, a few hundred rows of 100,000."""
    for parts in (SIZE, 8):
        found = recalibrate(SPREAD, [measured(SPREAD, parts)], ROWS)
        assert np.abs(found - SPREAD).sum() / 2 < 0.02


def test_rows_that_are_certain_off_the_diagonal_stay():
    truth = 0.98 * DIAGONAL
    truth[0, -1] += 0.02
    shares = 0.9 * truth + 0.1 * np.outer(truth.sum(1), truth.sum(0))
    assert recalibrate(shares, [measured(truth)], ROWS)[0, -1] > 0.015


def test_tables_of_more_attributes_are_summed():
    table = NoisyTable(
        tuple(bins_of(name) for name in ("other", "first", "second")),
        np.ones((SIZE, SIZE, SIZE)),
        2.0,
    )
    pair = table.project(("first", "second"))
    assert (pair.counts == SIZE).all() and np.allclose(pair.variances, 4.0 * SIZE)


class Pool(Sampler):
    """Draws rows of the spread, beside an attribute that depends on neither."""

    domain = DOMAIN

    def draw(self, rows, rng, given=ANYTHING):
        cell = rng.generator.choice(SIZE**2, rows, p=SPREAD.ravel())
        other = rng.generator.integers(0, SIZE, rows)
        return Table(DOMAIN, {"first": cell // SIZE, "second": cell % SIZE, "other": other})


def test_a_balanced_sample_follows_the_change_and_keeps_histograms():
    bins = {name: bins_of(name) for name in DOMAIN.names}
    change = PairChange("first", "second", DIAGONAL / SPREAD, ("first",), ("second",))
    found = []
    for changes in ((), (change,)):
        sampler = BalancedSampler(Pool(), bins, changes)
        rows = Table.concatenate(list(sampler.chunks(20_000, SamplingSource(4))))
        found.append(np.mean(rows.codes["first"] != rows.codes["second"]))
        for name in DOMAIN.names:
            shares = np.bincount(rows.codes[name], minlength=SIZE) / rows.rows
            assert np.abs(shares - 1 / SIZE).max() < 0.005
    assert found[0] > 0.08
    assert found[1] < 0.02


def test_calibrated_weights_keep_histograms():
    rng = np.random.default_rng(3)
    levels = [rng.integers(0, size, 5_000) for size in (3, 7, 12)]
    weights = calibrate_weights(rng.uniform(0.2, 2.0, 5_000), levels)
    for own in levels:
        assert np.allclose(np.bincount(own, weights), np.bincount(own), rtol=1e-3)
