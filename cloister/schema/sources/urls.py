"""URLs of databases as text: whether one is meant, and whether a password stands in it.

A password never stands in a URL, since specs, process lists, logs and ledgers show it: ``${NAME}``
is read from the environment when a connection is made, and PostgreSQL also reads ``~/.pgpass`` and
service files by itself.
"""

from __future__ import annotations

import re

VARIABLE = re.compile(r"\$\{(\w+)\}")

_LITERAL = re.compile(r"://[^:/]*:[^@]+@|[?&][^=&]*passw[^=&]*=[^&]", re.IGNORECASE)
"""A password where SQLAlchemy looks for one, once variables are left out."""

HIDE_IT = (
    "holds a password, which logs and records would show; write ${NAME} in its place and set that "
    "environment variable, or use ~/.pgpass or a service file"
)


def is_url(place: str) -> bool:
    """Whether a place is the URL of a database rather than a path."""
    return "://" in place or place.startswith("${")


def holds_password(url: str) -> bool:
    """Whether a password stands in a URL itself."""
    return _LITERAL.search(VARIABLE.sub("", url)) is not None


def table_place(named: str) -> tuple[str | None, str]:
    """The schema, None if it is the usual one, and the name of a table as a spec writes it."""
    schema, _, table = named.rpartition(".")
    return schema or None, table
