"""A Gaussian copula over binary columns, decoded to parts of attributes: fitting and drawing.

Source: Asghar et al., section 3.3. Correlations are solved for thresholded columns, while records
take the highest of an attribute's scores; so correlations are adjusted until the decoded records of
a public sample have the wanted conjunctions.

An attribute takes the part whose column has the highest score plus offset; one with a single column
takes its second part if that sum is positive. Offsets are fitted so that parts are as frequent as
the histograms say: a multinomial probit whose scores correlate across attributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strmm
from scipy.special import ndtri

from cloister.arrays import TINY, Array, Booleans, Floats, Integers
from cloister.models.copula.correlations import (
    SWEEPS,
    factor,
    latent_correlations,
    nearest_correlation,
)
from cloister.privacy.queries.counts import DummyCoding

Scores = NDArray[np.float32]

_RATE = 0.3
"""Step of an offset, per unit of log(wanted share / present share)."""

_RARE = 2e-5
"""Added to both shares, so that parts without rows can recover."""

_LEAST_SHARE = 1e-6
"""Least share of ones, and of zeros, of a column: thresholds stay finite."""

_STRONGEST = 0.98
"""Greatest absolute correlation of scores: stronger ones leave no room for others."""

_MOST_SIMULATED = 32_768
"""Most rows of the public sample."""

_LEAST_SIMULATED = 4_096
"""Fewest rows of the public sample; between the bounds, four times those of the data."""

_SEED = 20_190_204
"""Public seed of that sample."""

_REFINEMENTS = 4
"""Adjustments of correlations; from the fifth on, errors fell by less than a hundredth."""

_STEP = 0.5
"""Part of the estimated distance by which a correlation is adjusted."""

_FARTHEST = 0.1
"""Largest adjustment of a correlation."""

_LEAST_DENSITY = 0.05
"""Least derivative of a conjunction by its correlation, as a share of the margins' mean."""

_FIRST_STEPS = 25
"""Steps of the first fit of offsets."""

_STEPS = 8
"""Steps of later fits of offsets, which start close."""

_SWEEPS_AGAIN = 10
"""Projections of a correlation matrix after a small adjustment."""

_ROWS_PER_COLUMN = 4
"""Least rows per column of a sample, for its own correlations to be removed."""

_MOST_MATCHED = 512
"""Most columns for which a sample is matched: that costs as much as drawing it."""


def thresholds(means: Floats) -> Floats:
    """Thresholds that standard normal scores exceed as often as columns are 1; shape as given.

    Source: Asghar et al., equation 6.
    """
    return -ndtri(np.clip(means, _LEAST_SHARE, 1.0 - _LEAST_SHARE))


def first_offsets(scores: Scores, means: Floats, coding: DummyCoding) -> Floats:
    """Offsets (width,) from which :func:`fit_offsets` begins: thresholds, on the scores' scale.

    The scale is the spread of the scores of one attribute.
    """
    offsets = -thresholds(means)
    for position, single in enumerate(coding.single):
        if not single:
            block = coding.block(position)
            offsets[block] *= _spread(scores[:, block])
    return offsets


def _spread(scores: Scores) -> float:
    """The standard deviation of scores (n, parts) around their mean in a row, at most 1."""
    return min(float((scores - scores.mean(1, keepdims=True)).std()), 1.0)


def decode(scores: Array, offsets: Floats, coding: DummyCoding) -> Integers:
    """The part (attributes, n) of each row's attributes, from scores (n, width)."""
    parts = np.zeros((len(coding.sizes), len(scores)), dtype=np.int64)
    for position, single in enumerate(coding.single):
        shifted = scores[:, coding.block(position)] + offsets[coding.block(position)].astype(
            scores.dtype
        )
        if not single:
            parts[position] = shifted.argmax(1)
        elif coding.widths[position]:
            parts[position] = shifted[:, 0] > 0
    return parts


def fit_offsets(
    scores: Scores, means: Floats, coding: DummyCoding, offsets: Floats, steps: int
) -> Floats:
    """Offsets (width,) with which scores (n, width) are decoded to shares ``means`` (width,).

    Exact for attributes with one column; others improve with each step.
    """
    fitted = offsets.copy()
    for position, single in enumerate(coding.single):
        block = coding.block(position)
        if not single:
            fitted[block] = _by_steps(scores[:, block], means[block], fitted[block], steps)
        elif coding.widths[position]:
            fitted[block] = -np.quantile(scores[:, block], 1.0 - means[block.start])
    return fitted


def _by_steps(scores: Scores, means: Floats, offsets: Floats, steps: int) -> Floats:
    rate = _RATE * _spread(scores)
    for _ in range(steps):
        parts = (scores + offsets.astype(np.float32)).argmax(1)
        shares = np.bincount(parts, minlength=len(means)) / len(parts)
        offsets = offsets + rate * (np.log(means + _RARE) - np.log(shares + _RARE))
    return offsets


@dataclass(frozen=True)
class Copula:
    """Normal scores with a ``factor`` (width, width), and ``offsets`` (width,) that decode them.

    ``means`` (width,) are the wanted shares of ones; ``moments`` (width, width) the shares of rows
    of the decoded records with a 1 in two columns. ``limits`` (width,) are the scores above which
    binary columns, each by itself, are 1.
    """

    coding: DummyCoding
    means: Floats
    factor: Scores
    offsets: Floats
    moments: Floats
    limits: Floats

    def scores(self, rows: int, rng: np.random.Generator) -> Scores:
        """Scores (rows, width) plus offsets; a large sample matches the histograms exactly."""
        scores = _correlated(normals(rows, self.coding.width, rng), self.factor)
        offsets = self.offsets
        if _is_matched(rows, self.coding.width):
            offsets = fit_offsets(scores, self.means, self.coding, offsets, _STEPS)
        scores += offsets.astype(np.float32)
        return scores

    def parts(self, scores: Scores) -> Integers:
        """The part (attributes, n) of each row's attributes, from scores with their offsets."""
        return decode(scores, np.zeros(self.coding.width), self.coding)

    def ones(self, drawn: Scores) -> Booleans:
        """Binary columns (rows, width) of normal numbers, each thresholded for itself.

        Source: Asghar et al., algorithm 4, steps 2 and 3.
        """
        scores = _correlated(drawn, self.factor)
        return np.asarray(scores > self.limits.astype(np.float32))


def independent_normals(rows: int, width: int, rng: np.random.Generator) -> Scores:
    """Independent standard normal numbers (rows, width).

    Source: Asghar et al., algorithm 4, step 1.
    """
    return rng.standard_normal((rows, width), dtype=np.float32)


def normals(rows: int, width: int, rng: np.random.Generator) -> Scores:
    """Standard normal numbers (rows, width), exactly uncorrelated in a large sample."""
    drawn = independent_normals(rows, width, rng)
    if not _is_matched(rows, width):
        return drawn
    drawn -= drawn.mean(0)
    lower = np.linalg.cholesky((drawn.T @ drawn).astype(np.float64) / rows)
    return np.asarray(drawn @ np.linalg.inv(lower).T.astype(np.float32))


def _is_matched(rows: int, width: int) -> bool:
    return width <= _MOST_MATCHED and rows >= max(_ROWS_PER_COLUMN * width, 1_000)


def _correlated(drawn: Scores, lower: Scores) -> Scores:
    return np.asarray(strmm(1.0, lower, drawn.T, lower=1).T)


def pairwise_correlations(
    shares: Floats, limits: Floats, pairs: Booleans, most: float = _STRONGEST
) -> Floats:
    """The correlations of scores (width, width) that give ``shares`` of conjunctions of ``pairs``.

    Scores above ``limits`` (width,) are ones. Other pairs get 0, the diagonal 1.
    """
    first, second = np.nonzero(pairs)
    correlations = np.eye(len(limits))
    correlations[first, second] = latent_correlations(
        limits[first], limits[second], shares[first, second], most
    )
    correlations[second, first] = correlations[first, second]
    return correlations


def fit_copula_to(shares: Floats, means: Floats, coding: DummyCoding, rows: float) -> Copula:
    """The copula whose records have ``shares`` (width, width) of conjunctions of ``rows`` rows."""
    # Of conjunctions below one row, the correlation is not known.
    known = coding.pairs & ((shares * rows >= 1) | (np.outer(means, means) * rows >= 1))
    wanted = pairwise_correlations(shares, thresholds(means), known)
    sample = _public_sample(rows, coding.width)
    made = _copula(wanted, means, coding, sample)
    for _ in range(_REFINEMENTS if not all(coding.single) else 0):
        wanted = _moved(wanted, shares, made)
        made = _copula(wanted, means, coding, sample, made)
    return made


def copula_of(correlations: Floats, means: Floats, coding: DummyCoding, rows: float) -> Copula:
    """The copula of the nearest correlation matrix, decoded to the wanted ``means``."""
    sample = _public_sample(rows, coding.width)
    return _copula(correlations, means, coding, sample)


def _public_sample(rows: float, width: int) -> Scores:
    number = int(min(max(4 * rows, _LEAST_SIMULATED), _MOST_SIMULATED))
    return normals(number, width, np.random.default_rng(_SEED))


def _copula(
    correlations: Floats,
    means: Floats,
    coding: DummyCoding,
    sample: Scores,
    before: Copula | None = None,
) -> Copula:
    """The copula of a correlation matrix, or one near that ``before``, on a public sample."""
    nearest = nearest_correlation(correlations, _SWEEPS_AGAIN if before else SWEEPS)
    lower = factor(nearest).astype(np.float32)
    scores = _correlated(sample, lower)
    offsets = before.offsets if before else first_offsets(scores, means, coding)
    offsets = fit_offsets(scores, means, coding, offsets, _STEPS if before else _FIRST_STEPS)
    coded = coding.code(list(decode(scores, offsets, coding))) if len(coding.sizes) else sample
    moments = (coded @ coded.T).astype(np.float64) / len(sample)
    return Copula(coding, means, lower, offsets, moments, thresholds(means))


def _moved(wanted: Floats, shares: Floats, made: Copula) -> Floats:
    """Correlations closer to those with which records have ``shares`` of conjunctions.

    The derivative is that at independence, bounded below by a share of the margins' mean.
    """
    limits = thresholds(made.means)
    density = np.exp(-np.add.outer(limits**2, limits**2) / 2) / (2 * np.pi)
    least = _LEAST_DENSITY * np.sqrt(np.outer(made.means, made.means))
    step = _STEP * (shares - made.moments) / np.maximum(np.maximum(density, least), TINY)
    across = made.coding.pairs | made.coding.pairs.T
    moved = wanted + np.where(across, np.clip(step, -_FARTHEST, _FARTHEST), 0.0)
    return np.clip(moved, -_STRONGEST, _STRONGEST) + (1 - _STRONGEST) * np.eye(len(wanted))
