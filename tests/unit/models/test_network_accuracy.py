"""The most likely value of an attribute given all others, against the joint distribution."""

import numpy as np
import pytest
from noisy_tables import partition_of

from cloister.models.core.bins import Histogram
from cloister.models.deniability.network import BayesianNetwork, in_steps
from cloister.models.deniability.pool import model_errors, most_likely

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}
PARENTS = {"a": (), "b": ("a",), "c": ("a", "b"), "d": ("b",)}


def network_of(seed):
    rng = np.random.default_rng(seed)
    bins, coarsenings, tables = {}, {}, {}
    for name, size in SIZES.items():
        cells = partition_of(name, size)
        bins[name] = Histogram.over(cells, cells.parts, rng.dirichlet(np.ones(size)))
        coarsenings[name] = bins[name].coarsen(np.arange(size) * 2 // size)
        configurations = 2 ** len(PARENTS[name])
        tables[name] = in_steps(rng.dirichlet(np.ones(size), configurations))
    return BayesianNetwork(tuple(SIZES), bins, coarsenings, PARENTS, tables)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_likely_level_is_that_of_the_joint_distribution(seed):
    network = network_of(seed)
    every = np.indices(tuple(SIZES.values())).reshape(len(SIZES), -1).T
    joint = sum(network.logs(position, every) for position in range(len(SIZES)))
    whole = joint.reshape(tuple(SIZES.values()))
    for position in range(len(SIZES)):
        best = np.broadcast_to(whole.argmax(axis=position, keepdims=True), whole.shape).ravel()
        assert (most_likely(network, every, position) == best).all()


def test_errors_are_shares_of_rows():
    network = network_of(1)
    rows = np.zeros((10, 4), dtype=np.int64)
    by_name = {error.attribute: error for error in model_errors(network, rows)}
    assert list(by_name) == list(SIZES)
    for name, error in by_name.items():
        wrong = most_likely(network, rows, list(SIZES).index(name))[0] != 0
        assert error.network == float(wrong)
        assert error.marginals == float(network.bins[name].mass.argmax() != 0)
        assert error.guess == 1 - 1 / SIZES[name]
