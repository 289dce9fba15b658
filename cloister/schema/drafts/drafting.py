"""A first spec for a file, guessed from its values: every guess is marked as one.

Privacy: a draft holds values of the data, and one row may decide any guess. It is as private as the
data, until a person has replaced each guess by what is publicly known. Each attribute is marked
``data-derived``; ``unconfirmed`` names what even a measurement takes as declared: names,
the dialect of the file, columns to ignore, types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
from pandas.api import types as pt
from pydantic import TypeAdapter

from cloister.errors import DataError
from cloister.schema.attributes import AnyAttribute, Float, Integer
from cloister.schema.drafts.column_cells import ColumnCells, Guess
from cloister.schema.drafts.file_dialect import MOST_BYTES, DraftedFile, drafted_csv
from cloister.schema.drafts.guessing import guess
from cloister.schema.drafts.proposals.dependencies import dependency_proposals
from cloister.schema.drafts.proposals.orders import order_proposals
from cloister.schema.drafts.proposals.presence import presence_proposals
from cloister.schema.drafts.proposals.references import reference_hints
from cloister.schema.drafts.times import in_native_times
from cloister.schema.sources.files.parquet_files import (
    is_larger_unpacked,
    nested_names,
    parquet_names,
    parquet_rows,
    read_native,
    time_dtypes,
)
from cloister.schema.sources.reading import guarded_reading, table_format
from cloister.schema.sources.required_columns import require_columns
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import DraftedFact
from cloister.schema.spec_files.writing import entries, flow, scalar
from cloister.schema.values.number_formats import NO_UNIT
from cloister.schema.values.parsing import parse

_NATIVE_FACTS: tuple[DraftedFact, ...] = ("names", "ignore", "types")
_TEXT_FACTS: tuple[DraftedFact, ...] = (
    *("names", "encoding", "delimiter", "numbers", "missing", "ignore", "types"),
)

_MOST_CELLS = 25_000_000
"""Cells of a Parquet file at most: a draft takes about 140 bytes and 2 microseconds for each."""

_ATTRIBUTE: TypeAdapter[AnyAttribute] = TypeAdapter(AnyAttribute)

_HEAD = """\
# Drafted from {source}; it holds values of the data, so keep it as private as the data. A single
# row may have decided any of it, so a release refuses it until a person has declared it from what
# is known without looking at the data (a code book, a law, a form). Each line says why it was
# guessed, and what to check:
# - unconfirmed: read through what it names, correct it, then delete the word, or the whole line to
#   confirm all.
# - data-derived: correct the line, bounds and values first, and write in place of data-derived
#   where they are known from. What is not known stays data-derived and is measured with noise, at a
#   charge: cloister spec measure.
name: {name}
source: {{{source_keys}}}
unconfirmed: {unconfirmed} # delete once read through
ignore: {ignore} # columns to leave out; a draft names those without a value or a name, or of lists
privacy:
  unit: row # or {{key: COLUMN, max_rows: NUMBER}} when one person may own several rows
  relation: add_remove
  rows: {{measured: true}} # or {{public: NUMBER}} when the number of rows is no secret
  budget: {{epsilon: 10, delta: 1e-6, per: year}} # of all releases, and of a measurement
attributes:
"""

_FOOT = """\
constraints: [] # such as {{fd: zip -> city}} or {{deny: "t1.start > t1.end"}}
{proposals}release: {{method: auto, epsilon: 1, delta: 1e-7}}
"""

_PROPOSALS = """\
# All rows agree with these. Those that are rules of the matter, and no chance, declare in place of
# [] above: delete it, and their first #.
"""


def draft(path: Path) -> str:
    """The YAML text of a drafted spec for a CSV or Parquet file; ``load_spec`` reads it.

    Raises:
        StorageError: the file cannot be read.
        DataError: no header, no rows, doubled columns, no column with a value.
    """
    read, facts = (
        (drafted_csv, _TEXT_FACTS)
        if table_format(path) == "csv"
        else (_drafted_parquet, _NATIVE_FACTS)
    )
    with guarded_reading(path):
        file = read(path)
    if file.plain.empty:
        raise DataError(f"{path} has no rows; give a table with rows")
    names = list(map(str, file.plain))
    left_out = [name for name in names if not name.strip() or file.plain[name].isna().all()]
    guesses = {name: _keyed(file, name) for name in names if name not in left_out}
    if not guesses:
        raise DataError(f"{path} has no column with a name and a value; give a table with some")
    name = re.sub(r"[^A-Za-z0-9._-]", "-", path.name.partition(".")[0]).lstrip("._-") or "dataset"
    head = _HEAD.format(
        source=json.dumps(path.name),
        name=name,
        source_keys=entries(file.source),
        unconfirmed=flow(facts),
        ignore=flow([*left_out, *file.nested]),
    )
    lines = "".join(_line(name, own) for name, own in guesses.items())
    hints = "".join(reference_hints(file.plain, guesses, name, file.source))
    return head + lines + _FOOT.format(proposals=_proposed(file, guesses) + hints)


def _proposed(file: DraftedFile, guesses: Mapping[str, Guess]) -> str:
    """Rules that the rows obey, commented out, and what to do with them."""
    typed = dict(_typed(file, guesses))
    values = pd.DataFrame({name: typed.get(name, file.plain[name]) for name in guesses})
    found = [
        *presence_proposals(values, guesses),
        *dependency_proposals(values, guesses),
        *order_proposals(typed, guesses),
    ]
    return _PROPOSALS + "".join(f"#  - {rule}\n" for rule in found) if found else ""


def _typed(file: DraftedFile, guesses: Mapping[str, Guess]) -> Iterator[tuple[str, pd.Series]]:
    """The values of the columns that are guessed to be numbers, dates or moments."""
    for name, own in guesses.items():
        if own.keys["type"] in ("integer", "float", "date", "datetime"):
            attribute = _ATTRIBUTE.validate_python(own.keys)
            cells = file.plain if isinstance(attribute, Integer | Float) else file.written
            typed, invalid = parse(cells[name], attribute)
            if not invalid.any():
                yield name, typed


def _drafted_parquet(path: Path) -> DraftedFile:
    names = parquet_names(path)
    require_columns(names, names, str(path))
    nested = nested_names(path)
    plain = [name for name in names if name not in nested]
    _require_draftable(path, plain)
    frame = read_native(path, plain)
    decimals = frame.columns[[pt.is_object_dtype(kind) for kind in frame.dtypes]]
    frame = frame.assign(**{name: texts(frame[name]) for name in decimals})
    found = DraftedFile({"path": str(path)}, frame, frame, {}, nested=tuple(nested))
    return replace(found, times=time_dtypes(path))


def _require_draftable(path: Path, names: list[str]) -> None:
    cells = parquet_rows(path) * len(names)
    if cells > _MOST_CELLS or is_larger_unpacked(path, names, MOST_BYTES):
        raise DataError(
            f"{path} has more than {_MOST_CELLS:,} cells, or {MOST_BYTES >> 20:,} MiB unpacked; "
            "a draft reads all of them, so give a file of fewer rows, or of shorter cells"
        )


def _keyed(file: DraftedFile, name: str) -> Guess:
    """The guess of one column, with its own missing text if it is not the first of the file."""
    known, plain = file.written[name].dropna(), file.plain[name].dropna()
    thousands = file.source.get("thousands")
    token = file.tokens.get(name)
    own = None if token in (None, *file.source.get("missing", ())[:1]) else token
    unit = file.units.get(name, NO_UNIT)
    foreign = name in file.foreign
    cells = ColumnCells(name, known, plain, len(file.plain), thousands, own, unit, foreign)
    return in_native_times(guess(cells), file.times[name]) if name in file.times else guess(cells)


def _line(name: str, guess: Guess) -> str:
    return f"  {scalar(name)}: {{{entries(guess.keys)}}} # {guess.why}\n"
