"""A first spec for a database, from its schema alone: tables, keys, types, NOT NULL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cloister.errors import DataError, InputError, StorageError
from cloister.schema.attributes import DATA_DERIVED
from cloister.schema.declarations import quote
from cloister.schema.drafts import drafted_tables
from cloister.schema.drafts.checks import CheckFacts, read_checks
from cloister.schema.drafts.columns import Guess, Keys
from cloister.schema.drafts.drafting import draft
from cloister.schema.drafts.file_tables import draft_files
from cloister.schema.sinks import NOTES
from cloister.schema.sources.databases import connect
from cloister.schema.sources.files_and_urls import HIDE_IT, holds_password, is_url
from cloister.schema.spec_files.yaml_text import entries, flow, scalar

_HEAD = """\
# Drafted from the schema of a database; no row was read. What the schema does not say is marked
# data-derived, or measured, and a release refuses it until a person has declared it from what is
# known without looking at the data: bounds, lists of values, numbers of rows.
name: {name}
{about}"""

_ONE_UNIT = "row # or {key: COLUMN, max_rows: NUMBER} when one person may own several rows"
_SCHEMA = "schema of the database"
_LONGEST_KEY = 9
"""Digits of the numbers of synthetic keys, where the column holds as many."""

_DIGITS_OF_SMALL = 4
"""Digits that a SMALLINT holds, whatever they are."""


def draft_database(url: str, wanted: Sequence[str] = ()) -> str:
    """The YAML text of a drafted spec for the tables of a database, or for those that are wanted.

    Raises:
        InputError: a password stands in the URL.
        StorageError: the database cannot be reached.
        DataError: it has no such table, or none.
    """
    if holds_password(url):
        raise InputError(f"the URL {HIDE_IT}")
    with connect(url, "the schema of the database cannot be read") as connection:
        schema = sa.inspect(connection)
        tables = drafted_tables.linked_tables(
            [_reflected(schema, name) for name in _names(schema, wanted)]
        )
        name = wanted[0] if len(wanted) == 1 else str(connection.engine.url.database or "")
    if len(tables) == 1:
        return _draft_of_one(url, tables[0])
    head = _HEAD.format(name=_dataset(re.sub(r".*/|\.\w+$", "", name)), about=drafted_tables.ABOUT)
    by_name = {table.name: table for table in tables}
    return drafted_tables.text_of_tables(
        head, by_name, {table.name: _text_of(url, table, by_name) for table in tables}
    )


def _names(schema: sa.Inspector, wanted: Sequence[str]) -> list[str]:
    tables = [name for name in schema.get_table_names() if name != NOTES]
    if unknown := [name for name in wanted if name not in tables]:
        raise DataError(f"the database has no table '{unknown[0]}'; correct --table")
    names = list(wanted) or tables
    if not names:
        raise DataError("the database has no table; correct the URL, or its search path")
    return names


def _draft_of_one(url: str, table: drafted_tables.DraftedTable) -> str:
    lines = [
        _HEAD.format(name=_dataset(table.name), about=drafted_tables.ABOUT),
        f"source: {{{entries({'url': url, 'table': table.name})}}}\n",
        drafted_tables.PRIVACY.format(unit=_ONE_UNIT),
        *_ignored(table, ""),
        "attributes:\n",
        *_attributes(table, {table.name: table}, "  "),
        *_left_out(table, ""),
        f"constraints: {flow(_rules(table))} # such as {{fd: zip -> city}} or {{deny: ...}}\n",
        drafted_tables.FOOT,
    ]
    return "".join(lines)


def _reflected(schema: sa.Inspector, name: str) -> drafted_tables.DraftedTable:
    primary = _primary(schema, name)
    columns = [
        {**column, "nullable": column["nullable"] and column["name"] not in primary}
        for column in schema.get_columns(name)
    ]
    unique = tuple(tuple(key["column_names"]) for key in schema.get_unique_constraints(name))
    foreign = tuple(
        drafted_tables.DraftedKey(
            tuple(key["constrained_columns"]),
            key["referred_table"],
            tuple(key["referred_columns"]) or _primary(schema, key["referred_table"]),
        )
        for key in schema.get_foreign_keys(name)
    )
    checks = read_checks(schema.get_check_constraints(name))
    return drafted_tables.DraftedTable(name, columns, primary, unique, foreign, checks)


def _primary(schema: sa.Inspector, name: str) -> tuple[str, ...]:
    return tuple(schema.get_pk_constraint(name)["constrained_columns"])


def _text_of(
    url: str, table: drafted_tables.DraftedTable, tables: Mapping[str, drafted_tables.DraftedTable]
) -> drafted_tables.TableText:
    rules = _rules(table)
    return drafted_tables.TableText(
        {"url": url, "table": table.name},
        [*_left_out(table, "    "), *([f"    constraints: {flow(rules)}\n"] if rules else [])],
        list(_ignored(table, "    ")),
        list(_attributes(table, tables, "      ")),
    )


def _rules(table: drafted_tables.DraftedTable) -> list[dict[str, object]]:
    ignored = set(_without_values(table))
    rules: list[dict[str, object]] = [
        {"key": list(key), "provenance": _SCHEMA}
        for key in table.hard_keys()
        if not ignored & set(key)
    ]
    rules += [
        {"deny": f"t.{quote(first)} {_NEGATED[op]} t.{quote(second)}", "provenance": _SCHEMA}
        for first, op, second in table.checks.orders
        if _are_ordered(first, second, table)
    ]
    return rules


def _are_ordered(first: str, second: str, table: drafted_tables.DraftedTable) -> bool:
    """Whether two columns are both numbers, dates or moments that a spec compares."""
    kinds = {
        column["name"]: guess.keys["type"] for column in table.columns if (guess := _guess(column))
    }
    compared = {kinds.get(first), kinds.get(second)}
    alone = not {first, second} & (table.keyed | table.identifiers | table.checks.values.keys())
    return alone and (compared <= {"integer", "float"} or compared <= {"date", "datetime"})


def _left_out(table: drafted_tables.DraftedTable, indent: str) -> Iterator[str]:
    """Comments on the keys of the schema that the draft does not hold."""
    words = (*table.left_out, *table.lost_keys(), *table.checks.unread, *_lost_orders(table))
    yield from (f"{indent}# {each}\n" for each in words)
    ignored = set(_without_values(table))
    for key in table.hard_keys():
        if columns := [column for column in key if column in ignored]:
            yield f"{indent}# key ({', '.join(key)}) is not kept: {columns[0]} is left out\n"


def _lost_orders(table: drafted_tables.DraftedTable) -> Iterator[str]:
    for first, op, second in table.checks.orders:
        if not _are_ordered(first, second, table):
            yield f"check is not kept: {first} {op} {second}, of types that a spec does not order"


def _ignored(table: drafted_tables.DraftedTable, indent: str) -> Iterator[str]:
    if names := _without_values(table):
        yield f"{indent}ignore: {flow(names)} # of types that hold no single values\n"


def _without_values(table: drafted_tables.DraftedTable) -> list[str]:
    """The columns of types that hold no single values, which a spec ignores."""
    names = (column["name"] for column in table.columns if _guess(column) is None)
    return [name for name in names if name not in table.keyed]


def _attributes(
    table: drafted_tables.DraftedTable,
    tables: Mapping[str, drafted_tables.DraftedTable],
    indent: str,
) -> Iterator[str]:
    for column in table.columns:
        guess = _key_of(column, table, tables) or _checked(column, _guess(column), table.checks)
        if guess is not None:
            nullable = {"nullable": True} if column["nullable"] and guess.keys else {}
            keys = entries({**guess.keys, **nullable})
            yield f"{indent}{scalar(column['name'])}: {{{keys}}} # {guess.why}\n"


def _key_of(
    column: Mapping[str, Any],
    table: drafted_tables.DraftedTable,
    tables: Mapping[str, drafted_tables.DraftedTable],
) -> Guess | None:
    """A key, or a reference, which is declared as the key that it refers to."""
    if column["name"] in table.references:
        to, name = table.references[column["name"]]
        referred = next(each for each in tables[to].columns if each["name"] == name)
        return Guess(_numbered(referred["type"]), f"refers to {scalar(to)}")
    if column["name"] == table.key:
        return Guess(_numbered(column["type"]), "key: output gets fresh numbers")
    if column["name"] in table.identifiers and isinstance(column["type"], sa.Integer | sa.String):
        return Guess(_numbered(column["type"]), "unique: output gets fresh numbers")
    return None


def _numbered(kind: Any) -> Keys:
    """The keys of a text key that a column of this type can hold."""
    if isinstance(kind, sa.Integer | sa.Numeric):
        digits = _DIGITS_OF_SMALL if isinstance(kind, sa.SmallInteger) else _LONGEST_KEY
        return _text_key(f"{{1..{'9' * digits}}}") | {"dtype": "Int64", "provenance": _SCHEMA}
    length = getattr(kind, "length", None) or _LONGEST_KEY + 1
    digits = min(length - 1, _LONGEST_KEY) or 1
    prefix = "K" if length > 1 else ""
    pattern = f"{prefix}{{{'0' * (digits - 1)}1..{'9' * digits}}}"
    return _text_key(pattern) | {"provenance": _SCHEMA}


def _text_key(pattern: str) -> Keys:
    return {"type": "text", "pattern": pattern}


def _guess(column: Mapping[str, Any]) -> Guess | None:
    """What the type of a column says; None if it holds no single values."""
    kind = column["type"]
    if isinstance(kind, sa.Enum) and kind.enums:
        keys = {"type": "categorical", "values": list(kind.enums), "provenance": _SCHEMA}
        return Guess(keys, "an enumeration of the schema")
    if isinstance(kind, sa.Boolean):
        return Guess({"type": "boolean", "provenance": _SCHEMA}, "true or false")
    if isinstance(kind, sa.Uuid):
        return Guess(_numbered(sa.String()), "identifiers; output gets fresh numbers")
    for types, keys, why in _BY_TYPE:
        if isinstance(kind, types):
            return Guess({**keys, **_places(kind), "provenance": DATA_DERIVED}, f"{kind}: {why}")
    return None


def _checked(column: Mapping[str, Any], guess: Guess | None, checks: CheckFacts) -> Guess | None:
    """What a column is guessed to be, with the values and bounds that checks say."""
    name = column["name"]
    if guess is None or guess.keys["type"] not in ("integer", "float", "date", "categorical"):
        return guess
    if values := checks.values.get(name):
        keys = {"type": "categorical", "values": values, "provenance": _SCHEMA}
        return Guess(keys, "the values that a check of the schema lists")
    ends = {end: _end(name, end, guess.keys, checks) for end in ("min", "max")}
    known = {end: value for end, value in ends.items() if value is not None}
    if not known or "min" not in guess.keys:
        return guess
    bounds = dict.fromkeys(ends, next(iter(known.values()))) | known
    if len(known) == len(ends):
        bounds["provenance"] = _SCHEMA
        return Guess({**guess.keys, **bounds}, f"{column['type']}: bounds of a check of the schema")
    lacking = "upper" if "min" in known else "lower"
    return Guess({**guess.keys, **bounds}, f"{column['type']}: write its {lacking} bound, too")


def _end(name: str, end: str, keys: Keys, checks: CheckFacts) -> Any:
    """The least or greatest value of a column by a check, one less far where it is not reached."""
    value = (checks.least if end == "min" else checks.greatest).get(name)
    if keys["type"] == "date":
        return value if isinstance(value, str) and _DAY.fullmatch(value) else None
    if isinstance(value, str) or value is None:
        return None
    grid = (
        0 if keys["type"] == "float" and "decimals" not in keys else 10 ** -keys.get("decimals", 0)
    )
    away = grid if (name, end) in checks.open_ends else 0
    moved = value + away if end == "min" else value - away
    return round(moved, 12) if keys["type"] == "float" else round(moved)


def _places(kind: Any) -> Keys:
    scale = getattr(kind, "scale", None)
    if not isinstance(kind, sa.Numeric) or scale is None or scale > 12:
        return {}
    return {"decimals": scale}


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_BOUNDS = "write its bounds"
_BY_TYPE: tuple[tuple[Any, Keys, str], ...] = (
    (sa.Integer, {"type": "integer", "min": 0, "max": 0}, _BOUNDS),
    ((sa.Numeric, sa.Float), {"type": "float", "min": 0.0, "max": 0.0}, _BOUNDS),
    (sa.DateTime, {"type": "datetime", "min": "2000-01-01", "max": "2000-01-01"}, _BOUNDS),
    (sa.Date, {"type": "date", "min": "2000-01-01", "max": "2000-01-01"}, _BOUNDS),
    (
        (sa.String, sa.types.NullType),
        {"type": "categorical", "values": ["?"]},
        "write the public list of values, or ignore free text",
    ),
)
"""Types whose bounds or values a schema does not say, the narrower before the wider."""


def _dataset(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "dataset"


def write_draft(sources: Sequence[str], out: Path | None, tables: Sequence[str] = ()) -> str:
    """The text of a draft, written to ``out`` if that is given and new.

    ``sources`` are files, whose values are read and which are tables of one spec, or the URL of a
    database, of which the schema is; of a database some ``tables`` may be named.

    Raises:
        InputError: tables are named, and ``sources`` are files; or a database is one of several.
        StorageError: a table cannot be read, or ``out`` exists or cannot be written.
        DataError: a table has no columns or rows to draft from.
    """
    if out is not None and out.exists():
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    database = any(map(is_url, sources))
    if tables and not database:
        raise InputError("--table is of databases, and a file holds one table; leave it out")
    if database and len(sources) > 1:
        raise InputError("a draft is of files, or of one database; give its URL alone")
    first = sources[0]
    if database:
        text = draft_database(first, tables)
    else:
        text = draft_files(list(map(Path, sources))) if len(sources) > 1 else draft(Path(first))
    if out is not None:
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"{out} cannot be written ({error.strerror}); correct the path"
            ) from None
    return text
