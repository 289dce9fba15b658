"""Drafts of specs, as files."""

from __future__ import annotations

from pathlib import Path

from cloister.errors import StorageError
from cloister.schema.drafts.drafting import draft


def write_draft(data: Path, out: Path | None) -> str:
    """The text of a draft for a table, written to ``out`` if that is given and new.

    Raises:
        StorageError: the table cannot be read, or ``out`` exists or cannot be written.
        DataError: the table has no columns or rows to draft from.
    """
    if out is not None and out.exists():
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    text = draft(data)
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"{out} cannot be written ({error.strerror}); correct the path"
            ) from None
    return text
