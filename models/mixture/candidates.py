"""Adaptive rounds: which joint tables may be measured, and what the model expects of them.

Source: McKenna, Mullins, Sheldon, Miklau, "AIM" (arXiv 2201.12677), algorithm 1, on coarse domains,
with all pairs and modest triples as candidates, each at several resolutions, and a mixture in place
of a graphical model.
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

from cloister.privacy.queries.candidate_scores import Candidate
from models.discretization.bins import Bins
from models.discretization.coarsening import Coarsening, coarse, fine
from models.mixture.products import Mixture

PAIR_CELLS, TRIPLE_CELLS = 10_000, 1_500
RESOLUTIONS = (8,)
MOST_CANDIDATES = 3_000
MOST_VISITS = 4_000_000_000

Readings = tuple[Coarsening, ...]
T = TypeVar("T")


def candidates(groups: Mapping[str, Bins], rows: int, seed: int) -> tuple[Readings, ...]:
    """All pairs and triples of modest joint size, by groups and by parts.

    Single attributes if there is no pair.

    Where there are too many to count, an even choice among them, pairs first.
    """
    levels = {name: _levels(own) for name, own in groups.items()}
    most = max(min(MOST_CANDIDATES, MOST_VISITS // max(rows, 1)), 1)
    chosen = some(_sets(levels, 2, PAIR_CELLS), most, seed)
    if len(chosen) < most:
        chosen += some(_sets(levels, 3, TRIPLE_CELLS), most - len(chosen), seed)
    return tuple(chosen) or tuple((readings[0],) for readings in levels.values())


def _levels(groups: Bins) -> list[Coarsening]:
    """The readings of one attribute, finest first."""
    return [fine(groups), *(coarse(groups, most) for most in RESOLUTIONS if groups.size > most)]


def _sets(levels: Mapping[str, Sequence[Coarsening]], ways: int, cells: int) -> list[Readings]:
    """Sets of attributes, each read finely or coarsely."""
    sets = (
        readings for chosen in combinations(levels.values(), ways) for readings in product(*chosen)
    )
    return [
        readings for readings in sets if math.prod(reading.size for reading in readings) <= cells
    ]


def some(sets: list[T], most: int, seed: int) -> list[T]:
    """An even choice of at most so many, in their order."""
    if len(sets) <= most:
        return sets
    chosen = np.random.default_rng(seed).choice(len(sets), most, replace=False)
    return [sets[at] for at in np.sort(chosen)]


def expected(mixture: Mixture, wanted: Sequence[Readings]) -> dict[Readings, NDArray[np.float32]]:
    """The model's joint shares of each candidate, one axis a reading.

    Readings must be of factors of their own.
    """
    seen: dict[Coarsening, Tensor] = {}
    for reading in (reading for readings in wanted for reading in readings if reading not in seen):
        (view,), _ = mixture.layout.views([reading])
        seen[reading] = mixture.seen(view)
    lasts: dict[Readings, list[Coarsening]] = {}
    for readings in wanted:
        lasts.setdefault(readings[:-1], []).append(readings[-1])
    found: dict[Readings, NDArray[np.float32]] = {}
    for firsts, others in lasts.items():
        folded = mixture.weights[None]
        for reading in firsts:
            folded = (folded[:, None] * seen[reading][None]).flatten(0, 1)
        table = folded @ torch.cat([seen[reading] for reading in others]).T
        parts = torch.split(table, [reading.size for reading in others], 1)
        shape = [reading.size for reading in firsts]
        found |= {
            (*firsts, o): part.reshape(*shape, -1).numpy()
            for o, part in zip(others, parts, strict=True)
        }
    return found


def offered(
    mixture: Mixture, wanted: Sequence[Readings], rows: int, deviation: float
) -> list[Candidate]:
    """The candidates with what the model expects of them.

    The handicap is the L1 norm of the noise of measuring.
    """
    shares = expected(mixture, wanted)
    noise = math.sqrt(2 / math.pi) * deviation
    return [Candidate(r, rows * shares[r], noise * shares[r].size) for r in wanted]
