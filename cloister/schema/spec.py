"""The spec of a dataset: the declared, public description of its schema, privacy and release.

Nothing here is read from data. Shares of a budget are exact: ``epsilon: 0.1`` is the fraction 1/10.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from cloister.schema import declarations
from cloister.schema.attributes import AnyAttribute, Declared, Scalar
from cloister.schema.sources.files_and_urls import UTF_8, require_encoding

_LONGEST_NAME = 100
"""Letters of a dataset's name at most: it becomes part of file names of at most 255 bytes."""

OnInvalid = Literal["fail", "drop", "clip"]
DraftedFact = Literal[
    "names", "encoding", "delimiter", "numbers", "missing", "ignore", "types", "keys"
]


_LONGEST_STATEMENT = 2_000
"""Letters of a statement about a release at most: about half a printed page."""

Statement = Annotated[str, Field(min_length=1, max_length=_LONGEST_STATEMENT)]
CuratorType = Literal["government", "industry", "nonprofit"]


class About(Declared):
    """Who releases what, for which use, and why so: statements of the curator, for all readers.

    They are public, and are shown on the certificate as they are written, before all else. What is
    left out is told there as not stated. ``why_epsilon`` says how the budget was chosen,
    ``preparation`` what was done to the data before it was given, ``exploration`` what was looked
    at before, ``tuning`` how method and parameters were chosen.
    """

    curator: Statement | None = None
    curator_type: CuratorType | None = None
    contact: Statement | None = None
    purpose: Statement | None = None
    intended_use: Statement | None = None
    region: Statement | None = None
    sector: Statement | None = None
    access: Statement | None = None
    why_epsilon: Statement | None = None
    preparation: Statement | None = None
    exploration: Statement | None = None
    tuning: Statement | None = None


class SourceSpec(Declared):
    """Where the table is: a CSV or Parquet ``path``, or a SQLAlchemy ``url`` and ``table``.

    ``path`` is relative to the working directory. ``missing`` lists the only texts of a CSV file
    that stand for a missing value; by default the empty cell. ``encoding``, and ``decimal`` and
    ``thousands`` marks of numbers, are those of a CSV file. ``header`` names the columns of one
    whose first line is a row. ``${NAME}`` in ``url`` is read from the environment.
    """

    path: str | None = Field(default=None, min_length=1)
    format: Literal["csv", "parquet"] | None = None
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    encoding: Annotated[str, AfterValidator(require_encoding)] = UTF_8
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "\u00a0", "\u202f", "'", "\u2019", "_"] | None = None
    missing: tuple[str, ...] = ("",)
    header: tuple[str, ...] | None = Field(
        default=None, min_length=1, exclude_if=lambda names: names is None
    )
    url: str | None = None
    table: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("a source has either path or url; keep one of them")
        if (self.url is None) != (self.table is None):
            raise ValueError("url and table go together; give both or neither")
        if len(set(self.header or ())) < len(self.header or ()):
            raise ValueError("header names a column twice; give each column a name of its own")
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

    Without ``persons`` a release measures their number. Rows of a person follow each other by the
    attribute ``order``.
    """

    key: str
    max_rows: int = Field(ge=1)
    persons: PersonsSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    order: str | None = Field(default=None, exclude_if=lambda name: name is None)

    @property
    def declared_persons(self) -> int | None:
        """The public number of persons, if one is declared."""
        return self.persons.public if self.persons else None


class GroupSpec(Declared):
    """The unit of an account of persons, for a release whose own unit is a row.

    A person is all rows with the same value of ``key``, at most ``max_rows`` of them.
    """

    key: str
    max_rows: int = Field(ge=1)


class BlockSpec(Declared):
    """Growing data: the rows of each month or year of a date ``column`` have their own budget."""

    column: str
    per: Literal["month", "year"]


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
    """The budget of one privacy unit, over all releases of a period."""

    epsilon: declarations.DeclaredEpsilon
    delta: declarations.DeclaredDelta
    per: Literal["year", "month", "ever"]


class PrivacySpec(Declared):
    """Whom the guarantee protects, under which relation, and the budget of all releases.

    With ``group`` the release is planned for rows, and charged for persons by group privacy. With
    ``block`` budget, rows and persons are those of one block.
    """

    unit: Literal["row"] | PersonUnit | TableUnit
    group: GroupSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    relation: Literal["add_remove", "replace_one"]
    block: BlockSpec | None = Field(default=None, exclude_if=lambda value: value is None)
    rows: RowsSpec
    budget: BudgetSpec

    @property
    def group_rows(self) -> int:
        """Rows of the charged unit, each of which the plan protects."""
        return self.group.max_rows if self.group else 1

    @property
    def protected(self) -> Literal["row"] | PersonUnit | TableUnit:
        """The charged unit: that of the group, if there is one."""
        if self.group is None:
            return self.unit
        return PersonUnit(key=self.group.key, max_rows=self.group.max_rows)

    @property
    def unit_name(self) -> str:
        """The name that a ledger knows the unit by; the same persons share a budget."""
        unit = self.protected
        if self.unit_key:
            return f"key:{self.unit_key}"
        return f"table:{unit.table}" if isinstance(unit, TableUnit) else str(unit)

    @property
    def unit_key(self) -> str | None:
        """The column whose equal values are one charged unit; None of rows and tables."""
        unit = self.protected
        return unit.key if isinstance(unit, PersonUnit) else None


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

    At most ``max_rows`` rows may name the same one; of more, a random part is left out. Rows that
    name the same one follow each other by the attribute ``order``.
    """

    table: str
    max_rows: int = Field(ge=1)
    order: str | None = Field(default=None, exclude_if=lambda name: name is None)


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
    constraints: tuple[declarations.ConstraintDeclaration, ...] = ()
    validation: ValidationSpec = ValidationSpec()


ValueT = TypeVar("ValueT")

_NO_SOURCE = SourceSpec(path=".")
OF_ONE = frozenset({"source", "ignore", "attributes", "evaluation", "validation"})
"""What is said of the dataset if it has one table, and of each table if it has several."""


class Spec(Declared):
    """One dataset, as a person declared it: one table, or several under ``tables``.

    ``attributes`` has the order of the columns; those that ``ignore`` names are left out.
    ``folder`` is where value and constraint files are looked up. ``unconfirmed`` names what a draft
    read from the data, domains apart, and no person has confirmed as public. With ``tables``,
    source, columns to ignore, attributes, constraints and validation are declared for each of them,
    and ``constraints`` beside them are across foreign keys. ``account`` is what its releases are
    charged to, by default that of its own name. ``about`` is what its curator says of them.
    """

    name: TableName
    account: TableName | None = Field(default=None, exclude_if=lambda value: value is None)
    about: About = Field(default=About(), exclude_if=lambda value: value == About())
    source: SourceSpec = _NO_SOURCE
    unconfirmed: tuple[DraftedFact, ...] = ()
    privacy: PrivacySpec
    tables: dict[TableName, TableSpec] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    attributes: dict[str, AnyAttribute] = Field(default_factory=dict)
    constraints: tuple[declarations.ConstraintDeclaration, ...] = ()
    release: declarations.ReleaseSpec
    evaluation: EvaluationSpec = EvaluationSpec()
    validation: ValidationSpec = ValidationSpec()

    _folder: Path = PrivateAttr(default=Path())
    _blocks: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        said = sorted(OF_ONE & self.model_fields_set)
        if self.tables and said:
            raise ValueError(f"tables and {said[0]} exclude each other; say it of each table")
        if not self.tables and not {"source", "attributes"} <= self.model_fields_set:
            raise ValueError("a dataset has source and attributes, or tables; write one of them")
        if self.tables and self.release.acceptance:
            raise ValueError("release.acceptance is of one table; leave it out, or release one")
        if not self.tables and not self.attributes:
            raise ValueError("there are no attributes; declare at least one")
        return self

    @property
    def blocks(self) -> tuple[str, ...]:
        """The blocks of growing data that are read; empty if all rows are."""
        return self._blocks

    def of_blocks(self, blocks: tuple[str, ...]) -> Spec:
        """The spec of the rows of some blocks, in which rows and persons are those of all of them.

        Persons may have rows in several blocks: of more than one, their number is measured.
        """
        if not blocks:
            return self
        rows, unit = self.privacy.rows, self.privacy.unit
        public = rows.public and rows.public * len(blocks)
        changed: dict[str, Any] = {"rows": rows.model_copy(update={"public": public})}
        if isinstance(unit, PersonUnit) and len(blocks) > 1:
            changed["unit"] = unit.model_copy(update={"persons": None})
        spec = self.model_copy(update={"privacy": self.privacy.model_copy(update=changed)})
        spec._folder, spec._blocks = self.folder, blocks
        return spec

    @property
    def account_name(self) -> str:
        """The account that its releases are charged to."""
        return self.account or self.name

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

    def one_or_all(self, values: Mapping[str, ValueT]) -> ValueT | dict[str, ValueT]:
        """What is kept of tables by name: of one table its value alone; :meth:`by_table` reads it.

        ``values`` has one for each table.
        """
        return dict(values) if self.tables else values[self.name]

    def by_table(self, value: Any) -> dict[str, Any]:
        """The values of tables by name that :meth:`one_or_all` kept."""
        return value if self.tables else {self.name: value}

    def naming(self, table: str, words: str = "{}.") -> str:
        """What names one of several tables in ``words``; empty of an only table."""
        return words.format(table) if self.tables else ""

    def keys_of(self, table: str) -> tuple[str, ...]:
        """The keys in a spec file that lead to what is declared of a table."""
        return ("tables", table) if self.tables else ()

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
