"""Connections to databases by SQLAlchemy URL.

Messages name the type of a driver's error alone; its text can hold a value or a password.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import sqlalchemy as sa

from cloister.errors import StorageError
from cloister.schema.sources.urls import VARIABLE

_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""The driver that is installed, for the dialects that have several."""

_AS_PASSWORD = re.compile(r"(?<=:)\$\{(\w+)\}(?=@)")
"""A variable that is a whole password, whose letters may mean something in a URL."""


@contextmanager
def connect(url: str, what: str, *, made: bool = False) -> Iterator[sa.Connection]:
    """A connection to a database, closed at the end.

    ``what`` begins the message of an error, as in "table 'a' cannot be read". A SQLite file is
    ``made`` if that is said, and must be there if not.

    Raises:
        StorageError: a variable is not set, or the database cannot be reached, read or written.
    """
    try:
        engine = sa.create_engine(_resolved(url, made), poolclass=sa.NullPool)
        with engine.connect() as connection:
            yield connection
    except (sa.exc.SQLAlchemyError, psycopg.Error, sqlite3.Error, ImportError) as error:
        kind = type(error).__name__
        raise StorageError(f"{what} ({kind}); check url, table, driver and rights") from None


def _resolved(url: str, made: bool) -> sa.URL:
    for name in VARIABLE.findall(url):
        if name not in os.environ:
            raise StorageError(
                f"the URL of a database names the environment variable {name}, which is not set; "
                "set it"
            )
    quoted = _AS_PASSWORD.sub(lambda found: quote(os.environ[found[1]], safe=""), url)
    found = sa.make_url(VARIABLE.sub(lambda found: os.environ[found[1]], quoted))
    found = found.set(drivername=_DRIVERS.get(found.drivername, found.drivername))
    if found.get_backend_name() == "sqlite" and not made:
        _require_file(found.database)
    return found


def _require_file(database: str | None) -> None:
    """Check that a SQLite file is there: SQLite would make an empty one."""
    named = database and database != ":memory:" and not database.startswith("file:")
    if named and not Path(str(database)).exists():
        raise StorageError(f"the database {database} does not exist; correct the url")
