"""The paper's output: binary columns, each thresholded for itself.

An attribute may have several ones in a row, or none, and no constraint holds.

Source: Asghar et al., algorithm 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cloister.errors import SampleError
from cloister.models.copula.copula import Copula
from cloister.models.copula.decoding import Scores
from cloister.models.discretization.bins import Bins
from cloister.models.protocol import Where
from cloister.models.sampling.sampler import chunks_of
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.attributes import Integer
from cloister.schema.columns import Grid
from cloister.schema.domain import Domain, Table


@dataclass(frozen=True)
class BinarySampler:
    """Draws the binary columns of a copula of some attributes, in their order.

    ``normals`` draws standard normal numbers of a shape.
    """

    names: tuple[str, ...]
    bins: Mapping[str, Bins]
    copula: Copula
    normals: Callable[[int, int, np.random.Generator], Scores]

    remembers = False

    @cached_property
    def domain(self) -> Domain:
        """A column of zeros and ones for each, called ``attribute=value`` or by a range."""
        single = self.copula.coding.single
        labels = [
            f"{name}={label}"
            for place, name in enumerate(self.names)
            for label in bin_labels(self.bins[name])[single[place] :]
        ]
        attribute = Integer(type="integer", min=0, max=1)
        return Domain(tuple(Grid(label, attribute, 0, 1, 2, ()) for label in labels))

    def chunks(
        self,
        rows: int,
        rng: SamplingSource,
        where: Where | None = None,
        first: int = 0,
        before: Iterable[Table] = (),  # noqa: ARG002 - rows do not depend on others
    ) -> Iterator[Table]:
        """The rows in chunks, from number ``first`` on.

        Raises:
            SampleError: there is a condition.
        """
        if where:
            raise SampleError("binary columns are drawn without conditions")
        for own in chunks_of(rows, rng, first):
            drawn = self.normals(own.rows, self.copula.coding.width, own.stream.generator)
            ones = self.copula.ones(drawn).T.astype(np.int64)
            yield Table(self.domain, dict(zip(self.domain.names, ones, strict=True)))


def bin_labels(bins: Bins) -> tuple[str, ...]:
    """A text for each bin: its value, or its first and last one."""
    cells = bins.cells
    first, last = (
        cells.column.decode(codes).astype(object).where(lambda found: found.notna(), "missing")
        for codes in (cells.starts, cells.stops - 1)
    )
    ends = [
        (str(first.iloc[own[0]]), str(last.iloc[own[-1]]))
        for own in (np.flatnonzero(bins.of_cell == at) for at in range(bins.size))
    ]
    return tuple(low if low == high else f"{low}..{high}" for low, high in ends)
