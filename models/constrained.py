"""Shared by models that draw inside feasible sets: sampler, certificate sentences, state.

The state is JSON and arrays: bins, rules, weights of constraints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from numpy.typing import NDArray

from cloister.constraints import DenialConstraint
from cloister.models.core.bins import Histogram
from cloister.models.core.released_counts import ReleasedCounts
from cloister.models.feasible_sets.builder import CompiledConstraints
from cloister.models.feasible_sets.feasible_set import Coupling, FeasibleSet
from cloister.models.protocol import Arrays, ModelState
from cloister.models.sampling.chain import TupleModel
from cloister.models.sampling.drawing import Sampler, Where
from cloister.models.sampling.row_by_row import Algorithm3, Penalty
from cloister.models.sampling.sampler import ConstraintSampler, EveryRow
from cloister.models.soft_constraints.reweighting import Reweighting
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.columns import Grid, Serial
from cloister.schema.domain import Table
from cloister.schema.partition import intervals, tree_of

_Meta = dict[str, Any]

_Stored = dict[str, NDArray[Any]]

CUT_OFF = "noisy counts below zero are cut off, and shares are made to add up to one"

_SMOOTHED = (
    "noisy histograms are moved towards their mean, or towards neighbouring cells, where that "
    "lowers their estimated error"
)

_TAILED = "outer parts of a number's range with less mass than noise follow a fitted tail"

_MERGED = (
    "values of an attribute are merged to bins by its released histogram, and spread inside them "
    "by the same"
)

_NEAREST = (
    "noisy counts of a tree of codes are made to agree; a code that noise explains is "
    "drawn as the nearest under the same parent that noise does not explain"
)

_SUPPORTED = (
    "rows are drawn inside feasible sets of the hard constraints, which are chosen from released "
    "statistics"
)

REPAIRED = (
    "rows in which two numbers break a hard constraint, though their bins do not, exchange values "
    "with other rows of the same bin, or take others of their bins"
)

_CHECKED = (
    "a row that would break a hard constraint without a feasible set is replaced by another draw "
    "of the model, or by one from flatter probabilities if the model yields none that keeps it"
)

BALANCED = (
    "of four times the rows, those are kept whose two-way tables are nearest to the tables of all"
)

_REWEIGHTED = "rows are kept with weights fitted to {} of the soft constraints"

_SEQUENTIAL = (
    "rows are drawn one after the other: where an attribute completes a soft constraint, each "
    "violation with the rows before makes a value less likely, by {}"
)

_ACCEPTED = "of such an attribute at most {} values a row are tried, and the last one is taken"

_RESAMPLED = "{:g} % of the values of such an attribute are drawn anew afterwards"

_NUMBERED = "surrogate keys are numbered afresh; none is taken from the data"


def state_of_bins(bins: Mapping[str, Histogram], sequence: Sequence[str]) -> _Stored:
    """The arrays of the bins of a sequence of attributes."""
    arrays: _Stored = {}
    for index, name in enumerate(sequence):
        histogram = bins[name]
        arrays |= {
            f"cells.{index}": histogram.starts,
            f"groups.{index}": histogram.parts,
            f"histogram.{index}": histogram.shares,
        }
    return arrays


def restore_bins(task: Task, sequence: Sequence[str], arrays: Arrays) -> dict[str, Histogram]:
    """The bins whose :func:`state_of_bins` is given."""
    return {
        name: Histogram.over(
            intervals(task.domain[name], arrays[f"cells.{index}"]),
            arrays[f"groups.{index}"],
            arrays[f"histogram.{index}"],
        )
        for index, name in enumerate(sequence)
    }


def state_of_rules(rules: CompiledConstraints) -> tuple[_Meta, _Stored]:
    """The rules as JSON and arrays."""
    arrays: _Stored = {}
    for index, feasible_set in enumerate(rules.feasible_sets):
        arrays[f"support.{index}"] = feasible_set.levels
        arrays |= {
            f"box.{index}.{feasible_set.attributes.index(name)}": box
            for name, box in feasible_set.boxes.items()
        }
    meta = {
        "supports": list(map(_described, rules.feasible_sets)),
        "row_rules": [rule.name for rule in rules.row_rules],
        "pair_rules": [rule.name for rule in rules.pair_rules],
    }
    return meta, arrays


def _described(feasible_set: FeasibleSet) -> _Meta:
    return {
        "attributes": list(feasible_set.attributes),
        "boxes": [feasible_set.attributes.index(name) for name in feasible_set.boxes],
        "couplings": [
            [coupling.first, coupling.second, coupling.sign] for coupling in feasible_set.couplings
        ],
    }


def restore_rules(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> CompiledConstraints:
    """The rules whose :func:`state_of_rules` is given."""
    named = {constraint.name: constraint for constraint in task.constraints}
    feasible_sets = tuple(
        _feasible_set(index, about, arrays) for index, about in enumerate(meta["supports"])
    )
    row_rules = tuple(named[name] for name in meta["row_rules"])
    return CompiledConstraints(
        feasible_sets, row_rules, tuple(named[name] for name in meta["pair_rules"])
    )


def _feasible_set(index: int, about: Mapping[str, Any], arrays: Arrays) -> FeasibleSet:
    attributes = tuple(about["attributes"])
    boxes = {attributes[column]: arrays[f"box.{index}.{column}"] for column in about["boxes"]}
    couplings = tuple(Coupling(first, second, sign) for first, second, sign in about["couplings"])
    return FeasibleSet(attributes, arrays[f"support.{index}"], boxes, couplings)


def state_of_reweighting(reweighting: Reweighting | None) -> tuple[_Meta, _Stored]:
    """The weights as JSON and arrays; nothing if there are none."""
    if reweighting is None:
        return {"weights": None}, {}
    codes = reweighting.reference.codes
    arrays = {
        f"reference.{index}": codes[name]
        for index, name in enumerate(reweighting.reference.domain.names)
    }
    return {"weights": dict(reweighting.weights), "measure": reweighting.measure}, dict(arrays)


def restore_reweighting(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> Reweighting | None:
    """The weights whose :func:`state_of_reweighting` is given."""
    if meta["weights"] is None:
        return None
    codes = {name: arrays[f"reference.{index}"] for index, name in enumerate(task.domain.names)}
    named = {constraint.name: constraint for constraint in task.soft}
    rules = tuple((named[name], weight) for name, weight in meta["weights"].items())
    return Reweighting(rules, Table(task.domain, codes), meta["measure"])


def state_of_algorithm(algorithm: Algorithm3) -> tuple[_Meta, _Stored]:
    """The way in which rows are drawn one after the other as JSON; nothing if they are not."""
    if not algorithm.penalties:
        return {}, {}
    costs = [
        [penalty.constraint.name, penalty.weight, penalty.per] for penalty in algorithm.penalties
    ]
    return {
        "penalties": costs,
        "resampled": algorithm.resampled,
        "tries": algorithm.tries,
    }, {}


def restore_algorithm(task: Task, meta: Mapping[str, Any]) -> Algorithm3:
    """The way whose :func:`state_of_algorithm` is given."""
    if "penalties" not in meta:
        return Algorithm3()
    named = {constraint.name: constraint for constraint in task.constraints}
    penalties = tuple(Penalty(named[name], weight, per) for name, weight, per in meta["penalties"])
    return Algorithm3(penalties, meta["resampled"], meta["tries"])


def merge_states(*parts: tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]) -> ModelState:
    """Several states as one."""
    meta: _Meta = {}
    arrays: _Stored = {}
    for part_meta, part_arrays in parts:
        meta |= part_meta
        arrays |= part_arrays
    return meta, arrays


def estimated_histograms(bins: Mapping[str, Histogram]) -> tuple[str, ...]:
    """What is done to noisy histograms until they are bins, in sentences for a certificate."""
    steps = {
        CUT_OFF: True,
        _SMOOTHED: True,
        _TAILED: any(isinstance(histogram.column, Grid) for histogram in bins.values()),
        _NEAREST: any(tree_of(histogram.column) for histogram in bins.values()),
        _MERGED: any(histogram.size < histogram.cells for histogram in bins.values()),
    }
    return tuple(sentence for sentence, done in steps.items() if done)


class ConstrainedModel(ABC):
    """Released statistics over bins, and the rules that rows satisfy.

    Base of frozen dataclasses with these fields: ``sequence`` is the order in which attributes are
    drawn, ``bins`` what the statistics are over, ``rules`` how the hard constraints are enforced,
    by `compile_constraints`: without them none is. A method adds fields of what it released,
    :attr:`tuple_model`, :meth:`own_post_processing` and :meth:`own_state`; all else has a default.
    """

    task: Task
    sequence: tuple[str, ...]
    bins: Mapping[str, Histogram]
    rules: CompiledConstraints

    drawn_whole: ClassVar[frozenset[str]] = frozenset({BALANCED, REPAIRED})
    """Sentences of :meth:`post_processing` on how `sampler` draws whole tables."""

    @property
    @abstractmethod
    def tuple_model(self) -> TupleModel:
        """The distribution of rows, as a chain of conditionals in the order of ``sequence``.

        Given any bins before, also those that no row had, a conditional is finite and not negative;
        it need not add up to one. A cached property, since it is asked at every batch.
        """

    @property
    def sampler(self) -> Sampler:
        """The sampler of its rows: one by one, unless a method draws whole tables."""
        return self.constraint_sampler

    @abstractmethod
    def own_state(self) -> ModelState:
        """The fields that a method adds, as JSON and as arrays, for its synthesizer's ``restore``.

        Sequence, bins and rules are in :meth:`state` of every model, and `restore_bins` and
        `restore_rules` read them; the names of their entries are taken.
        """

    def processing_of_counts(self) -> tuple[str, ...]:
        """What was done to the noisy histograms, in sentences for a certificate."""
        return estimated_histograms(self.bins)

    @abstractmethod
    def own_post_processing(self) -> tuple[str, ...]:
        """What the method does to its noisy answers, in sentences for a certificate."""

    @property
    def capacity(self) -> int | None:
        """None: a model of released statistics gives any number of rows."""
        return None

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histogram of each attribute."""
        return self.bins

    @property
    def released_counts(self) -> ReleasedCounts | None:
        """The noisy counts that its fit was told; None of a method that keeps none, by default."""
        return None

    @property
    def reweighting(self) -> Reweighting | None:
        """The weights of the soft constraints, if there are any."""
        return None

    @property
    def algorithm(self) -> Algorithm3:
        """How rows are drawn one after the other, if they are."""
        return Algorithm3()

    @cached_property
    def constraint_sampler(self) -> ConstraintSampler:
        """Rows drawn one by one from the tuple model inside the feasible sets."""
        return ConstraintSampler(
            self.task.domain,
            self.sequence,
            self.bins,
            self.tuple_model,
            self.rules.feasible_sets,
            self.rules.row_rules,
            self.rules.pair_rules,
            self.reweighting or EveryRow(),
            self.algorithm,
        )

    def finish(self, rows: Table) -> Table:
        """Rows of the :attr:`constraint_sampler` as those of the table: they are."""
        return rows

    def unfinished(self, rows: Table) -> Table:
        """Rows of the table as those of the :attr:`constraint_sampler`; see :meth:`finish`."""
        return rows

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` rows that satisfy every hard constraint.

        SampleError if they cannot be drawn.
        """
        return self.sampler.sample(rows, rng, where)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        rules, columns = self.rules, self.task.domain
        steps = {
            **dict.fromkeys(self.processing_of_counts(), True),
            **dict.fromkeys(self.own_post_processing(), True),
            _SUPPORTED: bool(rules.feasible_sets),
            REPAIRED: bool(self.constraint_sampler.redrawn),
            _CHECKED: bool(rules.row_rules or rules.pair_rules),
            _REWEIGHTED.format(sources_of_rates(self.task.soft)): self.reweighting is not None
            and any(self.reweighting.weights.values()),
            **dict.fromkeys(_sentences(self.algorithm), True),
            _NUMBERED: any(isinstance(column, Serial) for column in columns),
        }
        return tuple(sentence for sentence, done in steps.items() if done)

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        counts = self.released_counts
        return merge_states(
            ({"sequence": list(self.sequence)}, state_of_bins(self.bins, self.sequence)),
            self.own_state(),
            state_of_rules(self.rules),
            counts.state(self.sequence) if counts else ({}, {}),
        )


def sources_of_rates(soft: Sequence[DenialConstraint]) -> str:
    """Where the rates of soft constraints are from, in words."""
    measured = any(rule.known is None for rule in soft)
    known = any(rule.known is not None and rule.known.rate is not None for rule in soft)
    words = ["noisy counts of violations"] * measured + ["the declared rates"] * known
    return " and ".join(words) or "the rates"


def _sentences(algorithm: Algorithm3) -> tuple[str, ...]:
    """What is done where rows are drawn one after the other."""
    if not algorithm.penalties:
        return ()
    rules = [penalty.constraint for penalty in algorithm.penalties]
    weighted = any(rule.known is not None and rule.known.weight is not None for rule in rules)
    fitted = any(rule.known is None or rule.known.weight is None for rule in rules)
    sources = ["the weights that the spec declares"] * weighted
    sources += [f"weights that follow from {sources_of_rates(rules)}"] * fitted
    sentences = [_SEQUENTIAL.format(" and ".join(sources))]
    if algorithm.tries is not None:
        sentences.append(_ACCEPTED.format(algorithm.tries))
    if algorithm.resampled:
        sentences.append(_RESAMPLED.format(100 * algorithm.resampled))
    return tuple(sentences)


class ReweightedModel(ConstrainedModel):
    """A constrained model whose rows may have weights by the soft constraints."""

    reweighting: Reweighting | None

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        return merge_states(super().state(), state_of_reweighting(self.reweighting))


class SequentialModel(ReweightedModel):
    """A reweighted model whose rows may also be drawn one after the other, by penalties."""

    algorithm: Algorithm3

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        return merge_states(super().state(), state_of_algorithm(self.algorithm))
