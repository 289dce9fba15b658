"""Attributes as a spec declares them: type, public bounds, missing values, provenance.

Everything here is declared by a person and public; nothing is read from data.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = str | bool | int | float
_T = TypeVar("_T")

_MOST_BINS = 100_000
"""Bins of a column at most: a histogram of more has fewer rows in a bin than its noise."""

DATA_DERIVED = "data-derived"
MEASURED = "dp:"


class Declared(BaseModel):
    """A frozen part of a spec; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Attribute(Declared):
    """What every attribute declares.

    ``provenance`` says where bounds or values come from: a public source, ``dp:`` and the release
    that measured them with noise at a charge, or ``data-derived``, which a release refuses.
    ``dtype`` is the pandas dtype of the column, when it is not the usual one of the type.
    """

    nullable: bool = False
    provenance: str = "declared"
    dtype: str | None = None

    @property
    def data_derived(self) -> bool:
        """Whether a bound was taken from the data and not yet declared public by a person."""
        return self.provenance.strip().lower().startswith(DATA_DERIVED)

    @property
    def measured(self) -> bool:
        """Whether bounds or values were measured with noise, at a charge of their own."""
        return self.provenance.startswith(MEASURED)


class ValuesFile(Declared):
    """A code list in a text file beside the spec, one value a line."""

    file: str


class ValuesPattern(Declared):
    """A code list written as a numbered pattern, ``zip{501..99950}``.

    A leading zero pads: ``{001..999}``.
    """

    pattern: str


class Categorical(Attribute):
    """A column with a public list of values, unordered."""

    type: Literal["categorical"]
    values: list[Scalar] | ValuesFile | ValuesPattern


class Ordinal(Attribute):
    """A column with a public list of values, in their order."""

    type: Literal["ordinal"]
    values: list[Scalar] | ValuesFile | ValuesPattern


class Boolean(Attribute):
    """True or false, as pandas bool, or as two words in a text file."""

    type: Literal["boolean"]
    true: str = "True"
    false: str = "False"


class Integer(Attribute):
    """Whole numbers from ``min`` to ``max`` by ``step``.

    ``special`` ones are point masses, in or out of range.
    """

    type: Literal["integer"]
    min: int
    max: int
    step: int = Field(default=1, ge=1)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[int] = []

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _require_order(self, self.min, self.max)


class Float(Attribute):
    """Decimal numbers from ``min`` to ``max`` on a grid of ``decimals`` places."""

    type: Literal["float"]
    min: float
    max: float
    decimals: int | None = Field(default=None, ge=0, le=12)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[float] = []

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _require_order(self, self.min, self.max)


class Date(Attribute):
    """Days from ``min`` to ``max``."""

    type: Literal["date"]
    min: dt.date
    max: dt.date
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[dt.date] = []

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _require_order(self, self.min, self.max)


class Datetime(Attribute):
    """Moments from ``min`` to ``max`` on a grid of ``step`` seconds."""

    type: Literal["datetime"]
    min: dt.datetime
    max: dt.datetime
    step: int = Field(default=1, ge=1)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[dt.datetime] = []

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _require_order(self, self.min, self.max)


class TextKey(Attribute):
    """A surrogate key: never modelled, never copied.

    Synthetic rows get fresh serial values of ``pattern``, which holds one numbered range:
    ``R{000001..999999}``.
    """

    type: Literal["text"]
    pattern: str


AnyAttribute = Annotated[
    Categorical | Ordinal | Boolean | Integer | Float | Date | Datetime | TextKey,
    Field(discriminator="type"),
]


def _require_order(attribute: _T, low: object, high: object) -> _T:
    if low > high:  # type: ignore[operator]
        raise ValueError("min is greater than max")
    return attribute
