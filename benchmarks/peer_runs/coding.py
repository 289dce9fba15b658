"""A public table as the cells that a peer gets, and back.

A peer knows as much as Cloister's own methods: the full list of every categorical column, the
declared bins of every numeric one, or the 16 equal bins by which marginals are read, with its
special values and the missing value as cells of their own. It returns cells; a value is drawn
uniformly inside each.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloister.benchmarks.config import Given
from cloister.evaluation.marginals import marginal_cells
from cloister.schema.columns import Column, Grid
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition, declared_cells, intervals
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.release.comparison import table_of
from cloister.tasks.requests.resolved import declared_context

Matrix = NDArray[np.int64]


@dataclass(frozen=True)
class Coded:
    """The columns of a table that carry meaning, as cells.

    ``codes`` (n, k), and how many rows are asked.
    """

    domain: Domain
    cells: tuple[Partition, ...]
    codes: Matrix
    rows: int

    @property
    def sizes(self) -> list[int]:
        """Public domain sizes (k,)."""
        return [cells.size for cells in self.cells]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the codes and sizes, in hexadecimal."""
        return hashlib.sha256(
            repr((self.sizes, self.codes.shape)).encode() + self.codes.tobytes()
        ).hexdigest()

    def decode(self, codes: Matrix, seed: int) -> Table:
        """The table of cells (m, k).

        Values are drawn uniformly inside their cells; surrogate keys are numbered.
        """
        rng = np.random.default_rng(seed)
        drawn = {
            cells.name: cells.draw(codes[:, index], rng) for index, cells in enumerate(self.cells)
        }
        counted = np.arange(len(codes), dtype=np.int64)
        return Table(self.domain, {name: drawn.get(name, counted) for name in self.domain.names})


def encode_table(spec: Path, data: Path, given: Given) -> Coded:
    """A table in its declared cells, or in those by which marginals are read.

    Raises:
        InputError: the spec or the table cannot be used.
    """
    return _coded(spec, data, given, data.stat().st_mtime_ns)


def code_table(table: Table, rows: int, given: Given) -> Coded:
    """A table as :func:`encode_table` reads one, of which ``rows`` synthetic rows are asked."""
    cells = tuple(_given(table.domain[name], given) for name in table.domain.modelled)
    codes = np.stack([c.index(table.codes[c.name]) for c in cells], axis=1).astype(np.int64)
    return Coded(table.domain, cells, codes, rows)


@lru_cache(maxsize=4)
def _coded(spec: Path, data: Path, given: Given, changed: int) -> Coded:
    del changed
    declared = load_spec(spec)
    rows = declared.release.rows or declared.privacy.rows.public or 1
    context = declared_context(declared, rows).only
    return code_table(table_of(context, data), context.task.data_rows, given)


def _given(column: Column, given: Given) -> Partition:
    """The cells of a column that a peer is given, special values apart."""
    if given == "declared" or not isinstance(column, Grid):
        return declared_cells(column)
    points = [code for special in column.special_codes for code in (special, special + 1)]
    starts = np.unique(
        np.concatenate([marginal_cells(column).starts, np.array(points, dtype=np.int64)])
    )
    return intervals(column, starts[starts < column.size])
