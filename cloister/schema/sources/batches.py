"""Rows as a source gives them, some at a time: of each column its different cells and their places.

What a cell becomes depends on the cell alone, so each different one is read once. Which cells come
in a batch together decides how much work is saved, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.arrays import Array
from cloister.schema.sources.storage_types import column_of_arrow

_FEW = 4_096
"""Cells that are put in order: in a batch, so many take less time than they save."""

_Reader = Callable[[pa.Array], pd.Series]


@dataclass(frozen=True, eq=False)
class SourceCells:
    """The cells of a column: row r holds the one at ``places[r]`` of those that are ``stored``.

    ``stored`` are the different cells of a file as an Arrow array, which ``read`` gives in their
    storage, each on its own; or a series of the cells of all rows. Shape: ``places`` (n,).
    """

    stored: Any
    places: Array
    read: _Reader

    @classmethod
    def of_arrow(cls, column: pa.Array, read: _Reader) -> SourceCells:
        """The cells of an Arrow array (n,)."""
        coded = column if isinstance(column, pa.DictionaryArray) else _coded(column)
        if coded is None:
            return cls(column, np.arange(len(column)), read)
        stored, places = _sorted(coded.dictionary, coded.indices)
        if places.null_count:
            places = places.fill_null(len(stored))
            stored = pa.concat_arrays([stored, pa.nulls(1, stored.type)])
        return cls(stored, places.to_numpy(), read)._without_unused()

    @classmethod
    def of_series(cls, values: pd.Series) -> SourceCells:
        """The cells of a series (n,), in their storage."""
        return cls(values, np.arange(len(values)), column_of_arrow)

    def distinct(self) -> pd.Series:
        """The stored cells in their storage."""
        return self.stored if isinstance(self.stored, pd.Series) else self.read(self.stored)

    def values(self) -> pd.Series:
        """The cells (n,) in their storage."""
        return self.distinct().take(self.places).reset_index(drop=True)

    def stores_same(self, other: SourceCells) -> bool:
        """Whether both surely store the same cells in the same order."""
        one, two = self.stored, other.stored
        return isinstance(one, pa.Array) and isinstance(two, pa.Array) and bool(one.equals(two))

    def _without_unused(self) -> SourceCells:
        """The cells without those of no row, where more are stored than there are rows.

        The dictionary of a file holds those of all its rows.
        """
        if len(self.stored) <= len(self.places):
            return self
        used, places = np.unique(self.places, return_inverse=True)
        return SourceCells(self.stored.take(pa.array(used)), places, self.read)


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of a source, by column.

    ``malformed`` lines with more or fewer cells than the header were left out before or among them.
    """

    cells: Mapping[str, SourceCells]
    malformed: int = 0

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> SourceBatch:
        """All rows of a frame."""
        return cls({str(name): SourceCells.of_series(frame[name]) for name in frame.columns})

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.cells.values())).places)


def read_arrow(cells: pa.Array) -> pd.Series:
    """Cells of a Parquet file in the storage that their Arrow type says, shape (n,)."""
    return column_of_arrow(pa.chunked_array([cells]))


def _sorted(stored: pa.Array, places: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Few cells in one order, so that batches of the same cells store them alike."""
    if len(stored) > _FEW:
        return stored, places
    try:
        order = pc.array_sort_indices(stored)
    except pa.ArrowNotImplementedError:
        return stored, places
    return stored.take(order), pa.array(np.argsort(order).astype(np.int32)).take(places)


def _coded(column: pa.Array) -> pa.DictionaryArray | None:
    """The different cells and their places; None of a type for which Arrow finds none."""
    try:
        return column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return None
