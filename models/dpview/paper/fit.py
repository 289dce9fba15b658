"""One fit of DPView as its paper prints it: views are counted, and made to agree.

Source: Lin, Yu, Huang, "DPView", sections IV-D and IV-E.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cloister.arrays import Floats
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable, count_table
from cloister.models.dpview.model import DPViewModel, ReleasedTables, model_of_released
from cloister.models.dpview.paper.plan import printed_tables
from cloister.models.dpview.tables import LARGEST, make_consistent
from cloister.models.dpview.view_choice import ViewParameters
from cloister.models.protocol import Progress
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import Partition, equal_cells


def fit_printed(
    private: Door[TableRows], task: Task, plan: Plan[ViewParameters], progress: Progress
) -> DPViewModel:
    """All views, consistent and not negative; then the feasible sets of the hard constraints.

    The number of rows is the mean of the noisy totals, as if it were not known.
    """
    buckets = plan.parameters.shape.parts
    cells = {name: equal_cells(task.domain[name], buckets) for name in task.domain.modelled}
    counted = _count(private, task, plan, cells, progress)
    total = float(np.mean([view.counts.sum() for view in counted]))
    views = make_consistent(counted, max(total, 1.0))
    bins = {name: _bins(partition, views) for name, partition in cells.items()}
    viewed = {name for view in views for name in view.names}
    released = ReleasedTables(
        bins,
        {name: histogram for name, histogram in bins.items() if name in viewed},
        {},
        tuple(views),
    )
    return model_of_released(task, plan, released, LARGEST)


def _count(
    private: Door[TableRows],
    task: Task,
    plan: Plan[ViewParameters],
    cells: Mapping[str, Partition],
    progress: Progress,
) -> list[NoisyTable]:
    views: list[NoisyTable] = []
    planned = list(printed_tables(task, plan.parameters.shape))
    for query in planned:
        mechanism = DiscreteLaplace(plan.parameters.epsilons[query.label])
        partitions = [cells[name] for name in query.names]
        views.append(count_table(private, partitions, mechanism, query.label))
        progress(len(views), len(planned))
    return views


def _bins(cells: Partition, views: Sequence[NoisyTable]) -> Histogram:
    """A bin per bucket, with its share in the first view that has it; uniform without one."""
    counts = next((_margin(view, cells.name) for view in views if cells.name in view.names), None)
    if counts is None or counts.sum() <= 0:
        counts = np.ones(cells.size)
    return Histogram.over(cells, cells.parts, counts / counts.sum())


def _margin(view: NoisyTable, name: str) -> Floats:
    return view.project((name,)).counts
