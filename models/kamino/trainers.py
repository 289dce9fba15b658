"""What a trainer of a chain of conditionals is, and the default one: all sub-models in one run.

Source: Kamino Algorithm 2; `cloister.models.kamino.paper.recipes` trains one sub-model
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cloister.arrays import Floats
from cloister.devices import Device
from cloister.figures import count_of
from cloister.models.discretization.bins import Bins
from cloister.models.kamino.sizes import Runs, single_runs
from cloister.models.protocol import Arrays, Progress

if TYPE_CHECKING:
    import torch

    from cloister.models.kamino.networks import NetworkChain, TrainedChain
    from cloister.models.kamino.training import NoisyGradients, TrainingSchedule


@dataclass(frozen=True)
class Material:
    """What a trainer works with.

    ``bins`` of all attributes in schema sequence, of which the first ``networked`` are modelled
    jointly in ``runs``; ``first`` (levels,) the released shares of the first run's joint levels.
    Starts are drawn by the ``generator`` on the host, and trained on the ``device``.
    """

    bins: Sequence[Bins]
    networked: int
    runs: Runs
    first: Floats
    gradients: Callable[[], NoisyGradients]
    schedule: TrainingSchedule
    generator: torch.Generator
    device: Device
    progress: Progress

    @property
    def sizes(self) -> tuple[int, ...]:
        """Levels of each jointly modelled attribute."""
        return tuple(own.size for own in self.bins[: self.networked])

    @property
    def shares(self) -> tuple[Floats, ...]:
        """Released shares of the levels of every attribute."""
        return tuple(own.mass for own in self.bins)


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
        """How many runs of DP-SGD a number of units takes."""
        ...

    def train(self, material: Material) -> TrainedChain:
        """The fitted chain.

        Privacy: the data is queried by the gradients of the material alone.
        """
        ...

    def restore(
        self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]
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

        Where there is one unit alone, it is the histograms, and nothing is asked.
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
        calibrated = calibrate_biases(network, trained, shares, material.generator)
        return NetworkChain(network, calibrated, material.shares)

    def restore(
        self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Bins]
    ) -> NetworkChain:
        from cloister.models.kamino.networks import restore_network_chain

        return restore_network_chain(meta, arrays, bins)

    def explain(self, units: int, attributes: int) -> str:  # noqa: ARG002
        return (
            f"{count_of(self.steps, 'step')} of DP-SGD on {count_of(attributes, 'attribute')} "
            "together"
        )
