"""The copula on millions of rows of hundreds to thousands of binary columns, through the door.

The paper's sizes, with made rows: the data of its second set are not public.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical
from cloister.schema.domain import Domain, Table

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7_200)]

DSS = (2,) * 10 + (4,) * 6 + (10,) * 4 + (40,) * 3 + (100,) * 2 + (135,) * 2
"""27 attributes of 674 values in all, as the paper's social security payments have."""

CASES = {
    "dss": (5_240_260, DSS, 180),
    "1000": (5_000_000, (2,) * 1_000, 300),
    "2000": (5_000_000, (2,) * 2_000, 900),
}
MEMORY = 8 << 30
GROUP = 10


@contextmanager
def made(rows: int, sizes: tuple[int, ...]) -> Iterator[Table]:
    """Rows whose attributes depend on each other in groups of ten, on disk, a byte a cell."""
    domain = Domain.of(
        {
            f"c{at}": Categorical(type="categorical", values=[f"v{v}" for v in range(size)])
            for at, size in enumerate(sizes)
        },
        Path(),
    )
    rng = np.random.default_rng(1)
    with tempfile.TemporaryFile() as file:
        cells = np.memmap(file, dtype=np.uint8, mode="w+", shape=(len(sizes), rows))
        for at, size in enumerate(sizes):
            if at % GROUP == 0:
                shared = rng.integers(0, 256, rows, dtype=np.uint8)
            own = rng.integers(0, 256, rows, dtype=np.uint8)
            level = (shared // 2 + own // 2).astype(np.uint16)
            cells[at] = np.minimum(level * size // 255, size - 1)
        cells.flush()
        yield Table(domain, {column.name: cells[at] for at, column in enumerate(domain.columns)})


class OwnMemory:
    """The peak memory of this process, without pages of files, which the system may take back."""

    EVERY = 0.2

    def __enter__(self):
        self.peak, self._done = 0, Event()
        self._thread = Thread(target=self._follow)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _follow(self):
        while not self._done.wait(self.EVERY):
            _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
            self.peak = max(self.peak, (resident - shared) * os.sysconf("SC_PAGE_SIZE"))


@pytest.mark.parametrize(("rows", "sizes", "seconds"), CASES.values(), ids=CASES)
def test_millions_of_rows_of_many_columns(
    record, real_from, fit_model, request, rows, sizes, seconds
) -> None:
    with made(rows, sizes) as table, OwnMemory() as memory:
        data = real_from(table, Task(table.domain, (), rows, Neighbours()))
        begun, cpu = time.monotonic(), time.process_time()
        fit = fit_model(data, "copula")
        fitted = time.monotonic() - begun
        drawn = sum(chunk.rows for chunk in fit.model.sampler.chunks(rows, SamplingSource(1)))
        wall, spent = time.monotonic() - begun, time.process_time() - cpu
    record(
        f"copula-{request.node.callspec.id}",
        f"{rows:,} rows of {len(sizes):,} attributes with {sum(sizes):,} values, method copula, "
        "epsilon 1, rows on disk, plan, fit and sample",
        ("wall s", "of which fit", "CPU s", "peak MiB of its own", "target, s"),
        [(f"{wall:.0f}", f"{fitted:.0f}", f"{spent:.0f}", f"{memory.peak >> 20}", f"{seconds}")],
    )
    assert drawn == rows
    assert memory.peak < MEMORY
    assert wall < seconds
