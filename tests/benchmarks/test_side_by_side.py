"""Sub-models side by side: one batch of matrices takes less time than sub-models on threads."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from cloister.models.kamino.paper.heads import ATTENTIONS, LevelHead, Units
from cloister.models.kamino.paper.submodels import SubModel
from cloister.models.kamino.paper.training import Stack
from cloister.models.kamino.training import gradient_in_units
from cloister.privacy.queries.clipped_gradients import clipped_sum

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7_200)]

# Levels of Adult's attributes at epsilon 1, and the rows that are computed at once.
SIZES = (2, 16, 2, 2, 5, 6, 7, 8, 15, 20, 14, 14, 16, 17, 9)
ROWS = 512
REPEATS = 60


def test_one_batch_takes_less_time_than_threads(record) -> None:
    units = Units(tuple((at,) for at in range(len(SIZES))), SIZES)
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack([torch.randint(0, size, (ROWS,), generator=generator) for size in SIZES], 1)
    submodels = tuple(
        SubModel(at, units, ATTENTIONS["softmax"], LevelHead(np.full(size, 1 / size)))
        for at, size in enumerate(SIZES)
        if at
    )
    starts = [own.initial({}, generator) for own in submodels]
    stack = Stack(submodels)
    joined = stack.joined(starts)

    def own_gradient(at: int) -> None:
        submodel, start = submodels[at], starts[at]
        clipped_sum(gradient_in_units(submodel.gradient(start, codes), submodel.gains()), 1.0)

    with threadpool_limits(1), ThreadPoolExecutor(2) as workers:
        found = alternating(
            {
                "each on its own, one thread": lambda: [
                    own_gradient(at) for at in range(len(starts))
                ],
                "each on its own, two threads": lambda: list(
                    workers.map(own_gradient, range(len(starts)))
                ),
                "one batch, one thread": lambda: clipped_sum(
                    gradient_in_units(stack.gradient(joined, codes), stack.gains()), 1.0
                ),
            }
        )
    lines = [(way, *(f"{1e3 * seconds:.1f}" for seconds in took)) for way, took in found.items()]
    title = f"Clipped gradients of {ROWS} rows, {len(starts)} sub-models; least of {REPEATS}"
    record("side-by-side", title, ("computed", "wall ms", "CPU ms"), lines)
    threads, batch = found["each on its own, two threads"], found["one batch, one thread"]
    assert batch[1] < threads[1]


def alternating(ways: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Least wall and CPU seconds of each way, which take turns."""
    least = dict.fromkeys(ways, (float("inf"), float("inf")))
    for _ in range(REPEATS):
        for name, run in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            took = time.perf_counter() - wall, time.process_time() - cpu
            least[name] = min(least[name][0], took[0]), min(least[name][1], took[1])
    return least
