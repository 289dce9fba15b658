"""Weighted consistency and non-negativity of noisy views, for any structure of overlaps.

What several views share is settled by a weighted mean, smaller shared sets before larger ones; the
sets are all intersections of views, the empty set (the total) among them. Settling a larger set
moves no smaller one, so one pass makes all views agree. Non-negativity undoes that a little, so the
two take turns until neither moves a count; that is a projection onto two convex sets in turn, which
converges since a common point exists.

Source: Lin, Yu, Huang, "DPView", section IV-E, equations 5 to 7 and figure 5; order of sets after
Qardaji, Yang, Li, "PriView" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.dpview.tables import Counts, Names, View, margin_over

TURNS = 40
STILL = 1e-7


def shared_sets(views: Sequence[Names]) -> list[frozenset[str]]:
    """Every intersection of two or more views, smaller sets first.

    The empty set is always the first.
    """
    sets = {frozenset[str]()}
    fresh = {frozenset(a) & frozenset(b) for at, a in enumerate(views) for b in views[:at]}
    while fresh - sets:
        sets |= fresh
        fresh = {a & b for a in sets for b in sets}
    return sorted(sets, key=lambda names: (len(names), sorted(names)))


def weights(views: Sequence[View], shared: frozenset[str]) -> list[float]:
    """The share of each view in the mean: P^2 / xi, which is one over the variance of its margin (equation 6)."""
    precisions = [1.0 / (view.deviation**2 * view.other_cells(shared)) for view in views]
    return [precision / sum(precisions) for precision in precisions]


def agreed(views: Sequence[View], total: float) -> list[View]:
    """The views, moved as little as needed so that they agree on all that they share, and each holds ``total`` rows."""
    agreeing = [view.raised((), np.asarray(total - view.counts.sum())) for view in views]
    for shared in shared_sets([view.names for view in views])[1:]:
        members = [at for at, view in enumerate(agreeing) if shared <= set(view.names)]
        settled = _settle([agreeing[at] for at in members], shared)
        for at, view in zip(members, settled, strict=True):
            agreeing[at] = view
    return agreeing


def _settle(views: Sequence[View], shared: frozenset[str]) -> list[View]:
    order = sorted(shared)
    margins = [margin_over(view, order) for view in views]
    mean = sum(w * margin for w, margin in zip(weights(views, shared), margins, strict=True))
    return [
        view.raised(shared, _as_in(view, order, mean - own))
        for view, own in zip(views, margins, strict=True)
    ]


def _as_in(view: View, order: Sequence[str], counts: Counts) -> Counts:
    own = [name for name in view.names if name in order]
    return counts.transpose([order.index(name) for name in own])


def non_negative(counts: Counts) -> Counts:
    """Counts without negative ones, of the same sum if that is positive: figure 5 of the paper, until none is left.

    What negative counts hold is taken off the positive ones evenly, again and again. The result is
    the nearest non-negative table of that sum.
    """
    flat = np.array(counts, dtype=np.float64).ravel()
    if flat.sum() <= 0:
        return np.zeros_like(counts)
    while (flat < 0).any():
        owed = flat[flat < 0].sum()
        positive = flat > 0
        flat[flat < 0] = 0.0
        flat[positive] += owed / positive.sum()
    return flat.reshape(counts.shape)


def settled(views: Sequence[View], total: float) -> list[View]:
    """Views that agree on what they share and hold no negative count, as far as the turns lead.

    The views are first made to agree as they are, which no later step can do as well. After the
    last turn counts are non-negative, and agree within the last step.
    """
    current = agreed(views, total)
    for _ in range(TURNS):
        clipped = [view.of(non_negative(view.counts)) for view in current]
        current = agreed(clipped, total)
        if min(float(view.counts.min()) for view in current) > -STILL * total:
            break
    return [view.of(non_negative(view.counts)) for view in current]
