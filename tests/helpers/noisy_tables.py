"""Noisy tables of attributes that have nothing but a name and a number of parts."""

from pathlib import Path

import numpy as np

from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable
from cloister.schema.attributes import Categorical
from cloister.schema.domain import column_of
from cloister.schema.partition import Partition, single_values


def partition_of(name: str, size: int) -> Partition:
    """A partition of an attribute into so many single values."""
    values = [str(number) for number in range(size)]
    return single_values(column_of(name, Categorical(type="categorical", values=values), Path()))


def noisy_table(names: tuple[str, ...], counts: np.ndarray, deviation: float) -> NoisyTable:
    """Counts over attributes of these names, one axis each."""
    return NoisyTable(tuple(map(partition_of, names, counts.shape)), counts, deviation)


def shares_of(counts: np.ndarray, deviation: float, cells: Partition, rows: int) -> np.ndarray:
    """The shares of ``rows`` rows that are estimated from noisy counts of cells alone."""
    return HistogramCounts(NoisyTable((cells,), counts, deviation)).shares(rows)[1]
