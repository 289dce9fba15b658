"""A constraint that cannot be used is named with the line of its spec."""

import re

import pytest

from cloister.errors import ConstraintError, SpecError
from cloister.tasks.requests.plan import checked_spec

ONE = """\
name: one
source: {{path: one.csv}}
privacy:
  {{unit: row, relation: add_remove, rows: {{public: 9}},
   budget: {{epsilon: 1, delta: 0, per: ever}}}}
attributes: {{pay: {{type: integer, min: 0, max: 9}}, dept: {{type: categorical, values: [a, b]}}}}
constraints:
  - {{fd: dept -> pay}}
  - {rule}
release: {{epsilon: 1, delta: 0}}
"""

SEVERAL = """\
name: two
privacy:
  {{unit: row, relation: add_remove, rows: {{public: 9}},
   budget: {{epsilon: 1, delta: 0, per: ever}}}}
tables:
  staff:
    source: {{path: staff.csv}}
    key: id
    references: {{boss: {{table: staff, max_rows: 2}}}}
    constraints:
      - {rule}
    attributes:
      id: {{type: text, pattern: "{{1..99}}"}}
      boss: {{type: text, pattern: "{{1..99}}", nullable: true}}
      pay: {{type: integer, min: 0, max: 9}}
constraints:
  - {across}
release: {{method: relational, epsilon: 1, delta: 0}}
"""
UNUSABLE = [
    *('{deny: "t.pay > 1 or t.pay < 0"}', "{fd: dept -> wage}", '{deny: "t.dept > t.pay"}'),
    """{deny: "t.dept = 'c'"}""",
]
GOOD = '{deny: "t.pay > 8"}'
GOOD_ACROSS = '{deny: "staff.pay > staff.boss.pay"}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *((ONE.format(rule=rule), 9) for rule in UNUSABLE),
        (SEVERAL.format(rule="""{deny: "t.pay = 'much'"}""", across=GOOD_ACROSS), 11),
        (SEVERAL.format(rule="{key: [wage]}", across=GOOD_ACROSS), 11),
        (SEVERAL.format(rule=GOOD, across='{deny: "staff.wage > staff.boss.pay"}'), 17),
    ],
)
def test_the_line_of_an_unusable_constraint_is_named(tmp_path, text, line):
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConstraintError, match=rf"a\.yaml, line {line}, constraint '"):
        checked_spec(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("t.own = true", "its word for true is 'yes'; write that, in single quotes"),
        ("t.own = false and t.pay > 3", "its word for false is 'no'"),
        ("t.pay > 1 or t.pay < 0", 'write two rules, {deny: "A"} and'),
        (f"t.pay > {'9' * 200_000}", "more characters.*; write rules such as"),
        (f"t.{'x' * 200_000} > 1", "more characters.*; declare it"),
    ],
)
def test_a_rule_that_cannot_be_read_is_answered_with_how_to_write_it(tmp_path, rule, said):
    own = 'b]}, own: {type: boolean, "true": "yes", "false": "no"}'
    text = ONE.format(rule=f'{{deny: "{rule}"}}').replace("b]}", own)
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConstraintError) as refusal:
        checked_spec(tmp_path / "a.yaml")
    assert re.search(said, str(refusal.value))
    assert len(str(refusal.value)) < 1_000


def test_a_long_pattern_is_not_echoed_whole(tmp_path):
    long = ONE.format(rule="{fd: pay -> dept}").replace("[a, b]", f"{{pattern: z{'0' * 200_000}}}")
    (tmp_path / "a.yaml").write_text(long, encoding="utf-8")
    with pytest.raises(SpecError) as refusal:
        checked_spec(tmp_path / "a.yaml")
    assert len(str(refusal.value)) < 1_000
    assert str(refusal.value).endswith("write it like zip{501..99950}")
