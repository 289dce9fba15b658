"""Each line of the table of cases reads the column of its example, and no line before it does."""

import numpy as np
import pandas as pd
import pytest

from cloister.schema.drafts.cases import CASES, guess
from cloister.schema.drafts.columns import ColumnCells
from cloister.schema.drafts.times import CLOCKS, DAYS, MONTHS, ZONES
from cloister.schema.written_moments import write_moments

ROWS = 60
WRITTEN = [case for case in CASES if case.example]


def example_of(case) -> ColumnCells:
    """A column of the cells of an example, one after the other, counted from 20 on."""
    cells = case.example.split("|")
    texts = [cells[n % len(cells)].format(n=20 + n // len(cells)) for n in range(ROWS)]
    known = pd.Series(texts, dtype="str")
    return ColumnCells(case.name, known, known)


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.example)
def test_the_first_case_that_reads_an_example_is_its_own(case):
    cells = example_of(case)
    assert next(line for line in CASES if line.read(cells) is not None) is case
    assert case.read(cells).keys.items() <= guess(cells).keys.items()


def test_cases_without_an_example_are_of_native_values():
    for case in CASES[: CASES.index(WRITTEN[0])]:
        assert not case.example
        assert all(case.read(example_of(line)) is None for line in WRITTEN)


STEP = np.timedelta64(10_987_631_013, "ms")
MOMENTS = np.datetime64("1971-03-04T01:02:03.456789") + np.arange(ROWS) * STEP
ENDS = [clock + ZONES[n % len(ZONES)] for n, clock in enumerate(CLOCKS)]


@pytest.mark.parametrize("form", [*DAYS, *MONTHS, *(f"%d.%m.%Y{end}" for end in ENDS)])
def test_a_column_in_a_form_of_the_tables_is_drafted_in_it(form):
    texts = pd.Series(write_moments(MOMENTS, form), dtype="str")
    keys = guess(ColumnCells("when", texts, texts)).keys
    assert keys["type"] == ("datetime" if "M" in form else "date")
    # six digits are written where any number of them is read
    assert keys.get("format", "%Y-%m-%d") == form.replace(".%f", ".%6f")
