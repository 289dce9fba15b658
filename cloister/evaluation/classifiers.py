"""Rows as features of boosted trees, and how well these distinguish synthetic rows from real ones.

Features are fitted to the training rows alone. The trees are XGBoost's with its defaults, trained
on a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata
from xgboost import XGBClassifier

from cloister.arrays import Booleans, Integers
from cloister.devices import CPU, Device
from cloister.evaluation.marginals import declared_range
from cloister.schema.columns import Codes, Column
from cloister.schema.domain import Table

_MOST_VALUES = 64
"""Values of an unordered attribute at most that get a feature of their own."""

_MOST_FEATURES = 1_024
"""Features of all attributes together, about: fewer one-hot codes in wide tables."""

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class _Block(ABC):
    """The features of one attribute."""

    name: str

    @abstractmethod
    def of(self, table: Table) -> Matrix:
        """Features (rows, width) of a table."""


@dataclass(frozen=True)
class _OneHot(_Block):
    """One feature for each of the ``frequent`` codes, ascending, and one for all others."""

    frequent: Codes

    def of(self, table: Table) -> Matrix:
        codes = table.codes[self.name]
        positions = np.searchsorted(self.frequent, codes)
        known = self.frequent[np.minimum(positions, len(self.frequent) - 1)] == codes
        return np.eye(len(self.frequent) + 1, dtype=np.float32)[
            np.where(known, positions, len(self.frequent))
        ]


@dataclass(frozen=True)
class _Scaled(_Block):
    """A number of mean 0 and deviation 1 over the training rows, 0 if missing.

    A nullable attribute has a second feature: whether it is missing.
    """

    mean: float
    deviation: float
    nullable: bool

    def of(self, table: Table) -> Matrix:
        numbers = table.comparable(self.name)
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - self.mean) / self.deviation)
        return np.column_stack([scaled, missing] if self.nullable else [scaled]).astype(np.float32)


@dataclass(frozen=True)
class Features:
    """How rows become features: one-hot codes if unordered, standardised numbers otherwise.

    One-hot codes keep the 64 most frequent values of the training rows, fewer in wide tables, so
    that there are about a thousand features at most; rarer values share one feature.
    """

    blocks: tuple[_Block, ...]

    @classmethod
    def fit_to(cls, table: Table) -> Features:
        """The features that fit the training rows ``table``."""
        names = table.domain.modelled
        width = max(2, min(_MOST_VALUES, _MOST_FEATURES // len(names)))
        return cls(tuple(_block(table.domain[name], table, width) for name in names))

    def matrices(self, table: Table) -> dict[str, Matrix]:
        """Features (rows, width) of each attribute."""
        return {block.name: block.of(table) for block in self.blocks}


def side_by_side(matrices: dict[str, Matrix], names: Iterable[str]) -> Matrix:
    """Features (rows, f) of some attributes, side by side."""
    return np.hstack([matrices[name] for name in names])


def _block(column: Column, table: Table, width: int) -> _Block:
    if column.kind == "nominal":
        present, counts = np.unique(table.codes[column.name], return_counts=True)
        return _OneHot(column.name, np.sort(present[np.argsort(-counts, kind="stable")[:width]]))
    numbers = table.comparable(column.name)
    numbers = numbers[~np.isnan(numbers)]
    nullable = column.null_code is not None
    if len(numbers) == 0:
        return _Scaled(column.name, 0.0, 1.0, nullable)
    return _Scaled(column.name, float(numbers.mean()), float(numbers.std()) or 1.0, nullable)


@dataclass
class BoostedTrees:
    """A classifier of rows that are on the host, where it predicts too."""

    device: Device = CPU
    _trees: XGBClassifier = field(init=False)

    def fit(self, features: Matrix, labels: NDArray[Any]) -> Self:
        """Learn from rows (n, f) and their labels (n,)."""
        self._trees = XGBClassifier(random_state=0, n_jobs=1, device=str(self.device))
        self._trees.fit(features, labels)
        self._trees.set_params(device=str(CPU))
        return self

    def predict(self, features: Matrix) -> NDArray[Any]:
        """Labels (m,) of rows (m, f)."""
        return np.asarray(self._trees.predict(features))

    def scores(self, features: Matrix) -> NDArray[np.floating]:
        """Probabilities (m,) of the second label for rows (m, f)."""
        probabilities: NDArray[np.floating] = self._trees.predict_proba(features)[:, 1]
        return probabilities

    @property
    def gains(self) -> NDArray[np.float32]:
        """The share of each feature (f,) in the gain of all splits."""
        shares: NDArray[np.float32] = self._trees.feature_importances_
        return shares


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
    for feature in np.argsort(-gains, kind="stable")[:_TELLING]:
        if gains[feature] > 0:
            yield names[feature], float(gains[feature]) / total
