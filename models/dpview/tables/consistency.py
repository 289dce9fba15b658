"""Weighted consistency and non-negativity of noisy views, for any structure of overlaps.

What several views share is replaced by a weighted mean, smaller shared sets before larger ones; the
sets are all intersections of views, the empty set (the total) among them. A larger set changes no
smaller one, so one pass makes all views agree. Non-negativity undoes that a little, so the two take
turns until neither changes a count; that is a projection onto two convex sets in turn, which
converges since a common point exists.

Source: Lin, Yu, Huang, "DPView", section IV-E, equations 5 to 7 and figure 5; order of sets after
Qardaji, Yang, Li, "PriView" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloister.arrays import Floats
from cloister.models.dpview.views import Names, View, margin_over

_TURNS = 40
"""Turns of agreement and non-negativity at most."""

_STILL = 1e-7
"""Least count, as a negative share of all rows, that needs no further turn."""


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


def consistency_weights(views: Sequence[View], shared: frozenset[str]) -> list[float]:
    """The weight of each view in the mean: P^2 / xi, one over its margin's variance; equation 6."""
    precisions = [1.0 / (view.deviation**2 * view.other_cells(shared)) for view in views]
    return [precision / sum(precisions) for precision in precisions]


def impose_agreement(views: Sequence[View], total: float) -> list[View]:
    """The nearest views that agree on all that they share and hold ``total`` rows each."""
    agreeing = [view.add_to_margin((), np.asarray(total - view.counts.sum())) for view in views]
    for shared in shared_sets([view.names for view in views])[1:]:
        members = [at for at, view in enumerate(agreeing) if shared <= set(view.names)]
        means = _to_mean([agreeing[at] for at in members], shared)
        for at, view in zip(members, means, strict=True):
            agreeing[at] = view
    return agreeing


def _to_mean(views: Sequence[View], shared: frozenset[str]) -> list[View]:
    order = sorted(shared)
    margins = [margin_over(view, order) for view in views]
    mean = sum(
        w * margin for w, margin in zip(consistency_weights(views, shared), margins, strict=True)
    )
    return [
        view.add_to_margin(shared, _as_in(view, order, mean - own))
        for view, own in zip(views, margins, strict=True)
    ]


def _as_in(view: View, order: Sequence[str], counts: Floats) -> Floats:
    own = [name for name in view.names if name in order]
    return counts.transpose([order.index(name) for name in own])


def project_non_negative(counts: Floats) -> Floats:
    """The nearest non-negative counts of the same sum; zeros if the sum is not positive.

    Figure 5 of the paper, repeated until no count is negative: the sum of the negative counts is
    taken off the positive ones evenly.
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


def make_consistent(views: Sequence[View], total: float) -> list[View]:
    """Views that nearly agree on what they share, without negative counts.

    The views are first made to agree as they are, before any negative count is changed. After the
    last turn counts are non-negative, and agree up to the change of that turn.
    """
    current = impose_agreement(views, total)
    for _ in range(_TURNS):
        clipped = [view.of(project_non_negative(view.counts)) for view in current]
        current = impose_agreement(clipped, total)
        if min(float(view.counts.min()) for view in current) > -_STILL * total:
            break
    return [view.of(project_non_negative(view.counts)) for view in current]
