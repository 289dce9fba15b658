"""TPC-H orders with customer and nation: a million rows in minutes, memory that grows with rows.

Rows come from ``tpchgen-cli`` (PyPI), which is looked for on the path, or where
``CLOISTER_TPCHGEN`` says.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7_200)]

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "data" / "specs" / "tpch.yaml"
SIZES = (10_000, 100_000, 1_000_000)
SECONDS, BYTES_A_ROW = 300, 1_024

ORDERS = """
copy (
    select 'custkey_' || c_custkey as c_custkey, 'nationkey_' || c_nationkey as c_nationkey,
           c_acctbal, c_mktsegment, replace(n_name, ' ', '') as n_name,
           'regionkey_' || n_regionkey as n_regionkey,
           replace(o_orderpriority, ' ', '') as o_orderpriority, o_totalprice, o_orderstatus
    from (select * from '{folder}/orders.parquet' order by o_orderkey limit {rows})
    join '{folder}/customer.parquet' on o_custkey = c_custkey
    join '{folder}/nation.parquet' on c_nationkey = n_nationkey
    order by o_orderkey
) to '{out}' (header)
"""


@dataclass(frozen=True)
class Cost:
    """Wall and CPU seconds of a command and its children, and peak bytes of its largest process."""

    wall: float
    cpu: float
    memory: int


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = os.environ.get("CLOISTER_TPCHGEN") or shutil.which("tpchgen-cli")
    if program is None:
        pytest.skip("install tpchgen-cli, or set CLOISTER_TPCHGEN to it")
    folder = tmp_path_factory.mktemp("tpch")
    tables = ["--tables=orders,customer,nation", f"--output-dir={folder}"]
    subprocess.run([program, "parquet", "-s", "1", *tables], check=True, capture_output=True)
    return folder


def orders(generated: Path, rows: int) -> tuple[Path, Path]:
    """The first orders of scale factor 1 as CSV, and the spec for so many rows."""
    data, spec = generated / f"orders{rows}.csv", generated / f"orders{rows}.yaml"
    duckdb.sql(ORDERS.format(folder=generated, rows=rows, out=data))
    text = SPEC.read_text(encoding="utf-8")
    for old, new in (
        ("rows: {public: 19951}", f"rows: {{public: {rows}}}"),
        ("delta: 1e-5, per", "delta: 9e-7, per"),
        ("delta: 1e-6}", "delta: 1e-7}"),
    ):
        assert old in text
        text = text.replace(old, new)
    spec.write_text(text, encoding="utf-8")
    return data, spec


def released(spec: Path, data: Path, home: Path) -> tuple[Cost, dict]:
    """What one release cost, and what its command said."""
    options = [
        "--method",
        "kamino",
        "--epsilon",
        "1",
        "--delta",
        "1e-7",
        "--evaluate",
        "none",
        "--json",
    ]
    program = str(Path(sys.executable).with_name("cloister"))
    begun = time.monotonic()
    process = subprocess.Popen(
        [program, "release", str(spec), "--data", str(data), *options],
        stdout=(home.parent / "said.json").open("wb"),
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CLOISTER_HOME": str(home)},
    )
    _, status, used = os.wait4(process.pid, 0)
    cost = Cost(time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
    assert status == 0
    return cost, json.loads((home.parent / "said.json").read_text(encoding="utf-8"))


def test_a_million_orders_are_released_in_five_minutes(record, generated, tmp_path) -> None:
    costs, lines = {}, []
    for rows in SIZES:
        data, spec = orders(generated, rows)
        costs[rows], said = released(spec, data, tmp_path / "home")
        violations = [found["violations"] for found in said["violations"]]
        assert violations == [0, 0, 0, 0]
        cost = costs[rows]
        seen = (
            f"{rows:,}",
            f"{cost.wall:.0f}",
            f"{cost.cpu:.0f}",
            f"{cost.memory / 2**20:.0f}",
            str(sum(violations)),
        )
        lines.append(seen)
    least, most = costs[SIZES[0]], costs[SIZES[-1]]
    slope = (most.memory - least.memory) / (SIZES[-1] - SIZES[0])
    record(
        "tpch-scale",
        f"Releasing TPC-H orders, method kamino, epsilon 1: {slope:.0f} bytes of memory a row",
        ("rows", "wall s", "CPU s", "peak MiB", "violations of 4 hard constraints"),
        lines,
    )
    assert most.wall <= SECONDS
    assert slope <= BYTES_A_ROW
