"""The distances of all joint tables of two attributes from their expected counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Booleans, Floats, Integers
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.candidate_scores import FINENESS
from cloister.privacy.queries.counts.conjunction_counts import DummyCoding, count_conjunctions
from cloister.privacy.queries.query import Query
from cloister.privacy.queries.table_rows import Partition, TableRows


@dataclass(frozen=True, eq=False)
class PairScores(Query[TableRows, Fraction, tuple[int, int]]):
    """The score of each pair of partitions: as `CandidateScores`, for more pairs than it can list.

    The answer is the places of two partitions, likelier the higher the score of their joint table.
    Shapes, for k partitions of ``width`` parts in all: ``expected`` (width, width), the rows that a
    model expects in two parts; ``handicaps`` (k, k), in rows; ``open`` (k, k), the pairs that can
    be chosen, each once: above the diagonal. All of it is released or public.

    Proof: that of `CandidateScores`, for each of the pairs.
    """

    name: ClassVar[str] = "select pair"
    partitions: tuple[Partition, ...]
    expected: NDArray[np.floating]
    handicaps: Floats
    open: Booleans

    def request(self) -> Mapping[str, Any]:
        return {"of": [part.name for part in self.partitions], "pairs": int(self.open.sum())}

    def sensitivity(self, neighbours: Neighbours) -> Fraction:
        return Fraction(FINENESS * neighbours.partition.l1)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        coding = DummyCoding(tuple(p.size for p in self.partitions), (False,) * len(self.open))
        count = partial(count_conjunctions, partitions=self.partitions, coding=coding)
        counts = rows.remembered_pairs(self.partitions, count)
        scores = -np.rint(FINENESS * self.handicaps).astype(np.int64)
        for place in range(len(self.open) - 1):
            own, later = coding.block(place), slice(int(coding.begins[place + 1]), None)
            expected = np.rint(FINENESS * self.expected[own, later].astype(np.float64))
            distances = np.abs(FINENESS * counts[own, later] - expected.astype(np.int64)).sum(0)
            begins = coding.begins[place + 1 : -1] - coding.begins[place + 1]
            scores[place, place + 1 :] += np.add.reduceat(distances, begins)
        return np.asarray(scores[self.open])

    def outcome(self, rows: TableRows, noisy: Array) -> tuple[int, int]:  # noqa: ARG002
        first, second = np.argwhere(self.open)[int(noisy[0])]
        return int(first), int(second)
