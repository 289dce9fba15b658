"""How well a classifier distinguishes synthetic rows from real ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata

from cloister.arrays import Booleans, Integers
from cloister.devices import CPU, Device
from cloister.evaluation.classifiers.boosted_trees import BoostedTrees
from cloister.evaluation.classifiers.features import Matrix
from cloister.evaluation.ranges import declared_range
from cloister.schema.domain import Table

_MOST_ROWS = 20_000
"""Rows of each table at most that the detector sees."""

_MOST_CELLS = 2_000_000
"""Cells of each table at most that the detector sees: fewer rows in wide tables."""

_FEWEST_ROWS = 20
"""Rows of each table at least: four in each fold."""

_FOLDS = 5
"""Folds of the cross-validation."""

_SEED = 0
"""Seed of the choice of rows and folds, fixed so that an evaluation is repeatable."""

_TELLING = 10
"""Attributes at most that are named with their share of the gain."""


@dataclass(frozen=True)
class DetectionScore:
    """Out-of-fold ROC-AUC of the detector: 0.5 by chance, 1 if it always separates the tables.

    ``telling`` names up to ten attributes with their shares of the detector's gain in log loss,
    greatest first.
    """

    auc: float
    real_rows: int
    synthetic_rows: int
    telling: tuple[tuple[str, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures by name."""
        return {
            "auc": self.auc,
            "real_rows": self.real_rows,
            "synthetic_rows": self.synthetic_rows,
            "telling": dict(self.telling),
        }


def detectable(real: Table, synthetic: Table) -> bool:
    """Whether there are enough rows of each table for the folds, and anything to compare."""
    return min(real.rows, synthetic.rows) >= _FEWEST_ROWS and len(real.domain.modelled) > 0


def detect(real: Table, synthetic: Table, device: Device = CPU) -> DetectionScore:
    """The detection of a synthetic table by XGBoost with its defaults, in five folds.

    Features are codes and numbers, with missing values as such. At most 20,000 rows of each table,
    fewer above 100 attributes, a fixed random choice.
    """
    rng = np.random.default_rng(_SEED)
    tables = _sample(real, rng), _sample(synthetic, rng)
    features = np.vstack([_numbers(table) for table in tables])
    labels = np.repeat([0, 1], [table.rows for table in tables])
    folds = np.concatenate([rng.permutation(table.rows) % _FOLDS for table in tables])
    detectors = Parallel(n_jobs=min(_FOLDS, cpu_count()), prefer="threads")(
        delayed(_detect_fold)(features, labels, folds == fold, device) for fold in range(_FOLDS)
    )
    aucs, gains = zip(*detectors, strict=True)
    telling = tuple(_greatest(real.domain.modelled, np.sum(gains, axis=0)))
    return DetectionScore(float(np.mean(aucs)), tables[0].rows, tables[1].rows, telling)


def _detect_fold(
    features: Matrix, labels: Integers, tested: Booleans, device: Device
) -> tuple[float, NDArray[np.float32]]:
    """ROC-AUC of the tested rows under a detector of all others, and its gains (attributes,)."""
    detector = BoostedTrees(device).fit(features[~tested], labels[~tested])
    return roc_auc(detector.scores(features[tested]), labels[tested] == 1), detector.gains


def roc_auc(scores: NDArray[np.floating], positive: Booleans) -> float:
    """Probability that a positive scores above a negative, ties counted half, of scores (n,).

    Source: Mann and Whitney (1947).
    """
    positives = int(positive.sum())
    negatives = len(positive) - positives
    above = rankdata(scores)[positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * negatives))


def _sample(table: Table, rng: np.random.Generator) -> Table:
    return table.take(
        rng.permutation(table.rows)[: min(_MOST_ROWS, _MOST_CELLS // len(table.domain.modelled))]
    )


def _numbers(table: Table) -> Matrix:
    """Comparable numbers (rows, attributes), shifted by the first of each domain to fit float32."""
    columns = []
    for name in table.domain.modelled:
        first, _ = declared_range(table.domain[name])
        columns.append((table.comparable(name) - first).astype(np.float32))
    return np.column_stack(columns)


def _greatest(names: tuple[str, ...], gains: NDArray[np.floating]) -> Iterator[tuple[str, float]]:
    total = float(gains.sum())
    for place in np.argsort(-gains, kind="stable")[:_TELLING]:
        if gains[place] > 0:
            yield names[place], float(gains[place]) / total
