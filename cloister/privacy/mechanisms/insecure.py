"""Repeatable stand-ins for the exact samplers, for tests with an insecure noise source.

Nothing here is private.

OpenDP's samplers take their randomness from the operating system and no seed. These draw the same
distributions to floating-point accuracy from an insecure `NoiseSource`, and refuse a secure one, so
that no release can reach them.
"""

from __future__ import annotations

import math

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.errors import PrivacyError
from cloister.privacy.mechanisms.randomness import WORD, NoiseSource

_WIDTH = 12
"""Standard deviations that the table of a discrete Gaussian reaches on both sides."""

_LARGEST_TABLE_SCALE = 10_000.0
"""Largest scale, in rows, that is drawn from a table; beyond, normals are rounded."""


def insecure_gaussian(scale: float, count: int, source: NoiseSource) -> Integers:
    """Discrete Gaussian noise (count,) by inverting a table of its distribution.

    Rounded normals for large scales.
    """
    refuse_secure(source)
    if scale > _LARGEST_TABLE_SCALE:
        return np.rint(scale * source.normals(count)).astype(np.int64)
    edge = math.ceil(_WIDTH * scale) + 1
    support = np.arange(-edge, edge + 1)
    below = np.cumsum(np.exp(-(support**2) / (2 * scale**2)))
    places = np.searchsorted(below, _uniforms(count, source) * below[-1])
    return np.asarray(places - edge, dtype=np.int64)


def insecure_laplace(scale: float, count: int, source: NoiseSource) -> Integers:
    """Discrete Laplace noise (count,): the difference of two geometric draws."""
    refuse_secure(source)
    draws = np.floor(-scale * np.log(_uniforms(2 * count, source)))
    return (draws[:count] - draws[count:]).astype(np.int64)


def insecure_exponentials(count: int, source: NoiseSource) -> Floats:
    """Standard exponential noise (count,)."""
    refuse_secure(source)
    return -np.log(_uniforms(count, source))


def refuse_secure(source: NoiseSource) -> None:
    """Raise PrivacyError for a secure source: its noise must come from the exact samplers."""
    if source.secure:
        raise PrivacyError(
            "A secure noise source must not be used with the repeatable stand-ins for tests."
        )


def _uniforms(count: int, source: NoiseSource) -> Floats:
    return (source.words(count).astype(np.float64) + 1.0) / WORD
