"""Wall and processor time of a row in counting and in drawing, in this process and by workers.

Beyond one process a worker costs the more, the more of its time is not the rows'.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import cloudpickle
import coded_census
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from shape import release_rows

from cloister.models.sampling.drawing import in_threads
from cloister.models.task import task_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.joint_counts import JointCounts
from cloister.schema.partition import declared_cells
from cloister.schema.spec_files.loading import load_spec
from cloister.schema.validation import read_table
from cloister.tasks.data.held_rows import HeldBlocks
from cloister.tasks.data.parts import SampleRequest, sample_to
from cloister.tasks.data.workers import Workers, workers_of

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3_600)]

BLOCKS, BLOCK_ROWS, SCANS = 10, 1_000_000, 5
"""Blocks of rows that are counted, each some 14 MB, and how often."""

FITTED, DRAWN = 50_000, 3_000_000
"""Rows of the table that the model is of, and rows that it draws."""


def seconds() -> float:
    """Processor seconds of this process and of its workers."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@contextmanager
def timed(what: str, workers: int, rows: int) -> Iterator[None]:
    """Say what a row takes."""
    begin, started = seconds(), time.perf_counter()
    yield
    wall, took = time.perf_counter() - started, seconds() - begin
    rows_a_million = rows / 1e6
    print(
        f"\n{what}, {workers} workers: {took / rows_a_million:.3f} processor microseconds a row, "
        f"{wall / rows_a_million:.3f} of wall"
    )


def block_of(domain: Domain, seed: int) -> Table:
    """Rows of a block, the same wherever they are made."""
    rng = np.random.default_rng(seed)
    codes = {column.name: rng.integers(0, column.size, BLOCK_ROWS) for column in domain}
    return Table(domain, codes).narrow()


def table_of(domain: Domain, workers: Workers | None) -> Table:
    """The table in memory, or with workers."""
    if workers is None:
        return Table.concatenate(block_of(domain, seed) for seed in range(BLOCKS))
    held = workers.hold(lambda seed: (block_of(domain, seed), None), range(BLOCKS))
    return BlockTable.over(HeldBlocks.of(workers, domain, held))


@pytest.fixture(scope="module")
def census(tmp_path_factory) -> Path:
    return coded_census.write(tmp_path_factory.mktemp("census"), FITTED)


@pytest.fixture(scope="module")
def model(census):
    spec = load_spec(census)
    task = task_of(spec, {spec.name: FITTED}).lead
    return release_rows(read_table(spec, task.domain)[0], task, 1, "mixture").model


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_all_pairs_counted(census, workers: int) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers do not have
    domain = task_of(spec := load_spec(census), {spec.name: FITTED}).lead.domain
    pairs = JointCounts(list(combinations([declared_cells(column) for column in domain], 2)))
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        table = table_of(domain, cluster)
        pairs.of(table)  # which compiles
        with timed("all pairs counted", workers, SCANS * table.rows):
            for _ in range(SCANS):
                counts = pairs.of(table)
    assert all(own.sum() == BLOCKS * BLOCK_ROWS for own in counts)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_rows_drawn(model, workers: int) -> None:
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        mapper = cluster.map if cluster else in_threads
        for rows in (DRAWN // 5, DRAWN):  # all compile first
            chunks = model.sampler.chunks(rows, SamplingSource(1), mapper=mapper)
            with timed("drawn" if rows == DRAWN else "compiled", workers, rows):
                assert sum(chunk.rows for chunk in chunks) == rows


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_rows_drawn_to_a_file(model, tmp_path, workers: int) -> None:
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        mapper = cluster.map if cluster else in_threads
        first = SampleRequest("model", DRAWN // 5, 1)
        sample_to(model.sampler, first, tmp_path / "first.parquet", mapper)  # all compile
        with timed("drawn and written", workers, DRAWN):
            sample_to(
                model.sampler, SampleRequest("model", DRAWN, 1), tmp_path / "rows.parquet", mapper
            )
    assert pq.read_metadata(tmp_path / "rows.parquet").num_rows == DRAWN
