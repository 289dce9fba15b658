"""The distances of several joint tables from their expected counts: the scores of a selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Array, Integers
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query
from cloister.privacy.queries.table_rows import Partition, TableRows

FINENESS = 1024
"""Steps of a score in one row; finer than any expected count is known."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A joint table that could be measured, and what is known of it without the data.

    Shapes: ``expected`` has one axis a partition: the rows a model expects in each joint part.
    ``handicap``, in rows, is subtracted from the candidate's score. Both are released or public.
    """

    partitions: tuple[Partition, ...]
    expected: NDArray[np.floating]
    handicap: float


@dataclass(frozen=True, eq=False)
class CandidateScores(Query[TableRows, Fraction, int]):
    """The score of each candidate: L1 distance of exact from expected counts, less the handicap.

    Scores are in units of 1/1024 row. The answer is the number of one candidate, likelier the
    higher its score.

    Proof: one unit changes the exact counts of a partition by at most ``neighbours.partition.l1``
    in L1 norm, and nothing else in a score, so by the triangle inequality it changes each score by
    no more. Expected counts and handicaps are rounded to 1/1024 row first, so that scores are
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
        return np.array([_score(candidate, rows) for candidate in self.candidates], dtype=np.int64)

    def outcome(self, rows: TableRows, noisy: Array) -> int:  # noqa: ARG002
        return int(noisy[0])


def _score(candidate: Candidate, rows: TableRows) -> int:
    exact = rows.remembered_counts(candidate.partitions)
    expected = np.rint(FINENESS * candidate.expected.astype(np.float64).ravel()).astype(np.int64)
    return int(np.abs(FINENESS * exact - expected).sum()) - round(FINENESS * candidate.handicap)
