"""Structure and tables of the Bayesian network: equations of the paper, limits, sizes."""

import math

import numpy as np
import pytest

from cloister.models.core.noisy_table import project_rows
from cloister.models.deniability import network
from cloister.models.deniability.paper.plan import most_costs


def test_merit_and_symmetrical_uncertainty_are_those_of_the_equations():
    one_parent, two_parents = np.array([0.6]), np.array([0.6 + 0.3])
    assert network.merit(one_parent, np.zeros(1), 0) == 0
    assert network.merit(one_parent, np.zeros(1), 1) == pytest.approx(0.6)
    # (0.6 + 0.3) / sqrt(2 + 2 * 0.5)
    assert network.merit(two_parents, np.array([2 * 0.5]), 2) == pytest.approx(0.9 / math.sqrt(3))
    # x = y: H(x) = H(y) = H(x, y) = 1; independent: H(x, y) = 2
    one = np.array([1.0, 1.0, 0.0])
    uncertainty = network.symmetrical_uncertainty(one, one, np.array([1.0, 2.0, 0.0]))
    assert uncertainty.tolist() == [1.0, 0.0, 0.0]


def parents_by_trial(correlations, limits):
    """The parents that the rule gives, tried one by one: of all additions that of most merit."""
    target, between, count = correlations.target, correlations.between, len(correlations.names)
    parents = {node: [] for node in range(count)}

    def ancestors(node):
        return {node}.union(*(ancestors(parent) for parent in parents[node]))

    def score(child, chosen):
        redundant = sum(between[p, q] for p in chosen for q in chosen if p != q)
        related = sum(target[child, p] for p in chosen)
        return related / math.sqrt(len(chosen) + redundant) if chosen else 0

    while True:
        additions = [
            (score(child, [*parents[child], parent]) - score(child, parents[child]), child, parent)
            for child in range(count)
            for parent in range(count)
            if parent not in parents[child]
            and child not in ancestors(parent)
            and target[child, parent] > limits.least[child, parent]
            and math.prod(limits.sizes[p] for p in [*parents[child], parent]) <= limits.most[child]
        ]
        gain, child, parent = max(additions, key=lambda addition: addition[0], default=(0, 0, 0))
        if gain <= 0:
            return {
                correlations.names[node]: tuple(correlations.names[p] for p in ps)
                for node, ps in parents.items()
            }
        parents[child].append(parent)


@pytest.mark.parametrize("seed", range(15))
def test_structures_are_acyclic_and_within_their_cost(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    related = rng.random((size, size))
    related = np.triu(related, 1) + np.triu(related, 1).T
    names = tuple(f"c{index}" for index in range(size))
    sizes, most = [int(n) for n in rng.integers(2, 9, size)], [40.0] * size
    limits = network.ParentLimits(sizes, most, np.full_like(related, 0.2))
    parents = network.choose_parents(network.Correlations(names, related, related), limits)
    assert parents == parents_by_trial(network.Correlations(names, related, related), limits)
    order = network.dependency_order(parents, names)
    for name, chosen in parents.items():
        assert all(order.index(parent) < order.index(name) for parent in chosen)
        assert math.prod(sizes[names.index(parent)] for parent in chosen) <= 40
        assert all(related[names.index(name), names.index(parent)] > 0.2 for parent in chosen)


def test_tables_that_are_learned_all_at_once_are_small():
    # Table 1: maxcost holds
    assert most_costs([80, 8, 24, 5, 25, 18, 5, 2, 100, 8, 2]) == [1_000] * 11
    for sizes in ([10_000] * 500, [10_000, 2], [2] * 5_000, [5_000]):
        costs = most_costs(sizes)
        assert min(costs) >= 1
        assert sum(map(math.prod, zip(sizes, costs, strict=True))) <= max(2**22, sum(sizes))


def test_projected_counts_are_not_negative_and_have_their_totals():
    rng = np.random.default_rng(3)
    counts = rng.normal(2, 6, (200, 7))
    totals = np.maximum(counts.sum(1), 0)
    projected = project_rows(counts, totals)
    assert (projected >= 0).all() and np.allclose(projected.sum(1), totals)
    inside = np.abs(rng.normal(5, 1, (50, 7)))
    assert np.allclose(project_rows(inside, inside.sum(1)), inside)


def test_the_possible_records_of_the_paper_have_79_ages_and_99_hours():
    """Table 2 has 540,587,520,000 possible records; Table 1, with 80 and 100, gives more."""
    sizes = [8, 24, 5, 25, 18, 5, 2, 8, 2]
    assert math.prod([79, 99, *sizes]) == 540_587_520_000
    assert math.prod([80, 100, *sizes]) == 552_960_000_000
