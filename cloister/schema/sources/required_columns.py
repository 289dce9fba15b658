"""Whether a source has exactly the columns that its spec declares.

Names of undeclared columns are given only when the file plainly has a header, since the first line
of a file without one is data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cloister.errors import DataError

ROWS_NAMED = 10
"""Rows or columns that a message names; the rest are counted."""

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


def require_columns(
    found: Sequence[str], declared: Sequence[str], where: str, delimiter: str | None = None
) -> None:
    """Passes if ``found`` has exactly the declared columns, in any order.

    Raises:
        DataError: names the first fault: delimiter, header, doubled, missing or undeclared columns.
    """
    known = set(declared)
    if not known.intersection(found):
        raise DataError(f"{where}: {_no_header(found, known, delimiter)}")
    doubled = [name for name, count in Counter(found).items() if count > 1]
    missing = [name for name in declared if name not in found]
    undeclared = [name for name in found if name not in known]
    if doubled:
        raise DataError(
            f"{where}: the column(s) {_named(doubled)} occur more than once; "
            "rename or drop all but one"
        )
    if missing:
        raise DataError(
            f"{where}: the declared column(s) {_named(missing)} are missing; add them, "
            f"or take them out of the spec's attributes{_also(undeclared)}"
        )
    if undeclared:
        raise DataError(
            f"{where}: the column(s) {_named(undeclared)} are not declared; add them to the spec's "
            "attributes, or to ignore"
        )


def _no_header(found: Sequence[str], known: set[str], delimiter: str | None) -> str:
    for other, name in DELIMITERS.items():
        if (
            delimiter is not None
            and other != delimiter
            and known.intersection(_cells_by(found, delimiter, other))
        ):
            return f"its cells are separated by {name}; set source.delimiter to {other!r}"
    return (
        f"none of the declared columns is among its {len(found)}; "
        "its first line must name the columns"
    )


def _cells_by(found: Sequence[str], delimiter: str, other: str) -> list[str]:
    """The cells of a header line if it is split by another delimiter."""
    return [cell.strip('"') for cell in delimiter.join(found).split(other)]


def _also(undeclared: Sequence[str]) -> str:
    return f" (not declared: {_named(undeclared)})" if undeclared else ""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_NAMED} more" if len(names) > ROWS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:ROWS_NAMED]) + more
