"""Text and native values to the typed values of an attribute."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.schema import attributes
from cloister.schema.parsing import parse

INTEGER = attributes.Integer(type="integer", min=0, max=9)
FLOAT = attributes.Float(type="float", min=0, max=9)
DATE = attributes.Date(type="date", min=dt.date(2000, 1, 1), max=dt.date(2030, 1, 1))
DATETIME = attributes.Datetime(
    type="datetime", min=dt.datetime(2000, 1, 1), max=dt.datetime(2030, 1, 1)
)
NINE, TEN = "2020-01-01 09:00", "2020-01-01 10:00"
FLAG = attributes.Boolean(type="boolean")
WORDS = attributes.Boolean(type="boolean", true="Y", false="N")
TEXTS = attributes.Categorical(type="categorical", values=["a", "1"])


def _parsed(values, attribute):
    typed, invalid = parse(pd.Series(values), attribute)
    return [None if pd.isna(value) else value for value in typed], invalid.tolist()


@pytest.mark.parametrize(
    ("attribute", "text", "value"),
    [
        (INTEGER, "7", 7),
        (INTEGER, " +7 ", 7),
        (INTEGER, "-007", -7),
        (INTEGER, "7.0", 7),
        (INTEGER, str(attributes.LARGEST_WHOLE), attributes.LARGEST_WHOLE),
        (FLOAT, "1e3", 1000.0),
        (FLOAT, ".5", 0.5),
        (FLOAT, "2.1034775000000003", 2.1034775000000003),
        (DATE, "2020-02-29", pd.Timestamp("2020-02-29")),
        (DATE, "2020-02-29 00:00:00", pd.Timestamp("2020-02-29")),
        (DATE, "0001-01-01", pd.Timestamp("0001-01-01")),
        (DATETIME, "2020-01-01T10:00:00Z", pd.Timestamp("2020-01-01 10:00")),
        (DATETIME, "2020-01-01 10:00+02:00", pd.Timestamp("2020-01-01 08:00")),
        (WORDS, "Y", "Y"),
        (FLAG, "False", False),
        (TEXTS, "anything", "anything"),
        (attributes.Categorical(type="categorical", values=[1, 2]), "2", 2),
        (attributes.Categorical(type="categorical", values=[0.5, 2]), "2", 2.0),
        (attributes.TextKey(type="text", pattern="R{1..9}"), "R1", "R1"),
    ],
)
def test_text_is_read_as_the_declared_type(attribute, text, value):
    assert _parsed([text, None], attribute) == ([value, None], [False, False])


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (INTEGER, "7.5"),
        (INTEGER, "1e3"),
        (INTEGER, "9" * 19),
        (INTEGER, ""),
        (INTEGER, "1\n2"),
        (FLOAT, "nan"),
        (FLOAT, "inf"),
        (FLOAT, "1e999"),
        (FLOAT, "1,5"),
        (DATE, "2021-02-29"),
        (DATE, "2020-01"),
        (DATE, "01/02/2020"),
        (DATE, "2020-01-01 10:00"),
        (DATETIME, "yesterday"),
        (WORDS, "True"),
        (FLAG, "yes"),
    ],
)
def test_other_text_is_invalid(attribute, text):
    assert _parsed([text], attribute) == ([None], [True])


@pytest.mark.parametrize(
    ("attribute", "values", "expected", "invalid"),
    [
        (INTEGER, pd.Series([1.0, 2.5, np.nan]), [1, None, None], [False, True, False]),
        (INTEGER, pd.Series([2**63 + 5, 1], dtype="uint64"), [None, 1], [True, False]),
        (INTEGER, pd.Series([True]), [None], [True]),
        (INTEGER, pd.Series(["1", "x"], dtype="category"), [1, None], [False, True]),
        (INTEGER, pd.Series([1, "2", 3.5], dtype=object), [1, 2, None], [False, False, True]),
        (FLOAT, pd.Series([np.inf, 1.5]), [None, 1.5], [True, False]),
        (FLOAT, pd.Series([Decimal("1.5")]), [1.5], [False]),
        (DATE, pd.Series([dt.date(2020, 1, 1)]), [pd.Timestamp("2020-01-01")], [False]),
        (DATE, pd.Series(pd.to_datetime(["2020-01-01 10:00"])), [None], [True]),
        (DATE, pd.Series([1]), [None], [True]),
        (DATETIME, pd.Series([1]), [None], [True]),
        (
            DATETIME,
            pd.Series([pd.Timestamp(TEN, tz="Europe/Berlin")]),
            [pd.Timestamp(NINE)],
            [False],
        ),
        (FLAG, pd.Series([1, 0, 2]), [True, False, None], [False, False, True]),
        (FLAG, pd.Series([True, None], dtype="boolean"), [True, None], [False, False]),
        (WORDS, pd.Series([True, False]), ["Y", "N"], [False, False]),
        (WORDS, pd.Series(pd.to_datetime(["2020-01-01"])), [None], [True]),
        (TEXTS, pd.Series([1.0, np.nan]), ["1", None], [False, False]),
        (TEXTS, pd.Series([1, None], dtype="Int64"), ["1", None], [False, False]),
    ],
)
def test_native_values_are_read_as_the_declared_type(attribute, values, expected, invalid):
    assert _parsed(values, attribute) == (expected, invalid)


@pytest.mark.parametrize("attribute", [INTEGER, FLOAT, DATE, DATETIME, WORDS, TEXTS])
def test_index_and_name_are_kept_and_nothing_is_invalid_in_nothing(attribute):
    values = pd.Series([None, None], index=[7, 3], name="odd name", dtype="str")
    typed, invalid = parse(values, attribute)
    assert (typed.name, list(typed.index)) == ("odd name", [7, 3])
    assert typed.isna().all()
    assert not invalid.any()
    assert len(parse(values[:0], attribute)[0]) == 0


@given(
    st.lists(st.integers(-attributes.LARGEST_WHOLE, attributes.LARGEST_WHOLE)),
    st.lists(st.floats(allow_nan=False, allow_infinity=False)),
)
def test_written_numbers_are_read_back_exactly(wholes, decimals):
    for numbers, attribute in ((wholes, INTEGER), (decimals, FLOAT)):
        written = pd.Series([repr(number) for number in numbers], dtype="str")
        assert _parsed(written, attribute)[0] == numbers


@given(st.lists(st.datetimes().map(lambda moment: moment.replace(fold=0))))
def test_written_moments_are_read_back_to_the_microsecond(moments):
    written = pd.Series([moment.isoformat() for moment in moments], dtype="str")
    typed, invalid = parse(written, DATETIME)
    assert not invalid.any()
    assert typed.dt.to_pydatetime().tolist() == moments if moments else typed.empty


def test_a_duration_of_numpy_is_no_text_and_stops_nothing():
    cells = pd.Series([np.timedelta64(1, "D"), "a", pd.Timedelta(1)], dtype=object)
    values, _ = parse(
        cells, attributes.Categorical(type="categorical", values=["a"], nullable=True)
    )
    assert values.isna().tolist() == [True, False, True]
