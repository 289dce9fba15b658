"""Tables drafted together: which of their keys a spec can hold, the unit, and their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloister.schema.drafts.checks import CheckFacts
from cloister.schema.drafts.columns import names_a_person, names_persons
from cloister.schema.spec_files.yaml_text import entries, scalar

_MOST_LINKED = 2
"""References of a hard key at most: a link between rows of two tables."""

_CIRCLE = (
    "references would go in a circle, in which no table is drawn first; to keep it, leave out "
    "another reference of the circle"
)


@dataclass(frozen=True)
class DraftedKey:
    """A foreign key: columns that name a row of ``table`` by its columns ``to``."""

    columns: tuple[str, ...]
    table: str
    to: tuple[str, ...]

    def __str__(self) -> str:
        return f"foreign key ({', '.join(self.columns)}) to {self.table} ({', '.join(self.to)})"


@dataclass(frozen=True)
class DraftedTable:
    """A table with its keys, and what of it a spec can hold.

    ``columns`` have a ``name`` each, and may be ``nullable``. ``checks`` are what its CHECK
    constraints say, ``primary`` and ``unique`` the sets of columns that no two rows agree on.
    ``most_rows`` are how many may refer to the same row by a column, where that is known.
    ``references`` are single columns with the table and the key that they name; ``left_out`` says
    in words which foreign keys are none, why, and what to do.
    """

    name: str
    columns: Sequence[Mapping[str, Any]]
    primary: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    foreign: tuple[DraftedKey, ...]
    checks: CheckFacts = field(default_factory=CheckFacts)
    most_rows: Mapping[str, int] = field(default_factory=dict)
    references: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """The one column of the primary key, unless it refers to another table."""
        alone = len(self.primary) == 1 and self.primary[0] not in self.references
        return self.primary[0] if alone else None

    @property
    def names_persons(self) -> bool:
        """Whether the table, or its key, is named as persons are."""
        return names_persons(self.name) or (self.key is not None and names_a_person(self.key))

    @property
    def keyed(self) -> set[str]:
        """The columns that are drafted as keys: those that refer, and the key."""
        return {*self.references, *([self.key] if self.key else [])}

    @property
    def identifiers(self) -> set[str]:
        """Columns that tell rows apart each on its own, and refer to none."""
        return {key[0] for key in self.unique if len(key) == 1} - self.keyed

    def is_one_to_one(self, column: str) -> bool:
        """Whether no two rows refer by ``column`` to the same row."""
        return (column,) in (self.primary, *self.unique)

    def hard_keys(self) -> Iterator[tuple[str, ...]]:
        """The keys of several columns that hold as rules: of two references, or of none."""
        return (key for key in self._wide() if self._is_rule(key))

    def lost_keys(self) -> Iterator[str]:
        """In words, the keys of several columns that are no rules, and what follows."""
        for key in self._wide():
            if not self._is_rule(key):
                kind = "primary key" if key == self.primary else "unique key"
                yield (
                    f"{kind} ({', '.join(key)}) is not kept: a key with a reference is one of two "
                    "references and nothing else; rows may repeat it, so number them anew if needed"
                )

    def _wide(self) -> list[tuple[str, ...]]:
        """Keys of several columns, none of which tells rows apart alone."""
        alone = {*self.identifiers, self.key}
        keys = dict.fromkeys((self.primary, *self.unique))
        return [key for key in keys if len(key) > 1 and not alone & set(key)]

    def _is_rule(self, key: tuple[str, ...]) -> bool:
        referring = len(set(key) & set(self.references))
        return not referring or referring == len(key) == _MOST_LINKED


def linked_tables(unlinked: Sequence[DraftedTable]) -> list[DraftedTable]:
    """Tables, each after those that it refers to; of a circle one reference is left out."""
    tables: dict[str, DraftedTable] = {}
    names = [table.name for table in unlinked]
    for table in _parents_first(list(unlinked)):
        tables[table.name] = _with_references(table, tables, names)
    return list(tables.values())


def _parents_first(tables: list[DraftedTable]) -> list[DraftedTable]:
    ordered: list[DraftedTable] = []
    while waiting := [table for table in tables if table not in ordered]:
        names = {table.name for table in waiting}
        ready = [
            table
            for table in waiting
            if not names & {key.table for key in table.foreign if key.table != table.name}
        ]
        ordered += ready or [min(_circle(waiting), key=_never_missing)]
    return ordered


def _circle(waiting: list[DraftedTable]) -> list[DraftedTable]:
    """Tables that refer to each other in a circle, where each refers to one that waits."""
    by_name = {table.name: table for table in waiting}
    path = [waiting[0].name]
    while True:
        table = by_name[path[-1]]
        to = next(k.table for k in table.foreign if k.table in by_name and k.table != table.name)
        if to in path:
            return [by_name[name] for name in path[path.index(to) :]]
        path.append(to)


def _never_missing(table: DraftedTable) -> int:
    """How many columns that refer to other tables are never missing."""
    referring = {name for key in table.foreign if key.table != table.name for name in key.columns}
    return sum(column["name"] in referring and not column["nullable"] for column in table.columns)


def _with_references(
    table: DraftedTable, parents: dict[str, DraftedTable], names: Sequence[str]
) -> DraftedTable:
    """The table with those of its foreign keys that a spec can hold, and words on the others.

    A key of several columns may hold a single one: stays are numbered within their patient, so what
    names a stay by both names a patient too.
    """
    references: dict[str, tuple[str, str]] = {}
    left_out: list[str] = []
    for key in sorted(table.foreign, key=lambda key: len(key.columns)):
        if key.table not in names:
            left_out.append(f"{key} is not kept: that table is not drafted")
        elif key.table not in {*parents, table.name}:
            left_out.append(f"{key} is not kept: {_CIRCLE}")
        elif len(key.columns) > 1:
            passed = _passed_on(key, parents) if key.table != table.name else {}
            references = passed | references
            left_out.append(_not_kept(key, passed))
        elif key.columns[0] in references:
            left_out.append(f"{key} is not kept: a column refers to one table; choose which")
        elif above := _passed_on(key, parents):
            references |= above
            to = above[key.columns[0]][0]
            left_out.append(f"{key} is kept as one to {to}, to which that column refers itself")
        elif (named := (parents | {table.name: table})[key.table].key) not in (None, key.to[0]):
            left_out.append(f"{key} is not kept: rows are named by the key of their table, {named}")
        else:
            references[key.columns[0]] = (key.table, key.to[0])
    return replace(table, references=references, left_out=tuple(left_out))


def _passed_on(key: DraftedKey, parents: Mapping[str, DraftedTable]) -> dict[str, tuple[str, str]]:
    """What single columns of a wide key refer to, since those that they name do."""
    referring = parents[key.table].references if key.table in parents else {}
    pairs = zip(key.columns, key.to, strict=True)
    return {column: referring[named] for column, named in pairs if named in referring}


def _not_kept(key: DraftedKey, passed: Mapping[str, tuple[str, str]]) -> str:
    columns = " and ".join(f"{column}, which refers to {to}" for column, (to, _) in passed.items())
    what = f"only {columns}, is kept of it" if columns else "its rows are not protected with those"
    return (
        f"{key} is not kept: a reference is one column; {what}; to keep it, number the rows of "
        f"{key.table} in one column, in a view of both tables"
    )


ABOUT = """\
# about: # what the certificate says first, in your words; public, and all of it optional
#   curator: # who answers for the data
#   curator_type: # government, industry or nonprofit
#   contact: # where questions go
#   purpose: # why the release is made
#   intended_use: # what it may be used for, and what not
#   region: # where the people live, or whose law applies
#   sector: # such as healthcare, education, finance
#   access: # who gets the synthetic table, and on what terms
#   why_epsilon: # how the budget was chosen, and by whom
#   preparation: # what was done to the data before, such as cleaning or joining
#   exploration: # who looked at the data before, and whether that was accounted for
#   tuning: # how method and parameters were chosen, and on which data
"""
"""A template of what a curator may say, commented out."""

PRIVACY = """\
privacy:
  unit: {unit}
  relation: add_remove
  rows: {{measured: true}} # write {{public: NUMBER}}
  budget: {{epsilon: 10, delta: 1e-6, per: year}} # of all releases, and of a measurement
"""

FOOT = "release: {method: auto, epsilon: 1, delta: 1e-7}\n"

_ANY_ROW = (
    "row # of any table: rows that may refer to none are part of no other unit; {table: NAME} if "
    "these columns are never missing"
)
_UNRELATED = "row # of any table, since none refers to another"
_WHOSE = "whose rows are protected, with all that refer to them"
_MAX_ROWS = 10
"""Rows that may refer to the same one, until a person has written another number."""


@dataclass(frozen=True)
class TableText:
    """What a draft says of one of several tables beside its keys.

    ``source`` are the keys of its source; ``rules``, ``ignored`` and ``attributes`` are lines.
    """

    source: Mapping[str, Any]
    rules: Sequence[str]
    ignored: Sequence[str]
    attributes: Sequence[str]


def text_of_tables(
    head: str, tables: Mapping[str, DraftedTable], texts: Mapping[str, TableText]
) -> str:
    """The text of a spec of several tables, parents first; ``head`` precedes ``privacy``."""
    listed = list(tables.values())
    below = _below(listed)
    units = _units(listed, below)
    counted, declared = listed[0], _ANY_ROW if units else _UNRELATED
    if units and not _is_lost(units[0], listed):
        counted, declared = units[0], _unit_words(units, below)
    parts = (
        line
        for name, table in tables.items()
        for line in _part(table, table is counted, tables, texts[name])
    )
    return head + PRIVACY.format(unit=declared) + "tables:\n" + "".join(parts) + FOOT


def _part(
    table: DraftedTable, is_unit: bool, tables: Mapping[str, DraftedTable], text: TableText
) -> Iterator[str]:
    referred = {
        to[1] for each in tables.values() for to in each.references.values() if to[0] == table.name
    }
    yield f"  {scalar(table.name)}:\n"
    yield f"    source: {{{entries(text.source)}}}\n"
    if not is_unit:
        yield "    rows: {measured: true} # write {public: NUMBER}\n"
    if key := table.key or next(iter(sorted(referred)), None):
        yield f"    key: {scalar(key)}\n"
    if table.references:
        yield "    references:\n"
    for column, (to, _) in table.references.items():
        most = 1 if table.is_one_to_one(column) else table.most_rows.get(column, _MAX_ROWS)
        keys = entries({"table": to, "max_rows": most})
        yield f"      {scalar(column)}: {{{keys}}} # the most rows that may refer to the same\n"
    yield from (*text.rules, *text.ignored)
    yield "    attributes:\n"
    yield from text.attributes


def _units(tables: Sequence[DraftedTable], below: Mapping[str, set[str]]) -> list[DraftedTable]:
    """The tables to which others belong, the likeliest unit first.

    Those of persons before those that refer to no other; of these, the ones to which most others
    refer, directly or not.
    """
    parents = [table for table in tables if below[table.name] - {table.name}]
    roots = [
        table for table in parents if all(to == table.name for to, _ in table.references.values())
    ]
    units = [table for table in parents if table.names_persons or table in roots] or parents
    return sorted(units, key=lambda each: (not each.names_persons, -len(below[each.name])))


def _below(tables: Sequence[DraftedTable]) -> dict[str, set[str]]:
    """The tables that refer to each one, directly or not."""
    below: dict[str, set[str]] = {table.name: set() for table in tables}
    for table in reversed(tables):
        for to, _ in table.references.values():
            below[to] |= {table.name, *below[table.name]}
    return below


def _unit_words(units: Sequence[DraftedTable], below: Mapping[str, set[str]]) -> str:
    """The unit, why it was guessed, and which other tables may be meant."""
    unit, *rivals = units
    of = {each.name: ", ".join(sorted(below[each.name] - {each.name})) for each in units}
    why = "it is named as persons are" if unit.names_persons else "it refers to no other table"
    lines = [
        f"{{table: {scalar(unit.name)}}} # {_WHOSE}",
        f"  # guessed: to {unit.name} belong rows of {of[unit.name]}, and {why}",
        *(
            f"  # or {{table: {scalar(each.name)}}}, to which rows of {of[each.name]} belong"
            for each in rivals
        ),
    ]
    return "\n".join(lines)


def _is_lost(unit: DraftedTable, tables: Sequence[DraftedTable]) -> bool:
    """Whether rows may lack the one reference that makes them part of a unit."""
    names, before = {unit.name}, 0
    while before != len(names):
        before = len(names)
        names |= {table.name for table in tables if _refers(table, names, nullable=False)}
    return any(_refers(table, names, nullable=True) for table in tables if table.name not in names)


def _refers(table: DraftedTable, to: set[str], nullable: bool) -> bool:
    missing = {column["name"] for column in table.columns if column["nullable"]}
    return any(
        parent in to and (column in missing) == nullable
        for column, (parent, _) in table.references.items()
    )
