"""How often the network is wrong about one attribute of a row, given all others.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 6.2, Figures 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models.deniability.bayes.model import NetworkModel
from cloister.models.deniability.bayes.network import BayesianNetwork
from cloister.models.deniability.pool import DeniableModel

_BLOCK = 8_192
"""Rows whose scores are in memory at a time."""


@dataclass(frozen=True)
class ModelError:
    """The share of rows whose level of one attribute is not the most likely one, from 0 to 1.

    By the ``network``, given all other attributes; by the released ``marginals`` alone; and of a
    ``guess`` of one of the levels.
    """

    attribute: str
    network: float
    marginals: float
    guess: float


def network_of(model: object) -> BayesianNetwork | None:
    """The Bayesian network of a model, if it has one."""
    if isinstance(model, DeniableModel):
        return model.network.network
    return model.network if isinstance(model, NetworkModel) else None


def model_errors(network: BayesianNetwork, levels: Integers) -> list[ModelError]:
    """The errors on rows of levels (n, m), by attribute in the order of the network."""
    return [_error(network, levels, place) for place in range(len(network.sequence))]


def _error(network: BayesianNetwork, levels: Integers, place: int) -> ModelError:
    own = network.partitions[place]
    said = most_likely(network, levels, place)
    mode = int(own.mass.argmax())
    return ModelError(
        own.name,
        float((said != levels[:, place]).mean()),
        float((levels[:, place] != mode).mean()),
        1 - 1 / own.size,
    )


def most_likely(network: BayesianNetwork, levels: Integers, place: int) -> Integers:
    """The most likely level (n,) of the attribute at a place, given the others of rows (n, m)."""
    blocks = [
        _scores(network, levels[begin : begin + _BLOCK], place).argmax(axis=1)
        for begin in range(0, len(levels), _BLOCK)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *blocks])


def _scores(network: BayesianNetwork, levels: Integers, place: int) -> Floats:
    """log2 of the joint probability (n, size) of rows (n, m) with each level at a place.

    Factors in which the attribute does not occur are left out. Those of its children depend on the
    part of its level alone, equation (7).
    """
    name = network.sequence[place]
    with np.errstate(divide="ignore"):
        own = np.log2(network.conditional(place, levels))
    scores = np.array(np.broadcast_to(own, (len(levels), own.shape[1])))
    children = [at for at, child in enumerate(network.sequence) if name in _parents(network, child)]
    if not children:
        return scores
    changed, parts = levels.copy(), network.coarsenings[name].parts
    for part in range(network.coarsenings[name].size):
        inside = np.flatnonzero(parts == part)
        changed[:, place] = inside[0]
        of_children = np.sum([network.logs(child, changed) for child in children], axis=0)
        scores[:, inside] += of_children[:, None]
    return scores


def _parents(network: BayesianNetwork, child: str) -> tuple[str, ...]:
    return network.parents.get(child, ())
