"""The spec of a dataset: the declared, public description of its schema, privacy and release.

Nothing here is read from data. Shares of a budget are exact: ``epsilon: 0.1`` is the fraction 1/10.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, PrivateAttr, model_validator

from cloister.schema.attributes import AnyAttribute, Declared, Scalar
from cloister.schema.declarations import ConstraintDeclaration

_MOST_BITS = 4096
"""Bits of the numerator and of the denominator of an epsilon or delta, as the ledger takes them."""

_LONGEST_NAME = 100
"""Letters of a dataset's name at most: it becomes part of file names of at most 255 bytes."""

OnInvalid = Literal["fail", "drop", "clip"]
DraftedFact = Literal["names", "delimiter", "missing", "types"]


def exact_fraction(value: object) -> Fraction:
    """The fraction that a number was written as: 0.1 is 1/10; ``1/3`` may be written as text.

    Raises:
        ValueError: not a finite number.
    """
    text = str(value)
    try:
        number = Fraction(text) if "/" in text else _finite(Decimal(text))
    except (ArithmeticError, ValueError):
        raise ValueError("should be a finite number") from None
    if max(number.numerator, number.denominator).bit_length() > _MOST_BITS:
        raise ValueError("should have fewer digits")
    return number


def _finite(number: Decimal) -> Fraction:
    if not number.is_finite() or abs(number.adjusted()) > _MOST_BITS:
        raise ValueError("not finite, or far too many digits")
    return Fraction(number)


_Exact = Annotated[Fraction, BeforeValidator(exact_fraction), PlainSerializer(str, return_type=str)]
DeclaredEpsilon = Annotated[_Exact, Field(gt=0)]
DeclaredDelta = Annotated[_Exact, Field(ge=0, lt=1)]


class SourceSpec(Declared):
    """Where the table is: a CSV or Parquet ``path``, or a SQLAlchemy ``url`` and ``table``.

    ``path`` is relative to the working directory. ``missing`` lists the only texts of a CSV file
    that stand for a missing value; by default the empty cell. ``${NAME}`` in ``url`` is read from
    the environment.
    """

    path: str | None = Field(default=None, min_length=1)
    format: Literal["csv", "parquet"] | None = None
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    missing: tuple[str, ...] = ("",)
    url: str | None = None
    table: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("a source has either path or url; keep one of them")
        if (self.url is None) != (self.table is None):
            raise ValueError("url and table go together; give both or neither")
        return self


class PersonUnit(Declared):
    """One person is all rows with the same value of ``key``, at most ``max_rows`` of them."""

    key: str
    max_rows: int = Field(ge=1)


class RowsSpec(Declared):
    """The number of rows: a ``public`` figure and its source, or to be ``measured``.

    A measurement adds noise and has a charge of its own.
    """

    public: int | None = Field(default=None, ge=1)
    measured: Literal[True] | None = None
    provenance: str = "declared"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.public is None) == (self.measured is None):
            raise ValueError(
                "rows are either {public: NUMBER} or {measured: true}; keep one of them"
            )
        return self


class BudgetSpec(Declared):
    """What may be spent on one privacy unit, over all releases of a period."""

    epsilon: DeclaredEpsilon
    delta: DeclaredDelta
    per: Literal["year", "month", "ever"]


class PrivacySpec(Declared):
    """Whom the guarantee protects, under which relation, and the budget of all releases."""

    unit: Literal["row"] | PersonUnit
    relation: Literal["add_remove", "replace_one"]
    rows: RowsSpec
    budget: BudgetSpec


class ReleaseSpec(Declared):
    """What one release spends, by which method.

    ``rows`` is the size of the output, by default that of the table. Method ``auto`` is chosen by
    public facts: sizes, domains, constraints and budget.
    """

    method: str = "auto"
    epsilon: DeclaredEpsilon
    delta: DeclaredDelta
    rows: int | None = Field(default=None, ge=1)


class Above(Declared):
    """The positive class of a numeric target: values above a number, or a date, written as text."""

    above: int | float | str


class EvaluationSpec(Declared):
    """The positive class of each target: listed values, or all above a number."""

    targets: dict[str, list[Scalar] | Above] = Field(default_factory=dict)


class ValidationSpec(Declared):
    """What happens to rows outside their declared domain.

    ``fail``, ``drop`` the rows, or ``clip`` the numbers.
    """

    on_invalid: OnInvalid = "fail"


class Spec(Declared):
    """One dataset, as a person declared it.

    ``attributes`` has the order of the columns. ``folder`` is where value and constraint files are
    looked up. ``unconfirmed`` names what a draft read from the data, domains apart, and no person
    has confirmed as public.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=_LONGEST_NAME)
    source: SourceSpec
    unconfirmed: tuple[DraftedFact, ...] = ()
    privacy: PrivacySpec
    attributes: dict[str, AnyAttribute] = Field(min_length=1)
    constraints: tuple[ConstraintDeclaration, ...] = ()
    release: ReleaseSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    validation: ValidationSpec = ValidationSpec()

    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """The folder of the spec file."""
        return self._folder

    @classmethod
    def declared_in(cls, folder: Path, content: Mapping[str, Any]) -> Self:
        """The spec of a parsed document that lies in ``folder``.

        Raises:
            ValidationError: pydantic's; the document is not a spec.
        """
        spec = cls.model_validate(content)
        spec._folder = folder
        return spec
