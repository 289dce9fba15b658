"""A released model as an MLflow pyfunc: its files and signature, from public facts alone."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from types import MappingProxyType

import mlflow.pyfunc
import pandas as pd
from mlflow.entities import LoggedModel
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema

from cloister.models.storage import MODEL_DIGEST, load_saved
from cloister.models.task import AnyTask, Task
from cloister.schema.columns import Column
from cloister.schema.domain import Domain
from cloister.version import __version__

_CODE = Path(__file__).with_name("mlflow_pyfunc.py")

_TYPES = MappingProxyType(
    {"b": "boolean", "i": "long", "u": "long", "f": "double", "M": "datetime"}
)
"""MLflow's types by the kind of a pandas dtype; text where there is none."""

_EXAMPLE_ROWS = 10
"""Rows of the example call: few enough for a screen."""


def save_pyfunc(model: Path, folder: Path, page: LoggedModel) -> None:
    """Write a saved model into a folder as a pyfunc of the page that a store has made for it.

    Raises:
        VerificationError, StorageError, InputError: the saved model cannot be read.
    """
    saved = load_saved(model)
    with tempfile.TemporaryDirectory() as work, warnings.catch_warnings():
        code = shutil.copyfile(_CODE, Path(work) / _CODE.name)  # closed: MLflow keeps the mode
        warnings.simplefilter("ignore")  # of the example, whose integers have no missing values
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(code),
            artifacts={"model": str(model)},
            model_config={MODEL_DIGEST: saved.digest},
            mlflow_model=Model(
                model_id=page.model_id, run_id=page.source_run_id, model_uuid=page.model_id
            ),
            signature=signature_of(saved.task),
            input_example=_example() if isinstance(saved.task, Task) else None,
            pip_requirements=[f"cloister=={__version__}"],
        )


def _example() -> tuple[pd.DataFrame, dict[str, str]]:
    return pd.DataFrame({"rows": [_EXAMPLE_ROWS], "seed": [1]}), {"where": ""}


def signature_of(task: AnyTask) -> ModelSignature:
    """The signature of a model: rows, seed and conditions in, the columns of the domain out.

    Of several tables the columns are not listed: MLflow's schema is of one.
    """
    domain = task.domain if isinstance(task, Task) else Domain(())
    return ModelSignature(
        inputs=Schema([ColSpec("long", "rows"), ColSpec("long", "seed")]),
        outputs=Schema([_drawn(column) for column in domain]) if domain.columns else None,
        params=ParamSchema([ParamSpec("where", "string", "")]),
    )


def _drawn(column: Column) -> ColSpec:
    kind = pd.Series([], dtype=column.dtype).dtype.kind
    return ColSpec(_TYPES.get(kind, "string"), column.name, required=column.null_code is None)
