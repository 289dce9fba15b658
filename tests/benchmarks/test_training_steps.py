"""Wall and processor time of a step of DP-SGD on large batches, in this process and by workers."""

import sys
import time
from fractions import Fraction
from pathlib import Path
from statistics import median

import cloudpickle
import numpy as np
import psutil
import pytest
import torch

from cloister.models.kamino.networks import TupleNetwork
from cloister.models.kamino.training import GradientAt
from cloister.privacy.mechanisms.noise import GaussianGradient
from cloister.privacy.mechanisms.randomness import NoiseSource
from cloister.privacy.queries import clipped_gradients
from cloister.privacy.queries.clipped_gradients import GradientSum, SampledRows
from cloister.privacy.queries.query import TableRows
from cloister.schema.attributes import Integer
from cloister.schema.block_table import BlockTable
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import declared_cells
from cloister.tasks.data.held_rows import HeldBlocks
from cloister.tasks.data.workers import Workers, workers_of

pytestmark = pytest.mark.benchmark

SIZES = (2, 2, 2, 3, 4, 4, 5, 7, 9, 11, 16, 16, 24, 85)
"""Levels of fourteen attributes, as those of a census."""

ROWS, PIECES, STEPS = 1_000_000, 4, 7


def seconds() -> float:
    """Processor seconds of this process and of its workers."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def rows_of(piece: int) -> Table:
    """Rows of a piece of the table, the same wherever they are made."""
    rng = np.random.default_rng(piece)
    levels = {f"a{n}": Integer(type="integer", min=0, max=size - 1) for n, size in enumerate(SIZES)}
    domain, rows = Domain.of(levels, Path()), ROWS // PIECES
    codes = {column.name: rng.integers(0, column.size, rows) for column in domain}
    return Table(domain, codes).narrow()


def with_nothing_found(piece: int) -> tuple[Table, None]:
    return rows_of(piece), None


def table_of(workers: Workers | None) -> Table:
    """The table in memory, or with workers."""
    if workers is None:
        return Table.concatenate(map(rows_of, range(PIECES)))
    held = workers.hold(with_nothing_found, range(PIECES))
    return BlockTable.over(HeldBlocks.of(workers, rows_of(0).domain, held))


def query_of(table: Table, batch: int) -> GradientSum:
    network = TupleNetwork(SIZES)
    shares = [np.full(size, 1 / size) for size in SIZES]
    start = network.initial(shares, torch.Generator().manual_seed(1))
    gradient = GradientAt(network, start, network.gains(), torch.device("cpu"))
    mechanism = GaussianGradient(Fraction(batch, ROWS), Fraction(1), 1.0)
    cells = tuple(declared_cells(column) for column in table.domain)
    return GradientSum(SampledRows(cells, mechanism, float(batch)), gradient, start)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch", [8_192, 50_000, 200_000])
def test_steps_of_training(monkeypatch, batch: int, workers: int) -> None:
    monkeypatch.setattr(clipped_gradients, "_LEAST_SPREAD", 0)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which workers do not have
    with workers_of(f"local:{workers}" if workers else None) as cluster:
        table, source = table_of(cluster), NoiseSource.insecure(1)
        query, rows = query_of(table, batch), TableRows(table)
        query.exact(rows, source)  # which loads libraries
        begin, walls = seconds(), []
        for _ in range(STEPS):
            started = time.perf_counter()
            query.exact(rows, source)
            walls.append(time.perf_counter() - started)
        took = (seconds() - begin) / STEPS
        by_workers = query.exact(rows, NoiseSource.insecure(2))
    here = query.exact(TableRows(table_of(None)), NoiseSource.insecure(2))
    assert np.array_equal(by_workers, here)
    print(
        f"\n{batch:,} rows, {workers} workers, {torch.get_num_threads()} threads here: "
        f"{median(walls):.3f} s a step, {took:.3f} processor seconds"
    )
