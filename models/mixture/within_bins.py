"""Values inside bins, drawn to follow those of a related attribute.

Joint tables are over bins and say nothing about pairs of values inside them. The outer bin of a
heavy tail has much of its variance: with independent values inside bins, numbers with correlated
tails lose their correlation. Here the order of rows inside a bin follows a Gaussian copula that
differs from bin to bin: on the scale of normal scores, one attribute has a mean that is linear in
the other's score between the bins' means, and beyond them, and a deviation in each bin. Both come
from the model's joint table over bins. Only the order changes: histograms stay as they are.

Source: Gaussian copulas for private tables after Li, Xiong, Jiang, "Differentially private
synthesization of multi-dimensional data using copula functions" (EDBT 2014), section 4, here for
one related attribute at a time, and inside bins only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from cloister.arrays import Booleans, Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.mixture.products import Mixture
from cloister.schema.columns import Grid

_LEAST_CORRELATION = 0.1
"""Correlation of normal scores below which attributes are not related."""

_LEAST_DEVIATION = 0.02
"""Least deviation of a score given another: a fiftieth of that without the other."""

_LEAST_MASS = 1e-12
"""Least mass in a denominator, for empty bins."""

_LEAST_SHARE = 0.1
"""A bin with less than this share of the average mass is ignored in a relation."""

_BACKGROUND = 0.1
"""Share of rows assumed to follow the histogram instead of a relation when it is estimated."""

_FIRST_DEVIATION = 0.3
"""Initial deviation of scores for maximum likelihood: that inside the last of 30 bins."""

_EM_STEPS = 20
"""Steps of maximum likelihood; with 100 correlations changed by less than 0.01."""

_LEAST_SHARE_OF_BIN = 1e-9
"""Below this share of a normal distribution in a bin, its moments there are those of the edge."""

_FARTHEST = 5.0
"""Most deviations of a mean outside a bin; farther means count as being this far."""

_LEAST_QUANTILE = 1e-12
"""Least quantile of the normal distribution drawn, so that scores are finite."""


@dataclass(frozen=True)
class NormalScores:
    """The bins of a numeric attribute on the scale of normal scores.

    Special and missing values, which are ``alone`` in their bins, have none.
    """

    bins: Histogram

    @property
    def name(self) -> str:
        """The attribute."""
        return self.bins.name

    @cached_property
    def alone(self) -> Booleans:
        """The bins (size,) without a score."""
        return self.bins.alone

    @cached_property
    def heights(self) -> Floats:
        """Shares (size + 1,) of the rows with a score that lie below each bin, and below all."""
        mass = np.where(self.alone, 0.0, self.bins.mass + _LEAST_MASS)
        sums = np.append(0.0, np.cumsum(mass))
        return np.minimum(sums / sums[-1], 1.0)

    @cached_property
    def edges(self) -> Floats:
        """Scores (size + 1,) at the ends of bins; the first and last are infinite."""
        return np.asarray(ndtri(self.heights), dtype=np.float64)

    @cached_property
    def means(self) -> Floats:
        """The mean score (size,) in each bin."""
        return -np.diff(_density(self.edges)) / self._shares

    @cached_property
    def variances(self) -> Floats:
        """The variance (size,) of scores in each bin."""
        finite = np.where(np.isfinite(self.edges), self.edges, 0.0)
        squares = 1.0 - np.diff(finite * _density(self.edges)) / self._shares
        return np.maximum(squares - np.square(self.means), 0.0)

    @cached_property
    def known(self) -> Integers:
        """The bins (k,) with a score and enough mass to estimate a relation."""
        return np.flatnonzero(~self.alone & (self.bins.mass * self.bins.size >= _LEAST_SHARE))

    @property
    def _shares(self) -> Floats:
        return np.maximum(np.diff(self.heights), _LEAST_MASS)

    def scores_of(self, levels: Integers, quantiles: Floats) -> Floats:
        """Scores (n,) of rows in bins (n,) at quantiles (n,) of these; finite."""
        low, high = self.heights[levels], self.heights[levels + 1]
        inside = low + quantiles * (high - low)
        return np.asarray(ndtri(np.clip(inside, _LEAST_QUANTILE, 1 - _LEAST_QUANTILE)))


@dataclass(frozen=True)
class ScoreRelation:
    """The normal score of attribute ``of``, given that of attribute ``by``.

    Shapes: ``knots`` (k,) increasing scores of ``by``, ``means`` (k,) the mean scores of ``of``
    there, linear between and beyond them; ``deviations`` (bins of ``by``,).
    """

    of: NormalScores
    by: NormalScores
    knots: Floats
    means: Floats
    deviations: Floats

    @classmethod
    def from_table(cls, of: NormalScores, by: NormalScores, shares: Floats) -> ScoreRelation:
        """The relation in joint ``shares`` (bins of ``by``, bins of ``of``)."""
        mass = np.where(by.alone[:, None] | of.alone, 0.0, shares)
        known = by.known
        given = mass[known] / np.maximum(mass[known].sum(1, keepdims=True), _LEAST_MASS)
        means, spread = _grouped_moments(given[:, ~of.alone], of)
        slopes = np.gradient(means, by.means[known])
        rest = spread - np.square(slopes) * by.variances[known]
        deviations = np.ones(by.bins.size)
        deviations[known] = np.sqrt(np.maximum(rest, _LEAST_DEVIATION**2))
        return cls(of, by, by.means[known], means, deviations)

    def expected(self, scores: Floats) -> Floats:
        """The mean score (n,) of ``of`` at scores (n,) of ``by``."""
        index = np.clip(np.searchsorted(self.knots, scores), 1, len(self.knots) - 1)
        slopes = np.diff(self.means) / np.diff(self.knots)
        return self.means[index - 1] + slopes[index - 1] * (scores - self.knots[index - 1])

    def draw(
        self, of: Integers, by: Integers, quantiles: Floats, rng: np.random.Generator
    ) -> Floats:
        """Scores (n,) inside bins ``of`` (n,), given bins ``by`` (n,) and quantiles (n,) in these.

        Where one of them has no score, by the histogram.
        """
        unknown = self.by.alone[by] | self.of.alone[of]
        deviation = self.deviations[by]
        low = np.where(unknown, -np.inf, self.of.edges[of])
        high = np.where(unknown, np.inf, self.of.edges[of + 1])
        mean = self.expected(self.by.scores_of(by, quantiles))
        mean = np.clip(mean, low - _FARTHEST * deviation, high + _FARTHEST * deviation)
        least, most = ndtr((low - mean) / deviation), ndtr((high - mean) / deviation)
        inside = rng.random(len(of))
        wanted = np.clip(least + inside * (most - least), _LEAST_QUANTILE, 1 - _LEAST_QUANTILE)
        return np.where(unknown, self.of.scores_of(of, inside), mean + deviation * ndtri(wanted))


def _grouped_moments(given: Floats, scores: NormalScores) -> tuple[Floats, Floats]:
    """Means and variances (k,) of normal scores of which shares ``given`` (k, bins) are known.

    Without the bins that are alone. Inside a bin these scores are nearer to those of other bins
    than its histogram says: without that, strong relations come out too weak. A part of the rows
    follows the histogram, as noise and the fit put some anywhere; it counts for nothing.

    Source: maximum likelihood from grouped data, Dempster, Laird, Rubin, "Maximum likelihood from
    incomplete data via the EM algorithm" (1977), section 4.2.
    """
    low, high = scores.edges[:-1][~scores.alone], scores.edges[1:][~scores.alone]
    anywhere = _BACKGROUND * np.diff(scores.heights)[~scores.alone]
    centers = scores.means[~scores.alone]
    middle = [
        centers[np.argmax(np.cumsum(given, axis=1) >= share - _LEAST_MASS, axis=1)]
        for share in (0.25, 0.5, 0.75)
    ]
    means, deviations = middle[1], np.maximum((middle[2] - middle[0]) / 2, _FIRST_DEVIATION)
    for _ in range(_EM_STEPS):
        share, within, squares = _truncated(low, high, means[:, None], deviations[:, None])
        weights = given * share / (share + anywhere + _LEAST_MASS)
        weights /= np.maximum(weights.sum(1, keepdims=True), _LEAST_MASS)
        means = (weights * within).sum(1)
        spread = (weights * (squares + np.square(within - means[:, None]))).sum(1)
        deviations = np.sqrt(np.maximum(spread, _LEAST_DEVIATION**2))
    return means, np.square(deviations)


def _truncated(
    low: Floats, high: Floats, mean: Floats, deviation: Floats
) -> tuple[Floats, Floats, Floats]:
    """Shares (k, bins) of normal distributions (k, 1) in bins, and means and variances there.

    Of bins that are far from a distribution, the nearer edge.
    """
    least, most = (low - mean) / deviation, (high - mean) / deviation
    share = ndtr(most) - ndtr(least)
    near = share > _LEAST_SHARE_OF_BIN
    known = np.where(near, share, 1.0)
    ends = [np.where(np.isfinite(end), end, 0.0) * _density(end) for end in (least, most)]
    shift = (_density(least) - _density(most)) / known
    squares = np.maximum(1.0 + (ends[0] - ends[1]) / known - np.square(shift), 0.0)
    inside = np.where(near, mean + deviation * shift, np.clip(mean, low, high))
    return share, inside, np.where(near, np.square(deviation) * squares, 0.0)


def relations_between(
    mixture: Mixture, bins: Mapping[str, Histogram], free: Sequence[str]
) -> tuple[ScoreRelation, ...]:
    """For each of the ``free`` attributes, the relation to its best predictor.

    That is the numeric attribute of the mixture with which its scores correlate most. Strong
    relations come first, so that no attribute moves after another followed it, except within a
    pair.
    """
    scores = _scores_of(mixture, bins)
    if len(scores) < 2:
        return ()
    strength = _correlations(mixture, scores)
    best = strength.argmax(1)
    strongest = strength.max(1)
    return tuple(
        ScoreRelation.from_table(of, by, mixture.marginal([by.bins, of.bins]))
        for index in np.argsort(-strongest, kind="stable")
        if strongest[index] >= _LEAST_CORRELATION and scores[index].name in free
        for of, by in [(scores[index], scores[best[index]])]
    )


def _scores_of(mixture: Mixture, bins: Mapping[str, Histogram]) -> list[NormalScores]:
    """The numbers of the mixture with enough bins to estimate a relation."""
    numbers = [n for n in mixture.layout.sizes if isinstance(bins[n].column, Grid)]
    return [
        number for number in (NormalScores(bins[name]) for name in numbers) if len(number.known) > 1
    ]


def _correlations(mixture: Mixture, scores: Sequence[NormalScores]) -> Floats:
    """Correlations (n, n) of scores, without sign, among rows that have both; zero with itself.

    Attributes are taken as independent inside a component.
    """
    known = np.stack([_moments(mixture, score, 0) for score in scores])
    first = np.stack([_moments(mixture, score, 1) for score in scores])
    second = np.stack([_moments(mixture, score, 2) for score in scores])
    weights = mixture.weights.double().numpy()
    both = np.maximum((known * weights) @ known.T, _LEAST_MASS)
    means, squares = (first * weights) @ known.T / both, (second * weights) @ known.T / both
    covariance = (first * weights) @ first.T / both - means * means.T
    variance = np.maximum(squares - np.square(means), _LEAST_MASS)
    correlations = np.abs(covariance) / np.sqrt(variance * variance.T)
    np.fill_diagonal(correlations, 0.0)
    return np.asarray(correlations)


def _moments(mixture: Mixture, scores: NormalScores, power: int) -> Floats:
    """The mean in each component of a power of a score that is zero where there is none."""
    numbers = np.where(scores.alone, 0.0, scores.means**power)
    shares = mixture.shares_of(scores.name)
    return (torch.as_tensor(numbers).float() @ shares).double().numpy()


def _density(scores: Floats) -> Floats:
    return np.exp(-np.square(scores) / 2) / np.sqrt(2 * np.pi)
