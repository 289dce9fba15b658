"""The dialect of a CSV file, guessed from its bytes and cells: encoding, delimiter, marks, words.

Privacy: one row may decide any of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from cloister.errors import DataError
from cloister.schema.drafts.number_marks import (
    distinct_cells,
    has_foreign_marks,
    in_plain_marks,
    likeliest_marks,
)
from cloister.schema.drafts.written_forms import FEWEST_NUMBERS, guess_unit, numbers_alone
from cloister.schema.sources.files.csv_files import csv_header, read_text
from cloister.schema.sources.files.encodings import MARKS, UTF_8
from cloister.schema.sources.required_columns import DELIMITERS, require_columns
from cloister.schema.spec import SourceSpec
from cloister.schema.values.number_formats import NO_UNIT, Unit

_MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "NaN", "nan", "?", " ?", "-", ".")
"""Texts that usually stand for a missing value; the empty cell always does."""

_MOST_WORDS = 3
"""Words beside the numbers or dates of a column at most, for them to stand for missing values."""

_FEWEST_ROWS = 3
"""Rows of each such word at least: fewer may be slips, which are remarked."""

MOST_BYTES = 1 << 30
"""Bytes of a file at most, unpacked: drafts hold all cells, and Arrow's texts end at twice that."""

_BLOCK_BYTES = 1 << 20
"""Bytes of a file that are looked at together."""

_CONTROLS = bytes(range(0x80, 0xA0))
"""Bytes that are letters in cp1252, and nothing in Latin-1."""


@dataclass(frozen=True)
class DraftedFile:
    """The cells of a file, and the keys of the source that read them so.

    ``plain`` holds the cells with numbers as ``1234.5``, ``written`` as they are in the file; in
    both the ``missing`` texts are missing, and only the latter has units: those of ``units``.
    ``tokens`` is the usual missing text of each column. ``nested`` are columns without single
    values, which are in none of them; ``times`` are the dtypes of columns of times of day, of
    lengths of time and of moments in a zone.
    """

    source: dict[str, Any]
    written: pd.DataFrame
    plain: pd.DataFrame
    tokens: dict[str, str]
    units: dict[str, Unit] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()


def drafted_csv(path: Path) -> DraftedFile:
    """The cells of a CSV file, in the dialect that fits them best.

    Raises:
        OSError: the file cannot be read.
        DataError: no header, doubled columns, ragged rows.
    """
    _require_draftable(path)
    encoding = _encoding(path)
    delimiter = max(DELIMITERS, key=lambda mark: len(csv_header(path, mark, encoding)))
    names = csv_header(path, delimiter, encoding)
    require_columns(names, list(dict.fromkeys(names)), str(path))
    dialect = {"path": str(path), "delimiter": delimiter, "encoding": encoding}
    cells = read_text(path, SourceSpec(**dialect, missing=()), names)
    counts = {name: _missing_counts(cells[name]) for name in names}
    missing = _by_frequency(counts.values())
    written = cells.mask(cells.isin(missing))
    units = {name: guess_unit(distinct_cells(written[name])) for name in names}
    alone = {name: numbers_alone(written[name], unit) for name, unit in units.items()}
    decimal, thousands = likeliest_marks(list(alone.values()), delimiter)
    dialect |= {"decimal": decimal} | ({"thousands": thousands} if thousands else {})
    source = SourceSpec(**dialect, missing=tuple(missing))
    return DraftedFile(
        dialect | {"missing": missing},
        written,
        pd.DataFrame({name: in_plain_marks(cells, source) for name, cells in alone.items()}),
        {name: max(found, key=found.__getitem__) for name, found in counts.items() if found},
        {name: unit for name, unit in units.items() if unit != NO_UNIT},
        foreign=tuple(name for name in names if has_foreign_marks(alone[name], source)),
    )


def _require_draftable(path: Path) -> None:
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
    wide = _wide_encoding(next(_blocks(path)))
    if wide:
        return wide
    try:
        for block in _blocks(path):
            block.decode()
    except UnicodeDecodeError:
        letters = any(block.translate(None, _CONTROLS) != block for block in _blocks(path))
        return "cp1252" if letters else "latin-1"
    return UTF_8


def _wide_encoding(first: bytes) -> str | None:
    """UTF-16 of a file's first bytes, by its mark or the empty half of an ASCII letter."""
    marked = (name for name, mark in MARKS.items() if first.startswith(mark))
    halves = {"utf-16-be": first[:1], "utf-16-le": first[1:2]}
    empty = (name for name, half in halves.items() if half == b"\0")
    return next(chain(marked, empty), None)


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks of whole lines."""
    with pa.input_stream(str(path), compression="detect") as raw:
        rest = b""
        while block := raw.read(_BLOCK_BYTES):
            whole, end, rest = (rest + block).rpartition(b"\n")
            yield whole + end
        yield rest


def _missing_counts(cells: pd.Series) -> dict[str, int]:
    found = cells[cells.isin(["", *_MISSING, *_words_among_numbers(cells)])].value_counts()
    return {str(token): int(count) for token, count in found.items()}


def _words_among_numbers(cells: pd.Series) -> list[str]:
    """The words of a column of numbers or dates: ``unknown`` in any language.

    Each in several rows, and few of them, so that they are no slips and no categories.
    """
    counts = cells[~cells.isin(["", *_MISSING])].value_counts()
    texts = counts.index.to_series()
    words = counts[~texts.str.contains("[0-9]", regex=True)]
    numbers = texts.str.match(r"\s*\(?[+-]?(?:[$€£¥]\s?)?[.,]?[0-9]").sum()
    few = len(words) <= _MOST_WORDS and len(words) + numbers == len(counts)
    if not few or numbers < FEWEST_NUMBERS or (words < _FEWEST_ROWS).any():
        return []
    return [str(word) for word in words.index]


def _by_frequency(counts: Iterable[dict[str, int]]) -> list[str]:
    """The missing texts that occur, the most frequent first, and the empty cell at last."""
    total = Counter({"": 0})
    for found in counts:
        total.update(found)
    ordered = sorted(total, key=lambda token: -total[token])
    return [token for token in ordered if total[token] or token == ""]
