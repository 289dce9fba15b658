"""What a home holds of or about the data, and its deletion: first a ledger entry, then the files.

If a process is killed between the two, the next move of the release, or `cloister retention run`,
completes the deletion. By kind, of each release:

    source      DVC's pointer to the data, with its MD5, and copies of the data beside it
    measures    what was measured on the real rows, and what was found in them: the folder internal,
                and the same in MLflow
    journal     the noisy answers, and the model before its soft constraints were weighed
    models      the arrays of a model that was rejected or withdrawn
    refusals    why data was refused

Frames and temporary files that killed processes left, scores of models that were trained on real
rows, and DVC's caches belong to no release: nothing needs them, no list names them, and they are
deleted without an entry.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloister.errors import StorageError, VerificationError
from cloister.models.storage import ARRAYS_NAME
from cloister.privacy.ledger import Ledger, Release, State
from cloister.privacy.ledger.books import LedgerState
from cloister.privacy.ledger.governance import record_deletions
from cloister.privacy.ledger.house import DAYS, House, goes_at, is_deleted
from cloister.tasks.home.files import abandoned_frames, exclusive, replace_file
from cloister.tasks.home.home import Home, abandoned_folders
from cloister.tasks.ledger.access import existing_ledger, open_ledger
from cloister.tasks.release import kept_files
from cloister.tasks.release.integrity import released_manifest
from cloister.tasks.release.kept_request import has_request, kept_previous
from cloister.tasks.stores.dvc_store import Versions
from cloister.tasks.stores.kept_records import delete_measures

_WHY = "no longer needed, by the rules of its account"


@dataclass(frozen=True)
class Holding:
    """What a home holds of a release, of one kind; ``goes`` is when, or why not yet, it goes."""

    release: Release
    kind: str
    places: tuple[str, ...]
    files: int
    size: int
    goes: str
    due: bool

    def to_json(self) -> dict[str, Any]:
        """The holding as JSON; ``size`` in bytes."""
        return {
            "release": self.release.id,
            "dataset": self.release.request.dataset,
            "state": self.release.state.value,
            "kind": self.kind,
            "files": self.files,
            "bytes": self.size,
            "since": self.release.reserved_at,
            "goes": self.goes,
        }


def holdings(home: Home) -> list[Holding]:
    """What a home holds of each release, oldest first, and when it goes.

    Nothing, where there is no ledger.
    """
    ledger = existing_ledger(home)
    if ledger is None:
        return []
    books = ledger.books()
    return list(_holdings(home, ledger, books, list(books.releases.values())))


def leftovers(home: Home) -> list[Path]:
    """What a home holds about the data that belongs to no release and that nobody uses."""
    ledger = existing_ledger(home)
    house = ledger.books().house if ledger else House()
    with abandoned_frames(home) as frames:
        return [*frames, *abandoned_folders(home), *_old_scores(home, house)]


def delete_due(home: Home, by: str, only: str | None = None) -> list[Holding]:
    """Delete what is no longer needed, of one release or all, and leftovers; the holdings deleted.

    Deletions of earlier entries are completed first.

    Raises:
        NotPermitted: ``by`` may not.
        StorageError: a file cannot be deleted; its entry is written, and a repetition completes it.
        VerificationError: a list of files was altered; nothing of its release is deleted.
    """
    if existing_ledger(home) is None:
        return []
    with exclusive(home.folder / "retention.lock"):
        ledger = open_ledger(home)
        books = ledger.books()
        releases = [release for name, release in books.releases.items() if only in (None, name)]
        _end_deletions(home, releases)
        due = [holding for holding in _holdings(home, ledger, books, releases) if holding.due]
        bodies, altered = _bodies(home, due)
        if bodies:
            record_deletions(ledger, bodies, by, _WHY)
            recorded = ledger.books().releases
            _end_deletions(home, [recorded[name] for name in bodies])
        _delete_leftovers(home, books.house)
    if altered:
        raise altered[0]
    return due


def end_deletions(home: Home, release: Release) -> None:
    """Delete what entries of a release say is deleted: a run may have been killed before it did.

    Raises:
        StorageError: a file cannot be deleted.
        VerificationError: an entry names what is no part of the release.
    """
    if release.deletions:
        with exclusive(home.folder / "retention.lock"):
            _end_deletions(home, [release])


def _holdings(
    home: Home, ledger: Ledger, books: LedgerState, releases: Sequence[Release]
) -> Iterator[Holding]:
    now = ledger.clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    previous = _previous_in_use(home, list(books.releases.values()))
    for release in releases:
        if not _is_here(home, release):
            continue
        rules = books.house.rules_of(release.request.dataset)
        for kind in DAYS:
            places = tuple(_places(home, release, kind))
            if not places:
                continue
            when = goes_at(release, kind, rules)
            used = kind == "models" and release.id in previous
            goes = "an unfinished release may use it" if used else when or _needed(release)
            files = [path for name in places for path in _files(home.folder / name)]
            size = sum(path.lstat().st_size for path in files)
            due = when is not None and when <= now and not used
            yield Holding(release, kind, places, len(files), size, goes, due)


def _is_here(home: Home, release: Release) -> bool:
    """Whether this home ran a release: several homes may share a ledger."""
    return home.release(release.id).exists() or home.journal(release.id).exists()


def _needed(release: Release) -> str:
    """Until when something stays that has no date yet."""
    if release.state.resumable:
        return "until it is finished and decided"
    return "until it is decided" if release.state is State.CANDIDATE else "while rows may be drawn"


def _places(home: Home, release: Release, kind: str) -> Iterator[str]:
    """The places of a kind that are there and that no entry names yet, relative to the home."""
    folder = home.release(release.id)
    refused = release.state in (State.REFUNDED, State.FORFEITED)
    runs, models = kept_files.logged(folder)
    pointers = sorted((home.versions / "releases" / release.id).glob("*"))
    named: dict[str, list[Path]] = {
        "source": [path for path in pointers if path.stem == "input"],
        "measures": [
            *(() if refused else (folder / "internal",)),
            *(path for run in runs for path in home.artifacts.glob(f"*/{run}/*/evaluation")),
            home.folder / kept_files.MEASURES,
        ],
        "journal": [home.journal(release.id), folder / "trained"],
        "models": [
            folder / "model" / ARRAYS_NAME,
            *(path for model in models for path in home.artifacts.glob(f"*/models/{model}")),
        ],
        "refusals": [folder / "internal"] if refused else [],
    }
    for path in named[kind]:
        name = path.relative_to(home.folder).as_posix()
        if not is_deleted(release, name) and kept_files.is_there(home, release.id, name):
            yield name


def _files(path: Path) -> list[Path]:
    """The files of a place."""
    if path.is_dir() and not path.is_symlink():
        return [file for file in path.rglob("*") if not file.is_dir()]
    return [path] if os.path.lexists(path) else []


def _previous_in_use(home: Home, releases: Sequence[Release]) -> set[str]:
    """The releases whose numbers unfinished ones may use.

    One that was reserved and has not written its request yet may use any of its data set.
    """
    previous: set[str] = set()
    for release in (release for release in releases if release.state.resumable):
        if has_request(home, release.id):
            previous |= {kept_previous(home, release.id) or ""}
        else:
            dataset = release.request.dataset
            previous |= {former.id for former in releases if former.request.dataset == dataset}
    return previous


def _bodies(
    home: Home, due: Sequence[Holding]
) -> tuple[dict[str, dict[str, Any]], list[VerificationError]]:
    """What entries say of what is due, by release; and the errors of lists that were altered."""
    bodies, altered = {}, []
    for release in {holding.release.id: holding.release for holding in due}.values():
        try:
            mine = [holding for holding in due if holding.release is release]
            bodies[release.id] = _body(home, release, mine)
        except VerificationError as error:
            altered.append(error)
    return bodies, altered


def _body(home: Home, release: Release, due: Sequence[Holding]) -> dict[str, Any]:
    """What the entry on a release says: places by kind, and the digest of the list of the rest."""
    content = _list_of(home, release)
    if content is None:
        return {"kinds": {holding.kind: dict.fromkeys(holding.places, "") for holding in due}}
    kinds = {
        holding.kind: {
            path: kept_files.keyed_place_digest(content, path, release.id, home)
            for path in holding.places
        }
        for holding in due
    }
    gone = [path for holding in due for path in holding.places]
    listed = kept_files.keyed_list_digest(
        kept_files.shortened_list(content, gone), release.id, home
    )
    return {"kinds": kinds, "listed": listed}


def _list_of(home: Home, release: Release) -> bytes | None:
    """The list of a release's files, as the ledger knows it; None for one that has none.

    Raises:
        VerificationError: it was altered.
    """
    if "manifest" not in release.evidence:
        return None
    recorded = released_manifest(home, release).lineage.kept
    if not recorded:
        return None
    path = home.release(release.id) / kept_files.FILE_NAME
    expected = release.deletions[-1].listed if release.deletions else recorded
    content = path.read_bytes() if path.is_file() else b""
    if kept_files.keyed_list_digest(content, release.id, home) != expected:
        raise VerificationError(
            f"{path} was altered or is missing, and nothing of release {release.id} is deleted: "
            f"see cloister verify {release.id}"
        )
    return content


def _end_deletions(home: Home, releases: Sequence[Release]) -> None:
    for release in releases:
        if not release.deletions or not _is_here(home, release):
            continue
        gone = [part for deletion in release.deletions for part in deletion.places]
        for part in gone:
            if kept_files.is_there(home, release.id, part):
                _require_part(home, release, part)
                _delete(home, release, part)
        _shorten(home, release, gone)


def _require_part(home: Home, release: Release, part: str) -> None:
    """Check that an entry names a part of its release: no entry may delete anything else.

    Raises:
        VerificationError: it does not.
    """
    path, folder = home.folder / part, home.release(release.id)
    inside = any(path.is_relative_to(parent) for parent in kept_files.folders_of(home, release.id))
    stays = (kept_files.PUBLIC, kept_files.FILE_NAME, kept_files.RUNS_NAME)
    fixed = path == folder or any(path.is_relative_to(folder / name) for name in stays)
    if part != kept_files.MEASURES and (fixed or not inside):
        raise VerificationError(
            f"the ledger says that {path} was deleted, which is no part of release {release.id} "
            "that may be: nothing was deleted; see cloister verify"
        )


def _delete(home: Home, release: Release, part: str) -> None:
    path, lock = home.folder / part, home.versions / "lock"
    try:
        with exclusive(lock) if path.is_relative_to(home.versions) else nullcontext():
            if part == kept_files.MEASURES:
                delete_measures(home, kept_files.logged(home.release(release.id))[0])
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be deleted ({os.strerror(error.errno or 0)}): correct its rights, then "
            "cloister retention run"
        ) from None


def _shorten(home: Home, release: Release, gone: Sequence[str]) -> None:
    """Write the list without what was deleted; one that was altered is left for verify."""
    path, listed = home.release(release.id) / kept_files.FILE_NAME, release.deletions[-1].listed
    if not listed or not path.is_file():
        return
    content = path.read_bytes()
    if kept_files.keyed_list_digest(content, release.id, home) == listed:
        return
    try:
        shortened = kept_files.shortened_list(content, gone)
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if kept_files.keyed_list_digest(shortened, release.id, home) == listed:
        replace_file(path, lambda part: part.write_bytes(shortened))


def _old_scores(home: Home, house: House) -> list[Path]:
    """Scores of models trained on real rows, older than any account keeps measures."""
    days = max((rules.keep.get("measures", 0) for rules in house.rules.values()), default=0)
    before = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    files = sorted((home.folder / "truths").glob("*.json"))
    return [path for path in files if path.stat().st_mtime <= before]


def _delete_leftovers(home: Home, house: House) -> None:
    with abandoned_frames(home) as frames:
        for path in (*frames, *_old_scores(home, house)):
            path.unlink(missing_ok=True)
    for folder in abandoned_folders(home):
        shutil.rmtree(folder, ignore_errors=True)
    Versions(home.versions, home.remote).clear()
