"""Each line of the table of cases reads the column of its example, and no line before it does."""

import pandas as pd
import pytest

from cloister.schema.drafts.cases import CASES, guess
from cloister.schema.drafts.columns import ColumnCells

ROWS = 60
WRITTEN = [case for case in CASES if case.example]


def example_of(case) -> ColumnCells:
    """A column of the cells of an example, one after the other, counted from 20 on."""
    cells = case.example.split("|")
    texts = [cells[n % len(cells)].format(n=20 + n // len(cells)) for n in range(ROWS)]
    known = pd.Series(texts, dtype="str")
    return ColumnCells(case.name, known, known, ROWS)


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.example)
def test_the_first_case_that_reads_an_example_is_its_own(case):
    cells = example_of(case)
    assert next(line for line in CASES if line.read(cells) is not None) is case
    assert case.read(cells).keys.items() <= guess(cells).keys.items()


def test_cases_without_an_example_are_of_native_values():
    for case in CASES[: CASES.index(WRITTEN[0])]:
        assert not case.example
        assert all(case.read(example_of(line)) is None for line in WRITTEN)
