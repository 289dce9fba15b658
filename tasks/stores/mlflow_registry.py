"""Released models in MLflow's registry: a version for each release, an alias for its state.

A model is a pyfunc, whose files and signature are made from public facts alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

import mlflow.pyfunc
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from cloister.errors import InputError
from cloister.models.storage import MODEL_DIGEST, load_saved
from cloister.models.task import AnyTask, Task
from cloister.privacy.certificate.certificate import Certificate
from cloister.schema.columns import Column
from cloister.schema.domain import Domain
from cloister.tasks.home.home import Home
from cloister.tasks.stores.mlflow_store import (
    RELEASE,
    Tracker,
    logged_models,
    quotable,
    release_filter,
    unreachable,
)
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


ALIASES = ("candidate", "approved", "published", "rejected", "withdrawn")


@dataclass(frozen=True)
class ModelRegistry:
    """The models of releases in a tracking store."""

    client: MlflowClient

    @classmethod
    def of(cls, home: Home) -> Self:
        """The registry of the store that a home names.

        Raises:
            StorageError: the store cannot be reached or made.
        """
        return cls(Tracker.open(home.tracking, home.artifacts).client)

    def register(
        self, run: str, model: Path, certificate: Certificate, certificate_digest: str
    ) -> ModelVersion:
        """Put a saved model into the registry, with a page and alias ``candidate``.

        Once per release.

        Raises:
            StorageError: the store cannot be written.
        """
        name, release = model_name(certificate), certificate.subject.id
        tags = _version_tags(certificate, certificate_digest)
        found = self._version(name, release)
        if found is None:
            page = self._logged(run, model, name, tags)
            self._ensure_model(name)
            found = self.client.create_model_version(
                name,
                page.artifact_location,
                run,
                tags,
                description=_description(certificate),
                model_id=page.model_id,
            )
            versions = json.dumps([{"name": name, "version": int(found.version)}])
            self.client.set_logged_model_tags(page.model_id, {MLFLOW_MODEL_VERSIONS: versions})
        for key, value in tags.items():
            self.client.set_model_version_tag(name, found.version, key, value)
        self.client.set_registered_model_alias(name, "candidate", found.version)
        return found

    def point(self, release: str, state: str) -> ModelVersion:
        """Move the alias of a state to the model of a release.

        The alias it had before is taken off.

        Raises:
            InputError: there is no such model, or no alias for the state.
        """
        if state not in ALIASES:
            raise InputError(f"a model has no alias '{state}'; use one of {', '.join(ALIASES)}")
        version = self.find(release)
        for alias in self._aliases(version):
            self.client.delete_registered_model_alias(version.name, alias)
        self.client.set_registered_model_alias(version.name, state, version.version)
        self.client.set_model_version_tag(version.name, version.version, "release.state", state)
        return version

    def find(self, release: str) -> ModelVersion:
        """The registered model of a release.

        Raises:
            InputError: there is none.
        """
        found = self._versions(release) if quotable(release) else []
        if not found:
            raise InputError(
                f"the registry has no model of release {release}; see cloister ledger list"
            )
        return found[0]

    def _aliases(self, version: ModelVersion) -> list[str]:
        aliases: Mapping[str, str] = self.client.get_registered_model(version.name).aliases
        return [
            alias
            for alias, held in aliases.items()
            if str(held) == str(version.version) and alias in ALIASES
        ]

    def _version(self, name: str, release: str) -> ModelVersion | None:
        return next((version for version in self._versions(release) if version.name == name), None)

    def _versions(self, release: str) -> list[ModelVersion]:
        return list(self.client.search_model_versions(release_filter(release)))

    def _ensure_model(self, name: str) -> None:
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise unreachable(error) from None

    def _logged(self, run: str, model: Path, name: str, tags: Mapping[str, str]) -> LoggedModel:
        """The page of a model, with its files; one that an earlier attempt began is ended."""
        # beside the model, not in the folder of temporary files: the next attempt removes what a
        # killed one left
        work = model.with_name(f".{model.name}.mlflow")
        shutil.rmtree(work, ignore_errors=True)
        found = self.client.get_run(run)
        held = logged_models(self.client, found)
        page = held[0] if held else self._new_page(found, name, tags)
        if page.status == LoggedModelStatus.READY:
            return page
        try:
            save_pyfunc(model, work, page)
            self.client.log_model_artifacts(page.model_id, str(work))
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return self.client.finalize_logged_model(page.model_id, LoggedModelStatus.READY)

    def _new_page(self, run: Run, name: str, tags: Mapping[str, str]) -> LoggedModel:
        page = self.client.create_logged_model(
            run.info.experiment_id,
            name.replace(".", "_"),  # which names of registered models may have, and these not
            run.info.run_id,
            dict(tags),
            run.data.params,
            model_type="synthesizer",
        )
        self.client.log_outputs(run.info.run_id, [LoggedModelOutput(page.model_id, 0)])
        return page


def model_name(certificate: Certificate) -> str:
    """The name that a release's model has in the registry."""
    return f"{certificate.subject.dataset}-{certificate.subject.method}"


def _version_tags(certificate: Certificate, certificate_digest: str) -> dict[str, str]:
    guarantee = certificate.guarantee
    tags = {
        RELEASE: certificate.subject.id,
        "dp.epsilon": guarantee.epsilon,
        "dp.delta": guarantee.delta,
        "dp.unit": guarantee.unit_statement,
        "dp.relation": guarantee.relation,
        "ledger.entry": f"{certificate.ledger.seq}:{certificate.ledger.hash}",
        "certificate.sha256": certificate_digest,
    }
    if certificate.deniable:
        tags["dp.guarantee"] = "plausible deniability: NOT differential privacy"
    return tags if guarantee.private else tags | {"dp.stain": "NOT PRIVATE"}


def _description(certificate: Certificate) -> str:
    guarantee = certificate.guarantee
    stain = "" if guarantee.private else "NOT PRIVATE (seeded noise). "
    stain += "NOT differentially private: plausible deniability. " if certificate.deniable else ""
    return (
        f"{stain}Release {certificate.subject.id} of {certificate.subject.dataset} by "
        f"{certificate.subject.method}: epsilon {guarantee.epsilon}, delta {guarantee.delta}, for "
        f"{guarantee.unit} ({guarantee.relation})."
    )
