"""Counts of the published constraints of four real tables."""

import os
from pathlib import Path

import pandas as pd
import pytest

from cloister.constraints.counting import violation_reports
from cloister.constraints.declared import constraints_of
from cloister.schema.attributes import AnyAttribute, Categorical, Float, Integer
from cloister.schema.declarations import ConstraintDeclaration
from cloister.schema.domain import Domain

ROOT = Path(__file__).resolve().parents[2]
DATA = (ROOT / os.environ.get("CLOISTER_DATA", "../shared/data")).resolve()

PUBLISHED = [
    pytest.param("adult", "adult.csv", "adult.ic", [0, 0], marks=pytest.mark.slow),
    ("br2000", "br2000.csv", "br2000.ic", [0.732, 1.764, 1.103]),
    ("tax", "tax30k.csv", "tax30k.ic", [0] * 6),
    pytest.param("tpch", "tpch_order.csv", "tpch_order.ic", [0] * 4, marks=pytest.mark.slow),
]


def attribute_of(values: pd.Series) -> AnyAttribute:
    nullable = bool(values.isna().any())
    if values.dtype.kind == "i":
        return Integer(type="integer", min=int(values.min()), max=int(values.max()))
    if values.dtype.kind == "f":
        return Float(
            type="float",
            min=float(values.min()),
            max=float(values.max()),
            decimals=10,
            nullable=nullable,
        )
    return Categorical(
        type="categorical", values=sorted(values.dropna().unique()), nullable=nullable
    )


@pytest.mark.parametrize(("folder", "table", "rules", "percent"), PUBLISHED)
def test_violations_of_published_tables(folder, table, rules, percent) -> None:
    if not DATA.exists() and os.environ.get("CI") != "true":
        pytest.skip("set CLOISTER_DATA to the folder of the real tables")
    frame = pd.read_csv(DATA / folder / table)
    domain = Domain.of({name: attribute_of(frame[name]) for name in frame}, Path())
    constraints = constraints_of([ConstraintDeclaration(file=rules)], domain.names, DATA / folder)
    reports = violation_reports(constraints, domain.encode(frame))
    assert [round(report.percent, 3) for report in reports] == percent
    assert all(
        report.violations == 0 for report, share in zip(reports, percent, strict=True) if share == 0
    )
