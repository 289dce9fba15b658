"""The strength of pairs: nothing for independent columns, one for a function, one scale for all."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from cloister.evaluation.dependence import dependence, rank_correlations
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Domain, Table

NUMBER = Integer(type="integer", min=0, max=9_999, special=[0], nullable=True)
LETTERS = Categorical(type="categorical", values=[f"v{value}" for value in range(40)])


def table_of(**columns) -> Table:
    attributes = {name: NUMBER if name.startswith("number") else LETTERS for name in columns}
    return Table(Domain.of(attributes, Path()), columns)


@pytest.mark.parametrize("rows", [300, 5_000])
def test_independent_columns_have_no_strength(rows: int):
    rng = np.random.default_rng(1)
    columns = {f"number{each}": rng.integers(1, 9_999, rows) for each in range(4)}
    columns |= {f"letter{each}": rng.integers(0, 40, rows) for each in range(4)}
    strengths = dependence(table_of(**columns))
    assert np.allclose(np.diag(strengths), 1)
    assert strengths[np.triu_indices(8, 1)].mean() < 0.9 / np.sqrt(rows) ** 0.5 / 3


def test_a_column_that_tells_the_other_has_full_strength():
    rng = np.random.default_rng(2)
    number = rng.integers(1, 9_999, 4_000)
    assert dependence(table_of(number1=number, number2=9_999 - number))[0, 1] > 0.99
    letter = rng.integers(0, 8, 4_000)
    assert dependence(table_of(letter1=letter, letter2=(letter + 3) % 8))[0, 1] > 0.99


def test_what_is_missing_is_a_group_of_its_own_and_ranks_correlate_by_ordinary_values():
    rng = np.random.default_rng(3)
    letter, null = rng.integers(0, 2, 4_000), 10_000
    number = np.where(letter == 1, null, rng.integers(1, 9_999, 4_000))
    table = table_of(letter=letter, number=number)
    assert dependence(table)[0, 1] > 0.9
    assert rank_correlations(table, [("letter", "number")]) == (None,)
    first = rng.integers(1, 9_999, 2_000)
    table = table_of(number1=first, number2=np.where(rng.random(2_000) < 0.5, 0, 9_999 - first))
    assert rank_correlations(table, [("number1", "number2")]) == pytest.approx((-1,))
    alike = table_of(number1=np.full(9, 5), number2=first[:9])
    assert rank_correlations(alike, [("number1", "number2")]) == (None,)


def test_ranks_of_a_long_table_are_those_of_evenly_spaced_rows(monkeypatch):
    monkeypatch.setattr("cloister.evaluation.dependence._MOST_RANKED", 700)
    first = np.random.default_rng(5).integers(1, 9_999, 2_000)
    second = np.where(np.arange(2_000) % 3, first, 9_999 - first)  # every third row is taken
    table = table_of(number1=first, number2=second)
    assert rank_correlations(table, [("number1", "number2")]) == pytest.approx((-1,))


def test_a_column_of_many_pairs_is_read_once():
    read, columns = [], {f"number{at}": np.arange(9) + 1 for at in range(4)}

    class Counted(dict):
        def __getitem__(self, name):
            read.append(name)
            return super().__getitem__(name)

    table = table_of(**columns)
    table = Table(table.domain, Counted(table.stored))
    read.clear()
    pairs = list(combinations(columns, 2))
    assert rank_correlations(table, pairs) == pytest.approx((1,) * len(pairs))
    assert sorted(read) == sorted(columns)


def test_tables_without_rows_or_pairs_have_no_strength():
    empty = np.zeros(0, dtype=np.int64)
    assert dependence(table_of(number=empty, letter=empty))[0, 1] == 0
    assert dependence(table_of(number=empty)).tolist() == [[1]]
    assert dependence(table_of()).shape == (0, 0)
    assert rank_correlations(table_of(), []) == ()
