"""Made tables, long and wide: minutes, and memory that a laptop has."""

import resource
import time

import numpy as np
import pytest
from declared_table import domain_of

from cloister.evaluation.marginals import compare_marginals
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import Neighbours
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Categorical, Integer
from cloister.schema.domain import Table

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3_600)]

CLASSES = 40
LISTED = (*[2] * 8, *[5] * 8, *[9] * 6, *[16] * 6, *[40] * 4)
NUMERIC = 10
SECONDS, VIEW_SECONDS, MEMORY = 600, 120, 4 << 30


def made(rows: int, times: int) -> Table:
    """Rows of 40 hidden classes, each with a law of its own for each of ``times`` 42 attributes."""
    domain = domain_of(
        **{
            f"c{at}": Categorical(type="categorical", values=[f"v{v}" for v in range(size)])
            for at, size in enumerate(LISTED * times)
        },
        **{
            f"n{at}": Integer(type="integer", min=0, max=999, bins=50)
            for at in range(NUMERIC * times)
        },
    )
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, CLASSES, rows)
    codes = {}
    for column in domain.columns:
        if isinstance(column.attribute, Integer):
            codes[column.name] = np.clip(
                rng.normal(hidden % 7 * 110 + 150, 80, rows).astype(np.int64), 0, 999
            )
        else:
            heights = rng.dirichlet(np.full(column.size, 0.3), CLASSES).cumsum(1)[hidden]
            codes[column.name] = np.minimum(
                (heights < rng.random(rows)[:, None]).sum(1), column.size - 1
            )
    return Table(domain, codes)


CASES = {
    "long": (1_000_000, 1, "mixture"),
    "wide": (1_000, 7, "mixture"),
    "views": (494_021, 1, "dpview"),
    "referees": (494_021, 1, "dpview+"),
}


@pytest.mark.parametrize(("rows", "times", "method"), CASES.values(), ids=CASES)
def test_long_and_wide_tables(record, real_from, fit_model, request, rows, times, method) -> None:
    table = made(rows, times)
    data = real_from(table, Task(table.domain, (), rows, Neighbours()))
    begun, cpu = time.monotonic(), time.process_time()
    fit = fit_model(data, method)
    drawn = sum(chunk.rows for chunk in fit.model.sampler.chunks(rows, SamplingSource(1)))
    seconds, spent = time.monotonic() - begun, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    errors = [
        each.half_l1 for each in compare_marginals(table, fit.model.sample(rows, SamplingSource(1)))
    ]
    line = (
        f"{seconds:.0f}",
        f"{spent:.0f}",
        f"{memory >> 20}",
        *(f"{error:.4f}" for error in errors),
    )
    size = f"{rows:,} rows of {42 * times} attributes"
    title = f"{size}, method {method}, epsilon 1, plan, fit and sample"
    headings = ("wall s", "CPU s", "peak MiB", "1-way", "2-way", "3-way half L1")
    record(f"{request.node.callspec.id}-table", title, headings, [line])
    assert drawn == rows
    assert seconds <= (SECONDS if method == "mixture" else VIEW_SECONDS)
    assert memory <= MEMORY
