"""A mixture fitted to the rates of soft constraints, its other tables held fixed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloister.constraints import parse_denial
from cloister.constraints.counting import violation_share
from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.mixture.factors import separate_factors
from cloister.models.mixture.model import MixtureModel
from cloister.models.mixture.optimizer import DependencePenalty, MeanTarget, TableTarget
from cloister.models.mixture.products import Mixture
from cloister.models.mixture.sampler import EvenSampler
from cloister.models.mixture.soft_constraints import fit_rates
from cloister.models.soft_constraints.penalties import RatePosterior, posterior_rate
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import declared_cells

ROWS = 20_000
SIZES = {"pay": 12, "age": 10, "zone": 4, "team": 5}
DOMAIN = Domain.of(
    {name: Integer(type="integer", min=0, max=n - 1) for name, n in SIZES.items()}, Path()
)
RULE = parse_denial("t1.age = t2.age and t1.pay < t2.pay and t1.zone > t2.zone", "rule", hard=False)

shares = st.floats(1e-6, 1)
errors = st.floats(1e-6, 0.1)


def model(components=100, seed=3):
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    bins = {
        name: bin_cells(declared_cells(DOMAIN[name]), rng.dirichlet(np.ones(size)), 0.0, keep=True)
        for name, size in SIZES.items()
    }
    parts = [
        torch.softmax(2 * torch.randn(size, components, generator=generator), 0)
        for size in SIZES.values()
    ]
    mixture = Mixture(
        separate_factors(SIZES), torch.full((components,), 1 / components), torch.cat(parts)
    )
    return MixtureModel(
        Task(DOMAIN, (RULE,), ROWS, Neighbours()),
        tuple(SIZES),
        bins,
        mixture,
        CompiledConstraints(),
        even=True,
    )


NO_PENALTY = DependencePenalty(0.0)


def rate(fitted):
    return float(violation_share(RULE, fitted.pool(40_000, SamplingSource(8))))


def moved(before, after, *names):
    """The half L1 distance of a table of two models."""
    coarsenings = [before.bins[name] for name in names]
    held, found = before.mixture.marginal(coarsenings), after.mixture.marginal(coarsenings)
    return np.abs(held - found).sum() / 2


@pytest.mark.parametrize("factor", [0.8, 1.1])
def test_a_rate_is_reached_and_other_tables_are_kept(factor):
    before = model()
    after = fit_rates(
        before, [RatePosterior(factor * rate(before), 0.0)], 40.0, NO_PENALTY, SamplingSource(1)
    )
    assert rate(after) == pytest.approx(factor * rate(before), rel=0.05)
    for names in (["pay"], ["age"], ["zone"], ["team"], ["pay", "team"], ["zone", "team"]):
        assert moved(before, after, *names) < 0.02


def test_constraints_beyond_the_mixture_are_left_out():
    before = model()
    few = Mixture(
        separate_factors({"zone": SIZES["zone"]}), before.mixture.weights, before.mixture.factor(2)
    )
    outside = replace(before, sequence=("zone", "pay", "age", "team"), mixture=few)
    posterior = [RatePosterior(0.1, 0.0)]
    assert fit_rates(outside, posterior, 10.0, NO_PENALTY, SamplingSource(1)) is outside


def test_the_slope_of_a_mean_is_that_of_its_error():
    fitted, rng = model(), np.random.default_rng(3)
    coarsenings = [fitted.bins[name] for name in ("pay", "age")]
    numbers = rng.random((SIZES["pay"], SIZES["age"]))
    aim = MeanTarget.of(coarsenings, numbers, 0.3, 0.01, fitted.mixture.layout)
    table = torch.rand(aim.numbers.shape, dtype=torch.float64, requires_grad=True)
    (0.5 * (((table * aim.numbers).sum() - 0.3) / 0.01).square()).backward()
    slope = aim.slope(table.detach())
    torch.testing.assert_close(slope.double(), table.grad, rtol=1e-5, atol=1e-5)
    whole = TableTarget.of(NoisyTable(tuple(coarsenings), numbers, 1.0), fitted.mixture.layout, 1)
    assert whole.views == aim.views
    torch.testing.assert_close(whole.weighted, aim.numbers)


@given(own=shares, share=st.floats(0, 1), error=errors)
def test_the_posterior_lies_between_the_model_and_the_measurement(own, share, error):
    low, high = sorted((own, share))
    posterior = posterior_rate(own, (share, error))
    assert min(low, 0.01 * own) <= posterior.mean <= high * (1 + 1e-9)
    assert 0 <= posterior.deviation


def test_a_sure_contradiction_counts_and_a_vague_one_does_not():
    sure, vague = posterior_rate(0.02, (0.04, 0.0005)), posterior_rate(0.02, (0.03, 0.01))
    assert sure.mean == pytest.approx(0.04, rel=0.02)
    assert sure.deviation == pytest.approx(0.0005, rel=0.1)
    assert vague.mean == pytest.approx(0.02, rel=0.1)
    assert not sure.covers(0.02)
    assert vague.covers(0.02)


def test_an_unlucky_count_changes_no_other_table():
    before = model()
    own = rate(before)
    posterior = posterior_rate(own, (own * 1.5, own * 0.22))
    after = fit_rates(before, [posterior], 40.0, NO_PENALTY, SamplingSource(1))
    for name in SIZES:
        coarsenings = [before.bins[name]]
        held, found = before.mixture.marginal(coarsenings), after.mixture.marginal(coarsenings)
        assert np.abs(held - found).sum() / 2 < 0.005


def test_rows_are_drawn_evenly_though_few_are_kept():
    class Picky:
        def keep(self, rows, rng):
            return rng.random(rows.rows) < 0.03

    fitted = model()
    sampler = EvenSampler(replace(fitted.sampler.plain, acceptance=Picky()), fitted.mixture)
    assert sampler.draw(20_000, SamplingSource(2)).rows == 20_000


def test_rows_that_the_mixture_has_not_are_drawn_from_flatter_probabilities():
    fitted = model()
    without = fitted.mixture.shares.clone()
    without[SIZES["pay"] - 1] = 0.0
    mixture = replace(fitted.mixture, shares=without)
    most = parse_denial(f"t.pay < {SIZES['pay'] - 1}", "most", hard=True)
    plain = replace(replace(fitted, mixture=mixture).constraint_sampler, row_rules=(most,))
    rows = EvenSampler(plain, mixture).draw(100, SamplingSource(2))
    assert (rows.codes["pay"] == SIZES["pay"] - 1).all()
