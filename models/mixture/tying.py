"""Tying attributes together: a support whose attributes stand in no other becomes one factor of the mixture.

Rows of the mixture then keep the constraint in every component, and the fit makes up for what the support leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch

from cloister.constraints.supports import Support
from models.mixture.products import Factor, Layout, Mixture
from models.supporting import Rules

MOST_LEVELS = 4_000


def can_tie(rules: Rules, modelled: Sequence[str]) -> bool:
    """Whether all rules on pairs are supports of modest size that share no attribute, inside the modelled ones."""
    apart = all(set(a.attributes).isdisjoint(b.attributes) for a, b in combinations(rules.supports, 2))
    inside = all(set(modelled).issuperset(s.attributes) and len(s.levels) <= MOST_LEVELS for s in rules.supports)
    return apart and inside and not rules.pair_rules


def tied(sizes: Mapping[str, int], supports: Sequence[Support]) -> Layout:
    """The layout whose factors are the supports, then all other attributes alone."""
    taken = {name for support in supports for name in support.attributes}
    factors = [Factor(support.attributes, support.levels) for support in supports]
    factors += [Factor.single(name, size) for name, size in sizes.items() if name not in taken]
    return Layout(tuple(factors), dict(sizes))


def carried_over(mixture: Mixture, layout: Layout) -> Mixture:
    """The mixture on another layout: inside a component, levels of a factor in proportion to their old product."""
    parts = []
    for factor in layout.factors:
        logs = sum((mixture.logs(n)[factor.levels[:, at]] for at, n in enumerate(factor.attributes)), torch.zeros(1))
        parts.append(torch.softmax(logs, 0))
    return Mixture(layout, mixture.weights, torch.cat(parts))
