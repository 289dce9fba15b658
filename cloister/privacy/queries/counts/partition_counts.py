"""How many rows lie in each joint part of some attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cloister.arrays import Array, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Query
from cloister.privacy.queries.table_rows import Partition, TableRows


@dataclass(frozen=True, eq=False)
class PartitionCounts(Query[TableRows, Sensitivity, Integers]):
    """Counts of rows, one axis an attribute.

    Proof: each row lies in exactly one joint part, so adding a row changes one count by one, and a
    unit of m rows changes counts by m in all; replacing a unit removes as much as it adds.
    `Sensitivity.partition` is that.
    """

    name: ClassVar[str] = "counts"
    partitions: tuple[Partition, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Parts of each attribute."""
        return tuple(part.size for part in self.partitions)

    def request(self) -> Mapping[str, Any]:
        return {"of": [part.name for part in self.partitions], "shape": list(self.shape)}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.partition

    def exact(self, rows: TableRows, source: NoiseSource) -> Integers:  # noqa: ARG002
        return rows.counts(self.partitions)

    def outcome(self, rows: TableRows, noisy: Array) -> Integers:  # noqa: ARG002
        return noisy.reshape(self.shape)
