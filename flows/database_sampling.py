"""Further synthetic databases from a model of several tables, and rows drawn into a database."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path

import numpy as np

from cloister.arrays import Booleans, Integers
from cloister.errors import InputError, SampleError, StorageError
from cloister.models.sampling.conditions import condition_code
from cloister.models.sampling.drawing import Where
from cloister.models.storage import SavedModel
from cloister.schema.columns import Serial
from cloister.schema.domain import Table
from cloister.schema.relations import MISSING, Database
from cloister.schema.sinks import LoadTarget, load_tables, require_loadable
from cloister.tasks.data import tables
from cloister.tasks.home.files import emptied
from cloister.tasks.home.home import Home, temporary_files
from cloister.tasks.requests.resolved import PublicContext

_MOST = 200
"""Times as many rows as are wanted, at most, that are drawn to find enough under a condition.

No more than the table's keys have numbers.
"""

_SPARE = 1.2
"""Rows drawn anew, over those that the share of the first ones calls for: chance takes fewer."""


def draw_database(
    saved: SavedModel, rows: int, seed: int | None, where: Where | None = None
) -> Database:
    """Tables from a model, with ``rows`` rows in that of the units, in which all hard rules hold.

    These rows fulfil the conditions ``where``: more are drawn, and the others left out with all
    rows that refer to them.

    Raises:
        SampleError: they cannot be drawn.
    """
    lead = saved.task.schema.lead
    database = tables.draw_tables(saved.model, rows, seed)
    drawn, chosen = rows, _fitting(database.tables[lead], where or {})
    keys = (column for column in database.tables[lead].domain if isinstance(column, Serial))
    most = min([_MOST * rows, *(column.values for column in keys)])
    while len(chosen) < rows:
        if drawn >= most:
            raise SampleError(
                f"of {drawn:,} rows of '{lead}' drawn, {len(chosen):,} fulfil the condition, and "
                f"{rows:,} are wanted; request fewer rows, or fix fewer columns"
            )
        enough = math.ceil(_SPARE * drawn * rows / max(len(chosen), 1))
        drawn = min(max(2 * drawn, enough), most)
        database = tables.draw_tables(saved.model, drawn, seed)
        chosen = _fitting(database.tables[lead], where or {})
    database = _with_units(database, chosen[:rows]) if where else database
    tables.require_references(database)
    tables.require_hard_constraints(tables.count_all_violations(saved.task, database))
    return database


def _fitting(rows: Table, where: Where) -> Integers:
    """The numbers of the rows that fulfil the conditions."""
    domain, fits = rows.domain, np.ones(rows.rows, dtype=bool)
    for name, value in where.items():
        fits &= rows.codes[name] == condition_code(name, value, domain, domain.modelled)
    return np.flatnonzero(fits)


def _with_units(database: Database, chosen: Integers) -> Database:
    """The chosen rows of units, what must refer to them, and all else.

    A reference that may be missing is, where it leads to a row that is left out.
    """
    schema, rows = database.schema, dict(database.tables)
    rows[schema.lead] = rows[schema.lead].take(chosen)
    for name in schema.tables:
        for key in schema.parents_of(name):
            now = Database(schema, rows)
            lost, whole = (now.references(key) != MISSING) & ~now.referring(key), rows[name]
            unlinked = key.optional and lost.any()
            rows[name] = _unlinked(whole, key.column, lost) if unlinked else whole.take(~lost)
    return Database(schema, rows)


def _unlinked(rows: Table, column: str, lost: Booleans) -> Table:
    null = rows.domain[column].null_code
    assert null is not None
    codes = np.where(lost, null, rows.codes[column])
    return Table(rows.domain, {**rows.codes, column: codes})


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
