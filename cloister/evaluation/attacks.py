"""Empirical attacks on a synthetic table: nearness to real records, and membership inference.

An attack that fails proves nothing: it shows that this attack, on this table, found nothing. Only
the accounting of the mechanisms proves differential privacy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.arrays import Floats, Integers
from cloister.evaluation.marginals import declared_range
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

_NORMAL_95 = 1.959963984540054
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

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {**asdict(self), "note": CAVEAT}


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

    Source: van Breugel et al., Membership inference attacks against synthetic data through
    overfitting detection (AISTATS 2023), equation 2. Interval: DeLong, DeLong and Clarke-Pearson
    (1988).
    """
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(held_out.rows)
    outsiders, reference = (
        held_out.take(order[::2][:_MEMBERS]),
        held_out.take(order[1::2][: _most_records(held_out)]),
    )
    members = fitted.take(rng.permutation(fitted.rows)[: min(_MEMBERS, outsiders.rows)])
    shown = synthetic.take(rng.permutation(synthetic.rows)[: _most_records(synthetic)])
    scores = [_density_ratio(rows, shown, reference) for rows in (members, outsiders)]
    return _auc_with_interval(*scores)


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


def _density_ratio(rows: Table, shown: Table, reference: Table) -> Floats:
    smallest = 1.0 / (1_000 * len(rows.domain.modelled))
    ratio = (nearest(rows, reference) + smallest) / (nearest(rows, shown) + smallest)
    return np.log(ratio).astype(np.float64)


def _auc_with_interval(positives: Floats, negatives: Floats) -> Membership:
    over_negatives = _placements(positives, negatives)
    over_positives = 1 - _placements(negatives, positives)
    auc = float(over_negatives.mean())
    variance = over_negatives.var(ddof=1) / len(positives) + over_positives.var(ddof=1) / len(
        negatives
    )
    margin = _NORMAL_95 * float(np.sqrt(variance))
    return Membership(
        auc, max(0.0, auc - margin), min(1.0, auc + margin), len(positives), len(negatives)
    )


def _placements(scores: Floats, reference: Floats) -> Floats:
    """For each score (n,), the share of the others below it, ties counted half."""
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    shares: Floats = below / (2 * len(reference))
    return shares
