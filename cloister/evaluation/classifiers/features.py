"""Rows as features for a classifier, fitted to its training rows alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloister.schema.columns import Codes, Column
from cloister.schema.domain import Table

_MOST_VALUES = 64
"""Values of an unordered attribute at most that get a feature of their own."""

_MOST_FEATURES = 1_024
"""Features of all attributes together, about: fewer one-hot codes in wide tables."""

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class _Block(ABC):
    """The features of one attribute."""

    name: str

    @abstractmethod
    def of(self, table: Table) -> Matrix:
        """Features (rows, width) of a table."""


@dataclass(frozen=True)
class _OneHot(_Block):
    """One feature for each of the ``kept`` codes, in ascending order, and one for all others."""

    kept: Codes

    def of(self, table: Table) -> Matrix:
        codes = table.codes[self.name]
        places = np.searchsorted(self.kept, codes)
        known = self.kept[np.minimum(places, len(self.kept) - 1)] == codes
        return np.eye(len(self.kept) + 1, dtype=np.float32)[np.where(known, places, len(self.kept))]


@dataclass(frozen=True)
class _Scaled(_Block):
    """A number of mean 0 and deviation 1 over the training rows, 0 if missing.

    A nullable attribute has a second feature: whether it is missing.
    """

    mean: float
    deviation: float
    nullable: bool

    def of(self, table: Table) -> Matrix:
        numbers = table.comparable(self.name)
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - self.mean) / self.deviation)
        return np.column_stack([scaled, missing] if self.nullable else [scaled]).astype(np.float32)


@dataclass(frozen=True)
class Features:
    """How rows become features: one-hot codes if unordered, standardised numbers otherwise.

    One-hot codes keep the 64 most frequent values of the training rows, fewer in wide tables, so
    that there are about a thousand features at most; rarer values share one feature.
    """

    blocks: tuple[_Block, ...]

    @classmethod
    def fit_to(cls, table: Table) -> Features:
        """The features that fit the training rows ``table``."""
        names = table.domain.modelled
        width = max(2, min(_MOST_VALUES, _MOST_FEATURES // len(names)))
        return cls(tuple(_block(table.domain[name], table, width) for name in names))

    def matrices(self, table: Table) -> dict[str, Matrix]:
        """Features (rows, width) of each attribute."""
        return {block.name: block.of(table) for block in self.blocks}


def side_by_side(matrices: dict[str, Matrix], names: Iterable[str]) -> Matrix:
    """Features (rows, f) of some attributes, side by side."""
    return np.hstack([matrices[name] for name in names])


def _block(column: Column, table: Table, width: int) -> _Block:
    if column.kind == "nominal":
        present, counts = np.unique(table.codes[column.name], return_counts=True)
        return _OneHot(column.name, np.sort(present[np.argsort(-counts, kind="stable")[:width]]))
    numbers = table.comparable(column.name)
    numbers = numbers[~np.isnan(numbers)]
    nullable = column.null_code is not None
    if len(numbers) == 0:
        return _Scaled(column.name, 0.0, 1.0, nullable)
    return _Scaled(column.name, float(numbers.mean()), float(numbers.std()) or 1.0, nullable)
