"""Rows of views: linked records, their rows, and the views as a chain of conditionals.

A record holds the part of each attribute. Views are added one after the other; a record takes a
partial record of the next view with the same shared parts. Since normalised views agree, any
pairing within equal shared parts is a matching of maximum cardinality; otherwise records of greater
count come first, and the rest is linked at random. Upper cross views are the referees of DPView+:
two records with equal shared parts exchange their new parts if that brings the table closer to the
referee's.

Source: Lin, Yu, Huang, "DPView", sections IV-F and IV-G.

Linked records are refined from parts to bins to values without violating a hard constraint: a
record keeps its parts if the feasible sets allow them; otherwise the attribute takes a value that
they allow. The chain serves conditions, feasible sets, and rows that are not linked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from cloister.arrays import Floats, Integers
from cloister.models.core.bins import Histogram
from cloister.models.core.noisy_table import NoisyTable
from cloister.models.dpview.tables import ROUNDINGS, UNBIASED, WholeView, round_views
from cloister.models.dpview.view_choice import Linking
from cloister.models.dpview.views import Names
from cloister.models.sampling.ancestral import AncestralSampler
from cloister.models.sampling.chain import Batch, ConstrainedChain, Probabilities
from cloister.models.sampling.drawing import Sampler, Where
from cloister.models.sampling.whole_tables import ProposingSampler
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.partition import Partition

_FLOOR = 1e-9
"""Added to shares: a level with a count of 0 can be drawn where feasible sets require it."""

Pairing = Callable[[Integers, Integers, Integers, np.random.Generator], Integers]

_EXCHANGES = 20
"""Exchanges offered to each record per referee."""

LINKED_CHUNK_ROWS = 262_144
"""Most rows of a chunk: views are rounded and linked chunk by chunk, which bounds memory."""

MATCHED_CHUNK_ROWS = 4_096
"""The same for a matching, which has up to as many edges as the square of the rows."""


@dataclass(frozen=True, eq=False)
class ViewChain:
    """A chain of conditionals over bins, from views in the order of linking.

    ``sequence`` lists the attributes of the views first, in their order; the others follow their
    histograms.
    """

    sequence: Names
    bins: Mapping[str, Histogram]
    coarsenings: Mapping[str, Partition]
    views: Sequence[NoisyTable]

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """Probabilities of the attribute at ``position``; see `TupleModel`."""
        name = self.sequence[position]
        if name not in self.coarsenings:
            return self.bins[name].mass[None]
        table, known = self._table(name)
        parts = [self.coarsenings[k].joined[context[:, self.sequence.index(k)]] for k in known]
        shares = table[tuple(parts)] if parts else table[None]
        return spread_over_bins(shares, self.coarsenings[name], self.bins[name].mass)

    def _table(self, name: str) -> tuple[Floats, Names]:
        """Shares of an attribute's parts given those before it in the first view that has it."""
        view = next(view for view in self.views if name in view.names)
        position = self.sequence.index(name)
        known = tuple(
            attribute for attribute in view.names if self.sequence.index(attribute) < position
        )
        counts = view.project([*known, name]).counts
        counts = counts + _FLOOR * (counts.sum(axis=tuple(range(len(known)))) + 1.0)
        return counts / counts.sum(axis=-1, keepdims=True), known


def spread_over_bins(shares: Floats, coarsening: Partition, mass: Floats) -> Floats:
    """Shares of bins (n, bins) from shares of parts (n, parts) and the bins' released ``mass``."""
    part, mass = coarsening.joined, mass + 1e-12
    whole = np.bincount(part, weights=mass, minlength=coarsening.size)
    return np.asarray(shares[:, part] * (mass / whole[part]))


@dataclass(frozen=True)
class RecordChain(ConstrainedChain):
    """A chain whose rows follow linked records, wherever the feasible sets allow.

    Row i takes the parts of record i; ``records`` holds parts (n,) by attribute.
    """

    records: Mapping[str, Integers] = field(default_factory=dict)
    coarsenings: Mapping[str, Partition] = field(default_factory=dict)

    def conditional(self, position: int, context: Integers) -> Probabilities:
        """The model's probabilities for attributes outside the records.

        Inside, those of the record's part alone.
        """
        name = self.sequence[position]
        if name not in self.records:
            return super().conditional(position, context)
        shares = np.eye(self.coarsenings[name].size)[self.records[name]]
        mass = self.bins[name].mass
        return spread_over_bins(shares, self.coarsenings[name], mass) + _FLOOR * mass

    def free(self, position: int) -> bool:
        """Whether the attribute at a position is in the records and in no feasible set."""
        return self.sequence[position] in self.records and not self.sets_at[position]

    def draw_bins(self, name: str, rng: np.random.Generator) -> Integers:
        """A bin (n,) inside each record's part, by the released histogram."""
        coarsening, parts = self.coarsenings[name], self.records[name]
        order = np.argsort(coarsening.joined, kind="stable")
        heights = np.append(0.0, np.cumsum(self.bins[name].mass[order] + _FLOOR))
        edges = np.searchsorted(coarsening.joined[order], np.arange(coarsening.size + 1))
        low, high = heights[edges[parts]], heights[edges[parts + 1]]
        slots = (
            np.searchsorted(heights, low + rng.random(len(parts)) * (high - low), side="right") - 1
        )
        return order[np.clip(slots, edges[parts], edges[parts + 1] - 1)]


@dataclass(frozen=True)
class ViewRecordSampler(AncestralSampler):
    """Draws rows that follow records; computes probabilities only in feasible sets."""

    chain: RecordChain

    def extend(self, batch: Batch, position: int) -> None:
        """Draw one more attribute of a batch."""
        if not self.chain.free(position):
            super().extend(batch, position)
            return
        name = self.chain.sequence[position]
        batch.levels[:, position] = self.chain.draw_bins(name, batch.rng)
        batch.codes[name] = self.chain.refine(batch, name)


@dataclass(frozen=True, eq=False)
class Records:
    """Partial records: ``parts`` (n, k), the part of each of the attributes ``names``."""

    names: Names
    parts: Integers

    def of(self, names: Sequence[str]) -> Integers:
        """The parts (n, j) of some of the attributes."""
        return self.parts[:, [self.names.index(name) for name in names]]


def spread_out(view: WholeView) -> Records:
    """The partial records of a view, each as often as its count."""
    cells = np.flatnonzero(view.counts)
    repeated = np.repeat(cells, view.counts.ravel()[cells])
    return Records(
        view.names, np.stack(np.unravel_index(repeated, view.counts.shape), axis=1).astype(np.int64)
    )


def by_priority(
    left: Integers, right: Integers, priority: Integers, rng: np.random.Generator
) -> Integers:
    """For each left record (n, j) a right record (n, j) of equal parts, by priority (n,).

    Records of greater priority choose first. Right records of equal parts are taken in random
    order. Left records that find none take the remaining ones.
    """
    keys = _keys(left, right)
    wanted, offers = keys[: len(left)], keys[len(left) :]
    order = np.lexsort((rng.random(len(left)), -priority, wanted))
    offered = np.lexsort((rng.random(len(right)), offers))
    begins = np.searchsorted(offers[offered], np.arange(keys.max(initial=0) + 2))
    slots = begins[wanted[order]] + _ranks(wanted[order])
    available = slots < begins[wanted[order] + 1]
    taken = np.full(len(left), -1, dtype=np.int64)
    taken[order[available]] = offered[slots[available]]
    return _completed(taken, len(right), rng)


def by_matching(
    left: Integers, right: Integers, _priority: Integers, rng: np.random.Generator
) -> Integers:
    """As :func:`by_priority`, by a matching of maximum cardinality (Hopcroft and Karp).

    Slow on large tables.
    """
    keys = _keys(left, right)
    edges = [np.flatnonzero(keys[len(left) :] == key) for key in keys[: len(left)]]
    index = np.concatenate([[0], np.cumsum([len(partners) for partners in edges])])
    columns = np.concatenate([*edges, np.zeros(0, dtype=np.int64)])
    graph = csr_matrix(
        (np.ones(len(columns), dtype=np.int8), columns, index), shape=(len(left), len(right))
    )
    return _completed(
        maximum_bipartite_matching(graph, perm_type="column").astype(np.int64), len(right), rng
    )


PAIRINGS: Mapping[Linking, Pairing] = {"priority": by_priority, "matching": by_matching}
"""The ways of linking, by name."""


def link_views(
    views: Sequence[WholeView],
    referees: Sequence[NoisyTable],
    rng: np.random.Generator,
    pairing: Pairing = by_priority,
) -> Records:
    """As many whole records as each view holds rows, from views in the order of linking.

    ``referees`` are upper cross views, tried whenever a view completes their attributes.
    """
    records = spread_out(views[0])
    waiting = list(referees)
    for view in views[1:]:
        records, added = _extend(records, spread_out(view), pairing, rng)
        known = set(records.names)
        judges = [
            judge
            for judge in waiting
            if known.issuperset(judge.names) and set(judge.names) & set(added)
        ]
        waiting = [judge for judge in waiting if judge not in judges]
        shared = [name for name in view.names if name not in added]
        for judge in judges:
            records = apply_referee(records, shared, added, judge, rng)
    return records


def _extend(
    records: Records, partner: Records, pairing: Pairing, rng: np.random.Generator
) -> tuple[Records, Names]:
    shared = [name for name in partner.names if name in records.names]
    added = tuple(name for name in partner.names if name not in shared)
    taken = pairing(records.of(shared), partner.of(shared), _multiplicity(records.parts), rng)
    return Records(
        (*records.names, *added), np.hstack([records.parts, partner.of(added)[taken]])
    ), added


def apply_referee(
    records: Records,
    shared: Sequence[str],
    added: Sequence[str],
    referee: NoisyTable,
    rng: np.random.Generator,
) -> Records:
    """The records after exchanges of ``added`` parts that bring the table closer to a referee's.

    Two records exchange parts only if their ``shared`` parts are equal, so no view's table changes.
    """
    old = [name for name in referee.names if name not in added]
    new = [name for name in referee.names if name in added]
    if not old or not new:
        return records
    wanted = referee.project([*old, *new]).counts
    sizes = wanted.shape
    wanted = wanted.reshape(int(np.prod(sizes[: len(old)])), -1) * (
        len(records.parts) / max(wanted.sum(), 1e-9)
    )
    left = np.ravel_multi_index(tuple(records.of(old).T), sizes[: len(old)])
    right = np.ravel_multi_index(tuple(records.of(new).T), sizes[len(old) :])
    order, begins = _grouped(records.of(shared), rng)
    source = np.arange(len(left))
    for _ in range(_EXCHANGES):
        _exchange(source, left, right, wanted, order, begins, rng.integers(0, 2**62, len(left)))
    parts = records.parts.copy()
    columns = [records.names.index(name) for name in added]
    parts[:, columns] = records.parts[source][:, columns]
    return Records(records.names, parts)


@numba.njit(cache=True)
def _exchange(
    source: Integers,
    left: Integers,
    right: Integers,
    wanted: Floats,
    order: Integers,
    begins: Integers,
    draws: Integers,
) -> None:
    """Offer each record one exchange of right parts with another of its group.

    Keep exchanges that lower the squared distance.

    Shapes: ``source``, ``left``, ``right``, ``order``, ``draws`` (n,); ``wanted`` (left kinds,
        right kinds).
    """
    excess = -wanted
    for row in range(len(left)):
        excess[left[row], right[source[row]]] += 1.0
    for group in range(len(begins) - 1):
        first, size = begins[group], begins[group + 1] - begins[group]
        for index in range(first, first + size):
            a, b = order[index], order[first + draws[index] % size]
            la, lb, ra, rb = left[a], left[b], right[source[a]], right[source[b]]
            gain = excess[la, ra] + excess[lb, rb] - excess[la, rb] - excess[lb, ra]
            if la != lb and ra != rb and gain > 2.0:
                excess[la, ra] -= 1.0
                excess[lb, rb] -= 1.0
                excess[la, rb] += 1.0
                excess[lb, ra] += 1.0
                source[a], source[b] = source[b], source[a]


def _multiplicity(parts: Integers) -> Integers:
    """How often each record (n, k) occurs; shape (n,)."""
    keys = _keys(parts, parts[:0])
    return np.bincount(keys)[keys]


def _grouped(shared: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Row numbers (n,) grouped by equal shared parts, in random order, and where groups begin."""
    keys = _keys(shared, shared[:0])
    order = np.lexsort((rng.random(len(keys)), keys))
    return order, np.searchsorted(keys[order], np.arange(keys.max(initial=-1) + 2))


def _keys(left: Integers, right: Integers) -> Integers:
    """A number for each record of both, left ones first, equal for equal parts."""
    both = np.vstack([left, right])
    joint = np.zeros(len(both), dtype=np.int64)
    for column in both.T:
        joint = np.unique(joint * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return joint


def _ranks(ordered: Integers) -> Integers:
    """The rank of each entry among equal ones, which are adjacent."""
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    return np.arange(len(ordered)) - np.repeat(begins, np.diff(np.append(begins, len(ordered))))


def _completed(taken: Integers, offered: int, rng: np.random.Generator) -> Integers:
    """Left records without a partner take remaining right ones, at random.

    If there are too few, right records are taken twice.
    """
    free = np.setdiff1d(np.arange(offered), taken)
    alone = np.flatnonzero(taken < 0)
    spare = np.resize(rng.permutation(free) if len(free) else rng.permutation(offered), len(alone))
    taken[alone] = spare
    return taken


@dataclass(frozen=True)
class LinkedSampler(ProposingSampler):
    """Draws tables by linking records of the views, chunk by chunk."""

    views: tuple[NoisyTable, ...]
    referees: tuple[NoisyTable, ...]
    coarsenings: Mapping[str, Partition]
    rounding: str = UNBIASED
    linking: Linking = "priority"

    @property
    def chunk_rows(self) -> int:
        """Most rows of a chunk."""
        return LINKED_CHUNK_ROWS if self.linking == "priority" else MATCHED_CHUNK_ROWS

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> Sampler:
        """The sampler of chunks; without views, rows are drawn one by one."""
        if not self.views:
            return self.plain.prepared(rows, rng, where)
        return super().prepared(rows, rng, where)

    def records(self, rows: int, rng: np.random.Generator) -> Records:
        """Exactly ``rows`` linked records, in random order."""
        whole = round_views(self.views, rows, rng, ROUNDINGS[self.rounding])
        records = link_views(whole, self.referees, rng, PAIRINGS[self.linking])
        return Records(records.names, records.parts[rng.permutation(rows)])

    def follower(self, rows: int, rng: np.random.Generator) -> ViewRecordSampler:
        """The sampler of rows that follow linked records."""
        chain, records = self.plain.chain, self.records(rows, rng)
        parts = dict(zip(records.names, records.parts.T, strict=True))
        return ViewRecordSampler(
            RecordChain(
                chain.sequence,
                chain.bins,
                chain.model,
                chain.feasible_sets,
                parts,
                self.coarsenings,
            )
        )
