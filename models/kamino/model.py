"""A fitted Kamino model: released statistics and parameters, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.constraints.supports import Coupling, Support
from cloister.privacy.randomness import SamplingSource
from cloister.schema.cells import Cells
from cloister.schema.domain import Table
from models.balancing import BalancedSampler
from models.groups import Groups
from models.kamino.chains import Chain, restore_chain
from models.protocol import Arrays, Sampler, Task, Where, whole
from models.sampling import Acceptance, ConstraintSampler, EveryRow
from models.supporting import Rules
from models.weights import Weighing


@dataclass(frozen=True)
class KaminoModel:
    """A chain of conditionals, the groups it speaks of, and the rules that its rows keep."""

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Groups]
    chain: Chain
    rules: Rules
    weighing: Weighing | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced draws where rows do not depend on those before them, the constraint sampler alone otherwise."""
        acceptance: Acceptance = self.weighing or EveryRow()
        rules = self.rules
        plain = ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.groups,
            self.chain,
            rules.supports,
            rules.row_rules,
            rules.pair_rules,
            acceptance,
        )
        if plain.remembers:
            return plain
        return BalancedSampler(plain, {name: self.groups[name] for name in self.sequence[: self.chain.networked]})

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint; SampleError if they cannot be drawn."""
        return whole(self.sampler, rows, rng, where)

    def weighed(self, weighing: Weighing) -> KaminoModel:
        """The same model, its soft constraints weighed."""
        return replace(self, weighing=weighing)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays."""
        chain, parameters = self.chain.state()
        arrays: dict[str, NDArray[Any]] = dict(parameters)
        for at, name in enumerate(self.sequence):
            arrays[f"cells.{at}"] = self.groups[name].cells.starts
            arrays[f"groups.{at}"] = self.groups[name].of_cell
            arrays[f"shares.{at}"] = self.groups[name].shares
        for at, support in enumerate(self.rules.supports):
            arrays[f"support.{at}"] = support.levels
            arrays |= {f"box.{at}.{support.attributes.index(n)}": box for n, box in support.boxes.items()}
        if self.weighing is not None:
            arrays |= {
                f"reference.{at}": self.weighing.reference.codes[n] for at, n in enumerate(self.task.domain.names)
            }
        return self._meta() | chain, arrays

    def _meta(self) -> dict[str, Any]:
        return {
            "sequence": list(self.sequence),
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
            "weights": dict(self.weighing.weights) if self.weighing else None,
            "measure": self.weighing.measure if self.weighing else None,
        }


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> KaminoModel:
    """The model whose :meth:`KaminoModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = {
        name: Groups(Cells(task.domain[name], arrays[f"cells.{at}"]), arrays[f"groups.{at}"], arrays[f"shares.{at}"])
        for at, name in enumerate(sequence)
    }
    chain = restore_chain(meta, arrays, [groups[name] for name in sequence])
    return KaminoModel(task, sequence, groups, chain, _rules(task, meta, arrays), _weighing(task, meta, arrays))


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


def _weighing(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Weighing | None:
    if meta["weights"] is None:
        return None
    codes = {name: arrays[f"reference.{at}"] for at, name in enumerate(task.domain.names)}
    named = {constraint.name: constraint for constraint in task.soft}
    rules = tuple((named[name], weight) for name, weight in meta["weights"].items())
    return Weighing(rules, Table(task.domain, codes), meta["measure"])
