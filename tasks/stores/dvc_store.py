"""Input and output of releases in DVC: pointers in the home, public files in a remote.

The only module that uses DVC, through its command line, which is its documented interface. The
repository lies in the private home and knows no Git, so a release never touches the project's own
repository, and two releases never want to change the same file::

    releases/<release>/input.dvc         path, size and MD5 of each sensitive table, never a copy
    releases/<release>/synthetic.dvc     the synthetic table
    releases/<release>/_schema.py.dvc    the schema of the tables
    releases/<release>/certificate.dvc   the certificate

The input's pointer has dependencies and no outputs: ``dvc status`` says whether the tables are
unchanged, at the cost of reading them once, and no command of DVC copies or sends them. The files
of the other pointers are sent once the release is approved, and stay in the remote alone: the
copies that DVC sends are removed. Since DVC's digests are MD5, and those of the input are exact,
pointers stay in the home; what is signed and shared is the manifest's SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from cloister.errors import InputError, StorageError, VerificationError
from cloister.files import write_whole
from cloister.privacy.certificate.certificate import YAML_NAME
from cloister.tasks.home.files import exclusive
from cloister.tasks.home.home import close, private_folder
from cloister.tasks.home.process import SELDOM

PARQUET, CSV = ".parquet", ".csv"

_REMOTE = "storage"
_PROGRAM = f"""
import gc, json, sys
gc.set_threshold({SELDOM})
from dvc.cli import main
for number, words in enumerate(json.load(sys.stdin), 1):
    if main(words):
        sys.exit(number)
"""
"""Runs DVC commands, from JSON on standard input, until one fails: its number, from 1, is the exit
code. One process for several, since DVC takes longer to load than to work."""

PATIENCE = 8.0
"""Seconds that a remote on a network may take to answer."""

_WEB = MappingProxyType({"http": "http", "https": "https", "webdav": "http", "webdavs": "https"})
"""What remotes are asked over that speak HTTP; of the others those over SSH speak first."""

_GOOGLE = "https://storage.googleapis.com"

_AZURE_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
"""Variables in which DVC's plugin, or Azure's own command, finds the name of an account."""

PARTS = ".*.tmp"
"""Names of the files in a remote that DVC has not written to their end."""

_LONGEST_ENDING = 16
"""Letters of the ending of a file's name that is kept; a longer one may not fit into a file's
name."""


@dataclass(frozen=True)
class Versions:
    """A DVC repository in a folder of its own.

    ``remote`` is a folder, or any URL that DVC accepts.
    """

    folder: Path
    remote: str

    def track(self, release: str, sources: Sequence[Path], published: Mapping[str, Path]) -> Path:
        """Write the pointers of a release, replacing earlier ones; nothing is sent.

        Args:
            sources: the files of the sensitive tables; those in a database have no pointer.
            published: files by the names of their pointers.

        Returns:
            the folder of the pointers.

        Raises:
            StorageError: DVC cannot do it; says what DVC said.
        """
        pointers = self.folder / "releases" / release
        self._make(pointers)
        self.prepare()
        with exclusive(self.folder / "lock"):
            for old in pointers.iterdir():
                if not old.is_dir():
                    old.unlink()  # also what DVC checked out
            self._clear()
            outs = {name: pointers / f"{name}{_ending(path)}" for name, path in published.items()}
            for name, path in published.items():
                shutil.copyfile(path, outs[name])
            adding = "add", "--no-commit", "--", *map(self._relative, outs.values())
            self._dvc(
                *([self._pointing(sources, pointers / "input.dvc")] if sources else []),
                *([adding] if outs else []),
            )
            for name, out in outs.items():
                _rename(out, name)
                out.unlink()
            self._clear()
            self._close()
        return pointers

    def send(self, release: str, published: Mapping[str, Path]) -> None:
        """Send public files of a release to the remote, except those that it holds already.

        Pointers stay as they are. If the process is killed, sending again completes it.

        Args:
            published: files by the names of their pointers.

        Raises:
            InputError: the release has no such pointer.
            StorageError: DVC cannot do it; says what DVC said.
            VerificationError: a file is another than its pointer says; nothing is sent.
        """
        self.prepare()
        self.require_answer()
        with exclusive(self.folder / "lock"):
            self._clear()
            for name, path in published.items():
                self._cache(path, str(self._out(release, name)["md5"]))
            names = [self._relative(self._pointer(release, name)) for name in published]
            self._dvc(("push", "--remote", _REMOTE, "--", *names))
            self._clear()
            self._close()

    def _cache(self, path: Path, digest: str) -> None:
        """Put a file where DVC looks for an output that it sends."""
        cached = self.folder / ".dvc" / "cache" / "files" / "md5" / digest[:2] / digest[2:]
        self._make(cached.parent)
        try:
            write_whole(cached, lambda part: shutil.copyfile(path, part))
            with cached.open("rb") as copied:
                copy = hashlib.file_digest(copied, lambda: hashlib.md5(usedforsecurity=False))
        except OSError as error:
            raise _unwritten(cached, error) from None
        if copy.hexdigest() != digest:
            raise VerificationError(
                f"{path} is another file than its pointer says, and nothing was sent: see cloister "
                "verify"
            )

    def fetch(self, release: str, wanted: Mapping[str, Path]) -> None:
        """Write the files that a release sent to the remote, replacing existing ones.

        The repository is not changed, except for settings that name another remote.

        Args:
            wanted: the files to write, by the names of their pointers.

        Raises:
            InputError: the release has no such pointer.
            StorageError: DVC cannot do it, or the remote does not hold it; says what DVC said.
        """
        self.prepare()
        self.require_answer()
        with exclusive(self.folder / "lock"):
            self._dvc(*(self._getting(release, name, path) for name, path in wanted.items()))

    def _getting(self, release: str, name: str, path: Path) -> tuple[str, ...]:
        """The command that writes the file of a pointer to a path."""
        file = self._pointer(release, name).with_name(self._out(release, name)["path"])
        return "get", "--force", "--out", str(path.absolute()), "--", ".", self._relative(file)

    def _pointer(self, release: str, name: str) -> Path:
        return self.folder / "releases" / release / f"{name}.dvc"

    def _relative(self, path: Path) -> str:
        """A path as DVC is given it: it runs in the folder of the repository."""
        return str(path.relative_to(self.folder))

    def _out(self, release: str, name: str) -> dict[str, Any]:
        """What a pointer says of its file: its ``path`` and its ``md5``, at least."""
        pointer = self._pointer(release, name)
        try:
            out: dict[str, Any] = yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"][0]
            return out | {key: str(out[key]) for key in ("path", "md5")}
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
            raise InputError(
                f"{pointer} is missing or was altered; restore it from a backup of the home"
            ) from None

    def _close(self) -> None:
        """Close what DVC leaves open to others, with a remote beside the repository."""
        close(self.folder)
        if self._owns_remote:
            close(Path(self.remote))

    def clear(self) -> None:
        """Remove DVC's caches, if there is a repository."""
        if self.config.exists():
            with exclusive(self.folder / "lock"):
                self._clear()

    def _clear(self) -> None:
        """Remove DVC's caches, and parts of objects in a remote that this repository alone uses.

        The caches hold MD5s of whatever files it read, those of the data too.
        """
        for cache in (self.folder / ".dvc" / "cache", *self._site.glob("*")):
            shutil.rmtree(cache, ignore_errors=True)
        if self._owns_remote:
            for part in Path(self.remote).rglob(PARTS):
                part.unlink(missing_ok=True)

    @property
    def _owns_remote(self) -> bool:
        """Whether the remote is a folder beside the repository."""
        remote = Path(self.remote)
        return remote.is_dir() and remote.is_relative_to(self.folder.parent)

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritten(folder, error) from None

    def prepare(self) -> None:
        """Make the repository, or give it its remote.

        Of two processes one does it, and whole or not at all.

        Raises:
            StorageError: it cannot be made, or DVC cannot work in such a place.
        """
        self._make(self.folder)
        # DVC makes it for everybody to write, and reads pickles there
        private_folder(self._site)
        try:
            with exclusive(self.folder / "lock"):
                if not self.names_remote:
                    self._configure()
        except OSError as error:
            raise _unwritten(self.config, error) from None

    def require_answer(self) -> None:
        """Check that the host of a remote, or the service of its bucket, answers.

        DVC asks for minutes. Nothing is sent or read.

        Raises:
            StorageError: it does not.
        """
        parts = urlsplit(self.remote)
        host = parts.netloc.rpartition("@")[2]
        named, url = f"{parts.scheme}://{host}", self._service(parts.scheme)
        if url:
            named = f"{named} at {url}"
        elif parts.scheme in _WEB:
            url = f"{_WEB[parts.scheme]}://{host}"
        try:
            if parts.scheme == "ssh":
                with create_connection((parts.hostname, parts.port or 22), PATIENCE) as session:
                    session.recv(1)
            elif url:
                # DVC has settings of its own for certificates
                httpx.head(url, timeout=PATIENCE, verify=False)  # noqa: S501
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            raise StorageError(
                f"the DVC remote {named} does not answer; start it, or correct CLOISTER_REMOTE"
            ) from None

    def _service(self, scheme: str) -> str:
        """The URL of the service of an object store, as DVC finds it; empty for anything else."""
        settings = self._settings
        if scheme == "s3":
            return _service_of_aws(settings)
        if scheme == "gs":
            emulator = os.environ.get("STORAGE_EMULATOR_HOST")
            return settings.get("endpointurl") or emulator or _GOOGLE
        return _service_of_azure(settings) if scheme == "azure" else ""

    @property
    def _site(self) -> Path:
        """Where DVC keeps what belongs to no single command."""
        return self.folder / "site" / "repo"

    @property
    def config(self) -> Path:
        """The settings of the repository."""
        return self.folder / ".dvc" / "config"

    @property
    def _overriding(self) -> Path:
        """Settings of this machine, such as passwords, which override those."""
        return self.config.with_name("config.local")

    @property
    def names_remote(self) -> bool:
        """Whether its settings send to the remote, those that override them included."""
        url = self._settings.get("url", "")
        return bool(url) and self._resolved(url) == self._resolved(self._location())

    @property
    def _settings(self) -> dict[str, str]:
        """What its settings say of the remote that they send to; none if they cannot be read."""
        settings = ConfigParser(interpolation=None, strict=False)
        try:
            settings.read([self.config, self._overriding], encoding="utf-8")
            name = settings.get("core", "remote")
            remote = settings.items(f"'remote \"{name}\"'")
        except (ConfigParserError, UnicodeDecodeError):
            return {}
        return {key: value.strip("\"'") for key, value in remote}

    def _resolved(self, location: str) -> str:
        """A location as DVC resolves it: relative to the folder of the settings."""
        return location if "://" in location else os.path.normpath(self.config.parent / location)

    def _configure(self) -> None:
        """Write the settings of the repository, once DVC has read them in a trial repository.

        DVC's own command writes no letters beyond ASCII.
        """
        text, trial = _config(self._location()), self.folder / ".new"
        shutil.rmtree(trial, ignore_errors=True)
        tried = trial / ".dvc" / "config"
        for folder in (tried.parent, self.config.parent):
            self._make(folder)
        tried.write_text(text, encoding="utf-8")
        self._dvc(("remote", "list"), folder=trial)
        shutil.rmtree(trial, ignore_errors=True)
        write_whole(self.config, lambda part: part.write_text(text, encoding="utf-8"))
        if not self.names_remote:
            raise StorageError(
                f"{self._overriding} names another remote than {self.remote}; correct it"
            )

    def _location(self) -> str:
        """The remote as the settings name it: one in the home moves with it."""
        if "://" in self.remote:
            return self.remote
        home, remote = self.folder.resolve().parent, (self.folder / self.remote).resolve()
        if remote.is_relative_to(home):
            return str(Path("..", "..", remote.relative_to(home)))
        return str(self.folder / self.remote)

    def _pointing(self, sources: Sequence[Path], pointer: Path) -> tuple[str, ...]:
        """The command that completes a pointer to files without a copy of them.

        ``dvc import-url --no-download`` would write one that ``dvc pull`` makes a copy by.
        """
        paths = [{"path": str(source.absolute())} for source in sources]
        text = yaml.safe_dump({"deps": paths}, allow_unicode=True)
        write_whole(pointer, lambda part: part.write_text(text, encoding="utf-8"))
        return "commit", "--force", "--", self._relative(pointer)

    def _dvc(self, *commands: Sequence[str], folder: Path | None = None) -> None:
        """Run DVC commands, one after the other.

        Raises:
            StorageError: one failed; those after it were not run.
        """
        quiet = {
            "DVC_NO_ANALYTICS": "true",
            "DVC_SITE_CACHE_DIR": str(self.folder / "site"),
            "PYTHONUTF8": "1",
        }
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-P", "-c", _PROGRAM],
            input=json.dumps([["--quiet", "--wait-for-lock", *words] for words in commands]),
            cwd=folder or self.folder,
            env=os.environ | quiet,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            failed = commands[max(min(done.returncode, len(commands)), 1) - 1][0]
            raise StorageError(
                f"DVC cannot {failed} in {self.folder} ({_reason(done.stderr)}); make room or "
                "check its remote"
            )


def _service_of_aws(settings: Mapping[str, str]) -> str:
    """Where the services of AWS are, by their own settings too; empty where nothing can ask them.

    Raises:
        StorageError: those settings contradict each other.
    """
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return ""
    try:
        session = boto3.Session(profile_name=settings.get("profile"))
        client = session.client(
            "s3", settings.get("region"), endpoint_url=settings.get("endpointurl")
        )
    except (BotoCoreError, ValueError) as error:
        raise StorageError(f"the settings of AWS cannot be used ({error}); correct them") from None
    return str(client.meta.endpoint_url)


def _service_of_azure(settings: Mapping[str, str]) -> str:
    """Where the storage account of Azure is; empty if no setting names one."""
    joined = settings.get("connection_string") or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    parts = dict(part.partition("=")[::2] for part in (joined or "").split(";"))
    names = (parts.get("AccountName"), settings.get("account_name"))
    account = next(filter(None, (*names, *map(os.environ.get, _AZURE_ACCOUNTS))), "")
    return parts.get("BlobEndpoint") or (account and f"https://{account}.blob.core.windows.net")


def sent_files(names: Iterable[str], folder: Path) -> dict[str, Path]:
    """The files in a folder that the remote receives of a release, by the names of their pointers.

    Tables as CSV are not sent: they are made again from Parquet.
    """
    return {_pointer_of(name): folder / name for name in names if not name.endswith(CSV)}


def _pointer_of(name: str) -> str:
    """The name of the pointer to a public file; no file but a table's gets the name of a table."""
    if name.endswith(PARQUET):
        return name.removesuffix(PARQUET)
    return "certificate" if name == YAML_NAME else f"_{name}"


def _config(remote: str) -> str:
    """The settings of a repository, as DVC reads them.

    Raises:
        StorageError: the remote cannot be written so.
    """
    mark = "'" if '"' in remote else '"'
    if mark in remote or not remote.isprintable():
        raise StorageError(
            f"DVC can keep nothing in {remote!a}; give a place without quotes and control "
            "characters"
        )
    return (
        "[cache]\n    type = hardlink,copy\n"
        f"[core]\n    no_scm = True\n    analytics = false\n    remote = {_REMOTE}\n"
        f"['remote \"{_REMOTE}\"']\n    url = {mark}{remote}{mark}\n"
    )


def _ending(path: Path) -> str:
    """The ending of a file's name, if it is one."""
    return path.suffix if len(path.suffix) <= _LONGEST_ENDING else ""


def _unwritten(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} cannot be made ({os.strerror(error.errno or 0)}); make room")


def _rename(out: Path, name: str) -> None:
    """Rename a pointer: its name is free, since it names its file inside."""
    out.with_name(f"{out.name}.dvc").rename(out.with_name(f"{name}.dvc"))


def _reason(output: str) -> str:
    errors = [
        line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")
    ]
    return errors[0] if errors else "it did not say why"
