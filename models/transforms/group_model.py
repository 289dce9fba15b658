"""The model of rows without their key, and of the groups of rows that share one.

Sizes of groups are drawn first, then right sides for each: of rows of the model, which are chosen
such that their tables, weighed by the sizes, are those of rows. A group gets a key of the public
domain, and each of its rows the rest under the right sides: of a few candidates the one by which
the tables of all rows are nearest to the model's.

Rows of a group are alike as an urn makes them: a row repeats an attribute of an earlier one with
probability n / (n + a) after n rows, so that any two agree by repetition with probability
1 / (1 + a), whatever the size of the group, and each row alone has the model's distribution.

Source of the urn: Blackwell, MacQueen, "Ferguson distributions via Pólya urn schemes" (1973).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers, place_among_equal
from cloister.constraints.counting import satisfying
from cloister.errors import SampleError
from cloister.figures import count_of
from cloister.models.constrained import merge_states
from cloister.models.core.bins import Histogram
from cloister.models.core.estimator import shares_of_sizes
from cloister.models.protocol import Arrays, CountedRows, ModelState, counted_rows
from cloister.models.sampling.chain import flatten_chain
from cloister.models.sampling.conditions import GivenSampler, Repeated, Repetitions
from cloister.models.sampling.drawing import (
    ANYTHING,
    Given,
    Sampler,
    Where,
    number_keys,
    without_repetition,
)
from cloister.models.sampling.violation_index import DIRECT, PairIndex, Penalty
from cloister.models.sampling.whole_tables import Balance, choose_balanced
from cloister.models.task import Task
from cloister.models.transforms.companions import RowModel, drawn_given
from cloister.models.transforms.transformation import TransformedModel
from cloister.models.transforms.unit_model import FLATNESS, SPARE, whole_units
from cloister.models.transforms.units import GROUPS, ROWS, Groups
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.queries.shared_values import SizesOfGroups, pairs_by_lot
from cloister.schema.columns import Grid, Serial
from cloister.schema.domain import Domain, Table
from cloister.schema.partition import Partition

_SURE = 2.0
"""Deviations of noise and chance by which rows of groups agree more often than the model's do."""

_PILOT = 8_192
"""Rows drawn to see how often rows of groups agree."""

_ROUNDS = 3
"""Times that strengths are corrected by what they make of rows: attributes of a row go together."""

_STRONGEST = 0.995
"""Greatest probability of agreement by repetition: an urn needs some rows that repeat none."""

_CONSTANT = 0.95
"""Probability from which on a value that rows repeat is one of their group."""

_SEED = 20_261_128
"""Public seed of the rows that are drawn when a model is fitted."""

_EXCHANGES, _SWEEPS = 400_000, (4, 256)
"""Right sides of groups that are looked at for better ones, each group so many times."""

_CANDIDATES = 4
"""Candidates of a row, as many as a balanced sample is chosen of."""

_FIRST_CANDIDATES, _FURTHER_CANDIDATES, _AGAIN = 16, 2, 3
"""Where rows repeat others: candidates of the first row of a group, which matters as much as many,
of further ones, and with the row as it is when each is drawn again."""

_PLAIN, _TRIES = 3, 12
"""Times that a row is drawn from the model, and in all, the rest from flatter probabilities."""

_AT_ONCE, _GROWTH = 8, 1.25
"""Rows of a group that are drawn one after the other, and by how much it grows from there on."""

_AT_A_TIME = 2_048
"""Rows whose candidates are drawn together: bounds memory for attributes with many levels."""

_TURNS = 4
"""Parts in which rows of groups are drawn again, each given the others."""

_UNLIKELY = -30.0
"""Log weight of candidates that are only taken where a rule forbids the chosen one."""

Comparison = tuple[str, bool]
"""An attribute, and whether its values are compared, or the parts of its partition."""


@dataclass(frozen=True, eq=False)
class CountedPairs:
    """Noisy ``numbers`` of pairs of rows of one group, with their ``deviation``.

    The first is their number; the others say how many agree in each of the ``parts``, then in the
    values of ``whole``.
    """

    parts: Mapping[str, Partition]
    whole: tuple[str, ...]
    numbers: Integers
    deviation: float

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """What pairs were compared by."""
        return (*((name, False) for name in self.parts), *((name, True) for name in self.whole))


@dataclass(frozen=True, eq=False)
class CountedGroups:
    """Noisy ``numbers`` of sizes of groups with their ``deviation``, and pairs, if counted."""

    sizes: SizesOfGroups
    numbers: Integers
    deviation: float
    pairs: CountedPairs | None = None


@dataclass(frozen=True, eq=False)
class GroupFacts:
    """Groups as released: shares (sizes,) of ``sizes`` (sizes,), and what their rows repeat."""

    sizes: Integers
    shares: Floats
    repeated: Mapping[str, Repeated] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Groups, model: RowModel, noisy: CountedGroups) -> GroupFacts:
        """The facts by noisy numbers, and by rows of a model."""
        facts = cls(
            *shares_of_sizes(noisy.sizes, noisy.numbers, noisy.deviation, groups.task.data_rows)
        )
        if noisy.pairs is None:
            return facts
        return _repeating(replace(groups, facts=facts), model, noisy.pairs)

    @property
    def constant(self) -> tuple[str, ...]:
        """The attributes of which nearly all rows of a group have one value."""
        return tuple(n for n, each in self.repeated.items() if each.whole >= _CONSTANT)

    def drawn(self, rows: int, most: int, rng: np.random.Generator) -> Integers:
        """Sizes of at most so many groups that have exactly so many rows together."""
        number = max(round(rows / float(self.shares @ self.sizes)), 1) + SPARE
        quantiles = rng.permutation((np.arange(number) + rng.random()) / number)
        heights = np.cumsum(self.shares)
        sizes = self.sizes[np.searchsorted(heights[:-1], quantiles, side="right")]
        while sizes.sum() < rows + SPARE:
            sizes = np.concatenate([sizes, sizes])
        sizes = whole_units(sizes, rows)[1]
        if len(sizes) > most:
            further = rng.integers(0, most, int(sizes[most:].sum()))
            sizes = sizes[:most] + np.bincount(further, minlength=most)
        return sizes

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON and arrays."""
        arrays: dict[str, NDArray[Any]] = {"groups/sizes": self.sizes, "groups/shares": self.shares}
        for index, each in enumerate(self.repeated.values()):
            arrays[f"groups/{index}/starts"] = each.partition.starts
            arrays[f"groups/{index}/parts"] = each.partition.parts
        strengths = {name: [each.strength, each.whole] for name, each in self.repeated.items()}
        return {"repeated": strengths}, arrays

    @classmethod
    def restored(cls, task: Task, meta: Mapping[str, Any], arrays: Arrays) -> GroupFacts:
        """Those of a state."""
        repeated = {}
        for index, (name, strengths) in enumerate(meta["repeated"].items()):
            starts, parts = (arrays[f"groups/{index}/{kind}"] for kind in ("starts", "parts"))
            repeated[name] = Repeated(Partition(task.domain[name], starts, parts), *strengths)
        return cls(arrays["groups/sizes"], arrays["groups/shares"], repeated)


def _agreements(noisy: CountedPairs) -> dict[Comparison, tuple[float, float]]:
    """The share of pairs that agree by each look, and its error by noise and chance.

    None where there are too few pairs for the noise.
    """
    number = float(noisy.numbers[0])
    if number < _SURE * noisy.deviation:
        return {}
    agreements = {}
    for count, look in zip(noisy.numbers[1:], noisy.comparisons, strict=True):
        share = min(max(float(count) / number, 0.0), 1.0)
        noise = noisy.deviation * np.sqrt(1 + share**2) / number
        agreements[look] = share, float(np.sqrt(noise**2 + share * (1 - share) / number))
    return agreements


def _repeating(groups: Groups, model: RowModel, noisy: CountedPairs) -> GroupFacts:
    """The facts with the strengths at which drawn rows of groups agree as those of the data do."""
    facts, wanted, rng = groups.facts, _agreements(noisy), SamplingSource(_SEED)
    assert facts is not None
    plain = _drawn_agreements(groups, model, noisy, rng) if wanted else {}
    sure = {
        look: share
        for look, (share, error) in wanted.items()
        if look in plain and share - plain[look] > _SURE * error
    }
    strengths, drawn = dict.fromkeys(sure, 0.0), plain
    for number in range(_ROUNDS if sure else 0):
        if number:
            drawn = _drawn_agreements(replace(groups, facts=facts), model, noisy, rng)
        for look, share in sure.items():
            moved = strengths[look] + (share - drawn[look]) / (1 - plain[look])
            strengths[look] = min(max(moved, 0.0), _STRONGEST)
        facts = replace(facts, repeated=_by_attribute(noisy.parts, strengths))
    return facts


def _by_attribute(
    parts: Mapping[str, Partition], strengths: Mapping[Comparison, float]
) -> Mapping[str, Repeated]:
    """What rows repeat, by attribute: who repeats a value repeats its part."""
    whole = {name: strengths.get((name, True), 0.0) for name in parts}
    part = {name: max(strengths.get((name, False), 0.0), whole[name]) for name in parts}
    return {n: Repeated(each, part[n], whole[n]) for n, each in parts.items() if part[n]}


def _drawn_agreements(
    groups: Groups, model: RowModel, noisy: CountedPairs, rng: SamplingSource
) -> dict[Comparison, float]:
    """The share of pairs of drawn rows of one group that agree by each look; none without pairs."""
    sampler = GroupsSampler(groups, model)
    table = sampler.sample(min(groups.task.output_rows, _PILOT), rng.spawn(1)[0])
    lots = rng.generator.integers(0, 2**63, table.rows).astype(np.uint64)
    first, second = pairs_by_lot(table.stored[groups.key], lots)
    shares = {}
    for name, whole in noisy.comparisons if len(first) else ():
        codes = table.stored[name]
        index = codes if whole else noisy.parts[name].index(codes)
        shares[name, whole] = float((index[first] == index[second]).mean())
    return shares


@dataclass(frozen=True, eq=False)
class _Prepared:
    """The groups of a draw: rows ``shared`` of their attributes, ``sizes`` and ``keys`` (n,).

    ``spare`` (m,) are keys of no group. Of a part of the groups, ``rows_before`` counts the rows of
    those before, and the spare keys are of no other part.
    """

    shared: Table
    sizes: Integers
    keys: Integers
    spare: Integers
    balance: Balance
    rows_before: int = 0

    def between(self, begin: int, end: int) -> _Prepared:
        """The groups whose first row has a number from ``begin`` to ``end - 1``."""
        starts = np.cumsum(self.sizes) - self.sizes
        low, high = (int(each) for each in np.searchsorted(starts, (begin, end)))
        before = int(starts[low]) if low < len(starts) else int(self.sizes.sum())
        some, rows = slice(low, high), int(self.sizes.sum())
        share = slice(*(len(self.spare) * end // rows for end in (begin, min(end, rows))))
        return replace(
            self,
            shared=self.shared.take(some),
            sizes=self.sizes[some],
            keys=self.keys[some],
            spare=self.spare[share],
            rows_before=before,
        )


@dataclass(frozen=True)
class GroupsSampler(Sampler):
    """Draws tables of groups; which ones depends on the seed alone."""

    groups: Groups
    model: RowModel
    prepared_groups: _Prepared | None = None

    @property
    def domain(self) -> Domain:
        """The columns of the rows."""
        return self.groups.task.domain

    @property
    def given(self) -> tuple[str, ...]:
        """The attributes of groups under which rows are drawn."""
        assert self.groups.facts is not None
        return (*self.groups.inner.given, *self.groups.facts.constant)

    @property
    def remembers(self) -> bool:
        """Whether rows depend on rows of groups before them."""
        return bool(self.model.constraint_sampler.pair_rules)

    @property
    def drawn_keys(self) -> tuple[str, ...]:
        """All: chunks are of whole groups, and so have other numbers of rows."""
        return tuple(column.name for column in self.domain if isinstance(column, Serial))

    def prepared(self, rows: int, rng: SamplingSource, where: Where) -> GroupsSampler:
        """The same with its groups; SampleError if there is a condition on key or single rows."""
        if unknown := [name for name in where if name not in self.groups.given]:
            raise SampleError(
                f"rows are drawn under '{self.groups.key}', which is drawn anew, and of a group "
                f"differ in other columns: '{unknown[0]}' can have no condition; draw without, and "
                "select rows of the output"
            )
        facts, generator = self.groups.facts, rng.spawn(1)[0].generator
        assert facts is not None
        column = self.domain[self.groups.key]
        sizes = facts.drawn(rows, column.values, generator)
        pool = self.model.sample(max(rows, len(sizes)), rng.spawn(1)[0], where).narrow()
        shared = pool.take(self._chosen(pool, sizes, generator))
        keys = self._distinct_keys(shared, generator)
        balance = Balance.of(pool, self.model.histograms, self.given)
        spare = np.setdiff1d(np.arange(min(column.values, 2 * (rows + len(keys)))), keys)
        groups = _Prepared(shared, sizes, keys, generator.permutation(spare), balance)
        return replace(self, prepared_groups=groups)

    def _distinct_keys(self, shared: Table, rng: np.random.Generator) -> Integers:
        """A key (n,) of the public domain for each group, in the bin that it was drawn with."""
        key, column = self.groups.key, self.domain[self.groups.key]
        if not isinstance(column, Grid):
            return rng.choice(column.values, shared.rows, replace=False)
        bins, codes = self.model.histograms[key], shared.codes[key]
        level = bins.index(codes)
        ends = bins.levels.start[level], bins.levels.stop[level]
        return without_repetition(codes, *ends, column.values, rng)

    def _chosen(self, pool: Table, sizes: Integers, rng: np.random.Generator) -> Integers:
        """The rows of a pool of which groups have the right sides, by number."""
        bins = {name: self.model.histograms[name] for name in self.given}
        levels = [each.index(pool.stored[name]).astype(np.int32) for name, each in bins.items()]
        whole = np.zeros(pool.rows, dtype=np.int32)
        numbers = [*(each.size for each in bins.values()), 1]
        loads = sizes.astype(np.float64)
        sweeps = int(np.clip(_EXCHANGES // len(sizes), *_SWEEPS))
        return choose_balanced([*levels, whole], numbers, len(sizes), rng, loads, sweeps)

    def draw(self, rows: int, rng: SamplingSource, given: Given = ANYTHING) -> Table:
        """The rows of the prepared groups whose first row is among ``rows`` rows.

        SampleError if they cannot be drawn.
        """
        assert self.prepared_groups is not None
        groups = self.prepared_groups.between(given.first, given.first + rows)
        before = given.before if self.remembers else ()
        names = self.groups.inner.domain.names
        drawn = _RowsOfGroups(self, groups, [table.select(names) for table in before], rng).draw()
        return number_keys(drawn, groups.rows_before, preset=(self.groups.key,))


class _RowsOfGroups:
    """The rows of some groups, drawn one after the other, or together where none repeats others."""

    def __init__(
        self,
        sampler: GroupsSampler,
        groups: _Prepared,
        before: Iterable[Table],
        rng: SamplingSource,
    ) -> None:
        assert sampler.groups.facts is not None
        self._transformation, self._model, self._groups = sampler.groups, sampler.model, groups
        self._source, self._rng, self._before = rng, rng.generator, [*before]
        repeated, self._shared = sampler.groups.facts.repeated, sampler.given
        self._repeated = {n: each for n, each in repeated.items() if n not in self._shared}
        self._owners = np.repeat(np.arange(len(groups.sizes)), groups.sizes)
        self._starts = np.cumsum(groups.sizes) - groups.sizes
        inner, rules = sampler.groups.inner, sampler.model.constraint_sampler.pair_rules
        self._index = PairIndex(inner.domain, tuple(map(Penalty, rules)))
        for table in self._before:
            self._index.record(table)
        self._rules = [rule for rule in inner.hard if rule.arity == 1]
        self._codes = {n: np.zeros(len(self._owners), np.int64) for n in inner.domain.names}
        self._done = np.zeros(len(self._owners), dtype=bool)
        self._counted = np.zeros(len(groups.balance.shares))

    def draw(self) -> Table:
        """All rows, group by group; SampleError if they cannot be drawn."""
        for rows, before in self._blocks():
            for attempt in range(_TRIES):
                for some in _in_parts(rows[~self._done[rows]]):
                    self._extend(some, before, flat=attempt >= _PLAIN)
        if self._repeated and not self._index.penalties:
            self._draw_again()
        left, keys = np.flatnonzero(~self._done), self._groups.keys[self._owners]
        if not self._index.penalties:
            whole = self._groups.shared.take(self._owners[left])
        else:
            whole = self._apart(len(left))
            keys[left] = self._groups.spare[: len(left)]
        for name, codes in self._codes.items():
            codes[left] = whole.stored[name]
        domain = self._transformation.task.domain
        return Table.completed(domain, {**self._codes, self._transformation.key: keys}, len(keys))

    def _apart(self, number: int) -> Table:
        """Rows for which rules leave no place in their groups, as groups of their own.

        SampleError if there are too few keys.
        """
        if number > len(self._groups.spare):
            key = self._transformation.key
            raise SampleError(
                f"{count_of(number, 'row')} could not be drawn in groups of '{key}', and no value "
                "is left for groups of their own; request fewer rows, or widen its domain"
            )
        drawn = Table(self._transformation.inner.domain, self._codes).take(self._done)
        before = [self._model.unfinished(table) for table in (*self._before, drawn)]
        sampler, source = self._model.constraint_sampler, self._source.spawn(1)[0]
        return self._model.finish(sampler.draw(number, source, Given(before=before)))

    def _blocks(self) -> Iterator[tuple[Integers, int]]:
        """Rows (n,) to be drawn together, and how many of their group come before them."""
        if not self._repeated:
            yield np.arange(len(self._owners)), 0
            return
        places, begin = place_among_equal(self._owners), 0
        most = int(self._groups.sizes.max(initial=0))
        while begin < most:
            end = begin + 1 if begin < _AT_ONCE else max(int(_GROWTH * begin), begin + 1)
            yield np.flatnonzero((places >= begin) & (places < end)), begin
            begin = end

    def _extend(self, rows: Integers, before: int, flat: bool) -> None:
        """Draw some rows (n,), by number, after so many of their group."""
        times = _CANDIDATES
        if self._repeated:
            times = _FURTHER_CANDIDATES if before else _FIRST_CANDIDATES
        some = np.repeat(rows, times)
        sources = np.full(len(some), -1)
        if before and not flat:
            sources = self._starts[self._owners[some]] + self._rng.integers(0, before, len(some))
        candidates, usable = self._candidates(some, sources, np.full(len(some), before), flat)
        usable = usable.reshape(len(rows), times)
        choice = self._groups.balance.choose(
            candidates, usable, self._counted, self._loads(rows, before)
        )
        fits = usable.any(axis=1)
        if self._index.penalties:
            logs = np.where(usable, _UNLIKELY, -np.inf)
            logs[np.flatnonzero(fits), choice[fits]] = 0.0
            choice = np.full(len(rows), -1, dtype=np.int64)
            everyone = np.arange(len(rows))
            self._index.choose(candidates, logs, everyone, choice, DIRECT, self._rng)
            fits = choice >= 0
        self._take(rows[fits], candidates.take(np.flatnonzero(fits) * times + choice[fits]))

    def _take(self, rows: Integers, taken: Table) -> None:
        """Set some rows (n,), by number."""
        for name, codes in self._codes.items():
            codes[rows] = taken.stored[name]
        self._done[rows] = True
        self._counted += self._groups.balance.counts(taken)

    def _draw_again(self) -> None:
        """Draw each row again, given rows of its group, where that brings tables nearer.

        A part of the rows of each group at a time, given those of the other parts.
        """
        owners, sizes = self._owners, self._groups.sizes
        first = self._rng.integers(0, _TURNS, len(sizes))[owners]
        turns = (place_among_equal(owners) + first) % _TURNS
        for turn in range(_TURNS):
            rows = np.flatnonzero((turns == turn) & self._done)
            left = sizes - np.bincount(owners[rows], minlength=len(sizes))
            for some in _in_parts(rows):
                self._exchange(some, turns != turn, left[owners[some]])

    def _exchange(self, rows: Integers, staying: Booleans, number: Integers) -> None:
        """Draw some rows (n,) again, given ``number`` (n,) of their groups that are ``staying``."""
        some = np.repeat(rows, _AGAIN)
        starts, sizes = self._starts[self._owners[some]], self._groups.sizes[self._owners[some]]
        sources = np.full(len(some), -1)
        for _ in range(_TURNS):
            drawn = starts + (self._rng.random(len(some)) * sizes).astype(np.int64)
            sources = np.where(staying[drawn], drawn, sources)
        before = np.repeat(number, _AGAIN)
        candidates, usable = self._candidates(some, sources, before, flat=False)
        # the first candidate is the row as it is
        for name, codes in self._codes.items():
            candidates.codes[name][::_AGAIN] = codes[rows]
        usable = usable.reshape(len(rows), _AGAIN)
        usable[:, 0] = True
        everyone = np.arange(len(rows)) * _AGAIN
        self._counted -= self._groups.balance.counts(candidates.take(everyone))
        loads = np.ones(len(rows))
        choice = self._groups.balance.choose(candidates, usable, self._counted, loads)
        self._take(rows, candidates.take(everyone + choice))

    def _loads(self, rows: Integers, before: int) -> Floats:
        """How many rows each of some (n,) stands for: the first one for those that repeat it."""
        strongest = max((each.strength for each in self._repeated.values()), default=0.0)
        repeating = 0 if before else self._groups.sizes[self._owners[rows]] - 1
        return np.asarray(1 + strongest * repeating * np.ones(len(rows)))

    def _candidates(
        self, rows: Integers, sources: Integers, before: Integers, flat: bool
    ) -> tuple[Table, Booleans]:
        """Rows (n,) drawn given the attributes of their groups, and which of them keep rules.

        Each may repeat the row ``sources`` (n,), if it is not below 0, one of ``before`` (n,).
        """
        inner = self._transformation.inner
        given = {n: self._groups.shared.codes[n][self._owners[rows]] for n in self._shared}
        repeats = self._repeats(sources, before) if self._repeated else None
        whole = Table.completed(inner.domain, given, len(rows))
        drawn, alive = drawn_given(self._model, whole, self._given[flat], self._rng, repeats)
        codes = dict(self._model.finish(drawn).codes)
        codes.update(repeats.values(codes) if repeats else {})
        finished = Table(inner.domain, codes)
        return finished, alive & satisfying(self._rules, finished)

    @cached_property
    def _given(self) -> tuple[GivenSampler, GivenSampler]:
        """What draws rows given the attributes of groups, as the model does and flatter."""
        sampler = self._model.constraint_sampler
        chains = (sampler.chain, flatten_chain(sampler.chain, FLATNESS, sampler.ruled))
        given = tuple(n for n in sampler.sequence if n in self._shared)
        return GivenSampler(chains[0], given), GivenSampler(chains[1], given)

    def _repeats(self, sources: Integers, before: Integers) -> Repetitions:
        """What rows (n,) repeat of others (n,), which are one of so many before them (n,)."""
        chain = self._model.constraint_sampler.chain
        there = (sources >= 0) & self._done[sources]
        codes = {name: self._codes[name][sources] for name in self._repeated}
        return Repetitions.of(self._repeated, chain, codes, np.where(there, before, 0), self._rng)


def _in_parts(rows: Integers) -> Iterator[Integers]:
    """Rows (n,) in parts of which the candidates are drawn together; none of no rows."""
    yield from np.split(rows, range(_AT_A_TIME, len(rows), _AT_A_TIME)) if len(rows) else ()


@dataclass(frozen=True)
class GroupsModel(TransformedModel[Groups]):
    """The model of rows, in groups."""

    @property
    def sampler(self) -> GroupsSampler:
        """Groups, then their rows."""
        return GroupsSampler(self.transformation, self.models[ROWS])

    @property
    def histograms(self) -> Mapping[str, Histogram]:
        """The released histograms of the rows."""
        return self.models[ROWS].histograms

    @property
    def counted_rows(self) -> CountedRows:
        """What was counted of the rows."""
        return counted_rows(self.models[ROWS], self.transformation.inner)

    def post_processing(self) -> tuple[str, ...]:
        """What is done to the noisy answers until they are rows, in sentences for a certificate."""
        facts, key, model = self.transformation.facts, self.transformation.key, self.models[ROWS]
        assert facts is not None
        return (
            *(each for each in model.post_processing() if each not in model.drawn_whole),
            *(
                words.format(key, ", ".join(self.transformation.given))
                for words in (_SIZED, _GROUPED)
            ),
            *([_REPEATED.format(", ".join(facts.repeated), key)] if facts.repeated else []),
        )

    def state(self) -> ModelState:
        """The model as JSON and arrays."""
        assert self.transformation.facts is not None
        facts, arrays = self.transformation.facts.state()
        state, stored = self.models[ROWS].state()
        named = {f"{ROWS}/{name}": array for name, array in stored.items()}
        saved = {"key": self.transformation.key, **facts}
        return merge_states(({ROWS: {"state": state}, GROUPS: saved}, named), ({}, arrays))


_SIZED = (
    "sizes of groups of {0}: counts below noise are nothing, and those of neighbours are smoothed"
)

_GROUPED = (
    "rows with one value of {0} have {1} together: those of a row of the model, chosen such that "
    "tables of rows stay the model's; values are drawn anew from the public domain; of a "
    "few candidates for the rest of a row the one by which these tables are nearest is taken"
)

_REPEATED = "{}: a row repeats an earlier row of its {} as often as noisy counts of pairs say"
