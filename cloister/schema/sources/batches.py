"""Rows as a source gives them, in batches, and whether it has exactly the declared columns.

A batch holds the distinct cells of each column and the index of each row's cell. What a cell
becomes depends on the cell alone, so each distinct one is read once. Which cells share a batch
decides how much work is saved, and nothing else.

Names of undeclared columns are given only when the file plainly has a header, at least half of the
declared columns, since the first line of a file without one is data.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from cloister.arrays import Array
from cloister.errors import ColumnsError
from cloister.schema.sources.storage_types import column_of_arrow

ROWS_NAMED = 10
"""Rows or columns that a message names; the rest are counted."""

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


def require_columns(
    columns: Sequence[str], declared: Sequence[str], where: str, delimiter: str | None = None
) -> None:
    """Check that ``columns`` are exactly the declared ones, in any order.

    Raises:
        ColumnsError: names the first fault: delimiter, header, doubled, missing or undeclared
            columns, and of missing ones those with a similar name.
    """
    known = set(declared)
    if not known.intersection(columns):
        raise ColumnsError(f"{where}: {_no_header(columns, known, delimiter)}")
    doubled = [name for name, count in Counter(columns).items() if count > 1]
    missing = [name for name in declared if name not in columns]
    plain = 2 * len(missing) <= len(known)
    undeclared = [name for name in columns if name not in known]
    if doubled:
        raise ColumnsError(
            f"{where}: the column(s) {_named(doubled)} occur more than once; "
            "rename or drop all but one"
        )
    if missing:
        also = _also(missing, undeclared) if plain else ""
        raise ColumnsError(
            f"{where}: the declared column(s) {_named(missing)} are missing; add them, "
            f"or take them out of the spec's attributes{also}"
        )
    if undeclared:
        raise ColumnsError(
            f"{where}: the column(s) {_named(undeclared)} are not declared; add them to the spec's "
            "attributes, or to ignore"
        )


def _no_header(columns: Sequence[str], known: set[str], delimiter: str | None) -> str:
    for separator, name in DELIMITERS.items():
        if (
            delimiter is not None
            and separator != delimiter
            and known.intersection(_cells_by(columns, delimiter, separator))
        ):
            return f"its cells are separated by {name}; set source.delimiter to {separator!r}"
    return (
        f"none of the declared columns is among its {len(columns)}; "
        "its first line must name the columns"
    )


def _cells_by(columns: Sequence[str], delimiter: str, separator: str) -> list[str]:
    """The cells of a header line if it is split by another delimiter."""
    return [cell.strip('"') for cell in delimiter.join(columns).split(separator)]


def _also(missing: Sequence[str], undeclared: Sequence[str]) -> str:
    """The undeclared columns, and which of them may be the missing ones."""
    if not undeclared:
        return ""
    plain = {_letters(name): name for name in undeclared}
    near = {
        name: plain[close[0]]
        for name in missing[:ROWS_NAMED]
        if (close := difflib.get_close_matches(_letters(name), plain, n=1))
    }
    said = "".join(f"; is '{guess}' the declared '{name}'?" for name, guess in near.items())
    return f" (not declared: {_named(undeclared)}{said})"


def _letters(name: str) -> str:
    """A name without what is often written otherwise: case, spaces and marks."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) or name


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_NAMED} more" if len(names) > ROWS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:ROWS_NAMED]) + more


_FEW = 4_096
"""Cells that are put in order: in a batch, so many take less time than they save."""

_Reader = Callable[[pa.Array], pd.Series]


@dataclass(frozen=True, eq=False)
class SourceCells:
    """The cells of a column: row r holds the one at ``indices[r]`` of those that are ``stored``.

    ``stored`` are the different cells of a file as an Arrow array, which ``read`` gives in their
    storage, each on its own; or a series of the cells of all rows. Shape: ``indices`` (n,).
    """

    stored: Any
    indices: Array
    read: _Reader

    @classmethod
    def of_arrow(cls, column: pa.Array, read: _Reader) -> SourceCells:
        """The cells of an Arrow array (n,)."""
        coded = column if isinstance(column, pa.DictionaryArray) else _coded(column)
        if coded is None:
            return cls(column, np.arange(len(column)), read)
        stored, indices = _sorted(coded.dictionary, coded.indices)
        if indices.null_count:
            indices = indices.fill_null(len(stored))
            stored = pa.concat_arrays([stored, pa.nulls(1, stored.type)])
        return cls(stored, indices.to_numpy(), read)._without_unused()

    @classmethod
    def of_series(cls, values: pd.Series) -> SourceCells:
        """The cells of a series (n,), in their storage."""
        return cls(values, np.arange(len(values)), column_of_arrow)

    def distinct(self) -> pd.Series:
        """The stored cells in their storage."""
        return self.stored if isinstance(self.stored, pd.Series) else self.read(self.stored)

    def values(self) -> pd.Series:
        """The cells (n,) in their storage."""
        return self.distinct().take(self.indices).reset_index(drop=True)

    def stores_same(self, other: SourceCells) -> bool:
        """Whether both surely store the same cells in the same order."""
        one, two = self.stored, other.stored
        return isinstance(one, pa.Array) and isinstance(two, pa.Array) and bool(one.equals(two))

    def _without_unused(self) -> SourceCells:
        """The cells without those of no row, where more are stored than there are rows.

        The dictionary of a file holds those of all its rows.
        """
        if len(self.stored) <= len(self.indices):
            return self
        used, indices = np.unique(self.indices, return_inverse=True)
        return SourceCells(self.stored.take(pa.array(used)), indices, self.read)


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of a source, by column.

    ``malformed`` lines with more or fewer cells than the header were left out before or among them.
    """

    cells: Mapping[str, SourceCells]
    malformed: int = 0

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.cells.values())).indices)


def read_arrow(cells: pa.Array) -> pd.Series:
    """Cells of a Parquet file in the storage that their Arrow type says, shape (n,)."""
    return column_of_arrow(pa.chunked_array([cells]))


def _sorted(stored: pa.Array, indices: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Few cells in one order, so that batches of the same cells store them alike."""
    if len(stored) > _FEW:
        return stored, indices
    try:
        order = pc.array_sort_indices(stored)
    except pa.ArrowNotImplementedError:
        return stored, indices
    return stored.take(order), pa.array(np.argsort(order).astype(np.int32)).take(indices)


def _coded(column: pa.Array) -> pa.DictionaryArray | None:
    """The distinct cells and their indices; None for a type that Arrow cannot encode."""
    try:
        return column.dictionary_encode()
    except pa.ArrowNotImplementedError:
        return None
