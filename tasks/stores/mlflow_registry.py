"""Released models in MLflow's registry: a version for each release, a tag for its state.

The tag ``release.state`` is on each version from its birth, and mirrors the ledger. The alias
``published`` is there while one version alone is published, so that it never means another release
than it did before. A model is a pyfunc, whose files and signature are made from public facts alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.types.schema import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

from cloister.errors import InputError
from cloister.models.storage import MODEL_DIGEST, load_saved
from cloister.models.task import DatabaseTask
from cloister.privacy.certificate.approval import HOUSE_KEY
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate, read_certificate
from cloister.privacy.ledger import State
from cloister.privacy.signing import PublicKey
from cloister.schema.columns import Column
from cloister.schema.domain import Domain
from cloister.tasks.home.files import digest_of
from cloister.tasks.home.home import Home
from cloister.tasks.stores import mlflow_store
from cloister.tasks.stores.mlflow_database import unreachable
from cloister.version import __version__

_CODE = Path(__file__).with_name("mlflow_pyfunc.py")

_TYPES = MappingProxyType(
    {"b": "boolean", "i": "long", "u": "long", "f": "double", "M": "datetime"}
)
"""MLflow's types by the kind of a pandas dtype; text where there is none."""

_EXAMPLE_ROWS = 10
"""Rows of the example call: few enough for a screen."""


@dataclass(frozen=True)
class ReleasedModel:
    """What of a release is registered: its saved model, public folder, and the house's key."""

    model: Path
    public: Path
    key: PublicKey


def save_pyfunc(released: ReleasedModel, folder: Path, page: LoggedModel) -> None:
    """Write a saved model into a folder as a pyfunc of the page that a store has made for it.

    The release's certificate, which names the model, lies beside it.

    Raises:
        VerificationError, StorageError, InputError: the saved model cannot be read.
    """
    saved = load_saved(released.model)
    certificate = released.public / YAML_NAME
    with tempfile.TemporaryDirectory() as work, warnings.catch_warnings():
        code = shutil.copyfile(_CODE, Path(work) / _CODE.name)  # closed: MLflow keeps the mode
        warnings.simplefilter("ignore")  # of the example, whose integers have no missing values
        mlflow.pyfunc.save_model(
            path=str(folder),
            python_model=str(code),
            artifacts={"model": str(released.model), "certificate": str(certificate)},
            model_config={MODEL_DIGEST: saved.digest, HOUSE_KEY: released.key.pem},
            mlflow_model=Model(
                model_id=page.model_id, run_id=page.source_run_id, model_uuid=page.model_id
            ),
            signature=signature_of(saved.task),
            input_example=None if saved.task.several else _example(),
            pip_requirements=[f"cloister=={__version__}"],
        )


def _example() -> tuple[pd.DataFrame, dict[str, str]]:
    return pd.DataFrame({"rows": [_EXAMPLE_ROWS], "seed": [1]}), {"where": ""}


def signature_of(task: DatabaseTask) -> ModelSignature:
    """The signature of a model: rows, seed and conditions in, the columns of the domain out.

    Of several tables the columns are not listed: MLflow's schema is of one.
    """
    domain = Domain(()) if task.several else task.lead.domain
    return ModelSignature(
        inputs=Schema([ColSpec("long", "rows"), ColSpec("long", "seed")]),
        outputs=Schema([_drawn(column) for column in domain]) if domain.columns else None,
        params=ParamSchema([ParamSpec("where", "string", "")]),
    )


def _drawn(column: Column) -> ColSpec:
    kind = pd.Series([], dtype=column.dtype).dtype.kind
    return ColSpec(_TYPES.get(kind, "string"), column.name, required=column.null_code is None)


STATE = "release.state"
"""The tag of a version that names the state of its release."""

_FORMER_ALIASES = frozenset({"candidate", "approved", "rejected", "withdrawn"})
"""Aliases of versions before 0.3, each of which slid from release to release."""

_ARTIFACTS = "artifacts"
"""Where a pyfunc keeps its model and certificate."""


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
        return cls(mlflow_store.Tracker.open(home.tracking, home.artifacts).client)

    def register(self, run: str, released: ReleasedModel) -> ModelVersion:
        """Put a saved model into the registry, with a page, as a candidate.

        Once per release.

        Raises:
            StorageError: the store cannot be written.
        """
        certificate = read_certificate(released.public)
        name, release = model_name(certificate), certificate.subject.id
        tags = _version_tags(certificate, digest_of(released.public / YAML_NAME))
        version = self._version(name, release)
        if version is None:
            page = self._logged(run, released, name, tags)
            self._ensure_model(name)
            version = self.client.create_model_version(
                name,
                page.artifact_location,
                run,
                tags | {STATE: State.CANDIDATE.value},
                description=f"{describe(certificate)} {_DRAWING}",
                model_id=page.model_id,
            )
            versions = json.dumps([{"name": name, "version": int(version.version)}])
            self.client.set_logged_model_tags(page.model_id, {MLFLOW_MODEL_VERSIONS: versions})
        for key, value in tags.items():
            if version.tags.get(key) != value:  # one that an earlier attempt made may have others
                self.client.set_model_version_tag(name, version.version, key, value)
        self._point(name)
        return version

    def mirror(
        self, release: str, states: Mapping[str, State], statements: Sequence[Path] = ()
    ) -> ModelVersion:
        """Make the registry agree with the ledger on a release, and on others of its model.

        Args:
            release: that which was moved.
            states: those of the ledger, by release; this repairs an earlier failed attempt.
            statements: files to put beside its model, which permit drawing from it.

        Raises:
            InputError: there is no such model.
        """
        version = self.find(release)
        pages = mlflow_store.logged_models(self.client, self.client.get_run(version.run_id))
        for page in pages:  # versions before 0.2 have none
            # by its place, which a copy of a home has anew: the client remembers those of models
            repository = get_artifact_repository(page.artifact_location, self.client.tracking_uri)
            for path in statements:
                repository.log_artifact(str(path), _ARTIFACTS)
        for registered in self._versions_of(version.name):
            state = states.get(registered.tags.get(mlflow_store.RELEASE, ""))
            if state and state.value != registered.tags.get(STATE):
                self.client.set_model_version_tag(
                    registered.name, registered.version, STATE, state.value
                )
        self._point(version.name)
        return version

    def _point(self, name: str) -> None:
        """Set the alias of the only published version; remove obsolete ones."""
        aliases: Mapping[str, str] = self.client.get_registered_model(name).aliases
        published = [
            version.version
            for version in self._versions_of(name)
            if version.tags.get(STATE) == State.PUBLISHED.value
        ]
        only = published[0] if len(published) == 1 else None
        for alias in aliases:
            if alias in _FORMER_ALIASES or (alias == State.PUBLISHED and only is None):
                self.client.delete_registered_model_alias(name, alias)
        if only is not None and str(aliases.get(State.PUBLISHED)) != str(only):
            self.client.set_registered_model_alias(name, State.PUBLISHED.value, only)

    def find(self, release: str) -> ModelVersion:
        """The registered model of a release.

        Raises:
            InputError: there is none.
        """
        versions = self._versions(release) if mlflow_store.quotable(release) else []
        if not versions:
            raise InputError(
                f"the registry has no model of release {release}; see cloister ledger list"
            )
        return versions[0]

    def _versions_of(self, name: str) -> Iterator[ModelVersion]:
        """All versions of a registered model, a page at a time."""
        token: str | None = None
        while True:
            page = self.client.search_model_versions(f"name = '{name}'", page_token=token)
            yield from page
            if not (token := page.token):
                return

    def _version(self, name: str, release: str) -> ModelVersion | None:
        return next((version for version in self._versions(release) if version.name == name), None)

    def _versions(self, release: str) -> list[ModelVersion]:
        return list(self.client.search_model_versions(mlflow_store.release_filter(release)))

    def _ensure_model(self, name: str) -> None:
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise unreachable(error) from None

    def _logged(
        self, run: str, released: ReleasedModel, name: str, tags: Mapping[str, str]
    ) -> LoggedModel:
        """The page of a model, with its files; one that an earlier attempt began is ended."""
        # beside the model, not in the folder of temporary files: the next attempt removes what a
        # killed one left
        work = released.model.with_name(f".{released.model.name}.mlflow")
        shutil.rmtree(work, ignore_errors=True)
        logged_run = self.client.get_run(run)
        pages = mlflow_store.logged_models(self.client, logged_run)
        page = pages[0] if pages else self._new_page(logged_run, name, tags)
        if page.status == LoggedModelStatus.READY:
            return page
        try:
            save_pyfunc(released, work, page)
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


_DRAWING = (
    "It draws rows once the house's approved.dsse.json lies beside it; whether the release was "
    "withdrawn since is known where its home is alone (cloister ledger show)."
)


def model_name(certificate: Certificate) -> str:
    """The name that a release's model has in the registry."""
    return f"{certificate.subject.dataset}-{certificate.subject.method}"


def _version_tags(certificate: Certificate, certificate_digest: str) -> dict[str, str]:
    guarantee = certificate.guarantee
    tags = {
        mlflow_store.RELEASE: certificate.subject.id,
        "dp.epsilon": guarantee.epsilon,
        "dp.delta": guarantee.delta,
        "dp.unit": guarantee.unit_statement,
        "dp.relation": guarantee.relation,
        "ledger.entry": f"{certificate.ledger.seq}:{certificate.ledger.hash}",
        "certificate.sha256": certificate_digest,
    }
    if weaker := certificate.weaker_guarantee:
        tags["dp.guarantee"] = f"{weaker}: NOT differential privacy"
    return tags if guarantee.private else tags | {"dp.stain": "NOT PRIVATE"}


def describe(certificate: Certificate) -> str:
    """A release in a sentence, as MLflow's pages show it."""
    guarantee = certificate.guarantee
    stain = "" if guarantee.private else "NOT PRIVATE (seeded noise). "
    if weaker := certificate.weaker_guarantee:
        stain += f"NOT differentially private: {weaker}. "
    return (
        f"{stain}Release {certificate.subject.id} of {certificate.subject.dataset} by "
        f"{certificate.subject.method}: epsilon {guarantee.epsilon}, delta {guarantee.delta}, for "
        f"{guarantee.unit} ({guarantee.relation})."
    )
