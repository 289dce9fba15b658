"""The files that a release leaves in the home: listed with their SHA-256, in a file of its folder.

``kept.json`` lists request, plan, models, internal measures, journal, DVC's pointers, and MLflow's
files. The manifest holds a keyed digest of the list, so that a reader of the manifest learns
nothing about internal files; the ledger holds the manifest's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

from cloister.errors import StorageError
from cloister.files import remove_abandoned
from cloister.tasks.home.files import digest_of, write_json
from cloister.tasks.home.home import Home, close

FILE_NAME, RUNS_NAME, PUBLIC = "kept.json", "runs.json", "public"


def write_kept(home: Home, release: str) -> str:
    """List what a release leaves in the home, closed to others; the keyed digest of the list.

    Raises:
        StorageError: a file cannot be read or written.
    """
    for place in _places(home, release):
        remove_abandoned(place)
        close(place)
    files = {name: digest_of(home.folder / name) for name in sorted(_present(home, release))}
    path = write_json(home.release(release) / FILE_NAME, {"release": release, "files": files})
    return keyed_list_digest(path.read_bytes(), release, home)


def keyed_list_digest(content: bytes, release: str, home: Home) -> str:
    """HMAC-SHA256 of a list under the home's key, in hexadecimal."""
    return hmac.new(
        home.key(), b"kept " + release.encode() + b"\0" + content, hashlib.sha256
    ).hexdigest()


def kept_findings(home: Home, release: str, digest: str) -> Iterator[str]:
    """What of a release in the home was altered, is missing or does not belong."""
    path = home.release(release) / FILE_NAME
    try:
        content = path.read_bytes()
    except OSError:
        yield f"{path}: is missing"
        return
    if not hmac.compare_digest(keyed_list_digest(content, release, home), digest):
        yield f"{path}: was altered, or {home.folder / 'key'} was: restore both from a backup"
        return
    listed: dict[str, str] = json.loads(content)["files"]
    present = _present(home, release)
    yield from (f"{home.folder / name}: is missing" for name in listed if name not in present)
    yield from (
        f"{home.folder / name}: is not part of the release"
        for name in sorted(present - listed.keys())
    )
    held = (name for name in listed if name in present)
    yield from (
        f"{home.folder / name}: was altered"
        for name in held
        if _digest(home.folder / name) != listed[name]
    )


def _present(home: Home, release: str) -> set[str]:
    """The files of a release in the home, as paths inside it; links count as files."""
    own = home.release(release)
    found = (
        path
        for place in _places(home, release)
        for path in place.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    mine = (
        path for path in found if not path.is_relative_to(own / PUBLIC) and path != own / FILE_NAME
    )
    return {path.relative_to(home.folder).as_posix() for path in mine}


def _places(home: Home, release: str) -> list[Path]:
    """The folders that hold files of a release."""
    own = home.release(release)
    return [own, home.journal(release), home.versions / "releases" / release, *_tracked(home, own)]


def _tracked(home: Home, own: Path) -> list[Path]:
    """Where MLflow keeps files of the runs and models of a release, in a store of this home."""
    runs, models = logged(own)
    names = [*runs, *(f"models/{model}" for model in models)]
    return [place for name in names for place in home.artifacts.glob(f"*/{name}")]


def logged(own: Path) -> tuple[list[str], list[str]]:
    """The ids of MLflow's runs and models of a release; none if their list was altered."""
    try:
        kept = json.loads((own / RUNS_NAME).read_text(encoding="utf-8"))
        runs, models = kept["runs"], kept.get("models", [])
        return [*map(str, runs)], [*map(str, models)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], []


def _digest(path: Path) -> str:
    """The digest of a plain file; empty for whatever is none."""
    if path.is_symlink() or not path.is_file():
        return ""
    try:
        return digest_of(path)
    except StorageError:
        return ""
