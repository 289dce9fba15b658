"""Values inside bins go together as a related attribute implies; histograms stay as they are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloister.models.core.bins import bin_cells
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells


def late_imports():
    global EvenSampler, Mixture, chain_of, relations_between, separate_factors, torch
    import torch

    from cloister.models.mixture.factors import separate_factors
    from cloister.models.mixture.model import chain_of
    from cloister.models.mixture.products import Mixture
    from cloister.models.mixture.sampler import EvenSampler
    from cloister.models.mixture.within_bins import relations_between


ROWS, BINS = 40_000, 16
AMOUNT = Integer(type="integer", min=0, max=9_999, bins=500, nullable=True)
DOMAIN = Domain.of({"first": AMOUNT, "second": AMOUNT}, Path())


def amounts(correlation, missing=0.0):
    """Codes of lognormal amounts whose logarithms correlate; the first is missing now and then."""
    rng = np.random.default_rng(1)
    scores = rng.multivariate_normal(np.zeros(2), [[1, correlation], [correlation, 1]], ROWS)
    codes = np.minimum(100 * np.exp(scores), 9_999).astype(np.int64).T
    codes[0, rng.random(ROWS) < missing] = DOMAIN["first"].null_code
    return dict(zip(DOMAIN.names, codes, strict=True))


def sampler_of(codes):
    """A sampler of the exact joint table over bins: one component a bin of the first attribute."""
    bins = {}
    for name, own in codes.items():
        cells = declared_cells(DOMAIN[name])
        shares = np.bincount(cells.index(own), minlength=cells.size) / ROWS
        bins[name] = bin_cells(cells, shares, 1e-6, keep=False, most=BINS)
    sizes = {name: own.size for name, own in bins.items()}
    table = np.zeros((sizes["first"], sizes["second"]))
    np.add.at(table, tuple(bins[name].index(own) for name, own in codes.items()), 1 / ROWS)
    table += 1e-9
    given = (table / table.sum(1, keepdims=True)).T
    shares = torch.as_tensor(np.vstack([np.eye(sizes["first"]), given])).float()
    weights = torch.as_tensor(table.sum(1) / table.sum()).float()
    mixture = Mixture(separate_factors(sizes), weights, shares)
    plain = ConstraintSampler(DOMAIN, DOMAIN.names, bins, chain_of(mixture, DOMAIN.names, bins))
    return EvenSampler(plain, mixture, (), relations_between(mixture, bins, DOMAIN.names))


def correlation_of(codes):
    known = codes["first"] != DOMAIN["first"].null_code
    return float(np.corrcoef(codes["first"][known], codes["second"][known])[0, 1])


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("correlation", [0.6, 0.95, -0.8])
def test_heavy_tails_keep_their_correlation(correlation, missing):
    codes = amounts(correlation, missing)
    sampler, wanted = sampler_of(codes), correlation_of(codes)
    found = correlation_of(sampler.draw(ROWS, SamplingSource(2)).codes)
    alone = replace(sampler, relations=())
    lost = abs(correlation_of(alone.draw(ROWS, SamplingSource(2)).codes) - wanted)
    assert abs(found - wanted) < 0.04
    assert lost > 0.08 or correlation < 0.9


def test_histograms_are_as_with_independent_values_and_unrelated_attributes_have_no_relation():
    sampler = sampler_of(amounts(0.95, 0.2))
    related = sampler.draw(ROWS, SamplingSource(3)).codes
    alone = replace(sampler, relations=()).draw(ROWS, SamplingSource(3)).codes
    for name, bins in sampler.plain.bins.items():
        counts = [
            np.bincount(bins.cell_index(own[name]), minlength=bins.cells)
            for own in (related, alone)
        ]
        # A bin has 2,500 rows: of independent values up to 100 would differ.
        assert np.abs(counts[0] - counts[1]).max() <= 40
    assert sampler_of(amounts(0.0)).relations == ()
