"""Repeatable stand-ins for the exact samplers, for tests with an insecure noise source.

Nothing here is private.

OpenDP's samplers take their randomness from the operating system and no seed. These draw the same
distributions to floating-point accuracy from an insecure `NoiseSource`, and refuse a secure one, so
that no release can reach them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cloister.errors import PrivacyError
from cloister.privacy.mechanisms.randomness import WORD, NoiseSource

Counts = NDArray[np.int64]

WIDTH = 12
LARGEST_TABLE = 10_000.0


def insecure_gaussian(scale: float, count: int, source: NoiseSource) -> Counts:
    """Discrete Gaussian noise (count,) by inverting a table of its distribution.

    Rounded normals for large scales.
    """
    refuse_secure(source)
    if scale > LARGEST_TABLE:
        return np.rint(scale * source.normals(count)).astype(np.int64)
    edge = math.ceil(WIDTH * scale) + 1
    support = np.arange(-edge, edge + 1)
    below = np.cumsum(np.exp(-(support**2) / (2 * scale**2)))
    places = np.searchsorted(below, _uniforms(count, source) * below[-1])
    return np.asarray(places - edge, dtype=np.int64)


def insecure_laplace(scale: float, count: int, source: NoiseSource) -> Counts:
    """Discrete Laplace noise (count,): the difference of two geometric draws."""
    refuse_secure(source)
    draws = np.floor(-scale * np.log(_uniforms(2 * count, source)))
    return (draws[:count] - draws[count:]).astype(np.int64)


def insecure_exponentials(count: int, source: NoiseSource) -> NDArray[np.float64]:
    """Standard exponential noise (count,)."""
    refuse_secure(source)
    return -np.log(_uniforms(count, source))


def refuse_secure(source: NoiseSource) -> None:
    """Raise PrivacyError for a secure source: its noise must come from the exact samplers."""
    if source.secure:
        raise PrivacyError(
            "A secure noise source must not be used with the repeatable stand-ins for tests."
        )


def _uniforms(count: int, source: NoiseSource) -> NDArray[np.float64]:
    return (source.words(count).astype(np.float64) + 1.0) / WORD
