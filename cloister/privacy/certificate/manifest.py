"""The manifest of a release folder: every file with its size and SHA-256, and other records.

``manifest.json`` is canonical: its content determines its text, and its ``digest`` is the SHA-256
of all the rest. So any changed byte, of a file or of the manifest, is found. The ledger's entry of
the release holds the digest too, so that a replaced manifest is found as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.files import LINKED, is_link
from cloister.privacy.ledger import Anchor, State

MANIFEST_NAME = "manifest.json"

SIGNED = (State.CANDIDATE, State.APPROVED, State.PUBLISHED, State.REJECTED, State.WITHDRAWN)
"""States that have statements."""

APPROVAL_NAME, TRUST_NAME = "approval.dsse.json", "trust.jsonl"
"""The statement that people sign by their own keys, and those that say whose keys count."""

RELEASE_TYPE = "urn:cloister:release"
"""The type of what a statement says of a release."""


def statement_name(state: State) -> str:
    """The file of the statement that a release has a state."""
    return f"{state.value}.dsse.json"


STATEMENTS = frozenset({APPROVAL_NAME, TRUST_NAME, *map(statement_name, SIGNED)})
"""Files of signed statements, which name the others: they are added after the manifest."""

_FORMAT = 1
"""Version of the format, as written into each manifest."""

_LATER = ("model", "kept")
"""Parts of a lineage that older manifests lack; those without them read and write as before."""

_BLOCK = 1 << 20
"""Bytes of a file that are read at once."""


@dataclass(frozen=True)
class FileRecord:
    """A file: path in the folder with forward slashes, size in bytes, SHA-256 in hexadecimal."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Lineage:
    """Other records of a release: ledger entry, code, spec, tracking run, flow run.

    Empty text for none. ``model`` is the digest of the model that rows are drawn from, ``kept`` a
    keyed digest of all that stays in the home, which reveals nothing without the key.
    """

    ledger: Anchor
    code: str
    spec_digest: str
    mlflow_run: str = ""
    prefect_run: str = ""
    model: str = ""
    kept: str = ""


@dataclass(frozen=True)
class Manifest:
    """What a release folder holds, files in the order of their paths."""

    release: str
    lineage: Lineage
    files: tuple[FileRecord, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all that the manifest says."""
        return hashlib.sha256(_canonical(self._content())).hexdigest()

    def to_json(self) -> str:
        """The text of ``manifest.json``."""
        return (
            json.dumps(self._content() | {"digest": self.digest}, indent=2, ensure_ascii=True)
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """The manifest of a text that `to_json` wrote, to the byte.

        Raises:
            VerificationError: the text is not what was written.
        """
        try:
            manifest = _parsed(json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise VerificationError(f"{MANIFEST_NAME} was altered: it cannot be read") from None
        if manifest.to_json() != text:
            raise VerificationError(
                f"{MANIFEST_NAME} was altered: its text and its digest do not agree"
            )
        return manifest

    def _content(self) -> dict[str, Any]:
        content = {"manifest": _FORMAT} | asdict(self)
        lineage = {
            key: value for key, value in asdict(self.lineage).items() if value or key not in _LATER
        }
        return content | {"lineage": lineage}


@dataclass(frozen=True)
class FileFinding:
    """A fault of a release folder: the file, and the problem."""

    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def write_manifest(folder: Path, release: str, lineage: Lineage) -> Manifest:
    """List all files of a folder in its ``manifest.json``, which is written last.

    Raises:
        StorageError: the folder cannot be read or written, or holds a link or an empty folder.
    """
    part = folder / f".{MANIFEST_NAME}.part"
    part.unlink(missing_ok=True)
    manifest = Manifest(
        release, lineage, tuple(_plain(_record(folder, path)) for path in _paths(folder))
    )
    try:
        with part.open("w", encoding="ascii") as file:
            file.write(manifest.to_json())
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / MANIFEST_NAME)
    except OSError as error:
        raise _storage_error(folder / MANIFEST_NAME, "written", error) from None
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder.

    Raises:
        StorageError: there is none, or it cannot be read.
        VerificationError: it was altered.
    """
    path = folder / MANIFEST_NAME
    try:
        return Manifest.from_json(path.read_bytes().decode("ascii"))
    except OSError as error:
        raise _storage_error(path, "read", error) from None
    except UnicodeDecodeError:
        raise VerificationError(f"{MANIFEST_NAME} was altered: it cannot be read") from None


def release_named(what: str) -> str:
    """The id of a release, given by it, by the folder of its public files, or by one of them.

    Raises:
        StorageError: a folder or a file is given, and no manifest lies there.
        VerificationError: the manifest was altered.
    """
    path = Path(what)
    if not path.exists():
        return what
    return read_manifest(path if path.is_dir() else path.parent).release


def verify_folder(folder: Path, digest: str | None = None) -> list[FileFinding]:
    """Everything that is wrong with a release folder: files altered, missing, extra, or links.

    Nothing, if it is sound. ``digest`` is the manifest's as the ledger recorded it. Without a sound
    manifest the folder is not sound.

    Raises:
        StorageError: a file cannot be read.
    """
    if not (folder / MANIFEST_NAME).is_file():
        return [FileFinding(MANIFEST_NAME, "is missing")]
    try:
        manifest = read_manifest(folder)
    except VerificationError as error:
        return [FileFinding(MANIFEST_NAME, str(error).removeprefix(f"{MANIFEST_NAME} "))]
    vouching = sorted({MANIFEST_NAME, *STATEMENTS})
    links = [FileFinding(name, LINKED) for name in vouching if is_link(folder / name)]
    replaced = [FileFinding(MANIFEST_NAME, "was replaced: the ledger recorded another one")]
    return [
        *links,
        *(replaced if digest not in (None, manifest.digest) else []),
        *_differences(folder, manifest),
    ]


def _differences(folder: Path, manifest: Manifest) -> list[FileFinding]:
    recorded = {record.path: record for record in manifest.files}
    present = _paths(folder)
    missing = [FileFinding(path, "is missing") for path in recorded if path not in present]
    extra = [
        FileFinding(path, "is not part of the release") for path in present if path not in recorded
    ]
    common = [path for path in present if path in recorded]
    altered = [
        FileFinding(path, "was altered")
        for path in common
        if _record(folder, path) != recorded[path]
    ]
    return sorted(missing + extra + altered, key=lambda finding: finding.file)


def _paths(folder: Path) -> list[str]:
    """All files, links and folders that hold nothing; manifest and statements apart; sorted."""
    try:
        paths = [
            path
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
        ]
    except OSError as error:
        raise _storage_error(folder, "read", error) from None
    names = (path.relative_to(folder).as_posix() for path in paths)
    return sorted(name for name in names if name not in {MANIFEST_NAME, *STATEMENTS})


def _plain(record: FileRecord) -> FileRecord:
    if not record.sha256:
        raise StorageError(
            f"{record.path} is not a plain file and cannot be part of a release; remove it"
        )
    return record


def _record(folder: Path, name: str) -> FileRecord:
    """The record of a file; one without a digest for whatever is not a plain file."""
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return FileRecord(name, 0, "")
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise _storage_error(path, "read", error) from None
    return FileRecord(name, size, digest.hexdigest())


def _parsed(content: Mapping[str, Any]) -> Manifest:
    lineage = dict(content["lineage"])
    ledger = Anchor(**lineage.pop("ledger"))
    files = tuple(FileRecord(**record) for record in content["files"])
    return Manifest(content["release"], Lineage(ledger, **lineage), files)


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _storage_error(path: Path, verb: str, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be {verb} ({os.strerror(error.errno or 0)}); make room or correct the path"
    )
