"""A model of rows with arbitrary conditionals, for laws of samplers."""

from __future__ import annotations

import numpy as np

_CONTEXTS = 7
"""Different conditionals of one attribute."""


class ArbitraryRows:
    """A tuple model whose conditionals follow a seed, the place and the sum of levels before."""

    def __init__(self, bins, sequence, seed):
        self._sizes = [bins[name].size for name in sequence]
        self._seed = seed

    def conditional(self, position, context):
        rng = np.random.default_rng([self._seed, position])
        table = rng.dirichlet(np.full(self._sizes[position], 0.5), size=_CONTEXTS)
        return table[context.sum(1) % _CONTEXTS] if position else table[:1]
