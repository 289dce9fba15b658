"""A finite pool of released rows: the product of a fit, of which every sample is a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.errors import SampleError
from cloister.models.constrained import merge_states
from cloister.models.deniability.bayes.model import NetworkModel, restore_network
from cloister.models.discretization.bins import Bins
from cloister.models.protocol import Arrays, ModelState, Where, sample_whole
from cloister.models.sampling.conditions import Condition
from cloister.models.sampling.sampler import chunks_of, number_keys
from cloister.models.task import Task
from cloister.privacy.mechanisms.randomness import SamplingSource
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
    "records keep their levels where the supports of hard constraints allow them, and take values "
    "inside levels by released histograms"
)


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
    def histograms(self) -> Mapping[str, Bins]:
        """The released histogram of each attribute."""
        return self.network.bins

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        filled = self.pool.rows - self.seeded
        counts = {"seeded": self.seeded, "rows": self.pool.rows, "filled": filled}
        own = tuple(
            sentence
            for sentence in self.network.post_processing()
            if sentence not in self.network.drawn_whole
        )
        more = (_FILLED.format(**counts),) if filled else ()
        return (*own, _REFINED, _SEEDED.format(**counts), *more)

    def sample(self, rows: int, rng: SamplingSource, where: Where | None = None) -> Table:
        """Exactly ``rows`` of the released rows; SampleError if there are fewer."""
        return sample_whole(self.sampler, rows, rng, where)

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        stored: dict[str, NDArray[Any]] = {
            f"pool.{at}": _narrow(self.pool.codes[name])
            for at, name in enumerate(self.pool.domain.names)
        }
        return merge_states(self.network.state(), ({"seeded": self.seeded}, stored))


def restore_pool(task: Task, meta: Mapping[str, Any], arrays: Arrays) -> DeniableModel:
    """The model whose :meth:`DeniableModel.state` is given."""
    codes = {
        name: arrays[f"pool.{at}"].astype(np.int64) for at, name in enumerate(task.domain.names)
    }
    network = restore_network(task, meta, arrays)
    return DeniableModel(task, network, Table(task.domain, codes), meta["seeded"])


@dataclass(frozen=True)
class PoolSampler:
    """Draws rows of a pool without replacement."""

    pool: Table
    network: NetworkModel

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.pool.domain

    @property
    def remembers(self) -> bool:
        """False: a chunk depends on the seed and its number alone."""
        return False

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),  # noqa: ARG002 - any part of the pool fits any other
    ) -> Iterator[Table]:
        """Rows of the pool, no row twice, in chunks from number ``first`` on.

        Raises:
            SampleError: the pool has fewer rows, or fewer that fulfil the condition.
        """
        fitting = self._fitting(where)
        if rows > len(fitting):
            that = " that fulfil the condition" if where else ""
            raise SampleError(
                f"{rows} rows were asked, but the model has {len(fitting)}{that}: it gives no "
                "others than the released ones; ask for fewer rows"
            )
        chosen = rng.generator.permutation(fitting)[:rows]
        for own in chunks_of(rows, rng, first):
            yield number_keys(self.pool.take(chosen[own.begin : own.begin + own.rows]), own.begin)

    def _fitting(self, where: Where | None) -> NDArray[np.int64]:
        """The numbers of the rows that fulfil a condition."""
        fits = np.ones(self.pool.rows, dtype=bool)
        if where:
            chain = self.network.constraint_sampler.chain
            for name, code in Condition.of(where, self.domain, chain).codes.items():
                fits &= self.pool.codes[name] == code
        return np.flatnonzero(fits)


def released_pool(rows: Table) -> Table:
    """Rows with their keys unset: they are numbered when they are drawn."""
    unset = np.zeros(rows.rows, dtype=np.int64)
    codes = {c.name: unset if isinstance(c, Serial) else rows.codes[c.name] for c in rows.domain}
    return Table(rows.domain, codes)


def _narrow(codes: NDArray[np.int64]) -> NDArray[Any]:
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
