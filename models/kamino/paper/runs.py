"""Runs of attributes that are modelled as one: single ones, or hyper-attributes of small ones.

Source: Kamino section 4.3, "Optimizations for extreme domain sizes".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from cloister.models.kamino.sizes import Runs, single_runs

HYPER_LEVELS = 128
"""Joint levels of a hyper-attribute at most: its sub-model has one output for each."""


def hyper_runs(sizes: Sequence[int]) -> Runs:
    """Runs of neighbouring attributes, each as long as ``HYPER_LEVELS`` joint levels allow."""
    runs: list[list[int]] = []
    for place, size in enumerate(sizes):
        if runs and math.prod(sizes[p] for p in runs[-1]) * size <= HYPER_LEVELS:
            runs[-1].append(place)
        else:
            runs.append([place])
    return tuple(map(tuple, runs))


RUNS: Mapping[str, Callable[[Sequence[int]], Runs]] = {
    "attributes": single_runs,
    "hyper-attributes": hyper_runs,
}
