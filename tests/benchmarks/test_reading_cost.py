"""Processor time of reading, checking, coding and hashing a cell of Parquet, by kind of column."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from specs import spec_of

from cloister.models.task import task_of
from cloister.schema.spec import Spec
from cloister.schema.validation import read_table

pytestmark = pytest.mark.benchmark

ROWS, COLUMNS = 1_000_000, 4
KEY = {"type": "text", "pattern": "P{00000001..99999999}"}


def numbered(numbers: np.ndarray) -> list[str]:
    return [f"P{number + 1:08}" for number in numbers]


DRAWN = {
    "categories": (
        {"type": "categorical", "values": ["a", "bb", "ccc", "dddd"]},
        lambda rng: np.array(["a", "bb", "ccc", "dddd"])[rng.integers(0, 4, ROWS)],
    ),
    "integers": (
        {"type": "integer", "min": 0, "max": 99},
        lambda rng: rng.integers(0, 100, ROWS).astype("int8"),
    ),
    "dates": (
        {"type": "date", "min": "1990-01-01", "max": "2020-12-31"},
        lambda rng: pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 9_999, ROWS), "D"),
    ),
    "keys": (KEY, lambda rng: numbered(rng.permutation(ROWS))),
    "keys in order": (KEY, lambda rng: numbered(np.arange(ROWS))),
    "references, ten rows each": (KEY, lambda rng: numbered(rng.integers(0, ROWS // 10, ROWS))),
    "references, a thousand rows each": (
        KEY,
        lambda rng: numbered(rng.integers(0, ROWS // 1000, ROWS)),
    ),
}
"""How columns of each kind are declared, and drawn."""


@pytest.mark.parametrize("kind", DRAWN)
def test_cells_of_a_kind(tmp_path: Path, kind: str) -> None:
    declared, draw = DRAWN[kind]
    rng, path = np.random.default_rng(1), tmp_path / "table.parquet"
    frame = pd.DataFrame({f"c{number}": draw(rng) for number in range(COLUMNS)})
    frame.to_parquet(path, row_group_size=ROWS // 4)
    content = spec_of("table", ROWS, dict.fromkeys(frame.columns, declared))
    spec = Spec.declared_in(tmp_path, content | {"source": {"path": str(path)}})
    domain = task_of(spec, {"table": ROWS}).lead.domain
    begin = time.process_time()
    table, _ = read_table(spec, domain)
    read = time.process_time() - begin
    for _ in range(2):
        table.keyed_hashes(b"key of a benchmark")
    took = time.process_time() - begin
    assert table.rows == ROWS
    cell = 1e9 / ROWS / COLUMNS
    print(f"\n{kind}: {took * cell:.0f} nanoseconds a cell, of which {read * cell:.0f} to read")
