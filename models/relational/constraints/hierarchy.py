"""References of a table to itself in which no row is above itself."""

from __future__ import annotations

import numpy as np

from cloister.arrays import Booleans, Integers

_EXCHANGES = 20
"""Times that a row of each circle exchanges its parent with a random one; few circles are left."""


def without_cycles(owners: Integers, rng: np.random.Generator) -> Integers:
    """Owners (n,) of rows among the same rows, -1 for none, without circles.

    A row of each circle exchanges its parent with another row's, which keeps all degrees; of
    circles that are left after a few exchanges a row loses its parent.
    """
    owners = owners.copy()
    for _ in range(_EXCHANGES):
        one = _one_of_each(owners)
        if not len(one):
            return owners
        partners = rng.choice(np.flatnonzero(owners >= 0), len(one))
        for row, other in zip(one.tolist(), partners.tolist(), strict=True):
            owners[[row, other]] = owners[[other, row]]
    owners[_one_of_each(owners)] = -1
    return owners


def on_cycles(owners: Integers) -> Booleans:
    """Which rows (n,) are above themselves: those left when rows below nobody's head are peeled."""
    inside = owners >= 0
    below = np.bincount(owners[inside], minlength=len(owners))
    leaves = np.flatnonzero(inside & (below == 0)).tolist()
    while leaves:
        row = leaves.pop()
        inside[row] = False
        parent = int(owners[row])
        below[parent] -= 1
        if below[parent] == 0 and inside[parent]:
            leaves.append(parent)
    return inside & (below > 0)


def _one_of_each(owners: Integers) -> Integers:
    """The least row number of each circle."""
    circles, found = on_cycles(owners), []
    for row in np.flatnonzero(circles).tolist():
        if circles[row]:
            found.append(row)
        at = row
        while circles[at]:
            circles[at] = False
            at = int(owners[at])
    return np.array(found, dtype=np.int64)
