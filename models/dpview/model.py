"""A fitted DPView: views that agree, and the rules that rows satisfy; released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from cloister.models.constrained import EXCHANGED, ConstrainedModel, restore_bins, restore_rules
from cloister.models.discretization.bins import Bins, Coarsening
from cloister.models.dpview.chain import ViewChain
from cloister.models.dpview.sampler import LinkedSampler
from cloister.models.dpview.tables.rounding import LARGEST, UNBIASED
from cloister.models.dpview.views import Names, View
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.support_builder import CompiledConstraints
from cloister.models.task import Task
from cloister.schema.declarations import Linking

_ALONE = "each attribute is drawn on its own, from its histogram"
_AGREED = "noisy views are made to agree with each other and with the histograms"
_LINKED = "partial records of the views are linked by their counts to whole records"
_AGREED_ALONE = "noisy views are made to agree with each other, and negative counts are taken off"
_ROUNDED = "views get whole counts, left-over rows going to the largest fractions"
_MATCHED = "partial records of the views are linked by a matching of maximum cardinality"
_BUCKETS = "numbers are cut into equal buckets, and values are spread evenly inside them"
_REFEREED = "upper views decide which partial records belong together"


@dataclass(frozen=True)
class DPViewModel(ConstrainedModel):
    """Views in the order of linking, referees, bins, coarsenings, and the rules of their rows."""

    task: Task
    sequence: Names
    bins: Mapping[str, Bins]
    coarsenings: Mapping[str, Coarsening]
    views: tuple[View, ...]
    referees: tuple[View, ...]
    rules: CompiledConstraints
    rounding: str = UNBIASED
    linking: Linking = "priority"

    drawn_whole: ClassVar[frozenset[str]] = frozenset(
        {
            EXCHANGED,
            _LINKED,
            _MATCHED,
            _REFEREED,
            f"{_ROUNDED}; {_LINKED}",
            f"{_ROUNDED}; {_MATCHED}",
        }
    )

    @property
    def sampler(self) -> LinkedSampler:
        """Linked records, made rows inside the supports."""
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
            "views": [[list(view.names), view.deviation] for view in views],
            "referees": len(self.referees),
            "rounding": self.rounding,
            "linking": self.linking,
        }
        arrays: dict[str, NDArray[Any]] = {
            f"view.{at}": view.counts for at, view in enumerate(views)
        }
        places = {name: at for at, name in enumerate(self.sequence)}
        arrays |= {
            f"parts.{places[name]}": coarsening.parts
            for name, coarsening in self.coarsenings.items()
        }
        return meta, arrays


def restore_dpview(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DPViewModel:
    """The model whose :meth:`DPViewModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = restore_bins(task, sequence, arrays)
    coarsenings = {
        name: Coarsening(bins[name], arrays[f"parts.{at}"])
        for at, name in enumerate(sequence)
        if f"parts.{at}" in arrays
    }
    views = tuple(
        View(tuple(names), arrays[f"view.{at}"], deviation)
        for at, (names, deviation) in enumerate(meta["views"])
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
    )
