"""A fitted mixture with the rules its rows keep: released statistics only, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloister.arrays import Integers
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table
from models.constrained import BALANCED, State, WeighedModel
from models.discretization.bins import Bins
from models.mixture.dependent import DependentAttribute
from models.mixture.factors import arranged
from models.mixture.products import Factor, Layout, Mixture
from models.mixture.sampler import EvenSampler
from models.protocol import Arrays, Sampler, Task
from models.sampling.balanced import BalancedSampler, Independent
from models.sampling.sampler import Probabilities
from models.sampling.support_builder import CompiledConstraints
from models.serialization import groups_of, rules_of, united, weighing_of
from models.soft_constraints.reweighting import Reweighting


@dataclass(frozen=True)
class MixtureChain:
    """A mixture as a chain of conditionals.

    Attributes beyond it follow their released histograms.
    """

    mixture: Mixture
    names: tuple[str, ...]
    outside: tuple[NDArray[np.float64], ...]

    @cached_property
    def _logs(self) -> torch.Tensor:
        return torch.cat([self.mixture.logs(name) for name in self.names])

    @cached_property
    def _begins(self) -> torch.Tensor:
        sizes = [self.mixture.layout.sizes[name] for name in self.names]
        return torch.as_tensor(np.cumsum([0, *sizes[:-1]]))

    def conditional(self, place: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``.

        See :class:`models.sampling.sampler.TupleModel`.

        The mean of the components' shares, weighed by their responsibilities for the context.
        """
        if place >= len(self.names):
            return self.outside[place - len(self.names)][None]
        shares = self.mixture.shares_of(self.names[place]).T
        if not place:
            return (self.mixture.weights @ shares)[None].numpy()
        index = torch.as_tensor(context[:, :place]) + self._begins[:place]
        logs = torch.nn.functional.embedding_bag(index, self._logs, mode="sum")
        responsible = torch.softmax(logs + torch.log(self.mixture.weights + 1e-12), 1)
        return (responsible @ shares).numpy()


FITTED = "a mixture of products is fitted to all noisy tables together, and rows are drawn from it"
FITTED_TO_RATES = "the mixture is fitted anew so that it breaks soft constraints about as often as noisy counts say"


@dataclass(frozen=True)
class MixtureModel(WeighedModel):
    """A mixture, the groups it speaks of, and the rules that its rows keep.

    ``sequence`` lists the attributes of the mixture first; the others follow their histograms.
    Where the mixture's factors, with what hangs on them, keep all rules on pairs (``even``), rows
    are drawn with low variance.
    """

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Bins]
    mixture: Mixture
    rules: CompiledConstraints
    even: bool
    weighing: Reweighting | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced even draws where the factors keep all rules on pairs, the constraint sampler otherwise."""
        if self.constraint_sampler.remembers:
            return self.constraint_sampler
        inside = {name: self.groups[name] for name in self.mixture.layout.sizes}
        return BalancedSampler(self._apart, inside)

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About so many rows by which the model itself is measured: of the law of its samples, but not balanced.

        No more than are released where each row must fit all before it; keys are left unset.
        """
        if self.constraint_sampler.remembers:
            return self.constraint_sampler.independent(min(rows, self.task.data_rows), rng)
        return self._apart.independent(rows, rng)

    @property
    def tuple_model(self) -> MixtureChain:
        """The mixture as a chain of conditionals."""
        return chain(self.mixture, self.sequence, self.groups)

    @property
    def _apart(self) -> Independent:
        plain = self.constraint_sampler
        return EvenSampler(plain, self.mixture, self._hanging) if self.even else plain

    @cached_property
    def _hanging(self) -> tuple[DependentAttribute, ...]:
        sizes = {name: groups.size for name, groups in self.groups.items()}
        arrangement = arranged(sizes, tuple(self.mixture.layout.sizes), self.rules.supports)
        return arrangement.hanging if arrangement else ()

    def weighed(self, weighing: Reweighting) -> MixtureModel:
        """The same model, its soft constraints weighed."""
        return replace(self, weighing=weighing)

    def own_state(self) -> State:
        """The mixture as JSON and arrays."""
        return united(({"even": self.even}, {}), _state_of_mixture(self.mixture))

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows come of the mixture."""
        soft = (FITTED_TO_RATES,) if self.task.soft else ()
        balanced = () if self.constraint_sampler.remembers else (BALANCED,)
        return (FITTED, *soft, *balanced)


def _state_of_mixture(mixture: Mixture) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    factors = mixture.layout.factors
    arrays = {"weights": mixture.weights.numpy(), "shares": mixture.shares.numpy()}
    arrays |= {f"factor.{at}": factor.levels for at, factor in enumerate(factors)}
    return {"factors": [list(factor.attributes) for factor in factors]}, arrays


def chain(mixture: Mixture, sequence: tuple[str, ...], groups: Mapping[str, Bins]) -> MixtureChain:
    """The mixture as a chain over a sequence that lists its attributes first."""
    inside = len(mixture.layout.sizes)
    return MixtureChain(
        mixture, sequence[:inside], tuple(groups[name].mass for name in sequence[inside:])
    )


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
    """The model whose :meth:`MixtureModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = groups_of(task, sequence, arrays)
    factors = tuple(
        Factor(tuple(names), arrays[f"factor.{at}"]) for at, names in enumerate(meta["factors"])
    )
    inside = {name for factor in factors for name in factor.attributes}
    layout = Layout(factors, {name: groups[name].size for name in sequence if name in inside})
    mixture = Mixture(layout, torch.as_tensor(arrays["weights"]), torch.as_tensor(arrays["shares"]))
    rules, weighing = rules_of(task, meta, arrays), weighing_of(task, meta, arrays)
    return MixtureModel(task, sequence, groups, mixture, rules, meta["even"], weighing)
