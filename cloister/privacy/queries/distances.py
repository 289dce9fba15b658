"""How far joint tables are from what is expected of them, in rows: L1 distances.

Measured, or the scores of a selection: of some tables, or of all tables of two attributes at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Booleans, Floats, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import FLOATING, GRID_STEPS, Neighbours, OnGridSensitivity
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts import DummyCoding, count_conjunctions
from cloister.privacy.queries.query import Query, TableRows
from cloister.schema.partition import Partition


@dataclass(frozen=True, eq=False)
class ExpectedTable:
    """A joint table, and the rows (flat) that are expected in each cell: released or public."""

    partitions: tuple[Partition, ...]
    expected: Floats


@dataclass(frozen=True, eq=False)
class Distances(Query[TableRows, OnGridSensitivity, Floats]):
    """The L1 distance, in rows, of each of several joint tables from its expected counts.

    Proof: one unit changes the counts of a partition by at most ``neighbours.partition.l1`` rows in
    L1 norm, and so by the triangle inequality each distance by no more. Distances are then
    multiples of 1/64 row, and rounding keeps a distance of at most l1 rows at most 64 l1 steps.
    """

    name: ClassVar[str] = "distances"
    tables: tuple[ExpectedTable, ...]

    def request(self) -> Mapping[str, Any]:
        return {"of": [[part.name for part in table.partitions] for table in self.tables]}

    def sensitivity(self, neighbours: Neighbours) -> OnGridSensitivity:
        return distance_sensitivity(len(self.tables), neighbours)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        counts = rows.remembered_counts([table.partitions for table in self.tables])
        distances = [
            np.abs(exact - table.expected).sum()
            for exact, table in zip(counts, self.tables, strict=True)
        ]
        return np.rint(np.array(distances) * (GRID_STEPS / (1 + FLOATING))).astype(np.int64)

    def outcome(self, noisy: Array) -> Floats:
        return noisy.astype(np.float64) * ((1 + FLOATING) / GRID_STEPS)


def distance_sensitivity(distances: int, neighbours: Neighbours) -> OnGridSensitivity:
    """How far one unit can change this many distances."""
    steps = Sensitivity.box(distances, GRID_STEPS * neighbours.partition.l1)
    return OnGridSensitivity(steps, neighbours.max_rows)


FINENESS = 1024
"""Steps of a score in one row; finer than any expected count is known."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A joint table that could be measured, and what is known of it without the data.

    Shapes: ``expected`` has one axis a partition: the rows a model expects in each joint part.
    ``penalty``, in rows, is subtracted from the candidate's score. Both are released or public.
    """

    partitions: tuple[Partition, ...]
    expected: NDArray[np.floating]
    penalty: float


@dataclass(frozen=True, eq=False)
class CandidateScores(Query[TableRows, Fraction, int]):
    """The score of each candidate: L1 distance of exact from expected counts, less the penalty.

    Scores are in units of 1/1024 row. The answer is the number of one candidate, likelier the
    higher its score.

    Proof: one unit changes the exact counts of a partition by at most ``neighbours.partition.l1``
    in L1 norm, and nothing else in a score, so by the triangle inequality it changes each score by
    no more. Expected counts and penalties are rounded to 1/1024 row first, so that scores are
    whole numbers and the bound holds exactly.
    """

    name: ClassVar[str] = "select"
    candidates: tuple[Candidate, ...]

    def request(self) -> Mapping[str, Any]:
        return {
            "of": [[part.name for part in candidate.partitions] for candidate in self.candidates]
        }

    def sensitivity(self, neighbours: Neighbours) -> Fraction:
        return Fraction(FINENESS * neighbours.partition.l1)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        counts = rows.remembered_counts([each.partitions for each in self.candidates])
        expected = np.concatenate([each.expected.ravel() for each in self.candidates])
        steps = np.rint(FINENESS * expected.astype(np.float64)).astype(np.int64)
        begins = np.cumsum([0, *map(len, counts[:-1])])
        distances = np.add.reduceat(np.abs(FINENESS * np.concatenate(counts) - steps), begins)
        penalties = np.array([round(FINENESS * each.penalty) for each in self.candidates])
        return np.asarray(distances - penalties, dtype=np.int64)

    def outcome(self, noisy: Array) -> int:
        return int(noisy[0])


@dataclass(frozen=True, eq=False)
class PairScores(Query[TableRows, Fraction, tuple[int, int]]):
    """The score of each pair of partitions: as `CandidateScores`, for more pairs than it can list.

    The answer is the places of two partitions, likelier the higher the score of their joint table.
    Shapes, for k partitions of ``width`` parts in all: ``expected`` (width, width), the rows that a
    model expects in two parts; ``penalties`` (k, k), in rows; ``open`` (k, k), the pairs that can
    be chosen, each once: above the diagonal. All of it is released or public.

    Proof: that of `CandidateScores`, for each of the pairs.
    """

    name: ClassVar[str] = "select pair"
    partitions: tuple[Partition, ...]
    expected: NDArray[np.floating]
    penalties: Floats
    open: Booleans

    def request(self) -> Mapping[str, Any]:
        return {"of": [part.name for part in self.partitions], "pairs": int(self.open.sum())}

    def sensitivity(self, neighbours: Neighbours) -> Fraction:
        return Fraction(FINENESS * neighbours.partition.l1)

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        """The scores (open pairs,) in units of 1/1024 row; secret, so never to leave the door.

        In the order of ``np.argwhere(open)``, which `outcome` reads. Counts of all pairs come from
        one product of dummy-coded rows (`count_conjunctions`). No sample is drawn from ``source``.
        """
        coding = DummyCoding(tuple(p.size for p in self.partitions), (False,) * len(self.open))
        count = partial(count_conjunctions, partitions=self.partitions, coding=coding)
        counts = rows.remembered_pairs(self.partitions, count)
        scores = -np.rint(FINENESS * self.penalties).astype(np.int64)
        for position in range(len(self.open) - 1):
            block, later = coding.block(position), slice(int(coding.begins[position + 1]), None)
            expected = np.rint(FINENESS * self.expected[block, later].astype(np.float64))
            distances = np.abs(FINENESS * counts[block, later] - expected.astype(np.int64)).sum(0)
            begins = coding.begins[position + 1 : -1] - coding.begins[position + 1]
            scores[position, position + 1 :] += np.add.reduceat(distances, begins)
        return np.asarray(scores[self.open])

    def outcome(self, noisy: Array) -> tuple[int, int]:
        first, second = np.argwhere(self.open)[int(noisy[0])]
        return int(first), int(second)
