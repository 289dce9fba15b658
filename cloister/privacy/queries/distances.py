"""How far joint tables are from what is expected of them, in rows: L1 distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cloister.arrays import Array, Floats, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.grid import FLOATING, GRID_STEPS, OnGridSensitivity
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query
from cloister.privacy.queries.table_rows import Partition, TableRows


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
        found = [
            np.abs(rows.remembered_counts(table.partitions) - table.expected).sum()
            for table in self.tables
        ]
        return np.rint(np.array(found) * (GRID_STEPS / (1 + FLOATING))).astype(np.int64)

    def outcome(self, rows: TableRows, noisy: Array) -> Floats:  # noqa: ARG002
        return noisy.astype(np.float64) * ((1 + FLOATING) / GRID_STEPS)


def distance_sensitivity(distances: int, neighbours: Neighbours) -> OnGridSensitivity:
    """How far one unit can change so many distances."""
    steps = Sensitivity.box(distances, GRID_STEPS * neighbours.partition.l1)
    return OnGridSensitivity(steps, neighbours.max_rows)
