"""What a variant of Kamino is made of, and the default: a sequencer, a trainer and a weigher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from cloister.constraints import DenialConstraint
from cloister.models.kamino.trainers import Joint, Trainer
from cloister.models.kamino.weighing import ByRates
from cloister.models.planning import schema_sequence
from cloister.models.task import Stage, Task
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.declarations import Sampling

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel

Sequencer = Callable[[Mapping[str, int], Sequence[DenialConstraint]], tuple[str, ...]]


class Weigher(Protocol):
    """A way to weigh soft constraints; for ``weighs_soft`` and ``samplings`` see `Synthesizer`."""

    @property
    def samplings(self) -> tuple[Sampling, ...]:
        """The ways in which rows can be drawn, the usual one first."""
        ...

    @property
    def weighs_soft(self) -> bool:
        """Whether anything is done about soft constraints."""
        ...

    def stage(self, task: Task, noise: Fraction) -> Stage:
        """The stage of a plan, with this noise multiplier."""
        ...

    def deviation(self, noise: float, task: Task) -> float | None:
        """The standard deviation of the noise of a measured rate; None if none is measured."""
        ...

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        """The model with its soft constraints weighed; without ``noise`` nothing is asked."""
        ...


@dataclass(frozen=True)
class KaminoRecipe:
    """What a method called ``name`` is made of."""

    name: str
    summary: str
    trainer: Trainer
    weigher: Weigher
    sequencer: Sequencer = schema_sequence


KAMINO = KaminoRecipe(
    "kamino",
    "tuple network trained by DP-SGD, rows drawn inside the supports of the hard constraints",
    Joint(),
    ByRates(),
)
