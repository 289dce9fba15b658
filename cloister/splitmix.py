"""SplitMix64: words of 64 bits, each mixed on its own so that all bits depend on all others.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The odd integer nearest to 2^64 over the golden ratio: the step from one word to the next."""

FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The factors of the finalizer."""


def finalize(words: Words) -> Words:
    """The finalizer at words (n,): one to one."""
    words = (words ^ (words >> np.uint64(30))) * FIRST_FACTOR
    words = (words ^ (words >> np.uint64(27))) * SECOND_FACTOR
    return words ^ (words >> np.uint64(31))


def mix(words: Words) -> Words:
    """The output of SplitMix64 at words (n,): the finalizer of the next ones."""
    return finalize(words + GOLDEN)
