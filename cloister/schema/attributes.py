"""Attributes as a spec declares them: type, public bounds, missing values, provenance.

Everything here is declared by a person and public; nothing is read from data.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cloister.schema import written_moments
from cloister.schema.written_numbers import require_number_format

Scalar = str | bool | int | float
_T = TypeVar("_T")

_WholeForm = Annotated[str, AfterValidator(lambda form: require_number_format(form, whole=True))]
_DecimalForm = Annotated[str, AfterValidator(lambda form: require_number_format(form, whole=False))]
_DayForm = Annotated[
    str, AfterValidator(lambda form: written_moments.require_moment_format(form, clock=False))
]
_MomentForm = Annotated[
    str, AfterValidator(lambda form: written_moments.require_moment_format(form, clock=True))
]

_Steps = Annotated[
    list[int | float],
    BeforeValidator(lambda steps: steps if isinstance(steps, list) else [steps]),
    Field(max_length=4),
]


_MOST_BINS = 100_000
"""Bins of a column at most: a histogram of more has fewer rows in a bin than its noise."""

_DAY_MICROS = written_moments.SECONDS_OF_DAY * written_moments.MICROS
"""Microseconds of a day: the step of dates."""

EXACT_STEP, EXACT_YEARS = 0.0001, range(1700, 2241)
"""Seconds that a float64 of seconds since 1970 tells apart in all years, and the years in which it
tells microseconds apart."""

LARGEST_WHOLE = 10**18 - 1
"""The greatest whole number of an integer attribute: all of 18 digits fit into int64."""

MOST_MULTIPLES = 1_000_000
"""Multiples of a rounding at most: each is a cell while rows are counted."""

DATA_DERIVED = "data-derived"
MEASURED = "dp:"


def _is_none(value: object) -> bool:
    """Whether a key that not every spec has is absent: it is left out of the spec's digest."""
    return value is None


def _is_whole(step: float, decimals: int | None) -> bool:
    """Whether a step is a whole number of units of the last of some decimal places."""
    units = None if decimals is None else step * 10**decimals
    return units is not None and round(units) >= 1 and math.isclose(units, round(units))


def is_data_derived(provenance: str) -> bool:
    """Whether a provenance says that something was read from the data."""
    return provenance.strip().lower().startswith(DATA_DERIVED)


class Declared(BaseModel):
    """A frozen part of a spec; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Attribute(Declared):
    """Keys of every attribute.

    ``provenance`` says where bounds or values come from: a public source, ``dp:`` and the release
    that measured them with noise at a charge, or ``data-derived``, which a release refuses.
    ``dtype`` is the pandas dtype of the column, when it is not the usual one of the type.
    ``missing`` is the text of a missing value in CSV, when it is not the first of the source;
    ``format`` how CSV writes numbers, and reads and writes dates, see
    `cloister.schema.written_numbers` and `cloister.schema.written_moments`.
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
        return is_data_derived(self.provenance)

    @property
    def measured(self) -> bool:
        """Whether bounds or values were measured with noise, at a charge of their own."""
        return self.provenance.startswith(MEASURED)


class ValuesFile(Declared):
    """A code list in a text file beside the spec, one value per line."""

    file: str


class ValuesPattern(Declared):
    """A code list written as a numbered pattern, ``zip{501..99950}``.

    A leading zero pads: ``{001..999}``.
    """

    pattern: str


class ParentsFile(Declared):
    """A tree of codes in a text file beside the spec: one ``code,parent`` a line, as in CSV."""

    file: str


class Parents(Declared):
    """A tree of codes, written out: the parent of each."""

    parents: dict[str | int, str | int]


class Categorical(Attribute):
    """A column with a public list of values, unordered.

    ``hierarchy`` makes a tree of them: by the lengths of prefixes that values of one node share,
    coarse first, or by the parent of each code.
    """

    type: Literal["categorical"]
    values: list[Scalar] | ValuesFile | ValuesPattern
    hierarchy: list[int] | ParentsFile | Parents | None = Field(default=None, exclude_if=_is_none)


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
    the distance from zero. Multiples of each of ``rounded`` are more frequent than other numbers:
    how much so, a release measures.
    """

    type: Literal["integer"]
    min: int
    max: int
    step: int = Field(default=1, ge=1)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    scale: Literal["log"] | None = Field(default=None, exclude_if=_is_none)
    special: list[int] = []
    rounded: _Steps = Field(default=[], exclude_if=lambda steps: not steps)
    format: _WholeForm | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_day(self.format, [self.min, *self.special, self.max])
        return _require_order(self, self.min, self.max)


class Float(Attribute):
    """Decimal numbers from ``min`` to ``max`` on a grid of ``decimals`` places, or by ``step``.

    See `Integer` for ``special``, ``scale`` and ``rounded``.
    """

    type: Literal["float"]
    min: float
    max: float
    decimals: int | None = Field(default=None, ge=0, le=12)
    step: float | None = Field(default=None, gt=0, exclude_if=_is_none)
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    scale: Literal["log"] | None = Field(default=None, exclude_if=_is_none)
    special: list[float] = []
    rounded: _Steps = Field(default=[], exclude_if=lambda steps: not steps)
    format: _DecimalForm | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _require_day(self.format, [self.min, *self.special, self.max])
        if self.step is not None and not _is_whole(self.step, self.decimals):
            raise ValueError("a step of decimal numbers needs as many decimals as it has")
        return _require_order(self, self.min, self.max)


class Date(Attribute):
    """Days from ``min`` to ``max``; months, if the format has no day.

    ``partial: missing`` reads dates without a day, or without a month, as missing: ``2021``,
    ``2021-03`` and ``2021-03-00``.
    """

    type: Literal["date"]
    min: dt.date
    max: dt.date
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[dt.date] = []
    format: _DayForm | None = None
    partial: Literal["missing"] | None = Field(default=None, exclude_if=_is_none)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.partial and written_moments.is_of_months(self.format):
            raise ValueError("the format has no day that could be missing; leave out partial")
        written_moments.require_written(
            self.format, [self.min, *self.special, self.max], _DAY_MICROS
        )
        return _require_order(self, self.min, self.max)


def _require_micros(step: float) -> int | float:
    """Seconds of at most six decimal places, whole ones as an integer.

    Raises:
        ValueError: they have more.
    """
    micros = round(step * written_moments.MICROS)
    if micros < 1 or micros / written_moments.MICROS != step:
        raise ValueError("should be seconds of at most six decimal places; write 1, 60 or 0.001")
    return written_moments.in_seconds(micros)


class Datetime(Attribute):
    """Moments from ``min`` to ``max`` on a grid of ``step`` seconds, such as 60 or 0.001."""

    type: Literal["datetime"]
    min: dt.datetime
    max: dt.datetime
    step: Annotated[int | float, AfterValidator(_require_micros)] = 1
    bins: int | None = Field(default=None, ge=1, le=_MOST_BINS)
    special: list[dt.datetime] = []
    format: _MomentForm | None = None

    @property
    def step_micros(self) -> int:
        """Microseconds from one moment of the grid to the next."""
        return round(self.step * written_moments.MICROS)

    @property
    def places(self) -> int:
        """Decimal places of a second that the grid has, 0 to 6."""
        return next(p for p in range(7) if not self.step_micros % 10 ** (6 - p))

    @property
    def tick_micros(self) -> int:
        """Microseconds of one in the last of these places."""
        return int(10 ** (6 - self.places))

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        bounds = [self.min, *self.special, self.max]
        if self.step < EXACT_STEP and any(bound.year not in EXACT_YEARS for bound in bounds):
            raise ValueError(
                "such a step needs years 1700 to 2240; declare step: 0.0001, or longer"
            )
        written_moments.require_written(self.format, bounds, self.step_micros)
        return _require_order(self, self.min, self.max)


class TextKey(Attribute):
    """A surrogate key: never modelled, never copied.

    Synthetic rows get fresh serial values of ``pattern``, which holds one numbered range:
    ``R{000001..999999}``. Of ``nullable`` ones a share of ``missing_share`` has none, whatever
    else is in the row; without it, none lacks one.
    """

    type: Literal["text"]
    pattern: str
    missing_share: float | None = Field(default=None, gt=0, le=1, exclude_if=_is_none)

    @model_validator(mode="after")
    def _may_be_missing(self) -> Self:
        if self.missing_share is not None and not self.nullable:
            raise ValueError("missing_share is of cells that may be missing; write nullable: true")
        return self


AnyAttribute = Annotated[
    Categorical | Ordinal | Boolean | Integer | Float | Date | Datetime | TextKey,
    Field(discriminator="type"),
]


def as_date(value: object) -> dt.date:
    """The day of a declared constant.

    Raises:
        TypeError: it is none.
        ValueError: its text is none.
    """
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    raise TypeError("not a date")


def as_moment(value: object) -> dt.datetime:
    """The moment of a declared constant, in UTC if it has no time zone; see :func:`as_date`."""
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    if not isinstance(value, dt.datetime):
        raise TypeError("not a moment")
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _require_order(attribute: _T, low: object, high: object) -> _T:
    if low > high:  # type: ignore[operator]
        raise ValueError("min is greater than max")
    return attribute


def _require_day(form: str | None, bounds: Sequence[float]) -> None:
    """Check that a clock of twelve hours has numbers of a day, so that what is written is read.

    Raises:
        ValueError: a bound or special value lies outside.
    """
    last = written_moments.SECONDS_OF_DAY // written_moments.clock_unit(form)
    if written_moments.is_twelve_hour(form) and not all(0 <= number < last for number in bounds):
        raise ValueError(f"the format writes hours of a day; keep to 0 to {last - 1}")
