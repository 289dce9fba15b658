"""Normal scores of binary columns made records: each attribute has exactly one part.

An attribute takes the part whose column has the highest score plus an offset; one with a single
column takes its second part where that sum is positive. With the right offsets, parts come as often
as the histograms say: a multinomial probit whose scores correlate across attributes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cloister.arrays import Array, Floats, Integers
from cloister.privacy.queries.counts import DummyCoding

Scores = NDArray[np.float32]

_RATE = 0.3
"""Part of the logarithm of a wanted share over the present one that an offset moves by."""

_RARE = 2e-5
"""Added to both shares, so that parts without rows stay within reach."""

_LEAST_SHARE = 1e-6
"""Share of a column's ones at least, and at most one less this: thresholds stay finite."""


def thresholds(means: Floats) -> Floats:
    """What a standard normal score exceeds as often as its column is 1; shape as given.

    Source: Asghar et al., equation 6.
    """
    return -ndtri(np.clip(means, _LEAST_SHARE, 1.0 - _LEAST_SHARE))


def first_offsets(scores: Scores, means: Floats, coding: DummyCoding) -> Floats:
    """Offsets (width,) from which :func:`fit_offsets` begins: thresholds, on the scores' scale.

    The scale is what scores of one attribute differ by.
    """
    offsets = -thresholds(means)
    for place, single in enumerate(coding.single):
        if not single:
            block = coding.block(place)
            offsets[block] *= _spread(scores[:, block])
    return offsets


def _spread(scores: Scores) -> float:
    """The standard deviation of scores (n, parts) around their mean in a row, at most 1."""
    return min(float((scores - scores.mean(1, keepdims=True)).std()), 1.0)


def decode(scores: Array, offsets: Floats, coding: DummyCoding) -> Integers:
    """The part (attributes, n) of each row's attributes, from scores (n, width)."""
    parts = np.zeros((len(coding.sizes), len(scores)), dtype=np.int64)
    for place, single in enumerate(coding.single):
        own = scores[:, coding.block(place)] + offsets[coding.block(place)].astype(scores.dtype)
        if not single:
            parts[place] = own.argmax(1)
        elif coding.widths[place]:
            parts[place] = own[:, 0] > 0
    return parts


def fit_offsets(
    scores: Scores, means: Floats, coding: DummyCoding, offsets: Floats, steps: int
) -> Floats:
    """Offsets (width,) with which scores (n, width) are decoded to shares ``means`` (width,).

    Those of attributes with one column are exact, the others come closer with each step.
    """
    fitted = offsets.copy()
    for place, single in enumerate(coding.single):
        block = coding.block(place)
        if not single:
            fitted[block] = _by_steps(scores[:, block], means[block], fitted[block], steps)
        elif coding.widths[place]:
            fitted[block] = -np.quantile(scores[:, block], 1.0 - means[block.start])
    return fitted


def _by_steps(scores: Scores, means: Floats, offsets: Floats, steps: int) -> Floats:
    rate = _RATE * _spread(scores)
    for _ in range(steps):
        parts = (scores + offsets.astype(np.float32)).argmax(1)
        found = np.bincount(parts, minlength=len(means)) / len(parts)
        offsets = offsets + rate * (np.log(means + _RARE) - np.log(found + _RARE))
    return offsets
