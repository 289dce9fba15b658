"""A fitted DPView: views that agree, and the rules that rows keep; released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.randomness import SamplingSource
from cloister.schema.domain import Table
from models.dpview.chain import ViewChain
from models.dpview.drawing import LinkedSampler
from models.dpview.tables import Names, View
from models.groups import Groups
from models.mixture.readings import Reading
from models.protocol import Arrays, Task, Where, whole
from models.sampling import ConstraintSampler
from models.states import groups_of, rules_of, state_of_groups, state_of_rules, united
from models.supporting import Rules


@dataclass(frozen=True)
class DPViewModel:
    """Views in the order of linking, referees, groups and readings of the attributes, and the rules of their rows."""

    task: Task
    sequence: Names
    groups: Mapping[str, Groups]
    readings: Mapping[str, Reading]
    views: tuple[View, ...]
    referees: tuple[View, ...]
    rules: Rules

    @property
    def sampler(self) -> LinkedSampler:
        """Linked records, made rows inside the supports."""
        plain = ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.groups,
            ViewChain(self.sequence, self.groups, self.readings, self.views),
            self.rules.supports,
            self.rules.row_rules,
            self.rules.pair_rules,
        )
        return LinkedSampler(plain, self.views, self.referees, self.readings)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint; SampleError if they cannot be drawn."""
        return whole(self.sampler, rows, rng, where)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays."""
        views = (*self.views, *self.referees)
        meta = {
            "sequence": list(self.sequence),
            "views": [[list(view.names), view.deviation] for view in views],
            "referees": len(self.referees),
        }
        arrays: dict[str, NDArray[Any]] = {f"view.{at}": view.counts for at, view in enumerate(views)}
        places = {name: at for at, name in enumerate(self.sequence)}
        arrays |= {f"parts.{places[name]}": reading.parts for name, reading in self.readings.items()}
        return united((meta, arrays), ({}, state_of_groups(self.groups, self.sequence)), state_of_rules(self.rules))


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DPViewModel:
    """The model whose :meth:`DPViewModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = groups_of(task, sequence, arrays)
    readings = {
        name: Reading(groups[name], arrays[f"parts.{at}"])
        for at, name in enumerate(sequence)
        if f"parts.{at}" in arrays
    }
    views = tuple(
        View(tuple(names), arrays[f"view.{at}"], deviation) for at, (names, deviation) in enumerate(meta["views"])
    )
    linked = len(views) - meta["referees"]
    return DPViewModel(task, sequence, groups, readings, views[:linked], views[linked:], rules_of(task, meta, arrays))
