"""Several files drafted together: their keys, and the columns that refer to them, by their rows.

A key has another value in each row. A column refers to it if its values are among those of the key,
but for a few rows, and that is no chance: they are texts, or its name says so, or the keys lie too
far apart for other numbers to be among them, or nearly all keys are named.

Privacy: a draft holds facts of the data, and one row may decide any of them: ``unconfirmed`` names
``keys``, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from cloister.errors import InputError
from cloister.schema.attributes import DATA_DERIVED
from cloister.schema.drafts import cases, columns, drafted_tables, drafting, proposals
from cloister.schema.spec_files.foreign_keys import TAKEN
from cloister.schema.spec_files.yaml_text import flow

_MOST_ORPHANS = 0.05
"""Share of rows at most that name no row: of more, the column is another one."""

_FEWEST_NAMED = 5
"""Different texts at least that are among keys: fewer are by chance, as codes of one letter."""

_NEARLY_ALL = 0.9
"""Share of keys at least that plain numbers name, without a name that says so: an age is among the
numbers of persons, too, but names few of them."""

_HALF = 0.5
"""The same under a name of keys: numbers of visits are among those of patients, but few."""

_MOST_PAIRED = 12
"""Columns at most whose pairs are tried as a key."""

_LONGEST_NAME = 60
"""Letters of the name of the dataset, which a person shortens."""

_NEUTRAL = "K{000000001..999999999}"
"""The pattern of synthetic keys in place of texts that have none."""

_FIRST_ROWS = 2_000
"""Rows that rule out most pairs of columns, before all rows are compared."""

_MEASURED = ("float", "boolean")
"""Types that tell no rows apart."""

_LISTED = ("text", "integer", "categorical", "ordinal")
"""Types of what may be a key, or refer to one."""


@dataclass(frozen=True)
class _Column:
    """A column of a file: the ``texts`` (n,) of its known cells, of so many ``rows``."""

    table: str
    cells: columns.ColumnCells
    kind: str
    rows: int

    @property
    def name(self) -> str:
        return self.cells.name

    @cached_property
    def texts(self) -> pd.Series:
        return proposals.texts_of_keys(self.cells.known)

    @cached_property
    def counts(self) -> pd.Series:
        """The rows of each value."""
        return self.texts.value_counts()

    @cached_property
    def counted(self) -> bool:
        """Whether all values are whole numbers."""
        return bool(self.counts.index.str.fullmatch("[0-9]{1,18}").all())

    @property
    def complete(self) -> bool:
        return len(self.texts) == self.rows

    @cached_property
    def is_key(self) -> bool:
        """Whether rows may be named by the column: by their values, and its name or place."""
        if self.kind not in _LISTED or not self.complete or len(self.counts) < self.rows:
            return False
        named = columns.names_a_key(self.name) or columns.names_row_of(self.name, self.table)
        return self.kind == "text" or named or columns.names_a_code(self.name)


@dataclass(frozen=True)
class _Reference:
    """A column that refers to a key: ``inside`` are the rows of each of its values among the keys.

    ``orphans`` are the rows that name none. ``rivals`` are further tables that may be meant.
    """

    column: _Column
    key: _Column
    named: bool
    orphans: int
    inside: pd.Series
    rivals: tuple[str, ...] = ()

    @property
    def likelihood(self) -> tuple[bool, int, float]:
        """What tells it from other references of the column, the greatest first."""
        return self.named, -self.orphans, len(self.inside) / len(self.key.counts)

    @property
    def as_key(self) -> drafted_tables.DraftedKey:
        return drafted_tables.DraftedKey((self.column.name,), self.key.table, (self.key.name,))

    @property
    def most_rows(self) -> int:
        """The most rows that refer to the same one, rounded up."""
        return proposals.rounded_bound(int(self.inside.max()))

    @property
    def words(self) -> str:
        """Rows that name none, and tables that may be meant; empty without any."""
        said, name = [], self.column.name
        if self.orphans:
            lost = "leaves them out" if self.column.complete else "drops these references"
            rows = f"{self.orphans:,} of {len(self.column.texts):,} rows"
            said.append(f"{name}: {rows} name no row of {self.key.table}; a release {lost}")
        if self.rivals:
            said.append(f"{name}: its values are among the keys of {', '.join(self.rivals)}, too")
        return "; ".join(said)


def draft_files(paths: Sequence[Path]) -> str:
    """The YAML text of a drafted spec of several tables, each a CSV or Parquet file.

    Raises:
        InputError: two files have one name.
        StorageError: a file cannot be read.
        DataError: a file has no header, no rows, doubled columns, or no column with a value.
    """
    files = {_table_name(path): drafting.read_file(path) for path in paths}
    if len(files) < len(paths):
        raise InputError("two files would be tables of one name; rename one of them")
    guesses = {
        table: {name: cases.guess(cells) for name, cells in file.known.items()}
        for table, file in files.items()
    }
    every = [
        _Column(table, cells, guesses[table][name].keys["type"], len(cells.written))
        for table, file in files.items()
        for name, cells in file.known.items()
    ]
    tables = {each.name: each for each in _tables(every)}
    facts = dict.fromkeys((*(fact for file in files.values() for fact in file.facts), "keys"))
    head = drafting.INTRO.format(
        source=f"{len(paths)} files",
        name="-".join(files)[:_LONGEST_NAME],
        about=drafted_tables.ABOUT,
        measured="",
    )
    head += f"unconfirmed: {flow(list(facts))} # delete once read through\n"
    texts = {
        name: _text(files[name], _with_keys(table, every, guesses), table)
        for name, table in tables.items()
    }
    return drafted_tables.text_of_tables(head, tables, texts)


def _table_name(path: Path) -> str:
    name = drafting.table_name(path)
    return f"{name}-rows" if name in TAKEN else name


def _tables(every: Sequence[_Column]) -> list[drafted_tables.DraftedTable]:
    """The tables with their keys and references, each after those that it refers to."""
    names = list(dict.fromkeys(column.table for column in every))
    chosen = list(_references(every, names))
    tables = []
    for name in names:
        of_table = [column for column in every if column.table == name]
        referring = {each.column.name: each for each in chosen if each.column.table == name}
        referred = [each.key.name for each in chosen if each.key.table == name]
        tables.append(
            drafted_tables.DraftedTable(
                name,
                [{"name": each.name, "nullable": not each.complete} for each in of_table],
                _primary(of_table, referring, referred),
                (),
                tuple(each.as_key for each in referring.values()),
                most_rows={column: each.most_rows for column, each in referring.items()},
                remarks=tuple(each.words for each in referring.values() if each.words),
            )
        )
    return drafted_tables.linked_tables([_with_wide(table, tables, every) for table in tables])


def _references(every: Sequence[_Column], names: Sequence[str]) -> Iterator[_Reference]:
    """The likeliest reference of each column that has one, with its rivals."""
    keys = [column for column in every if column.is_key]
    for column in every:
        options = [each for key in keys if (each := _reference(column, key, names))]
        options.sort(key=lambda each: each.likelihood, reverse=True)
        if options:
            first, *rivals = options
            alike = [each.key for each in rivals if each.named == first.named]
            yield replace(first, rivals=tuple(dict.fromkeys(key.table for key in alike)))


def _reference(column: _Column, key: _Column, names: Sequence[str]) -> _Reference | None:
    """What a column says of a key; None if it does not refer to it."""
    if column is key or column.kind not in _LISTED or not len(column.counts):
        return None
    inside = column.counts[column.counts.index.isin(key.counts.index)]
    orphans = len(column.texts) - int(inside.sum())
    if orphans > _MOST_ORPHANS * len(column.texts):
        return None
    if column.table == key.table:
        named = columns.names_another_row(column.name)
        if column.complete or not (named or _is_no_chance(column, key, inside)):
            return None
        return _Reference(column, key, named, orphans, inside)
    named = any(columns.names_row_of(column.name, name) for name in (key.table, key.name))
    twins = column.is_key and len(inside) == len(key.counts) == len(column.counts)
    if twins and names.index(column.table) < names.index(key.table):
        return None
    if named or (not (column.is_key and column.counted) and _is_no_chance(column, key, inside)):
        return _Reference(column, key, named, orphans, inside)
    return None


def _is_no_chance(column: _Column, key: _Column, inside: pd.Series) -> bool:
    """Whether values of another column, of that name, would not all be among those of a key."""
    if len(inside) < _FEWEST_NAMED:
        return False
    if not column.counted:
        return True
    numbers, keys = (np.sort(each.index.astype("int64")) for each in (inside, key.counts))
    first, last = int(numbers[0]), int(numbers[-1])
    if columns.public_range(column.name, first, last):
        return False
    among = int(np.searchsorted(keys, last, side="right") - np.searchsorted(keys, first))
    if len(numbers) * math.log(among / (last - first + 1)) <= proposals.CHANCE:
        return True
    part = len(inside) / len(key.counts)
    usual = len(inside) >= columns.FEWEST_KEYS and part >= _NEARLY_ALL
    return usual or (columns.names_a_key(column.name) and part >= _HALF)


def _primary(
    of_table: Sequence[_Column], referring: Collection[str], referred: Sequence[str]
) -> tuple[str, ...]:
    """The column to which most others refer, else the first key, else two columns together."""
    keys = [column.name for column in of_table if column.is_key]
    if keys:
        return (max(keys, key=lambda name: (referred.count(name), name not in referring)),)
    complete = [each for each in of_table if each.complete and each.kind not in _MEASURED]
    complete.sort(key=lambda each: each.name not in referring)
    pairs = combinations(complete[:_MOST_PAIRED], 2)
    together = next((pair for pair in pairs if _tell_rows_apart(*pair)), ())
    return tuple(column.name for column in of_table if column in together)


def _tell_rows_apart(first: _Column, second: _Column) -> bool:
    """Whether no two rows agree on two columns, and not by chance."""
    codes = [pd.factorize(each.texts)[0].astype(np.int64) for each in (first, second)]
    pairs = codes[0] * len(second.counts) + codes[1]
    rows = len(pairs)
    if len(np.unique(pairs[:_FIRST_ROWS])) < min(rows, _FIRST_ROWS) or len(np.unique(pairs)) < rows:
        return False
    alike = [float(np.square(each.counts / rows).sum()) for each in (first, second)]
    return -rows * (rows - 1) / 2 * math.prod(alike) <= proposals.CHANCE


def _with_wide(
    table: drafted_tables.DraftedTable,
    tables: Sequence[drafted_tables.DraftedTable],
    every: Sequence[_Column],
) -> drafted_tables.DraftedTable:
    """A table with its references of two columns, under the names of the key."""
    texts = {(column.table, column.name): column.texts for column in every}
    wide = []
    for parent in tables:
        names = parent.primary
        if (
            parent is table
            or len(names) < 2
            or any((table.name, each) not in texts for each in names)
        ):
            continue
        rows, keys = (
            pd.DataFrame({each: texts[name, each] for each in names}).dropna()
            for name in (table.name, parent.name)
        )
        if len(rows.drop_duplicates().merge(keys)) == len(rows.drop_duplicates()) > 0:
            wide.append(drafted_tables.DraftedKey(names, parent.name, names))
    return replace(table, foreign=(*table.foreign, *wide))


def _with_keys(
    table: drafted_tables.DraftedTable,
    every: Sequence[_Column],
    guesses: Mapping[str, Mapping[str, columns.Guess]],
) -> dict[str, columns.Guess]:
    """The guesses of a table, in which keys and what refers to them are declared alike."""
    cells = {(column.table, column.name): column.cells for column in every}
    declared = dict(guesses[table.name])
    if table.key:
        keys = _key_of(cells[table.name, table.key], declared[table.key])
        declared[table.key] = columns.Guess(keys, cases.ROW)
    for name, (to, key) in table.references.items():
        keys = _key_of(cells[to, key], guesses[to][key]) | cells[table.name, name].nullable
        declared[name] = columns.Guess(keys, f"refers to {to}, and is declared as its key")
    return declared


def _key_of(cells: columns.ColumnCells, guess: columns.Guess) -> columns.Keys:
    """The keys of a text key for the values of a column."""
    digits = cells.match("[0-9]{1,18}")
    width = int(proposals.texts_of_keys(cells.known).str.len().max())
    pattern = guess.keys.get("pattern") or (f"{{1..{'9' * width}}}" if digits else _NEUTRAL)
    whole = {"dtype": "Int64"} if digits and not cells.is_text else {}
    return {"type": "text", "pattern": pattern, **whole, "provenance": DATA_DERIVED}


def _text(
    file: drafting.DraftedFile,
    guesses: Mapping[str, columns.Guess],
    table: drafted_tables.DraftedTable,
) -> drafted_tables.TableText:
    """What the draft says of a table beside its keys."""
    remarks = [*table.remarks, *table.left_out, *table.lost_keys()]
    if "header" in file.source:
        remarks.append(drafting.UNNAMED.removeprefix(" # "))
    keys = [proposals.proposal("key", list(key)) for key in table.hard_keys()]
    rules = drafting.with_words([*keys, *drafting.proposed_rules(file.known, guesses)])
    lines = [*(f"# {each}" for each in remarks), "constraints: []", *rules.splitlines()]
    return drafted_tables.TableText(
        file.source,
        [f"    {line}\n" for line in lines],
        [f"    ignore: {flow(file.ignored)}\n"] * bool(file.ignored),
        [f"    {drafting.attribute_line(name, guess)}" for name, guess in guesses.items()],
    )
