"""The rulers by which methods are compared, on real rows that took no part in a release.

The nine classifiers of `cloister.evaluation.learning`; detection by boosted trees whose folds
follow from a hash of a row, so that equal rows are never both learnt from and tested; half the L1
distance of tables of one, two and three attributes. Exact and internal: the tables must be public.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from cloister.arrays import Integers
from cloister.evaluation.classifiers import BoostedTrees, roc_auc
from cloister.evaluation.learning import synthetic_training_rows, train_and_test
from cloister.evaluation.marginals import compare_marginals
from cloister.evaluation.targets import PredictionTarget
from cloister.schema.domain import Table

HELD_OUT = 0.3
"""Share of the rows that take no part in a release."""

_FOLDS = 5
"""Folds of the detector."""

_MOST_ROWS = 10_000
"""Rows of each table at most that the detector sees."""


def hold_out(table: Table) -> tuple[Table, Table]:
    """The rows of a release and those held out of it, a fixed random choice."""
    order = np.random.default_rng(0).permutation(table.rows)
    used = table.rows - int(HELD_OUT * table.rows)
    return table.take(order[:used]), table.take(order[used:])


def measure_rows(
    used: Table, held_out: Table, synthetic: Table, targets: Sequence[PredictionTarget]
) -> dict[str, float | None]:
    """F1 and detection against rows ``held_out``, distances of tables from those of rows ``used``.

    F1 is None where the rows held out are of one class. Of rows ``used`` in place of the synthetic
    ones it is what real rows reach.
    """
    learning = train_and_test(synthetic_training_rows(synthetic), held_out, targets)
    distances = {f"{m.ways}-way": m.half_l1 for m in compare_marginals(used, synthetic)}
    return {"F1": learning.f1, "detection": detect_by_hash(held_out, synthetic), **distances}


def detect_by_hash(real: Table, synthetic: Table) -> float:
    """ROC-AUC of boosted trees that tell the tables apart, 0.5 by chance, out of folds by hash."""
    rows = min(real.rows, synthetic.rows, _MOST_ROWS)
    names = real.domain.modelled
    codes = [
        np.column_stack([table.codes[name] for name in names])[
            np.random.default_rng(0).permutation(table.rows)[:rows]
        ]
        for table in (real, synthetic)
    ]
    features, labels = np.vstack(codes).astype(np.float32), np.repeat([0, 1], rows)
    folds = _folds(np.vstack(codes))
    aucs = []
    for fold in range(_FOLDS):
        tested = folds == fold
        detector = BoostedTrees().fit(features[~tested], labels[~tested])
        aucs.append(roc_auc(detector.scores(features[tested]), labels[tested] == 1))
    return float(np.mean(aucs))


def _folds(codes: Integers) -> Integers:
    """The fold of each row (n,) of codes (n, attributes): equal rows are in one."""
    hashes = pd.util.hash_pandas_object(pd.DataFrame(codes), index=False).to_numpy()
    return (hashes % np.uint64(_FOLDS)).astype(np.int64)
