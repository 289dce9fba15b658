"""Reading is row by row: a cell's value depends on the cell, its storage type and the spec alone.

The law, for every attribute type, source and ``on_invalid``: reading the rows a and b gives what
reading a and reading b gives, bit for bit. It is tested in its strongest form: reading any rows
gives what reading each cell alone gives. Each column of a drawn file is a table of its own, so that
10^5 tables cost minutes.
"""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cells import NULLABLE, TEXTS, TYPES, Cells, spec_of
from examples import examples, few
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_cells import SOURCES, Source
from validated_rows import validate_rows

from cloister.schema.domain import Domain
from cloister.schema.parsing import parse

# One-column tables of the slow test, over all sources and types.
TABLES = int(os.environ.get("CLOISTER_TEST_TABLES", "100000"))


@dataclass(frozen=True)
class Alone:
    """What a cell becomes in a table of its own, and whether it lies in its domain."""

    cell: tuple[str, str, int]
    valid: bool


class SourceReading:
    """The reading of one source, and of each of its cells alone, remembered."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.alone: dict[tuple[str, int], Alone] = {}

    def of(
        self, on_invalid: str, names: list[str], columns: list[Cells]
    ) -> tuple[pd.DataFrame, Any, set[str]]:
        """The typed frame, the codes and the columns with findings of a table of attributes."""
        attributes = {f"c{at}": NULLABLE[name] for at, name in enumerate(names)}
        mark = {"type": "text", "pattern": "M{1..9}", "nullable": True}
        spec = spec_of(on_invalid, attributes | {"mark": mark})
        marks = [self.source.pool[0]] * len(columns[0])
        frame, report = validate_rows(self.source.read(spec, [*columns, marks], self.folder), spec)
        table = Domain.of(spec.attributes, Path()).encode(frame)
        return frame, table.codes, {finding.column for finding in report.findings}

    def remember_all(self, names: list[str], places: set[int]) -> None:
        """Read cells of the pool as each attribute, each in a table of one row."""
        for at in sorted(places):
            wanted = [name for name in dict.fromkeys(names) if (name, at) not in self.alone]
            if wanted:
                cells = [[self.source.pool[at]] for _ in wanted]
                frame, codes, found = self.of("clip", wanted, cells)
                for number, name in enumerate(wanted):
                    column = f"c{number}"
                    cell = self._cell(frame, codes, column, 0)
                    self.alone[name, at] = Alone(cell, column not in found)

    def law(self, on_invalid: str, names: list[str], places: list[list[int]]) -> int:
        """The number of one-column tables whose rows, read together, are what cells are alone."""
        self.remember_all(names, {at for column in places for at in column})
        kept = self._kept(on_invalid, names, places)
        if not kept:
            return 0
        columns = [[self.source.pool[at] for at in column] for column in places]
        frame, codes, _ = self.of(on_invalid, names, columns)
        assert len(frame) == len(kept)
        for column, name in enumerate(names):
            expected = [self.alone[name, places[column][row]].cell for row in kept]
            found = [self._cell(frame, codes, f"c{column}", row) for row in range(len(kept))]
            said = self.source.name, name, [columns[column][row] for row in kept]
            assert found == expected, said
        return len(names)

    def _kept(self, on_invalid: str, names: list[str], places: list[list[int]]) -> list[int]:
        """The rows to be kept: all under ``clip``, else those in which each cell alone is kept."""
        named = list(zip(names, places, strict=True))
        return [
            row
            for row in range(len(places[0]))
            if on_invalid == "clip"
            or all(self.alone[name, column[row]].valid for name, column in named)
        ]

    @staticmethod
    def _cell(frame: pd.DataFrame, codes: Any, column: str, row: int) -> tuple[str, str, int]:
        return repr(frame[column].iloc[row]), str(frame[column].dtype), int(codes[column][row])


def tables(reading: SourceReading, count: int, seed: int, longest: int = 6) -> int:
    """Check the law on at least ``count`` one-column tables, under each ``on_invalid``."""
    rng, checked = random.Random(seed), 0
    pool = range(len(reading.source.pool))
    while checked < count:
        some = [rng.choice(pool) for _ in range(8)]
        rows = rng.randint(2, longest)
        places = [[rng.choice(some) for _ in range(rows)] for _ in TYPES]
        checked += reading.law("clip", TYPES, places)
        for on_invalid in ("drop", "fail"):
            tidy = [
                _tidied(reading, name, column, on_invalid, rng)
                for name, column in zip(TYPES, places, strict=True)
            ]
            usable = {name: column for name, column in zip(TYPES, tidy, strict=True) if column}
            if usable:
                checked += reading.law(on_invalid, list(usable), list(usable.values()))
    return checked


def _tidied(
    reading: SourceReading, name: str, column: list[int], on_invalid: str, rng: random.Random
) -> list[int]:
    """The cells, those that are invalid alone exchanged for valid ones; a few left under drop."""
    valid = [at for at in column if reading.alone[name, at].valid]
    if not valid:
        return []
    ugly = 0.1 if on_invalid == "drop" else 0.0
    return [at if at in valid or rng.random() < ugly else rng.choice(valid) for at in column]


@pytest.mark.parametrize("source", few(SOURCES, 36), ids=lambda source: source.name)
def test_rows_read_together_are_what_their_cells_are_alone(source: Source, tmp_path: Path) -> None:
    reading = SourceReading(source, tmp_path)
    rng = random.Random(source.name)
    some, places = rng.sample(TYPES, 3), [rng.randrange(len(source.pool)) for _ in range(2)]
    assert reading.law("clip", some, [places] * len(some)) == len(some)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_rows_read_together_are_what_their_cells_are_alone_at_length(source, tmp_path):
    most = TABLES // len(SOURCES)
    assert tables(SourceReading(source, tmp_path), most + 1, seed=1) >= most


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(15))
@given(cells=st.lists(st.text() | st.sampled_from(TEXTS), min_size=1, max_size=6))
def test_any_texts_are_parsed_each_on_its_own_and_stay_what_they_become(name, cells):
    attribute = spec_of("clip", {"c": NULLABLE[name]}).attributes["c"]
    typed, invalid = parse(pd.Series(cells, dtype=object), attribute)
    alone = [parse(pd.Series([cell], dtype=object), attribute) for cell in cells]
    pd.testing.assert_series_equal(typed, pd.concat([one for one, _ in alone], ignore_index=True))
    assert invalid.tolist() == [bool(mask[0]) for _, mask in alone]
    again, none = parse(typed, attribute)
    pd.testing.assert_series_equal(again, typed)
    assert not none.any()
