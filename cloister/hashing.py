"""Hashes: words of 64 bits mixed by SplitMix64, and texts and rows as numbers under a secret key.

Each word is mixed on its own so that all bits depend on all others. Under a key, no text is written
where a number will do, and rows have an order that no source decides.

Source of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA
    2014).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Integers

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


def keyed_numbers(texts: Iterable[str], key: bytes) -> Integers:
    """A number of 63 bits (n,) for each text, which cannot be computed without the key."""
    hashes = (hashlib.blake2b(text.encode(), digest_size=8, key=key) for text in texts)
    return np.array([int.from_bytes(digest.digest()) >> 1 for digest in hashes], dtype=np.int64)


def derived_key(key: bytes, purpose: str) -> bytes:
    """A key for one purpose (32 bytes), from which neither ``key`` nor another purpose's follows.

    HMAC-SHA256, as a pseudorandom function of the purpose.
    """
    return hmac.digest(key, purpose.encode(), "sha256")


_ROWS_MIXED = 2**15
"""Rows that are mixed at a time: their words and copies fit the caches of a core."""


def keyed_rows(columns: Iterable[Array], key: bytes) -> Words:
    """A number of 64 bits (n,) for each row of columns of whole numbers, equal for equal rows.

    Memory is that of the numbers and of one column.
    """
    start, between = np.frombuffer(hashlib.sha256(key).digest()[:16], dtype=np.uint64)
    mixed: Words = np.asarray(start)
    for values in columns:
        mixed = np.full(len(values), start, dtype=np.uint64) if mixed.ndim == 0 else mixed
        for first in range(0, len(values), _ROWS_MIXED):
            rows = slice(first, first + _ROWS_MIXED)
            mixed[rows] = mix(mix(mixed[rows] ^ values[rows].astype(np.uint64)) ^ between)
    return mixed
