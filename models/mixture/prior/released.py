"""The noisy numbers of a fit, kept with its model so that a later fit can use them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.models.discretization.bins import Bins, Coarsening
from cloister.models.discretization.histograms import HistogramCounts
from cloister.models.mixture.fitting.optimizer import NoisyMarginal
from cloister.models.protocol import Arrays, ModelState
from cloister.models.task import Task
from cloister.schema.domain import declared_cells


@dataclass(frozen=True)
class ReleasedNumbers:
    """What a fit was told of a table of ``rows`` rows: noisy counts, over ``bins`` and their cells.

    ``tables`` are joint tables, the newest last.
    """

    rows: int
    bins: Mapping[str, Bins]
    histograms: Mapping[str, HistogramCounts]
    tables: tuple[NoisyMarginal, ...]

    def state(self, sequence: Sequence[str]) -> ModelState:
        """The numbers as JSON and arrays, but for the bins; attributes by ``sequence``."""
        held = [_state_of_histogram(at, self.histograms[name]) for at, name in enumerate(sequence)]
        held += [_state_of_table(at, table) for at, table in enumerate(self.tables)]
        arrays = {name: array for _, own in held for name, array in own.items()}
        about = [described for described, _ in held]
        return {"numbers": {"rows": self.rows, "of": about}}, arrays


def restore_numbers(
    task: Task, bins: Mapping[str, Bins], meta: Mapping[str, Any], arrays: Arrays
) -> ReleasedNumbers | None:
    """The numbers whose :meth:`ReleasedNumbers.state` is given.

    None if the model was saved without.
    """
    if "numbers" not in meta:
        return None
    sequence, about = meta["sequence"], meta["numbers"]["of"]
    histograms = {
        name: _restore_histogram(task, name, at, about[at], arrays)
        for at, name in enumerate(sequence)
    }
    tables = tuple(
        _restore_table(bins, at, own, arrays) for at, own in enumerate(about[len(sequence) :])
    )
    return ReleasedNumbers(meta["numbers"]["rows"], bins, histograms, tables)


def _state_of_histogram(at: int, counted: HistogramCounts) -> ModelState:
    kinds = {"cells": counted.counts, "wide": counted.wide, "values": counted.values}
    arrays: dict[str, NDArray[Any]] = {
        f"counted.{at}.{kind}": own for kind, own in kinds.items() if own is not None
    }
    about = {"deviation": counted.deviation}
    if counted.values is not None:
        about["value_deviation"] = counted.value_deviation
    return about, arrays


def _restore_histogram(
    task: Task, name: str, at: int, about: Mapping[str, Any], arrays: Arrays
) -> HistogramCounts:
    return HistogramCounts(
        declared_cells(task.domain[name]),
        arrays[f"counted.{at}.cells"],
        about["deviation"],
        arrays.get(f"counted.{at}.wide"),
        arrays.get(f"counted.{at}.values"),
        about.get("value_deviation", math.inf),
    )


def _state_of_table(at: int, table: NoisyMarginal) -> ModelState:
    arrays: dict[str, NDArray[Any]] = {
        f"table.{at}": table.counts,
        f"table.{at}.deviation": np.asarray(table.deviation),
    }
    arrays |= {f"table.{at}.{axis}": own.parts for axis, own in enumerate(table.coarsenings)}
    return {"attributes": [own.name for own in table.coarsenings]}, arrays


def _restore_table(
    bins: Mapping[str, Bins], at: int, about: Mapping[str, Any], arrays: Arrays
) -> NoisyMarginal:
    coarsenings = tuple(
        Coarsening(bins[name], arrays[f"table.{at}.{axis}"])
        for axis, name in enumerate(about["attributes"])
    )
    return NoisyMarginal(coarsenings, arrays[f"table.{at}"], arrays[f"table.{at}.deviation"])
