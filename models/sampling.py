"""Constraint-aware sampling for any chain of conditionals.

Rows are drawn attribute by attribute inside the supports of the hard constraints, refined from groups to values, and
passed through the rules that no support could take. Rows are independent given the supports, so any number can be
drawn, in chunks whose random streams depend on the chunk's number alone.

Source: Kamino Algorithm 3, with supports in place of counting violations against all rows before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.constraints import DenialConstraint, conflicts, violations_per_row
from cloister.constraints.supports import Bool, Coupling, Int, Support, Trie
from cloister.errors import SampleError
from cloister.privacy.randomness import SamplingSource
from cloister.schema.columns import Codes, Serial
from cloister.schema.domain import Domain, Table
from models.groups import Groups

CHUNK = 32_768
ROUNDS = 60
BLOCK = 20_000_000

Probabilities = NDArray[np.floating]


class TupleModel(Protocol):
    """A chain of conditionals over groups, in a schema sequence."""

    def conditional(self, place: int, context: Int) -> Probabilities:
        """Probabilities of the attribute at ``place``, given groups (n, place) of all before it.

        Shape (n, size); (1, size) when they do not depend on the context.
        """
        ...


class Acceptance(Protocol):
    """Which rows to keep, by a probability of each row alone."""

    def keep(self, rows: Table, rng: np.random.Generator) -> Bool:
        """Mask (n,) of the rows kept."""
        ...


@dataclass(frozen=True)
class EveryRow:
    """Keeps every row."""

    def keep(self, rows: Table, rng: np.random.Generator) -> Bool:  # noqa: ARG002
        return np.ones(rows.rows, dtype=bool)


@dataclass(frozen=True)
class ConstraintSampler:
    """Draws tables from a tuple model under hard constraints.

    ``supports`` hold by construction; ``row_rules`` are checked on each row's values, ``pair_rules`` against all rows
    kept before; ``acceptance`` weighs rows for the soft constraints.
    """

    domain: Domain
    sequence: tuple[str, ...]
    groups: Mapping[str, Groups]
    model: TupleModel
    supports: tuple[Support, ...] = ()
    row_rules: tuple[DenialConstraint, ...] = ()
    pair_rules: tuple[DenialConstraint, ...] = ()
    acceptance: Acceptance = EveryRow()

    def sample(self, rows: int, rng: SamplingSource) -> Table:
        """Exactly ``rows`` rows without a violation of a hard constraint.

        Raises:
            SampleError: so many rows cannot be drawn; names the constraints that stand in the way.
        """
        streams = rng.spawn(-(-rows // CHUNK))
        chunks: list[Table] = []
        for number, stream in enumerate(streams):
            wanted = min(CHUNK, rows - number * CHUNK)
            chunks.append(self._chunk(wanted, number * CHUNK, stream.generator, chunks))
        return Table.concatenate(chunks)

    def _chunk(self, wanted: int, first: int, rng: np.random.Generator, before: list[Table]) -> Table:
        kept: list[Table] = []
        missing = wanted
        for _ in range(ROUNDS):
            fresh = self._admit(self._draw(missing, rng), rng, before + kept if self.pair_rules else [])
            if fresh.rows:
                kept.append(fresh.take(np.arange(min(missing, fresh.rows))))
                missing -= kept[-1].rows
            if not missing:
                return self._with_keys(Table.concatenate(kept), first)
        raise SampleError(
            f"only {first + wanted - missing} rows could be drawn under {self._rules()}; ask for fewer rows, "
            "widen a domain, or make a constraint soft"
        )

    def _rules(self) -> str:
        names = [f"'{rule.name}'" for rule in (*self.row_rules, *self.pair_rules)]
        return "constraint " + ", ".join(names) if names else "the hard constraints together"

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        extra = rows + rows // 8 + 16 if self.row_rules or not isinstance(self.acceptance, EveryRow) else rows
        levels, leaves, alive = LevelDraw(self, extra, rng).run()
        return Table(self.domain, self._refined(levels, leaves, rng)).take(alive)

    def _refined(self, levels: Int, leaves: list[Int], rng: np.random.Generator) -> dict[str, Codes]:
        boxes = _joint_boxes(self.supports, leaves)
        quantiles = _quantiles(self.sequence, [c for s in self.supports for c in s.couplings], len(levels), rng)
        codes = {name: np.zeros(len(levels), dtype=np.int64) for name in self.domain.names}
        for place, name in enumerate(self.sequence):
            if name in boxes:
                codes[name] = self.groups[name].refine_box(boxes[name], quantiles[name])
            else:
                codes[name] = self.groups[name].refine(levels[:, place], quantiles[name])
        return codes

    def _admit(self, rows: Table, rng: np.random.Generator, before: list[Table]) -> Table:
        rows = rows.take(self.acceptance.keep(rows, rng))
        for rule in self.row_rules:
            rows = rows.take(violations_per_row(rule, rows) == 0)
        for rule in self.pair_rules:
            rows = _without_conflict(rule, rows, before, rng)
        return rows

    def _with_keys(self, table: Table, first: int) -> Table:
        codes = dict(table.codes)
        for column in self.domain:
            if isinstance(column, Serial):
                if first + table.rows > column.values:
                    raise SampleError(
                        f"column '{column.name}': its pattern has only {column.values} keys; widen the pattern"
                    )
                codes[column.name] = np.arange(first, first + table.rows, dtype=np.int64)
        return Table(self.domain, codes)


def _without_conflict(rule: DenialConstraint, rows: Table, before: Sequence[Table], rng: np.random.Generator) -> Table:
    for kept in before:
        rows = rows.take(~conflicts(rule, rows, kept))
    while (bad := violations_per_row(rule, rows) > 0).any():
        rows = rows.take(~bad | (rng.random(rows.rows) < 0.5)) if bad.sum() > 2 else rows.take(~_last(bad))
    return rows


def _last(mask: Bool) -> Bool:
    last = np.zeros_like(mask)
    last[np.flatnonzero(mask)[-1]] = True
    return last


class LevelDraw:
    """One draw of groups for a batch of rows, attribute by attribute, inside the supports."""

    def __init__(self, sampler: ConstraintSampler, rows: int, rng: np.random.Generator) -> None:
        self._sampler, self._rows, self._rng = sampler, rows, rng
        self._levels = np.zeros((rows, len(sampler.sequence)), dtype=np.int64)
        self._alive = np.ones(rows, dtype=bool)
        self._tries = [Trie(s, [sampler.groups[name].size for name in s.attributes]) for s in sampler.supports]
        self._nodes = [np.zeros(rows, dtype=np.int64) for _ in self._tries]

    def run(self) -> tuple[Int, list[Int], Bool]:
        """Groups (rows, k), the leaf of each support for each row, and the rows that met no dead end."""
        for place, name in enumerate(self._sampler.sequence):
            probabilities = self._sampler.model.conditional(place, self._levels[:, :place])
            here = [
                (at, t.support.attributes.index(name))
                for at, t in enumerate(self._tries)
                if name in t.support.attributes
            ]
            null = self._sampler.groups[name].levels.null
            if here:
                levels = self._inside(probabilities, here, null)
            else:
                levels = pick(probabilities, None, None, self._rows, self._rng)
            self._levels[:, place] = levels
            for at, depth in here:
                self._nodes[at] = self._tries[at].step(depth, self._nodes[at], levels)
        return self._levels, self._nodes, self._alive

    def _inside(self, probabilities: Probabilities, here: list[tuple[int, int]], null: int | None) -> Int:
        levels = np.full(self._rows, -1, dtype=np.int64)
        for at, depth in here:
            levels = np.where(levels < 0, self._tries[at].forced(depth, self._nodes[at]), levels)
        free = np.flatnonzero(levels < 0)
        if len(free):
            levels[free] = self._masked(probabilities, here, free, null)
        for at, depth in here:
            self._alive &= self._tries[at].allows(depth, self._nodes[at], levels)
        return levels

    def _masked(self, probabilities: Probabilities, here: list[tuple[int, int]], free: Int, null: int | None) -> Int:
        own = probabilities if len(probabilities) == 1 else probabilities[free]
        joint, kind = _distinct([self._nodes[at][free] for at, _ in here])
        levels = np.zeros(len(free), dtype=np.int64)
        block = max(1, BLOCK // own.shape[1])
        for begin in range(0, len(joint), block):
            part = joint[begin : begin + block]
            mask = np.ones((len(part), own.shape[1]), dtype=bool)
            for column, (at, depth) in enumerate(here):
                mask &= self._tries[at].mask(depth, part[:, column])
            rows = np.flatnonzero((kind >= begin) & (kind < begin + block))
            mine = own if len(own) == 1 else own[rows]
            levels[rows] = pick(mine, mask, kind[rows] - begin, len(rows), self._rng, null)
        return levels


def _distinct(columns: list[Int]) -> tuple[Int, Int]:
    if len(columns) == 1:
        values, kind = np.unique(columns[0], return_inverse=True)
        return values[:, None], kind
    values, kind = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return values, kind.ravel()


def pick(
    probabilities: Probabilities,
    mask: Bool | None,
    kind: Int | None,
    rows: int,
    rng: np.random.Generator,
    null: int | None = None,
) -> Int:
    """One level a row, in proportion to its probabilities where its mask allows.

    Args:
        probabilities: (rows, size), or (1, size) when the same for all.
        mask: (kinds, size) allowed levels, or None for all; ``kind`` (rows,) says which mask a row has.

    Where no allowed level has any probability, an allowed one is drawn evenly. The missing level ``null``, where it is
    allowed, keeps its probability, however few others are.
    """
    if mask is None or kind is None:
        mask, kind = np.ones((1, probabilities.shape[1]), dtype=bool), np.zeros(rows, dtype=np.int64)
    if len(probabilities) == 1:
        weights = probabilities[0].astype(np.float64) * mask
        return _pick_by_kind(_missing_held(weights, probabilities, null), mask, kind, rng)
    weights = probabilities.astype(np.float64) * mask[kind] + 1e-300 * mask[kind]
    weights = _missing_held(weights, probabilities, null)
    heights = np.cumsum(weights, axis=1)
    target = rng.random(rows) * heights[:, -1]
    level = np.minimum((heights <= target[:, None]).sum(1), heights.shape[1] - 1)
    return level.astype(np.int64)


def _missing_held(weights: Probabilities, probabilities: Probabilities, null: int | None) -> Probabilities:
    if null is None:
        return weights
    missing = np.clip(probabilities[:, null], 0.0, 1.0 - 1e-9)
    others = weights.sum(1) - weights[:, null]
    held = (weights[:, null] > 0) & (others > 0)
    weights[:, null] = np.where(held, others * missing / (1.0 - missing), weights[:, null])
    return weights


def _pick_by_kind(weights: Probabilities, mask: Bool, kind: Int, rng: np.random.Generator) -> Int:
    weights = np.where(weights.sum(1, keepdims=True) > 0, weights, mask)
    size = weights.shape[1]
    heights = np.cumsum(weights.ravel())
    ends = heights[size - 1 :: size]
    begins = np.append(0.0, ends[:-1])
    target = begins[kind] + rng.random(len(kind)) * (ends - begins)[kind]
    level = np.searchsorted(heights, target, side="right") - kind * size
    level = np.clip(level, 0, size - 1)
    return np.where(mask[kind, level], level, np.argmax(weights, axis=1)[kind])


def _joint_boxes(supports: Sequence[Support], leaves: Sequence[Int]) -> dict[str, Int]:
    boxes: dict[str, Int] = {}
    for support, leaf in zip(supports, leaves, strict=True):
        for name, ranges in support.boxes.items():
            mine = ranges[np.minimum(leaf, len(ranges) - 1)]
            boxes[name] = mine if name not in boxes else _meet(boxes[name], mine)
    return boxes


def _meet(first: Int, second: Int) -> Int:
    start = np.maximum(first[:, 0], second[:, 0])
    return np.stack([start, np.maximum(np.minimum(first[:, 1], second[:, 1]), start + 1)], axis=1)


def _quantiles(
    names: Sequence[str], couplings: Sequence[Coupling], rows: int, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    quantiles = {name: rng.random(rows) for name in names}
    for coupling in couplings:
        first = quantiles[coupling.first]
        quantiles[coupling.second] = first if coupling.sign > 0 else 1.0 - first
    return quantiles
