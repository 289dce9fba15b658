"""Boosted trees (XGBoost with its defaults), trained on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from xgboost import XGBClassifier

from cloister.devices import CPU, Device
from cloister.evaluation.classifiers.features import Matrix


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
        found: NDArray[np.floating] = self._trees.predict_proba(features)[:, 1]
        return found

    @property
    def gains(self) -> NDArray[np.float32]:
        """The share of each feature (f,) in the gain of all splits."""
        shares: NDArray[np.float32] = self._trees.feature_importances_
        return shares
