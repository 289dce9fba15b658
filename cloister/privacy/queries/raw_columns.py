"""Raw columns, whose domains are not known yet, and their queries: rows, parts and texts.

Parts are those of a public partition of everything that a column may hold, chosen without looking
at it.

The parts of readable values come first, then one part for missing and one for unreadable cells, so
that every row lies in exactly one part and the counts of a partition are those of
`Sensitivity.partition`.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from cloister.arrays import Array, Integers
from cloister.hashing import keyed_numbers
from cloister.privacy.events import Sensitivity
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries.query import Door, Query
from cloister.schema.attributes import LARGEST_WHOLE, AnyAttribute, Date, Datetime, Float, Integer
from cloister.schema.parsing import parse
from cloister.schema.sources.storage_types import texts
from cloister.schema.ticks import EPOCH
from cloister.schema.written_moments import SECONDS_OF_DAY, clock_unit, is_clock_format

_WHOLE_POWERS = range(60)
"""Powers of two between whose quarters whole numbers are counted."""

_FLOAT_POWERS = range(-40, 50)
"""Powers of two between whose quarters floats are counted."""

_QUARTERS = 4
"""Parts between two powers of two."""

_YEARS = (*range(1, 2), *range(100, 1900, 100), *range(1900, 2100), *range(2100, 10_001, 100))
"""First days of years and centuries between which dates are counted."""

_MOST_DECIMALS = 6
"""Most decimals of a grid of floats that is recognised."""

DECIMAL_GRIDS = (
    *((0, 1), (1, 5), (1, 1)),
    *((places, units) for places in range(2, _MOST_DECIMALS + 1) for units in (25, 5, 1)),
)
"""Grids of floats that are recognised, the coarsest of as many decimals first: the decimals, and
the step in units of the last of them."""

_CLOCK_STEPS = (3_600, 1_800, 900, 600, 300, 60, 1)
"""Steps of times of day and lengths of time that are recognised, in seconds: hours to seconds."""

_TIME_STEPS = (SECONDS_OF_DAY, *_CLOCK_STEPS)
"""Steps of moments that are recognised, in seconds: whole days too."""

_WHOLE_STEPS = tuple(digit * 10**places for places in range(5, -1, -1) for digit in (5, 1))
"""Steps of whole numbers that are recognised: 1 and 5 times a power of ten, down to 1."""

LARGEST_PARTITION = 4 * _QUARTERS * len(_FLOAT_POWERS)
"""More parts than all partitions of any one attribute have together."""


@dataclass(frozen=True)
class Buckets(ABC):
    """A public partition of one attribute's raw cells.

    Parts of readable values come first, then missing cells, then unreadable ones. Shapes: ``of``
    gives parts (n,) of raw values (n,), from 0 to size - 1.
    """

    name: str
    attribute: AnyAttribute

    @property
    @abstractmethod
    def missing(self) -> int:
        """The part of missing cells, which is also the number of parts of readable values."""

    @abstractmethod
    def _parts(self, typed: pd.Series) -> Integers: ...

    @property
    def size(self) -> int:
        """Number of parts."""
        return self.missing + 2

    def of(self, values: pd.Series) -> Integers:
        """The part of each raw value."""
        typed, invalid = parse(values, self.attribute)
        known = typed.notna().to_numpy(dtype=bool)
        parts = np.full(len(values), self.missing, dtype=np.int64)
        parts[known] = self._parts(typed[known])
        parts[invalid] = self.missing + 1
        return parts


class Presence(Buckets):
    """Whether there is a readable value at all: what a boolean or a key needs."""

    @property
    def missing(self) -> int:
        return 1

    def _parts(self, typed: pd.Series) -> Integers:
        return np.zeros(len(typed), dtype=np.int64)


class Line(Buckets):
    """All numbers or dates, in order.

    Numbers are parted at quarters of powers of two on both sides of zero, dates at years, or at
    centuries before 1900 and from 2100. Values beyond the first or last part are counted in it.
    """

    @property
    def missing(self) -> int:
        return len(self.edges) - 1

    @property
    def edges(self) -> Array:
        """Part p holds the numbers from edges[p] to below edges[p + 1].

        For dates, days since 1970; for moments, seconds.
        """
        return _edges(self.attribute.type)

    @property
    def zero(self) -> int | None:
        """The part that begins at zero; None for dates."""
        return (
            None
            if isinstance(self.attribute, Date | Datetime)
            else int(np.flatnonzero(self.edges == 0)[0])
        )

    def span(self, first: int, last: int) -> tuple[Any, Any]:
        """The least and greatest number in the parts from first to last."""
        low, high = self.edges[first].item(), self.edges[last + 1].item()
        if isinstance(self.attribute, Float):
            return low, high
        if isinstance(self.attribute, Integer):
            return max(low, -LARGEST_WHOLE), min(high - 1, LARGEST_WHOLE)
        return low, high - 1

    def _parts(self, typed: pd.Series) -> Integers:
        places = np.searchsorted(self.edges, _numbers(typed, self.attribute), side="right") - 1
        return np.clip(places, 0, self.missing - 1).astype(np.int64)


class Fineness(Buckets):
    """How fine values are: the grid of a float, or the step of whole numbers or of moments.

    Floats with more than 6 decimals have one part more.
    """

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps, the greatest first; a part holds the multiples of one, and of none before it.

        Of moments in seconds, of whole numbers in their unit; of floats there are none.
        """
        if isinstance(self.attribute, Datetime):
            return _TIME_STEPS
        if not isinstance(self.attribute, Integer):
            return ()
        if not is_clock_format(self.attribute.format):
            return _WHOLE_STEPS
        unit = clock_unit(self.attribute.format)
        return tuple(seconds // unit for seconds in _CLOCK_STEPS if seconds >= unit)

    @property
    def missing(self) -> int:
        return len(self.steps) or len(DECIMAL_GRIDS) + 1

    def _parts(self, typed: pd.Series) -> Integers:
        numbers = _numbers(typed, self.attribute)
        if self.steps:
            return np.argmax(numbers[:, None] % np.array(self.steps) == 0, axis=1).astype(np.int64)
        parts = np.full(len(numbers), len(DECIMAL_GRIDS), dtype=np.int64)
        for part, (decimals, units) in reversed(list(enumerate(DECIMAL_GRIDS))):
            with np.errstate(all="ignore"):  # a warning would tell of one row
                multiple = np.mod(np.rint(numbers * 10.0**decimals), units) == 0
            written = np.round(numbers, decimals) == numbers
            parts[written & (multiple | (units == 1))] = part
        return parts


def value_of(attribute: AnyAttribute, number: float) -> int | float | str:
    """A number of the line as a spec writes it."""
    if isinstance(attribute, Date):
        return (EPOCH + dt.timedelta(days=int(number))).isoformat()
    if isinstance(attribute, Datetime):
        epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001
        return (epoch + dt.timedelta(seconds=int(number))).isoformat()
    return float(number) if isinstance(attribute, Float) else int(number)


@lru_cache
def _edges(kind: str) -> Array:
    if kind in ("date", "datetime"):
        days = (
            (np.array(_YEARS) - 1970)
            .astype("datetime64[Y]")
            .astype("datetime64[D]")
            .astype(np.int64)
        )
        return days if kind == "date" else days * SECONDS_OF_DAY
    if kind == "float":
        return _both_sides(
            [
                2.0**power * (1 + part / _QUARTERS)
                for power in _FLOAT_POWERS
                for part in range(_QUARTERS)
            ]
        )
    return _both_sides(
        [
            2**power * (_QUARTERS + part) // _QUARTERS
            for power in _WHOLE_POWERS
            for part in range(_QUARTERS)
        ]
    )


def _both_sides(positive: list[Any]) -> Array:
    end = 2 * positive[-_QUARTERS]
    magnitudes = np.unique(np.array([*positive, end]))
    return np.concatenate([-magnitudes[::-1], np.zeros(1, dtype=magnitudes.dtype), magnitudes])


def _numbers(typed: pd.Series, attribute: AnyAttribute) -> Array:
    if isinstance(attribute, Float):
        return typed.to_numpy(dtype=np.float64)
    if isinstance(attribute, Integer):
        return typed.to_numpy(dtype=np.int64)
    seconds = typed.to_numpy().astype("datetime64[s]").astype(np.int64)
    return seconds // SECONDS_OF_DAY if isinstance(attribute, Date) else seconds


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
        frequencies = texts(typed.dropna()).value_counts()
        cells, first, places = np.unique(
            keyed_numbers(frequencies.index, self.key), return_index=True, return_inverse=True
        )
        counts = np.zeros(len(cells), dtype=np.int64)
        np.add.at(counts, places, frequencies.to_numpy(dtype=np.int64))
        return [str(frequencies.index[row]) for row in first], cells, counts

    def words(self, name: str, attribute: AnyAttribute, numbers: Integers) -> list[str]:
        """The texts of a column that have the numbers (n,), in their order; "" where none has."""
        words, cells, _ = self.texts(name, attribute)
        by_number = dict(zip(cells.tolist(), words, strict=True))
        return [by_number.get(number, "") for number in numbers.tolist()]


class ColumnsDoor(Door[RawColumns], Protocol):
    """A door to raw columns, which also names the texts of numbers that it released."""

    def words(self, name: str, attribute: AnyAttribute, numbers: Integers) -> list[str]:
        """The texts of a column that have the numbers (n,) of an answer, in their order."""
        ...


@dataclass(frozen=True)
class RowCount(Query[RawColumns, Sensitivity, int]):
    """The number of rows.

    Proof: a unit of at most m rows, whether it comes, goes or is replaced by another, changes the
    one number by m at most.
    """

    name: ClassVar[str] = "rows"

    def request(self) -> Mapping[str, Any]:
        return {}

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return Sensitivity.box(1, neighbours.max_rows)

    def exact(self, rows: RawColumns, source: NoiseSource) -> Integers:  # noqa: ARG002
        return np.array([len(rows.frame)], dtype=np.int64)

    def outcome(self, noisy: Array) -> int:
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

    def outcome(self, noisy: Array) -> Integers:
        return noisy


@dataclass(frozen=True)
class TextCounts(Query[RawColumns, Sensitivity, Integers]):
    """The readable values of one column whose noisy counts reach the threshold, as numbers.

    The answer (2, n) holds the numbers of their texts, and the counts; :class:`ColumnsDoor` names
    the texts. Proof: a histogram over all texts, each mapped to 63 bits of a keyed BLAKE2b, so that
    the number of a text does not depend on which other texts occur. Texts with the same number, if
    any, are counted together.
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

    def outcome(self, noisy: Array) -> Integers:
        return noisy
