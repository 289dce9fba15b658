"""A constraint that cannot be used is named with the line of its spec."""

import pytest

from cloister.errors import ConstraintError
from tasks.requests.check import checked_spec

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
GOOD = '{deny: "t.pay > 8"}'
GOOD_ACROSS = '{deny: "staff.pay > staff.boss.pay"}'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ONE.format(rule='{deny: "t.pay > 1 or t.pay < 0"}'), 9),
        (ONE.format(rule="{fd: dept -> wage}"), 9),
        (ONE.format(rule='{deny: "t.dept > t.pay"}'), 9),
        (ONE.format(rule="""{deny: "t.dept = 'c'"}"""), 9),
        (SEVERAL.format(rule="""{deny: "t.pay = 'much'"}""", across=GOOD_ACROSS), 11),
        (SEVERAL.format(rule="{key: [wage]}", across=GOOD_ACROSS), 11),
        (SEVERAL.format(rule=GOOD, across='{deny: "staff.wage > staff.boss.pay"}'), 17),
    ],
)
def test_the_line_of_an_unusable_constraint_is_named(tmp_path, text, line):
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConstraintError, match=rf"a\.yaml, line {line}, constraint '"):
        checked_spec(tmp_path / "a.yaml")
