"""A released model as MLflow serves it: code that MLflow runs, around JSON and arrays.

Nothing is pickled. It draws where the house's statement that its release was approved lies beside
it, which is put there with the approval.

MLflow copies this file into each registered model and runs it to load one ("models from code"). The
package Cloister must be installed where the model is loaded.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext

from cloister.errors import InputError
from cloister.identities import named
from cloister.models.storage import MODEL_DIGEST, load_saved
from cloister.privacy.certificate.approval import HOUSE_KEY, require_approved
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.privacy.signing import PublicKey
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import Domain, Table


class SyntheticRows(PythonModel):
    """Draws synthetic rows: post-processing, free and repeatable."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model from the artifact ``model``, if its release was approved.

        The house's key is in the configuration ``house_key``. Whoever has it by another way gives
        it there when the model is loaded: then nobody who writes to the store can replace it.

        Raises:
            VerificationError: it is not approved, or not the one that was registered.
        """
        config = context.model_config or {}
        registered = str(config.get(MODEL_DIGEST, ""))
        key = PublicKey.from_pem(str(config.get(HOUSE_KEY, "")).encode(), HOUSE_KEY)
        folder = Path(context.artifacts["certificate"]).parent
        approved = require_approved(folder, registered, key)
        self._saved = load_saved(Path(context.artifacts["model"]), registered)
        by = named("", approved["by"])
        warnings.warn(
            f"release {approved['release']} was approved on {approved['time']} by {by}; "
            "whether it was withdrawn since is known where its home is alone: "
            f"cloister ledger show {approved['release']}",
            stacklevel=2,
        )

    def predict(
        self, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One draw for each input row, one after the other: ``rows`` rows from the seed ``seed``.

        ``params["where"]`` is a JSON object that gives some columns a value which all rows have.

        Raises:
            InputError: no draw is given, a number of rows below 1, a seed below 0, or no such
                condition.
        """
        task, model = self._saved.one
        where = _conditions(params or {}, task.domain)
        requested = [
            (int(rows), int(seed))
            for rows, seed in zip(model_input["rows"], model_input["seed"], strict=True)
        ]
        if not requested or any(rows < 1 or seed < 0 for rows, seed in requested):
            raise InputError("ask for rows with columns 'rows', at least 1, and 'seed', at least 0")
        draws = [model.sample(rows, SamplingSource(seed), where) for rows, seed in requested]
        return Table.concatenate(draws).frame()


def _conditions(params: dict[str, Any], domain: Domain) -> dict[str, Any]:
    try:
        where = json.loads(params.get("where") or "{}")
        declared = all(_declares(domain[name], value) for name, value in where.items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unusable() from None
    if not declared:
        raise _unusable()
    return dict(where)


def _declares(column: Column, value: object) -> bool:
    if column.kind == "key" or value is None:
        return column.kind != "key" and column.null_code is not None
    return bool(column.encode(pd.Series([value], dtype=object))[0] != OUTSIDE)


def _unusable() -> InputError:
    return InputError(
        "where should be a JSON object of columns and declared values, such as "
        '{"education": "Doctorate"}'
    )


set_model(SyntheticRows())
