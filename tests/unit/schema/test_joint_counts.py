"""Rows of many joint tables, counted in one pass, are those of each table alone."""

import numpy as np
import pytest
from declared_table import domain_of

from cloister.schema import joint_counts
from cloister.schema.attributes import Boolean, Categorical, Integer, TextKey
from cloister.schema.domain import Table
from cloister.schema.joint_counts import JointCounts
from cloister.schema.partition import declared_cells, one_part, single_values

DOMAIN = domain_of(
    few=Categorical(type="categorical", values=["a", "b", "c"]),
    yes=Boolean(type="boolean"),
    many=Integer(type="integer", min=0, max=99_999),
    most=Integer(type="integer", min=0, max=10**12),
    key=TextKey(type="text", pattern="R{0001..9999}"),
)
FEW, YES, MANY, MOST = (declared_cells(DOMAIN[name]) for name in ("few", "yes", "many", "most"))
KEY = one_part(DOMAIN["key"])
TABLES = [(FEW,), (FEW, YES), (YES, FEW), (MANY, FEW, YES), (MOST, YES), (KEY, FEW)]


def table_of(rows):
    rng = np.random.default_rng(0)
    codes = {column.name: rng.integers(0, column.size, rows) for column in DOMAIN}
    codes["key"] = codes["key"] + 10**9  # of other keys, outside the pattern
    return Table(DOMAIN, codes).narrow()


def counted_by_row(table, rows):
    counts = np.zeros([part.size for part in table], dtype=np.int64)
    np.add.at(counts, tuple(part.index(rows.codes[part.name]) for part in table), 1)
    return counts.ravel().tolist()


@pytest.mark.parametrize("rows", [0, 1, 1_000])
@pytest.mark.parametrize("wide", [[], [(single_values(DOMAIN["many"]), YES)]])
def test_many_tables_are_counted_as_each_alone(rows, wide):
    table, tables = table_of(rows), TABLES + wide
    counted = [counts.tolist() for counts in JointCounts(tables).of(table)]
    assert counted == [counted_by_row(each, table) for each in tables]
    assert all(sum(counts) == rows for counts in counted)


@pytest.mark.parametrize("most", [1, 7, 999, 1_000])
def test_counts_are_the_same_for_any_blocks(monkeypatch, most):
    monkeypatch.setattr(joint_counts, "BLOCK_ROWS", most)
    test_many_tables_are_counted_as_each_alone(1_000, [])
