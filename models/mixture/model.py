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
from cloister.models.mixture.products import (
    BranchFactor,
    DependentAttribute,
    Factor,
    Layout,
    Mixture,
)
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

_CACHED = 500_000
"""Numbers of a block of rows: 2 MB stay in the cache, where all took twice as long."""

_LEAST = 1e-12
"""Added to shares, so that their logarithms are finite."""


@dataclass(frozen=True)
class MixtureChain:
    """A mixture as a chain of conditionals.

    Attributes beyond it follow their released histograms.
    """

    mixture: Mixture
    names: tuple[str, ...]
    bins: Mapping[str, Histogram]
    outside: tuple[Floats, ...]

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        """The attributes of each factor of branches, and all others, as one group."""
        layout = self.mixture.layout
        numbers = [layout.factor_of[branches.attributes[0]] for branches in layout.branched]
        alone = [n for n in self.names if layout.factor_of[n] not in numbers]
        groups = [[n for n in self.names if layout.factor_of[n] == number] for number in numbers]
        return (
            _Group.alone(self.mixture, self.names, alone),
            *(
                _Group.in_branches(self.mixture, self.names, names, number)
                for names, number in zip(groups, numbers, strict=True)
            ),
        )

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``place``; see `TupleModel`.

        The mean of the components' shares, weighted by their responsibilities for the context.
        """
        if position >= len(self.names):
            return self.outside[position - len(self.names)][None]
        if not position:
            shares = self.mixture.shares_of(self.names[0])
            return (shares @ self.mixture.weights)[None].numpy()
        before = torch.as_tensor(context[:, :position])
        # of the attribute's own group the branch counts too, of the others the component alone
        within = next(group for group in self._groups if position in group.places)
        shares = within.shares(position)
        numbers = max(len(group.branch) for group in self._groups) * len(self.mixture.weights)
        parts = torch.split(before, max(_CACHED // numbers, 1))
        return torch.cat([self._responsible(part, within) @ shares for part in parts]).numpy()

    def _responsible(self, before: torch.Tensor, within: _Group) -> torch.Tensor:
        """Probabilities (n, branches x components) of those of a group, given levels before."""
        logs = torch.log(self.mixture.weights + _LEAST)[None, None]
        for group in self._groups:
            if group is not within and group.places and group.places[0] < before.shape[1]:
                logs = logs + group.over_branches(before)
        return torch.softmax((logs + within.logs(before)).flatten(1), 1)

    def joint_shares(self, places: Sequence[int]) -> Floats | None:
        """Shares of the joint bins of some attributes of the mixture; see `JointModel`."""
        layout, names = self.mixture.layout, [self.names[position] for position in places]
        cells = math.prod(layout.sizes[name] for name in names[:-1])
        if cells * len(self.mixture.weights) > _MOST_NUMBERS:
            return None
        return self.mixture.marginal([self.bins[name] for name in names]).ravel()


@dataclass(frozen=True)
class _Group:
    """Attributes that are independent given the component, and the branch if they are in branches.

    Shapes: ``branch`` (branches, components), log-shares of the branches; ``tables``, for each of
    the ``places`` in the sequence, log-shares (size, branches, components).
    """

    branch: torch.Tensor
    tables: Mapping[int, torch.Tensor]

    @classmethod
    def alone(cls, mixture: Mixture, sequence: Sequence[str], names: Sequence[str]) -> _Group:
        """Attributes without branches: of one branch that all rows are in."""
        tables = {sequence.index(name): mixture.logs(name)[:, None] for name in names}
        return cls(torch.zeros(1, len(mixture.weights)), tables)

    @classmethod
    def in_branches(
        cls, mixture: Mixture, sequence: Sequence[str], names: Sequence[str], number: int
    ) -> _Group:
        """The attributes of a factor of branches."""
        tables = {sequence.index(name): mixture.in_branches(name) for name in names}
        shares = mixture.factor(number)[: tables[sequence.index(names[0])].shape[1]]
        return cls(
            torch.log(shares + _LEAST),
            {position: torch.log(table + _LEAST) for position, table in tables.items()},
        )

    @property
    def places(self) -> tuple[int, ...]:
        """The places of the attributes in the sequence, in order."""
        return tuple(self.tables)

    @cached_property
    def _stacked(self) -> torch.Tensor:
        """All tables, one after the other; shape (levels, branches x components)."""
        return torch.cat([table.flatten(1) for table in self.tables.values()])

    def logs(self, before: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (n, branches, components) of levels (n, positions) before another."""
        known = [position for position in self.places if position < before.shape[1]]
        if not known:
            return self.branch[None]
        sizes = [len(self.tables[position]) for position in known[:-1]]
        index = before[:, known] + torch.as_tensor(np.cumsum([0, *sizes]))
        logs = torch.nn.functional.embedding_bag(index, self._stacked, mode="sum")
        return self.branch[None] + logs.view(len(before), *self.branch.shape)

    def over_branches(self, before: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (n, 1, components) of levels (n, positions), in whatever branch."""
        logs = self.logs(before)
        return logs if logs.shape[1] == 1 else torch.logsumexp(logs, 1, keepdim=True)

    def shares(self, position: int) -> torch.Tensor:
        """The shares of an attribute's levels; shape (branches x components, size)."""
        return torch.exp(self.tables[position]).flatten(1).T


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
        layout = self.mixture.layout
        arrangement = arrange_factors(
            sizes, tuple(layout.sizes), self.rules.feasible_sets, layout.branched
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
    for index, factor in enumerate(factors):
        arrays[f"factor.{index}"] = factor.stored
    return {"factors": [list(factor.attributes) for factor in factors]}, arrays


def _restored(
    names: tuple[str, ...], stored: NDArray[Any], sizes: Mapping[str, int]
) -> Factor | BranchFactor:
    """A factor of the state of a mixture: levels are numbers, those of branches allowed or not."""
    if stored.dtype != np.bool_:
        return Factor(names, stored)
    return BranchFactor.restored(names, stored, [sizes[name] for name in names])


def chain_of(
    mixture: Mixture, sequence: tuple[str, ...], bins: Mapping[str, Histogram]
) -> MixtureChain:
    """The mixture as a chain over a sequence that lists its attributes first."""
    inside = len(mixture.layout.sizes)
    outside = tuple(bins[name].mass for name in sequence[inside:])
    return MixtureChain(mixture, sequence[:inside], bins, outside)


def restore_mixture(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MixtureModel:
    """The model whose :meth:`MixtureModel.state` is given."""
    sequence = tuple(meta["sequence"])
    bins = constrained.restore_bins(task, sequence, arrays)
    sizes = {name: histogram.size for name, histogram in bins.items()}
    factors = tuple(
        _restored(tuple(names), arrays[f"factor.{index}"], sizes)
        for index, names in enumerate(meta["factors"])
    )
    inside = {name for factor in factors for name in factor.attributes}
    layout = Layout(factors, {name: sizes[name] for name in sequence if name in inside})
    mixture = Mixture(layout, torch.as_tensor(arrays["weights"]), torch.as_tensor(arrays["shares"]))
    rules = constrained.restore_rules(task, meta, arrays)
    reweighting = constrained.restore_reweighting(task, meta, arrays)
    algorithm = constrained.restore_algorithm(task, meta)
    counts = restore_counts(task, bins, meta, arrays)
    return MixtureModel(
        task, sequence, bins, mixture, rules, meta["even"], reweighting, algorithm, counts
    )
