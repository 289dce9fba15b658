"""Exact counts against a self-join in DuckDB, on samples of real tables."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from validated_rows import validate_rows

from cloister.constraints import Cell, DenialConstraint, Predicate, constraints_of
from cloister.constraints.counting import violation_reports
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec


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
    return f"({column(predicate.left, rows)} {predicate.op} {literal(right)})"


def condition(constraint: DenialConstraint, rows: dict[int, str]) -> str:
    return " and ".join(compared(predicate, rows) for predicate in constraint.predicates)


def joined(connection, constraint: DenialConstraint) -> int:
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
def test_samples_of_real_tables_violate_as_in_a_self_join(tmp_path, folder, file, rules, every):
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
