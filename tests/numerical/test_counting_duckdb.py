"""Exact counts against a self-join in DuckDB, on samples of real tables and on made tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from validated_rows import validate_rows

from cloister.constraints import Cell, DenialConstraint, Op, Predicate, constraints_of
from cloister.constraints.counting import violation_reports
from cloister.schema.attributes import Boolean, Categorical, Date, Datetime, Float, Integer, Ordinal
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec


@pytest.fixture(scope="module", autouse=True)
def late_imports():
    global duckdb
    import duckdb


ROOT = Path(__file__).resolve().parents[2]
DATA = (ROOT / os.environ.get("CLOISTER_DATA", "../shared/data")).resolve()
ROWS = 1_500


def literal(value: object) -> str:
    return (
        f"'{value}'"
        if isinstance(value, str) or hasattr(value, "isoformat")
        else str(value).lower()
    )


def column(cell: Cell, rows: dict[int, str]) -> str:
    return f'{rows[cell.row]}."{cell.attribute}"'


def compared(predicate: Predicate, rows: dict[int, str]) -> str:
    right = predicate.right
    if isinstance(right, Cell):
        return f"({column(predicate.left, rows)} {predicate.op} {column(right, rows)})"
    kind = "::grade" if predicate.left.attribute == "grade" else ""
    return f"({column(predicate.left, rows)} {predicate.op} {literal(right)}{kind})"


def condition(constraint: DenialConstraint, rows: dict[int, str]) -> str:
    return " and ".join(compared(predicate, rows) for predicate in constraint.predicates)


def joined(connection: duckdb.DuckDBPyConnection, constraint: DenialConstraint) -> int:
    """Violations by joining the view ``rows`` with itself."""
    if constraint.arity == 1:
        query = f"select count(*) from rows a where {condition(constraint, {1: 'a', 2: 'a'})}"
    else:
        forward, back = (
            condition(constraint, names) for names in ({1: "a", 2: "b"}, {1: "b", 2: "a"})
        )
        query = (
            "select count(*) from rows a join rows b on a.row < b.row "
            f"where ({forward}) or ({back})"
        )
    return connection.execute(query).fetchone()[0]


def counted(constraints: Sequence[DenialConstraint], table: Table) -> list[int]:
    return [report.violations for report in violation_reports(constraints, table)]


TABLES = [
    pytest.param("adult", "adult.csv", "adult.ic", 1, marks=pytest.mark.slow),
    pytest.param("adult", "adult.csv", "approximate_128.ic", 8, marks=pytest.mark.slow),
    ("br2000", "br2000.csv", "br2000.ic", 1),
    pytest.param("tax", "tax30k.csv", "tax30k.ic", 1, marks=pytest.mark.slow),
    pytest.param("tpch", "tpch_order.csv", "tpch_order.ic", 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("folder", "file", "rules", "every"), TABLES)
def test_samples_of_real_tables_violate_as_in_a_self_join(
    tmp_path: Path, folder: str, file: str, rules: str, every: int
) -> None:
    path = DATA / folder / file
    if not path.exists() and os.environ.get("CI") != "true":
        pytest.skip("set CLOISTER_DATA to the folder of the real tables")
    spec = load_spec(ROOT / "data" / "specs" / f"{folder}.yaml")
    domain = Domain.of(spec.attributes, spec.folder)
    constraints = constraints_of([ConstraintDeclaration(file=rules)], domain.names, path.parent)[
        ::every
    ]
    frame = read_frame(spec, path).sample(ROWS, random_state=11).reset_index(drop=True)
    table = domain.encode(validate_rows(frame, spec)[0])
    table.frame().reset_index(names="row").to_parquet(tmp_path / "rows.parquet")
    connection = duckdb.connect()
    connection.execute(f"create table rows as from read_parquet('{tmp_path / 'rows.parquet'}')")
    assert counted(constraints, table) == [joined(connection, each) for each in constraints]


MIXED = Domain.of(
    {
        "whole": Integer(type="integer", min=-3, max=3, special=[9], nullable=True),
        "other whole": Integer(type="integer", min=-2, max=2),
        "real": Float(type="float", min=-1, max=1, decimals=1, nullable=True),
        "day": Date(type="date", min="2020-02-27", max="2020-03-02", nullable=True),
        "other day": Date(type="date", min="2020-02-28", max="2020-03-01"),
        "moment": Datetime(
            type="datetime",
            min="2020-02-28T22:00:00",
            max="2020-02-29T03:00:00",
            step=3600,
            nullable=True,
        ),
        "tag": Categorical(type="categorical", values=["x", "y", "z"], nullable=True),
        "other tag": Categorical(type="categorical", values=["z", "w", "y"]),
        "grade": Ordinal(type="ordinal", values=["low", "mid", "high"], nullable=True),
        "flag": Boolean(type="boolean", nullable=True),
    },
    Path(),
)
FAMILIES = [
    ("whole", "other whole", "real"),
    ("day", "other day"),
    ("moment",),
    ("tag", "other tag"),
    ("grade",),
    ("flag",),
]
CONSTANTS = {"whole": 1, "real": 0.5, "day": "2020-02-29", "tag": "y", "grade": "mid", "flag": True}
TYPES = {
    "day": "date",
    "other day": "date",
    "moment": "timestamp",
    "grade": "grade",
    "flag": "boolean",
}


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    family = draw(st.sampled_from(FAMILIES))
    unordered = family[0] in ("tag", "flag")
    op = draw(st.sampled_from([Op.EQ, Op.NE] if unordered else list(Op)))
    left = Cell(draw(st.sampled_from([1, 2])), draw(st.sampled_from(family)))
    if left.attribute in CONSTANTS and draw(st.integers(0, 3)) == 0:
        return Predicate(left, op, CONSTANTS[left.attribute])
    other = draw(st.sampled_from([left.attribute, *family]))
    return Predicate(
        left, op, Cell(draw(st.sampled_from([3 - left.row, 3 - left.row, left.row])), other)
    )


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect()
    opened.execute("create type grade as enum ('low', 'mid', 'high')")
    return opened


def load(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    frame = table.frame().astype(object)
    frame = frame.where(frame.notna(), None)
    numbers = dict.fromkeys(("whole", "other whole"), "integer") | {"real": "double"}
    kinds = {name: (numbers | TYPES).get(name, "varchar") for name in MIXED.names}
    columns = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
    connection.execute(f"create or replace table rows (row integer, {columns})")
    marks = ", ".join(["?"] * (len(kinds) + 1))
    records = [
        [at, *map(_plain, record)] for at, record in enumerate(frame.itertuples(index=False))
    ]
    connection.executemany(f"insert into rows values ({marks})", records)


def _plain(value: object) -> object:
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(predicates(), min_size=1, max_size=4), min_size=4, max_size=8),
    st.integers(2, 24),
    st.integers(0, 2**32 - 1),
)
def test_made_tables_violate_as_in_a_self_join(connection, rules, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = Table(MIXED, {column.name: rng.integers(0, column.size, rows) for column in MIXED})
    constraints = [
        DenialConstraint(f"rule {at}", tuple(predicates)) for at, predicates in enumerate(rules)
    ]
    load(connection, table)
    assert counted(constraints, table) == [
        joined(connection, constraint) for constraint in constraints
    ]
