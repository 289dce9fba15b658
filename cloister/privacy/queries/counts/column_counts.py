"""Raw columns, whose domains are not known yet, and their queries: rows, parts and texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from cloister.arrays import Array, Integers
from cloister.privacy.events import Sensitivity
from cloister.privacy.keyed_texts import keyed_numbers
from cloister.privacy.mechanisms.counts import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.counts.partitions import Buckets
from cloister.privacy.queries.query import Query
from cloister.schema.attributes import AnyAttribute
from cloister.schema.sources.storage_types import texts
from cloister.schema.values.parsing import parse


@dataclass(frozen=True, eq=False)
class RawColumns:
    """Raw columns behind the door.

    The secret ``key`` maps texts to numbers, so that the journal holds numbers only.
    """

    frame: pd.DataFrame
    key: bytes

    def texts(self, name: str, attribute: AnyAttribute) -> tuple[list[str], Integers, Integers]:
        """Distinct readable texts of a column, their numbers, ascending, and their rows."""
        typed, _ = parse(self.frame[name], attribute)
        found = texts(typed.dropna()).value_counts()
        cells, first, places = np.unique(
            keyed_numbers(found.index, self.key), return_index=True, return_inverse=True
        )
        counts = np.zeros(len(cells), dtype=np.int64)
        np.add.at(counts, places, found.to_numpy(dtype=np.int64))
        return [str(found.index[place]) for place in first], cells, counts


@dataclass(frozen=True)
class RowCount(Query[RawColumns, Sensitivity, int]):
    """The number of rows. Proof: a partition with one part."""

    name: ClassVar[str] = "rows"

    def request(self) -> Mapping[str, Any]:
        return {}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.partition

    def exact(self, rows: RawColumns, source: NoiseSource) -> Integers:  # noqa: ARG002
        return np.array([len(rows.frame)], dtype=np.int64)

    def outcome(self, rows: RawColumns, noisy: Array) -> int:  # noqa: ARG002
        return int(noisy[0])


@dataclass(frozen=True)
class BucketCounts(Query[RawColumns, Sensitivity, Integers]):
    """Rows (size,) in each part of a public partition of one column.

    Proof: each row lies in exactly one part, missing and unreadable cells included; see
        `PartitionCounts`.
    """

    name: ClassVar[str] = "buckets"
    buckets: Buckets

    def request(self) -> Mapping[str, Any]:
        return {
            "by": type(self.buckets).__name__,
            "of": self.buckets.name,
            "shape": [self.buckets.size],
        }

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.partition

    def exact(self, rows: RawColumns, source: NoiseSource) -> Integers:  # noqa: ARG002
        parts = self.buckets.of(rows.frame[self.buckets.name])
        return np.bincount(parts, minlength=self.buckets.size).astype(np.int64)

    def outcome(self, rows: RawColumns, noisy: Array) -> Integers:  # noqa: ARG002
        return noisy


@dataclass(frozen=True)
class TextCounts(Query[RawColumns, Sensitivity, dict[str, int]]):
    """The readable values of one column, as text, whose noisy counts reach the threshold.

    The answer holds these counts. Proof: a histogram over all texts, each mapped to 63 bits of a
    keyed BLAKE2b, so that the number of a text does not depend on which other texts occur. Texts
    with the same number, if any, are counted together. The texts of the released numbers are looked
    up in the rows; they are what was released.
    """

    name: ClassVar[str] = "categories"
    column: str
    attribute: AnyAttribute

    def request(self) -> Mapping[str, Any]:
        return {"of": self.column}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.partition

    def exact(self, rows: RawColumns, source: NoiseSource) -> Integers:  # noqa: ARG002
        _, cells, counts = rows.texts(self.column, self.attribute)
        return np.stack([cells, counts])

    def outcome(self, rows: RawColumns, noisy: Array) -> dict[str, int]:
        words, cells, _ = rows.texts(self.column, self.attribute)
        released, counts = noisy
        places = np.searchsorted(cells, released)
        return {words[place]: int(count) for place, count in zip(places, counts, strict=True)}
