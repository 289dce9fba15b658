"""One training of DPView: attributes, joint tables and views are counted through the door.

All else is free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.privacy.mechanisms.counts import DiscreteLaplace
from cloister.privacy.queries.partition_counts import PartitionCounts
from cloister.privacy.queries.query import Door
from cloister.privacy.queries.table_rows import Partition, TableRows
from cloister.schema.cells import declared_cells
from models.discretization.bins import Bins, group
from models.discretization.coarsening import Coarsening, coarse
from models.discretization.denoising import estimate_shares
from models.dpview.consistency import agreed, settled
from models.dpview.shrinkage import shrunk
from models.dpview.tables import Names, View
from models.dpview.view_choice import Query, ViewParameters, queries
from models.protocol import Plan, Progress, Task
from models.sampling.support_builder import Measured

GROUPS = 20


@dataclass(frozen=True)
class Released:
    """All that a training releases: groups of each attribute, joint tables over them, and views over readings."""

    groups: Mapping[str, Bins]
    readings: Mapping[str, Coarsening]
    tables: Mapping[Names, Measured]
    views: tuple[View, ...]


class Counting:
    """Counts what a plan holds, through the door, each query with its own noise."""

    def __init__(
        self, private: Door[TableRows], task: Task, plan: Plan[ViewParameters], progress: Progress
    ) -> None:
        self._private, self._task, self._plan, self._progress = private, task, plan, progress
        self._shape = plan.parameters.shape
        self._asked = list(queries(task, self._shape))
        self._done = 0

    def run(self) -> Released:
        """Every query of the plan; views agree with each other when they are handed on."""
        single = {
            query.names[0]: self._count([self._cells(query)], query)
            for query in self._of("attributes")
        }
        groups = {name: self._grouped(name, view) for name, view in single.items()}
        readings = {name: coarse(groups[name], self._shape.parts) for name in self._inside()}
        tables = {
            q.names: self._count([groups[name] for name in q.names], q)
            for q in self._of("joint tables")
        }
        joined = [*self._of("views"), *self._of("upper views")]
        views = [self._count([readings[name] for name in query.names], query) for query in joined]
        alone = [_summed(single[name], reading) for name, reading in readings.items()]
        measured = {
            names: Measured(names, view.counts, view.deviation) for names, view in tables.items()
        }
        return Released(groups, readings, measured, denoised(views, alone, self._task.data_rows))

    def _of(self, stage: str) -> list[Query]:
        return [query for query in self._asked if query.stage == stage]

    def _inside(self) -> Names:
        return self._shape.views.sequence if self._shape.views else ()

    def _cells(self, query: Query) -> Partition:
        return declared_cells(self._task.domain[query.names[0]])

    def _count(self, partitions: Sequence[Partition], query: Query) -> View:
        mechanism = DiscreteLaplace(self._plan.parameters.epsilons[query.label])
        counts = self._private.answer(PartitionCounts(tuple(partitions)), mechanism, query.label)
        self._done += 1
        self._progress(self._done, len(self._asked))
        scale = mechanism.scale(self._private.neighbours.partition)
        return View(query.names, counts.astype(np.float64), deviation_of(scale))

    def _grouped(self, name: str, view: View) -> Bins:
        cells = declared_cells(self._task.domain[name])
        shares = estimate_shares(
            view.counts.astype(np.int64), view.deviation, cells, self._task.data_rows
        )
        constrained = {name for constraint in self._task.hard for name in constraint.attributes}
        return group(
            cells, shares, view.deviation / self._task.data_rows, name in constrained, GROUPS
        )


def deviation_of(scale: float) -> float:
    """The standard deviation of discrete Laplace noise, in rows."""
    ratio = math.exp(-1.0 / scale)
    return math.sqrt(2.0 * ratio) / (1.0 - ratio)


def denoised(views: Sequence[View], alone: Sequence[View], rows: int) -> tuple[View, ...]:
    """Views that agree with each other and with the attributes alone, without what noise explains, none negative."""
    if not views:
        return ()
    together = agreed([*views, *alone], rows)
    narrowed = [shrunk(view) for view in together[: len(views)]]
    return tuple(settled([*narrowed, *together[len(views) :]], rows)[: len(views)])


def _summed(single: View, reading: Coarsening) -> View:
    """The histogram of an attribute over the parts of its reading."""
    part = reading.parts[reading.groups.of_cell]
    counts = np.bincount(part, weights=single.counts, minlength=reading.size).astype(np.float64)
    return View(single.names, counts, single.deviation * math.sqrt(len(part) / reading.size))
