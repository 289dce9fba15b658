"""Records made from seeds: one fit, and the finite pool of released rows that it makes.

The network is fitted to two parts of the rows, the records come from the third, and every sample is
a part of the pool. Released records are levels, and are made rows without a violation;
post-processing.

A record keeps its levels wherever the feasible sets of the hard constraints allow them; where they
do not, an attribute takes another level, by the network. Records that still break a rule are left
out.

The error of the network on one attribute of a row, given all others, is measured here too.
Source: Bindschaedler, Shokri, Gunter (VLDB 2017), section 6.2, Figures 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.errors import SampleError
from cloister.models.constrained import merge_states
from cloister.models.core.bins import Histogram
from cloister.models.deniability.network import BayesianNetwork, NetworkModel, restore_network
from cloister.models.deniability.network_fit import NetworkDoors, NetworkFit
from cloister.models.deniability.paper.fit import PaperFit
from cloister.models.deniability.paper.plan import DeniabilityPaperParameters
from cloister.models.deniability.plan import (
    PARAMETERS,
    SEEDS,
    STRUCTURE,
    DeniabilityParameters,
    divided_parts,
)
from cloister.models.deniability.seeding import SeedParameters
from cloister.models.protocol import Arrays, ModelState, Progress
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch
from cloister.models.sampling.conditions import Condition
from cloister.models.sampling.drawing import ANYTHING, CHUNK_ROWS, Given, Sampler, Where, split_rows
from cloister.models.sampling.sampler import ConstraintSampler
from cloister.models.task import Plan, Task
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.query import Door, TableRows
from cloister.privacy.queries.seeded_records import PrefixLengths, SeededCandidates
from cloister.schema.columns import Serial
from cloister.schema.domain import Domain, Table

_SEEDED = (
    "{seeded:,} of {rows:,} rows are records made from seeds that passed the privacy test; a "
    "sample is a random part of these rows, and the model gives no others"
)

_FILLED = (
    "{filled:,} rows, in place of records that failed the test or broke a hard constraint, have "
    "every attribute drawn from the network, and depend on no seed"
)

_REFINED = (
    "records keep their levels where the feasible sets of hard constraints allow, and take values "
    "inside levels by released histograms"
)

_BLOCK = 8_192
"""Rows whose scores are in memory at a time."""

_SEED = 20_170_102
"""Public seed of the values drawn for records inside their levels."""


@dataclass(frozen=True)
class DeniableModel:
    """The released rows, ``seeded`` of them made from seeds, and the network that made them."""

    task: Task
    network: NetworkModel
    pool: Table
    seeded: int

    @property
    def sampler(self) -> PoolSampler:
        """Parts of the pool, in random order."""
        return PoolSampler(self.pool, self.network)

    @property
    def capacity(self) -> int | None:
        """All released rows."""
        return self.pool.rows

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histogram of each attribute."""
        return self.network.bins

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        filled = self.pool.rows - self.seeded
        counts = {"seeded": self.seeded, "rows": self.pool.rows, "filled": filled}
        sentences = tuple(
            sentence
            for sentence in self.network.post_processing()
            if sentence not in self.network.drawn_whole
        )
        more = (_FILLED.format(**counts),) if filled else ()
        return (*sentences, _REFINED, _SEEDED.format(**counts), *more)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` of the released rows; SampleError if there are fewer."""
        return self.sampler.sample(rows, rng, where)

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        stored: dict[str, NDArray[Any]] = {
            f"pool.{index}": _narrow(self.pool.codes[name])
            for index, name in enumerate(self.pool.domain.names)
        }
        return merge_states(self.network.state(), ({"seeded": self.seeded}, stored))


def restore_pool(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DeniableModel:
    """The model whose :meth:`DeniableModel.state` is given."""
    codes = {
        name: arrays[f"pool.{index}"].astype(np.int64)
        for index, name in enumerate(task.domain.names)
    }
    network = restore_network(task, meta, arrays)
    return DeniableModel(task, network, Table(task.domain, codes), meta["seeded"])


@dataclass(frozen=True)
class PoolSampler(Sampler):
    """Draws rows of a pool without replacement, once it is :meth:`prepared`."""

    pool: Table
    network: NetworkModel

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.pool.domain

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> PoolSampler:
        """A sampler of ``rows`` rows of the pool, in random order.

        SampleError if fewer rows of the pool fulfil the condition.
        """
        fitting = self._fitting(where)
        if rows > len(fitting):
            that = " that fulfil the condition" if where else ""
            raise SampleError(
                f"{rows} rows were requested, but the model has {len(fitting)}{that}: it draws "
                "only released ones; request fewer rows"
            )
        return replace(self, pool=self.pool.take(rng.generator.permutation(fitting)[:rows]))

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:  # noqa: ARG002
        """The next ``rows`` rows of the pool."""
        return self.pool.take(np.arange(given.first, given.first + rows))

    def _fitting(self, where: Where) -> NDArray[np.int64]:
        """The indices of the rows that fulfil a condition."""
        fits = np.ones(self.pool.rows, dtype=bool)
        if where:
            chain = self.network.constraint_sampler.chain
            for name, code in Condition.of(where, self.domain, chain).codes.items():
                fits &= self.pool.codes[name] == code
        return np.flatnonzero(fits)


def released_pool(rows: Table) -> Table:
    """Rows with keys unset; these are numbered when rows are drawn."""
    unset = np.zeros(rows.rows, dtype=np.int64)
    codes = {c.name: unset if isinstance(c, Serial) else rows.codes[c.name] for c in rows.domain}
    return Table(rows.domain, codes)


def _narrow(codes: NDArray[np.int64]) -> NDArray[Any]:
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


@dataclass(frozen=True)
class ModelError:
    """The share of rows whose level of one attribute is not the most likely one, from 0 to 1.

    By the ``network``, given all other attributes; by the released ``marginals`` alone; and by a
    uniform ``guess``.
    """

    attribute: str
    network: float
    marginals: float
    guess: float


def network_of(model: object) -> BayesianNetwork | None:
    """The Bayesian network of a model, if it has one."""
    if isinstance(model, DeniableModel):
        return model.network.network
    return model.network if isinstance(model, NetworkModel) else None


def model_errors(network: BayesianNetwork, levels: Integers) -> list[ModelError]:
    """The errors on rows of levels (n, m), by attribute in the order of the network."""
    return [_error(network, levels, position) for position in range(len(network.sequence))]


def _error(network: BayesianNetwork, levels: Integers, position: int) -> ModelError:
    histogram = network.partitions[position]
    said = most_likely(network, levels, position)
    mode = int(histogram.mass.argmax())
    return ModelError(
        histogram.name,
        float((said != levels[:, position]).mean()),
        float((levels[:, position] != mode).mean()),
        1 - 1 / histogram.size,
    )


def most_likely(network: BayesianNetwork, levels: Integers, position: int) -> Integers:
    """The most likely level (n,) of one attribute, given the others of rows (n, m)."""
    blocks = [
        _scores(network, levels[begin : begin + _BLOCK], position).argmax(axis=1)
        for begin in range(0, len(levels), _BLOCK)
    ]
    return np.concatenate([np.zeros(0, dtype=np.int64), *blocks])


def _scores(network: BayesianNetwork, levels: Integers, position: int) -> Floats:
    """log2 of the joint probability (n, size) of rows (n, m) with each level at a position.

    Factors in which the attribute does not occur are left out. Those of its children depend on the
    part of its level alone, equation (7).
    """
    name = network.sequence[position]
    with np.errstate(divide="ignore"):
        logs = np.log2(network.conditional(position, levels))
    scores = np.array(np.broadcast_to(logs, (len(levels), logs.shape[1])))
    children = [
        index for index, child in enumerate(network.sequence) if name in _parents(network, child)
    ]
    if not children:
        return scores
    changed, parts = levels.copy(), network.coarsenings[name].joined
    for part in range(network.coarsenings[name].size):
        inside = np.flatnonzero(parts == part)
        changed[:, position] = inside[0]
        of_children = np.sum([network.logs(child, changed) for child in children], axis=0)
        scores[:, inside] += of_children[:, None]
    return scores


def _parents(network: BayesianNetwork, child: str) -> tuple[str, ...]:
    return network.parents.get(child, ())


@dataclass(frozen=True)
class ReleasedRecordSampler(AncestralSampler):
    """Draws rows that take the levels of ``records`` (n, k), wherever the feasible sets allow."""

    records: Integers = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def extend(self, batch: Batch, position: int) -> None:
        """Draw one more attribute; one in no feasible set takes its levels without a draw."""
        if self.chain.sets_at[position]:
            super().extend(batch, position)
        else:
            self.advance(batch, position, self.records[:, position])

    def advance(self, batch: Batch, position: int, levels: Integers) -> None:
        """Give the attribute the records' levels, or drawn ones (n,) where these are infeasible."""
        recorded, allowed = self.records[:, position], np.ones(batch.rows, dtype=bool)
        for index, depth in self.chain.sets_at[position]:
            allowed &= self.chain.tries[index].allows(depth, batch.nodes[index], recorded)
        super().advance(batch, position, np.where(allowed, recorded, levels))


def rows_of_records(model: NetworkModel, records: Integers, rng: SamplingSource) -> Table:
    """The rows (n,) of records (r, k) that break no hard constraint, with values for levels."""
    sampler = model.constraint_sampler
    chunks = split_rows(len(records), CHUNK_ROWS, rng)
    tables = [
        _refined(sampler, records[chunk.begin : chunk.begin + chunk.rows], chunk.stream.generator)
        for chunk in chunks
    ]
    rows = Table.concatenate(tables)
    accepted = sampler.accepted((), whole=True)
    return rows.take(accepted.admit(rows, chunks[0].stream.generator))


def _refined(sampler: ConstraintSampler, records: Integers, rng: np.random.Generator) -> Table:
    batch = ReleasedRecordSampler(sampler.chain, records=records.astype(np.int64)).draw(
        len(records), rng
    )
    rows = sampler.repaired(batch, rng).take(batch.alive)
    return rows.take(sampler.feasible(rows))


def fill_up(model: NetworkModel, rows: Table, wanted: int, rng: SamplingSource) -> Table:
    """The rows, filled up to ``wanted`` with rows drawn from the network.

    A record whose attributes are all drawn anew depends on no seed, so its test always passes.

    Raises:
        SampleError: they cannot be drawn.
    """
    if rows.rows >= wanted:
        return rows
    more = model.constraint_sampler.chunks(wanted - rows.rows, rng, before=[rows])
    return Table.concatenate([rows, *more])


def fit_deniability(
    private: Door[TableRows], task: Task, plan: Plan[DeniabilityParameters], progress: Progress
) -> DeniableModel:
    """The network from parts of the rows, and the records that pass the test from the others."""
    parts = divided_parts(plan.stages)
    doors = dict(zip(parts.names, private.divide(parts.split, "parts"), strict=True))
    network = _network(doors, task, plan, progress)
    query = candidates_of(network, plan.parameters.seeding)
    records = doors[SEEDS].answer(query, plan.parameters.seeding.test, "records")
    finish, fill = SamplingSource(_SEED).spawn(2)
    rows = rows_of_records(network, records, finish)
    pool = fill_up(network, rows, task.output_rows, fill)
    return DeniableModel(task, network, released_pool(pool), rows.rows)


def _network(
    doors: Mapping[str, Door[TableRows]],
    task: Task,
    plan: Plan[DeniabilityParameters],
    progress: Progress,
) -> NetworkModel:
    network_doors = NetworkDoors(doors.get(STRUCTURE, doors[PARAMETERS]), doors[PARAMETERS])
    parameters = plan.parameters.network
    if isinstance(parameters, DeniabilityPaperParameters):
        return PaperFit(network_doors, task, plan.sequence, parameters).train()
    return NetworkFit(network_doors, task, plan.sequence, parameters, progress).train()


def candidates_of(model: NetworkModel, seeding: SeedParameters) -> SeededCandidates:
    """The query of candidate records of a network."""
    return SeededCandidates(
        model.network,
        PrefixLengths(*seeding.kept),
        seeding.gamma,
        seeding.candidates,
        seeding.withheld,
        seeding.least_seeds,
    )
