"""Texts as numbers under a secret key, so that no text is written where a number will do."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from cloister.arrays import Integers


def keyed_numbers(texts: pd.Index, key: bytes) -> Integers:
    """A number of 63 bits (n,) for each text, which cannot be computed without the key."""
    hashes = (hashlib.blake2b(text.encode(), digest_size=8, key=key) for text in texts)
    return np.array([int.from_bytes(digest.digest()) >> 1 for digest in hashes], dtype=np.int64)
