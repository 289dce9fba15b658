"""Joint factors hold what was measured and what their feasible set forces, and no more."""

import numpy as np
import pytest
import torch
from matches import TEAMS, matches
from shape import release_once

from cloister.models.mixture.factors import joint_factors
from cloister.models.mixture.optimizer import DependencePenalty, Fit, add_dependence_penalty
from cloister.models.mixture.products import Factor, Layout, Mixture

SIZES = {"a": 4, "b": 5, "c": 3}
APART = np.array([(a, b) for a in range(4) for b in range(5) if a != b])
TIED = np.array([(0, 3), (1, 0), (2, 0), (3, 4)])
HOST = torch.device("cpu")


def layout_of(levels):
    single = Factor.single("c", SIZES["c"])
    return Layout((Factor(("a", "b"), levels), single), {"a": 4, "b": 5, "c": 3})


def shares_of(size, seed=1):
    return torch.as_tensor(np.random.default_rng(seed).dirichlet(np.ones(size))).float()


def excess_of(levels, shares, sweeps=200):
    (found,) = joint_factors(layout_of(levels), HOST)
    for _ in range(sweeps):
        excess = found.excess(shares)
    return excess


def products_on(levels):
    shares = shares_of(4, 2)[levels[:, 0]] * shares_of(5, 3)[levels[:, 1]]
    return shares / shares.sum()


def test_products_inside_a_support_have_no_excess():
    assert excess_of(APART, products_on(APART)).abs().max() < 1e-4


def test_a_dependency_has_no_excess_whatever_its_shares():
    assert excess_of(TIED, shares_of(len(TIED)), sweeps=2).abs().max() < 1e-5


def test_the_nearest_product_has_the_shares_of_each_attribute():
    shares = shares_of(len(APART))
    nearest = shares * torch.exp(-excess_of(APART, shares))
    for at, size in ((0, 4), (1, 5)):
        index = torch.as_tensor(APART[:, at])
        own, other = (torch.zeros(size).index_add_(0, index, t) for t in (shares, nearest))
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)


def divergence(mixture):
    """The least divergence of the joint factor's shares from any product on its feasible set."""
    shares = (mixture.shares @ mixture.weights)[: len(APART)]
    return float((shares * excess_of(APART, shares.float())).sum())


def test_the_penalty_has_the_slope_of_what_attributes_of_a_factor_tell_of_each_other():
    layout, weights = layout_of(APART), torch.ones(1)
    joint, rng = joint_factors(layout, HOST), np.random.default_rng(4)
    parts = [shares_of(len(APART)), shares_of(3)]
    mixture = Mixture(layout, weights, torch.cat(parts)[:, None])
    for _ in range(200):
        slope = torch.zeros_like(mixture.shares)
        add_dependence_penalty(mixture, torch.ones(1), torch.zeros(1), slope, joint)
    away = torch.zeros_like(mixture.shares)
    step = torch.as_tensor(rng.normal(size=len(APART))).float()
    away[: len(APART), 0] = 1e-3 * parts[0] * (step - (step * parts[0]).sum())
    there, back = (Mixture(layout, weights, mixture.shares + s * away) for s in (1, -1))
    expected = (divergence(there) - divergence(back)) / 2
    assert abs(float((slope * away).sum()) - expected) < 0.02 * abs(expected)


def test_a_fit_of_nothing_forgets_what_attributes_of_a_factor_tell_of_each_other():
    layout = layout_of(APART)
    start = Mixture(layout, torch.ones(1), torch.cat([shares_of(16), shares_of(3)])[:, None])
    fit = Fit(start, DependencePenalty(1.0))
    fit.descend([], 800, 0.05, 0.002)
    assert divergence(start) > 0.05
    assert divergence(fit.mixture) < 0.001


@pytest.mark.slow
def test_who_plays_whom_is_not_invented():
    """The data have an information of 0.08 nats, of which the rule alone takes 0.04."""
    drawn = release_once(matches(), 2, "mixture").synthetic.codes
    table = np.zeros((TEAMS, TEAMS))
    np.add.at(table, (drawn["home"], drawn["away"]), 1 / len(drawn["home"]))
    product = np.outer(table.sum(1), table.sum(0))
    there = table > 0
    assert (table[there] * np.log(table[there] / product[there])).sum() < 0.25
