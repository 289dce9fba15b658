"""A first spec for a file, guessed from its values: every guess is marked as one.

The dialect of a CSV file is guessed from its bytes and cells: encoding, delimiter, marks, words.

Privacy: a draft holds values of the data, and one row may decide any guess. It is as private as the
data, until a person has replaced each guess by what is publicly known. Each attribute is marked
``data-derived``; ``unconfirmed`` names what even a measurement takes as declared: names,
the dialect of the file, columns to ignore, types.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api import types as pt
from pydantic import TypeAdapter

from cloister.errors import DataError
from cloister.schema.attributes import AnyAttribute, Float, Integer
from cloister.schema.drafts import columns, proposals
from cloister.schema.drafts.cases import guess
from cloister.schema.drafts.columns import ColumnCells, Guess
from cloister.schema.drafts.drafted_tables import ABOUT
from cloister.schema.parsing import parse
from cloister.schema.sources import parquet_files, stored_files
from cloister.schema.sources.batches import DELIMITERS, require_columns
from cloister.schema.sources.csv_files import csv_header, read_text
from cloister.schema.sources.files_and_urls import MARKS, UTF_8
from cloister.schema.sources.storage_types import texts
from cloister.schema.spec import DraftedFact, SourceSpec
from cloister.schema.spec_files.yaml_text import entries, flow, scalar
from cloister.schema.written_numbers import STARTS_AS_NUMBER

_MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "NaN", "nan", "?", " ?", "-", ".")
"""Texts that usually stand for a missing value; the empty cell always does."""

_MOST_WORDS = 3
"""Most words among the numbers or dates of a column that are taken for missing values."""

_FEWEST_ROWS = 3
"""Rows of each such word at least: fewer may be slips, which are remarked."""

MOST_BYTES = 1 << 30
"""Bytes of a file at most, unpacked: drafts hold all cells, and Arrow's texts end at twice that."""

_BLOCK_BYTES = 1 << 20
"""Bytes of a file that are looked at together."""

_NUMBER = r"\s*[-+]?\d+(?:[.,]\d+)*\s*"
_MOSTLY = 0.5
"""The share of numbers below a number from which it is a row's: names may be years."""

_CONTROLS = bytes(range(0x80, 0xA0))
"""Bytes that are letters in cp1252, and nothing in Latin-1."""


_NATIVE_FACTS: tuple[DraftedFact, ...] = ("names", "ignore", "types")
_TEXT_FACTS: tuple[DraftedFact, ...] = (
    *("names", "encoding", "delimiter", "numbers", "missing", "ignore", "types"),
)


@dataclass(frozen=True)
class DraftedFile:
    """The columns of a file, and the keys of the source that read them so.

    ``facts`` are what a person has to confirm. ``nested`` are columns without single values, which
    are in none of them.
    """

    source: dict[str, Any]
    columns: dict[str, ColumnCells]
    facts: tuple[DraftedFact, ...]
    nested: tuple[str, ...] = ()

    @cached_property
    def known(self) -> dict[str, ColumnCells]:
        """The columns with a name and a value, of which a draft has attributes."""
        return {
            name: cells for name, cells in self.columns.items() if name.strip() and len(cells.known)
        }

    @property
    def ignored(self) -> tuple[str, ...]:
        """The names of the other columns."""
        return (*(name for name in self.columns if name not in self.known), *self.nested)


def drafted_csv(path: Path) -> DraftedFile:
    """The cells of a CSV file, in the dialect that fits them best.

    Raises:
        OSError: the file cannot be read.
        DataError: no header, doubled columns, ragged rows.
    """
    _require_modest_text(path)
    encoding = _encoding(path)
    delimiter = max(DELIMITERS, key=lambda mark: len(csv_header(path, mark, encoding)))
    names = csv_header(path, delimiter, encoding)
    dialect: dict[str, Any] = {"path": str(path), "delimiter": delimiter, "encoding": encoding}
    if _is_row(names, path, dialect):
        names = _numbered_names(names)
        dialect["header"] = names
    require_columns(names, list(dict.fromkeys(names)), str(path))
    cells = read_text(path, SourceSpec(**dialect, missing=()), names)
    counts = {name: _missing_counts(cells[name]) for name in names}
    missing = _by_frequency(counts.values())
    written = cells.mask(cells.isin(missing))
    units = {name: columns.guess_unit(columns.distinct_cells(written[name])) for name in names}
    alone = {name: columns.numbers_alone(written[name], unit) for name, unit in units.items()}
    decimal, thousands = columns.likeliest_marks(alone.values(), delimiter)
    dialect |= {"decimal": decimal} | ({"thousands": thousands} if thousands else {})
    source = SourceSpec(**dialect, missing=tuple(missing))
    cells_of = {}
    for name, tokens in counts.items():
        plain, foreign = columns.in_plain_marks(alone[name], source)
        token = max(tokens, key=tokens.__getitem__, default=missing[0])
        cells_of[name] = ColumnCells(
            *(name, written[name], plain, thousands),
            missing=None if token == missing[0] else token,
            unit=units[name],
            foreign=foreign,
        )
    return DraftedFile(dialect | {"missing": missing}, cells_of, _TEXT_FACTS)


def _is_row(first: list[str], path: Path, dialect: Mapping[str, Any]) -> bool:
    """Whether the first line of a file is a row: a cell is a number, as those below it.

    No other is a text above numbers alone, as a name is: above numbers and missing ones too, if it
    is not itself a missing one.
    """
    numbers = [re.fullmatch(_NUMBER, text) is not None for text in first]
    if not any(numbers):
        return False
    names = _numbered_names(first)
    below = read_text(path, SourceSpec(**dialect, header=tuple(names), missing=()), names)[1:]
    numeric = below.apply(lambda cells: cells.str.fullmatch(_NUMBER))
    present = ~below.isin(["", *_MISSING])
    present.loc[:, [text in ("", *_MISSING) for text in first]] = True
    pairs = list(zip(numbers, names, strict=True))
    alike = any(number and numeric[name].mean() >= _MOSTLY for number, name in pairs)
    return alike and not any(
        not number and present[name].any() and numeric[name][present[name]].all()
        for number, name in pairs
    )


def _numbered_names(first: Sequence[str]) -> list[str]:
    return [f"c{number}" for number in range(1, len(first) + 1)]


def _require_modest_text(path: Path) -> None:
    size = 0
    with pa.input_stream(str(path), compression="detect") as raw:
        while block := raw.read(_BLOCK_BYTES):
            size += len(block)
            if size <= MOST_BYTES:
                continue
            raise DataError(
                f"{path} has more than {MOST_BYTES >> 20:,} MiB unpacked, and a draft reads all of "
                "it; draft from a file of fewer rows"
            )


def _encoding(path: Path) -> str:
    """UTF-16 by its mark or the empty half of an ASCII letter, else UTF-8, else of one byte."""
    first = next(_blocks(path))
    starts = [*MARKS.items(), ("utf-16-be", b"\0"), ("utf-16-le", first[:1] + b"\0")]
    wide = next((name for name, start in starts if first.startswith(start)), None)
    if wide:
        return wide
    try:
        for block in _blocks(path):
            block.decode()
    except UnicodeDecodeError:
        letters = any(block.translate(None, _CONTROLS) != block for block in _blocks(path))
        return "cp1252" if letters else "latin-1"
    return UTF_8


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines."""
    with pa.input_stream(str(path), compression="detect") as raw:
        rest = b""
        while block := raw.read(_BLOCK_BYTES):
            whole, end, rest = (rest + block).rpartition(b"\n")
            yield whole + end
        yield rest


def _missing_counts(cells: pd.Series) -> dict[str, int]:
    missing = cells[cells.isin(["", *_MISSING, *_words_among_numbers(cells)])]
    return {str(token): int(count) for token, count in missing.value_counts().items()}


def _words_among_numbers(cells: pd.Series) -> list[str]:
    """The words of a column of numbers or dates: ``unknown`` in any language.

    Each in several rows, and few of them, so that they are no slips and no categories.
    """
    counts = cells[~cells.isin(["", *_MISSING])].value_counts()
    texts = counts.index.to_series()
    words = counts[~texts.str.contains("[0-9]", regex=True)]
    numbers = texts.str.match(STARTS_AS_NUMBER).sum()
    few = len(words) <= _MOST_WORDS and len(words) + numbers == len(counts)
    if not few or numbers < columns.FEWEST_NUMBERS or (words < _FEWEST_ROWS).any():
        return []
    return [str(word) for word in words.index]


def _by_frequency(counts: Iterable[dict[str, int]]) -> list[str]:
    """The missing texts that occur, the most frequent first, and the empty cell at last."""
    total = Counter({"": 0})
    for tokens in counts:
        total.update(tokens)
    ordered = sorted(total, key=lambda token: -total[token])
    return [token for token in ordered if total[token] or token == ""]


_MOST_CELLS = 25_000_000
"""Cells of a Parquet file at most: a draft takes about 140 bytes and 2 microseconds for each."""

_ATTRIBUTE: TypeAdapter[AnyAttribute] = TypeAdapter(AnyAttribute)

INTRO = """\
# Drafted from {source}; it holds values of the data, so keep it as private as the data. A single
# row may have decided any of it, so a release refuses it until a person has declared it from what
# is known without looking at the data (a code book, a law, a form). Each line says why it was
# guessed, and what to check:
# - unconfirmed: read through what it names, correct it, then delete the word, or the whole line to
#   confirm all.
# - data-derived: correct the line, bounds and values first, and write in place of data-derived
#   where they are known from.{measured}
name: {name}
{about}"""
"""What drafts of files begin with."""

_MEASURED = """\
 What is not known stays data-derived and is measured with noise, at a
#   charge: cloister spec measure."""

_HEAD = """\
source: {{{source_keys}}}{header}
unconfirmed: {unconfirmed} # delete once read through
ignore: {ignore} # columns to leave out; a draft names those without a value or a name, or of lists
privacy:
  unit: row # or {{key: COLUMN, max_rows: NUMBER}} when one person may own several rows
  relation: add_remove
  rows: {{measured: true}} # or {{public: NUMBER}} when the number of rows is no secret
  budget: {{epsilon: 10, delta: 1e-6, per: year}} # of all releases, and of a measurement
attributes:
"""

UNNAMED = " # the first line is a row: write names in header, and the same under attributes"

_FOOT = """\
constraints: [] # such as {{fd: zip -> city}} or {{deny: "t1.start > t1.end"}}
{proposals}release: {{method: auto, epsilon: 1, delta: 1e-7}}
{target}"""

_TARGET = """\
# Declare what analysts predict from the other columns, and a release counts how it depends on
# each of them. If it is this column, as its place and its two values suggest, delete the first #.
# evaluation: {{targets: {{{name}: {positive}}}}} # the rarer of its values counts as positive
"""

_PROPOSALS = """\
# All rows agree with these. Those that are rules of the matter, and no chance, declare in place of
# [] above: delete it, and their first #; and write in place of data-derived where the rule is known
# from without the data, such as a law or a form: until then a release refuses it.
"""


def draft(path: Path) -> str:
    """The YAML text of a drafted spec for a CSV or Parquet file; ``load_spec`` reads it.

    Raises:
        StorageError: the file cannot be read.
        DataError: no header, no rows, doubled columns, no column with a value.
    """
    file, name = read_file(path), table_name(path)
    guesses = {column: guess(cells) for column, cells in file.known.items()}
    intro = INTRO.format(source=json.dumps(path.name), name=name, about=ABOUT, measured=_MEASURED)
    head = _HEAD.format(
        source_keys=entries(file.source),
        header=UNNAMED * ("header" in file.source),
        unconfirmed=flow(file.facts),
        ignore=flow(file.ignored),
    )
    lines = "".join(attribute_line(name, guessed) for name, guessed in guesses.items())
    plain = pd.DataFrame({name: cells.plain for name, cells in file.columns.items()})
    hints = "".join(proposals.reference_hints(plain, guesses, name, file.source))
    target = _proposed_target(file.known, guesses)
    rules = with_words(proposed_rules(file.known, guesses))
    return intro + head + lines + _FOOT.format(proposals=rules + hints, target=target)


def read_file(path: Path) -> DraftedFile:
    """The columns of a CSV or Parquet file.

    Raises:
        StorageError: the file cannot be read.
        DataError: no header, no rows, doubled columns, no column with a value.
    """
    read = drafted_csv if stored_files.table_format(path) == "csv" else _drafted_parquet
    with stored_files.guarded_reading(path):
        file = read(path)
    if not any(len(cells.written) for cells in file.columns.values()):
        raise DataError(f"{path} has no rows; give a table with rows")
    if not file.known:
        raise DataError(f"{path} has no column with a name and a value; give a table with some")
    return file


def table_name(path: Path) -> str:
    """What a draft calls a file: a name that a dataset and a table may have."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", path.name.partition(".")[0]).lstrip("._-") or "dataset"


def _proposed_target(cells_of: Mapping[str, ColumnCells], guesses: Mapping[str, Guess]) -> str:
    """One column of two values that may be what is predicted, commented out; nothing without any.

    The last column if it is one, else the first, else the last of those inside.
    """
    names = list(cells_of)
    for name in (names[-1], names[0], *reversed(names)):
        counts = cells_of[name].known.value_counts()
        if len(counts) == 2 and guesses[name].keys["type"] in ("boolean", "categorical"):
            positive = flow([str(counts.index[-1])])
            return _TARGET.format(name=scalar(name), positive=positive)
    return ""


def proposed_rules(cells_of: Mapping[str, ColumnCells], guesses: Mapping[str, Guess]) -> list[str]:
    """Entries of ``constraints`` that all rows obey."""
    values = {name: _values(cells, guesses[name]) for name, cells in cells_of.items()}
    typed = {name: series for name, series in values.items() if series is not None}
    frame = pd.DataFrame({name: typed.get(name, cells.plain) for name, cells in cells_of.items()})
    return [
        *proposals.presence_proposals(frame, guesses),
        *proposals.dependency_proposals(frame, guesses),
        *proposals.order_proposals(typed, guesses),
    ]


def with_words(rules: Sequence[str]) -> str:
    """Rules commented out, and what to do with them; empty without any."""
    return _PROPOSALS + "".join(f"#  - {rule}\n" for rule in rules) if rules else ""


def _values(cells: ColumnCells, guessed: Guess) -> pd.Series | None:
    """The values (n,) of a column that is guessed to be of numbers, dates or moments."""
    if guessed.keys["type"] not in ("integer", "float", "date", "datetime"):
        return None
    attribute = _ATTRIBUTE.validate_python(guessed.keys)
    numeric = isinstance(attribute, Integer | Float)
    typed, invalid = parse(cells.plain if numeric else cells.written, attribute)
    return None if invalid.any() else typed


def _drafted_parquet(path: Path) -> DraftedFile:
    names = parquet_files.parquet_names(path)
    require_columns(names, names, str(path))
    nested = parquet_files.nested_names(path)
    plain = [name for name in names if name not in nested]
    _require_modest_parquet(path, plain)
    frame = parquet_files.read_native(path, plain)
    decimals = frame.columns[[pt.is_object_dtype(kind) for kind in frame.dtypes]]
    frame = frame.assign(**{name: texts(frame[name]) for name in decimals})
    times = parquet_files.time_dtypes(path)
    stored = {
        name: ColumnCells(name, frame[name], frame[name], stored=times.get(name)) for name in plain
    }
    return DraftedFile({"path": str(path)}, stored, _NATIVE_FACTS, tuple(nested))


def _require_modest_parquet(path: Path, names: list[str]) -> None:
    cells = parquet_files.parquet_rows(path) * len(names)
    if cells > _MOST_CELLS or parquet_files.is_larger_unpacked(path, names, MOST_BYTES):
        raise DataError(
            f"{path} has more than {_MOST_CELLS:,} cells, or {MOST_BYTES >> 20:,} MiB unpacked; "
            "a draft reads all of them, so give a file of fewer rows, or of shorter cells"
        )


def attribute_line(name: str, guess: Guess) -> str:
    """The line of an attribute."""
    return f"  {scalar(name)}: {{{entries(guess.keys)}}} # {guess.why}\n"
