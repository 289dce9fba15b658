"""What MLflow's database and the DVC remote should hold of releases, and what they should not.

Read without MLflow and DVC, so that nothing is made, moved or locked. Of stores that are no files,
servers and other URLs, nothing is read.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from cloister.errors import StorageError
from cloister.figures import count_of
from cloister.files import database_to_read
from cloister.privacy.ledger import Release, State
from cloister.tasks.home.home import Home
from cloister.tasks.stores.dvc_store import PARTS, Versions

_SQLITE = "sqlite:///"

_WAIT = 60.0
"""Seconds for which MLflow may write its database before it cannot be used."""

_RUN = "SELECT 1 FROM runs WHERE run_uuid = ? AND lifecycle_stage = 'active'"
_MODEL = "SELECT 1 FROM logged_models WHERE model_id = ? AND lifecycle_stage = 'active'"
_VERSION = (
    "SELECT 1 FROM model_versions JOIN model_version_tags USING (name, version) "
    "WHERE key = 'release.id' AND value = ? AND current_stage != 'Deleted_Internal'"
)
"""How MLflow keeps what was not deleted by its own commands, since its version 2."""


def tracking_findings(
    home: Home, release: str, runs: Sequence[str], models: Sequence[str]
) -> Iterator[str]:
    """The runs, models and registered version of a release that MLflow's database lacks."""
    if not home.tracking.startswith(_SQLITE):
        return
    path = Path(home.tracking.removeprefix(_SQLITE))
    wanted = [
        *((_RUN, run, f"run {run}") for run in runs),
        *((_MODEL, model, f"model {model}") for model in models),
        (_VERSION, release, "the registered model"),
    ]
    try:
        with closing(sqlite3.connect(database_to_read(path), uri=True)) as database:
            missing = [name for query, key, name in wanted if not _holds(database, query, key)]
    except sqlite3.Error:
        missing = [name for _, _, name in wanted]
    if missing:
        yield (
            f"{path}: {'lacks' if path.is_file() else 'is missing, with'} {', '.join(missing)} of "
            f"release {release}; restore it from a backup, or correct MLFLOW_TRACKING_URI"
        )


_MEASURED = "FROM {} WHERE run_uuid = ? AND key <> 'epsilon' AND key NOT LIKE 'epsilon.%'"
"""The metrics of a run that were measured on the real rows: all but what was spent."""

_METRICS = ("metrics", "latest_metrics")


def has_measures(home: Home, runs: Sequence[str]) -> bool:
    """Whether MLflow's database, if it is a file, holds measures of some runs."""
    if not home.tracking.startswith(_SQLITE):
        return False
    queries = [f"SELECT 1 {_MEASURED.format(table)} LIMIT 1" for table in _METRICS]
    try:
        path = Path(home.tracking.removeprefix(_SQLITE))
        with closing(sqlite3.connect(database_to_read(path), uri=True)) as database:
            return any(_holds(database, query, run) for query in queries for run in runs)
    except sqlite3.Error:
        return False


def delete_measures(home: Home, runs: Sequence[str]) -> None:
    """Delete the measures of some runs from MLflow's database, and overwrite what held them.

    MLflow itself deletes runs alone.

    Raises:
        StorageError: the database cannot be written.
    """
    path = Path(home.tracking.removeprefix(_SQLITE))
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT)) as database, database:
            database.execute("PRAGMA secure_delete = ON")
            for table in _METRICS:
                parameters = [(run,) for run in runs]
                database.executemany(f"DELETE {_MEASURED.format(table)}", parameters)
    except sqlite3.Error as error:
        raise StorageError(
            f"{path} cannot be written ({type(error).__name__}); make room or correct its rights"
        ) from None


def _holds(database: sqlite3.Connection, query: str, key: str) -> bool:
    """Whether a query has an answer; a database without the table it asks has none."""
    try:
        return database.execute(query, (key,)).fetchone() is not None
    except sqlite3.OperationalError:
        return False


def remote_findings(home: Home) -> Iterator[str]:
    """What is wrong with DVC's settings, and with the objects of a remote that is a folder.

    Each object is named by its MD5.
    """
    versions = Versions(home.versions, home.remote)
    if versions.config.parent.exists() and not versions.names_remote:
        yield (
            f"{versions.config}: does not name {home.remote} as the remote: it was altered, or the "
            "home was moved; cloister fetch RELEASE writes it anew, unless CLOISTER_REMOTE is wrong"
        )
    folder = _objects(home)
    for path in sorted(set(folder.glob("??/*")) - set(folder.glob(f"??/{PARTS}"))):
        if path.is_file():
            yield from _altered(path)


def object_findings(home: Home, release: Release) -> Iterator[str]:
    """The files of a release that a remote that is a folder does not hold as they were sent.

    It lacks none of a release that is not approved: those are sent by its approval.
    """
    if "://" in home.remote:
        return
    sent = dict(_sent(home, release.id))
    paths = {_objects(home) / digest[:2] / digest[2:]: pointer for digest, pointer in sent.items()}
    missing = [path for path in paths if not path.is_file()]
    for path in paths.keys() - set(missing):
        yield from _altered(path)
    if not release.state.shareable:
        return
    move = "approve" if release.state is State.APPROVED else "publish"
    remedy = f"cloister review {move} {release.id} sends it again, or correct CLOISTER_REMOTE"
    if missing and len(missing) == len(paths):
        count = count_of(len(paths), "file")
        yield f"{home.remote}: holds none of the {count} of release {release.id}; {remedy}"
        return
    for path in missing:
        yield f"{path}: is missing: {paths[path]} points to it; {remedy}"


def _sent(home: Home, release: str) -> Iterator[tuple[str, Path]]:
    """The digests of what a release sends, and the pointers to them.

    That to the data has a source instead; one that was altered is found with the other files.
    """
    for pointer in sorted((home.versions / "releases" / release).glob("*.dvc")):
        with suppress(OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
            content: dict[str, Any] = yaml.safe_load(pointer.read_text(encoding="utf-8"))
            if "deps" not in content:
                yield str(content["outs"][0]["md5"]), pointer


def checked_out(folder: Path) -> Iterator[Path]:
    """The files that DVC's own commands put beside pointers, each as its pointer says it is."""
    for pointer in sorted(folder.glob("*.dvc")):
        with suppress(OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
            for out in yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"]:
                path = folder / out["path"]
                plain = path.parent == folder and path.is_file() and not path.is_symlink()
                if plain and _md5(path) == out["md5"]:
                    yield path


def _objects(home: Home) -> Path:
    return Path(home.remote) / "files" / "md5"


def _altered(path: Path) -> Iterator[str]:
    if _md5(path) != (path.parent.name + path.name).partition(".")[0]:
        yield f"{path}: was altered: its name is not its digest; restore it from a backup"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
