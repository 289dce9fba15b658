"""Whole releases of long and wide Parquet files: memory is that of a batch and of narrow codes.

Rows are made, yes and no, or texts, numbers and floats, a third of each.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import coded_census
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from specs import spec_of

from cloister.benchmarks import resources

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
LIBRARIES, BATCH = 300 << 20, 300 << 20
"""Bytes of the libraries of reading, and of a batch, at most."""
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
    named = {name: {**declared, "provenance": "made"} for name, declared in attributes.items()}
    content = spec_of("made", rows, named, method="independent", delta="1e-8")
    content["source"] = {"path": str(folder / "made.parquet")}
    (folder / "spec.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder / "spec.yaml"


OPEN = """
import sys, time
from pathlib import Path
from cloister.schema.domain import Domain
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table
spec = load_spec(Path(sys.argv[1]))
begun = time.process_time()
table, report = read_table(spec, Domain.of(spec.attributes, spec.folder))
seconds = time.process_time() - begun
held = sum(codes.nbytes for codes in table.stored.values())
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) << 10
print(seconds, peak, held, report.dropped)
"""


def test_opening_takes_a_batch_and_narrow_codes(record, tmp_path: Path) -> None:
    lines = []
    for rows, columns, binary in sorted({case[:3] for case in CASES.values()}):
        (tmp_path / str(columns)).mkdir()
        spec = made(tmp_path / str(columns), rows, columns, binary)
        said = subprocess.run(
            [sys.executable, "-c", OPEN, str(spec)], check=True, capture_output=True, text=True
        )
        seconds, memory, held, dropped = map(float, said.stdout.split())
        assert dropped == 0
        assert memory < LIBRARIES + BATCH + 2 * held
        kind = "yes and no" if binary else "texts, numbers, floats"
        mebibytes = (f"{own / 2**20:.0f}" for own in (memory, held))
        lines.append((f"{rows:,}", f"{columns}", kind, f"{seconds:.1f}", *mebibytes))
    record(
        "opening",
        "Reading, validating and encoding a Parquet file",
        ("rows", "columns", "cells", "CPU s", "peak MiB", "of which codes"),
        lines,
    )


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
    report = tmp_path / "used.json"
    metered = [sys.executable, resources.__file__, str(report), *command("release", spec, method)]
    subprocess.run(metered, env=env, check=True, stdout=subprocess.DEVNULL)
    used = json.loads(report.read_text(encoding="utf-8"))
    wall, cpu, memory = used["seconds"], used["cpu_seconds"], used["memory"]
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


OUT_OF_CORE = """
import sys
from cloister.flows.cli.app import run
from cloister.tasks.data import sources
from cloister.tasks.requests import plan
plan.is_out_of_core = sources.is_out_of_core = lambda *_: sys.argv[1] == "out of core"
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize(("rows_are", "most"), [("in memory", 1.75), ("out of core", 1.5)])
def test_ten_million_rows_are_released_in_minutes(record, tmp_path, rows_are, most) -> None:
    spec, report = coded_census.write(tmp_path, 10_000_000), tmp_path / "used.json"
    words = command("release", spec, "mixture")[1:]
    metered = [sys.executable, resources.__file__, str(report), sys.executable, "-c", OUT_OF_CORE]
    env = {**os.environ, "CLOISTER_HOME": str(tmp_path / "home"), "PYTHONPATH": os.getcwd()}
    subprocess.run([*metered, rows_are, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    used = json.loads(report.read_text(encoding="utf-8"))
    record(
        f"release-census-{rows_are.replace(' ', '-')}",
        "`cloister release --method mixture --evaluate none`, a Parquet file of 10,000,000 rows of "
        f"14 columns with soft constraints (`tests/shapes/coded_census.py`), rows {rows_are}",
        ("wall s", "CPU s", "peak MiB"),
        [(f"{used['seconds']:.0f}", f"{used['cpu_seconds']:.0f}", f"{used['memory'] / 2**20:.0f}")],
    )
    assert used["memory"] < most * 2**30
    assert used["cpu_seconds"] < 200


DRAWN_AT, MOST_CPU, MOST_MEMORY = 1_000_000, 10.8e-6, 2 << 30
"""Rows of the release; seconds of processors a row, 9 minutes of two of them for 10^8; bytes."""


@pytest.mark.parametrize("rows", [10_000_000, 100_000_000])
def test_rows_are_drawn_to_parquet_in_flat_memory(record, tmp_path: Path, rows: int) -> None:
    env = {**os.environ, "CLOISTER_HOME": str(tmp_path / "home")}
    spec, report = coded_census.write(tmp_path, DRAWN_AT), tmp_path / "used.json"
    words = command("release", spec, "mixture")
    done = subprocess.run(words, env=env, check=True, capture_output=True).stdout
    release, review = json.loads(done)["release"], ("--by", "A. Officer", "--reason", "a benchmark")
    program = words[0]
    subprocess.run([program, "review", "approve", release, *review], env=env, check=True)
    out = tmp_path / "rows.parquet"
    drawing = [program, "sample", release, "--rows", str(rows), "--out", str(out)]
    metered = [sys.executable, resources.__file__, str(report), *drawing]
    subprocess.run(metered, env=env, check=True, stdout=subprocess.DEVNULL)
    used = json.loads(report.read_text(encoding="utf-8"))
    size = out.stat().st_size
    record(
        f"draw-census-{rows}",
        f"`cloister sample --rows {rows:,}` to Parquet from a release by `mixture` of the coded "
        "census (`tests/shapes/coded_census.py`), drawn, written and checked",
        ("wall s", "CPU s", "CPU microseconds a row", "peak MiB", "MiB of the file"),
        [
            (
                f"{used['seconds']:.0f}",
                f"{used['cpu_seconds']:.0f}",
                f"{used['cpu_seconds'] / rows * 1e6:.2f}",
                f"{used['memory'] / 2**20:.0f}",
                f"{size / 2**20:.0f}",
            )
        ],
    )
    assert used["cpu_seconds"] < MOST_CPU * rows
    assert used["memory"] < MOST_MEMORY
