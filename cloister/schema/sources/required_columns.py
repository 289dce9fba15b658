"""Whether a source has exactly the columns that its spec declares.

Names of undeclared columns are given only when the file plainly has a header, at least half of the
declared columns, since the first line of a file without one is data.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from cloister.errors import ColumnsError

ROWS_NAMED = 10
"""Rows or columns that a message names; the rest are counted."""

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


def require_columns(
    found: Sequence[str], declared: Sequence[str], where: str, delimiter: str | None = None
) -> None:
    """Passes if ``found`` has exactly the declared columns, in any order.

    Raises:
        ColumnsError: names the first fault: delimiter, header, doubled, missing or undeclared
            columns, and of missing ones those with a similar name.
    """
    known = set(declared)
    if not known.intersection(found):
        raise ColumnsError(f"{where}: {_no_header(found, known, delimiter)}")
    doubled = [name for name, count in Counter(found).items() if count > 1]
    missing = [name for name in declared if name not in found]
    plain = 2 * len(missing) <= len(known)
    undeclared = [name for name in found if name not in known]
    if doubled:
        raise ColumnsError(
            f"{where}: the column(s) {_named(doubled)} occur more than once; "
            "rename or drop all but one"
        )
    if missing:
        also = _also(missing, undeclared) if plain else ""
        raise ColumnsError(
            f"{where}: the declared column(s) {_named(missing)} are missing; add them, "
            f"or take them out of the spec's attributes{also}"
        )
    if undeclared:
        raise ColumnsError(
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


def _also(missing: Sequence[str], undeclared: Sequence[str]) -> str:
    """The undeclared columns, and which of them may be the missing ones."""
    if not undeclared:
        return ""
    plain = {_letters(name): name for name in undeclared}
    near = {
        name: plain[close[0]]
        for name in missing[:ROWS_NAMED]
        if (close := difflib.get_close_matches(_letters(name), plain, n=1))
    }
    said = "".join(f"; is '{other}' the declared '{name}'?" for name, other in near.items())
    return f" (not declared: {_named(undeclared)}{said})"


def _letters(name: str) -> str:
    """A name without what is often written otherwise: case, spaces and marks."""
    return "".join(letter for letter in name.lower() if letter.isalnum()) or name


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - ROWS_NAMED} more" if len(names) > ROWS_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:ROWS_NAMED]) + more
