"""Days that no calendar has: ``t.year, t.month, t.day is a date`` and the denials that it means."""

import calendar
import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from declared_table import domain_of

from cloister import constraints
from cloister.errors import ConstraintError
from cloister.schema.attributes import AnyAttribute, Categorical, Date, Integer, Ordinal
from cloister.schema.domain import Domain, Table

NAMES = "january february march april may june july august september october november december"
LONG = [name.title() for name in NAMES.split()]
MONTHS: dict[str, AnyAttribute] = {
    "numbers": Integer(type="integer", min=1, max=12),
    "listed numbers": Categorical(type="categorical", values=[f"{m:02}" for m in range(1, 13)]),
    "names": Ordinal(type="ordinal", values=LONG),
    "abbreviations": Categorical(type="categorical", values=[name[:3] for name in NAMES.split()]),
}
DAYS: dict[str, AnyAttribute] = {
    "numbers": Integer(type="integer", min=1, max=31),
    "listed": Ordinal(type="ordinal", values=list(range(1, 32))),
}
YEARS = range(1999, 2106)


def rules_of(domain: Domain, check: str, name: str = "date") -> Any:
    declared = [constraints.ConstraintDeclaration(check=check, name=name)]
    return constraints.constraints_of(declared, domain.names, Path(), domain=domain)


def allowed(domain: Domain, rules: Any, codes: dict[str, list[int]]) -> list[bool]:
    table = Table(domain, {name: pd.Series(each).to_numpy() for name, each in codes.items()})
    masks = [constraints.bind(rule, domain).violation_mask(table, table) for rule in rules]
    return [not any(each) for each in zip(*masks, strict=True)]


def is_date(year: int, month: int, day: int) -> bool:
    return day <= calendar.monthrange(year, month)[1]


@pytest.mark.parametrize("month", MONTHS)
@pytest.mark.parametrize("day", DAYS)
def test_without_a_year_every_day_of_a_leap_year_is_a_date(month: str, day: str) -> None:
    domain = domain_of(m=MONTHS[month], d=DAYS[day])
    rules = rules_of(domain, "t.m, t.d is a date")
    constraints.require_consistent(rules, domain, 10)
    months, days = zip(*itertools.product(range(12), range(31)), strict=True)
    expected = [is_date(2024, m + 1, d + 1) for m, d in zip(months, days, strict=True)]
    assert allowed(domain, rules, {"m": list(months), "d": list(days)}) == expected


NUMBERS = Integer(type="integer", min=YEARS[0], max=YEARS[-1], special=[9999])


@pytest.mark.parametrize("year", [NUMBERS, Ordinal(type="ordinal", values=[*map(str, YEARS)])])
def test_with_a_year_leap_days_are_those_of_leap_years(year: AnyAttribute) -> None:
    domain = domain_of(y=year, m=MONTHS["numbers"], d=DAYS["numbers"])
    rules = rules_of(domain, "t.y, t.m and t.d is a date")
    cells = list(itertools.product(range(len(YEARS)), range(12), range(31)))
    years, months, days = (list(each) for each in zip(*cells, strict=True))
    expected = [is_date(YEARS[y], m + 1, d + 1) for y, m, d in cells]
    assert allowed(domain, rules, {"y": years, "m": months, "d": days}) == expected


def test_a_part_that_is_missing_or_special_makes_any_day_a_date() -> None:
    domain = domain_of(
        y=Integer(type="integer", min=2001, max=2003, special=[9999]),
        m=Integer(type="integer", min=1, max=12, special=[99], nullable=True),
        d=Integer(type="integer", min=1, max=31, special=[99], nullable=True),
    )
    rules = rules_of(domain, "t.y, t.m, t.d is a date")
    rows = [(2001, 2, 29), (9999, 2, 29), (2001, 99, 31), (2001, 2, 99), (9999, 2, 31)]
    columns = zip(domain, zip(*rows, strict=True), strict=True)
    codes = {column.name: list(column.encode(pd.Series(cells))) for column, cells in columns}
    assert allowed(domain, rules, codes) == [False, True, True, True, False]
    null = {"y": [0, 0], "m": [domain["m"].null_code, 1], "d": [30, domain["d"].null_code]}
    assert allowed(domain, rules, null) == [True, True]


def test_the_denials_of_a_date_say_each_day_and_the_sentence_that_they_stand_for() -> None:
    domain = domain_of(month=MONTHS["abbreviations"], day=DAYS["numbers"])
    rules = rules_of(domain, "t.month, t.day is a date")
    days = [("feb", 30), *((month, 31) for month in ("feb", "apr", "jun", "sep", "nov"))]
    assert [(rule.name, constraints.format_denial(rule)) for rule in rules] == [
        (f"date_{number}", f"t.month = '{month}' and t.day = {day}")
        for number, (month, day) in enumerate(days, 1)
    ]
    assert {rule.sentence for rule in rules} == {"t.month, t.day is a date"}


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("t.mnth, t.day is a date", "no attribute 'mnth'; did you mean 'month'"),
        ("t.day, t.month is a date", "'day' has values that are no month; .*in this order"),
        ("t.month, t.born is a date", "'born' is of type date"),
        ("t.word, t.day is a date", "'word' has values that are no month"),
        ("t.month, t.hours is a date", "'hours' has values that are no day"),
        ("t.short, t.month, t.day is a date", "'short' has values that are no year"),
        ("t1.month, t2.day is a date", "write t.year, t.month, t.day"),
        ("t.day is a date", "write t.year, t.month, t.day"),
        ("t.month, t.week is a date", "holds for all declared values; drop it"),
    ],
)
def test_what_is_no_date_is_refused_by_its_column(check: str, said: str) -> None:
    domain = domain_of(
        month=MONTHS["names"],
        day=DAYS["numbers"],
        week=Integer(type="integer", min=1, max=7),
        hours=Integer(type="integer", min=0, max=31),
        short=Integer(type="integer", min=70, max=99),
        word=Categorical(type="categorical", values=["spring", "autumn"]),
        born=Date(type="date", min=dt.date(1900, 1, 1), max=dt.date(2000, 1, 1)),
    )
    with pytest.raises(ConstraintError, match=said):
        rules_of(domain, check)
