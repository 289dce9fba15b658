"""The spec of a dataset: the declared, public description of its schema, privacy and release.

Nothing here is read from data. Shares of a budget are exact: ``epsilon: 0.1`` is the fraction 1/10.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    model_validator,
)

from cloister.devices import PATTERN as DEVICE_PATTERN
from cloister.schema.attributes import AnyAttribute, Declared, Scalar
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.encodings import UTF_8, require_encoding

_MOST_BITS = 4096
"""Bits of the numerator and of the denominator of an epsilon or delta, as the ledger takes them."""

MOST_VIEW_WIDTH = 20
"""Attributes of a view at most: of two values each they have a million cells."""

MOST_PARTS = 1_000
"""Parts of an attribute at most: a view of two has a million cells."""

MOST_TRIES = 10_000
"""Tries of accept-reject for a cell at most: a row then needs 160 kB of random numbers."""

_LONGEST_NAME = 100
"""Letters of a dataset's name at most: it becomes part of file names of at most 255 bytes."""

OnInvalid = Literal["fail", "drop", "clip"]
DraftedFact = Literal["names", "encoding", "delimiter", "numbers", "missing", "ignore", "types"]


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
    that stand for a missing value; by default the empty cell. ``encoding``, and ``decimal`` and
    ``thousands`` marks of numbers, are those of a CSV file. ``${NAME}`` in ``url`` is read from the
    environment.
    """

    path: str | None = Field(default=None, min_length=1)
    format: Literal["csv", "parquet"] | None = None
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    encoding: Annotated[str, AfterValidator(require_encoding)] = UTF_8
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "\u00a0", "\u202f", "'", "\u2019", "_"] | None = None
    missing: tuple[str, ...] = ("",)
    url: str | None = None
    table: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("a source has either path or url; keep one of them")
        if (self.url is None) != (self.table is None):
            raise ValueError("url and table go together; give both or neither")
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands are the same mark; give two")
        return self


class PersonsSpec(Declared):
    """The number of persons: a ``public`` figure, or ``measured`` by each release, with noise."""

    public: int | None = Field(default=None, ge=1)
    measured: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.public is None) == (self.measured is None):
            raise ValueError(
                "persons are either {public: NUMBER} or {measured: true}; keep one of them"
            )
        return self


class PersonUnit(Declared):
    """One person is all rows with the same value of ``key``, at most ``max_rows`` of them.

    Without ``persons`` a release measures their number.
    """

    key: str
    max_rows: int = Field(ge=1)
    persons: PersonsSpec | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def declared_persons(self) -> int | None:
        """The public number of persons, if one is declared."""
        return self.persons.public if self.persons else None


class TableUnit(Declared):
    """One row of ``table``, and all rows of other tables that refer to it."""

    table: str


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

    unit: Literal["row"] | PersonUnit | TableUnit
    relation: Literal["add_remove", "replace_one"]
    rows: RowsSpec
    budget: BudgetSpec

    @property
    def unit_name(self) -> str:
        """The name that a ledger knows the unit by; the same persons share a budget."""
        if isinstance(self.unit, PersonUnit):
            return f"key:{self.unit.key}"
        return f"table:{self.unit.table}" if isinstance(self.unit, TableUnit) else self.unit


Guarantee = Literal["differential-privacy", "plausible-deniability"]
PLAUSIBLE_DENIABILITY: Guarantee = "plausible-deniability"


class DeniabilitySpec(Declared):
    """How method deniability makes records from seeds; what is left out is chosen by public facts.

    A record is released if rows of at least ``k`` units could have made it with probabilities that
    differ by a factor of at most ``gamma``. The threshold k gets Laplace noise of scale
    1 / ``epsilon0``, unless the test is ``deterministic``. ``resampled`` attributes are drawn anew,
    a number or the range that one is drawn from (omega). ``candidates`` records are made and
    tested.
    """

    k: int | None = Field(default=None, ge=2)
    gamma: Annotated[_Exact, Field(gt=1)] | None = None
    epsilon0: DeclaredEpsilon | None = None
    resampled: Annotated[int, Field(ge=0)] | tuple[int, int] | None = None
    test: Literal["randomised", "deterministic"] = "randomised"
    candidates: int | None = Field(default=None, ge=1)


Sampling = Literal["supports", "sequential"]


def _is_none(value: object) -> bool:
    """Whether a key that not every spec has is absent: it is left out of the spec's digest."""
    return value is None


Linking = Literal["priority", "matching"]


class DPViewSpec(Declared):
    """How methods dpview* count and link; what is left out is chosen by public facts.

    Views join ``view_width`` attributes (the paper's d), each in ``parts`` parts at most: of about
    equal mass, or the equal buckets of dpview-paper. Records are linked by ``priority`` of their
    counts, or by a ``matching`` of maximum cardinality.
    """

    view_width: int | None = Field(default=None, ge=2, le=MOST_VIEW_WIDTH)
    parts: int | None = Field(default=None, ge=2, le=MOST_PARTS)
    linking: Linking = "priority"


class AcceptRejectSpec(Declared):
    """Candidates of a cell are drawn by probability, at most ``tries``, and accepted by penalty."""

    tries: int = Field(default=300, ge=1, le=MOST_TRIES)


class RelationalSpec(Declared):
    """How method relational relates tables; what is left out is chosen by public facts.

    ``table_method`` makes the rows of each table. ``epsilon`` is what all relationships may cost
    alone, at the delta of the release; tables have the rest. In each of ``rounds`` (T) the method
    selects ``workloads`` (K) joint tables of ``ways`` attributes, for a part ``alpha`` of the
    round's budget. Of method relational-paper: ``fitted`` joint tables, those of greatest error,
    are fitted at once, on ``slices`` random parts of ``slice`` rows of each side.
    """

    table_method: str | None = None
    epsilon: DeclaredEpsilon | None = None
    rounds: int | None = Field(default=None, ge=1)
    workloads: int | None = Field(default=None, ge=1)
    alpha: Annotated[_Exact, Field(gt=0, lt=1)] | None = None
    ways: Literal[2, 3] | None = None
    fitted: int | None = Field(default=None, ge=1)
    slice: int | None = Field(default=None, ge=2)
    slices: int | None = Field(default=None, ge=1)


LATEST = "latest"
"""In place of a release: the latest one of the dataset that can be used."""

PriorRelease = Annotated[str, Field(pattern=r"^(latest|r-[0-9a-z]{1,32})$")]


class ReleaseSpec(Declared):
    """What one release spends, by which method.

    ``rows`` is the size of the output, by default that of the table. Method ``auto`` is chosen by
    public facts: sizes, domains, constraints and budget. ``guarantee`` is what records made from
    seeds are released under, ``deniability`` how method deniability makes them,
    ``dpview`` how methods dpview* count and link, ``relational`` how method relational relates
    several tables. ``prior`` is an earlier release, or the ``latest``, whose noisy numbers are used
    again.
    ``sampling`` of soft constraints is inside ``supports``, where rows are independent, or
    ``sequential``, row by row (Kamino, Algorithm 3): then a share ``resample`` of each attribute's
    cells is drawn anew, and candidates may be drawn by ``accept_reject``.
    ``device`` is where tensors are computed: auto, cpu, cuda or cuda:NUMBER.
    """

    method: str = "auto"
    epsilon: DeclaredEpsilon
    delta: DeclaredDelta
    rows: int | None = Field(default=None, ge=1)
    guarantee: Guarantee = Field(
        default="differential-privacy", exclude_if=lambda value: value == "differential-privacy"
    )
    deniability: DeniabilitySpec | None = Field(default=None, exclude_if=_is_none)
    dpview: DPViewSpec | None = Field(default=None, exclude_if=_is_none)
    relational: RelationalSpec | None = Field(default=None, exclude_if=_is_none)
    sampling: Sampling | None = Field(default=None, exclude_if=_is_none)
    prior: PriorRelease | None = Field(default=None, exclude_if=_is_none)
    resample: float | None = Field(default=None, ge=0, le=1, exclude_if=_is_none)
    accept_reject: AcceptRejectSpec | None = Field(default=None, exclude_if=_is_none)
    device: str | None = Field(default=None, pattern=DEVICE_PATTERN, exclude_if=_is_none)


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


class ForeignKeySpec(Declared):
    """A foreign key: the column names a row of ``table``.

    At most ``max_rows`` rows may name the same one; of more, a random part is left out.
    """

    table: str
    max_rows: int = Field(ge=1)


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
TableName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=_LONGEST_NAME)]


class TableSpec(Declared):
    """One of several tables.

    ``key`` is the column that other tables refer to, ``references`` are the columns that refer to
    others. ``rows`` of the table of the privacy unit are those of ``privacy``.
    """

    source: SourceSpec
    rows: RowsSpec | None = None
    key: str | None = None
    references: dict[str, ForeignKeySpec] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    attributes: dict[str, AnyAttribute] = Field(min_length=1)
    constraints: tuple[ConstraintDeclaration, ...] = ()
    validation: ValidationSpec = ValidationSpec()


_NO_SOURCE = SourceSpec(path=".")
# What is said of the dataset if it has one table, and of each table if it has several.
OF_ONE = frozenset({"source", "ignore", "attributes", "evaluation", "validation"})


class Spec(Declared):
    """One dataset, as a person declared it: one table, or several under ``tables``.

    ``attributes`` has the order of the columns; those that ``ignore`` names are left out.
    ``folder`` is where value and constraint files are looked up. ``unconfirmed`` names what a draft
    read from the data, domains apart, and no person has confirmed as public. With ``tables``,
    source, columns to ignore, attributes, constraints and validation are declared for each of them,
    and ``constraints`` beside them are across foreign keys.
    """

    name: TableName
    source: SourceSpec = _NO_SOURCE
    unconfirmed: tuple[DraftedFact, ...] = ()
    privacy: PrivacySpec
    tables: dict[TableName, TableSpec] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    attributes: dict[str, AnyAttribute] = Field(default_factory=dict)
    constraints: tuple[ConstraintDeclaration, ...] = ()
    release: ReleaseSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    validation: ValidationSpec = ValidationSpec()

    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        said = sorted(OF_ONE & self.model_fields_set)
        if self.tables and said:
            raise ValueError(f"tables and {said[0]} exclude each other; say it of each table")
        if not self.tables and not {"source", "attributes"} <= self.model_fields_set:
            raise ValueError("a dataset has source and attributes, or tables; write one of them")
        if not self.tables and not self.attributes:
            raise ValueError("there are no attributes; declare at least one")
        return self

    def table(self, name: str) -> Spec:
        """The spec of one of several tables, as if it stood alone."""
        declared = self.tables[name]
        privacy = {"unit": "row", "rows": declared.rows or self.privacy.rows}
        alone = {
            part: getattr(declared, part)
            for part in ("source", "ignore", "attributes", "constraints", "validation")
        }
        spec = self.model_copy(
            update=alone | {"tables": {}, "privacy": self.privacy.model_copy(update=privacy)}
        )
        spec._folder = self.folder
        return spec

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values, in the form of one table or of several."""
        left_out = {*OF_ONE, *([] if self.constraints else ["constraints"])}
        return self.model_dump(mode="json", exclude=left_out if self.tables else {"tables"})

    @property
    def parts(self) -> dict[str, Spec]:
        """The spec of each table by name; a spec of one table has the name of the dataset."""
        return {name: self.table(name) for name in self.tables} or {self.name: self}

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
