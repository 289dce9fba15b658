"""The structure of the network: parents by correlation-based feature selection; post-processing.

Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 3.3, equations (4) to (6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Floats

Parents = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Correlations:
    """Symmetrical uncertainty of attributes ``names``, each from 0 to 1.

    Shapes: ``target`` (m, m), of an attribute (first axis) and a parent that it may have;
    ``between`` (m, m), of two parents, symmetric.
    """

    names: tuple[str, ...]
    target: Floats
    between: Floats


def symmetrical_uncertainty(one: Floats, other: Floats, joint: Floats) -> Floats:
    """Equation (5), 2 - 2 H(x, y) / (H(x) + H(y)), from noisy entropies, kept within 0 and 1."""
    whole = np.maximum(one + other, 1e-12)
    found: Floats = np.clip(2.0 - 2.0 * joint / whole, 0.0, 1.0)
    return np.where(one + other > 0, found, 0.0)


def dependence(distance: float, expected: Floats) -> float:
    """How much two attributes depend on each other, from 0 to 1.

    ``distance`` is the noisy L1 distance, in rows, of their table from the counts ``expected`` of
    independent ones. What chance alone adds, the mean absolute deviation of Poisson counts, is
    taken off; half the rest is the share of rows that would have to move: total variation.
    """
    chance = float(np.sqrt(2 * expected / math.pi).sum())
    return float(np.clip((distance - chance) / (2 * expected.sum()), 0.0, 1.0))


def merit(related: Floats, redundant: Floats, parents: int) -> Floats:
    """The score of sets of so many parents, equation (4); 0 for none.

    ``related`` and ``redundant``, of one shape, add up the correlations of a set with its child,
    and of its members with each other, both ways.
    """
    return related / np.sqrt(parents + redundant) if parents else np.zeros_like(related)


@dataclass(frozen=True)
class ParentLimits:
    """What sets of parents may be.

    ``sizes`` (m,) is the number of parts of each attribute as a parent; ``most`` (m,) how many
    configurations the parents of each attribute may have, the bound of equation (6); ``least``
    (m, m), the correlation from which on a parent is considered.
    """

    sizes: Sequence[int]
    most: Sequence[float]
    least: Floats


def choose_parents(correlations: Correlations, limits: ParentLimits) -> Parents:
    """The parents of each attribute: greedily, of all pairs the one that gains most merit.

    The graph stays acyclic, and the parents of each attribute within their limits. Ends when no
    parent gains merit.
    """
    names = correlations.names
    parents: list[list[int]] = [[] for _ in names]
    above = np.eye(len(names), dtype=bool)
    # above[a, b]: whether a is b or an ancestor of b
    gains = np.stack([_gains(correlations, limits, at, own) for at, own in enumerate(parents)])
    while True:
        child, parent = divmod(int(np.where(above, 0.0, gains).argmax()), len(names))
        if above[child, parent] or gains[child, parent] <= 0.0:
            return {name: tuple(names[p] for p in parents[at]) for at, name in enumerate(names)}
        parents[child].append(parent)
        above |= np.outer(above[:, parent], above[child])
        gains[child] = _gains(correlations, limits, child, parents[child])


def _gains(
    correlations: Correlations, limits: ParentLimits, child: int, own: Sequence[int]
) -> Floats:
    """The merit (m,) that each further parent adds to its ``own``; 0 beyond the limits."""
    chosen = list(own)
    related, between = correlations.target[child], correlations.between
    among = between[np.ix_(chosen, chosen)]
    held, redundant = related[chosen].sum(), among.sum() - np.trace(among)
    more = redundant + 2.0 * between[:, chosen].sum(axis=1)
    added = merit(held + related, more, len(chosen) + 1) - merit(held, redundant, len(chosen))
    sizes = np.asarray(limits.sizes, dtype=np.float64)
    fits = related > limits.least[child]
    fits &= math.prod(sizes[chosen]) * sizes <= limits.most[child]
    fits[chosen] = False
    return np.where(fits, added, 0.0)


def dependency_order(parents: Parents, preferred: Sequence[str]) -> tuple[str, ...]:
    """The order sigma: parents before children, otherwise as ``preferred``."""
    order: list[str] = []
    left = list(preferred)
    while left:
        ready = next(name for name in left if set(parents.get(name, ())) <= set(order))
        order.append(ready)
        left.remove(ready)
    return tuple(order)
