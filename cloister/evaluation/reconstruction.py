"""Attributes of known rows, rebuilt from counts of synthetic ones.

An attack as those of `cloister.evaluation.attacks`: rows that were not fitted say what it achieves
of anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.linalg import solve

from cloister.arrays import Floats, Integers
from cloister.evaluation import attacks, marginals
from cloister.schema.domain import Table

_KNOWN = 1_000
"""Rows of each side at most that are known: the equations are solved for all of them together."""

_SECRETS = 12
"""Attributes at most that are rebuilt, the first ones: each has equations of its own."""

_SETS = 60
"""Pairs of other attributes at most by which an attribute is counted."""

_DOUBT = 1.0
"""Variance of a count over that of a row's value before any is seen: at 0.1, 1 and 10, 0.63, 0.63
and 0.60 of the cells of fitted rows are right where the audit's data are released as they are."""


def rebuild_attributes(fitted: Table, held_out: Table, synthetic: Table) -> attacks.Advantage:
    """How often an attribute of known rows is rebuilt from counts; the mean over attributes.

    All other attributes of the rows of a side are known, as many of either, at most 1,000. The
    cells of three-way tables of the synthetic rows are equations: so many of the rows with these
    two values have that third one. Their least squares, near the share of each value in all rows,
    are the guess.

    Source: Dinur and Nissim, Revealing information while preserving privacy (PODS 2003);
    Kasiviswanathan, Rudelson and Smith, The power of linear reconstruction attacks (SODA 2013).
    """
    rows = attacks.as_many(fitted, held_out, _KNOWN, np.random.default_rng(0))
    ours, theirs = (_right(side, synthetic) for side in rows)
    return attacks.Advantage.of(ours, theirs, paired=False)


def _right(rows: Table, shown: Table) -> Floats:
    """The share of the attributes of each row (n,) that are rebuilt."""
    names = rows.domain.modelled
    right = np.zeros(rows.rows)
    secrets = names[:_SECRETS]
    for secret in secrets:
        rest = [name for name in names if name != secret]
        sets = marginals.attribute_sets(rest, min(2, len(rest)))[:_SETS] if rest else []
        truth, counted = (marginals.cells_of(table, secret) for table in (rows, shown))
        values = np.eye(max(truth.max(), counted.max()) + 1)[counted]
        right += _rebuilt(rows.rows, marginals.joint_cells((rows, shown), sets), values) == truth
    return right / len(secrets)


def _rebuilt(rows: int, sets: Iterable[Sequence[Integers]], values: Floats) -> Integers:
    """The most likely value (rows,) of each row by least squares.

    ``sets`` have the cells of known attributes, of rows (rows,) and of synthetic ones (m,), whose
    ``values`` (m, v) are 1 for the one that each has.
    """
    shares, scale = values.mean(axis=0), rows / len(values)
    alike, sums = _DOUBT * np.eye(rows), np.zeros((rows, len(shares)))
    for ours, theirs in sets:
        counts = np.zeros((max(ours.max(), theirs.max()) + 1, len(shares)))
        np.add.at(counts, theirs, values)
        same = np.equal.outer(ours, ours)
        alike += same
        sums += scale * counts[ours] - np.outer(same.sum(axis=0), shares)
    estimates = shares + solve(alike, sums, assume_a="pos")
    return np.asarray(estimates.argmax(axis=1))
