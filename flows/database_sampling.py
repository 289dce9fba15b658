"""Further synthetic databases from a model of several tables, and rows drawn into a database."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cloister.errors import InputError, StorageError
from cloister.models.storage import SavedModel
from cloister.schema.relations import Database
from cloister.schema.sinks import LoadTarget, load_tables, require_loadable
from cloister.tasks.data import tables
from cloister.tasks.home.files import emptied
from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.requests.resolved import PublicContext


def draw_database(saved: SavedModel, rows: int, seed: int | None) -> Database:
    """Tables from a model, with ``rows`` rows in that of the units, in which all hard rules hold.

    Raises:
        SampleError: they cannot be drawn.
    """
    database = tables.draw_tables(saved.model, rows, seed)
    tables.require_references(database)
    tables.require_hard_constraints(tables.count_all_violations(saved.task, database))
    return database


def write_database(saved: SavedModel, database: Database, out: Path, csv: bool) -> None:
    """Write tables as files of a new folder, which appears whole or not at all.

    Raises:
        StorageError: it exists, or cannot be written.
    """
    context = PublicContext(saved.spec, saved.task)
    folder = emptied(out.with_name(f".{out.name}.part"))
    try:
        files = {name: folder / f"{name}.parquet" for name in database.tables}
        for name, file in files.items():
            tables.write_table(database.tables[name], file)
        tables.require_published_schema(context, files)
        for name, file in files.items() if csv else ():
            tables.write_csv(file, file.with_suffix(".csv"), context.tables[name].spec)
            file.unlink()
        folder.rename(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_new_folder(out: Path) -> None:
    """Check that the folder for the tables does not exist, and that it can be made.

    Raises:
        InputError: it looks like one file.
        StorageError: it exists, or its parent folder does not.
    """
    if out.suffix in (".parquet", ".csv"):
        raise InputError(f"{out} is one file, and there are several tables; give a new folder")
    if out.exists():
        raise StorageError(f"{out} exists; give another folder with --out, or move it away")
    if not out.absolute().parent.is_dir():
        raise StorageError(f"{out.parent} is no folder; make it, or give another with --out")


def target_of(saved: SavedModel, url: str, release: str, draw: str) -> LoadTarget:
    """The database that a draw goes into, checked before anything is drawn.

    Raises:
        InputError: a password stands in the URL.
        StorageError: the tables cannot be made there.
    """
    tables.require_no_password(url)
    target = LoadTarget(url, f"{release}, {draw}", saved.dataset)
    unwritten = dict.fromkeys(saved.task.tables, Path())
    require_loadable(target, tables.synthetic_tables(saved.task, unwritten))
    return target


def load_drawn(saved: SavedModel, database: Database, target: LoadTarget, home: Home) -> None:
    """Load tables into a database, in one transaction.

    Raises:
        StorageError: they cannot be written; none is.
    """
    with temporary_files(home), tempfile.TemporaryDirectory() as work:
        names = enumerate(database.tables)
        files = {name: Path(work) / f"{number}.parquet" for number, name in names}
        for name, file in files.items():
            tables.write_table(database.tables[name], file)
        tables.require_published_schema(PublicContext(saved.spec, saved.task), files)
        load_tables(target, tables.synthetic_tables(saved.task, files))
