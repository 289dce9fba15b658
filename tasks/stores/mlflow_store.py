"""What happened, in MLflow: one run per release with a child per stage, and the model in the registry.

Besides it, only `tasks.stores.mlflow_models` and `tasks.stores.mlflow_pyfunc` import MLflow. Runs
are named by id in every call: there is no active run, so that threads and processes cannot log into
each other's. The store is private: it holds figures that compare with the real table. It holds no
row of any table, no digest of the data but keyed ones, and no number of real rows. Whatever is
recorded again takes the place of what was recorded before.

The ledger is the authority; the store mirrors it, and may be lost without loss of a charge.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModel,
    LoggedModelOutput,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunTag,
)
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.mlflow_tags import (
    MLFLOW_DATASET_CONTEXT,
    MLFLOW_LOGGED_ARTIFACTS,
    MLFLOW_MODEL_VERSIONS,
)
from sqlalchemy.exc import SQLAlchemyError

from cloister import __version__
from cloister.errors import InputError, StorageError
from cloister.evaluation.report import Evaluation
from cloister.privacy.certificate.certificate import Certificate
from cloister.privacy.certificate.schema import StageSpend
from tasks.runtime.locks import exclusive
from tasks.stores.mlflow_models import save_pyfunc

LONGEST_PARAM = 6_000
# Letters of the name of a metric or parameter, of the 250 that MLflow takes.
LONGEST_KEY = 200
# Hexadecimal digits that tell names apart which would otherwise be written alike: 48 bits.
KEY_DIGITS = 12
MOST_ENTRIES = 90
LONGEST_DIGEST = 32
"""Letters of the keyed digest of the data that the store has room for: 128 bits tell any two tables apart."""

PARENT, RELEASE, STAGE = "mlflow.parentRunId", "release.id", "stage"
ALIASES = ("candidate", "approved", "published", "rejected", "withdrawn")


@dataclass(frozen=True)
class Tracker:
    """A tracking store.

    ``artifacts`` is where new experiments keep files, None to leave that to a server.
    """

    client: MlflowClient
    artifacts: str | None

    @classmethod
    def open(cls, uri: str, artifacts: Path) -> Self:
        """The store at a URI; a SQLite one is made if there is none.

        Raises:
            StorageError: it cannot be reached or made.
        """
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        local = not uri.startswith(("http", "databricks"))
        place = artifacts.absolute().as_uri()
        try:
            client = _open_sqlite(uri, place) if uri.startswith("sqlite:///") else _open(uri)
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise _unreachable(error) from None
        return cls(client, place if local else None)

    def begin(
        self, release: str, dataset: str, method: str, tags: Mapping[str, str] | None = None
    ) -> str:
        """The run of a release: a new one, or the one that an earlier process began and did not end."""
        experiment = self._experiment(dataset)
        described = {
            RELEASE: release,
            "method": method,
            "cloister.version": __version__,
            **(tags or {}),
        }
        for run in self._runs(experiment, release):
            if PARENT not in run.data.tags:
                self._end_orphans(experiment, release)
                self.client.update_run(run.info.run_id, status="RUNNING")
                self._tag(run.info.run_id, described)
                return str(run.info.run_id)
        return self._create(experiment, f"{dataset} {release}", described)

    @contextmanager
    def stage(self, parent: str, name: str) -> Iterator[str]:
        """The child run of a stage, which ends as finished, or as failed with an error.

        Repeated, it is the same run.

        Neither the error nor its text is recorded: it may speak of the data.
        """
        child = self._child(parent, name)
        try:
            yield child
        except BaseException:
            self.client.set_terminated(child, "FAILED")
            raise
        self.client.set_terminated(child, "FINISHED")

    def finish(self, run: str, succeeded: bool) -> None:
        """End the run of a release, and whatever of it a killed process left running."""
        found = self.client.get_run(run)
        self._end_orphans(found.info.experiment_id, found.data.tags[RELEASE])
        self.client.set_terminated(run, "FINISHED" if succeeded else "FAILED")

    def runs(self, run: str) -> list[str]:
        """The run of a release and its children, those of killed processes included."""
        found = self.client.get_run(run)
        return sorted(
            each.info.run_id
            for each in self._runs(found.info.experiment_id, found.data.tags[RELEASE])
        )

    def models(self, run: str) -> list[str]:
        """The ids of the models that a release has logged."""
        return sorted(page.model_id for page in self._pages(self.client.get_run(run)))

    def log_plan(self, run: str, plan: Mapping[str, Any]) -> None:
        """A plan as JSON values: whole as an artifact, its parameters also as run parameters."""
        self.client.log_dict(run, dict(plan), "plan.json")
        held = self.client.get_run(run).data.params
        params = [
            Param(mlflow_key(name), str(value)[:LONGEST_PARAM])
            for name, value in plan["parameters"].items()
        ]
        for start in range(0, len(params), MOST_ENTRIES):
            new = [param for param in params[start : start + MOST_ENTRIES] if param.key not in held]
            self.client.log_batch(run, params=new)

    def log_spend(self, run: str, stages: Sequence[StageSpend], epsilon: float, delta: str) -> None:
        """The epsilon of each stage alone and of all together; as metrics, and as a table."""
        spent = {f"epsilon.{stage.name}": stage.epsilon for stage in stages if stage.event} | {
            "epsilon": epsilon
        }
        self._metrics(run, spent)
        rows = [
            {"stage": stage.name, "purpose": stage.purpose, "epsilon": stage.epsilon}
            for stage in stages
        ]
        self._table(run, rows, "spend.json")
        self._tag(run, {"dp.delta": delta})

    def log_input(self, run: str, dataset: str, digest: str) -> None:
        """Which data went in: its name and keyed digest; neither rows, nor columns, nor a place."""
        source = json.dumps({"kept": "in the private home"})
        data = Dataset(dataset, digest[:LONGEST_DIGEST], "private", source)
        self.client.log_inputs(
            run, [DatasetInput(data, [InputTag(MLFLOW_DATASET_CONTEXT, "training")])]
        )

    def log_evaluation(self, run: str, evaluation: Evaluation, folder: Path) -> None:
        """Measures against the real table, with the plots and tables in a folder; internal.

        Numbers of real rows and of their violating rows or pairs stay behind; shares are recorded.
        """
        self._metrics(run, evaluation.metrics())
        if evaluation.violations:
            rows = [violations.to_dict() for violations in evaluation.violations]
            kept = [{name: value for name, value in row.items() if name != "real"} for row in rows]
            self._table(run, kept, "evaluation/violations.json")
        for path in sorted(folder.rglob("*.png")):
            self.client.log_artifact(run, str(path), "evaluation")
        self._tag(run, {"internal": "true"})

    def log_certificate(self, run: str, folder: Path) -> None:
        """The certificate and the manifest of a release folder, as far as they are there."""
        for name in ("certificate.yaml", "certificate.html", "manifest.json"):
            if (folder / name).is_file():
                self.client.log_artifact(run, str(folder / name), "certificate")

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
        return list(self.client.search_model_versions(_of(release)))

    def _ensure_model(self, name: str) -> None:
        try:
            self.client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise _unreachable(error) from None

    def _logged(self, run: str, model: Path, name: str, tags: Mapping[str, str]) -> LoggedModel:
        """The page of a model, with its files; one that an earlier attempt began is ended."""
        # beside the model, not in the folder of temporary files: the next attempt removes what a
        # killed one left
        work = model.with_name(f".{model.name}.mlflow")
        shutil.rmtree(work, ignore_errors=True)
        found = self.client.get_run(run)
        held = self._pages(found)
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
            name,
            run.info.run_id,
            dict(tags),
            run.data.params,
            model_type="synthesizer",
        )
        self.client.log_outputs(run.info.run_id, [LoggedModelOutput(page.model_id, 0)])
        return page

    def _pages(self, run: Run) -> list[LoggedModel]:
        return list(
            self.client.search_logged_models([run.info.experiment_id], _of(run.data.tags[RELEASE]))
        )

    def _experiment(self, dataset: str) -> str:
        found = self.client.get_experiment_by_name(dataset)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self.client.create_experiment(dataset, self._place(dataset)))
        except MlflowException as error:
            raced = self.client.get_experiment_by_name(dataset)
            if raced is None:
                raise _unreachable(error) from None
            return str(raced.experiment_id)

    def _place(self, dataset: str) -> str | None:
        return f"{self.artifacts}/{dataset}" if self.artifacts else None

    def _runs(self, experiment: str, release: str) -> list[Run]:
        return list(self.client.search_runs([experiment], _of(release)))

    def _end_orphans(self, experiment: str, release: str) -> None:
        for run in self._runs(experiment, release):
            if PARENT in run.data.tags and run.info.status == "RUNNING":
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _child(self, parent: str, name: str) -> str:
        """The child run of a stage, running: a new one, or that of an earlier attempt."""
        run = self.client.get_run(parent)
        tags = {PARENT: parent, STAGE: name, RELEASE: run.data.tags[RELEASE]}
        for held in self._runs(run.info.experiment_id, tags[RELEASE]):
            if held.data.tags.get(STAGE) == name:
                self.client.update_run(held.info.run_id, status="RUNNING")
                return str(held.info.run_id)
        return self._create(run.info.experiment_id, name, tags)

    def _create(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        return str(self.client.create_run(experiment, tags=dict(tags), run_name=name).info.run_id)

    def _table(self, run: str, rows: Sequence[Mapping[str, Any]], path: str) -> None:
        """Write rows as a table that MLflow shows, in place of an earlier one: ``log_table`` would add them to it."""
        columns = list(rows[0])
        self.client.log_dict(
            run, {"columns": columns, "data": [list(row.values()) for row in rows]}, path
        )
        shown = json.loads(self.client.get_run(run).data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
        if (entry := {"path": path, "type": "table"}) not in shown:
            self._tag(run, {MLFLOW_LOGGED_ARTIFACTS: json.dumps([*shown, entry])})

    def _metrics(self, run: str, figures: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        entries = [
            Metric(mlflow_key(name), float(figure), now, 0) for name, figure in figures.items()
        ]
        for start in range(0, len(entries), MOST_ENTRIES):
            self.client.log_batch(run, metrics=entries[start : start + MOST_ENTRIES])

    def _tag(self, run: str, tags: Mapping[str, str]) -> None:
        self.client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])


def _open_sqlite(uri: str, artifacts: str) -> MlflowClient:
    """A store in a file; of two processes that find none, one makes it."""
    path = Path(uri.removeprefix("sqlite:///"))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive(path.with_name(f"{path.name}.lock")):
        if not path.exists():
            _make(path, artifacts)
        return _open(uri)


def _make(path: Path, artifacts: str) -> None:
    """Make a store beside its place and move it there whole: MLflow takes no store whose making was interrupted."""
    part = path.with_name(f".{path.name}.part")
    for left in path.parent.glob(f"{part.name}*"):
        left.unlink()
    SqlAlchemyStore(f"sqlite:///{part}", artifacts).engine.dispose()
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _open(uri: str) -> MlflowClient:
    client = MlflowClient(uri, uri)
    client.search_experiments(max_results=1)
    return client


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
    return tags if guarantee.private else tags | {"dp.stain": "NOT PRIVATE"}


def _description(certificate: Certificate) -> str:
    guarantee = certificate.guarantee
    stain = "" if guarantee.private else "NOT PRIVATE (seeded noise). "
    return (
        f"{stain}Release {certificate.subject.id} of {certificate.subject.dataset} by {certificate.subject.method}: "
        f"epsilon {guarantee.epsilon}, delta {guarantee.delta}, for {guarantee.unit} ({guarantee.relation})."
    )


def quotable(release: str) -> bool:
    """Whether a text can be the id of a release, which a filter quotes."""
    return release.isascii() and release.replace("-", "").isalnum()


def _of(release: str) -> str:
    """The filter that finds what belongs to a release."""
    return f"tags.`{RELEASE}` = '{release}'"


def mlflow_key(name: str) -> str:
    """A name as MLflow takes it: letters, digits, ``_-.

    `` and single slashes inside; names that differ stay apart.
    """
    kept = "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)[
        :LONGEST_KEY
    ]
    kept = re.sub(r"^[. /]|(?<=/)[./]|/$", "_", kept)
    if kept == name:
        return kept
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:KEY_DIGITS]}"


def _unreachable(error: Exception) -> StorageError:
    return StorageError(
        f"the tracking store cannot be used ({type(error).__name__}); check MLFLOW_TRACKING_URI, and the room on disk"
    )
