"""Where state lives: one private folder, and the settings that put parts of it elsewhere.

CLOISTER_HOME        the folder, by default ``.cloister`` in the working directory; mode 0700
CLOISTER_LEDGER      the ledger, a path or a PostgreSQL URL; by default ``ledger.db`` in the folder
MLFLOW_TRACKING_URI  the tracking store; by default SQLite in the folder
PREFECT_API_URL      a Prefect server; by default none, flows run on an ephemeral one
CLOISTER_REMOTE      the DVC remote; by default a folder beside the DVC repository
"""

from __future__ import annotations

import os
import secrets
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cloister.errors import StorageError

KEY_BYTES = 32

_QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "DVC_NO_ANALYTICS": "true",
}

_EPHEMERAL = {
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
}


@dataclass(frozen=True)
class Home:
    """The private folder of an installation; nothing is made until it is needed."""

    folder: Path
    ledger: str
    tracking: str
    remote: str

    @classmethod
    def current(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """The home that the environment names."""
        folder = Path(environment.get("CLOISTER_HOME") or ".cloister").absolute()
        return cls(
            folder,
            environment.get("CLOISTER_LEDGER") or str(folder / "ledger.db"),
            environment.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}",
            environment.get("CLOISTER_REMOTE") or str(folder / "dvc-remote"),
        )

    @property
    def artifacts(self) -> Path:
        """Where MLflow keeps files, unless its server has a place of its own."""
        return self.folder / "mlflow" / "artifacts"

    @property
    def versions(self) -> Path:
        """The DVC repository."""
        return self.folder / "dvc"

    def journal(self, release: str) -> Path:
        """The folder of a release's journal."""
        return self.folder / "journals" / release

    def release(self, release: str) -> Path:
        """The folder of a release."""
        return self.folder / "releases" / release

    def prepare(self) -> None:
        """Make the folder, and Prefect's in it, for their owner alone.

        Raises:
            StorageError: they cannot be made.
        """
        private_folder(self.folder)
        private_folder(self.folder / "prefect")

    def key(self) -> bytes:
        """The key of the digests that leave the house, made on first use; 32 bytes, mode 0600.

        Raises:
            StorageError: it cannot be read or made, or has another length.
        """
        self.prepare()
        path = self.folder / "key"
        try:
            if not path.exists():
                _make_key(path)
            key = path.read_bytes()
        except OSError as error:
            raise StorageError(f"{path} cannot be read or made ({os.strerror(error.errno or 0)}); make room") from None
        if len(key) != KEY_BYTES:
            raise StorageError(f"{path} is not a key of {KEY_BYTES} bytes; restore it from a backup")
        return key

    def configure(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Settings of Prefect, MLflow and DVC, for those that are not set: state in this home, no telemetry.

        Compiled code is kept here too if it cannot be kept beside its source. To be called before any is imported.
        """
        settings = _QUIET | {"PREFECT_HOME": str(self.folder / "prefect")}
        if "PREFECT_API_URL" not in environment:
            settings |= _EPHEMERAL
        if not os.access(Path(__file__).parents[1] / "cloister", os.W_OK):
            settings["NUMBA_CACHE_DIR"] = str(self.folder / "numba")
        for name, value in settings.items():
            environment.setdefault(name, value)


def private_folder(folder: Path) -> Path:
    """The folder, made with its parents if there is none, for its owner alone.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(f"the folder {folder} cannot be made ({reason}); check CLOISTER_HOME") from None
    if not folder.is_dir():
        raise StorageError(f"{folder} is a file; move it away")
    return folder


def _make_key(path: Path) -> None:
    """Write a fresh key; of two that race, the first stays."""
    part = path.with_name(f".key.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_bytes(KEY_BYTES))
        os.fsync(descriptor)
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        part.unlink()
