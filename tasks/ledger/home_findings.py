"""Problems of a home as a whole: its modes, its key, and the stores of the tools in it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path

from cloister.errors import StorageError
from cloister.tasks.runtime.home import Home, open_to_others
from cloister.tasks.runtime.locks import exclusive
from cloister.tasks.stores.dvc_store import PARTS

_NAMED = 3
"""Findings on modes at most: the first ones show where to look."""


def mode_findings(home: Home) -> list[str]:
    """Files and folders that others may use.

    Call this before the home is used, which closes them. Objects that DVC is about to send are
    waited for: it opens them, and they are closed at its end.
    """
    if not home.folder.is_dir():
        return []
    lock = home.versions / "lock"
    with exclusive(lock) if lock.exists() else nullcontext():
        found = list(islice(open_to_others(home.folder), _NAMED))
    return [
        f"{path}: others could use it (mode {path.lstat().st_mode & 0o777:o}); it is closed now"
        for path in found
    ]


def home_findings(home: Home) -> Iterator[str]:
    """Problems of the key, the databases of the three tools, and the objects of the DVC remote."""
    if (home.folder / "key").exists() or (home.folder / "releases").exists():
        yield from _key_findings(home)
    for path in sorted(home.folder.glob("*/**/*.db")):
        yield from _database_findings(path)
    yield from _object_findings(Path(home.remote) / "files" / "md5")


def _key_findings(home: Home) -> Iterator[str]:
    if not (home.folder / "key").exists():
        yield f"{home.folder / 'key'}: is missing; restore it from a backup"
        return
    try:
        home.key()
    except StorageError as error:
        yield str(error)


def _database_findings(path: Path) -> Iterator[str]:
    """What SQLite itself finds."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            ((verdict,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
            schema = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (sqlite3.Error, ValueError) as error:
        verdict, schema = type(error).__name__, ()
    if verdict != "ok" or not schema:
        yield f"{path}: is damaged ({str(verdict).splitlines()[0]}); restore a copy"


def _object_findings(folder: Path) -> Iterator[str]:
    """Objects of a DVC remote that is a folder: each is named by its MD5."""
    for path in sorted(set(folder.glob("??/*")) - set(folder.glob(f"??/{PARTS}"))):
        name = path.parent.name + path.name
        if (
            path.is_file()
            and hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            != name.partition(".")[0]
        ):
            yield f"{path}: was altered: its name is not its digest"
