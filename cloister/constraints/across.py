"""Denial constraints across a foreign key: no row and the row that it refers to are as described.

    deny   orders.placed < customers.since                a column of each table
           employees.pay > employees.manager.pay          of the row that `manager` refers to
           visits.ward = 'icu' and patients.`born on` > '2010-01-01'

The rest of the grammar is that of :mod:`cloister.constraints.text`. Such a rule is hard; columns of
the row are those of t1, and columns of the row that it refers to those of t2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloister.constraints import denial
from cloister.constraints.declared import declared_at
from cloister.constraints.text import parse_denial, unquote
from cloister.errors import ConstraintError
from cloister.schema import relations
from cloister.schema.columns import Column
from cloister.schema.declarations import ConstraintDeclaration, quote
from cloister.schema.domain import Domain, Table

_PART = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*(?:-(?!>)\w+)*)"
_PIECES = re.compile(rf"'(?:[^']|'')*'|{_PART}(?:\.{_PART})+")
"""Texts in quotes, which are left as they are, and cells: names with a point between them."""


@dataclass(frozen=True)
class AcrossConstraint:
    """A hard rule on each row and the one that it refers to by ``key``.

    ``rule`` is on columns of the joined table: of the row as t1, of its parent as t2. ``text`` is
    what was declared.
    """

    key: relations.ForeignKey
    rule: denial.DenialConstraint
    text: str

    @property
    def name(self) -> str:
        """Its name."""
        return self.rule.name

    def bound(self, schema: relations.Schema) -> denial.BoundConstraint:
        """The rule on the numbers of both tables.

        Raises:
            ConstraintError: values are compared that cannot be.
        """
        child, parent = schema.tables[self.key.table], schema.tables[self.key.parent]
        columns = (*self._renamed(child).values(), *self._renamed_above(parent).values())
        return denial.bind(self.rule, Domain(columns))

    def sides(self, rows: Table, parents: Table) -> tuple[Table, Table]:
        """The columns that take part, of rows and of parents, under their names in the rule."""
        child = self._part(rows, self._renamed(rows.domain))
        return child, self._part(parents, self._renamed_above(parents.domain))

    def _renamed(self, domain: Domain) -> Mapping[str, Column]:
        """The columns of a row in the joined table, by their names in its own."""
        return {
            name: relations.own_column(self.key.table, domain[name]) for name in domain.modelled
        }

    def _renamed_above(self, above: Domain) -> Mapping[str, Column]:
        """The columns of a parent in the joined table, by their names in its own."""
        return {name: relations.parent_column(self.key, above[name]) for name in above.modelled}

    def _part(self, table: Table, columns: Mapping[str, Column]) -> Table:
        """The columns of a table that take part in the rule, renamed."""
        used = set(self.rule.attributes)
        compared = {name: column for name, column in columns.items() if column.name in used}
        codes = {column.name: table.codes[name] for name, column in compared.items()}
        return Table(Domain(tuple(compared.values())), codes)

    def report(self, database: relations.Database) -> denial.ViolationReport:
        """The rows that violate it, and their share of all that refer to a row."""
        tables = database.tables
        rows, parents_table = self.sides(tables[self.key.table], tables[self.key.parent])
        parents = relations.parent_rows(database, self.key)
        linked = np.flatnonzero(parents >= 0)
        broken = self.bound(database.schema).violation_mask(
            rows.take(linked), parents_table.take(parents[linked])
        )
        number = int(broken.sum())
        percent = 100 * number / len(linked) if len(linked) else 0.0
        return denial.ViolationReport(self.name, hard=True, violations=number, percent=percent)


def across_constraints(
    declarations: Sequence[ConstraintDeclaration], schema: relations.Schema
) -> tuple[AcrossConstraint, ...]:
    """The constraints that a spec of several tables declares beside those of each table.

    Raises:
        ConstraintError: one cannot be read, is soft or no deny, or is not across one foreign key.
    """
    constraints = []
    for position, declared in enumerate(declarations):
        with declared_at("constraints", position):
            constraints.append(
                _across(declared, declared.name or f"constraint_{position + 1}", schema)
            )
    names = [constraint.name for constraint in constraints]
    for name in names:
        if names.count(name) > 1:
            raise ConstraintError(
                f"constraint '{name}': two constraints have this name; rename one"
            )
    return tuple(constraints)


def _across(
    declared: ConstraintDeclaration, name: str, schema: relations.Schema
) -> AcrossConstraint:
    if declared.deny is None or declared.soft:
        raise ConstraintError(
            f"constraint '{name}': across tables a rule is a deny, and hard; write fd and key "
            "in the constraints of a table, and leave soft out"
        )
    read = _Reading(schema, name, declared.deny).constraint()
    return replace(read, rule=replace(read.rule, provenance=declared.provenance))


@dataclass(frozen=True)
class _Reading:
    """The text of a rule, whose cells are looked up among tables and references."""

    schema: relations.Schema
    name: str
    text: str

    def constraint(self) -> AcrossConstraint:
        """The constraint; see :func:`across_constraints`."""
        cells = [self._parsed(piece) for piece in self._cells()]
        key = self._key(cells)
        rule = parse_denial(
            _PIECES.sub(lambda match: self._joined(match[0], key), self.text), self.name
        )
        above = {
            relations.parent_column(key, column).name for column in self.schema.tables[key.parent]
        }
        predicates = tuple(_on_two_rows(predicate, above) for predicate in rule.predicates)
        constraint = AcrossConstraint(
            key, denial.DenialConstraint(self.name, predicates), self.text
        )
        if {cell.row for predicate in predicates for cell in predicate.cells} != {1, 2}:
            raise self._error("is on one of the tables alone; write it in that table's constraints")
        constraint.bound(self.schema)
        return constraint

    def _cells(self) -> Iterator[str]:
        return (piece for piece in _PIECES.findall(self.text) if not piece.startswith("'"))

    def _parsed(self, cell: str) -> tuple[str, str | None, str]:
        """Table, reference that is followed or None, and column of a cell."""
        parts = [unquote(part) for part in re.findall(_PART, cell)]
        for end in range(1, len(parts)):
            table = ".".join(parts[:end])
            if table not in self.schema.tables:
                continue
            if ".".join(parts[end:]) in self.schema.tables[table].modelled:
                return table, None, ".".join(parts[end:])
            for key in self.schema.parents_of(table):
                rest = ".".join(parts[end:]).removeprefix(f"{key.column}.")
                if (
                    rest != ".".join(parts[end:])
                    and rest in self.schema.tables[key.parent].modelled
                ):
                    return table, key.column, rest
        raise self._error(
            f"there is no column {cell}; write TABLE.COLUMN, or TABLE.REFERENCE.COLUMN of the row "
            "that it refers to; keys are not compared"
        )

    def _key(self, cells: Sequence[tuple[str, str | None, str]]) -> relations.ForeignKey:
        """The only foreign key that leads from one of the tables to the other."""
        named = {(table, column) for table, column, _ in cells if column}
        tables = {table for table, _, _ in cells}
        keys = [
            key
            for key in self.schema.keys
            if ((key.table, key.column) in named if named else key.parent in tables)
            and tables <= {key.table, key.parent}
            and key.table in tables
            and (named or not key.to_itself)
        ]
        if len(keys) != 1:
            raise self._error(
                "is not across one foreign key; name the columns of two tables of which one refers "
                "to the other, or TABLE.REFERENCE.COLUMN where there are several references"
            )
        return keys[0]

    def _joined(self, piece: str, key: relations.ForeignKey) -> str:
        """A cell as one of the joined table, a text as it is."""
        if piece.startswith("'"):
            return piece
        table, column, name = self._parsed(piece)
        above = column is not None or (table == key.parent and not key.to_itself)
        domain = self.schema.tables[key.parent if above else table]
        joined_column = (
            relations.parent_column(key, domain[name])
            if above
            else relations.own_column(table, domain[name])
        )
        return f"t.{quote(joined_column.name)}"

    def _error(self, text: str) -> ConstraintError:
        return ConstraintError(f"constraint '{self.name}': {text}")


def _on_two_rows(predicate: denial.Predicate, above: set[str]) -> denial.Predicate:
    """A predicate on the joined table as one of t1 and t2; ``above`` are the columns of t2."""
    left, right = (
        replace(side, row=2 if side.attribute in above else 1)
        if isinstance(side, denial.Cell)
        else side
        for side in (predicate.left, predicate.right)
    )
    assert isinstance(left, denial.Cell)
    return denial.Predicate(left, predicate.op, right)
