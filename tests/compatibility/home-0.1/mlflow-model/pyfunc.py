"""A released model as MLflow serves it: code that MLflow runs, around JSON and arrays; nothing is pickled.

MLflow copies this file into each registered model and runs it to load one ("models from code"). The package Cloister
must be installed where the model is loaded.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from cloister.errors import InputError
from cloister.privacy.randomness import SamplingSource
from cloister.schema.domain import Table
from models.storage import load_model


class SyntheticRows(PythonModel):
    """Draws synthetic rows: post-processing, free and repeatable."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model from the artifact ``model``."""
        self._model = load_model(Path(context.artifacts["model"]))

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """The rows that are asked for, one draw after the other, each of ``rows`` rows from the seed ``seed``.

        Raises:
            InputError: nothing is asked for, or a number of rows below 1 or a seed below 0.
        """
        asked = [(int(rows), int(seed)) for rows, seed in zip(model_input["rows"], model_input["seed"], strict=True)]
        if not asked or any(rows < 1 or seed < 0 for rows, seed in asked):
            raise InputError("ask for rows with columns 'rows', at least 1, and 'seed', at least 0")
        draws = [self._model.sample(rows, SamplingSource(seed)) for rows, seed in asked]
        return Table.concatenate(draws).frame()


set_model(SyntheticRows())
