"""How many rows begin with given levels: counts of all prefixes, looked up and not scanned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from cloister.arrays import Integers
from cloister.privacy.queries.table_rows import PartNumbers


@dataclass(frozen=True)
class PrefixCounts:
    """The number of rows with each prefix that occurs, attribute by attribute.

    A prefix of length q is known by a number below that of rows. ``keys[q]`` holds, ascending, the
    number of each prefix of length q times the size of attribute q, plus the level that follows;
    the place of a key is the number of the longer prefix, and ``counts[q]`` has its rows. So no two
    prefixes are confused, as hashes would at times.
    """

    rows: int
    sizes: tuple[int, ...]
    keys: tuple[Integers, ...]
    counts: tuple[Integers, ...]

    @classmethod
    def of(cls, levels: PartNumbers, sizes: Sequence[int]) -> Self:
        """The counts of all prefixes of rows (n, m)."""
        number = np.zeros(len(levels), dtype=np.int64)
        keys, counts = [], []
        for place, size in enumerate(sizes):
            found, number, times = np.unique(
                number * size + levels[:, place], return_inverse=True, return_counts=True
            )
            keys.append(found)
            counts.append(times.astype(np.int64))
        return cls(len(levels), tuple(sizes), tuple(keys), tuple(counts))

    def agreeing(self, records: Integers, least: int, most: int) -> Integers:
        """Rows that agree with each record (n, m) on its first ``least``, ..., ``most`` attributes.

        Shape (n, most - least + 1).
        """
        found = np.zeros((len(records), most + 1), dtype=np.int64)
        found[:, 0] = self.rows
        number, known = np.zeros(len(records), dtype=np.int64), np.arange(len(records))
        for place in range(most):
            wanted = number * self.sizes[place] + records[known, place]
            at = np.minimum(np.searchsorted(self.keys[place], wanted), len(self.keys[place]) - 1)
            held = self.keys[place][at] == wanted if len(self.keys[place]) else wanted < 0
            number, known = at[held], known[held]
            found[known, place + 1] = self.counts[place][number]
        return found[:, least:]
