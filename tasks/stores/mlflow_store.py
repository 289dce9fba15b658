"""Releases in MLflow: one run for each, with a child run for each stage.

Besides the modules ``mlflow_*`` of this package, nothing imports MLflow. Runs are named by id in
every call: there is no active run, so that threads and processes cannot log into each other's. The
store is private: it holds figures that compare with the real table. It holds no row of any table,
no digest of the data but keyed ones, and no number of real rows. Whatever is recorded again
replaces what was recorded before.

The ledger is the authority; the store mirrors it, and losing the store loses no charge.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModel, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils import mlflow_tags

from cloister.evaluation.report import AnyEvaluation
from cloister.privacy.certificate.certificate import StageSpend
from cloister.tasks.stores.mlflow_database import clear_errors, open_sqlite, open_store, unreachable
from cloister.version import __version__

RELEASE = "release.id"
"""The tag that names the release of a run, a model or a version."""

_LONGEST_KEY = 200
"""Letters of the name of a metric or parameter, of the 250 that MLflow accepts."""

_KEY_DIGITS = 12
"""Hexadecimal digits of the digest that distinguishes names which would be written alike: 48
bits."""


def quotable(release: str) -> bool:
    """Whether a text can be the id of a release, which a filter quotes."""
    return release.isascii() and release.replace("-", "").isalnum()


def release_filter(release: str) -> str:
    """The filter that finds what belongs to a release."""
    return f"tags.`{RELEASE}` = '{release}'"


def mlflow_key(name: str) -> str:
    """A name as MLflow accepts it; different names stay different.

    It holds letters, digits, ``_-. `` and single inner slashes.
    """
    key = "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)[
        :_LONGEST_KEY
    ]
    key = re.sub(r"^[. /]|(?<=/)[./]|/$", "_", key)
    if key == name:
        return key
    return f"{key}-{hashlib.sha256(name.encode()).hexdigest()[:_KEY_DIGITS]}"


_LONGEST_PARAM = 6_000
"""Letters of a parameter's value: as many as MLflow accepts."""

_MOST_ENTRIES = 90
"""Metrics or parameters of one request; MLflow accepts 100 parameters."""

_LONGEST_DIGEST = 32
"""Letters of the keyed digest of the data: 128 bits of it, as MLflow accepts 36 letters."""

_STAGE = "stage"


@dataclass(frozen=True)
class RunOrigin:
    """Who made a release, by which command and code, when that began, and the release in words.

    ``commit`` is empty where the code is no checkout.
    """

    user: str
    command: str
    commit: str
    began: datetime
    description: str

    @property
    def tags(self) -> dict[str, str]:
        """What MLflow shows of it at the head of a run."""
        tags = {
            mlflow_tags.MLFLOW_USER: self.user,
            mlflow_tags.MLFLOW_SOURCE_NAME: f"{self.command} ({__version__})",
            mlflow_tags.MLFLOW_SOURCE_TYPE: "LOCAL",
            mlflow_tags.MLFLOW_RUN_NOTE: self.description,
        }
        return tags | ({mlflow_tags.MLFLOW_GIT_COMMIT: self.commit} if self.commit else {})


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
        logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it logs errors that it raises
        local = not uri.startswith(("http", "databricks"))
        location = artifacts.absolute().as_uri()
        with clear_errors():
            client = (
                open_sqlite(uri, artifacts) if uri.startswith("sqlite:///") else open_store(uri)
            )
        return cls(client, location if local else None)

    def begin(
        self,
        release: str,
        dataset: str,
        method: str,
        tags: Mapping[str, str] | None = None,
        origin: RunOrigin | None = None,
    ) -> str:
        """The run of a release: a new one, or the one that an earlier process left unfinished."""
        experiment = self._experiment(dataset)
        described = {
            RELEASE: release,
            "method": method,
            "cloister.version": __version__,
            **(tags or {}),
            **(origin.tags if origin else {}),
        }
        for run in self._runs(experiment, release):
            if mlflow_tags.MLFLOW_PARENT_RUN_ID not in run.data.tags:
                self._end_orphans(experiment, release)
                self.client.update_run(run.info.run_id, status="RUNNING")
                self._tag(run.info.run_id, described)
                return str(run.info.run_id)
        began = origin.began if origin else None
        return self._create(experiment, f"{dataset} {release}", described, began)

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
        release_run = self.client.get_run(run)
        self._end_orphans(release_run.info.experiment_id, release_run.data.tags[RELEASE])
        self.client.set_terminated(run, "FINISHED" if succeeded else "FAILED")

    def runs(self, run: str) -> list[str]:
        """The run of a release and its children, those of killed processes included."""
        release_run = self.client.get_run(run)
        return sorted(
            related.info.run_id
            for related in self._runs(
                release_run.info.experiment_id, release_run.data.tags[RELEASE]
            )
        )

    def models(self, run: str) -> list[str]:
        """The ids of the models that a release has logged."""
        return sorted(
            page.model_id for page in logged_models(self.client, self.client.get_run(run))
        )

    def log_params(self, run: str, params: Mapping[str, object]) -> None:
        """The inputs of a run, as parameters to compare: plain values, numbers as numbers.

        A parameter that the run has stays as it is, since MLflow changes none.
        """
        recorded = self.client.get_run(run).data.params
        named = {mlflow_key(name): _param(value) for name, value in params.items()}
        new = [Param(key, value) for key, value in named.items() if key not in recorded]
        for start in range(0, len(new), _MOST_ENTRIES):
            self.client.log_batch(run, params=new[start : start + _MOST_ENTRIES])

    def log_plan(self, run: str, plan: Mapping[str, Any]) -> None:
        """A plan as JSON values: whole as an artifact, its plain values also as parameters.

        Lists and mappings would be texts, which cannot be compared.
        """
        self.client.log_dict(run, dict(plan), "plan.json")
        plain = {
            name: value
            for name, value in plan["parameters"].items()
            if isinstance(value, str | int | float)
        }
        self.log_params(run, plain)

    def log_spend(
        self, run: str, stages: Sequence[StageSpend], epsilon: float | None, delta: str
    ) -> None:
        """The epsilon of each stage alone and of all together; as metrics, and as a table."""
        spent = {f"epsilon.{stage.name}": stage.epsilon for stage in stages if stage.event} | {
            "epsilon": epsilon
        }
        rows = [
            {"stage": stage.name, "purpose": stage.purpose, "epsilon": stage.epsilon}
            for stage in stages
        ]
        tags = {"dp.delta": delta} | self._table(run, rows, "spend.json")
        self._metrics(
            run, {name: amount for name, amount in spent.items() if amount is not None}, tags
        )

    def log_input(self, run: str, dataset: str, digest: str) -> None:
        """Which data went in: its name and keyed digest; neither rows, nor columns, nor a place."""
        source = json.dumps({"kept": "in the private home"})
        data = Dataset(dataset, digest[:_LONGEST_DIGEST], "private", source)
        self.client.log_inputs(
            run, [DatasetInput(data, [InputTag(mlflow_tags.MLFLOW_DATASET_CONTEXT, "training")])]
        )

    def log_evaluation(self, run: str, evaluation: AnyEvaluation, folder: Path) -> None:
        """Measures against the real table, with the plots and tables in a folder; internal.

        Numbers of real rows and of their violating rows or pairs stay behind; shares are recorded.
        """
        tags = {"internal": "true"}
        if evaluation.violations:
            rows = [violations.to_dict() for violations in evaluation.violations]
            public = [
                {name: value for name, value in row.items() if name != "real"} for row in rows
            ]
            tags |= self._table(run, public, "evaluation/violations.json")
        for path in sorted(folder.rglob("*.png")):
            path_in_run = "/".join(("evaluation", *path.relative_to(folder).parts[1:-1]))
            self.client.log_artifact(run, str(path), path_in_run)
        self._metrics(run, evaluation.metrics(), tags)

    def log_certificate(self, run: str, folder: Path) -> None:
        """The certificate and the manifest of a release folder, as far as they are there."""
        for name in ("certificate.yaml", "certificate.html", "manifest.json"):
            if (folder / name).is_file():
                self.client.log_artifact(run, str(folder / name), "certificate")

    def _experiment(self, dataset: str) -> str:
        experiment = self.client.get_experiment_by_name(dataset)
        if experiment is not None:
            return str(experiment.experiment_id)
        try:
            return str(self.client.create_experiment(dataset, self._location(dataset)))
        except MlflowException as error:
            raced = self.client.get_experiment_by_name(dataset)
            if raced is None:
                raise unreachable(error) from None
            return str(raced.experiment_id)

    def _location(self, dataset: str) -> str | None:
        return f"{self.artifacts}/{dataset}" if self.artifacts else None

    def _runs(self, experiment: str, release: str) -> list[Run]:
        return list(self.client.search_runs([experiment], release_filter(release)))

    def _end_orphans(self, experiment: str, release: str) -> None:
        for run in self._runs(experiment, release):
            if mlflow_tags.MLFLOW_PARENT_RUN_ID in run.data.tags and run.info.status == "RUNNING":
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _child(self, parent: str, name: str) -> str:
        """The child run of a stage, running: a new one, or that of an earlier attempt."""
        run = self.client.get_run(parent)
        tags = {
            mlflow_tags.MLFLOW_PARENT_RUN_ID: parent,
            _STAGE: name,
            RELEASE: run.data.tags[RELEASE],
        }
        for child in self._runs(run.info.experiment_id, tags[RELEASE]):
            if child.data.tags.get(_STAGE) == name:
                self.client.update_run(child.info.run_id, status="RUNNING")
                return str(child.info.run_id)
        return self._create(run.info.experiment_id, name, tags)

    def _create(
        self, experiment: str, name: str, tags: Mapping[str, str], began: datetime | None = None
    ) -> str:
        start = int(began.timestamp() * 1000) if began else None
        run = self.client.create_run(experiment, start, dict(tags), name)
        return str(run.info.run_id)

    def _table(self, run: str, rows: Sequence[Mapping[str, Any]], path: str) -> dict[str, str]:
        """Write rows as a table, in place of an earlier one; the tags by which MLflow shows it.

        ``log_table`` would append to it.
        """
        columns = list(rows[0])
        self.client.log_dict(
            run, {"columns": columns, "data": [list(row.values()) for row in rows]}, path
        )
        shown = json.loads(
            self.client.get_run(run).data.tags.get(mlflow_tags.MLFLOW_LOGGED_ARTIFACTS, "[]")
        )
        entry = {"path": path, "type": "table"}
        return (
            {}
            if entry in shown
            else {mlflow_tags.MLFLOW_LOGGED_ARTIFACTS: json.dumps([*shown, entry])}
        )

    def _metrics(self, run: str, figures: Mapping[str, float], tags: Mapping[str, str]) -> None:
        """Log figures, and tags with the first of them: each request costs the store's own time."""
        now = int(time.time() * 1000)
        entries = [
            Metric(mlflow_key(name), float(figure), now, 0) for name, figure in figures.items()
        ]
        self.client.log_batch(run, metrics=entries[:_MOST_ENTRIES], tags=_tags(tags))
        for start in range(_MOST_ENTRIES, len(entries), _MOST_ENTRIES):
            self.client.log_batch(run, metrics=entries[start : start + _MOST_ENTRIES])

    def _tag(self, run: str, tags: Mapping[str, str]) -> None:
        self.client.log_batch(run, tags=_tags(tags))


def _tags(tags: Mapping[str, str]) -> list[RunTag]:
    return [RunTag(key, value) for key, value in tags.items()]


def _param(value: object) -> str:
    """A value as a parameter: an amount, 1/3 among them, as the nearest float."""
    if not isinstance(value, str | Fraction):
        return str(value)
    try:
        return str(float(Fraction(value)))
    except (ValueError, ZeroDivisionError, OverflowError):
        return str(value)[:_LONGEST_PARAM]


def logged_models(client: MlflowClient, run: Run) -> list[LoggedModel]:
    """The models that a release has logged, by the run of the release."""
    return list(
        client.search_logged_models(
            [run.info.experiment_id], release_filter(run.data.tags[RELEASE])
        )
    )
