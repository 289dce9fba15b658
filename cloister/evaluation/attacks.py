"""Empirical attacks on a synthetic table, which know its rows and, some, rows of the population.

    closest records   are synthetic rows nearer to real ones than fresh rows would be?
    membership        was a row fitted?
    attributes        what is an attribute of a row, given all its others?
    singling out      does a description of a synthetic row fit exactly one real row?

Rows of the same population that were not fitted, ``held_out``, say what each attack achieves of
anybody: only the difference is leakage.

An attack that fails proves nothing: it shows that this attack, on this table, found nothing. Only
the accounting of the mechanisms proves differential privacy.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.evaluation.marginals import attribute_sets, cells_of, declared_range, joint_cells
from cloister.hashing import GOLDEN
from cloister.schema.domain import Table

CAVEAT = (
    "An attack that fails does not prove differential privacy: it only says that this attack "
    "found nothing. The guarantee comes from the accounting of the mechanisms alone."
)

_QUERIES = 1_000
"""Rows of each table at most whose closest record is searched for."""

_RECORDS = 20_000
"""Rows at most among which the closest one is searched."""

_RECORD_CELLS = 2_000_000
"""Cells at most among which the closest record is searched: fewer rows in wide tables."""

_MEMBERS = 2_000
"""Fitted rows at most, and as many others, that membership inference is scored on."""

FEWEST_ATTACK_ROWS = 20
"""Rows of each table at least, for distances and attacks to be reported."""

_CHUNK = 64
"""Rows whose distances to all records are in memory at a time."""

_SEED = 0
"""Seed of the random choice of rows, fixed so that an evaluation is repeatable."""

_DESCRIPTIONS = 500
"""Descriptions at most that single out, of ten times as many synthetic rows."""

_DESCRIBED = 3
"""Attributes of a description, as in Giomi et al., section 6.1."""

NORMAL_95 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution, for two-sided 95 % intervals."""

Distances = NDArray[np.float32]


@dataclass(frozen=True)
class ClosestRecords:
    """Distances to the closest real record, of synthetic rows and of other real rows.

    ``copies`` is the share of all synthetic rows that equal some real row; ``twins`` the share of
    all real rows that equal another one. ``median_ratio`` is the median distance of synthetic rows
    over that of real rows: about 1 for fresh rows of the same population, much below 1 if synthetic
    rows follow real records too closely. None where the real rows' median distance is 0.
    """

    copies: float
    twins: float
    synthetic_median: float
    real_median: float
    synthetic_fifth_percentile: float
    real_fifth_percentile: float

    @property
    def median_ratio(self) -> float | None:
        """Median distance of synthetic rows over that of real rows."""
        return self.synthetic_median / self.real_median if self.real_median > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**asdict(self), "median_ratio": self.median_ratio, "note": CAVEAT}


@dataclass(frozen=True)
class Membership:
    """ROC-AUC of a membership-inference attack and its 95 % confidence interval; 0.5 is chance."""

    auc: float
    low: float
    high: float
    members: int
    others: int

    @classmethod
    def of(cls, members: Floats, outsiders: Floats) -> Membership:
        """That of scores of members (m,) and of outsiders (n,).

        Source: DeLong, DeLong and Clarke-Pearson (1988).
        """
        over_outsiders = _placements(members, outsiders)
        over_members = 1 - _placements(outsiders, members)
        auc = float(over_outsiders.mean())
        variance = sum(each.var(ddof=1) / len(each) for each in (over_outsiders, over_members))
        margin = NORMAL_95 * float(np.sqrt(variance))
        return cls(
            auc, max(0.0, auc - margin), min(1.0, auc + margin), len(members), len(outsiders)
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**asdict(self), "note": CAVEAT}


@dataclass(frozen=True)
class Advantage:
    """How often an attack is right of fitted rows, and of held-out ones: the difference is leakage.

    ``margin`` is half of the 95 % interval of the difference, of so many ``attempts`` a side.
    """

    fitted: float
    held_out: float
    margin: float
    attempts: int

    @classmethod
    def of(cls, fitted: Floats, held_out: Floats, *, paired: bool) -> Advantage:
        """That of the successes (n,), 0 to 1, of each side; ``paired`` if attempts are the same."""
        if not len(fitted):
            return cls(0, 0, 0, 0)
        variance = np.var(fitted - held_out) if paired else np.var(fitted) + np.var(held_out)
        margin = NORMAL_95 * math.sqrt(variance / len(fitted))
        return cls(float(fitted.mean()), float(held_out.mean()), margin, len(fitted))

    @property
    def difference(self) -> float:
        """How much more often it is right of fitted rows."""
        return self.fitted - self.held_out

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**asdict(self), "difference": self.difference, "note": CAVEAT}


def comparable_records(real: Table, synthetic: Table) -> bool:
    """Whether there are enough rows of each table for distances to closest records."""
    return min(real.rows, synthetic.rows) >= FEWEST_ATTACK_ROWS and len(real.domain.modelled) > 0


def closest_records(real: Table, synthetic: Table, among: Table | None = None) -> ClosestRecords:
    """How near synthetic rows come to real records, against how near real rows come to each other.

    1,000 real rows are set aside; the closest of at most 20,000 other real rows is searched for
    them and for 1,000 synthetic rows. All rows take part in the search for exact copies; those of
    rows of a sample are searched ``among`` all real rows.
    """
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(real.rows)
    apart = min(_QUERIES, real.rows // 4)
    records = real.take(order[apart : apart + _most_records(real)])
    from_synthetic = nearest(synthetic.take(rng.permutation(synthetic.rows)[:_QUERIES]), records)
    from_real = nearest(real.take(order[:apart]), records)
    copies, twins = _equal_shares(real, synthetic, among or real)
    return ClosestRecords(
        copies,
        twins,
        *(float(np.median(distances)) for distances in (from_synthetic, from_real)),
        *(float(np.quantile(distances, 0.05)) for distances in (from_synthetic, from_real)),
    )


def infer_membership(fitted: Table, held_out: Table, synthetic: Table) -> Membership:
    """An attack on membership in ``fitted``, scored on rows of ``fitted`` and of ``held_out``.

    The score of a row is the log ratio of its distances to the closest of the attacker's own
    reference rows (one half of ``held_out``) and to the closest synthetic row, an estimate of the
    ratio of the two densities; at most 20,000 rows of each. ``held_out`` comes from the same
    population and took no part in the fit.
    """
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(held_out.rows)
    outsiders, reference = (
        held_out.take(order[::2][:_MEMBERS]),
        held_out.take(order[1::2][: _most_records(held_out)]),
    )
    members = fitted.take(rng.permutation(fitted.rows)[: min(_MEMBERS, outsiders.rows)])
    shown = synthetic.take(rng.permutation(synthetic.rows)[: _most_records(synthetic)])
    scores = [density_ratio(rows, shown, reference) for rows in (members, outsiders)]
    return Membership.of(*scores)


def density_ratio(rows: Table, shown: Table, reference: Table) -> Floats:
    """How near each row (n,) is to ``shown`` rows, against rows of the population; logarithms.

    Source: van Breugel et al., Membership inference attacks against synthetic data through
    overfitting detection (AISTATS 2023), equation 2.
    """
    smallest = 1.0 / (1_000 * len(rows.domain.modelled))
    ratio = (nearest(rows, reference) + smallest) / (nearest(rows, shown) + smallest)
    return np.log(ratio).astype(np.float64)


def cell_excess(rows: Table, shown: Table, reference: Table) -> Floats:
    """By how much the cells of each row (n,) are more frequent in ``shown`` than in the population.

    The sum, over pairs of attributes, of the difference of the shares of a row's cell over its
    share in ``reference``. It sees what a method that counts cells shows of a row, which distances
    do not.

    Source: Homer et al., PLoS Genetics 4(8), 2008; Dwork, Smith, Steinke, Ullman, Vadhan, Robust
    traceability from trace amounts (FOCS 2015).
    """
    excess = np.zeros(rows.rows)
    names = rows.domain.modelled
    sets = attribute_sets(names, min(2, len(names)))
    for mine, *theirs in joint_cells((rows, shown, reference), sets):
        counts = [np.bincount(cells, minlength=mine.max() + 1)[mine] for cells in theirs]
        shares = counts[0] / shown.rows, counts[1] / reference.rows
        excess += (shares[0] - shares[1]) / (shares[1] + 1 / reference.rows)
    return excess


def infer_attributes(fitted: Table, held_out: Table, synthetic: Table) -> Advantage:
    """How often each attribute of a row is guessed from all its others; the mean over attributes.

    The guess is the cell of the synthetic row that is closest in the others: all of a number's cell
    is right. As many rows of ``fitted`` and ``held_out`` are guessed, at most 1,000.

    Source: Giomi et al., A unified framework for quantifying privacy risk in synthetic data
    (PoPETs 2023), section 6.3.
    """
    rng = np.random.default_rng(_SEED)
    shown = synthetic.take(rng.permutation(synthetic.rows)[: _most_records(synthetic)])
    fitted, held_out = as_many(fitted, held_out, _QUERIES, rng)
    return Advantage.of(_guessed(fitted, shown), _guessed(held_out, shown), paired=False)


def nearer_to_fitted(fitted: Table, held_out: Table, synthetic: Table) -> Advantage:
    """How often a synthetic row is nearer to a fitted row than to one of as many held-out rows.

    Ties count half. Source: Platzer and Reutterer, Frontiers in Big Data 4, 2021.
    """
    rng = np.random.default_rng(_SEED)
    queries = synthetic.take(rng.permutation(synthetic.rows)[:_QUERIES])
    records = as_many(fitted, held_out, _most_records(fitted), rng)
    ours, theirs = (nearest(queries, table) for table in records)
    nearer = (1 + np.sign(theirs - ours)) / 2
    return Advantage.of(nearer, 1 - nearer, paired=True)


def single_out(fitted: Table, held_out: Table, synthetic: Table) -> Advantage:
    """How often a description of one synthetic row alone fits exactly one real row.

    A description is the cells of three attributes. As many rows of both real tables are searched.

    Source: Giomi et al. (PoPETs 2023), section 6.1.
    """
    rng = np.random.default_rng(_SEED)
    searched = [synthetic, *as_many(fitted, held_out, _RECORDS, rng)]
    names = np.array(fitted.domain.modelled)
    cells = [{name: cells_of(table, name) for name in names} for table in searched]
    hits: list[tuple[bool, bool]] = []
    for row in rng.permutation(synthetic.rows)[: 10 * _DESCRIPTIONS]:
        chosen = rng.choice(names, min(_DESCRIBED, len(names)), replace=False)
        shown, *real = (
            np.logical_and.reduce([each[name] == cells[0][name][row] for name in chosen]).sum()
            for each in cells
        )
        if shown == 1:
            hits.append((real[0] == 1, real[1] == 1))
        if len(hits) == _DESCRIPTIONS:
            break
    ours, theirs = np.array(hits, dtype=np.float64).reshape(-1, 2).T
    return Advantage.of(ours, theirs, paired=True)


def as_many(
    fitted: Table, held_out: Table, most: int, rng: np.random.Generator
) -> tuple[Table, Table]:
    """As many rows of both, chosen at random."""
    count = min(fitted.rows, held_out.rows, most)
    chosen = (table.take(rng.permutation(table.rows)[:count]) for table in (fitted, held_out))
    return next(chosen), next(chosen)


def _guessed(rows: Table, shown: Table) -> Floats:
    """The share of the attributes of each row (n,) that the closest of the shown rows tell."""
    names = rows.domain.modelled
    right = np.zeros(rows.rows)
    for start in range(0, rows.rows, _CHUNK):
        chunk = rows.take(np.arange(start, min(start + _CHUNK, rows.rows)))
        differences = {name: _differences(name, chunk, shown) for name in names}
        total = np.sum(list(differences.values()), axis=0)
        for name in names:
            closest = (total - differences[name]).argmin(axis=1)
            guesses = cells_of(shown, name)[closest]
            right[start : start + _CHUNK] += guesses == cells_of(chunk, name)
    return right / len(names)


def _most_records(table: Table) -> int:
    """20,000, fewer above 100 attributes."""
    return min(_RECORDS, _RECORD_CELLS // len(table.domain.modelled))


def nearest(queries: Table, records: Table) -> Distances:
    """Distance (q,) of each row to the closest record, from 0 to 1.

    The distance is the mean over attributes of their differences. Numbers and ordered values differ
    by their distance as a share of the declared range, unordered values by 0 or 1, a missing value
    from any other by 1 (Gower 1971).
    """
    distances = [
        _nearest(queries.take(np.arange(start, min(start + _CHUNK, queries.rows))), records)
        for start in range(0, queries.rows, _CHUNK)
    ]
    return np.concatenate(distances)


def _nearest(queries: Table, records: Table) -> Distances:
    total = np.zeros((queries.rows, records.rows), dtype=np.float32)
    names = records.domain.modelled
    for name in names:
        total += _differences(name, queries, records)
    closest: Distances = total.min(axis=1)
    np.divide(closest, len(names), out=closest)
    return closest


def _differences(name: str, queries: Table, records: Table) -> Distances:
    if records.domain[name].kind == "nominal":
        return np.not_equal.outer(queries.codes[name], records.codes[name]).astype(np.float32)
    left, right = _scaled(name, queries), _scaled(name, records)
    differences: Distances = np.minimum(np.abs(left[:, None] - right[None, :]), np.float32(1))
    return differences


def _scaled(name: str, table: Table) -> Distances:
    """Numbers (rows,) as shares of the declared range.

    Special values are at most 1 outside it, missing values farther.
    """
    first, last = declared_range(table.domain[name])
    shares = np.clip((table.comparable(name) - first) / ((last - first) or 1.0), -1.0, 2.0)
    return np.where(np.isnan(shares), -3.0, shares).astype(np.float32)


def _equal_shares(real: Table, synthetic: Table, among: Table) -> tuple[float, float]:
    """The shares of synthetic rows that equal one, and of real rows that equal two, ``among``."""
    hashes = np.concatenate([_row_hashes(real), _row_hashes(synthetic)])
    wanted, numbers = np.unique(hashes, return_inverse=True)
    times = among.total(partial(_count_equal, wanted))[numbers]
    return float((times[real.rows :] > 0).mean()), float((times[: real.rows] > 1).mean())


def _count_equal(wanted: NDArray[np.uint64], block: Table) -> Integers:
    """How many rows of a block have each of some hashes (k,), which increase."""
    hashes, counts = np.unique(_row_hashes(block), return_counts=True)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    times = np.zeros(len(wanted), dtype=np.int64)
    equal = wanted[places] == hashes
    times[places[equal]] = counts[equal]
    return times


def _row_hashes(table: Table) -> NDArray[np.uint64]:
    """64-bit hashes (rows,); steps are one to one in hash and code, so collisions are by chance."""
    hashes = np.zeros(table.rows, dtype=np.uint64)
    for name in table.domain.modelled:
        hashes = (hashes + table.codes[name].astype(np.uint64) + np.uint64(1)) * GOLDEN
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _placements(scores: Floats, reference: Floats) -> Floats:
    """For each score (n,), the share of the others below it, ties counted half."""
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    return np.asarray(below / (2 * len(reference)))
