"""A fitted DPView: views that agree, and the rules that rows keep; released statistics only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.constraints.supports import Coupling, Support
from cloister.privacy.randomness import SamplingSource
from cloister.schema.cells import Cells
from cloister.schema.domain import Table
from models.dpview.chain import ViewChain
from models.dpview.drawing import LinkedSampler
from models.dpview.tables import Names, View
from models.groups import Groups
from models.mixture.readings import Reading
from models.protocol import Arrays, Task, Where, whole
from models.sampling import ConstraintSampler
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
        arrays: dict[str, NDArray[Any]] = {}
        for at, name in enumerate(self.sequence):
            groups = self.groups[name]
            arrays |= {f"cells.{at}": groups.cells.starts, f"groups.{at}": groups.of_cell}
            arrays[f"histogram.{at}"] = groups.shares
            if name in self.readings:
                arrays[f"parts.{at}"] = self.readings[name].parts
        for at, view in enumerate((*self.views, *self.referees)):
            arrays[f"view.{at}"] = view.counts
        for at, support in enumerate(self.rules.supports):
            arrays[f"support.{at}"] = support.levels
            arrays |= {f"box.{at}.{support.attributes.index(n)}": box for n, box in support.boxes.items()}
        return self._meta(), arrays

    def _meta(self) -> dict[str, Any]:
        return {
            "sequence": list(self.sequence),
            "views": [[list(view.names), view.deviation] for view in (*self.views, *self.referees)],
            "referees": len(self.referees),
            "supports": [
                {
                    "attributes": list(s.attributes),
                    "boxes": [s.attributes.index(name) for name in s.boxes],
                    "couplings": [[c.first, c.second, c.sign] for c in s.couplings],
                }
                for s in self.rules.supports
            ],
            "row_rules": [rule.name for rule in self.rules.row_rules],
            "pair_rules": [rule.name for rule in self.rules.pair_rules],
        }


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DPViewModel:
    """The model whose :meth:`DPViewModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = {
        name: Groups(Cells(task.domain[name], arrays[f"cells.{at}"]), arrays[f"groups.{at}"], arrays[f"histogram.{at}"])
        for at, name in enumerate(sequence)
    }
    readings = {
        name: Reading(groups[name], arrays[f"parts.{at}"])
        for at, name in enumerate(sequence)
        if f"parts.{at}" in arrays
    }
    views = tuple(
        View(tuple(names), arrays[f"view.{at}"], deviation) for at, (names, deviation) in enumerate(meta["views"])
    )
    linked = len(views) - meta["referees"]
    return DPViewModel(task, sequence, groups, readings, views[:linked], views[linked:], _rules(task, meta, arrays))


def _rules(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Rules:
    named = {constraint.name: constraint for constraint in task.constraints}
    supports = []
    for at, about in enumerate(meta["supports"]):
        attributes = tuple(about["attributes"])
        boxes = {attributes[column]: arrays[f"box.{at}.{column}"] for column in about["boxes"]}
        couplings = tuple(Coupling(first, second, sign) for first, second, sign in about["couplings"])
        supports.append(Support(attributes, arrays[f"support.{at}"], boxes, couplings))
    row_rules = tuple(named[name] for name in meta["row_rules"])
    return Rules(tuple(supports), row_rules, tuple(named[name] for name in meta["pair_rules"]))
