"""A fitted mixture and the rules that its rows satisfy: released statistics only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.models import constrained
from cloister.models.core import costs
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts, restore_counts
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.mixture.factors import arrange_factors
from cloister.models.mixture.products import DependentAttribute, Factor, Layout, Mixture
from cloister.models.mixture.sampler import EvenSampler
from cloister.models.mixture.within_bins import ScoreRelation, relations_between
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import Probabilities
from cloister.models.sampling.drawing import Sampler
from cloister.models.sampling.row_by_row import PLAIN, Algorithm3, Penalty
from cloister.models.sampling.whole_tables import BalancedSampler
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import RowSampling, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.domain import Table

_MOST_NUMBERS = 20_000_000
"""Most numbers from which joint shares are summed: 80 MB."""


@dataclass(frozen=True)
class MixtureChain:
    """A mixture as a chain of conditionals.

    Attributes beyond it follow their released histograms.
    """

    mixture: Mixture
    names: tuple[str, ...]
    outside: tuple[Floats, ...]

    @cached_property
    def _logs(self) -> torch.Tensor:
        return torch.cat([self.mixture.logs(name) for name in self.names])

    @cached_property
    def _begins(self) -> torch.Tensor:
        sizes = [self.mixture.layout.sizes[name] for name in self.names]
        return torch.as_tensor(np.cumsum([0, *sizes[:-1]]))

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`.

        The mean of the components' shares, weighted by their responsibilities for the context.
        """
        if position >= len(self.names):
            return self.outside[position - len(self.names)][None]
        shares = self.mixture.shares_of(self.names[position]).T
        if not position:
            return (self.mixture.weights @ shares)[None].numpy()
        index = torch.as_tensor(context[:, :position]) + self._begins[:position]
        logs = torch.nn.functional.embedding_bag(index, self._logs, mode="sum")
        responsible = torch.softmax(logs + torch.log(self.mixture.weights + 1e-12), 1)
        return (responsible @ shares).numpy()

    def joint_shares(self, places: Sequence[int]) -> Floats | None:
        """Shares of the joint bins of some attributes of the mixture; see `JointModel`."""
        shares = [self.mixture.shares_of(self.names[position]) for position in places]
        if (
            math.prod(len(factor) for factor in shares[:-1]) * len(self.mixture.weights)
            > _MOST_NUMBERS
        ):
            return None
        folded = self.mixture.weights[None]
        for factor in shares[:-1]:
            folded = (folded[:, None] * factor[None]).flatten(0, 1)
        return (folded @ shares[-1].T).flatten().double().numpy()


_FITTED = "a mixture of products is fitted to all noisy tables together, and rows are drawn from it"
_EVEN = "rows are points of a scrambled Sobol sequence, so their tables are near the mixture's"
_RELATED = (
    "inside their bins, values of a number follow those of the number with which they correlate "
    "most in the fitted tables"
)
_FITTED_TO_RATES = (
    "the mixture is fitted anew so that it breaks soft constraints about as often as {} say"
)


@dataclass(frozen=True)
class MixtureModel(constrained.SequentialModel):
    """A mixture, the bins that it is over, and the rules that its rows satisfy.

    ``sequence`` lists the attributes of the mixture first; the others follow their histograms.
    Where the mixture's factors and dependent attributes satisfy all rules on pairs (``even``), rows
    are points of a sequence that fills the unit cube evenly.
    """

    drawn_whole: ClassVar[frozenset[str]] = frozenset(
        {constrained.BALANCED, constrained.REPAIRED, _EVEN, _RELATED}
    )

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    mixture: Mixture
    rules: CompiledConstraints
    even: bool
    reweighting: Reweighting | None = None
    algorithm: Algorithm3 = PLAIN
    released_counts: ReleasedCounts | None = None

    @property
    def sampler(self) -> Sampler:
        """Balanced draws, or the constraint sampler alone if rows depend on those before them."""
        if self.constraint_sampler.remembers:
            return self.constraint_sampler
        if self.even:
            return self._independent_sampler
        inside = {name: self.bins[name] for name in self.mixture.layout.sizes}
        return BalancedSampler(self.constraint_sampler, inside)

    def pool(self, rows: int, rng: SamplingSource) -> Table:
        """About ``rows`` rows on which the model's own rates are measured, keys left unset.

        They have the distribution of its samples, but are not balanced. At most as many as are
        released if each row must fit all before it.
        """
        if self.constraint_sampler.remembers:
            return self.constraint_sampler.draw(min(rows, self.task.data_rows), rng)
        return self._independent_sampler.draw(rows, rng)

    @property
    def tuple_model(self) -> MixtureChain:
        """The mixture as a chain of conditionals."""
        return chain_of(self.mixture, self.sequence, self.bins)

    @property
    def _independent_sampler(self) -> Sampler:
        plain = self.constraint_sampler
        if not self.even:
            return plain
        return EvenSampler(plain, self.mixture, self._dependents, self._relations)

    @cached_property
    def _dependents(self) -> tuple[DependentAttribute, ...]:
        sizes = {name: histogram.size for name, histogram in self.bins.items()}
        arrangement = arrange_factors(
            sizes, tuple(self.mixture.layout.sizes), self.rules.feasible_sets
        )
        return arrangement.dependents if arrangement else ()

    @cached_property
    def _relations(self) -> tuple[ScoreRelation, ...]:
        """Relations of the numbers whose values no feasible set narrows inside bins."""
        chain = self.constraint_sampler.chain
        coupled = {
            name for s in chain.feasible_sets for c in s.couplings for name in (c.first, c.second)
        }
        free = [
            name
            for name in self.mixture.layout.sizes
            if self.bins[name].levels.wide.any() and not chain.has_box(name)
            if name not in coupled
        ]
        return relations_between(self.mixture, self.bins, free)

    def reweighted(self, reweighting: Reweighting) -> MixtureModel:
        """The same model, with weights of its soft constraints."""
        return replace(self, reweighting=reweighting)

    def sequential(self, options: RowSampling, penalties: tuple[Penalty, ...]) -> MixtureModel:
        """The same model, whose rows are drawn one after the other."""
        return replace(self, algorithm=Algorithm3(penalties, options.resampled, options.tries))

    def own_state(self) -> ModelState:
        """The mixture as JSON and arrays."""
        return constrained.merge_states(({"even": self.even}, {}), _state_of_mixture(self.mixture))

    def own_post_processing(self) -> tuple[str, ...]:
        """How rows are made from the mixture."""
        refitted = self.task.soft and not self.algorithm.penalties
        soft = (
            (_FITTED_TO_RATES.format(constrained.sources_of_rates(self.task.soft)),)
            if refitted
            else ()
        )
        remembers = self.constraint_sampler.remembers
        even = (_EVEN,) if self.even and not remembers else ()
        related = (_RELATED,) if self.even and self._relations else ()
        few = not self.even or self.task.output_rows < costs.MANY_ROWS
        balanced = few and not remembers
        return (_FITTED, *soft, *even, *related, *((constrained.BALANCED,) if balanced else ()))


def _state_of_mixture(mixture: Mixture) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    factors = mixture.layout.factors
    arrays = {"weights": mixture.weights.numpy(), "shares": mixture.shares.numpy()}
    arrays |= {f"factor.{index}": factor.levels for index, factor in enumerate(factors)}
    return {"factors": [list(factor.attributes) for factor in factors]}, arrays


def chain_of(
    mixture: Mixture, sequence: tuple[str, ...], bins: Mapping[str, Histogram]
) -> MixtureChain:
    """The mixture as a chain over a sequence that lists its attributes first."""
    inside = len(mixture.layout.sizes)
    return MixtureChain(
        mixture, sequence[:inside], tuple(bins[name].mass for name in sequence[inside:])
    )


def restore_mixture(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
    """The model whose :meth:`MixtureModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = constrained.restore_bins(task, sequence, arrays)
    factors = tuple(
        Factor(tuple(names), arrays[f"factor.{index}"])
        for index, names in enumerate(meta["factors"])
    )
    inside = {name for factor in factors for name in factor.attributes}
    layout = Layout(factors, {name: bins[name].size for name in sequence if name in inside})
    mixture = Mixture(layout, torch.as_tensor(arrays["weights"]), torch.as_tensor(arrays["shares"]))
    rules = constrained.restore_rules(task, meta, arrays)
    reweighting = constrained.restore_reweighting(task, meta, arrays)
    algorithm = constrained.restore_algorithm(task, meta)
    counts = restore_counts(task, bins, meta, arrays)
    return MixtureModel(
        task, sequence, bins, mixture, rules, meta["even"], reweighting, algorithm, counts
    )
