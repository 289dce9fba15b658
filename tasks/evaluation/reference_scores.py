"""Scores of models trained on the real rows, kept in the home.

Every evaluation on the same rows compares with the same scores.

Privacy: scores of real rows without noise; internal, like every evaluation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import sklearn
import xgboost

from cloister.devices import CPU, Device
from cloister.evaluation.classifiers.learning import Learning, Score, train_and_test
from cloister.evaluation.classifiers.targets import PredictionTarget
from cloister.evaluation.options import Panel
from cloister.schema.domain import Table
from cloister.tasks.runtime.code_version import evaluating_digest
from cloister.tasks.runtime.files import write_json
from cloister.tasks.runtime.home import Home, private_folder

_LIBRARIES = tuple(library.__version__ for library in (np, sklearn, xgboost))


@dataclass(frozen=True)
class ReferenceScores:
    """Scores kept under the digest of all that decides them; ``spec`` is the digest of the spec."""

    home: Home
    spec: str

    def scores(
        self,
        train: Table,
        test: Table,
        targets: Sequence[PredictionTarget],
        panel: Panel,
        device: Device = CPU,
    ) -> Learning:
        """The scores of `train_and_test`, stored or new."""
        self.home.prepare()
        path = (
            private_folder(self.home.folder / "truths")
            / f"{self._key(train, test, targets, panel, device)}.json"
        )
        if not path.is_file():
            scores = asdict(train_and_test(train, test, targets, panel, device))
            write_json(path, scores)
        return _learning(json.loads(path.read_text(encoding="utf-8")))

    def _key(
        self,
        train: Table,
        test: Table,
        targets: Sequence[PredictionTarget],
        panel: Panel,
        device: Device,
    ) -> str:
        names = [target.attribute for target in targets]
        decisive = [self.spec, evaluating_digest(), panel, names, str(device)]
        digest = hashlib.sha256(json.dumps([*decisive, *_LIBRARIES]).encode())
        for table in (train, test):
            for name in table.domain.modelled:
                digest.update(table.codes[name].tobytes())
        return digest.hexdigest()[:16]


def _learning(fields: dict[str, Any]) -> Learning:
    scores = tuple(Score(**score) for score in fields["scores"])
    return Learning(**fields | {"scores": scores, "one_class": tuple(fields["one_class"])})
