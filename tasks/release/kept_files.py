"""The files that a release leaves in the home: listed with their SHA-256, in a file of its folder.

``kept.json`` lists request, plan, models, internal measures, journal, DVC's pointers, and MLflow's
files. The manifest holds a keyed digest of the list, so that a reader of the manifest learns
nothing about internal files; the ledger holds the manifest's. What is deleted later is named by an
entry of the ledger, which holds the keyed digest of the list without it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from cloister.errors import StorageError
from cloister.files import LINKED, is_link, remove_abandoned
from cloister.privacy.certificate.manifest import STATEMENTS, TRUST_NAME
from cloister.privacy.ledger import Release
from cloister.privacy.ledger.house import Deletion
from cloister.tasks.home.files import digest_of, json_bytes, write_json
from cloister.tasks.home.home import Home, close
from cloister.tasks.stores.kept_records import checked_out, has_measures

FILE_NAME, RUNS_NAME, PUBLIC = "kept.json", "runs.json", "public"

ATTACKS_NAME = "attacks.html"
"""The internal page of attacks on a candidate, which is made after its files are sealed."""

MEASURES = "mlflow.db#measures"
"""What entries call the measures of a release in MLflow's database, as if it were a file."""


def write_kept(home: Home, release: str) -> str:
    """List what a release leaves in the home, closed to others; the keyed digest of the list.

    Raises:
        StorageError: a file cannot be read or written.
    """
    for folder in folders_of(home, release):
        remove_abandoned(folder)
        close(folder)
    names = sorted(_present(home, release) - _checked_out(home, release))
    files = {name: digest_of(home.folder / name) for name in names}
    path = write_json(home.release(release) / FILE_NAME, {"release": release, "files": files})
    return keyed_list_digest(path.read_bytes(), release, home)


def keyed_list_digest(content: bytes, release: str, home: Home, kind: bytes = b"kept") -> str:
    """HMAC-SHA256 of a list, or of another internal file, under the home's key, in hexadecimal."""
    text = kind + b" " + release.encode() + b"\0" + content
    return hmac.new(home.key(), text, hashlib.sha256).hexdigest()


def keyed_page_digest(content: bytes, release: str, home: Home) -> str:
    """The digest of a page of attacks that the ledger holds: nobody tries exact figures by it."""
    return keyed_list_digest(content, release, home, b"attacks")


def shortened_list(content: bytes, places: Collection[str]) -> bytes:
    """A list without the files in some places."""
    listed = json.loads(content)
    listed["files"] = {
        name: digest for name, digest in listed["files"].items() if not _lies_in(name, places)
    }
    return json_bytes(listed)


def keyed_place_digest(content: bytes, path: str, release: str, home: Home) -> str:
    """HMAC-SHA256, under the home's key, of what a list says of a path; empty if nothing."""
    files: dict[str, str] = json.loads(content)["files"]
    listed = {name: digest for name, digest in files.items() if _lies_in(name, [path])}
    prefix = b"deleted " + release.encode() + b"\0"
    text = prefix + json.dumps(listed, sort_keys=True).encode()
    return hmac.new(home.key(), text, hashlib.sha256).hexdigest() if listed else ""


def deletion_findings(home: Home, release: Release) -> Iterator[str]:
    """What is still there although an entry says that it was deleted."""
    for deletion in release.deletions:
        for path in deletion.places:
            if is_there(home, release.id, path):
                yield (
                    f"{home.folder / path}: is there, although entry {deletion.seq} of the ledger "
                    "says that it was deleted; cloister retention run deletes it"
                )


def is_there(home: Home, release: str, path: str) -> bool:
    """Whether a path of a release, relative to the home, still exists."""
    if path == MEASURES:
        return has_measures(home, logged(home.release(release))[0])
    return os.path.lexists(home.folder / path)


def kept_findings(
    home: Home,
    release: str,
    digest: str,
    deletions: Sequence[Deletion] = (),
    unsealed: Collection[str] = (),
) -> Iterator[str]:
    """What of a release in the home was altered, is missing or does not belong.

    ``digest`` is that of the list as the manifest seals it; ``unsealed`` are files, relative to the
    home, that came after it.
    """
    path = home.release(release) / FILE_NAME
    vouching = [path, home.release(release) / PUBLIC, *folders_of(home, release)]
    yield from (f"{linked}: {LINKED}" for linked in vouching if is_link(linked))
    try:
        content = path.read_bytes()
    except OSError:
        yield f"{path}: is missing"
        return
    current = keyed_list_digest(content, release, home)
    *earlier, expected = [digest, *(deletion.listed for deletion in deletions)]
    if current in earlier:
        yield f"{path}: lists what was deleted; cloister retention run shortens it"
        return
    if not hmac.compare_digest(current, expected):
        yield f"{path}: was altered, or {home.folder / 'key'} was: restore both from a backup"
        return
    listed: dict[str, str] = json.loads(content)["files"]
    gone = [part for deletion in deletions for part in deletion.places]
    present = {name for name in _present(home, release) if not _lies_in(name, gone)}
    yield from (f"{home.folder / name}: is missing" for name in listed if name not in present)
    unlisted = present - listed.keys() - {*unsealed}
    if unlisted:
        unlisted -= _checked_out(home, release)
    yield from (f"{home.folder / name}: is not part of the release" for name in sorted(unlisted))
    yield from _statement_findings(home, release)
    unchanged = (name for name in listed if name in present)
    yield from (
        f"{home.folder / name}: was altered"
        for name in unchanged
        if _digest(home.folder / name) != listed[name]
    )


_COMPILED = "__pycache__/mlflow_pyfunc.*.pyc"
"""What Python leaves of the code beside a model, where somebody has loaded it."""


def _present(home: Home, release: str) -> set[str]:
    """The files of a release, as paths relative to the home; links count as files."""
    folder = home.release(release)
    files = (
        path
        for parent in folders_of(home, release)
        for path in parent.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    beside = _beside_models(home, folder)
    listed = (
        path
        for path in files
        if not path.is_relative_to(folder / PUBLIC)
        and path not in (folder / FILE_NAME, *beside)
        and not path.match(_COMPILED)
    )
    return {path.relative_to(home.folder).as_posix() for path in listed}


def _checked_out(home: Home, release: str) -> set[str]:
    """What a person's ``dvc pull`` put beside the pointers of a release: no part of it."""
    pointers = home.versions / "releases" / release
    return {path.relative_to(home.folder).as_posix() for path in checked_out(pointers)}


def _beside_models(home: Home, folder: Path) -> list[Path]:
    """The statements that review put beside the models of a release in a store of this home."""
    models = [f"*/models/{model}/artifacts/artifacts" for model in logged(folder)[1]]
    return [
        path
        for model in models
        for stored in home.artifacts.glob(model)
        for path in stored.iterdir()
        if path.name in STATEMENTS
    ]


def _statement_findings(home: Home, release: str) -> Iterator[str]:
    """The statements beside models that are not those of the release, or older ones on keys."""
    folder = home.release(release)
    for path in _beside_models(home, folder):
        on_keys = path.name == TRUST_NAME
        signed = (home.folder / "signing" if on_keys else folder / PUBLIC) / path.name
        whole = signed.read_bytes() if signed.is_file() else b""
        there = b"" if is_link(path) or not path.is_file() else path.read_bytes()
        if not there or not (is_earlier(there, whole) if on_keys else whole == there):
            yield (
                f"{path}: is not what was signed; cloister review countersign {release} puts that "
                "there"
            )


def is_earlier(text: bytes, whole: bytes) -> bool:
    """Whether statements on keys are those of a file, or the first of them: it only grows."""
    return whole.startswith(text) and text.endswith(b"\n")


def _lies_in(name: str, places: Collection[str]) -> bool:
    """Whether a file is one of some places, or lies in one that is a folder."""
    return any(PurePosixPath(name).is_relative_to(parent) for parent in places)


def folders_of(home: Home, release: str) -> list[Path]:
    """The folders that hold files of a release."""
    folder = home.release(release)
    return [
        folder,
        home.journal(release),
        home.versions / "releases" / release,
        *_tracked(home, folder),
    ]


def _tracked(home: Home, folder: Path) -> list[Path]:
    """Where MLflow keeps files of the runs and models of a release, in a store of this home."""
    runs, models = logged(folder)
    names = [*runs, *(f"models/{model}" for model in models)]
    return [path for name in names for path in home.artifacts.glob(f"*/{name}")]


def logged(folder: Path) -> tuple[list[str], list[str]]:
    """The ids of MLflow's runs and models of a release; none if their list was altered."""
    try:
        content = json.loads((folder / RUNS_NAME).read_text(encoding="utf-8"))
        runs, models = content["runs"], content.get("models", [])
        return [*map(str, runs)], [*map(str, models)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], []


def _digest(path: Path) -> str:
    """The digest of a plain file; empty for anything else."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return digest_of(path)
    except StorageError:
        return ""
