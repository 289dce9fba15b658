"""The plans of every method on small tables are those that pins.json keeps, as integers."""

import json
import re

import pins
import pytest

# variants differ from their method in one thing, which is no matter of whose the rows are
VARIANT = re.compile(r"\w+-\w+, persons")
CASES = [
    pytest.param(*case, id=case[0], marks=[pytest.mark.slow] * bool(VARIANT.match(case[0])))
    for case in pins.cases()
]


@pytest.mark.parametrize(("name", "method", "shape"), CASES)
def test_plans_are_as_they_were(name, method, shape):
    kept = json.loads(pins.KEPT.read_text(encoding="utf-8"))
    assert pins.plan_integers(method, shape) == kept[name]


def test_a_digest_sees_every_number_and_no_name_of_a_type():
    assert pins.digest({"a": 1.0}) != pins.digest({"a": 1.0000000000000002})
    assert pins.digest([1, 2]) == pins.digest((1, 2)) != pins.digest([2, 1])
