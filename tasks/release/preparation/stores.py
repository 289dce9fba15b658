"""The stores that a release will write to, checked before it is charged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.step import step
from cloister.tasks.stores.dvc_store import Versions
from cloister.tasks.stores.mlflow_store import Tracker


@dataclass(frozen=True)
class Stores:
    """Where MLflow and DVC will record a release: found usable."""

    tracking: str
    versions: Path


@step("stores", "prepare the stores of {request.spec.stem}")
def prepare_stores(request: ResolvedRequest, home: Home) -> Stores:  # noqa: ARG001 - names the step
    """Make the stores that a release will write to, or find that they can be used.

    Raises:
        StorageError: MLflow's store cannot be reached or made, or DVC's repository cannot.
    """
    Tracker.open(home.tracking, home.artifacts)
    Versions(home.versions, home.remote).prepare()
    return Stores(home.tracking, home.versions)
