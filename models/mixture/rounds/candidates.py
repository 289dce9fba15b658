"""Adaptive rounds: which joint tables may be measured, and what the model expects of them.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1, on coarse domains,
with all pairs and small triples as candidates, each at several resolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloister.models.discretization.bins import (
    Bins,
    Coarsening,
    coarse,
    coarse_by_spread,
    fine,
    variance_shares,
)
from cloister.models.mixture.fitting.products import Mixture
from cloister.models.mixture.rounds.schedule import MOST_CANDIDATES
from cloister.models.planning import PAIR_CELLS
from cloister.schema.columns import Grid

TRIPLE_CELLS = 1_500
"""Cells of a candidate triple at most."""

_RESOLUTIONS = (32, 8)
"""Parts of an attribute in candidates, beside its bins, if it has twice as many.

At epsilon 0.1 four parts, in place of eight or beside them, were no better (docs/papers.md).
"""

_TAIL_RESOLUTIONS = (16, 8)
"""Parts of a number in candidate pairs that cut tails by value as well as by mass."""

_HEAVY = 0.25
"""Share of a number's variance in one bin from which on its tail is heavy.

Of 32 bins of equal mass the outer ones have a tenth of a uniform variance, a sixth of a normal one,
a third of an exponential one. With all numbers Adult was no better at epsilon 0.2.
"""

_MOST_VISITS = 4_000_000_000
"""Rows times candidates at most: what counting the candidates takes."""

Coarsenings = tuple[Coarsening, ...]
_T = TypeVar("_T")


def candidate_tables(bins: Mapping[str, Bins], rows: int, seed: int) -> tuple[Coarsenings, ...]:
    """All pairs and triples of small joint size, of bins or of parts; singles if there is no pair.

    Where there are too many to count, an even choice of them, pairs first.
    """
    levels = {name: _levels(own) for name, own in bins.items()}
    most = max(min(MOST_CANDIDATES, _MOST_VISITS // max(rows, 1)), 1)
    chosen = even_choice(_sets(levels, 2, PAIR_CELLS) + _tail_pairs(bins), most, seed)
    if len(chosen) < most:
        chosen += even_choice(_sets(levels, 3, TRIPLE_CELLS), most - len(chosen), seed)
    return tuple(chosen) or tuple((coarsenings[0],) for coarsenings in levels.values())


def _levels(bins: Bins) -> list[Coarsening]:
    """The coarsenings of one attribute, finest first."""
    return [fine(bins), *(coarse(bins, most) for most in _RESOLUTIONS if _worthwhile(bins, most))]


def _tail_pairs(bins: Mapping[str, Bins]) -> list[Coarsenings]:
    """Pairs of heavy-tailed numbers in parts that are small in tails."""
    numbers = [
        own
        for own in bins.values()
        if isinstance(own.cells.column, Grid) and variance_shares(own).max() >= _HEAVY
    ]
    return [
        pair
        for most in _TAIL_RESOLUTIONS
        for pair in combinations(
            [coarse_by_spread(own, most) for own in numbers if _worthwhile(own, most)], 2
        )
        if math.prod(own.size for own in pair) <= PAIR_CELLS
    ]


def _worthwhile(bins: Bins, most: int) -> bool:
    return bins.size > (2 * most if most == max(_RESOLUTIONS) else most)


def _sets(levels: Mapping[str, Sequence[Coarsening]], ways: int, cells: int) -> list[Coarsenings]:
    """Sets of ``ways`` attributes, at every combination of their coarsenings."""
    sets = (
        coarsenings
        for chosen in combinations(levels.values(), ways)
        for coarsenings in product(*chosen)
    )
    return [table for table in sets if math.prod(own.size for own in table) <= cells]


def even_choice(sets: list[_T], most: int, seed: int) -> list[_T]:
    """At most ``most`` of them, each as likely as another, in their order."""
    if len(sets) <= most:
        return sets
    chosen = np.random.default_rng(seed).choice(len(sets), most, replace=False)
    return [sets[at] for at in np.sort(chosen)]


def expected_shares(
    mixture: Mixture, tables: Sequence[Coarsenings]
) -> dict[Coarsenings, NDArray[np.float32]]:
    """The model's joint shares of each table, one axis a coarsening.

    Each attribute must be a factor of its own. Tables that differ in the last coarsening only are
    computed together.
    """
    shares: dict[Coarsening, Tensor] = {}
    for coarsening in (own for table in tables for own in table if own not in shares):
        (view,), _ = mixture.layout.views([coarsening])
        shares[coarsening] = mixture.view_shares(view)
    lasts: dict[Coarsenings, list[Coarsening]] = {}
    for table in tables:
        lasts.setdefault(table[:-1], []).append(table[-1])
    found: dict[Coarsenings, NDArray[np.float32]] = {}
    for firsts, others in lasts.items():
        folded = mixture.weights[None]
        for coarsening in firsts:
            folded = (folded[:, None] * shares[coarsening][None]).flatten(0, 1)
        together = folded @ torch.cat([shares[other] for other in others]).T
        parts = torch.split(together, [other.size for other in others], 1)
        shape = [coarsening.size for coarsening in firsts]
        found |= {
            (*firsts, other): part.reshape(*shape, -1).numpy()
            for other, part in zip(others, parts, strict=True)
        }
    return found
