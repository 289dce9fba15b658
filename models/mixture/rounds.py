"""Adaptive rounds: choose the joint table that the model misses most, measure it, fit again.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1, on coarse domains, with all pairs and
modest triples as candidates and a mixture in place of a graphical model.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.private import Candidate
from models.groups import Groups
from models.mixture.products import Mixture

PAIR_CELLS, TRIPLE_CELLS = 10_000, 1_500
MOST_CANDIDATES = 3_000
MOST_VISITS = 4_000_000_000

Names = tuple[str, ...]


def candidates(sizes: Mapping[str, int], rows: int, seed: int) -> tuple[Names, ...]:
    """All pairs and triples of modest joint size; an even choice among them where there are too many to count."""
    pairs = [names for names in combinations(sizes, 2) if _cells(sizes, names) <= PAIR_CELLS]
    triples = [names for names in combinations(sizes, 3) if _cells(sizes, names) <= TRIPLE_CELLS]
    most = max(min(MOST_CANDIDATES, MOST_VISITS // max(rows, 1)), 1)
    chosen = (*_some(pairs, most, seed), *_some(triples, most - min(most, len(pairs)), seed))
    return chosen or tuple((name,) for name in sizes)


def _some(sets: Sequence[Names], most: int, seed: int) -> Sequence[Names]:
    if len(sets) <= most:
        return sets
    chosen = np.random.default_rng(seed).choice(len(sets), most, replace=False)
    return [sets[at] for at in np.sort(chosen)]


def _cells(sizes: Mapping[str, int], names: Names) -> int:
    return math.prod(sizes[name] for name in names)


def marginals(mixture: Mixture, wanted: Sequence[Names]) -> dict[Names, NDArray[np.float32]]:
    """The model's joint shares of pairs and triples of attributes that are factors of their own."""
    found: dict[Names, NDArray[np.float32]] = {}
    for names in wanted:
        if len(names) == 1:
            found[names] = mixture.marginal(names).astype(np.float32)
    for first, others in _by_first(names for names in wanted if len(names) == 2).items():
        found |= _extended(mixture, (first,), others)
    for (first, second), others in _by_two(names for names in wanted if len(names) == 3).items():
        found |= _extended(mixture, (first, second), others)
    return found


def _by_first(pairs: Iterable[Names]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for first, second in pairs:
        grouped[first].append(second)
    return grouped


def _by_two(triples: Iterable[Names]) -> dict[tuple[str, str], list[str]]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for first, second, third in triples:
        grouped[first, second].append(third)
    return grouped


def _extended(mixture: Mixture, names: Names, others: Sequence[str]) -> dict[Names, NDArray[np.float32]]:
    layout = mixture.layout
    folded = mixture.weights[None]
    for name in names:
        folded = (folded[:, None] * mixture.factor(layout.home[name])[None]).flatten(0, 1)
    begin, end = layout.edges[layout.home[others[0]]], layout.edges[layout.home[others[-1]] + 1]
    table = (folded @ mixture.shares[begin:end].T).numpy()
    shape = [layout.sizes[name] for name in names]
    found = {}
    for other in others:
        at = layout.edges[layout.home[other]] - begin
        found[*names, other] = table[:, at : at + layout.sizes[other]].reshape(*shape, layout.sizes[other])
    return found


def scored(
    mixture: Mixture, wanted: Sequence[Names], groups: Mapping[str, Groups], rows: int, deviation: float
) -> list[Candidate]:
    """The candidates with what the model expects of them; the handicap is the L1 norm of the noise of measuring."""
    expected = marginals(mixture, wanted)
    noise = math.sqrt(2 / math.pi) * deviation
    return [
        Candidate(tuple(groups[name] for name in names), rows * expected[names], noise * expected[names].size)
        for names in wanted
    ]
