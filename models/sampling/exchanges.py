"""Values inside bins that keep rules on a row, where the bins of its attributes do.

Under ``paid > claimed`` rows that have both numbers in one bin break the rule half of the time if
their values there are drawn for themselves. To leave such rows out changes how often bins come
together, which the model has from the data, and to draw them anew what values their bins hold. So
they exchange values with other rows of the same bin, as long as both then keep all rules; what is
left after that is drawn anew inside its bins.

Privacy: post-processing of a released model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.models.discretization.bins import Bins
from cloister.schema.domain import Domain, Table

_EXCHANGES = 40
"""Times that each row that breaks a rule is given another one to exchange a value with."""

_DRAWS = 10
"""Times that the values of a row that still breaks one are drawn anew inside its bins."""


@dataclass(frozen=True)
class WithinBins:
    """Rows of which some attributes may take other values of their bins.

    ``levels`` (n,) are the bins of these attributes, ``lawful`` says which rows keep all rules.
    Rows that are not ``alive`` (n,) stay as they are.
    """

    rows: Table
    alive: Booleans
    levels: Mapping[str, Integers]
    bins: Mapping[str, Bins]
    lawful: Callable[[Table], Booleans]

    def settle(self, rng: np.random.Generator) -> Table:
        """The rows, with as many of them lawful as a few exchanges and draws can make so."""
        broken = np.flatnonzero(self.alive & ~self.lawful(self.rows))
        if not len(broken):
            return self.rows
        codes, names = dict(self.rows.codes), list(self.levels)
        codes |= {name: codes[name].copy() for name in names}
        for number in range(_EXCHANGES):
            broken = self._exchange(names[number % len(names)], codes, broken, rng)
        for _ in range(_DRAWS):
            broken = self._draw(names, codes, broken, rng)
        return Table(self.rows.domain, codes)

    def _exchange(
        self, name: str, codes: dict[str, Integers], broken: Integers, rng: np.random.Generator
    ) -> Integers:
        """Exchange values with rows that keep the rules; returns the rows that still break them."""
        partners = _of_same_level(self.levels[name], np.flatnonzero(self.alive), broken, rng)
        _, first = np.unique(partners, return_index=True)
        first = first[~np.isin(partners[first], broken)]
        own, other = broken[first], partners[first]
        both = np.concatenate([own, other])
        given = codes[name][np.concatenate([other, own])]
        kept = self.lawful(_some(self.rows.domain, codes, both, {name: given}))
        done = kept[: len(own)] & kept[len(own) :]
        codes[name][both[np.tile(done, 2)]] = given[np.tile(done, 2)]
        return np.setdiff1d(broken, own[done], assume_unique=True)

    def _draw(
        self,
        names: Sequence[str],
        codes: dict[str, Integers],
        broken: Integers,
        rng: np.random.Generator,
    ) -> Integers:
        """Draw values anew inside bins; returns the rows that still break rules."""
        drawn = {
            name: self.bins[name].refine(self.levels[name][broken], rng.random(len(broken)))
            for name in names
        }
        kept = self.lawful(_some(self.rows.domain, codes, broken, drawn))
        for name, own in drawn.items():
            codes[name][broken[kept]] = own[kept]
        return broken[~kept]


def _of_same_level(
    levels: Integers, among: Integers, rows: Integers, rng: np.random.Generator
) -> Integers:
    """For each of some rows (n,), which are ``among`` others (m,), one of these of its level."""
    order = among[np.argsort(levels[among], kind="stable")]
    counts = np.bincount(levels[among])
    begins = np.cumsum(counts) - counts
    of = levels[rows]
    return order[begins[of] + (rng.random(len(rows)) * counts[of]).astype(np.int64)]


def _some(
    domain: Domain, codes: Mapping[str, Integers], rows: Integers, changed: Mapping[str, Integers]
) -> Table:
    """Some rows, by number, with changed codes (n,)."""
    return Table(domain, {name: own[rows] for name, own in codes.items()} | dict(changed))
