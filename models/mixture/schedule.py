"""The rounds of a fit, its mixture, the budget of joint tables, time and memory of it all; public.

*Rounds:* their number, the tables of each, and the steps of the fit after each.

*The mixture:* its components, and what dependence costs them.

*Joint tables of hard constraints* and their part of the budget. A functional dependency always
holds in the drawn rows, but with the right sides of the data only where a left side has more rows
than a few deviations of the noise. A wrong right side spoils every table with both attributes, so a
dependency of many left sides gets more, if that suffices for left sides of average size.

*Joint tables of targets*, the attributes that analysts predict, with each other attribute. Rounds
choose the tables with the greatest errors in rows. A target of few values, or a rare one, has small
errors in rows, however much the other attributes tell of it: its tables are counted without a
choice, before the rounds. No source. Classifiers need how a target depends on each attribute; few
parts show that.

*Forecast* of a fit and its draw, from public sizes. The constants were fitted to the CPU time of
generated tables of 1,000 x 5 to 336,776 x 19 rows and attributes, each step measured alone on one
core of a server of 2.x GHz.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from cloister.constraints import functional_dependency
from cloister.models.core import costs
from cloister.models.core.bins import Histogram, coarse
from cloister.models.core.budget_split import Kind, NoiseLaw, counts, rounded_up
from cloister.models.core.noisy_table import NoisyTable, count_table
from cloister.models.task import Counted, Forecast, Task
from cloister.privacy.queries.query import Door, TableRows

TARGETS = "targets"
"""The kind of queries, and its stage."""

_SHARE_OF_TARGETS = 0.2
"""Part of the budget of rounds for the tables of targets, if there are any."""

MOST_OF_TARGETS = 2
"""Most tables of targets, as a multiple of the tables that rounds choose (docs/papers.md)."""

TYPICAL_SCALED_SIZE = 5_000.0
"""A typical rho-scaled sample size; see `cloister.models.mixture.plan.scaled_size_of`."""

_ROUNDS = 60
"""Rounds for 15 attributes at the typical scaled size; 40, 52, 64 were tried (docs/papers.md)."""

MOST_ROUNDS = 200
"""Most rounds."""

_SMALL = 0.1
"""Part of the typical scaled size below which rounds grow with another power."""

GROWTH = (0.45, 0.26)
"""Powers of the scaled size with which rounds grow, from `_SMALL` on and below."""

PURE_GROWTH = (0.65, 0.65)
"""The same at delta 0, below the typical size: noise grows with the tables, not with their root.

At epsilon 0.1 half the rounds had a seventh less error of pairs on BR2000, at 1 a twentieth more.
"""

_ALL_STEPS = 1_600
"""Steps of the fit over all rounds, within the bounds for one round."""

MOST_STEPS = 40
"""Most steps of the fit after a round."""

FEWEST_STEPS = 20
"""Fewest steps of the fit after a round."""

LAST_STEPS = 500
"""Steps of the last fit, inside the feasible sets."""

MOST_CANDIDATES = 3_000
"""Most candidates of a round, if they are listed."""

_TABLES_OF_ATTRIBUTE = 2
"""Tables per attribute if all pairs are candidates; a spanning tree has one.

For 80 attributes in four groups, two halved the error of one, and three did no better
(docs/papers.md).
"""

_ROUNDS_OF_PICKS = 60
"""Most rounds in which several tables are chosen: a fit costs more than a choice."""

_TELLING = 0.75
"""Greatest error of a choice, as a share of the rows, at which tables are added.

At a scaled size of 300 (2,500 rows of 150 attributes, epsilon 1) a fifth of it kept a third of the
correlations, and twice as much kept no more.
"""

_CHOICES = 1 / 12
"""Part of the budget, as a share of rho, that chooses tables: a tenth of what histograms leave."""

_PAIR_PARTS = 8
"""Most parts of an attribute in candidate pairs; with four, groups came out weaker."""

_NOISE_OF_TABLE = 0.5
"""Greatest sum of the noise deviations of a pair's cells, as a share of the rows.

Where it is more for small pairs, none is counted: at 0.59 (2,000 rows of 50 attributes, epsilon
0.3) pairs had an error of 0.170 with rounds and 0.140 without, those of dependent attributes 0.21
and 0.19; at 0.43 (of 15) 0.117 and 0.107, and 0.134 and 0.144. One or two releases of one made
table each; at 0.50 (400 rows of 6, six releases) both were 0.175.
"""

_SMALL_PARTS = 4
"""Parts of an attribute, at most, in a pair of the fewest cells that is worth its budget."""

_MOST_COLUMNS = 4_096
"""Most parts of all attributes in candidate pairs; their square is held in memory."""

_MOST_VISITS = 200_000_000_000
"""Most rows times pairs for which all pairs are counted: some 10 minutes."""

_PART = 0.06
"""Part of the budget, as a share of rho, for all joint tables if none needs more."""

_CLEAR = 6.0
"""Rows of an average left side, in deviations of the noise, for which a table gets more budget.

Nineteen of twenty left sides of 5 deviations are learnt; some are smaller than the average.
"""

_HOPELESS = 3.0
"""Rows of an average left side, in deviations of the noise, at which too few would be learnt."""

_MOST_OF_TABLE = 0.2
"""Greatest part of the budget for one table."""

_MOST_OF_ALL = 0.3
"""Greatest part of the budget for all tables."""

_COMPONENTS = 800
"""Components of the mixture at the typical scaled size, were there no bound."""

_MOST_COMPONENTS = 560
"""Most components: more take longer, and errors are the same (docs/papers.md)."""

_FEWEST_COMPONENTS = 100
"""Fewest components of the mixture."""

_DEPENDENCE_PENALTY = 450.0
"""Loss per nat of information that components carry about rows, at the typical scaled size."""

_PENALTY_POWER = 1.25
"""The penalty falls with this power of a scaled size below the typical one (docs/papers.md)."""

LEAST_PENALTY = 12.0
"""Least penalty on dependence."""

MOST_MODELLED = 256
"""Most bins of an attribute in the mixture; others follow their histograms."""

_STEP = 3e-4
"""Seconds of a step of the fit, whatever its size."""

_TARGET = 4.5e-5
"""Seconds of a step per measured table, whatever its size: a dozen calls of torch."""

_LEVEL = 9e-9
"""Seconds of a step per level of a factor and component: some twenty passes over memory."""

_CELL = 2.5e-10
"""Seconds of a step per cell of a measured table and component: three matrix products."""

_EXPECTED = 1e-10
"""Seconds of a round per cell of a candidate and component."""

_SCORED = 1.4e-5
"""Seconds of a round per candidate, to score it."""

_COUNTED = 8e-9
"""Seconds per row and candidate, to count it once."""

_LOOKED_UP = 3e-9
"""Seconds per row and pair of attributes, if all pairs are counted at once."""

_COMPARED = 1e-8
"""Seconds of a choice among all pairs, per cell of one."""

_BYTES_OF_PAIR = 32
"""Bytes per pair of parts, if all pairs of attributes are counted at once."""

_CONDITIONAL = 3e-9
"""Seconds per attribute, component and row drawn one attribute after the other."""

_DRAWN = 9e-8
"""Seconds per attribute of a drawn row.

Measured on 81 attributes of 2 to 20 values, and on 15 of which some have many values in a bin.
"""

_DRAWN_ROWS = 32_768
"""Most rows of the output in memory, in all copies: rows are drawn in chunks."""

_JOINED = 1.5
"""Levels of a factor that joins attributes, per joint level of their left sides."""

_DEVICE_COPIES = 20
"""Copies of the shares of all levels on a device: parameters, moments, views, slopes, scratch."""

_DEVICE_TABLES = 3
"""Copies on a device of the largest table of two attributes, in every component."""

_RATE_TURNS = 320
"""Steps of all fits to the rates of soft constraints."""


@dataclass(frozen=True)
class Schedule:
    """The rounds of a fit, each of which measures ``picks`` tables.

    After each the fit takes ``steps``. Candidates are listed tables or, with ``pair_parts``, all
    pairs of attributes in at most this many parts each.
    """

    rounds: int
    picks: int = 1
    pair_parts: int | None = None

    @property
    def tables(self) -> int:
        """The joint tables that all rounds measure."""
        return self.rounds * self.picks

    @property
    def steps(self) -> int:
        """Steps of the fit after each round: fewer where a round adds little."""
        share = _ALL_STEPS // max(self.rounds, _ALL_STEPS // MOST_STEPS)
        return max(share, FEWEST_STEPS)


def schedule_for(
    scaled_size: float,
    attributes: int,
    rows: int,
    growth: tuple[float, float] = GROWTH,
    sizes: Sequence[int] = (),
) -> Schedule:
    """The rounds for a table of ``rows`` rows and ``attributes`` attributes, by the scaled size.

    None where noise would drown small pairs, if the ``sizes`` of attributes are known.
    With more pairs of attributes than can be listed, all pairs are candidates, and several are
    chosen in a round.
    """
    pairs = math.comb(attributes, 2)
    if pairs <= MOST_CANDIDATES or pairs * rows > _MOST_VISITS:
        wanted = _rounds_for(scaled_size, attributes, growth)
        parts = sum(min(size, _SMALL_PARTS) for size in sizes) / max(len(sizes), 1)
        noise = parts**2 * _cell_noise(scaled_size, wanted)
        return Schedule(0 if noise > _NOISE_OF_TABLE else wanted)
    tables = _tables_for(scaled_size, attributes, growth)
    picks = math.ceil(tables / _ROUNDS_OF_PICKS)
    parts = min(clear_parts(scaled_size, tables), _MOST_COLUMNS // attributes)
    return Schedule(math.ceil(tables / picks), picks, max(parts, 2))


def clear_parts(scaled_size: float, tables: float) -> int:
    """Parts of an attribute in ``tables`` pairs: few if the noise of a cell is strong."""
    cells = _NOISE_OF_TABLE / _cell_noise(scaled_size, tables)
    return min(math.isqrt(int(cells)), _PAIR_PARTS)


def _cell_noise(scaled_size: float, tables: float) -> float:
    """About the deviation of a cell's noise, as a share of the rows, where half of rho counts."""
    return math.sqrt(tables) / scaled_size


def _rounds_for(scaled_size: float, attributes: int, growth: tuple[float, float]) -> int:
    """Number of rounds with one table each: more if the noise is small relative to the rows."""
    possible = math.comb(attributes, 2) + math.comb(attributes, 3)
    ratio = scaled_size / TYPICAL_SCALED_SIZE
    power, below = growth if ratio < 1 else GROWTH
    size = max(ratio, _SMALL) ** power * min(ratio / _SMALL, 1) ** below
    wanted = round(_ROUNDS * math.sqrt(attributes / 15) * size)
    return min(max(wanted, 1), 2 * possible, MOST_ROUNDS)


def _tables_for(scaled_size: float, attributes: int, growth: tuple[float, float]) -> int:
    """Number of tables if all pairs are candidates: as many as selection can rank reliably.

    A choice that spends a rho of r is off by about log(pairs) / sqrt(2 r) rows. If few can be
    ranked, as many as with listed pairs: tables of any pairs improve histograms, too.
    """
    wrong = math.log(math.comb(attributes, 2)) / math.sqrt(2 * _CHOICES)
    rankable = int((_TELLING * scaled_size / wrong) ** 2)
    return max(
        min(_TABLES_OF_ATTRIBUTE * attributes, rankable),
        _rounds_for(scaled_size, attributes, growth),
    )


def components_for(scaled_size: float) -> int:
    """Number of components, by the scaled size: fewer where noise is strong."""
    wanted = round(_COMPONENTS * math.sqrt(scaled_size / TYPICAL_SCALED_SIZE))
    return min(max(wanted, _FEWEST_COMPONENTS), _MOST_COMPONENTS)


def penalty_for(scaled_size: float) -> float:
    """The penalty on dependence: proportional to the scaled size, or less where that is small."""
    ratio = scaled_size / TYPICAL_SCALED_SIZE
    return max(_DEPENDENCE_PENALTY * min(ratio, ratio**_PENALTY_POWER), LEAST_PENALTY)


def joint_budget(
    task: Task,
    tables: Sequence[tuple[str, ...]],
    values: int,
    sizes: Mapping[str, int],
    scaled_size: float,
) -> tuple[float, dict[tuple[str, ...], Fraction]]:
    """The part of the budget for ``tables`` of hard constraints and for ``values`` value counts.

    And by what factor each table has less noise than single values have, at least 1.

    ``sizes`` are the most bins of each attribute, ``scaled_size`` is the rows times the square root
    of rho, see `cloister.models.mixture.plan.scaled_size_of`.
    """
    base = _PART / max(len(tables) + values, 1)
    wanted = {names: max(_wanted(task, names, sizes, scaled_size), base) for names in tables}
    more = sum(wanted.values()) - base * len(tables)
    times = min(1.0, (_MOST_OF_ALL - _PART) / more) if more else 0.0
    parts = {names: base + times * (share - base) for names, share in wanted.items()}
    weights = {names: rounded_up(math.sqrt(part / base), 6) for names, part in parts.items()}
    return sum(parts.values()) + base * values, weights


def _wanted(
    task: Task, names: tuple[str, ...], sizes: Mapping[str, int], scaled_size: float
) -> float:
    """The part of the budget with which a dependency is learnt; 0 for other tables, or if hopeless.

    With a part p of rho, the rows of an average left side are sqrt(2 p) * scaled_size / left sides
    deviations of the noise.
    """
    dependent = any(
        (dependency := functional_dependency(rule)) is not None
        and (*dependency[0], dependency[1]) == names
        for rule in task.hard
    )
    if not dependent:
        return 0.0
    relative = math.prod(sizes[name] for name in names[:-1]) / scaled_size
    if _HOPELESS * relative > math.sqrt(2 * _MOST_OF_TABLE):
        return 0.0
    return min((_CLEAR * relative) ** 2 / 2, _MOST_OF_TABLE)


def forecast_fit(
    task: Task,
    sizes: Mapping[str, int],
    joint: Sequence[tuple[str, ...]],
    schedule: Schedule,
    components: int,
) -> Forecast:
    """Processor seconds and bytes of a fit and of drawing the output.

    ``sizes`` are the most bins of attributes, ``joint`` the joint tables of hard constraints.
    """
    levels, pair = sum(sizes.values()), _typical_pair(sizes)
    if schedule.pair_parts:
        pair = min(pair, schedule.pair_parts**2)
    joined = _JOINED * sum(math.prod(sizes[name] for name in names[:-1]) for names in joint)
    tables = [
        _step(levels, number, pair, components) for number in (schedule.tables / 2, schedule.tables)
    ]
    inside = tables[1] + _LEVEL * joined * components
    fit = schedule.rounds * schedule.steps * tables[0] + LAST_STEPS * inside
    choose = _choices(schedule, task.data_rows, len(sizes), pair, components)
    expect = _CONDITIONAL * costs.EXPECTED_ROWS * len(sizes) * components if joint else 0.0
    weigh = _RATE_TURNS * inside if task.soft else 0.0
    draw = _DRAWN * task.output_rows * len(sizes)
    if task.output_rows < costs.MANY_ROWS:
        draw *= costs.OVERSAMPLING
        draw += costs.balanced_seconds(task.output_rows, len(sizes))
    drawn = costs.OVERSAMPLING * min(task.output_rows, _DRAWN_ROWS) * len(sizes) * costs.DRAWN_CELL
    work = 12 * components * (costs.EXPECTED_ROWS if joint else levels)
    work += _BYTES_OF_PAIR * (schedule.pair_parts or 0) ** 2 * len(sizes) ** 2
    on_device = _DEVICE_COPIES * (levels + joined) + _DEVICE_TABLES * costs.PAIR_CELLS
    return Forecast(
        seconds=round(fit + choose + expect + weigh + draw, 1),
        memory=round(200 * costs.MIB + work + drawn + 40 * max(task.data_rows, task.output_rows)),
        device_memory=round(costs.DEVICE_CONTEXT + 4 * components * on_device),
    )


def _choices(schedule: Schedule, rows: int, attributes: int, pair: float, components: int) -> float:
    """Seconds of counting the candidates, and of choosing tables among them."""
    pairs = math.comb(attributes, 2)
    if schedule.pair_parts:
        cells = pairs * schedule.pair_parts**2
        expect = schedule.rounds * _EXPECTED * cells * components
        return _LOOKED_UP * rows * pairs + expect + schedule.tables * _COMPARED * cells
    candidates = min(pairs + math.comb(attributes, 3), MOST_CANDIDATES)
    scored = schedule.rounds * (_SCORED + _EXPECTED * pair * components)
    return candidates * (_COUNTED * rows + scored)


def _step(levels: int, tables: float, pair: float, components: int) -> float:
    """Seconds of one step of the fit to ``tables`` measured tables of typical size."""
    return _STEP + tables * (_TARGET + _CELL * pair * components) + _LEVEL * levels * components


def _typical_pair(sizes: Mapping[str, int]) -> float:
    """Mean number of cells of candidate pairs."""
    cells = [first * second for first, second in combinations(sizes.values(), 2)]
    small = [size for size in cells if size <= costs.PAIR_CELLS]
    return sum(small) / len(small) if small else float(max(sizes.values(), default=1))


@dataclass(frozen=True)
class TargetTables:
    """The ``pairs`` of a target and another attribute; each has at most so many ``parts``."""

    pairs: tuple[tuple[str, str], ...] = ()
    parts: int = 0

    @classmethod
    def of(
        cls, targets: Collection[str], names: Sequence[str], schedule: Schedule, scaled_size: float
    ) -> TargetTables:
        """Those of declared ``targets`` among the attributes ``names``.

        None if most attributes are targets, which then tells none apart, or if the tables would be
        more than twice those that rounds choose. Fewer parts where noise is strong.
        """
        known = [name for name in names if name in targets]
        pairs = tuple(
            (target, partner)
            for number, target in enumerate(known)
            for partner in names
            if partner != target and partner not in known[:number]
        )
        most = MOST_OF_TARGETS * schedule.tables
        if not 0 < len(pairs) <= most or 2 * len(known) > len(names):
            return cls()
        return cls(pairs, max(clear_parts(scaled_size, len(pairs) / _SHARE_OF_TARGETS), 2))

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that have tables."""
        return tuple(dict.fromkeys(target for target, _ in self.pairs))

    def kind(self, task: Task, share: float, law: NoiseLaw) -> Kind:
        """The queries, of the ``share`` of the budget that rounds would have."""
        words = "joint tables of each of evaluation.targets with each other attribute: "
        words += ", ".join(self.targets)
        return counts(task, TARGETS, share * _SHARE_OF_TARGETS, len(self.pairs), words, law=law)

    def counted(self, sizes: Mapping[str, int], deviation: float) -> Iterator[Counted]:
        """The tables of attributes of these ``sizes``, with the deviation of a count in rows."""
        for pair in self.pairs:
            yield Counted({name: min(sizes[name], self.parts) for name in pair}, deviation)

    def measure(
        self,
        private: Door[TableRows],
        bins: Mapping[str, Histogram],
        law: NoiseLaw,
        noise: Mapping[str, Fraction],
    ) -> tuple[NoisyTable, ...]:
        """The noisy tables.

        Privacy: a partition of the rows for each, with the noise that the plan holds.
        """
        if not self.pairs:
            return ()
        mechanism = law.counts(noise[TARGETS])
        few = {
            name: coarse(histogram, self.parts) if histogram.size > self.parts else histogram
            for name, histogram in bins.items()
        }
        return tuple(
            count_table(private, [few[name] for name in pair], mechanism, " x ".join(pair))
            for pair in self.pairs
        )
