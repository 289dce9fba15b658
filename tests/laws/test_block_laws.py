"""Rows of other blocks of growing data change nothing of what is read of one, bit for bit."""

import json
import sqlite3
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from specs import listed, spec_of, whole

from cloister.errors import CloisterError, PlanError
from cloister.schema.blocks import blocks_of, previous
from cloister.schema.sources import parts
from cloister.schema.spec import BlockSpec, Spec
from cloister.tasks.data.sources import TablesSource
from cloister.tasks.home.home import Home
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import resolve

MONTHS = {
    "2026-09-30": "2026-09",
    "2026-10-01": "2026-10",
    "2026-10-31": "2026-10",
    "2026-11-01": "2026-11",
    "2026-10-15T00:00:00": "2026-10",
    "2026-10-31T23:59:59.999999": "2026-10",
    "2026-10-01T01:00:00+02:00": "2026-09",
    "2031-10-02": "2031-10",
    "1026-10-05": "1026-10",
    **dict.fromkeys(("", "?", "2026-10", "2026-13-01"), ""),
}
"""The month of each text, in UTC; of some none."""

MOMENTS = ("2026-10-31T23:59:59.999999", "2026-10-01T01:00:00+02:00")
"""Texts that are no dates."""

DAYS = st.sampled_from(sorted(MONTHS))
ROW = st.tuples(DAYS, st.sampled_from(["a", "b", "x"]), st.integers(-2, 11), st.integers(1, 4))
UNITS = {"row": "row", "person": {"key": "person", "max_rows": 2}}


def spec_in(folder: Path, source: str, kind: str, unit: str, on_invalid: str) -> Path:
    low, high = ("2026-01-01", "2026-12-31")
    moment = "T00:00:00" if kind == "datetime" else ""
    day = {"type": kind, "min": low + moment, "max": high + moment, "provenance": "form"}
    others = {"ward": listed("a", "b"), "cost": whole(0, 9), "person": whole(1, 4)}
    attributes = {"admitted": day, **others}
    content = spec_of("stays", 100, attributes, unit=UNITS[unit], method="independent")
    content["privacy"] |= {
        "block": {"column": "admitted", "per": "month"},
        "budget": {"epsilon": 10, "delta": "1e-4", "per": "ever"},
    }
    path = str(folder / f"rows.{source}")
    content |= {"source": {"path": path}, "validation": {"on_invalid": on_invalid}}
    if source == "sqlite":
        content["source"] = {"url": f"sqlite:///{folder}/rows.sqlite", "table": "rows"}
    path = folder / "spec.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def write(rows: list[tuple], path: Path) -> None:
    frame = pd.DataFrame(rows, columns=["admitted", "ward", "cost", "person"])
    path.unlink(missing_ok=True)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        with sqlite3.connect(path) as connection:
            frame.to_sql("rows", connection, index=False)


def opened(spec: Path, rows: list[tuple], block: str) -> Counter | None:
    """The rows behind the door as a multiset; None where there is none that is valid."""
    folder = spec.parent
    home = Home.current({"CLOISTER_HOME": str(folder / "home")})
    source = json.loads(spec.read_text(encoding="utf-8"))["source"]
    write(rows, folder / ("rows.sqlite" if "url" in source else Path(source["path"]).name))
    request = resolve(ReleaseRequest(spec=spec, block=block))
    try:
        database, _ = TablesSource().read_rows("r-1", request, home)
    except CloisterError:
        return None
    (table,) = database.tables.values()
    return Counter(zip(*(codes.tolist() for codes in table.codes.values()), strict=True))


@pytest.mark.parametrize("source", ["csv", "parquet", "sqlite"])
@pytest.mark.parametrize("kind", ["date", "datetime"])
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    unit=st.sampled_from(sorted(UNITS)),
    on_invalid=st.sampled_from(["drop", "clip"]),
    month=st.sampled_from(["2026-09", "2026-10", "2026-11"]),
)
def test_without_the_rows_of_other_months_those_of_one_are_read_alike(
    tmp_path: Path, source: str, kind: str, rows, unit: str, on_invalid: str, month: str
) -> None:
    spec = spec_in(tmp_path, source, kind, unit, on_invalid)
    own = [row for row in rows if month_of(row, kind) == month]
    assert opened(spec, rows, month) == (opened(spec, own, month) if own else None)


def month_of(row: tuple, kind: str) -> str:
    return "" if kind == "date" and row[0] in MOMENTS else MONTHS[row[0]]


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_a_range_reads_each_row_of_its_months_once(tmp_path: Path, rows) -> None:
    spec = spec_in(tmp_path, "csv", "datetime", "row", "drop")
    apart = [opened(spec, rows, f"2026-{month:02}") or Counter() for month in (9, 10, 11)]
    assert (opened(spec, rows, "2026-09..2026-11") or Counter()) == sum(apart, Counter())


def test_blocks_that_share_rows_are_caught(tmp_path: Path, monkeypatch) -> None:
    """Of each block the month before is read as well."""
    rows_in_blocks, shared = parts._rows_in_blocks, ("2026-09", "2026-10")
    monkeypatch.setattr(
        parts, "_rows_in_blocks", lambda rows, spec: rows_in_blocks(rows, spec.of_blocks(shared))
    )
    rows = [("2026-09-30", "a", 1, 1), ("2026-10-01", "b", 2, 2)]
    spec = spec_in(tmp_path, "csv", "date", "row", "drop")
    assert opened(spec, rows, "2026-10") != opened(spec, rows[1:], "2026-10")


def test_a_date_that_cannot_be_read_is_treated_as_invalid_cells_are(tmp_path: Path) -> None:
    good, bad = ("2026-10-15", "a", 1, 1), ("?", "a", 1, 1)
    for on_invalid, expected in (("drop", 1), ("clip", 1), ("fail", None)):
        found = opened(spec_in(tmp_path, "csv", "date", "row", on_invalid), [good, bad], "2026-10")
        assert (found and found.total()) == expected
    spec = spec_in(tmp_path, "csv", "date", "row", "fail")
    invalid = ("2026-09-15", "x", 99, 1)  # of another block: nothing of it is looked at
    assert opened(spec, [good, invalid], "2026-10") == opened(spec, [good], "2026-10")


def divided(per: str) -> Spec:
    spec = Spec.model_construct(privacy=None)
    privacy = type("Privacy", (), {"block": BlockSpec(column="admitted", per=per)})  # type: ignore[arg-type]
    return spec.model_copy(update={"privacy": privacy})


@pytest.mark.parametrize(
    ("per", "text", "blocks"),
    [
        ("month", "2026-10", ("2026-10",)),
        ("month", "2025-11..2026-02", ("2025-11", "2025-12", "2026-01", "2026-02")),
        ("month", "2026-10..2026-10", ("2026-10",)),
        ("month", "previous", ("2026-02",)),
        ("year", "2024..2026", ("2024", "2025", "2026")),
        ("year", "previous", ("2025",)),
    ],
)
def test_blocks_are_named_alone_in_ranges_or_as_the_one_before(per, text, blocks) -> None:
    assert blocks_of(divided(per), text, datetime(2026, 3, 31, 23, tzinfo=UTC)) == blocks


@pytest.mark.parametrize(
    ("per", "text"),
    [
        *(("month", text) for text in ("2026", "2026-13", "2026-10-01", "2026-10..2026-09")),
        *(("month", text) for text in ("2026-10..", "..2026-10", "0001-01..9999-12", "0000-01")),
        *(("year", text) for text in ("2026-10", "26", "2026..", "0000", "last", "")),
        ("month", None),
    ],
)
def test_what_names_no_block_is_refused(per, text) -> None:
    with pytest.raises(PlanError, match="--block"):
        blocks_of(divided(per), text)


def test_the_block_before_is_of_the_day_in_utc() -> None:
    late = datetime.fromisoformat("2026-11-01T00:30:00+02:00")
    assert (previous("month", late), previous("year", late)) == ("2026-09", "2025")
