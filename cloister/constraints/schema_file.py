"""The schema of synthetic tables as Python source: pandera's, for receivers without Cloister.

It holds declared facts alone: types, values, bounds, keys, hard constraints. Names and values are
written by ``repr``, so that none becomes code. What it does not check is listed in it.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow.parquet as pq
from pandera.errors import SchemaError, SchemaErrors

from cloister.constraints import schema_columns
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.denial import BoundPredicate, DenialConstraint, Op, Operand, bind
from cloister.constraints.text import (
    format_denial,
    format_dependency,
    functional_dependency,
    key_attributes,
    order_rule,
)
from cloister.schema.attributes import Date, Datetime
from cloister.schema.columns import Column, Grid, Listed
from cloister.schema.declarations import quote
from cloister.schema.domain import Domain
from cloister.schema.relations import ForeignKey, Schema

SCHEMA_NAME = "schema.py"

_HEAD = '''"""The declared schema of the synthetic tables of {dataset}, for pandas and pandera.

It checks the Parquet files of its folder, in a shell by python schema.py, or by

    import runpy
    tables = runpy.run_path("FOLDER/schema.py")["validate"]()

which raises pandera.errors.SchemaErrors where a table breaks a type, a list of values, a bound, a
key, a reference or a hard constraint. UNCHECKED names the constraints that are not checked here.
One frame is checked by SCHEMAS[table].validate(frame).
"""'''

_LINKS = '''

def validate_links(tables: Mapping[str, pd.DataFrame]) -> None:
    """Check references between tables, and rules on rows and those that they refer to."""
'''

_VALIDATE = '''

def validate(path: str | Path = Path(__file__).parent) -> dict[str, pd.DataFrame]:
    """The tables in a folder of Parquet files, or in the file of the only one, once they hold.

    Raises:
        pandera.errors.SchemaErrors: one of them does not.
    """
    tables = read_tables(path, list(SCHEMAS))
    for name, table in tables.items():
        SCHEMAS[name].validate(table, lazy=True, inplace=True)
    validate_links(tables)
    return tables


if __name__ == "__main__":
    for name, table in validate().items():
        print(f"{name}: {len(table)} rows are as declared")
'''


class _NotCheckedError(Exception):
    """A rule that pandas cannot check, or not quickly; says why."""


@dataclass(frozen=True)
class PublishedTable:
    """A table as it is published: its columns, constraints and primary key."""

    domain: Domain
    constraints: tuple[DenialConstraint, ...]
    key: str | None = None

    @cached_property
    def dtypes(self) -> Mapping[str, Any]:
        """The dtype of each column as pandas reads it from a Parquet file."""
        ends = {
            column.name: column.decode(np.array([0, column.size - 1])) for column in self.domain
        }
        file = io.BytesIO()
        pd.DataFrame(ends).to_parquet(file, index=False)
        return dict(pd.read_parquet(file).dtypes)

    def cells(self, variable: str, prefix: str = "") -> dict[str, _Cell]:
        """Its columns as source, by the names that rules have for them."""
        return {
            prefix + column.name: _Cell(
                f"{variable}[{column.name!r}]", column, self.dtypes[column.name]
            )
            for column in self.domain
        }


@dataclass(frozen=True)
class PublishedSchema:
    """What is published: tables by the names of their files, references, constraints across."""

    dataset: str
    tables: Mapping[str, PublishedTable]
    keys: tuple[ForeignKey, ...] = ()
    across: tuple[AcrossConstraint, ...] = ()

    def source(self) -> str:
        """The content of ``schema.py``."""
        copied = Path(__file__).with_name("schema_checks.py").read_text(encoding="utf-8")
        unchecked: dict[str, str] = {}
        schemas = [
            f"{name!r}: {_schema(name, table, unchecked)}" for name, table in self.tables.items()
        ]
        references = [f"check_reference(tables, *{_reference(key)})" for key in self.keys]
        across = ((rule.name, partial(self._across, rule)) for rule in self.across)
        between = [*references, *_checked(across, unchecked)]
        reasons = [f"{name!r}: {reason!r}" for name, reason in unchecked.items()]
        return "\n".join(
            [
                _HEAD.format(dataset=self.dataset) + copied.split('"""', 2)[2],
                f"\nSCHEMAS = {schema_columns.laid_out('{', schemas, '}')}",
                "schema = next(iter(SCHEMAS.values()))",
                f"UNCHECKED: dict[str, str] = {schema_columns.laid_out('{', reasons, '}')}",
                _LINKS
                + "".join(f"    {schema_columns.indented(check)}\n" for check in between)
                + _VALIDATE,
            ]
        )

    def load(self) -> ModuleType:
        """The module that ``schema.py`` is, as a receiver imports it."""
        module = ModuleType("schema")
        module.__file__ = SCHEMA_NAME
        exec(compile(self.source(), SCHEMA_NAME, "exec"), module.__dict__)  # noqa: S102 - see above
        return module

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files: ``schema.py``, and of each table what YAML can hold."""
        alone = len(self.tables) == 1
        return SCHEMA_NAME, *("schema.yaml" if alone else f"{n}.schema.yaml" for n in self.tables)

    def contents(self) -> dict[str, str]:
        """The content of each file by its name."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for each check that YAML cannot hold
            tables = [schema.to_yaml() for schema in self.load().SCHEMAS.values()]
        return dict(zip(self.files, [self.source(), *tables], strict=True))

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write the files into a folder; their paths."""
        for name, content in self.contents().items():
            (folder / name).write_text(content, encoding="utf-8")
        return tuple(folder / name for name in self.files)

    def _across(self, rule: AcrossConstraint) -> str:
        key = rule.key
        cells = self.tables[key.table].cells("own", f"{key.table}.") | self.tables[
            key.parent
        ].cells("parent", f"{key.column}: ")
        domains = Schema({name: table.domain for name, table in self.tables.items()}, self.keys)
        condition = _condition(rule.bound(domains).predicates, cells)
        described = (_reference(key), repr(rule.name), repr(f"never {rule.text}"))
        return schema_columns.laid_out(
            "check_across(", ["tables", *described, f"lambda own, parent: {condition}"], ")"
        )


def broken_rules(published: PublishedSchema, files: Mapping[str, Path]) -> tuple[str, ...]:
    """The columns and rules that Parquet files break, by ``schema.py``; never their values.

    Memory is that of the columns of a rule, and where that is on single rows of a row group.
    """
    module, broken = published.load(), list[str]()
    for name, table in published.tables.items():
        if set(pq.read_schema(files[name]).names) != set(table.domain.names):
            return (f"the names of columns of {name}",)
        for columns, part, alone in _parts(module.SCHEMAS[name], table.constraints):
            check = partial(part.validate, lazy=True, inplace=True)
            for rows in _frames(files[name], columns, alone):
                broken += _broken(check, rows)
    if published.keys:
        linked = {n: _linked(n, published) for n in published.tables}
        tables = {n: pd.read_parquet(files[n], columns=linked[n]) for n in linked}
        broken += _broken(module.validate_links, tables)
    return tuple(dict.fromkeys(broken))


def _parts(
    schema: Any, constraints: Iterable[DenialConstraint]
) -> Iterator[tuple[list[str], pa.DataFrameSchema, bool]]:
    """The columns of each column's and each rule's schema, the schema, and if it is on one row."""
    for name, column in schema.columns.items():
        yield [name], pa.DataFrameSchema({name: column}, name=schema.name), not column.unique
    rules = {rule.name: rule for rule in constraints}
    for check in schema.checks:
        rule, part = rules[check.name], pa.DataFrameSchema(checks=check, name=schema.name)
        yield list(rule.attributes), part, rule.arity == 1
    if schema.unique:
        yield schema.unique, pa.DataFrameSchema(unique=schema.unique, name=schema.name), False


def _frames(path: Path, columns: list[str], by_group: bool) -> Iterator[pd.DataFrame]:
    """Columns of a Parquet file as pandas reads it: all rows, or a row group at a time."""
    with pq.ParquetFile(path) as file:
        if not by_group or file.num_row_groups < 2:
            yield pd.read_parquet(path, columns=columns)
            return
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns).to_pandas()


def _linked(name: str, published: PublishedSchema) -> list[str]:
    """The columns of a table that references and rules across them compare."""
    names = [key.column for key in published.keys if key.table == name]
    names += [key.key for key in published.keys if key.parent == name]
    for rule in published.across:
        for attribute in rule.rule.attributes:
            if rule.key.table == name:
                names.append(attribute.removeprefix(f"{name}."))
            if rule.key.parent == name:
                names.append(attribute.removeprefix(f"{rule.key.column}: "))
    return [attribute for attribute in published.tables[name].domain.names if attribute in names]


def _broken(validate: Callable[..., object], rows: Any) -> list[str]:
    """The columns and rules that rows break."""
    try:
        validate(rows)
    except SchemaErrors as errors:
        return [_broken_part(error) for error in errors.schema_errors]
    return []


def _broken_part(error: SchemaError) -> str:
    if isinstance(error.schema, pa.Column):
        return f"column '{error.schema.name}'"
    return f"constraint '{getattr(error.check, 'name', None) or error.check}'"


@dataclass(frozen=True)
class _Cell:
    """A column as source, and the dtype that pandas reads it as."""

    source: str
    column: Column
    dtype: Any

    @property
    def ordered(self) -> str:
        """The source of its values in their order.

        Raises:
            _NotCheckedError: they are stored as another type.
        """
        if isinstance(self.column, Listed):
            return f"rank({self.source}, {schema_columns.listed_values(self.column)!r})"
        if not isinstance(self.column, Grid) or not schema_columns.is_native(
            self.column, self.dtype
        ):
            raise _NotCheckedError("it compares a column that is stored as another type")
        return self.source

    def constant(self, number: float, op: Op) -> str:
        """The source of a constant that the column is compared with, by its number."""
        if isinstance(self.column, Listed):
            position = int(number)
            return repr(
                position if op.is_order else schema_columns.listed_values(self.column)[position]
            )
        if isinstance(self.column.attribute, Date | Datetime):
            unit = (
                schema_columns.DAY
                if isinstance(self.column.attribute, Date)
                else schema_columns.SECOND
            )
            return f"pd.Timestamp({str(np.datetime64(round(number * unit), 'us'))!r})"
        return repr(int(number) if number.is_integer() else number)

    @property
    def is_text(self) -> bool:
        """Whether it lists texts."""
        return isinstance(self.column, Listed) and isinstance(
            schema_columns.listed_values(self.column)[0], str
        )

    def comparable(self, op: Op) -> str:
        """Its source for a comparison."""
        return self.source if isinstance(self.column, Listed) and not op.is_order else self.ordered


def _schema(name: str, table: PublishedTable, unchecked: dict[str, str]) -> str:
    """The source of a table's schema."""
    hard = [rule for rule in table.constraints if rule.hard]
    unchecked |= {rule.name: "it is soft" for rule in table.constraints if not rule.hard}
    keys = [names for rule in hard if (names := key_attributes(rule))]
    keys += [(table.key,)] if table.key else []
    full = [names for names in keys if not any(table.domain[n].attribute.nullable for n in names)]
    joint = next((names for names in full if len(names) > 1), None)
    columns = [
        f"{column.name!r}: "
        + schema_columns.column_source(column, table.dtypes[column.name], (column.name,) in full)
        for column in table.domain
    ]
    declared = {joint, *(names for names in full if len(names) == 1)}
    rules = (
        (rule.name, partial(_rule, rule, table))
        for rule in hard
        if (key_attributes(rule) or ()) not in declared
    )
    parts = [
        schema_columns.laid_out("{", columns, "}"),
        f"checks={schema_columns.laid_out('[', _checked(rules, unchecked), ']')}",
    ]
    parts += [f"unique={list(joint)!r}"] if joint else []
    return schema_columns.laid_out(
        "pa.DataFrameSchema(", [*parts, "strict=True", f"name={name!r}"], ")"
    )


def _checked(
    rules: Iterable[tuple[str, Callable[[], str]]], unchecked: dict[str, str]
) -> list[str]:
    """The sources of rules by name; those that have none are added to ``unchecked``."""
    sources = []
    for name, source in rules:
        try:
            sources.append(source())
        except _NotCheckedError as reason:
            unchecked[name] = str(reason)
    return sources


def _rule(rule: DenialConstraint, table: PublishedTable) -> str:
    """The source of the check of a rule.

    Raises:
        _NotCheckedError: there is none.
    """
    cells, name = table.cells("table"), repr(rule.name)
    if rule.arity == 1:
        text = repr(f"never {format_denial(rule)}")
        condition = _condition(bind(rule, table.domain).predicates, cells)
        return schema_columns.laid_out("forbid(", [name, text, f"lambda table: {condition}"], ")")
    if determined := functional_dependency(rule):
        left, right = determined
        text = repr(format_dependency(left, [right]))
        return schema_columns.laid_out(
            "dependency(", [name, text, repr(list(left)), repr(right)], ")"
        )
    if names := key_attributes(rule):
        text = repr(f"unique {', '.join(map(quote, names))}")
        return schema_columns.laid_out("unique(", [name, text, repr(list(names))], ")")
    if order := order_rule(rule):
        low, high = (
            f"(lambda table: {cells[attribute].ordered}, {str(op)!r})"
            for attribute, op in ((order.first, order.first_op), (order.second, order.second_op))
        )
        text = repr(f"never {format_denial(rule)}")
        return schema_columns.laid_out(
            "in_order(", [name, text, repr(list(order.equal)), low, high], ")"
        )
    raise _NotCheckedError("it compares pairs of rows, for which pandas has no quick check")


def _condition(predicates: Iterable[BoundPredicate], cells: Mapping[str, _Cell]) -> str:
    return " & ".join(_predicate(predicate, cells) for predicate in predicates)


def _predicate(predicate: BoundPredicate, cells: Mapping[str, _Cell]) -> str:
    left, op, right = cells[predicate.left.attribute], predicate.op, predicate.right
    if right is None:
        return f"{left.source}.{'isna' if op is Op.EQ else 'notna'}()"
    if not isinstance(right, Operand):
        operand = left.constant(right, op)
    else:
        cell = cells[right.attribute]
        if right.label_numbers is not None and not (left.is_text and cell.is_text):
            raise _NotCheckedError("it compares lists of values that are stored as other types")
        operand = _shifted(right, cell.comparable(op))
    return f"compare({_shifted(predicate.left, left.comparable(op))}, {str(op)!r}, {operand})"


def _shifted(operand: Operand, source: str) -> str:
    """The source of what a cell is compared by, from that of its column."""
    shift = operand.shift
    if shift is None:
        return source
    if not shift.day:
        decimals = round(math.log10(shift.units))
        return f"plus({source}, {shift.added}, {decimals})"
    days = shift.added // shift.day
    return f"later({source}, {shift.months}, {days}, whole_days={shift.whole_days})"


def _reference(key: ForeignKey) -> str:
    return repr((key.table, key.column, key.parent, key.key))
