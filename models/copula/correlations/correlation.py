"""The nearest correlation matrix to one of estimated correlations, and its factor.

Source: Higham, "Computing the nearest correlation matrix" (2002), algorithm 3.3, which is algorithm
    3 of Asghar et al.
"""

from __future__ import annotations

import numpy as np

from cloister.arrays import Floats

SWEEPS = 100
"""Alternating projections at most."""

_CLOSE = 1e-4
"""Change of an entry, by root mean square, at which the projections end: far below its noise."""

_LARGEST_ALTERNATED = 2_000
"""Columns of the largest matrix that is projected more than once: each takes seconds there."""

_LEAST_EIGENVALUE = 1e-4
"""Eigenvalue that smaller ones are raised to, so that there is a Cholesky factor."""


def nearest_correlation(estimated: Floats, sweeps: int = SWEEPS) -> Floats:
    """The correlation matrix (d, d) that is nearest to a symmetric one, by Frobenius norm.

    After ``sweeps`` projections, as near as they come. Above 2,000 columns, that of its positive
    eigenvalues, with the diagonal scaled to one.
    """
    if len(estimated) < 2:
        return estimated
    if len(estimated) > _LARGEST_ALTERNATED:
        return _unit_diagonal(_projected(estimated, 0.0))
    correction, nearest = np.zeros_like(estimated), estimated
    for _ in range(sweeps):
        start = nearest - correction
        positive = _projected(start, 0.0)
        correction = positive - start
        before, nearest = nearest, positive.copy()
        np.fill_diagonal(nearest, 1.0)
        if np.sqrt(np.mean(np.square(nearest - before))) < _CLOSE:
            break
    return nearest


def factor(correlations: Floats) -> Floats:
    """The lower triangular L (d, d) with L L^T a positive definite correlation matrix.

    Small eigenvalues are raised, as in section 3.3.2 of Asghar et al.; the diagonal stays one.
    """
    if not len(correlations):
        return correlations
    return np.asarray(
        np.linalg.cholesky(_unit_diagonal(_projected(correlations, _LEAST_EIGENVALUE))),
        dtype=np.float64,
    )


def _projected(matrix: Floats, least: float) -> Floats:
    """The matrix with its eigenvalues below ``least`` raised to it."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    low = values < least
    raised = vectors[:, low] * (least - values[low])
    return np.asarray((matrix + matrix.T) / 2 + raised @ vectors[:, low].T)


def _unit_diagonal(matrix: Floats) -> Floats:
    scale = np.sqrt(np.maximum(np.diag(matrix), _LEAST_EIGENVALUE))
    scaled = matrix / np.outer(scale, scale)
    np.fill_diagonal(scaled, 1.0)
    return scaled
