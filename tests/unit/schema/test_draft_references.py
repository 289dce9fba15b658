"""Drafts say how to declare a column whose values are keys of other rows of the same file."""

import numpy as np
import pandas as pd
import pytest

from cloister.models.task import task_of
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table

ROWS = 300


def _staff(prefix=""):
    rng = np.random.default_rng(1)
    boss = pd.Series([None, *(rng.integers(0, row) // 9 for row in range(1, ROWS))], dtype="Int64")
    names = pd.Series([f"{prefix}{row + 1}" for row in range(ROWS)])
    return pd.DataFrame(
        {
            "id": names,
            "boss": boss.map(lambda row: None if pd.isna(row) else names[row]),
            "age": rng.integers(18, 66, ROWS),
            "team": rng.integers(1, 9, ROWS),
        }
    )


def _hints(text):
    return [line for line in text.splitlines() if "so it names other rows" in line]


def _as_declared(text):
    """The draft as its hint says: tables in place of source, ignore, attributes, constraints."""
    lines = text.splitlines()
    start = lines.index("# tables:")
    stop = next(index for index, line in enumerate(lines) if line.startswith("release:"))
    hint = [line[2:] for line in lines[start:stop]]
    whole = lines.index("attributes:")
    columns = [
        f"    {line}" for line in lines[whole + 1 :] if line.startswith(("  age:", "  team:"))
    ]
    head = [line for line in lines[:whole] if not line.startswith(("source:", "ignore:"))]
    return "\n".join([*head, *hint, *columns, *lines[stop:]])


@pytest.mark.parametrize(("prefix", "kind"), [("", "csv"), ("E-", "csv"), ("", "parquet")])
def test_a_reference_to_its_own_table_is_hinted_at(tmp_path, drafted, prefix, kind):
    frame = _staff(prefix)
    text, whole = drafted(frame, f"staff.{kind}")
    (hint,) = _hints(text)
    assert hint.startswith("# boss holds values of id")
    assert whole.ignore == ()
    (tmp_path / "tables.yaml").write_text(_as_declared(text), encoding="utf-8")
    spec = load_spec(tmp_path / "tables.yaml")
    task = task_of(spec, {"staff": ROWS})
    assert [(key.column, key.parent) for key in task.schema.keys] == [("boss", "staff")]
    most = frame["boss"].value_counts().max()
    assert most <= task.schema.keys[0].max_rows <= 2 * most + 10
    table, _ = read_table(spec.table("staff"), task.tables["staff"].domain)
    assert np.isin(table.codes["boss"][1:], table.codes["id"]).all()


def test_odd_references_are_hinted_at_with_what_to_change_and_counts_refer_to_nothing(drafted):
    text, _ = drafted(_staff().astype({"boss": "float"}))
    assert len(_hints(text)) == 1
    assert "in the file without decimals" in text
    frame = _staff("E-")
    frame.loc[0, "boss"] = "E-1"
    assert "with no value in boss where a row is the first" in drafted(frame)[0]
    assert not _hints(drafted(_staff().drop(columns="boss"))[0])
