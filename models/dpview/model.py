"""A fitted DPView, and its fit: views that agree, and the rules that rows satisfy.

Attributes, joint tables and views are counted through the door; all else is post-processing, and
the model holds released statistics only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloister.models.constrained import REPAIRED, ConstrainedModel, restore_bins, restore_rules
from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.histograms import HistogramCounts
from cloister.models.core.noisy_table import NoisyTable, NoisyTables, count_table
from cloister.models.core.released_counts import ReleasedCounts, restore_counts
from cloister.models.dpview.sampler import LinkedSampler, ViewChain
from cloister.models.dpview.tables import (
    LARGEST,
    UNBIASED,
    impose_agreement,
    make_consistent,
    shrink_view,
)
from cloister.models.dpview.view_choice import (
    ROUNDINGS,
    DPViewOptions,
    Linking,
    PlannedTable,
    ViewParameters,
    planned_tables,
)
from cloister.models.dpview.views import Names
from cloister.models.feasible_sets.builder import CompiledConstraints, compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.protocol import Arrays, ModelState, Progress
from cloister.models.task import Plan, Task, options_of
from cloister.privacy.mechanisms.noise import DiscreteLaplace
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.partition import Partition, counted_values, declared_cells

_ALONE = (
    "each attribute is drawn on its own, from its histogram: relations between attributes are not "
    "reproduced, but for those that hard constraints force"
)

_AGREED = "noisy views are made to agree with each other and with the histograms"

_LINKED = "partial records of the views are linked by their counts to whole records"

_AGREED_ALONE = "noisy views are made to agree with each other, and negative counts are taken off"

_ROUNDED = "views get whole counts, left-over rows going to the largest fractions"

_MATCHED = "partial records of the views are linked by a matching of maximum cardinality"

_BUCKETS = "numbers are cut into equal buckets, and values are spread evenly inside them"

_REFEREED = "upper views decide which partial records belong together"

_SEED = 20_211_001
"""Public seed of all randomness after the noise."""


@dataclass(frozen=True)
class DPViewModel(ConstrainedModel):
    """Views in the order of linking, referees, bins, coarsenings, and the rules of their rows."""

    task: Task
    sequence: Names
    bins: Mapping[str, Histogram]
    coarsenings: Mapping[str, Partition]
    views: tuple[NoisyTable, ...]
    referees: tuple[NoisyTable, ...]
    rules: CompiledConstraints
    rounding: str = UNBIASED
    linking: Linking = "priority"
    released_counts: ReleasedCounts | None = None

    drawn_whole: ClassVar[frozenset[str]] = frozenset(
        {
            REPAIRED,
            _LINKED,
            _MATCHED,
            _REFEREED,
            f"{_ROUNDED}; {_LINKED}",
            f"{_ROUNDED}; {_MATCHED}",
        }
    )

    @property
    def sampler(self) -> LinkedSampler:
        """Linked records, turned into rows inside the feasible sets."""
        return LinkedSampler(
            self.constraint_sampler,
            self.views,
            self.referees,
            self.coarsenings,
            self.rounding,
            self.linking,
        )

    @property
    def tuple_model(self) -> ViewChain:
        """The views as a chain of conditionals."""
        return ViewChain(self.sequence, self.bins, self.coarsenings, self.views)

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the views."""
        if not self.views:
            return (_ALONE,)
        linked = _LINKED if self.linking == "priority" else _MATCHED
        if self._printed:
            linked = f"{_ROUNDED}; {linked}"
        agreed = _AGREED_ALONE if self._printed else _AGREED
        return (agreed, linked, _REFEREED) if self.referees else (agreed, linked)

    @property
    def _printed(self) -> bool:
        """Whether views are counted and rounded as the paper prints it, without histograms."""
        return self.rounding == LARGEST

    def processing_of_counts(self) -> tuple[str, ...]:
        """How values become parts; equal buckets need no histogram."""
        return (_BUCKETS,) if self._printed else super().processing_of_counts()

    def own_state(self) -> ModelState:
        """The views as JSON and arrays."""
        views = (*self.views, *self.referees)
        meta = {
            "views": [[list(view.names), view.noise] for view in views],
            "referees": len(self.referees),
            "rounding": self.rounding,
            "linking": self.linking,
        }
        arrays: dict[str, NDArray[Any]] = {
            f"view.{index}": view.counts for index, view in enumerate(views)
        }
        places = {name: index for index, name in enumerate(self.sequence)}
        arrays |= {
            f"parts.{places[name]}": coarsening.joined
            for name, coarsening in self.coarsenings.items()
        }
        return meta, arrays


def restore_dpview(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DPViewModel:
    """The model whose :meth:`DPViewModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = restore_bins(task, sequence, arrays)
    coarsenings = {
        name: bins[name].coarsen(arrays[f"parts.{index}"])
        for index, name in enumerate(sequence)
        if f"parts.{index}" in arrays
    }
    views = tuple(
        NoisyTable(tuple(coarsenings[n] for n in names), arrays[f"view.{index}"], deviation)
        for index, (names, deviation) in enumerate(meta["views"])
    )
    linked = len(views) - meta["referees"]
    return DPViewModel(
        task,
        sequence,
        bins,
        coarsenings,
        views[:linked],
        views[linked:],
        restore_rules(task, meta, arrays),
        meta.get("rounding", UNBIASED),
        meta.get("linking", "priority"),
        restore_counts(task, bins, meta, arrays),
    )


@dataclass(frozen=True)
class ReleasedTables:
    """What a fit releases: bins of attributes, joint tables over them, views over coarsenings.

    ``counts`` are those as the door gave them.
    """

    bins: Mapping[str, Histogram]
    coarsenings: Mapping[str, Partition]
    tables: NoisyTables
    views: tuple[NoisyTable, ...]
    counts: ReleasedCounts | None = None


class Counting:
    """Counts the tables of a plan through the door, each with its own noise."""

    def __init__(
        self, private: Door[TableRows], task: Task, plan: Plan[ViewParameters], progress: Progress
    ) -> None:
        self._private, self._task, self._plan, self._progress = private, task, plan, progress
        self._shape = plan.parameters.shape
        self._planned = list(planned_tables(task, self._shape))
        self._done = 0

    def count_all(self) -> ReleasedTables:
        """Every table of the plan; the views agree with each other."""
        single = {
            query.names[0]: self._count([self._cells(query)], query)
            for query in self._of("attributes")
        }
        rounded = {
            query.names[0]: self._count([counted_values(self._task.domain[query.names[0]])], query)
            for query in self._of(ROUNDINGS)
        }
        counted = {
            name: HistogramCounts(table, values=rounded.get(name)) for name, table in single.items()
        }
        bins = {name: counts.bins(self._task) for name, counts in counted.items()}
        coarsenings = {name: coarse(bins[name], self._shape.parts) for name in self._inside()}
        tables = {
            q.names: self._count([bins[name] for name in q.names], q)
            for q in self._of("joint tables")
        }
        joined = [*self._of("views"), *self._of("upper views")]
        views = [
            self._count([coarsenings[name] for name in query.names], query) for query in joined
        ]
        alone = [_summed(single[name], coarsening) for name, coarsening in coarsenings.items()]
        rows, joint = self._task.data_rows, (*tables.values(), *views)
        counts = ReleasedCounts(rows, counted, bins, joint)
        return ReleasedTables(bins, coarsenings, tables, denoise_views(views, alone, rows), counts)

    def _of(self, stage: str) -> list[PlannedTable]:
        return [query for query in self._planned if query.stage == stage]

    def _inside(self) -> Names:
        return self._shape.views.sequence if self._shape.views else ()

    def _cells(self, query: PlannedTable) -> Partition:
        return declared_cells(self._task.domain[query.names[0]])

    def _count(self, partitions: Sequence[Partition], query: PlannedTable) -> NoisyTable:
        mechanism = DiscreteLaplace(self._plan.parameters.epsilons[query.label])
        table = count_table(self._private, partitions, mechanism, query.label)
        self._done += 1
        self._progress(self._done, len(self._planned))
        return table


def denoise_views(
    views: Sequence[NoisyTable], alone: Sequence[NoisyTable], rows: int
) -> tuple[NoisyTable, ...]:
    """Views shrunk by their noise that agree with each other and with ``alone``; none negative.

    ``alone`` are the one-way tables of the attributes.
    """
    if not views:
        return ()
    together = impose_agreement([*views, *alone], rows)
    shrunk = [shrink_view(view) for view in together[: len(views)]]
    return tuple(make_consistent([*shrunk, *together[len(views) :]], rows)[: len(views)])


def _summed(single: NoisyTable, coarsening: Partition) -> NoisyTable:
    """The histogram of an attribute over the parts of its coarsening."""
    cells = single.partitions[0]
    parts = coarsening.index(cells.starts)
    counts = np.bincount(parts, weights=single.counts, minlength=coarsening.size)
    deviation = single.deviation * math.sqrt(cells.size / coarsening.size)
    return NoisyTable((coarsening,), counts.astype(np.float64), deviation)


def fit_dpview(
    private: Door[TableRows], task: Task, plan: Plan[ViewParameters], progress: Progress
) -> DPViewModel:
    """All counts, then views that agree, then the feasible sets of the hard constraints."""
    released = Counting(private, task, plan, progress).count_all()
    return model_of_released(task, plan, released)


def model_of_released(
    task: Task, plan: Plan[ViewParameters], released: ReleasedTables, rounding: str = UNBIASED
) -> DPViewModel:
    """The model of released tables, with the feasible sets of the hard constraints."""
    views = plan.parameters.shape.views
    linked = len(views.linked) if views else 0
    return DPViewModel(
        task,
        plan.sequence,
        released.bins,
        released.coarsenings,
        released.views[:linked],
        released.views[linked:],
        compile_rules(task, plan.sequence, released, linked),
        rounding,
        options_of(task, DPViewOptions).linking,
        released.counts,
    )


def compile_rules(
    task: Task, sequence: Names, released: ReleasedTables, linked: int
) -> CompiledConstraints:
    """Feasible sets and rules that enforce every hard constraint, from released statistics."""
    chain = ViewChain(sequence, released.bins, released.coarsenings, released.views[:linked])
    shares = ExpectedShares(
        sequence=sequence,
        bins=released.bins,
        model=chain,
        networked=len(released.coarsenings),
        measured=released.tables.values(),
        seed=_SEED,
    )
    return compile_constraints(task, shares)
