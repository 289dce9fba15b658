"""Processor time of counting all pairs of columns, and of reading persons, also by workers."""

import time
from itertools import combinations
from pathlib import Path

import customers
import numpy as np
import pandas as pd
import psutil
import pytest
from specs import spec_of

from cloister.models.task import task_of
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain, Table
from cloister.schema.joint_counts import JointCounts
from cloister.schema.partition import declared_cells
from cloister.schema.relations import Database
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data import row_readers
from cloister.tasks.data.workers import workers_of

pytestmark = pytest.mark.benchmark

CUSTOMERS = 300_000
"""Customers with ten orders each, about."""

PERSONS = 3_000_000
"""Rows of persons, of whom one has three in ten."""


def seconds() -> float:
    """Processor seconds of this process and of its workers."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def test_all_pairs_of_fifteen_columns() -> None:
    rows, rng = 10_000_000, np.random.default_rng(1)
    domain = Domain.of({f"c{n}": Integer(type="integer", min=0, max=15) for n in range(15)}, Path())
    table = Table(
        domain, {name: rng.integers(0, 16, rows, dtype=np.uint8) for name in domain.names}
    )
    pairs = JointCounts(list(combinations([declared_cells(column) for column in domain], 2)))
    pairs.of(table.take(slice(1_000)))  # which compiles
    begin = time.process_time()
    assert all(counts.sum() == rows for counts in pairs.of(table))
    took = time.process_time() - begin
    print(f"\n105 pairs of {rows:,} rows: {took:.1f} processor seconds")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_persons_read_and_bounded(tmp_path, monkeypatch, workers) -> None:
    monkeypatch.setattr(row_readers, "_PART_ROWS", PERSONS // 10)
    rng, path = np.random.default_rng(1), tmp_path / "visits.parquet"
    numbers = rng.integers(0, PERSONS // 4, PERSONS) * (rng.random(PERSONS) < 0.7)
    columns = {f"c{n}": rng.integers(0, 16, PERSONS).astype("int8") for n in range(6)}
    names = {"person": [f"P{n:07}" for n in numbers], "city": np.array(list("abc"))[numbers % 3]}
    pd.DataFrame(names | columns).to_parquet(path, row_group_size=PERSONS // 10)
    attributes = {
        "person": {"type": "text", "pattern": "P{0000000..9999999}"},
        "city": {"type": "categorical", "values": ["a", "b", "c"], "per": "person"},
    } | {name: {"type": "integer", "min": 0, "max": 15} for name in columns}
    unit = {"key": "person", "max_rows": 5}
    content = spec_of("visits", PERSONS, attributes, unit=unit)
    spec = Spec.declared_in(tmp_path, content | {"source": {"path": str(path)}})
    domain = task_of(spec, {"visits": PERSONS}).lead.domain
    source = row_readers.TableSource(spec, domain, None, ())
    bound = row_readers.PersonBound(spec.privacy.unit, b"key of a benchmark")
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        reader: row_readers.RowReader = (
            row_readers.OnWorkers(cluster) if cluster else row_readers.InThisProcess()
        )
        begin, started = seconds(), time.perf_counter()
        rows = reader.persons(source, bound).bounded.rows
        took, wall = seconds() - begin, time.perf_counter() - started
    assert rows <= 5 * PERSONS
    print(f"\n{workers} workers: {took:.1f} processor seconds, {wall:.1f} s; {rows:,} rows stay")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_customers_and_orders_read_bounded_and_joined(tmp_path, monkeypatch, workers) -> None:
    monkeypatch.setattr(row_readers, "_PART_ROWS", CUSTOMERS)
    spec = load_spec(customers.write(tmp_path, CUSTOMERS))
    task = task_of(spec, dict.fromkeys(spec.tables, CUSTOMERS))
    sources = {
        name: row_readers.TableSource(spec.table(name), domain, None, ())
        for name, domain in task.schema.tables.items()
    }
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        reader: row_readers.RowReader = (
            row_readers.OnWorkers(cluster) if cluster else row_readers.InThisProcess()
        )
        begin, started = seconds(), time.perf_counter()
        tables = {name: reader.rows(source).read for name, source in sources.items()}
        bounded = reader.bound(Database(task.schema, tables), b"key of a benchmark")
        rows = {name: table.rows for name, table in bounded.queried().tables.items()}
        took, wall = seconds() - begin, time.perf_counter() - started
    assert rows["customers"] == CUSTOMERS and 0 < rows["orders"] <= 10 * CUSTOMERS
    print(f"\n{workers} workers: {took:.1f} processor seconds, {wall:.1f} s; {rows}")
