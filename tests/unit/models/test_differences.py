"""Ordered numbers and their differences: both ways, where they apply, and through a fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from declared_table import content

from cloister.constraints import format_denial
from cloister.constraints.counting import count_violations, violations_per_row
from cloister.models.core.bins import bin_cells
from cloister.models.registry import METHODS, create, offered
from cloister.models.sampling.drawing import Sampler
from cloister.models.task import Task, task_of
from cloister.models.transforms.differenced import DifferencedSampler
from cloister.models.transforms.differences import (
    Difference,
    Differences,
    WithDifferences,
    differences_of,
    lacks_presence,
    orders_of,
)
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from cloister.schema.partition import declared_cells
from cloister.schema.spec import Spec

DAY = {"type": "date", "min": "2020-01-01", "max": "2020-12-31"}
COUNT = {"type": "integer", "min": 3, "max": 40}
FORMS = {
    "dates": (DAY, DAY | {"max": "2021-06-30"}, "t.a > t.b"),
    "missing": (DAY, DAY | {"nullable": True}, "t.b < t.a"),
    "strict": (COUNT, COUNT | {"max": 60}, "t.a >= t.b"),
    "steps": (COUNT | {"step": 2}, COUNT | {"min": -20, "max": 61, "step": 3}, "t.a > t.b"),
    "less moved": (COUNT | {"nullable": True}, COUNT | {"max": 60}, "t.a > t.b"),
    "less is far below": (COUNT, {"type": "integer", "min": 100, "max": 900}, "t.a > t.b"),
    "special": (
        {"type": "integer", "min": 0, "max": 40, "special": [0, -1], "nullable": True},
        COUNT | {"max": 60},
        "t.a > t.b",
    ),
    "special stays": (COUNT | {"special": [5]}, COUNT | {"nullable": True}, "t.a > t.b"),
    "decimals": (
        {"type": "float", "min": 0, "max": 9, "decimals": 2},
        {"type": "float", "min": 1, "max": 11.5, "decimals": 2},
        "t.a >= t.b",
    ),
    "moments": (
        {"type": "datetime", "min": "2020-01-01T00:00:00", "max": "2020-01-03T00:00:00"},
        {"type": "datetime", "min": "2020-01-01T00:00:00", "max": "2020-01-09T00:00:00"},
        "t.a > t.b",
    ),
}


MINUTE = {
    "type": "datetime",
    "min": "2020-01-01T00:00:00",
    "max": "2020-12-31T23:59:00",
    "step": 60,
}
OLD = {"type": "date", "min": "1990-01-31", "max": "2003-12-31"}
MONTH = {"type": "date", "min": "2019-11-01", "max": "2021-06-01", "format": "%Y-%m"}
SHIFTED = {
    "days later": (DAY, DAY | {"max": "2021-06-30"}, ("t.b < t.a + 30 days",)),
    "days at most": (DAY, DAY | {"max": "2021-06-30"}, ("t.b > t.a + 30 days",)),
    "days within": (DAY, DAY | {"nullable": True}, ("t.b < t.a", "t.b > t.a + 30 days")),
    "numbers": (COUNT | {"step": 2}, COUNT | {"max": 61, "step": 3}, ("t.a + 5 >= t.b",)),
    "numbers within": (COUNT, COUNT, ("t.a - 3 > t.b", "t.b > t.a + 2", "t.b > 30")),
    "decimals less": (
        {"type": "float", "min": 0, "max": 9, "decimals": 2},
        {"type": "float", "min": 1, "max": 11.5, "decimals": 2},
        ("t.a >= t.b + 0.25",),
    ),
    "years": (OLD, DAY | {"nullable": True}, ("t.b < t.a + 16 years",)),
    "years of a moment": (OLD, MINUTE | {"nullable": True}, ("t.b < t.a + 16 years",)),
    "years within": (OLD, MINUTE, ("t.b < t.a + 16 years", "t.b >= t.a + 208 months", "t.b < t.a")),
    "months before": (DAY, DAY, ("t.b - 1 month > t.a",)),
    "a moment after a date": (DAY, MINUTE, ("t.b < t.a",)),
    "a day after a moment": (MINUTE, DAY | {"max": "2021-06-30"}, ("t.b <= day of t.a",)),
    "months": (MONTH, MONTH, ("t.b < t.a + 2 months",)),
}


def task_with(attributes: dict, *rules: str, soft: tuple[str, ...] = ()) -> Task:
    constraints = [{"name": f"r{number}", "deny": rule} for number, rule in enumerate(rules)]
    constraints += [{"deny": rule, "soft": True} for rule in soft]
    spec = Spec.declared_in(Path(), content(attributes, constraints=constraints))
    return task_of(spec, {"table": 100}).lead


def ordered_rows(task: Task, rows: int = 400) -> Table:
    """Random rows that satisfy the task's rules."""
    rng = np.random.default_rng(1)
    codes = {column.name: rng.integers(0, column.size, rows) for column in task.domain}
    table = Table(task.domain, codes)
    feasible = np.ones(rows, dtype=bool)
    for rule in task.hard:
        feasible &= violations_per_row(rule, table) == 0
    return table.take(feasible)


def only(task: Task) -> Difference:
    (difference,) = differences_of(task)
    return difference


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_number_is_the_other_and_the_difference_and_any_keeps_the_rule(form) -> None:
    task = task_with({"a": form[0], "b": form[1]}, form[2])
    table, difference = ordered_rows(task), only(task)
    bins, rng = even_bins(difference), np.random.default_rng(2)
    base, moved = table.codes[difference.base.name], table.codes[difference.moved.name]
    assert table.rows > 20
    assert np.array_equal(difference.moved_codes(base, difference.of(base, moved), bins), moved)
    base = rng.integers(0, difference.base.size, 2_000)
    moved = difference.moved_codes(base, rng.integers(0, difference.column.size, 2_000), bins)
    rows = Table(task.domain, {difference.base.name: base, difference.moved.name: moved})
    assert moved.min() >= 0
    assert moved.max() < difference.moved.size
    assert count_violations(task.hard[0], rows) == 0


def test_a_derived_row_depends_on_the_same_row_alone() -> None:
    task = task_with({"a": DAY, "b": DAY, "c": COUNT}, "t.a > t.b")
    table, derivation = ordered_rows(task), WithDifferences(differences_of(task))
    order = np.random.default_rng(3).permutation(table.rows)[::2]
    whole = derivation.of(table).take(order)
    part = derivation.of(table.take(order))
    assert list(whole.stored) == ["a", "c", "b less a"]
    assert all(np.array_equal(whole.stored[name], part.stored[name]) for name in whole.stored)


@pytest.mark.parametrize("form", SHIFTED.values(), ids=SHIFTED)
def test_a_number_is_the_other_and_the_difference_under_offsets(form: tuple) -> None:
    task = task_with({"a": form[0], "b": form[1]}, *form[2])
    table, difference = ordered_rows(task, 40_000), only(task)
    assert table.rows > 20
    assert {rule.name for rule in difference.rules} == {rule.name for rule in orders_of(task)}
    bins, rng = even_bins(difference), np.random.default_rng(2)
    base, moved = table.codes[difference.base.name], table.codes[difference.moved.name]
    assert np.array_equal(difference.moved_codes(base, difference.of(base, moved), bins), moved)
    first, last = difference.inside[difference.base.name]
    base = rng.integers(first, last + 1, 20_000)
    moved = difference.moved_codes(base, rng.integers(0, difference.column.size, 20_000), bins)
    rows = Table(task.domain, {difference.base.name: base, difference.moved.name: moved})
    assert moved.min() >= 0
    assert moved.max() < difference.moved.size
    assert [count_violations(rule, rows) for rule in task.hard] == [0] * len(task.hard)


CLAIMED = {"type": "integer", "min": 0, "max": 60}
BORN = DAY | {"min": "1920-01-01"}


@pytest.mark.parametrize(
    ("attributes", "rules", "moved"),
    [
        ({"a": DAY, "b": DAY, "c": DAY}, ("t.a > t.b", "t.b > t.c"), ["c", "b"]),
        ({"a": DAY, "b": DAY, "c": COUNT}, ("t.a > t.b", "t.b = '2020-03-01' and t.c > 9"), ["a"]),
        ({"a": CLAIMED | {"special": [0]}, "b": CLAIMED}, ("t.a > t.b",), ["a"]),
        ({"a": BORN, "b": DAY}, ("t.a > t.b",), ["a"]),
    ],
    ids=["in a chain", "the greater is bound", "with special values", "of the wider range"],
)
def test_the_number_that_gives_way(attributes: dict, rules: tuple, moved: list) -> None:
    chosen = differences_of(task_with(attributes, *rules))
    assert [difference.moved.name for difference in chosen] == moved
    if "special" in attributes["a"]:
        assert chosen[0].column.values == chosen[0].column.steps + 1


DAYS = {"a": DAY, "b": DAY, "c": COUNT}
TENTHS, HUNDREDTHS = (
    {"type": "float", "min": 0, "max": 9, "decimals": decimals} for decimals in (1, 2)
)
FUNCTION = "t1.a = t2.a and t1.b != t2.b"


def paid(special: int) -> dict:
    return {"a": COUNT | {"special": [special], "nullable": True}, "b": COUNT}


@pytest.mark.parametrize(
    ("attributes", "rules", "soft"),
    [
        (DAYS, ("t.b > t.a",), (FUNCTION,)),
        (DAYS, ("t.a = t.b",), ()),
        (DAYS, ("t1.a > t2.b",), ()),
        (DAYS, ("t.a > t.b and t.c > 5",), ()),
        (DAYS, ("t.a > t.b", *(f"t.{n} + 1 day > '2020-03-01' and t.c > 5" for n in "ab")), ()),
        (paid(99), ("t.a > t.b",), ()),
        (paid(-1), ("t.a > t.b", "t.a < 0"), ()),
        (paid(3), ("t.a > t.b", "t.a < 5"), ()),
        ({"a": TENTHS, "b": HUNDREDTHS}, ("t.a > t.b",), ()),
        (DAYS, ("t.a > t.b", "t.b > '2020-02-01'", FUNCTION), ()),
        (DAYS, ("t.a > t.b", "t.b != '2020-02-01'", FUNCTION), ()),
        (DAYS, ("t.a > t.b", "t.a < '2020-01-03'", FUNCTION), ("t.b > '2020-03-01'",)),
    ],
    ids=[
        *(
            "both bound",
            "no order",
            "two rows",
            "under a condition",
            "in other rules",
            "special above the other",
        ),
        *("special below a bound", "special below a bound of the grid", "other decimals"),
        *("no number is left", "a bound without order", "a soft bound"),
    ],
)
def test_other_pairs_stay_as_they_are(attributes: dict, rules: tuple, soft: tuple) -> None:
    assert not differences_of(task_with(attributes, *rules, soft=soft))


def test_rows_of_persons_have_those_of_numbers_that_their_person_does_not_give() -> None:
    """Rows that stand alone have all, however many a unit has."""
    rows = replace(task_with(DAYS, "t.a > t.b"), neighbours=Neighbours(max_rows=3))
    assert only(rows).moved.name == "b"
    assert only(replace(rows, given=("c", "a"))).moved.name == "b"
    assert only(replace(rows, given=("b",))).moved.name == "a"
    assert not differences_of(replace(rows, given=("a", "b")))


BOUNDED = {
    "dates": (DAY, DAY, "t.a > t.b", ["t.b >= '2020-11-15'"], ["t.a > '2020-11-14'"]),
    "far and near": (COUNT, COUNT | {"max": 60}, "t.a >= t.b", ["t.b > 45", "t.b < 20"], []),
    "steps": (
        COUNT | {"step": 2},
        COUNT | {"min": -20, "max": 61, "step": 3},
        "t.a > t.b",
        ["t.b > 50", "t.b <= 8"],
        [],
    ),
    "less moved": (
        COUNT | {"nullable": True},
        COUNT | {"max": 60},
        "t.a > t.b",
        ["t.a < 7"],
        ["t.b < 8"],
    ),
}


@pytest.mark.parametrize("form", BOUNDED.values(), ids=BOUNDED)
def test_bounds_of_the_number_that_gives_way_are_kept(form: tuple) -> None:
    task = task_with({"a": form[0], "b": form[1]}, form[2], *form[3], *form[4])
    difference, rng = only(task), np.random.default_rng(2)
    bins = even_bins(difference)
    codes = np.arange(difference.base.steps)
    plain = Table(task.domain, {difference.base.name: codes})
    for rule in task.hard:
        if rule.attributes == (difference.base.name,):
            codes = codes[[not count_violations(rule, plain.take([code])) for code in codes]]
    base = rng.choice(codes, 2_000)
    moved = difference.moved_codes(base, rng.integers(0, difference.column.steps, 2_000), bins)
    rows = Table(task.domain, {difference.base.name: base, difference.moved.name: moved})
    assert [count_violations(rule, rows) for rule in task.hard] == [0] * len(task.hard)
    table = ordered_rows(task)
    differences = difference.of(
        table.codes[difference.base.name], table.codes[difference.moved.name]
    )
    again = difference.moved_codes(table.codes[difference.base.name], differences, bins)
    assert np.array_equal(again, table.codes[difference.moved.name])


def test_a_number_that_is_missing_by_a_rule_gives_way() -> None:
    task = task_with(
        {"a": DAY, "b": DAY | {"nullable": True}, "c": COUNT},
        "t.a > t.b",
        "t.b is missing and t.c > 9",
        "t.b is not missing and t.c <= 9",
    )
    difference = only(task)
    inner = Differences(task, (difference,)).inner
    assert difference.moved.name == "b"
    assert [format_denial(rule) for rule in inner.hard] == [
        "t.`b less a` is missing and t.c > 9",
        "t.`b less a` is not missing and t.c <= 9",
    ]


NULLABLE = DAY | {"nullable": True}
LISTED = {"type": "categorical", "values": ["new", "sent", "there"]}
CHAIN = ("t.a > t.b", "t.b >= t.c")


@pytest.mark.parametrize(
    "presence",
    [
        ("t.b is missing and t.c is not missing",),
        (
            "t.b is missing and t.d != 'new'",
            "t.b is not missing and t.d = 'new'",
            "t.c is missing and t.d = 'there'",
            "t.c is not missing and t.d != 'there'",
        ),
    ],
    ids=["said", "by another column"],
)
def test_a_number_that_may_be_missing_is_a_base_where_the_other_is_missing_too(presence) -> None:
    columns = {"a": DAY, "b": NULLABLE, "c": NULLABLE, "d": LISTED}
    task = task_with(columns, *CHAIN, "t.a > t.c", *presence)
    chosen = differences_of(task)
    assert [difference.moved.name for difference in chosen] == ["c", "b"]
    assert not [rule for rule in orders_of(task) if lacks_presence(rule, task)]
    table, inner = ordered_rows(task, 8_000), Differences(task, chosen).inner
    assert table.rows > 20
    assert not {"b", "c"}.intersection(inner.domain.names)
    bins = {difference.name: even_bins(difference) for difference in chosen}
    drawn = DifferencedSampler(
        Differences(task, chosen), Rows(WithDifferences(chosen).of(table)), bins
    )
    (again,) = drawn.chunks(table.rows, SamplingSource(1))
    assert all(np.array_equal(again.codes[name], table.codes[name]) for name in "abcd")


def test_a_number_that_may_be_missing_alone_is_no_base_and_the_plan_can_say_so() -> None:
    task = task_with({"a": DAY, "b": NULLABLE, "c": NULLABLE}, *CHAIN)
    assert not differences_of(task)
    assert [lacks_presence(rule, task) for rule in orders_of(task)] == [False, True]


@pytest.mark.parametrize("kind", ["date", "datetime", "integer", "float"])
def test_strict_orders_under_one_bound_leave_each_number_a_value(kind: str) -> None:
    ends = {"date": ("2020-01-01", "2020-02-01"), "integer": (0, 40), "float": (0, 4)}
    least, most = ends.get(kind, ("2020-01-01T00:00:00", "2020-01-01T00:00:40"))
    keys = {"type": kind, "min": least, "max": most, **({"decimals": 1} if kind == "float" else {})}
    task = task_with({"a": keys, "b": keys, "c": keys}, "t.a >= t.b", "t.b >= t.c")
    chosen = differences_of(task)
    assert [difference.moved.name for difference in chosen] == ["c", "b"]
    inner, rng = Differences(task, chosen).inner, np.random.default_rng(2)
    codes = {column.name: rng.integers(0, column.size, 4_000) for column in inner.domain}
    free = Table(inner.domain, codes)
    feasible = np.ones(free.rows, dtype=bool)
    for rule in inner.hard:
        feasible &= violations_per_row(rule, free) == 0
    assert feasible.mean() > 0.8
    bins = {difference.name: even_bins(difference) for difference in chosen}
    rows = free.take(np.flatnonzero(feasible))
    (made,) = DifferencedSampler(Differences(task, chosen), Rows(rows), bins).chunks(
        1, SamplingSource(1)
    )
    assert [count_violations(rule, made) for rule in task.hard] == [0, 0]


class Rows(Sampler):
    """A sampler that gives some rows."""

    def __init__(self, rows: Table) -> None:
        self._rows = rows

    def draw(self, *_):
        return self._rows


def even_bins(difference: Difference):
    cells = declared_cells(difference.column)
    return bin_cells(cells, np.full(cells.size, 1 / cells.size), 0.0, keep=False)


def test_methods_as_printed_have_none() -> None:
    task = task_with({"a": DAY, "b": DAY}, "t.a > t.b")
    given = {name: Differences.of(task, create(name)) is not None for name in METHODS}
    printed = {name for name in METHODS if name.endswith("-paper")}
    assert not any(given[name] for name in printed)
    assert {name for name in offered() if given[name]} == {
        *("mixture", "kamino", "dpview", "dpview+", "independent", "copula", "bayes")
    }


def test_orders_are_known_where_no_difference_is_modelled() -> None:
    columns = {"a": DAY, "b": DAY, "c": COUNT, "d": COUNT}
    bound = [f"t.{name} = '2020-03-01' and t.c > 9" for name in "ab"]
    task = task_with(columns, "t.a > t.b", *bound, "t1.c > t2.d", "t.c = t.d")
    assert not differences_of(task)
    assert [rule.name for rule in orders_of(task)] == ["r0"]
