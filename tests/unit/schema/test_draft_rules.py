"""Drafts propose dependencies and orders that all rows of a file have, and no chance has."""

import numpy as np
import pandas as pd

from cloister.constraints.counting import count_violations
from cloister.models.task import task_of
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROWS = 1_000


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    shop = rng.integers(0, 30, ROWS)
    town, grade = shop % 8, rng.integers(1, 7, ROWS)
    ordered = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 600, ROWS), "D")
    sent = pd.Series(ordered + pd.to_timedelta(rng.poisson(3, ROWS), "D"))
    there = sent + pd.to_timedelta(1 + rng.poisson(9, ROWS), "D")
    gross = np.round(rng.normal(3_000, 700, ROWS).clip(500), 2)
    return pd.DataFrame(
        {
            "shop": [f"S{number:02d}" for number in shop],
            "town": [f"in {number}" for number in town],
            "region name": np.array(["north", "south"])[town % 2],
            "grade": grade,
            "title": np.array(["x", "a", "b", "c", "d", "e", "f"])[grade],
            "pay": 20_000 + grade * 1_500,
            "rare": rng.choice(["no", "yes"], ROWS, p=[0.999, 0.001]),
            "ordered": ordered.strftime("%d/%m/%Y"),
            "sent": sent.dt.strftime("%d/%m/%Y").mask(rng.random(ROWS) < 0.2),
            "there": there.dt.strftime("%d/%m/%Y"),
            "gross": [f"{pay:,.2f} €" for pay in gross],
            "net": [f"{pay * 0.7:,.2f} €" for pay in gross],
            "age": rng.integers(18, 90, ROWS),
            "children": rng.integers(0, 5, ROWS),
            "number": np.arange(ROWS) + 1,
        }
    )


EXPECTED = [
    {"fd": "shop -> town"},
    {"fd": "town -> `region name`"},
    {"fd": "grade -> title, pay"},
    {"deny": "t.ordered > t.sent"},
    {"deny": "t.ordered > t.there"},
    {"deny": "t.sent > t.there"},
    {"deny": "t.net > t.gross"},
]


def _lines(text: str) -> list[str]:
    return [line[5:] for line in text.splitlines() if line.startswith("#  - ")]


def test_what_all_rows_obey_is_proposed_once_and_satisfied_by_the_file(tmp_path, drafted):
    text, _ = drafted(_frame())
    expected = [rule for rule in EXPECTED if rule != {"deny": "t.ordered > t.there"}]
    assert _lines(text) == [
        f'{{{form}: "{text}", provenance: data-derived}}'
        for rule in expected
        for form, text in rule.items()
    ]
    declared = "constraints:\n" + "".join(f"  - {line}\n" for line in _lines(text))
    first = next(line for line in text.splitlines() if line.startswith("constraints:"))
    (tmp_path / "shops.yaml").write_text(text.replace(first, declared))
    spec = load_spec(tmp_path / "shops.yaml")
    task = task_of(spec, {spec.name: ROWS}).lead
    table, _ = read_table(spec, task.domain)
    assert [count_violations(rule, table) for rule in task.hard] == [0] * 7


def test_one_row_is_enough_for_no_proposal(drafted):
    frame = _frame()
    last = {"town": frame["town"][0], "title": frame["title"][0], "sent": "01/01/2021"}
    last |= {"net": "9,999.00 €", "shop": "S29", "grade": 5}
    frame.loc[ROWS - 1, list(last)] = list(last.values())
    text = "\n".join(_lines(drafted(frame)[0]))
    assert not [
        lost for lost in ("-> town", "title", "t.ordered > t.sent", "t.net") if lost in text
    ]


def test_columns_without_a_dependence_have_no_proposal(drafted):
    rng = np.random.default_rng(5)
    columns = {f"c{index}": rng.integers(0, 2 + index, 400) for index in range(25)}
    numbers = {f"n{index}": rng.normal(index, 1, 400).round(3) for index in range(15)}
    assert not _lines(drafted(pd.DataFrame(columns | numbers))[0])
