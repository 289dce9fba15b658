"""A model of rows with arbitrary conditionals, for laws of samplers."""

import numpy as np

from cloister.models.core.bins import bin_cells
from cloister.models.core.noisy_table import to_shares
from cloister.models.feasible_sets.builder import FeasibleSetBuilder
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.schema.partition import declared_cells

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


def bins_of(domain, rng):
    """Bins of noisy counts of all columns but keys."""
    bins = {}
    for column in domain:
        if column.kind != "key":
            cells = declared_cells(column)
            shares = to_shares(rng.integers(-5, 200, cells.size), 1_000)
            bins[column.name] = bin_cells(cells, shares, 0.001, keep=True)
    return bins


def with_supports(domain, rules, sequence, bins, seed):
    """A sampler whose rules are kept by feasible sets where they can be, and what was built."""
    model = ArbitraryRows(bins, sequence, seed)
    shares = ExpectedShares(
        sequence=sequence, bins=bins, model=model, networked=len(sequence), seed=seed
    )
    built = FeasibleSetBuilder(domain, shares).build(rules)
    parts = built.feasible_sets, built.row_rules, built.pair_rules
    return ConstraintSampler(domain, sequence, bins, model, *parts), built
