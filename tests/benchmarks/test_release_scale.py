"""Whole releases of long and wide Parquet files: memory is that of a batch and of narrow codes.

Rows are made, yes and no, or texts, numbers and floats, a third of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(14_400)]

CASES = {
    "mixed-copula": (2_000_000, 60, False, "copula"),
    "mixed-mixture": (2_000_000, 60, False, "mixture"),
    "binary-copula": (1_000_000, 300, True, "copula"),
    "binary-mixture": (1_000_000, 300, True, "mixture"),
}
GROUP = 10
"""Columns that depend on each other, in succession."""
PIECE = 200_000
"""Rows of a row group."""
LISTED = (2, 5, 12, 40)
FACTOR = 2
"""Between what a plan says and what is measured, at most."""


def attribute(at: int, binary: bool) -> dict:
    """The declaration of a column."""
    if binary:
        return {"type": "categorical", "values": [0, 1]}
    kinds = (
        {"type": "categorical", "values": [f"value {v}" for v in range(LISTED[at // 3 % 4])]},
        {"type": "integer", "min": 0, "max": 999},
        {"type": "float", "min": 0, "max": 100, "decimals": 2},
    )
    return kinds[at % 3]


def cells(declared: dict, level: np.ndarray) -> pa.Array:
    """A column of levels between 0 and 1."""
    if declared["type"] == "integer":
        return pa.array((level * 1_000).astype(np.int64))
    if declared["type"] == "float":
        return pa.array(np.round(level * 100, 2))
    values = pa.array(declared["values"])
    return values.take(pa.array((level * len(values)).astype(np.int64)))


def made(folder: Path, rows: int, columns: int, binary: bool) -> Path:
    """The spec of a made table, beside its file."""
    attributes = {f"c{at}": attribute(at, binary) for at in range(columns)}
    rng, writer = np.random.default_rng(1), None
    for first in range(0, rows, PIECE):
        count, piece = min(PIECE, rows - first), {}
        for at, (name, declared) in enumerate(attributes.items()):
            if at % GROUP == 0:
                shared = rng.random(count)
            piece[name] = cells(declared, (shared + rng.random(count)) / 2)
        table = pa.table(piece)
        writer = writer or pq.ParquetWriter(folder / "made.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    content = {
        "name": "made",
        "source": {"path": str(folder / "made.parquet")},
        "privacy": {
            "unit": "row",
            "relation": "add_remove",
            "rows": {"public": rows},
            "budget": {"epsilon": 1, "delta": "1e-7", "per": "ever"},
        },
        "attributes": {
            name: {**declared, "provenance": "made"} for name, declared in attributes.items()
        },
        "release": {"method": "independent", "epsilon": 1, "delta": "1e-8"},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "spec.yaml"


def command(name: str, spec: Path, method: str) -> list[str]:
    program = str(Path(sys.executable).with_name("cloister"))
    return [program, name, str(spec), "--method", method, "--evaluate", "none", "--json"]


@pytest.mark.parametrize(("rows", "columns", "binary", "method"), CASES.values(), ids=CASES)
def test_a_release_needs_what_its_plan_says(
    record, request, tmp_path: Path, rows: int, columns: int, binary: bool, method: str
) -> None:
    spec = made(tmp_path, rows, columns, binary)
    env = {**os.environ, "CLOISTER_HOME": str(tmp_path / "home")}
    said = subprocess.run(
        command("plan", spec, method), env=env, check=True, capture_output=True
    ).stdout
    told = json.loads(said)["forecast"]
    begun = time.monotonic()
    process = subprocess.Popen(
        command("release", spec, method), env=env, stdout=subprocess.DEVNULL, stderr=None
    )
    _, status, used = os.wait4(process.pid, 0)
    wall, cpu, memory = (
        time.monotonic() - begun,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss << 10,
    )
    assert status == 0
    kind = "yes and no" if binary else "texts, numbers and floats"
    record(
        f"release-{request.node.callspec.id}",
        f"`cloister release --method {method} --evaluate none`, a Parquet file of {rows:,} rows of "
        f"{columns} columns, {kind}",
        ("wall s", "CPU s", "CPU s by the plan", "peak MiB", "MiB by the plan"),
        [
            tuple(
                f"{v:.0f}"
                for v in (wall, cpu, told["seconds"], memory / 2**20, told["memory"] / 2**20)
            )
        ],
    )
    assert 1 / FACTOR < told["memory"] / memory < FACTOR
    assert 1 / FACTOR < told["seconds"] / cpu < FACTOR
