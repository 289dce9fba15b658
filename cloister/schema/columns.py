"""The public domain of one attribute: every admissible value has a *fine code* 0, 1, ..., size - 1.

Values of a numeric column lie on a declared grid; special values outside the range follow the grid;
the missing code, if any, is the last. Nothing here is read from data.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.errors import ConstraintError
from cloister.hashing import mix
from cloister.schema.attributes import AnyAttribute, Boolean, Scalar, TextKey
from cloister.schema.ticks import (
    moment_dtype,
    number_of,
    numbers_of_ticks,
    tick_of,
    ticks_of_series,
    values_of_ticks,
)

if TYPE_CHECKING:
    import pandas as pd

Codes = Integers
ColumnKind = Literal["nominal", "ordered", "numeric", "key"]

OUTSIDE = -1
"""The code of a value outside the domain."""

_OTHER_BITS = 61
"""Bits of the codes of keys outside the declared pattern.

Two such keys share a code with probability 2^-61.
"""

_SHARE_BITS = 53
"""Bits of the number that decides whether a key is missing: those of a float between 0 and 1."""


@dataclass(frozen=True)
class Column(ABC):
    """The public domain of one attribute.

    ``size`` counts fine codes, the missing code included. ``comparable`` gives float64 numbers in
    the order of the values, NaN for missing: positions for listed values, days or seconds since
    1970 for dates and moments.
    """

    name: str
    attribute: AnyAttribute

    @property
    @abstractmethod
    def kind(self) -> ColumnKind:
        """Whether values are unordered, ordered by their list, numbers, or keys without meaning."""

    @property
    @abstractmethod
    def values(self) -> int:
        """Number of values, without the missing one."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The pandas dtype of the column."""

    @property
    def size(self) -> int:
        """Number of fine codes."""
        return self.values + self.attribute.nullable

    @property
    def null_code(self) -> int | None:
        """The fine code of a missing value; None if the attribute is not nullable."""
        return self.values if self.attribute.nullable else None

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The listed values as text, in order; None for numbers and keys."""
        return None

    @property
    def roundings(self) -> tuple[int, ...]:
        """The distances, in fine codes, of values that are often round, the greatest first."""
        return ()

    def encode(self, values: pd.Series) -> Codes:
        """Fine codes (n,) of raw or typed values; -1 where a value is outside the domain."""
        from cloister.schema.parsing import parse

        typed, invalid = parse(values, self.attribute)
        missing = typed.isna().to_numpy()
        codes = np.full(
            len(typed), OUTSIDE if self.null_code is None else self.null_code, dtype=np.int64
        )
        codes[~missing] = self._codes(typed[~missing])
        codes[invalid] = OUTSIDE
        return codes

    def decode(self, codes: Codes) -> pd.Series:
        """The values of fine codes (n,), in the dtype of the column."""
        missing = (
            codes == self.null_code
            if self.null_code is not None
            else np.zeros(len(codes), dtype=bool)
        )
        values = self._series(np.where(missing, 0, codes))
        if missing.any():
            values = values.mask(missing)
        return self._in_dtype(values).rename(self.name)

    def _in_dtype(self, values: pd.Series) -> pd.Series:
        """Values (n,) in the dtype of the column."""
        return values.astype(self.dtype)  # type: ignore[call-overload]

    def comparable(self, codes: Codes) -> Floats:
        """Numbers (n,) in the order of the values; NaN for missing."""
        numbers = self._numbers(codes)
        if self.null_code is not None:
            numbers[codes == self.null_code] = np.nan
        return numbers

    @abstractmethod
    def constant(self, value: object) -> float:
        """The comparable number of a constant in a constraint.

        Raises:
            ConstraintError: it has another type.
        """

    @abstractmethod
    def _codes(self, typed: pd.Series) -> Codes: ...

    @abstractmethod
    def _series(self, codes: Codes) -> pd.Series: ...

    @abstractmethod
    def _numbers(self, codes: Codes) -> Floats: ...


@dataclass(frozen=True)
class Listed(Column):
    """A categorical, ordinal or boolean column: codes are positions in the declared list.

    ``levels`` are those of a tree above the values, coarse first: the node of each value.
    """

    listed: tuple[Scalar, ...]
    levels: tuple[tuple[int, ...], ...] = ()

    @property
    def kind(self) -> ColumnKind:
        return "ordered" if self.attribute.type == "ordinal" else "nominal"

    @property
    def values(self) -> int:
        return len(self.listed)

    @property
    def dtype(self) -> str:
        return self.attribute.dtype or _listed_dtype(self.listed, self.attribute.nullable)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        whole = not any(type(value) is float for value in self.listed)
        return tuple(
            str(value) if whole or isinstance(value, str) else str(float(value))
            for value in self.listed
        )

    @cached_property
    def _index(self) -> pd.Index:
        from cloister.schema.series import label_index

        return label_index(self.labels)

    def constant(self, value: object) -> float:
        """Its place in the declared list; see :meth:`Column.constant`."""
        if str(value) not in self.labels:
            if isinstance(value, bool) and isinstance(self.attribute, Boolean):
                word = self.attribute.true if value else self.attribute.false
                raise ConstraintError(
                    f"column '{self.name}': its word for {str(value).lower()} is '{word}'; write "
                    "that, in single quotes"
                )
            raise ConstraintError(
                f"column '{self.name}': the constant is not in its list of values; "
                "use a listed value"
            )
        return float(self.labels.index(str(value)))

    def _in_dtype(self, values: pd.Series) -> pd.Series:
        from cloister.schema.series import in_categories

        if self.dtype != "category":
            return super()._in_dtype(values)
        return in_categories(values, self.listed, ordered=self.kind == "ordered")

    def _codes(self, typed: pd.Series) -> Codes:
        from cloister.schema.series import positions_of

        return positions_of(typed, self._index)

    def _series(self, codes: Codes) -> pd.Series:
        from cloister.schema.series import listed_values

        return listed_values(
            self.listed, _listed_dtype(self.listed, self.attribute.nullable), codes
        )

    def _numbers(self, codes: Codes) -> Floats:
        return codes.astype(np.float64)


def _listed_dtype(values: Sequence[Scalar], nullable: bool) -> str:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "boolean" if nullable else "bool"
    if kinds == {int}:
        return "Int64" if nullable else "int64"
    if kinds <= {int, float}:
        return "float64"
    return "str"


@dataclass(frozen=True)
class Grid(Column):
    """A numeric column: an even grid of ``steps`` values from ``origin``, then special values.

    A special value that lies on the grid has its code there. Values are measured in ticks: one for
    integers, 10^-decimals for floats, a day or a month for dates, a second or the last decimal
    place of its step for moments; ``stride`` is the number of ticks from one value to the next. The
    bins of a ``geometric`` grid grow by a constant factor from its first value on.
    """

    origin: int
    stride: int
    steps: int
    beyond: tuple[int, ...]
    geometric: bool = False

    @property
    def kind(self) -> ColumnKind:
        return "numeric"

    @property
    def values(self) -> int:
        return self.steps + len(self.beyond)

    @property
    def dtype(self) -> str:
        usual = {"integer": "Int64" if self.attribute.nullable else "int64", "float": "float64"}
        return self.attribute.dtype or usual.get(self.attribute.type, moment_dtype(self.attribute))

    @cached_property
    def special_codes(self) -> tuple[int, ...]:
        """Fine codes of the declared special values."""
        ticks = [tick_of(self.attribute, value) for value in getattr(self.attribute, "special", [])]
        return tuple(int(code) for code in self.codes_of_ticks(np.array(ticks, dtype=np.int64)))

    @property
    def roundings(self) -> tuple[int, ...]:
        steps = sorted(getattr(self.attribute, "rounded", []), reverse=True)
        return tuple(tick_of(self.attribute, step) // self.stride for step in steps)

    def codes_of_ticks(self, ticks: Codes) -> Codes:
        """Fine codes (n,) of ticks; -1 outside the domain."""
        codes, off = np.divmod(ticks - self.origin, self.stride)
        codes[(off != 0) | (codes < 0) | (codes >= self.steps)] = OUTSIDE
        for index, tick in enumerate(self.beyond):
            codes[ticks == tick] = self.steps + index
        return codes

    def ticks(self, codes: Codes) -> Codes:
        """Ticks (n,) of fine codes."""
        ticks = self.origin + np.minimum(codes, self.steps - 1) * self.stride
        for index, tick in enumerate(self.beyond):
            ticks[codes == self.steps + index] = tick
        return ticks

    def constant(self, value: object) -> float:
        """Its tick or number; see :meth:`Column.constant`."""
        try:
            return number_of(self.attribute, value)
        except (TypeError, ValueError):
            raise ConstraintError(
                f"column '{self.name}': a constant compared with it must be of type "
                f"{self.attribute.type}"
            ) from None

    def _in_dtype(self, values: pd.Series) -> pd.Series:
        from cloister.schema.series import in_zone, native_times, time_type

        kind = time_type(self.attribute.dtype)
        if kind is None and self.attribute.type in ("date", "datetime"):
            return in_zone(values, self.dtype)
        if kind is None:
            return super()._in_dtype(values)
        return native_times(values, kind, getattr(self.attribute, "format", None))

    def _codes(self, typed: pd.Series) -> Codes:
        return self.codes_of_ticks(ticks_of_series(self.attribute, typed))

    def _series(self, codes: Codes) -> pd.Series:
        from cloister.schema.series import typed_values

        return typed_values(*values_of_ticks(self.attribute, self.ticks(codes)))

    def _numbers(self, codes: Codes) -> Floats:
        return numbers_of_ticks(self.attribute, self.ticks(codes))


@dataclass(frozen=True)
class Serial(Column):
    """A surrogate key: codes are the numbers of a pattern such as ``R{000001..999999}``.

    Other keys of the data are distinguished by codes beyond ``size``, which are never decoded.
    """

    prefix: str
    suffix: str
    first: int
    last: int
    width: int

    @property
    def kind(self) -> ColumnKind:
        return "key"

    @property
    def values(self) -> int:
        return self.last - self.first + 1

    @property
    def dtype(self) -> str:
        return self.attribute.dtype or "str"

    def constant(self, value: object) -> float:  # noqa: ARG002
        """None is comparable: always a ConstraintError."""
        raise ConstraintError(
            f"column '{self.name}': a text key has no meaning of its own; compare another column"
        )

    @property
    def missing_share(self) -> float | None:
        """The share of synthetic rows without a key; None if each has one."""
        return self.attribute.missing_share if isinstance(self.attribute, TextKey) else None

    @property
    def fills_gaps(self) -> bool:
        """Whether rows of the data may lack a key, and no synthetic row does."""
        return self.attribute.nullable and self.missing_share is None

    def fresh(self, rows: Codes) -> Codes:
        """The codes (n,) of fresh keys of rows (n,), by their numbers in a synthetic table.

        Which of them are missing depends on the name of the column and the row's number alone.
        """
        if self.missing_share is None:
            return rows
        words = np.full(len(rows), zlib.crc32(self.name.encode()), dtype=np.uint64)
        drawn = mix(mix(words) + rows.astype(np.uint64))
        missing = drawn >> np.uint64(64 - _SHARE_BITS) < self.missing_share * 2.0**_SHARE_BITS
        return np.where(missing, self.values, rows)

    def _codes(self, typed: pd.Series) -> Codes:
        from cloister.schema.series import hash_texts, numbers_in

        codes = numbers_in(typed, self.prefix, self.suffix, self.first - 1) - self.first
        same = self._series(np.clip(codes, 0, self.values - 1)).to_numpy() == typed.to_numpy()
        outside = ~same | (codes < 0) | (codes >= self.values)
        codes[outside] = self.size + hash_texts(typed[outside], _OTHER_BITS)
        return codes

    def _series(self, codes: Codes) -> pd.Series:
        from cloister.schema.series import numbered_texts

        return numbered_texts(self.prefix, codes + self.first, self.width, self.suffix)

    def _numbers(self, codes: Codes) -> Floats:
        return codes.astype(np.float64)
