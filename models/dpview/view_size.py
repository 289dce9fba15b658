"""How many attributes a view should have, and how many parts an attribute: from public sizes, rows and budget.

The paper's guideline supposes that a view's table is a standard normal one and asks how much of it
lies above the noise. What a noisy view still tells lies in the joint tables of its pairs, so here
the normal table is that of a pair, and the noise is what the view's noise adds up to in one cell of
it. Each candidate is a view list with the noise it would get. It earns, for each pair of attributes
that stand together in a view, the share of the pair's table above the noise times what so many
parts keep of a dependence. The candidate that earns most is taken: wider and finer views hold more
and tell less.

Source: Lin, Yu, Huang, "DPView", section IV-C7; what parts keep: Cox, "Note on grouping" (1957).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from models.dpview.views import Names, Sizes

DEPENDENCE = 0.2
REACH = 3.0


@lru_cache(maxsize=4096)
def above_noise(first: int, second: int, rows: int, deviation: float) -> float:
    """The share of a dependence that stands out of noise, in a standard normal table of ``first`` x ``second`` parts.

    A dependence that moves a cell of c rows by 0.2 c stands out in the share (0.2 c)^2 / ((0.2 c)^2
    + deviation^2).
    """
    masses = np.outer(normal(first), normal(second))
    moved = np.square(DEPENDENCE * rows * masses)
    return float((masses * moved / (moved + deviation**2)).sum())


@lru_cache
def normal(size: int) -> NDArray[np.float64]:
    """Masses (size,) of equally wide parts of a standard normal variable within three deviations."""
    masses = np.diff(norm.cdf(np.linspace(-REACH, REACH, size + 1)))
    return np.asarray(masses / masses.sum())


@lru_cache
def kept(parts: int, size: int) -> float:
    """The share of a normal variable's variance between ``parts`` parts of equal mass; 1 if these are all values."""
    if parts >= size:
        return 1.0
    density = norm.pdf(norm.ppf(np.linspace(0.0, 1.0, parts + 1)))
    return float(parts * np.square(np.diff(density)).sum())


@dataclass(frozen=True)
class Noisy:
    """A view's cells, and the epsilon that its noise would have."""

    cells: int
    epsilon: float

    def deviation(self, pair: int) -> float:
        """The deviation of the noise, in rows, in a cell of a joint table of ``pair`` cells, summed from the view."""
        return math.sqrt(2.0 * self.cells / pair) / self.epsilon


def earned(views: Mapping[Names, Noisy], sizes: Sizes, parts: int, rows: int) -> float:
    """What views are worth: over all pairs, the mean share of a dependence that they hold above the noise.

    ``sizes`` are those of the attributes before they are merged to at most ``parts`` parts.
    """
    best: dict[frozenset[str], float] = {}
    for view, about in views.items():
        for first, second in combinations(view, 2):
            a, b = (min(sizes[name], parts) for name in (first, second))
            clear = above_noise(a, b, rows, about.deviation(a * b))
            pair = frozenset((first, second))
            worth = clear * kept(a, sizes[first]) * kept(b, sizes[second])
            best[pair] = max(best.get(pair, 0.0), worth)
    return sum(best.values()) / max(math.comb(len(sizes), 2), 1)
