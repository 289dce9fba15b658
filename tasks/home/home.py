"""Where state lives: one private folder, and the settings that put parts of it elsewhere.

CLOISTER_HOME        the folder, by default ``.cloister`` in the working directory; mode 0700
CLOISTER_LEDGER      the ledger, a path or a PostgreSQL URL; by default ``ledger.db`` in the folder
MLFLOW_TRACKING_URI  the tracking store; by default SQLite in the folder
PREFECT_API_URL      a Prefect server; by default none, flows run on an ephemeral one
CLOISTER_REMOTE      the DVC remote; by default a folder beside the DVC repository
CLOISTER_ANCHORS     places elsewhere that hold the ledger's newest entries; by default none
CLOISTER_HOUSE_KEY   the house's key, a file or a token (``pkcs11:``); by default in the folder

Temporary files of a process and its libraries lie in the home too, and are removed after the work.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from cloister.errors import StorageError
from cloister.files import is_read_only, is_running, write_whole

if TYPE_CHECKING:
    from cloister.privacy.ledger import Anchor


_KEY_BYTES = 32
"""Bytes of the home's key: the output of SHA-256, beyond which HMAC gains nothing."""

_CHECK_BYTES = 4
"""Last bytes of a key that check the others: a changed one passes once in four billion times."""

AUDITS = "audits"
"""The folder of what audits released and showed."""

OTHERS = 0o077
"""Mode bits of group and others; the umask of every process that uses a home."""

_QUIET = MappingProxyType(
    {
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
        "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "DVC_NO_ANALYTICS": "true",
    }
)

_EPHEMERAL = MappingProxyType(
    {
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
        "PREFECT_SERVER_SERVICES_REPOSSESSOR_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
    }
)


_TOKEN_BYTES = 16
"""Bytes of the password of a temporary server: 128 random bits cannot be guessed."""


def _fresh_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


def _checked_key() -> bytes:
    return _with_check(secrets.token_bytes(_KEY_BYTES - _CHECK_BYTES))


def _with_check(secret: bytes) -> bytes:
    return secret + hashlib.sha256(secret).digest()[:_CHECK_BYTES]


@dataclass(frozen=True)
class Home:
    """The private folder of an installation; nothing is made until it is needed."""

    folder: Path
    ledger: str
    tracking: str
    remote: str
    anchors: str
    house_key: str

    @classmethod
    def current(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """The home that the environment names."""
        folder = Path(environment.get("CLOISTER_HOME") or ".cloister").absolute()
        return cls(
            folder,
            environment.get("CLOISTER_LEDGER") or str(folder / "ledger.db"),
            environment.get("MLFLOW_TRACKING_URI")
            or f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}",
            environment.get("CLOISTER_REMOTE") or str(folder / "dvc-remote"),
            environment.get("CLOISTER_ANCHORS", ""),
            environment.get("CLOISTER_HOUSE_KEY", ""),
        )

    @property
    def artifacts(self) -> Path:
        """Where MLflow keeps files, unless its server has a place of its own."""
        return self.folder / "mlflow" / "artifacts"

    @property
    def versions(self) -> Path:
        """The DVC repository."""
        return self.folder / "dvc"

    @property
    def read_only(self) -> bool:
        """Whether this is a read-only copy or mount: nothing is made, closed or locked in it."""
        return is_read_only(self.folder)

    @property
    def is_copy(self) -> bool:
        """Whether this is a copy for other readers: owners and modes are not the home's."""
        if not self.read_only:
            return False
        status = self.folder.stat()
        return status.st_uid != os.geteuid() or not status.st_mode & stat.S_IWUSR

    def _ended_at(self) -> int:
        """The number of the stored entry; 0 if none can be read."""
        try:
            return int(self.end.read_text(encoding="ascii").partition(":")[0])
        except (OSError, ValueError):
            return 0

    def journal(self, release: str) -> Path:
        """The folder of a release's journal."""
        return self.folder / "journals" / release

    def release(self, release: str) -> Path:
        """The folder of a release."""
        return self.folder / "releases" / release

    def traces(self) -> list[Path]:
        """Folders of releases and journals, which only charged releases have."""
        places = ("releases", "journals")
        return [path for name in places for path in sorted((self.folder / name).glob("*"))]

    def prepare(self) -> None:
        """Make the folder, and Prefect's in it, for their owner alone.

        So is everything that this process makes afterwards, and what an earlier version or a lax
        umask left open to others is closed.

        Raises:
            StorageError: they cannot be made, or belong to another user.
        """
        os.umask(OTHERS)
        private_folder(self.folder)
        _close_once(self.folder)
        private_folder(self.folder / "prefect")

    @property
    def may_hold_ledger(self) -> bool:
        """Whether there may be a ledger: on a server, or in a file that exists."""
        return "://" in self.ledger or Path(self.ledger).exists()

    @property
    def end(self) -> Path:
        """The file that names the last entry of the ledger that this home wrote."""
        return self.folder / "end"

    @property
    def checkpoint(self) -> Path:
        """The file of the ledger's checkpoint: this home reads only the entries after it."""
        return self.folder / "checkpoint"

    def write_end(self, anchor: Anchor) -> None:
        """Store the last entry that was written, so that a ledger whose end was cut off is found.

        A later one stays, since it shows the cut. If this one cannot be written, the one before
        stays, which is valid too.
        """
        if self._ended_at() >= anchor.seq:
            return
        text = f"{anchor.seq}:{anchor.hash}\n"
        with suppress(OSError):
            write_whole(self.end, lambda part: part.write_text(text, encoding="ascii"))

    def key(self) -> bytes:
        """The key of all digests that are published, made on first use; 32 bytes, mode 0600.

        Raises:
            StorageError: it cannot be read or made, or has another length.
        """
        return self._key("key")

    def fingerprint_key(self) -> bytes:
        """The key by which equal data of two accounts is found, also made on first use.

        Homes on one ledger can compare their data if they share this key. Its last bytes check the
        others: with an altered key, equal data would look different.

        Raises:
            StorageError: it cannot be read or made, or was altered.
        """
        key = self._key("fingerprint.key", _checked_key)
        if key != _with_check(key[:-_CHECK_BYTES]):
            raise StorageError(
                f"{self.folder / 'fingerprint.key'} was altered; restore it from a backup"
            )
        return key

    def _key(self, name: str, fresh: Callable[[], bytes] = _fresh_key) -> bytes:
        if not self.read_only:
            self.prepare()
        path = self.folder / name
        try:
            if not path.exists():
                _make_key(path, fresh())
            key = path.read_bytes()
        except OSError as error:
            raise StorageError(
                f"{path} cannot be read or made ({os.strerror(error.errno or 0)}); make room"
            ) from None
        if len(key) != _KEY_BYTES:
            raise StorageError(
                f"{path} is not a key of {_KEY_BYTES} bytes; restore it from a backup"
            )
        return key

    def configure(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Set unset settings of Prefect, MLflow and DVC: state in this home, no telemetry.

        Compiled code is stored here too if it cannot be stored beside its source. Call this before
        any of them is imported.
        """
        settings = _QUIET | {"PREFECT_HOME": str(self.folder / "prefect")}
        if not environment.get("PREFECT_API_URL"):
            settings |= _EPHEMERAL
            environment.update(_password(environment))
        if not os.access(Path(__file__).parents[2], os.W_OK):
            settings["NUMBA_CACHE_DIR"] = str(self.folder / "numba")
        for name, value in settings.items():
            environment.setdefault(name, value)


def _password(environment: Mapping[str, str]) -> dict[str, str]:
    """One password for a temporary Prefect server and its clients: a given one, else a random one.

    Without it, any user of this machine could use the server.
    """
    names = ("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING")
    passwords = [environment[name] for name in names if environment.get(name)]
    return dict.fromkeys(
        names, passwords[0] if passwords else f"cloister:{secrets.token_hex(_TOKEN_BYTES)}"
    )


def private_folder(folder: Path) -> Path:
    """The folder, made with its parents if it is missing, for its owner alone.

    One that others may enter is closed to them, with everything in it.

    Raises:
        StorageError: it cannot be made, or belongs to another user.
    """
    try:
        for missing in reversed(
            [parent for parent in (folder, *folder.parents) if not parent.exists()]
        ):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StorageError(
            f"the folder {folder} cannot be made ({reason}); check CLOISTER_HOME"
        ) from None
    if not folder.is_dir():
        raise StorageError(f"{folder} is a file; move it away")
    _require_owner(folder)
    if folder.stat().st_mode & OTHERS:
        close(folder)
    return folder


def open_to_others(folder: Path) -> Iterator[Path]:
    """What in a folder, itself included, its group or others may read, write or enter.

    Links are not followed.
    """
    for parent, _, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in files)):
            if _lets_in(path):
                yield path


def _lets_in(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # another process takes its temporary files away
        return False
    return not stat.S_ISLNK(mode) and bool(mode & OTHERS)


def close(folder: Path) -> None:
    """Close a folder, and all that is in it, to everybody but its owner.

    Raises:
        StorageError: a mode cannot be changed.
    """
    for path in open_to_others(folder):
        try:
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise StorageError(
                f"{path} lets others in and cannot be closed ({reason}); correct its owner"
            ) from None


@cache
def _close_once(folder: Path) -> None:
    close(folder)


def _require_owner(folder: Path) -> None:
    if folder.stat().st_uid != os.geteuid():
        raise StorageError(
            f"{folder} belongs to another user, who could read and change all that is kept there; "
            "choose a folder of your own with CLOISTER_HOME"
        )


def _make_key(path: Path, key: bytes) -> None:
    """Write a fresh key; of two that race, the first stays."""
    with suppress(FileExistsError):
        write_whole(path, lambda part: part.write_bytes(key), replace=False)


def abandoned_folders(home: Home) -> list[Path]:
    """The folders of temporary files that killed processes left."""
    named = [(path, path.name.partition(".")[0]) for path in (home.folder / "tmp").glob("*")]
    return [path for path, pid in named if pid.isdecimal() and not is_running(int(pid))]


@contextmanager
def temporary_files(home: Home) -> Iterator[None]:
    """Have temporary files written to a folder of this process in the home.

    Those of killed processes are removed.

    Raises:
        StorageError: the folder cannot be made.
    """
    folder = private_folder(home.folder / "tmp")
    for left in abandoned_folders(home):
        shutil.rmtree(left, ignore_errors=True)
    work = private_folder(folder / f"{os.getpid()}.{secrets.token_hex(8)}")
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(work)
    try:
        yield
    finally:
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        os.environ.update({"TMPDIR": variable} if variable else {})
        shutil.rmtree(work, ignore_errors=True)
