"""The variants of Kamino that reproduce its paper, or switch parts of it off.

*Trainers:* one sub-model after the other, or all side by side (Algorithm 2; section 4.1, last
paragraph); runs of small attributes are modelled as one (section 4.3, "Optimizations for extreme
domain sizes").

*Weigher:* Algorithm 5, weights of soft constraints from a noisy violation matrix. Its noise swamps
the violations at everyday budgets (docs/papers.md).

*Ablations:* parts of Kamino switched off one by one, to measure their effect (section 7.3.1 and
Table 3). RandSequence is an arbitrary sequence; RandSampling draws rows that satisfy no constraint,
which here are rows under soft constraints without weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.constraints import DenialConstraint
from cloister.figures import count_of
from cloister.models import planning
from cloister.models.core import costs
from cloister.models.core.bins import Histogram
from cloister.models.kamino import recipe
from cloister.models.protocol import Arrays
from cloister.models.soft_constraints.pair_counts import describe_soft
from cloister.models.task import Stage, Task
from cloister.privacy.events import Composed
from cloister.privacy.mechanisms.noise import DiscreteGaussian
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.violations import ViolationMatrix
from cloister.schema.declarations import Sampling

if TYPE_CHECKING:
    from cloister.models.kamino.model import KaminoModel
    from cloister.models.kamino.paper.submodels import UnitChain

HYPER_LEVELS = 128
"""Most joint levels of a hyper-attribute: its sub-model has one output for each."""

MATRIX_ROWS = 100
"""Most rows of the violation matrix; its squared sensitivity grows with their square."""

_ASCENT_STEPS = 100
"""T_w: steps of gradient ascent for each attribute; the paper prints none."""

_BATCH = 1
"""b_w: mean number of matrix lines in a step (Algorithm 6, line 3)."""

_ASCENT_RATE = 0.01
"""Learning rate of gradient ascent; weights start at 1."""

_SEED = 7
"""Public seed of the arbitrary sequence, the same in every run."""

PRINTED = "kamino-paper"
"""The method as printed."""


def hyper_runs(sizes: Sequence[int]) -> recipe.Runs:
    """Runs of neighbouring attributes, each as long as ``HYPER_LEVELS`` joint levels allow."""
    runs: list[list[int]] = []
    for position, size in enumerate(sizes):
        if runs and math.prod(sizes[p] for p in runs[-1]) * size <= HYPER_LEVELS:
            runs[-1].append(position)
        else:
            runs.append([position])
    return tuple(map(tuple, runs))


RUNS: Mapping[str, Callable[[Sequence[int]], recipe.Runs]] = {
    "attributes": recipe.single_runs,
    "hyper-attributes": hyper_runs,
}


class _OfUnitChains:
    """Trainers of a chain of a sub-model for each unit."""

    def restore(
        self, meta: Mapping[str, Any], arrays: Arrays, bins: Sequence[Histogram]
    ) -> UnitChain:
        from cloister.models.kamino.paper.submodels import restore_unit_chain

        return restore_unit_chain(meta, arrays, bins)


@dataclass(frozen=True)
class OneByOne(_OfUnitChains):
    """One run for each unit but the first; the parts are chosen by name.

    ``units`` of :data:`cloister.models.kamino.paper.recipes.RUNS`, ``heads`` of
    :data:`cloister.models.kamino.paper.heads.HEADS`, ``attention`` of
    :data:`cloister.models.kamino.paper.heads.ATTENTIONS`.
    """

    units: str = "attributes"
    attention: str = "softmax"
    heads: str = "levels"
    steps: int = 100
    width: int = field(default=recipe.EMBEDDING_WIDTH)

    def runs(self, sizes: Sequence[int]) -> recipe.Runs:
        return RUNS[self.units](sizes)

    def repeats(self, units: int) -> int:
        return max(units - 1, 0)

    def train(self, material: recipe.Material) -> UnitChain:
        from cloister.models.kamino.paper.training import train_chain

        return train_chain(material, self.steps, self._recipe)

    def explain(self, units: int, attributes: int) -> str:
        return (
            f"{count_of(self.repeats(units), 'run')} of {count_of(self.steps, 'step')} of DP-SGD, "
            f"one a sub-model, on {count_of(attributes, 'attribute')}"
        )

    @property
    def _recipe(self) -> Mapping[str, Any]:
        return {"attention": self.attention, "heads": self.heads, "width": self.width}


@dataclass(frozen=True)
class SideBySide(_OfUnitChains):
    """One run for sub-models that share nothing: each step trains all of them."""

    steps: int = 200
    width: int = field(default=recipe.EMBEDDING_WIDTH)

    def runs(self, sizes: Sequence[int]) -> recipe.Runs:
        return recipe.single_runs(sizes)

    def repeats(self, units: int) -> int:
        return int(units > 1)

    def train(self, material: recipe.Material) -> UnitChain:
        from cloister.models.kamino.paper.training import train_side_by_side

        trained = {"attention": "softmax", "heads": "levels", "width": self.width}
        return train_side_by_side(material, trained)

    def explain(self, units: int, attributes: int) -> str:
        return (
            f"{count_of(self.steps, 'step')} of DP-SGD on "
            f"{count_of(max(units - 1, 0), 'sub-model')} side by side, on "
            f"{count_of(attributes, 'attribute')}"
        )


@dataclass(frozen=True)
class MatrixAscent:
    """Algorithm 5: the noisy violation matrix of about ``lines`` rows, and gradient ascent.

    The rows are a Poisson sample.
    """

    lines: int = MATRIX_ROWS
    samplings: tuple[Sampling, ...] = (planning.SEQUENTIAL,)
    weighs_soft: bool = True

    def sample(self, task: Task) -> int:
        """L_w: the greatest number of rows sampled."""
        return max(min(self.lines, task.data_rows // 2), 2)

    def query(self, task: Task) -> ViolationMatrix:
        """The query of the data."""
        sample = self.sample(task)
        return ViolationMatrix(
            task.measured_soft, sample, min(Fraction(sample, task.data_rows), Fraction(1))
        )

    def stage(self, task: Task, noise: Fraction) -> Stage:
        query = self.query(task)
        event = DiscreteGaussian(noise).event(query.sensitivity(task.neighbours))
        words = f"violation matrix of {query.sample} sampled rows by {describe_soft(task)}"
        return Stage("soft constraints", event, words)

    def deviation(self, noise: float, task: Task) -> float | None:  # noqa: ARG002
        return None

    def weigh(
        self, private: Door[TableRows], task: Task, noise: Fraction | None, model: KaminoModel
    ) -> KaminoModel:
        """Weights by Algorithm 5 for measured constraints; declared ones for the others."""
        from cloister.models.sampling.violation_index import Penalty
        from cloister.models.soft_constraints.penalties import fit_penalties, known_penalties

        options, learnt = (
            planning.choose_sampling(task, self.samplings).options,
            known_penalties(task),
        )
        if noise is not None:
            answer = private.answer(self.query(task), DiscreteGaussian(noise), "soft constraints")
            rules = completed_constraints(model.sequence, task.measured_soft)
            rng = np.random.default_rng(recipe.KAMINO_SEED)
            weights = gradient_ascent(np.maximum(answer, 0), rules, rng)
            learnt = (*learnt, *map(Penalty, task.measured_soft, weights.tolist()))
        rates = {
            rule: rule.known.rate
            for rule in task.soft
            if rule.known is not None and rule.known.rate is not None
        }
        pool = model.pool(costs.POOL_ROWS, SamplingSource(recipe.KAMINO_SEED))
        sampler = model.sequential(options, ()).constraint_sampler
        rng = np.random.default_rng(recipe.KAMINO_SEED)
        return model.sequential(options, fit_penalties(task, rates, learnt, sampler, pool, rng))


def gradient_ascent(
    matrix: Integers, active: Sequence[Sequence[int]], rng: np.random.Generator
) -> Floats:
    """Weights (constraints,) after gradient ascent on exp(-weights . violations) of matrix lines.

    ``active`` holds, for each attribute of the sequence, the constraints that it completes; each
    attribute has its own steps, by lines that are sampled at random. The objective has no maximum
    except at weights of 0, so the start and the number of steps decide the result; where a line
    holds many violations its slope vanishes, and the weights stay at their start.

    Source: Kamino Algorithm 5, lines 8 to 15. That weights start at 1 and stay non-negative, and
    the numbers of steps, are ours: the paper prints none.
    """
    weights = np.ones(matrix.shape[1])
    for rules in filter(len, active):
        for _ in range(_ASCENT_STEPS):
            for line in np.flatnonzero(rng.random(len(matrix)) < _BATCH / len(matrix)):
                seen = matrix[line, rules]
                slope = seen * np.exp(-float(weights[rules] @ seen))
                weights[rules] = np.maximum(weights[rules] - _ASCENT_RATE * slope, 0.0)
    return weights


def completed_constraints(
    sequence: Sequence[str], constraints: Sequence[DenialConstraint]
) -> list[list[int]]:
    """For each attribute of a sequence, the constraints that it completes, by number.

    A constraint is completed by the last of its attributes in the sequence (Kamino section 3.2,
    example 3).
    """
    last = [max(sequence.index(name) for name in each.attributes) for each in constraints]
    return [
        [number for number, latest in enumerate(last) if latest == position]
        for position in range(len(sequence))
    ]


def random_sequence(
    sizes: Mapping[str, int], constraints: Sequence[DenialConstraint]
) -> tuple[str, ...]:
    """One arbitrary order of the attributes, for any constraints.

    Those of very large domains still come last.
    """
    del constraints
    shuffled = np.random.default_rng(_SEED).permutation(len(sizes))
    names = [sorted(sizes)[position] for position in shuffled]
    return tuple(sorted(names, key=lambda name: sizes[name] > planning.NETWORKED_LEVELS))


@dataclass(frozen=True)
class Unweighed:
    """Makes no query and leaves soft constraints to the model: every row is kept."""

    samplings: tuple[Sampling, ...] = (planning.SUPPORTS,)
    weighs_soft: bool = False

    def stage(self, task: Task, noise: Fraction) -> Stage:  # noqa: ARG002
        return Stage(
            "soft constraints",
            Composed(()),
            "no query: soft constraints are left to the model",
        )

    def deviation(self, noise: float, task: Task) -> float | None:  # noqa: ARG002
        return None

    def weigh(
        self,
        private: Door[TableRows],  # noqa: ARG002
        task: Task,  # noqa: ARG002
        noise: Fraction | None,  # noqa: ARG002
        model: KaminoModel,
    ) -> KaminoModel:
        return model


PAPER_RECIPES = (
    recipe.KaminoRecipe(
        "kamino-sequential",
        "kamino with one sub-model after another, each from the embeddings of the last, softmax "
        "attention, and hyper-attributes",
        OneByOne(units="hyper-attributes"),
        recipe.ByRates(),
    ),
    recipe.KaminoRecipe(
        "kamino-parallel",
        "kamino with one sub-model per attribute, each from its own start, all trained at once",
        SideBySide(),
        recipe.ByRates(),
    ),
    recipe.KaminoRecipe(
        PRINTED,
        "kamino as its paper prints it: sub-models in sequence by plain gradient descent, weights "
        "from a violation matrix, rows one after the other",
        OneByOne(units="hyper-attributes", heads="normal"),
        MatrixAscent(),
        planning.printed_sequence,
        lambda *_: (),
    ),
    recipe.KaminoRecipe(
        "kamino-unsequenced",
        "kamino with an arbitrary sequence of attributes, to measure what the schema sequence adds",
        recipe.Joint(),
        recipe.ByRates(),
        random_sequence,
    ),
    recipe.KaminoRecipe(
        "kamino-unweighed",
        "kamino with soft constraints left to the model, to measure what their weights add",
        recipe.Joint(),
        Unweighed(),
    ),
)
