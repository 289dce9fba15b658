"""Exact violation counts of a million rows."""

import time

import numpy as np
import pytest
from declared_table import domain_of

from cloister.constraints import parse_denial
from cloister.constraints.counting import count_violations
from cloister.schema.attributes import Categorical, Float, Integer
from cloister.schema.domain import Table

pytestmark = pytest.mark.benchmark

ROWS = 1_000_000
DOMAIN = domain_of(
    key=Integer(type="integer", min=0, max=499_999),
    value=Integer(type="integer", min=0, max=24),
    state=Categorical(type="categorical", values=[f"s{at}" for at in range(50)]),
    salary=Float(type="float", min=0, max=200_000, decimals=2),
    rate=Float(type="float", min=0, max=50_000, decimals=2),
)
RULES = {
    "functional dependency": ("t1.key = t2.key and t1.value != t2.value", 2.0),
    "two orders": ("t1.salary > t2.salary and t1.rate < t2.rate", 2.0),
    "dependency and two orders": (
        "t1.state = t2.state and t1.salary > t2.salary and t1.rate < t2.rate",
        2.0,
    ),
    "inequality and two orders": (
        "t1.state != t2.state and t1.salary > t2.salary and t1.rate < t2.rate",
        None,
    ),
    "three orders": ("t1.salary > t2.salary and t1.rate < t2.rate and t1.key < t2.key", None),
}


def made(rows: int) -> Table:
    """Rows that keep the dependency and both orders, but for a few of each."""
    rng = np.random.default_rng(1)
    key, salary = rng.integers(0, 500_000, rows), rng.integers(0, 20_000_000, rows)
    value, rate = key % 25, salary // 4
    some = rng.choice(rows, rows // 5_000, replace=False)
    value[some], rate[some] = rng.integers(0, 25, len(some)), rng.integers(0, 5_000_000, len(some))
    return Table(
        DOMAIN,
        {
            "key": key,
            "value": value,
            "state": rng.integers(0, 50, rows),
            "salary": salary,
            "rate": rate,
        },
    )


def test_a_million_rows_are_counted_in_two_seconds(record) -> None:
    table, warm = made(ROWS), made(1_000)
    lines = []
    for name, (rule, limit) in RULES.items():
        constraint = parse_denial(rule, name)
        count_violations(constraint, warm)
        begun = time.process_time()
        violations = count_violations(constraint, table)
        seconds = time.process_time() - begun
        lines.append(
            (name, f"{violations:,}", f"{seconds:.2f}", "-" if limit is None else f"{limit:g}")
        )
        assert limit is None or seconds <= limit
    title = "Exact violations among the 499,999,500,000 pairs of 1,000,000 made rows"
    record("counting", title, ("constraint", "violations", "CPU s", "to reach"), lines)
