"""MST: histograms, and the joint tables of pairs that join all attributes in a tree.

Source: McKenna, Miklau, Sheldon, "Winning the NIST contest" (arXiv 2108.04978), section 4. The tree
grows from one attribute (Prim) where the paper joins trees (Kruskal): each has its parent before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.models import planning
from cloister.models.constrained import ConstrainedModel, restore_bins, restore_rules
from cloister.models.core import budget_split, costs
from cloister.models.core.bins import Histogram
from cloister.models.core.histograms import measure_histogram
from cloister.models.core.noisy_table import NoisyTable, count_table
from cloister.models.feasible_sets.builder import CompiledConstraints, compile_constraints
from cloister.models.feasible_sets.expected_shares import ExpectedShares
from cloister.models.protocol import Arrays, ModelState, Progress, Synthesizer
from cloister.models.task import Budget, Parameters, Plan, Task
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.mechanisms.selection import Exponential
from cloister.privacy.queries.distances import PairScores
from cloister.privacy.queries.query import Door, TableRows


@dataclass(frozen=True)
class MSTParameters(Parameters):
    """The noise of each stage, and the attributes that the tree joins."""

    noise: Mapping[str, Fraction]
    joined: tuple[str, ...]


@dataclass(frozen=True)
class TreeChain:
    """Shares (1, size) of an attribute, or (size of its parent, size) given its parent's bin."""

    parents: Mapping[int, int]
    shares: Sequence[Floats]

    def conditional(self, position: int, context: Integers) -> Floats:
        """Probabilities (n, size) of an attribute, given bins (n, position) of those before it."""
        shares, parent = self.shares[position], self.parents.get(position)
        return shares if parent is None else shares[context[:, parent]]


@dataclass(frozen=True)
class MSTModel(ConstrainedModel):
    """Histograms, tables of pairs (parent, child), and the rules that rows satisfy."""

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    tables: tuple[NoisyTable, ...]
    rules: CompiledConstraints = CompiledConstraints()

    @cached_property
    def tuple_model(self) -> TreeChain:
        """Each attribute given its parent; where there are few rows, nearer to its histogram."""
        shares, parents = [self.bins[name].mass[None] for name in self.sequence], {}
        for table in self.tables:
            parent, child = map(self.sequence.index, table.names)
            parents[child], shares[child] = parent, table.conditional(shares[child][0])
        return TreeChain(parents, shares)

    def own_post_processing(self) -> tuple[str, ...]:
        """What a certificate says of the tree."""
        return ("each attribute is drawn by conditional shares given its parent in a tree",)

    def own_state(self) -> ModelState:
        """The tables as JSON and arrays; `ConstrainedModel` adds bins and rules."""
        pairs = [[*table.names, table.noise] for table in self.tables]
        return {"pairs": pairs}, {f"pair.{at}": t.counts for at, t in enumerate(self.tables)}


class MST(Synthesizer[MSTParameters, MSTModel]):
    """A maximum spanning tree of pairs, by their noisy distances from independence."""

    name, summary = "mst", "joint tables of the pairs of a maximum spanning tree"
    supports_conditionals = True

    def sequence(self, task: Task) -> tuple[str, ...]:
        """The schema sequence; its first attribute is the root."""
        return planning.schema_sequence(planning.public_sizes(task.domain), task.constraints)

    def search(self, task: Task, sequence: tuple[str, ...], budget: Budget) -> Plan[MSTParameters]:
        """A third of rho for each stage; PlanError without a delta, or where noise drowns rows."""
        planning.require_delta(self.name, budget)
        sizes, words = planning.public_sizes(task.domain), "one-way histograms of all attributes"
        joined = tuple(name for name in sequence if sizes[name] <= planning.NETWORKED_LEVELS)
        pairs = max(len(joined) - 1, 0)
        kinds = (
            budget_split.counts(task, "histograms", 1, len(sequence), words),
            budget_split.choices("tree", 1, pairs, "which pairs join the attributes in a tree"),
            budget_split.counts(task, "pairs", 1, pairs, "joint tables of the pairs of the tree"),
        )
        split = budget_split.BudgetSplit(budget_split.in_proportion(kinds))
        estimate = split.estimate(budget)["histograms"]
        planning.require_signal(DiscreteGaussian(estimate), task, budget)
        noise = split.calibrate(task, budget)
        cells = costs.histogram_counts(task) + pairs * max(sizes.values()) ** 2
        parameters, forecast = MSTParameters(noise, joined), costs.counting(task, cells)
        return Plan(self.name, sequence, split.stages(noise), parameters, forecast)

    def train(self, private: Door[TableRows], task: Task, plan: Plan[MSTParameters]) -> MSTModel:
        """The answers of all stages, then the feasible sets of the hard constraints."""
        noise, joined = plan.parameters.noise, plan.parameters.joined
        of_cells = DiscreteGaussian(noise["histograms"])
        bins = {n: measure_histogram(private, task, n, of_cells) for n in plan.sequence}
        tables = grow_tree(private, task.data_rows, noise, [bins[name] for name in joined])
        order = (*joined[:1], *(table.names[1] for table in tables), *plan.sequence)
        model = MSTModel(task, tuple(dict.fromkeys(order)), bins, tables)
        shares = ExpectedShares(
            sequence=model.sequence,
            bins=bins,
            model=model.tuple_model,
            networked=len(joined),
            measured=tables,
        )
        return replace(model, rules=compile_constraints(task, shares))

    def restore(self, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> MSTModel:
        """A model from its saved state."""
        bins = restore_bins(task, meta["sequence"], arrays)
        tables = tuple(
            NoisyTable((bins[parent], bins[child]), arrays[f"pair.{at}"], deviation)
            for at, (parent, child, deviation) in enumerate(meta["pairs"])
        )
        rules = restore_rules(task, meta, arrays)
        return MSTModel(task, tuple(meta["sequence"]), bins, tables, rules)


def grow_tree(
    private: Door[TableRows], rows: int, noise: Mapping[str, Fraction], bins: Sequence[Histogram]
) -> tuple[NoisyTable, ...]:
    """Tables (parent, child): pairs far from independent, in L1, are likely to join the tree."""
    mass, inside = np.concatenate([each.mass for each in bins]), np.arange(len(bins)) < 1
    expected, tables = rows * np.outer(mass, mass), list[NoisyTable]()
    while not inside.all():
        joining = np.triu(inside[:, None] != inside)
        scores = PairScores(tuple(bins), expected, np.zeros(joining.shape), joining)
        pair = private.answer(scores, Exponential(noise["tree"]), f"tree {len(tables)}")
        parent, child = sorted(pair, key=lambda at: not inside[at])
        inside[child], noisy = True, DiscreteGaussian(noise["pairs"])
        tables.append(count_table(private, (bins[parent], bins[child]), noisy, f"pair {child}"))
    return tuple(tables)


def synthesizer_of(name: str, progress: Progress) -> MST:  # noqa: ARG001 - what the registry calls
    """The method."""
    return MST()
