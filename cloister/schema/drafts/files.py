"""Drafts of specs, as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloister.errors import InputError, StorageError
from cloister.schema.drafts.drafting import draft
from cloister.schema.drafts.reflection import draft_database
from cloister.schema.sources.files_and_urls import is_url


def write_draft(data: str, out: Path | None, tables: Sequence[str] = ()) -> str:
    """The text of a draft, written to ``out`` if that is given and new.

    ``data`` is a file, whose values are read, or the URL of a database, of which the schema is; of
    a database some ``tables`` may be named.

    Raises:
        InputError: tables are named, and ``data`` is a file.
        StorageError: the table cannot be read, or ``out`` exists or cannot be written.
        DataError: the table has no columns or rows to draft from.
    """
    if out is not None and out.exists():
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    if tables and not is_url(data):
        raise InputError("--table is of databases, and a file holds one table; leave it out")
    text = draft_database(data, tables) if is_url(data) else draft(Path(data))
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"{out} cannot be written ({error.strerror}); correct the path"
            ) from None
    return text
