"""The parts of a variant of Kamino, and the default: a sequencer, a trainer and a weigher.

The default trainer trains all sub-models in one run; `cloister.models.kamino.paper.recipes` has one
that trains them one after the other. The default weigher meets rates, from noisy counts or from the
spec. Units of attributes and the widths of embeddings are public.

Source: Kamino Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cloister.arrays import Booleans, Floats, Integers
from cloister.constraints import DenialConstraint
from cloister.devices import Device
from cloister.figures import count_of
from cloister.models import planning
from cloister.models.core import costs
from cloister.models.core.bins import Histogram
from cloister.models.feasible_sets.branches import Branches, find_branches
from cloister.models.protocol import Arrays, Progress
from cloister.models.soft_constraints.pair_counts import PairCounts
from cloister.models.task import Stage, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.schema.declarations import Sampling
from cloister.schema.domain import Domain

if TYPE_CHECKING:
    import torch

    from cloister.models.kamino.model import KaminoModel
    from cloister.models.kamino.networks import NetworkChain, TrainedChain
    from cloister.models.kamino.training import NoisyGradients, TrainingSchedule


EMBEDDING_WIDTH = 24
"""Dimensions of an embedded level."""

LARGEST_BLOCK = 2048
"""Most rows computed at once; see `cloister.privacy.queries.clipped_gradients`."""

Runs = tuple[tuple[int, ...], ...]
"""Positions of the attributes of each unit."""


def single_runs(sizes: Sequence[int]) -> Runs:
    """Each attribute on its own."""
    return tuple((position,) for position in range(len(sizes)))


@dataclass(frozen=True)
class Material:
    """The inputs of a trainer.

    ``bins`` of all attributes in schema sequence, of which the first ``networked`` are modelled
    jointly in ``runs``; ``first`` (levels,) the released shares of the first run's joint levels;
    ``branched`` what rules on single rows allow.
    Starts are drawn by the ``generator`` on the host, and trained on the ``device``.
    """

    bins: Sequence[Histogram]
    networked: int
    runs: Runs
    first: Floats
    gradients: Callable[[], NoisyGradients]
    schedule: TrainingSchedule
    generator: torch.Generator
    device: Device
    progress: Progress
    branched: Sequence[Branches] = ()

    def allowed(self, position: int, levels: Integers) -> Booleans | None:
        """The levels (n, size) that rules leave an attribute, given ``levels`` (n, positions).

        None where they say nothing of it.
        """
        names = [histogram.name for histogram in self.bins[: position + 1]]
        for branches in self.branched:
            if names[-1] in branches.attributes:
                before = zip(names[:-1], levels.T, strict=False)
                known = {name: column for name, column in before if name in branches.attributes}
                return branches.after(names[-1], known, len(levels))
        return None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each jointly modelled attribute."""
        return tuple(histogram.size for histogram in self.bins[: self.networked])

    @property
    def shares(self) -> tuple[Floats, ...]:
        """Released shares of the levels of every attribute."""
        return tuple(histogram.mass for histogram in self.bins)


class Trainer(Protocol):
    """A way to train."""

    @property
    def steps(self) -> int:
        """Steps of each run of DP-SGD."""
        ...

    def runs(self, sizes: Sequence[int]) -> Runs:
        """The units of attributes of these public sizes."""
        ...

    def repeats(self, units: int) -> int:
        """How many runs of DP-SGD the units take."""
        ...

    def train(self, material: Material) -> TrainedChain:
        """The fitted chain.

        Privacy: the data is queried by the gradients of the material alone.
        """
        ...

    def restore(
        self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Histogram]
    ) -> TrainedChain:
        """The chain from its saved state, over bins of attributes in schema sequence."""
        ...

    def explain(self, units: int, attributes: int) -> str:
        """What the training does, in words."""
        ...


@dataclass(frozen=True)
class Joint:
    """One run for all sub-models: the loss of a row is the sum of theirs."""

    steps: int = 200

    def runs(self, sizes: Sequence[int]) -> Runs:
        return single_runs(sizes)

    def repeats(self, units: int) -> int:
        return int(units > 1)

    def train(self, material: Material) -> NetworkChain:
        """The chain of one network, whose biases are then fitted to the released histograms.

        A single unit follows its histogram, without any query.
        """
        from cloister.models.kamino.networks import NetworkChain, TupleNetwork
        from cloister.models.kamino.training import calibrate_biases, train_privately

        network = TupleNetwork(material.sizes)
        shares = list(material.shares[: material.networked])
        start = network.initial(shares, material.generator)
        if not self.repeats(len(material.runs)):
            return NetworkChain(network, start, material.shares)
        trained = train_privately(
            network,
            start,
            material.gradients(),
            material.schedule,
            material.device,
            material.progress,
        )
        calibrated = calibrate_biases(
            network, trained, shares, material.generator, material.allowed
        )
        return NetworkChain(network, calibrated, material.shares)

    def restore(
        self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Histogram]
    ) -> NetworkChain:
        from cloister.models.kamino.networks import restore_network_chain

        return restore_network_chain(meta, arrays, bins)

    def explain(self, units: int, attributes: int) -> str:  # noqa: ARG002
        return (
            f"{count_of(self.steps, 'step')} of DP-SGD on {count_of(attributes, 'attribute')} "
            "together"
        )


KAMINO_SEED = 20_210_623
"""Public seed of all randomness after the noise."""

COUNTS = PairCounts()
"""How violations are counted on the data."""

BranchFinder = Callable[
    [Domain, Sequence[DenialConstraint], Mapping[str, Histogram], Sequence[str]],
    tuple[Branches, ...],
]

Sequencer = Callable[[Mapping[str, int], Sequence[DenialConstraint]], tuple[str, ...]]


@dataclass(frozen=True)
class ByRates:
    """Meets rates by weighting rows, or by drawing them one after the other."""

    counts: PairCounts = COUNTS
    samplings: tuple[Sampling, ...] = (planning.SUPPORTS, planning.SEQUENTIAL)
    weighs_soft: bool = True

    def stage(self, task: Task, noise: Fraction) -> Stage:
        return self.counts.stage(task, noise)

    def deviation(self, noise: float, task: Task) -> float | None:
        return self.counts.deviation(noise, task)

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        pool = model.pool(costs.POOL_ROWS, SamplingSource(KAMINO_SEED))
        rng = np.random.default_rng(KAMINO_SEED)
        choice = planning.choose_sampling(task, self.samplings)
        if not choice.sequential:
            return model.reweighted(self.counts.weigh(private, task, noise, pool, rng))
        sampler = model.sequential(choice.options, ()).constraint_sampler
        penalties = self.counts.penalties(private, task, noise, sampler, pool, rng)
        return model.sequential(choice.options, penalties)


class Weigher(Protocol):
    """A way to weigh soft constraints; for ``weighs_soft`` and ``samplings`` see `Synthesizer`."""

    @property
    def samplings(self) -> tuple[Sampling, ...]:
        """The ways in which rows can be drawn, the default first."""
        ...

    @property
    def weighs_soft(self) -> bool:
        """Whether soft constraints have any effect."""
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
        """The model with its soft constraints weighed; without ``noise`` there is no query."""
        ...


@dataclass(frozen=True)
class KaminoRecipe:
    """What a method called ``name`` is made of."""

    name: str
    summary: str
    trainer: Trainer
    weigher: Weigher
    sequencer: Sequencer = planning.schema_sequence
    branches: BranchFinder = find_branches


KAMINO = KaminoRecipe(
    "kamino",
    "tuple network trained by DP-SGD, rows drawn inside feasible sets of the hard constraints",
    Joint(),
    ByRates(),
)
