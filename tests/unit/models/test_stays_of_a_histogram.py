"""How far a reader follows a histogram, from the door's answer to the bins of a model.

A stay is a run of functions of one module that are handed the histogram, in the order in which they
are first called. Reading an attribute of it and the arithmetic of arrays are no stays.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from types import FrameType

import numpy as np

from cloister.models.core.histograms import HistogramCounts, count_histogram
from cloister.models.core.noisy_table import NestedCounts, NoisyTable
from cloister.models.core.tails import NoisyCells
from cloister.models.task import Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian, Neighbours
from cloister.schema.attributes import Integer
from cloister.schema.domain import Domain
from cloister.schema.partition import Partition, declared_cells

HISTOGRAM = (Partition, NoisyTable, HistogramCounts, NestedCounts, NoisyCells)
AMOUNT = Integer(type="integer", min=0, max=9_999, bins=50)
TASK = Task(Domain.of({"amount": AMOUNT}, Path()), (), 5_000, Neighbours())


class Door:
    """Answers with falling counts, after which the walk begins."""

    neighbours = Neighbours()

    def __init__(self) -> None:
        self.walk: list[tuple[str, str]] = []

    def answer(self, query, mechanism, label):  # noqa: ARG002 - what a door is asked
        self.walk.clear()
        size = query.partitions[0].size
        return np.random.default_rng(1).poisson(1_000 * np.exp(-np.arange(size) / size * 6))

    def watch(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount]
        values = [frame.f_locals.get(name) for name in names] if event == "call" else []
        handed = any(isinstance(value, HISTOGRAM) for value in values)
        if handed and names != ("self",) and "/models/" in code.co_filename:
            self.walk.append((Path(code.co_filename).stem, code.co_name))


def walk_of(make: Callable[[Door], object]) -> list[str]:
    """The modules of the stays, in their order."""
    door = Door()
    sys.setprofile(door.watch)
    try:
        make(door)
    finally:
        sys.setprofile(None)
    return [module for module, _ in groupby(dict.fromkeys(door.walk), lambda each: each[0])]


def test_a_histogram_has_few_stays_and_returns_once() -> None:
    cells, noise = declared_cells(TASK.domain["amount"]), DiscreteGaussian(Fraction(10))
    walk = walk_of(lambda door: count_histogram(door, cells, noise, noise, [noise]).bins(TASK))
    assert len(walk) <= 7
    assert len(walk) - len(set(walk)) <= 2
    assert {"histograms", "estimator", "tails", "bins"} <= set(walk)
