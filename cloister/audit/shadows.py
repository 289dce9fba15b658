"""Membership by a classifier that is trained on shadow releases, whose members it is told.

A release shows a target by features: how many rows have its values and pairs of values, means and
correlations of all rows in the direction in which the target moves them, and its closest row. One
classifier learns from all targets of the first half of the releases, and scores those of the other
half: it was told no coin that it is asked about.

Source: Stadler, Oprisanu and Troncoso, Synthetic data: anonymisation groundhog day (USENIX Security
2022), whose features of a release these are, here as a target moves them, so that all targets train
one classifier; the counts are those of Houssiau and others, TAPAS: a toolbox for adversarial
privacy auditing of synthetic data (arXiv 2211.06550).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression

from cloister.arrays import Booleans, Floats, Integers
from cloister.evaluation import attacks, marginals
from cloister.schema.domain import Table

_PAIRS = 40
"""Pairs of attributes at most that are features: trials are kept with 3,000 numbers at most."""

_DIGITS = 4
"""Decimal places of features that are kept: counts are whole, and others smaller than ten."""


def features_of(targets: Table, shown: Table, reference: Table) -> Floats:
    """What a release shows of each target: features (targets, f).

    The ``reference`` rows give means and deviations of the population.
    """
    nearness = -np.log(attacks.nearest(targets, shown) + 1 / reference.rows)
    columns = [*_counted(targets, shown), *_moments(targets, shown, reference), nearness]
    return np.round(np.column_stack(columns), _DIGITS)


def calibrated(figures: Floats, halves: Integers) -> Floats:
    """Figures (releases, targets, ...) less the mean of a target over releases of the same half."""
    means = {half: figures[halves == half].mean(axis=0) for half in np.unique(halves)}
    return figures - np.array([means[half] for half in halves])


def trained_scores(features: Floats, coins: Booleans) -> Floats:
    """Scores (later, targets) of the later half of releases, by what coins of the others teach.

    Of the calibrated ``features`` (releases, targets, f) and the ``coins`` (releases, targets).
    """
    width, shadows = features.shape[2], len(features) // 2
    scaled = features / (features.std(axis=(0, 1)) + 10.0**-_DIGITS)
    classifier = LogisticRegression(max_iter=1_000)
    classifier.fit(scaled[:shadows].reshape(-1, width), coins[:shadows].ravel())
    scores = classifier.decision_function(scaled[shadows:].reshape(-1, width))
    return np.asarray(scores.reshape(-1, features.shape[1]))


def _sets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Single attributes, and pairs of them."""
    pairs = marginals.attribute_sets(names, 2)[:_PAIRS] if len(names) > 1 else []
    return [*((name,) for name in names), *pairs]


def _counted(targets: Table, shown: Table) -> Iterator[Floats]:
    """How many shown rows have the values of each target (t,), for each set of attributes."""
    for mine, theirs in marginals.joint_cells((targets, shown), _sets(targets.domain.modelled)):
        counts = np.bincount(theirs, minlength=mine.max() + 1)
        yield counts[mine].astype(np.float64)


def _moments(targets: Table, shown: Table, reference: Table) -> Iterator[Floats]:
    """The mean of each attribute, and of products of two, times what is a target's (t,)."""
    scaled = {}
    for name in targets.domain.modelled:
        numbers = reference.comparable(name)
        mean, deviation = np.nanmean(numbers), np.nanstd(numbers) or 1.0
        both = (table.comparable(name) for table in (targets, shown))
        scaled[name] = [np.nan_to_num((numbers - mean) / deviation) for numbers in both]
    for names in _sets(targets.domain.modelled):
        mine, theirs = (np.prod([scaled[name][k] for name in names], axis=0) for k in (0, 1))
        yield mine * theirs.mean()
