"""Constraints on the numbers of a domain, and what cannot be compared."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.constraints import Op, bind, holds, parse_denial, read_holoclean
from cloister.errors import ConstraintError
from cloister.schema import attributes
from cloister.schema.domain import Domain, Table

LEVELS = ["low", "mid", "high"]
DOMAIN = Domain.of(
    {
        "id": attributes.TextKey(type="text", pattern="R{0..99}"),
        "age": attributes.Integer(type="integer", min=0, max=100, nullable=True),
        "score": attributes.Float(type="float", min=0, max=1, decimals=2),
        "home": attributes.Categorical(type="categorical", values=["x", "y", "18"], nullable=True),
        "work": attributes.Categorical(type="categorical", values=["y", "z", "x"]),
        "grade": attributes.Ordinal(type="ordinal", values=LEVELS),
        "goal": attributes.Ordinal(type="ordinal", values=LEVELS),
        "rank": attributes.Ordinal(type="ordinal", values=["mid", "low"]),
        "ok": attributes.Boolean(type="boolean"),
        "born": attributes.Date(type="date", min="1900-01-01", max="2020-12-31"),  # type: ignore[arg-type]
        "seen": attributes.Datetime(type="datetime", min="2000-01-01", max="2020-12-31"),  # type: ignore[arg-type]
    },
    Path(),
)


def table(**columns: list[object]) -> Table:
    codes = {name: DOMAIN[name].encode(pd.Series(values)) for name, values in columns.items()}
    return Table(DOMAIN, codes)


def violated(text: str, **columns: list[object]) -> list[bool]:
    rows = table(**columns)
    return bind(parse_denial(text, "r"), DOMAIN).violation_mask(rows, rows).tolist()


def test_missing_values_satisfy_no_predicate() -> None:
    missing = np.array([np.nan])
    assert not any(holds(op, missing, 1.0) or holds(op, np.array([1.0]), missing) for op in Op)
    assert violated("t.age != 5", age=[5, 6, None]) == [False, True, False]
    bound = bind(parse_denial("t2.age > 3", "r"), DOMAIN)  # said of the first row
    assert [predicate.rows for predicate in bound.predicates] == [{1}]


def test_constants_of_each_type() -> None:
    assert violated("t.age >= 18 and t.ok = true", age=[18, 20], ok=[True, False]) == [True, False]
    assert violated("t.home = '18'", home=["18", "x"]) == [True, False]
    assert violated("t.grade < 'high'", grade=LEVELS) == [True, True, False]
    assert violated("t.score = 0.07", score=[0.07, 0.08]) == [True, False]
    assert violated("t.born > '1999-12-31'", born=["1999-12-31", "2000-01-01"]) == [False, True]
    seen = ["2000-01-01", "2000-01-02"]
    assert violated("t.seen < '2000-01-01 00:00:01'", seen=seen) == [True, False]


def test_listed_values_of_two_columns_are_compared_by_label() -> None:
    home, work = ["x", "x", "y", "18", None], ["x", "y", "y", "z", "x"]
    assert violated("t.home = t.work", home=home, work=work) == [True, False, True, False, False]
    assert violated("t.work != t.home", home=home, work=work) == [False, True, False, True, False]
    assert violated("t.grade < t.goal", grade=LEVELS, goal=LEVELS[::-1]) == [True, False, False]
    grade, rank = ["low", "mid", "mid"], ["low", "low", "mid"]
    assert violated("t.grade = t.rank", grade=grade, rank=rank) == [True, False, True]


def test_holoclean_numbers_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "a.ic").write_text("t1&LT(t1.age,'18')\nt1&EQ(t1.home,'18')\nt1&GT(t1.score,'0.5')")
    rows = table(age=[17, 18], home=["18", "x"], score=[0.5, 0.51])
    constraints = read_holoclean(tmp_path / "a.ic", "a")
    masks = [bind(c, DOMAIN).violation_mask(rows, rows).tolist() for c in constraints]
    assert masks == [[True, False], [True, False], [False, True]]


@pytest.mark.parametrize(
    "text",
    [
        "t1.home < t2.home",
        "t.home > 'x'",
        "t1.ok < t2.ok",
        "t.home = 'nowhere'",
        "t.grade < 'none'",
        "t.age = 'old'",
        "t.age = true",
        "t.born > 5",
        "t.born > 'soon'",
        "t1.age = t2.home",
        "t1.age < t2.born",
        "t1.age < t2.seen",
        "t1.grade < t2.rank",
        "t1.id < t2.id",
        "t1.id = t2.home",
        "t.id = 'R1'",
        "t.none = 1",
    ],
)
def test_values_that_cannot_be_compared_are_refused(text: str) -> None:
    with pytest.raises(ConstraintError, match="constraint 'rule 7': "):
        bind(parse_denial(text, "rule 7"), DOMAIN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t.age < t.score + 3 months", "plain numbers; leave out 'months'"),
        ("t.born + 5 < t.seen", "days, months or years, as in t.born \\+ 5 days"),
        ("t.seen < t.born + 1.5 days", "a whole number of days"),
        ("t.seen < t.born - 20000 years", "less than 10,000 years"),
        ("t.grade + 1 > t.goal", "compare it as it is"),
        ("day of t.born = t.seen", "leave out 'day of'"),
        ("t.age + 0.1234567890123456 > 5", "more than 15 digits"),
    ],
)
def test_offsets_that_a_column_does_not_take_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConstraintError, match=f"constraint 'rule 7': .*{message}"):
        bind(parse_denial(text, "rule 7"), DOMAIN)


def test_a_date_is_its_midnight_and_a_moment_may_be_its_day() -> None:
    seen = ["2000-01-02 00:00:00", "2000-01-02 00:00:01", "2000-01-03 00:00:00"]
    days = {"born": ["2000-01-02"] * 3, "seen": seen}
    assert violated("t.seen = t.born", **days) == [True, False, False]
    assert violated("t.seen > t.born", **days) == [False, True, True]
    assert violated("day of t.seen > t.born", **days) == [False, False, True]
    assert violated("t.born < day of t.seen", **days) == [False, False, True]


@pytest.mark.parametrize(
    ("born", "offset", "after"),
    [
        ("2000-02-29", "1 year", "2001-02-28"),
        ("2000-02-29", "4 years", "2004-02-29"),
        ("2001-02-28", "3 years", "2004-02-28"),
        ("2000-01-31", "1 month", "2000-02-29"),
        ("2000-12-31", "2 months", "2001-02-28"),
        ("2000-12-31", "1 day", "2001-01-01"),
        ("1999-12-31", "366 days", "2000-12-31"),
    ],
)
def test_calendar_arithmetic_keeps_the_day_of_the_month_or_takes_its_last(born, offset, after):
    row = {"born": [born], "seen": [f"{after} 00:00:00"]}
    assert violated(f"t.born + {offset} = t.seen", **row) == [True]
    assert violated(f"t.born + {offset} = '{after}'", **row) == [True]
    assert violated(f"t.seen != t.born + {offset}", **row) == [False]


def test_a_moment_keeps_its_time_of_day_under_an_offset() -> None:
    assert violated("t.seen + 1 month = '2001-02-28 10:30:00'", seen=["2001-01-31 10:30:00"]) == [
        True
    ]


def test_sums_of_decimals_are_exact() -> None:
    score = [0.0, 0.1, 0.2, 0.7]
    assert violated("t.score + 0.1 = 0.3", score=score) == [False, False, True, False]
    assert violated("t.score - 0.4 = 0.3", score=score) == [False, False, False, True]
