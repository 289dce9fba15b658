"""The public domain of a table, and a table as fine codes inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cloister.arrays import Array, Booleans, Floats, Integers
from cloister.errors import DataError
from cloister.figures import count_of, listed
from cloister.hashing import Words, keyed_rows
from cloister.schema.attributes import AnyAttribute, Boolean, Categorical, Ordinal, Scalar, TextKey
from cloister.schema.codelists import NUMBERED_PATTERN, resolve_levels, resolve_values
from cloister.schema.columns import OUTSIDE, Codes, Column, Grid, Listed, Serial
from cloister.schema.ticks import stride_of, tick_of

if TYPE_CHECKING:
    import pandas as pd

ResultT = TypeVar("ResultT")

_NATIVE: dict[tuple[str, str], tuple[Scalar, Scalar]] = {
    ("False", "True"): (False, True),
    ("0", "1"): (0, 1),
}
"""The values that pandas holds in place of some words of booleans, false and true."""

_MOST_NARROW = 2**32
"""Codes of the largest domain whose codes are stored in fewer than 64 bits."""


def column_of(name: str, attribute: AnyAttribute, folder: Path) -> Column:
    """The column of a declared attribute; value files are looked up in ``folder``."""
    if isinstance(attribute, Categorical | Ordinal):
        column = Listed(name, attribute, resolve_values(attribute.values, folder))
        declared = getattr(attribute, "hierarchy", None)
        return replace(column, levels=resolve_levels(declared, column.labels, folder))
    if isinstance(attribute, Boolean):
        words = (attribute.false, attribute.true)
        return Listed(name, attribute, _NATIVE.get(words, words))
    if isinstance(attribute, TextKey):
        return _serial(name, attribute)
    return _grid(name, attribute)


def _grid(name: str, attribute: AnyAttribute) -> Grid:
    first, last = (tick_of(attribute, getattr(attribute, end)) for end in ("min", "max"))
    stride = stride_of(attribute)
    steps = (last - first) // stride + 1
    declared = dict.fromkeys(
        tick_of(attribute, value) for value in getattr(attribute, "special", [])
    )
    inside = range(first, first + steps * stride, stride)
    return Grid(
        name,
        attribute,
        first,
        stride,
        steps,
        tuple(tick for tick in declared if tick not in inside),
    )


def _serial(name: str, attribute: TextKey) -> Serial:
    match = NUMBERED_PATTERN.fullmatch(attribute.pattern)
    if match is None:
        raise DataError(
            f"column '{name}': a text key needs a pattern with one numbered range, "
            "such as R{0001..9999}"
        )
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return Serial(
        name,
        attribute,
        match["prefix"],
        match["suffix"],
        int(match["first"]),
        int(match["last"]),
        width,
    )


@dataclass(frozen=True)
class Domain:
    """The ordered columns of a table; public."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, attributes: Mapping[str, AnyAttribute], folder: Path) -> Domain:
        """The domain of declared attributes; value files are looked up in ``folder``."""
        return cls(
            tuple(column_of(name, attribute, folder) for name, attribute in attributes.items())
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @property
    def modelled(self) -> tuple[str, ...]:
        """Names of the columns that carry meaning: all but surrogate keys."""
        return tuple(column.name for column in self.columns if column.kind != "key")

    def __getitem__(self, name: str) -> Column:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def encode(self, frame: pd.DataFrame) -> Table:
        """Fine codes of a frame with these columns.

        Raises:
            DataError: a value is outside its domain; names column and row numbers, never values.
        """
        codes = {column.name: column.encode(frame[column.name]) for column in self.columns}
        for name, column_codes in codes.items():
            _require_inside(name, column_codes)
        return Table(self, codes).narrow()


def _require_inside(name: str, codes: Codes) -> None:
    outside = np.flatnonzero(codes == OUTSIDE)
    if len(outside):
        raise DataError(
            f"column '{name}': {count_of(len(outside), 'value')} outside the declared domain "
            f"({listed('row', [*outside[:5] + 1])}); "
            "widen the declared domain or set validation.on_invalid to drop or clip"
        )


def code_type(column: Column) -> np.dtype[Any]:
    """The narrowest type that holds the codes of a column, those of other keys included."""
    if column.kind == "key" or column.size > _MOST_NARROW:
        return np.dtype(np.int64)
    return np.min_scalar_type(column.size - 1)


class _Widened(Mapping[str, Codes]):
    """Columns of whole numbers, each as int64 when it is looked up."""

    def __init__(self, stored: Mapping[str, Array]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> Codes:
        return np.asarray(self._stored[name], dtype=np.int64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


@dataclass(frozen=True)
class Table:
    """A table as fine codes: ``stored[name]`` is of shape (rows,) and any type of whole numbers.

    ``codes[name]`` is the same as int64, a copy where it is stored in a narrower type.
    """

    domain: Domain
    stored: Mapping[str, Array]

    @property
    def codes(self) -> Mapping[str, Codes]:
        """The columns as int64."""
        return _Widened(self.stored)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.stored.values())))

    @property
    def in_memory(self) -> bool:
        """Whether its codes are at hand, or read each time that they are looked up."""
        return True

    def comparable(self, name: str) -> Floats:
        """Numbers (rows,) in the order of a column's values; NaN for missing."""
        return self.domain[name].comparable(self.codes[name])

    def take(self, rows: Integers | Booleans | slice) -> Table:
        """The table of some rows, by number, by mask or by range."""
        return Table(self.domain, {name: codes[rows] for name, codes in self.stored.items()})

    def select(self, names: Iterable[str]) -> Table:
        """The table of some columns."""
        chosen = dict.fromkeys(names)
        domain = Domain(tuple(self.domain[name] for name in chosen))
        return Table(domain, {name: self.stored[name] for name in chosen})

    def total(self, kernel: Callable[[Table], Integers]) -> Integers:
        """The sum of what ``kernel`` counts in each block of the rows: whole numbers.

        Here all rows are one block. Of a table with others the sum is the same.
        """
        return kernel(self)

    def summed(self, kernel: Callable[[Array], Integers], pieces: Sequence[Array]) -> Integers:
        """The sum of what ``kernel`` counts in each of some pieces of rows that were taken.

        It is counted where the rows of this table lie: here.
        """
        return summed_here(kernel, pieces)

    def each(self, function: Callable[[Table], ResultT]) -> Iterator[ResultT]:
        """What ``function`` makes of each block of the rows, in order."""
        yield function(self)

    def mapped(self, function: Callable[[Table], Table]) -> Table:
        """What ``function`` makes of the rows, each of which depends on one row alone."""
        return function(self)

    def by_unit(self, function: Callable[[Table], Table]) -> Table:
        """What ``function`` makes of the rows, to which all rows of a unit are given together."""
        return function(self)

    def keyed_hashes(self, key: bytes) -> Words:
        """Numbers of 64 bits (n,), equal for equal rows, that nobody knows without the key."""
        return keyed_rows(self.stored.values(), key)

    def narrow(self) -> Table:
        """The same table, each column in the narrowest type that its public domain allows."""
        types = {name: code_type(self.domain[name]) for name in self.stored}
        return Table(
            self.domain,
            {name: codes.astype(types[name], copy=False) for name, codes in self.stored.items()},
        )

    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame, in the dtypes of its columns."""
        import pandas as pd

        return pd.DataFrame(
            {name: self.domain[name].decode(codes) for name, codes in self.codes.items()}
        )

    @classmethod
    def completed(cls, domain: Domain, codes: Mapping[str, Codes], rows: int) -> Table:
        """A table of ``rows`` rows: the first code in the columns that ``codes`` leaves out."""
        first = np.zeros(rows, dtype=np.int64)
        return cls(domain, {name: codes.get(name, first) for name in domain.names})

    @classmethod
    def concatenate(cls, tables: Iterable[Table]) -> Table:
        """The rows of several tables, at least one, over one domain.

        Memory is that of their columns and of one column more: a table that nothing else holds is
        forgotten as soon as it has been taken apart.
        """
        pieces: dict[str, list[Array]] = {}
        for table in tables:
            domain = table.domain
            for name in domain.names:
                pieces.setdefault(name, []).append(table.stored[name])
        return cls(domain, {name: np.concatenate(pieces.pop(name)) for name in domain.names})


def summed_here(kernel: Callable[[Array], Integers], pieces: Sequence[Array]) -> Integers:
    """The sum of what ``kernel`` counts in each piece, at least one, computed by this process."""
    return reduce(np.add, map(kernel, pieces))


def empty_table(domain: Domain) -> Table:
    """A table without rows."""
    return Table(domain, {column.name: np.zeros(0, code_type(column)) for column in domain})


def order_of_rows(table: Table, name: str | None) -> Floats | None:
    """Numbers (n,) by which rows of a unit follow each other, missing ones last; None without."""
    if name is None:
        return None
    numbers = table.domain[name].comparable(table.codes[name])
    return np.where(np.isnan(numbers), np.inf, numbers)
