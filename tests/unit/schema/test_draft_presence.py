"""Drafts propose when a column is missing, where another one says so in every row."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cloister.constraints.counting import count_violations
from cloister.models.task import task_of
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROWS = 400


def _frame():
    rng = np.random.default_rng(1)
    status = rng.choice(["active", "left", "it's over"], ROWS)
    q6 = rng.choice(["yes", "no", None], ROWS)
    flag = rng.integers(0, 2, ROWS)
    grade = rng.integers(1, 6, ROWS)
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, ROWS), "D"))
    number = pd.Series(rng.integers(0, 5_000, ROWS), dtype="Int64")
    note = pd.Series(rng.choice(["a", "b", "c"], ROWS))
    return pd.DataFrame(
        {
            "status": status,
            "leave date": days.mask(status == "active"),
            "q6": q6,
            "q7": number.mask(q6 != "yes"),
            "flag": flag,
            "amount": number.where(flag == 1),
            "grade": grade,
            "note": note.mask((grade > 3) | (rng.random(ROWS) < 0.2)),
            "with amount": days.where(flag == 1),
            "at random": number.mask(rng.random(ROWS) < 0.3),
        }
    )


EXPECTED = [
    "t.`leave date` is missing exactly if t.status = 'active'",
    "t.q7 is not missing exactly if t.q6 = 'yes'",
    "t.amount is missing exactly if t.flag = '0'",
    "t.note is missing if t.grade = 4 or t.grade = 5",
    "t.`with amount` is missing exactly if t.flag = '0'",
]


def _proposals(text):
    return [line[1:] for line in text.splitlines() if line.startswith("#  - ")]


def _obeyed(folder: Path, text: str) -> list[str]:
    """The proposals of a draft, declared; the file that was drafted obeys them."""
    declared = text.replace("\nconstraints: []", "\nconstraints:").replace("\n#  - ", "\n  - ")
    (folder / "declared.yaml").write_text(declared, encoding="utf-8")
    spec = load_spec(folder / "declared.yaml")
    task = task_of(spec, {spec.name: ROWS}).lead
    table, _ = read_table(spec, task.domain)
    assert task.hard and not any(count_violations(rule, table) for rule in task.hard)
    return [rule.check for rule in spec.constraints]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_missing_where_another_column_says_so_is_proposed(tmp_path, drafted, kind):
    text, spec = drafted(_frame(), f"staff.{kind}")
    assert spec.constraints == ()
    assert len(_proposals(text)) == len(EXPECTED)
    assert _obeyed(tmp_path, text) == EXPECTED


def test_columns_that_are_missing_together_are_proposed_once(drafted):
    rng = np.random.default_rng(2)
    columns = {"all": rng.integers(0, 900, ROWS), "street": rng.integers(0, 900, ROWS)}
    frame = pd.DataFrame(columns | {"town": rng.choice(["x", "y"], ROWS)}).convert_dtypes()
    frame.loc[rng.random(ROWS) < 0.5, ["street", "town"]] = None
    (line,) = _proposals(drafted(frame)[0])
    assert "t.town is missing exactly if t.street is missing" in line


def test_few_rows_and_chance_propose_nothing_and_say_nothing_of_it(drafted):
    rng = np.random.default_rng(3)
    columns = {f"c{index}": rng.choice([*"abcde"], 120) for index in range(20)}
    frame = pd.DataFrame(columns, dtype=object)
    for index in range(20):
        frame.loc[rng.choice(120, rng.integers(2, 110), replace=False), f"c{index}"] = None
    text, spec = drafted(frame)
    assert not _proposals(text)
    assert "All rows agree" not in text
    assert spec.constraints == ()


def test_clock_times_and_grouped_numbers_are_named_as_rules_write_them(tmp_path, drafted):
    rng = np.random.default_rng(4)
    minutes, amount = rng.choice([0, 510, 735], ROWS), rng.choice([-441_150, 900, 12_000], ROWS)
    columns = {
        "opens": np.array([f"{minute // 60:02d}:{minute % 60:02d}" for minute in minutes]),
        "amount": np.array([f"{number:,}".replace(",", "'") for number in amount]),
        "late": np.where(minutes == 510, "", rng.integers(0, 900, ROWS).astype(str)),
        "paid": np.where(amount < 0, "", rng.integers(0, 900, ROWS).astype(str)),
    }
    assert _obeyed(tmp_path, drafted(pd.DataFrame(columns))[0]) == [
        "t.late is missing exactly if t.opens = 510",
        "t.paid is missing exactly if t.amount = -441150",
    ]
