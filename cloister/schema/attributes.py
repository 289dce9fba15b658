"""Attributes as a spec declares them: type, public bounds, missing values, provenance.

Everything here is declared by a person and public; nothing is read from data.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cloister.schema.formats import (
    has_short_year,
    require_moment_format,
    require_number_format,
    written_step,
)

Scalar = str | bool | int | float
_T = TypeVar("_T")

_WholeForm = Annotated[str, AfterValidator(lambda form: require_number_format(form, whole=True))]
_DecimalForm = Annotated[str, AfterValidator(lambda form: require_number_format(form, whole=False))]
_DayForm = Annotated[str, AfterValidator(lambda form: require_moment_format(form, clock=False))]
_MomentForm = Annotated[str, AfterValidator(lambda form: require_moment_format(form, clock=True))]

_SHORT_YEARS = range(1969, 2069)
"""Years that two digits can write."""

_MOST_BINS = 100_000
"""Bins of a column at most: a histogram of more has fewer rows in a bin than its noise."""

LARGEST_WHOLE = 10**18 - 1
"""The greatest whole number of an integer attribute: all of 18 digits fit into int64."""

DATA_DERIVED = "data-derived"
MEASURED = "dp:"


def _is_none(value: object) -> bool:
    """Whether a key that not every spec has is absent: it is left out of the spec's digest."""
    return value is None


class Declared(BaseModel):
    """A frozen part of a spec; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Attribute(Declared):
    """What every attribute declares.

    ``provenance`` says where bounds or values come from: a public source, ``dp:`` and the release
    that measured them with noise at a charge, or ``data-derived``, which a release refuses.
    ``dtype`` is the pandas dtype of the column, when it is not the usual one of the type.
    ``missing`` is the text of a missing value in CSV, when it is not the first of the source;
    ``format`` how CSV writes numbers, and reads and writes dates (`cloister.schema.formats`).
    ``per: person`` says that all rows of a person share one value.
    """

    nullable: bool = False
    provenance: str = "declared"
    dtype: str | None = None
    missing: str | None = None
    per: Literal["person"] | None = Field(default=None, exclude_if=_is_none)

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

    ``special`` ones are point masses, in or out of range. Bins of ``scale`` log grow with
    the distance from zero.
    """

    type: Literal["integer"]
    min: int
    max: int
    step: int = Field(default=1, ge=1)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    scale: Literal["log"] | None = Field(default=None, exclude_if=_is_none)
    special: list[int] = []
    format: _WholeForm | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _require_order(self, self.min, self.max)


class Float(Attribute):
    """Decimal numbers from ``min`` to ``max`` on a grid of ``decimals`` places.

    See `Integer` for ``special`` and ``scale``.
    """

    type: Literal["float"]
    min: float
    max: float
    decimals: int | None = Field(default=None, ge=0, le=12)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    scale: Literal["log"] | None = Field(default=None, exclude_if=_is_none)
    special: list[float] = []
    format: _DecimalForm | None = None

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
    format: _DayForm | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_written(self.format, [self.min, *self.special, self.max], 86_400)
        return _require_order(self, self.min, self.max)


class Datetime(Attribute):
    """Moments from ``min`` to ``max`` on a grid of ``step`` seconds."""

    type: Literal["datetime"]
    min: dt.datetime
    max: dt.datetime
    step: int = Field(default=1, ge=1)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[dt.datetime] = []
    format: _MomentForm | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_written(self.format, [self.min, *self.special, self.max], self.step)
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


def _require_written(form: str | None, bounds: Sequence[dt.date], step: int) -> None:
    """Check that a form writes all of a grid, so that what is written is read back.

    ``bounds`` are the first value of the grid, special ones and the last.

    Raises:
        ValueError: it lacks a part of the clock, or the century, that values have.
    """
    if form is None:
        return
    unit = written_step(form)
    if any(second % unit for second in [step, *map(_seconds, bounds[:-1])]):
        raise ValueError(f"the format writes no parts below {unit} seconds; declare step: {unit}")
    if has_short_year(form) and any(at.year not in _SHORT_YEARS for at in bounds):
        raise ValueError("the format has years of two digits, 1969 to 2068; narrow the bounds")


def _seconds(moment: dt.date) -> int:
    """Whole seconds of a day or moment on the clock, in UTC."""
    if not isinstance(moment, dt.datetime):
        return 0
    at = moment if moment.tzinfo is None else moment.astimezone(dt.UTC)
    return at.hour * 3600 + at.minute * 60 + at.second
