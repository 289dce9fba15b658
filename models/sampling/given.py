"""Rows some of whose attributes are given, each row its own values; the rest is drawn under them.

Given attributes take their places in the chain with the levels that they have, so the conditionals
of all later attributes see them, and supports are followed through them. A row whose given values
no support allows has a dead end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloister.arrays import Floats, Integers
from cloister.constraints.supports import Coupling
from cloister.models.sampling.ancestral import AncestralSampler, PairwiseChecker, Tilt
from cloister.models.sampling.chain import Batch, ConstrainedChain


@dataclass(frozen=True)
class GivenSampler:
    """Draws batches of rows from a chain under ``given`` attributes.

    Their values, and those of attributes outside the chain, come with each draw.
    """

    chain: ConstrainedChain
    given: tuple[str, ...]
    checker: PairwiseChecker | None = None

    def draw(
        self, codes: Mapping[str, Integers], rng: np.random.Generator, tilt: Tilt | None = None
    ) -> Batch:
        """A batch of rows with fine codes (n,) given by name."""
        sampler = replace(self._sampler, tilt=tilt)
        batch = Batch.start(self.chain, len(next(iter(codes.values()))), rng)
        batch.codes |= codes
        for place, name in enumerate(self.chain.sequence):
            if name in self.given:
                sampler.advance(batch, place, self.chain.bins[name].of(codes[name]))
            else:
                sampler.extend(batch, place)
        last = len(self.chain.sequence)
        for name in self.given:
            if self.chain.has_box(name):
                box = self.chain.box(name, batch.nodes)
                batch.end(last, (codes[name] < box[:, 0]) | (codes[name] >= box[:, 1]))
        return batch

    @cached_property
    def _sampler(self) -> AncestralSampler:
        coupled = CoupledToGiven(self.chain, self.given)
        return AncestralSampler(self.chain, coupled if coupled.couplings else None, self.checker)


@dataclass(frozen=True)
class CoupledToGiven:
    """Moves attributes that a support couples to a given one along with its value.

    Implements :class:`cloister.models.sampling.ancestral.Evidence`.
    """

    chain: ConstrainedChain
    given: tuple[str, ...]

    @cached_property
    def couplings(self) -> tuple[Coupling, ...]:
        """The couplings of a given attribute with one that is drawn."""
        return tuple(
            coupling
            for support in self.chain.supports
            for coupling in support.couplings
            if (coupling.first in self.given) != (coupling.second in self.given)
        )

    def likelihood(self, place: int, nodes: Integers, levels: Integers) -> Floats | None:  # noqa: ARG002
        """None: given values do not make levels of others more or less likely here."""
        return None

    def restrict(self, batch: Batch, names: Sequence[str]) -> None:
        """Set the quantiles of resolved attributes by the values of those they are coupled to."""
        for coupling in self.couplings:
            first_given = coupling.first in self.given
            own, other = coupling.first, coupling.second
            if not first_given:
                own, other = other, own
            if other in names:
                box = self.chain.box(own, batch.nodes)
                quantile = self.chain.bins[own].quantile_in_box(box, batch.codes[own])
                batch.quantiles[other] = quantile if coupling.sign > 0 else 1.0 - quantile
