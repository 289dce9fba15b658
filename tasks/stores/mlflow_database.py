"""The database of a tracking store: opened, made, moved with its home; errors in our own words.

Besides the modules ``mlflow_*`` of this package, nothing imports MLflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from socket import create_connection

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from sqlalchemy import NullPool, String, column, create_engine, func, literal, table, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from cloister.errors import StorageError
from cloister.files import write_whole
from cloister.schema.sources.files_and_urls import without_credentials
from cloister.tasks.home.files import exclusive

PATIENCE = 8.0
"""Seconds that a store on a network may take to answer."""

_MYSQL = 3306
"""The port of MySQL, unless a URL has another."""

_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""Where MLflow's database holds absolute places of files."""


def open_sqlite(uri: str, artifacts: Path) -> MlflowClient:
    """A store in a file; of two processes that find none, one makes it."""
    path, location = Path(uri.removeprefix("sqlite:///")), artifacts.absolute().as_uri()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with exclusive(path.with_name(f"{path.name}.lock")):
        if not path.exists():
            _make(path, location)
        if not path.is_file():  # which MLflow would try to open for two minutes
            raise StorageError(f"{path} is no database; restore it from a backup")
        client = open_store(uri)
        if path.resolve().parent == artifacts.resolve().parent:
            _relocate(uri, location)
        return client


def _relocate(uri: str, artifacts: str) -> None:
    """Update the paths of files in a store: MLflow stores absolute paths, and a home may move.

    The path of the default experiment, which MLflow makes with the store, shows where they were.
    """
    engine = create_engine(uri, poolclass=NullPool)
    with engine.begin() as store:
        first = store.scalar(
            text("SELECT artifact_location FROM experiments WHERE experiment_id = 0")
        )
        before = (first or artifacts).removesuffix("/0")
        for name, holding in _PLACES if before != artifacts else ():
            location = column(holding, String)
            moved = literal(artifacts) + func.substr(location, len(before) + 1)
            lay = func.substr(location, 1, len(before) + 1) == f"{before}/"
            store.execute(update(table(name, location)).where(lay).values({location: moved}))


def _make(path: Path, artifacts: str) -> None:
    """Make a store beside its place and move it there: MLflow rejects a half-made one."""
    write_whole(path, lambda part: SqlAlchemyStore(f"sqlite:///{part}", artifacts).engine.dispose())


def open_store(uri: str) -> MlflowClient:
    """An existing store, by its URI.

    Raises:
        StorageError: it does not answer.
    """
    _require_answer(uri)
    client = MlflowClient(uri, uri)
    client.search_experiments(max_results=1)
    return client


def _require_answer(uri: str) -> None:
    """Ask a store on a network once, since MLflow's own client asks again for minutes.

    Raises:
        StorageError: it does not answer, or answers that it cannot serve.
    """
    try:
        if uri.startswith("http"):
            answer = http_request(
                *(get_default_host_creds(uri), "/api/2.0/mlflow/experiments/search", "POST"),
                json={"max_results": 1},
                max_retries=0,
                timeout=PATIENCE,
                raise_on_status=False,
            )
            if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise _silent(uri)
        elif uri.startswith("postgresql"):
            limit = {"connect_timeout": max(int(PATIENCE), 1)}
            create_engine(uri, poolclass=NullPool, connect_args=limit).connect().close()
        elif uri.startswith("mysql") and (server := make_url(uri)).host:
            # it speaks first, and its drivers wait for that without end
            with create_connection((server.host, server.port or _MYSQL), PATIENCE) as session:
                session.recv(1)
    except (MlflowException, SQLAlchemyError, OSError):
        raise _silent(uri) from None


def _silent(uri: str) -> StorageError:
    return StorageError(
        f"the tracking store at {without_credentials(uri)} does not answer; start it, or correct "
        "MLFLOW_TRACKING_URI"
    )


@contextmanager
def clear_errors() -> Iterator[None]:
    """Have what a store raises say nothing of what MLflow said.

    Raises:
        StorageError: the store cannot be used.
    """
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise unreachable(error) from None


def unreachable(error: Exception) -> StorageError:
    """The error of a store that cannot be used; says nothing of what MLflow said."""
    return StorageError(
        f"the tracking store cannot be used ({type(error).__name__}); check MLFLOW_TRACKING_URI, "
        "and the room on disk"
    )
