"""Whether rows can be drawn under connected constraints, and a support where they hardly can.

Supports are chosen constraint by constraint. Where they leave next to nothing together, one support
takes their place that lists whole rows: of rows that the model draws, each that satisfies all
constraints beside those taken before. Something is left then, whatever the noise.

Source: Kamino Algorithm 3, on representative values of bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.constraints import DenialConstraint, key_attributes
from cloister.constraints.counting import violations_per_row
from cloister.constraints.supports import Support
from cloister.models.discretization.bins import Bins
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import ConstrainedChain
from cloister.models.sampling.sequential.violation_index import PairIndex, Penalty
from cloister.schema.domain import Domain, Table

_TRIED_ROWS = 2_048
"""Rows drawn to see what share of them can be kept."""

_LISTED_ROWS = 20_000
"""Rows from which a support that lists whole rows is chosen: half the model's, half any."""


def share_drawable(
    chain: ConstrainedChain,
    domain: Domain,
    row_rules: Sequence[DenialConstraint],
    rng: np.random.Generator,
) -> float:
    """The share of a chain's rows that have no dead end and satisfy the rules on single rows."""
    if any(not len(support.levels) for support in chain.supports):
        return 0.0
    batch = AncestralSampler(chain).draw(_TRIED_ROWS, rng)
    kept = batch.alive & _satisfying(_table(domain, batch.codes, _TRIED_ROWS), row_rules)
    return float(kept.mean())


def explicit_support(
    group: Sequence[DenialConstraint],
    domain: Domain,
    chain: ConstrainedChain,
    rng: np.random.Generator,
) -> Support | None:
    """A support that lists rows of representative values, which violate nothing together.

    ``chain`` has no supports. None if no row satisfies the constraints alone.
    """
    names = tuple(name for name in chain.sequence if any(name in c.attributes for c in group))
    pairs = [c for c in group if c.arity == 2 and key_attributes(c) is None]
    index = PairIndex(domain, tuple(Penalty(constraint) for constraint in pairs))
    taken = [np.zeros((0, len(names)), dtype=np.int64)]
    for levels in _candidates(names, chain, rng):
        new = _distinct(levels, np.concatenate(taken))
        rows = _representatives(names, new, domain, chain)
        new = new[_satisfying(rows, [c for c in group if c.arity == 1])]
        rows = _representatives(names, new, domain, chain)
        taken.append(new[index.admit(rows, rng)] if pairs else new)
    listed = np.concatenate(taken)
    if not len(listed):
        return None
    boxes = {
        name: _point(chain.bins[name])[listed[:, at]]
        for at, name in enumerate(names)
        if chain.bins[name].levels.wide.any()
    }
    return Support(names, listed, boxes).reorder(chain.sequence)


def _candidates(
    names: Sequence[str], chain: ConstrainedChain, rng: np.random.Generator
) -> Iterator[Integers]:
    """Levels (n, k) of rows: first the model's, then any, evenly."""
    batch = AncestralSampler(chain).draw(_LISTED_ROWS // 2, rng)
    yield batch.levels[:, [chain.sequence.index(name) for name in names]]
    sizes = [chain.bins[name].size for name in names]
    yield np.stack([rng.integers(0, size, _LISTED_ROWS // 2) for size in sizes], axis=1)


def _distinct(levels: Integers, before: Integers) -> Integers:
    """The rows of ``levels`` that are in neither ``before`` nor above, in their order."""
    _, first = np.unique(np.concatenate([before, levels]), axis=0, return_index=True)
    return levels[np.sort(first[first >= len(before)]) - len(before)]


def _representatives(
    names: Sequence[str], levels: Integers, domain: Domain, chain: ConstrainedChain
) -> Table:
    points = {name: chain.bins[name].levels.point[levels[:, at]] for at, name in enumerate(names)}
    return _table(domain, points, len(levels))


def _table(domain: Domain, codes: dict[str, Integers], rows: int) -> Table:
    unknown = np.zeros(rows, dtype=np.int64)
    return Table(domain, {name: codes.get(name, unknown) for name in domain.names})


def _satisfying(rows: Table, rules: Sequence[DenialConstraint]) -> Booleans:
    kept = np.ones(rows.rows, dtype=bool)
    for rule in rules:
        kept &= violations_per_row(rule, rows) == 0
    return kept


def _point(bins: Bins) -> Integers:
    return np.stack([bins.levels.point, bins.levels.point + 1], axis=1)
