"""Dates whose day, or day and month, are not known: read as missing, drafted as dates."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from cloister.models.task import task_of
from cloister.schema.attributes import Date, Datetime
from cloister.schema.domain import column_of
from cloister.schema.parsing import parse
from cloister.schema.validation import read_table

FORMS = {
    None: (["2021-03-15"], ["2021", "2021-03", "2021-03-00", "2021-00-00", "0000-00-00"]),
    "%d.%m.%Y": (["15.03.2021"], ["03.2021", "2021", "00.03.2021", "00.00.2021"]),
    "%-m/%-d/%Y": (["3/15/2021"], ["3/2021", "2021", "3/0/2021", "0/0/2021"]),
    "%d %b %Y": (["15 Mar 2021"], ["Mar 2021", "2021", "00 mar 2021"]),
    "%B %-d, %Y": (["March 15, 2021"], ["March 2021", "2021"]),
}
NEITHER = ["", "2021-13-01", "31.02.2021", "March", "15", "03-15", "2021-03-150", "x2021"]


def _date(form, **keys):
    return Date(type="date", min="2000-01-01", max="2030-12-31", format=form, **keys)


@pytest.mark.parametrize("form", FORMS)
def test_dates_without_a_part_are_missing_where_that_is_declared(form):
    whole, partial = FORMS[form]
    texts = pd.Series([*whole, *partial, *NEITHER, None], dtype="str")
    typed, invalid = parse(texts, _date(form, partial="missing"))
    assert typed.notna().tolist() == [True] * len(whole) + [False] * (len(texts) - len(whole))
    assert (typed[: len(whole)] == pd.Timestamp("2021-03-15")).all()
    assert not invalid[: len(whole) + len(partial)].any()
    assert invalid[len(whole) + len(partial) : -1].all()
    assert not invalid[-1]
    _, without = parse(texts, _date(form))
    assert without[len(whole) : -1].all()
    days = pd.Series([dt.date(2021, 3, 15), None], dtype="object")
    typed, invalid = parse(days, _date(None, partial="missing"))
    assert typed.notna().tolist() == [True, False]
    assert not invalid.any()


def _born(share):
    rng = np.random.default_rng(1)
    days = pd.Series(pd.Timestamp("1985-01-01") + pd.to_timedelta(rng.integers(0, 9_000, 900), "D"))
    months = rng.random(900) < share
    written = days.dt.strftime("%d/%m/%Y").mask(months, days.dt.strftime("%m/%Y"))
    return written.mask(months & (rng.random(900) < 0.3), days.dt.strftime("%Y"))


def test_a_draft_takes_dates_of_which_some_lack_a_part_for_dates(drafted):
    text, spec = drafted(pd.DataFrame({"born": _born(0.2), "x": range(900)}))
    born = spec.attributes["born"]
    assert (born.type, born.format, born.partial) == ("date", "%d/%m/%Y", "missing")
    assert born.nullable
    assert "lack the day or the month" in text
    table, report = read_table(spec, task_of(spec, {spec.name: 900}).lead.domain)
    column = table.domain["born"]
    lacking = (_born(0.2).str.len() < 10).sum()
    assert report.valid
    assert (table.codes["born"] == column.null_code).sum() == lacking
    text, spec = drafted(pd.DataFrame({"born": _born(0.9), "x": range(900)}))
    assert "give year, month and day a column each" in text
    assert spec.attributes["born"].type == "categorical"


DAY, MOMENT = dt.date(2021, 1, 1), dt.datetime(2021, 1, 1)
MONTHS = ["2021-03", "2023-12", "2022-01"]


def test_months_are_dates_written_without_a_day(tmp_path, drafted):
    frame = pd.DataFrame({"month": MONTHS * 20, "named": ["Mar 2021", "Dec 2023", "Jan 2022"] * 20})
    _, spec = drafted(frame)
    assert [attribute.format for attribute in spec.attributes.values()] == ["%Y-%m", "%b %Y"]
    column = column_of("month", spec.attributes["month"], tmp_path)
    assert column.size == 36
    codes = column.encode(frame["month"])
    assert codes[:3].tolist() == [2, 35, 12]
    assert column.decode(codes[:3]).astype(str).tolist() == [f"{month}-01" for month in MONTHS]


def test_a_month_is_compared_by_its_first_day(tmp_path):
    keys = {"type": "date", "min": dt.date(2021, 1, 1), "max": dt.date(2023, 12, 31)}
    month = column_of("month", Date(**keys, format="%Y-%m"), tmp_path)
    day = column_of("day", Date(**keys), tmp_path)
    days = pd.Series([f"{text}-01" for text in MONTHS])
    same = month.comparable(month.encode(pd.Series(MONTHS)))
    assert same.tolist() == day.comparable(day.encode(days)).tolist()
    assert month.constant("2022-01-01") == same[2]


def test_a_month_lacks_no_day_and_a_moment_needs_one():
    with pytest.raises(ValueError, match="no day that could be missing"):
        Date(type="date", min=DAY, max=DAY, format="%Y-%m", partial="missing")
    with pytest.raises(ValueError, match="year, month and day once each"):
        Datetime(type="datetime", min=MOMENT, max=MOMENT, format="%Y-%m %H:%M:%S")
