"""One sub-model after the other, as the paper trains them, or all side by side.

Source: Kamino Algorithm 2; section 4.1, last paragraph, for those side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloister.figures import count_of
from cloister.models.discretization.bins import Bins
from cloister.models.kamino.paper.runs import RUNS
from cloister.models.kamino.sizes import EMBEDDING_WIDTH, Runs, single_runs
from cloister.models.kamino.trainers import Material
from cloister.models.protocol import Arrays

if TYPE_CHECKING:
    from cloister.models.kamino.paper.unit_chain import UnitChain


@dataclass(frozen=True)
class OneByOne:
    """One run for each unit but the first; the parts are chosen by name.

    ``units`` of :data:`cloister.models.kamino.paper.runs.RUNS`, ``heads`` of
    :data:`cloister.models.kamino.paper.networks.heads.HEADS`, ``attention`` of
    :data:`cloister.models.kamino.paper.networks.attention.ATTENTIONS`.
    """

    units: str = "attributes"
    attention: str = "softmax"
    heads: str = "levels"
    steps: int = 100
    width: int = field(default=EMBEDDING_WIDTH)

    def runs(self, sizes: Sequence[int]) -> Runs:
        return RUNS[self.units](sizes)

    def repeats(self, units: int) -> int:
        return max(units - 1, 0)

    def train(self, material: Material) -> UnitChain:
        from cloister.models.kamino.paper.training.in_turn import train_chain

        return train_chain(material, self.steps, self._recipe)

    def restore(self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]) -> UnitChain:
        from cloister.models.kamino.paper.unit_chain import restore_unit_chain

        return restore_unit_chain(meta, arrays, bins)

    def explain(self, units: int, attributes: int) -> str:
        return (
            f"{count_of(self.repeats(units), 'run')} of {count_of(self.steps, 'step')} of DP-SGD, "
            f"one a sub-model, on {count_of(attributes, 'attribute')}"
        )

    @property
    def _recipe(self) -> Mapping[str, Any]:
        return {"attention": self.attention, "heads": self.heads, "width": self.width}


@dataclass(frozen=True)
class SideBySide:
    """One run for sub-models that share nothing: a step changes them all."""

    steps: int = 200
    width: int = field(default=EMBEDDING_WIDTH)

    def runs(self, sizes: Sequence[int]) -> Runs:
        return single_runs(sizes)

    def repeats(self, units: int) -> int:
        return int(units > 1)

    def train(self, material: Material) -> UnitChain:
        from cloister.models.kamino.paper.training.side_by_side import train_side_by_side

        recipe = {"attention": "softmax", "heads": "levels", "width": self.width}
        return train_side_by_side(material, recipe)

    def restore(self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]) -> UnitChain:
        from cloister.models.kamino.paper.unit_chain import restore_unit_chain

        return restore_unit_chain(meta, arrays, bins)

    def explain(self, units: int, attributes: int) -> str:
        return (
            f"{count_of(self.steps, 'step')} of DP-SGD on "
            f"{count_of(max(units - 1, 0), 'sub-model')} side by side, on "
            f"{count_of(attributes, 'attribute')}"
        )
