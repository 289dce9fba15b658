"""A fitted mixture with the rules its rows keep: released statistics only, from which rows are drawn freely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloister.constraints.supports import Int
from cloister.privacy.randomness import SamplingSource
from cloister.schema.domain import Table
from models.balancing import BalancedSampler, Independent
from models.groups import Groups
from models.mixture.drawing import EvenSampler
from models.mixture.hanging import Hanging
from models.mixture.products import Factor, Layout, Mixture
from models.mixture.tying import arranged
from models.protocol import Arrays, Sampler, Task, Where, whole
from models.sampling import ConstraintSampler, EveryRow, Probabilities
from models.states import groups_of, rules_of, state_of_groups, state_of_rules, state_of_weighing, united, weighing_of
from models.supporting import Rules
from models.weights import Weighing


@dataclass(frozen=True)
class MixtureChain:
    """A mixture as a chain of conditionals; attributes beyond it follow their released histograms."""

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

    def conditional(self, place: int, context: Int) -> Probabilities:
        """Probabilities of the attribute at ``place``; see :class:`models.sampling.TupleModel`.

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


@dataclass(frozen=True)
class CloisterModel:
    """A mixture, the groups it speaks of, and the rules that its rows keep.

    ``sequence`` lists the attributes of the mixture first; the others follow their histograms. Where the mixture's
    factors, with what hangs on them, keep all rules on pairs (``even``), rows are drawn with low variance.
    """

    task: Task
    sequence: tuple[str, ...]
    groups: Mapping[str, Groups]
    mixture: Mixture
    rules: Rules
    even: bool
    weighing: Weighing | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced even draws where the factors keep all rules on pairs, the constraint sampler otherwise."""
        if self._plain.remembers:
            return self._plain
        inside = {name: self.groups[name] for name in self.mixture.layout.sizes}
        return BalancedSampler(self._apart, inside)

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About so many rows by which the model itself is measured: of the law of its samples, but not balanced.

        No more than are released where each row must fit all before it; keys are left unset.
        """
        if self._plain.remembers:
            return self._plain.independent(min(rows, self.task.rows), rng)
        return self._apart.independent(rows, rng)

    @cached_property
    def _plain(self) -> ConstraintSampler:
        return ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.groups,
            chain(self.mixture, self.sequence, self.groups),
            self.rules.supports,
            self.rules.row_rules,
            self.rules.pair_rules,
            self.weighing or EveryRow(),
        )

    @property
    def _apart(self) -> Independent:
        return EvenSampler(self._plain, self.mixture, self._hanging) if self.even else self._plain

    @cached_property
    def _hanging(self) -> tuple[Hanging, ...]:
        sizes = {name: groups.size for name, groups in self.groups.items()}
        arrangement = arranged(sizes, tuple(self.mixture.layout.sizes), self.rules.supports)
        return arrangement.hanging if arrangement else ()

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that keep every hard constraint; SampleError if they cannot be drawn."""
        return whole(self.sampler, rows, rng, where)

    def weighed(self, weighing: Weighing) -> CloisterModel:
        """The same model, its soft constraints weighed."""
        return replace(self, weighing=weighing)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """The model as JSON and arrays."""
        return united(
            ({"sequence": list(self.sequence), "even": self.even}, state_of_groups(self.groups, self.sequence)),
            _state_of_mixture(self.mixture),
            state_of_rules(self.rules),
            state_of_weighing(self.weighing),
        )


def _state_of_mixture(mixture: Mixture) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    factors = mixture.layout.factors
    arrays = {"weights": mixture.weights.numpy(), "shares": mixture.shares.numpy()}
    arrays |= {f"factor.{at}": factor.levels for at, factor in enumerate(factors)}
    return {"factors": [list(factor.attributes) for factor in factors]}, arrays


def chain(mixture: Mixture, sequence: tuple[str, ...], groups: Mapping[str, Groups]) -> MixtureChain:
    """The mixture as a chain over a sequence that lists its attributes first."""
    inside = len(mixture.layout.sizes)
    return MixtureChain(mixture, sequence[:inside], tuple(groups[name].mass for name in sequence[inside:]))


def restore(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CloisterModel:
    """The model whose :meth:`CloisterModel.state` is given."""
    sequence = tuple(meta["sequence"])
    groups = groups_of(task, sequence, arrays)
    factors = tuple(Factor(tuple(names), arrays[f"factor.{at}"]) for at, names in enumerate(meta["factors"]))
    inside = {name for factor in factors for name in factor.attributes}
    layout = Layout(factors, {name: groups[name].size for name in sequence if name in inside})
    mixture = Mixture(layout, torch.as_tensor(arrays["weights"]), torch.as_tensor(arrays["shares"]))
    rules, weighing = rules_of(task, meta, arrays), weighing_of(task, meta, arrays)
    return CloisterModel(task, sequence, groups, mixture, rules, meta["even"], weighing)
