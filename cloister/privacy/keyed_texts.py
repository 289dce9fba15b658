"""Texts and rows as numbers under a secret key.

So no text is written where a number will do, and rows have an order that no source decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from cloister.arrays import Array, Integers
from cloister.splitmix import Words, mix


def keyed_numbers(texts: Iterable[str], key: bytes) -> Integers:
    """A number of 63 bits (n,) for each text, which cannot be computed without the key."""
    hashes = (hashlib.blake2b(text.encode(), digest_size=8, key=key) for text in texts)
    return np.array([int.from_bytes(digest.digest()) >> 1 for digest in hashes], dtype=np.int64)


def keyed_rows(columns: Iterable[Array], key: bytes) -> Words:
    """A number of 64 bits (n,) for each row of columns of whole numbers, equal for equal rows."""
    start, between = np.frombuffer(hashlib.sha256(key).digest()[:16], dtype=np.uint64)
    mixed: Words = np.asarray(start)
    for values in columns:
        mixed = mix(mix(mixed ^ values.astype(np.uint64)) ^ between)
    return mixed
