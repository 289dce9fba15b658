"""Whom a guarantee protects where the dataset has several tables, in words."""

from __future__ import annotations

from collections.abc import Iterable

from cloister.schema.relations import ForeignKey, Schema, arithmetic, is_refused, is_truncated

_SEVERAL_UNITS = (
    "The unit is a {noun}: a person who has several rows of {start} is protected less, at k of "
    "them by k times epsilon."
)
_REFERRING = "all rows of other tables that refer to it, directly or through others"
_TRUNCATED = (
    "Of rows that refer to the same row by {keys}, those above the declared number were left out "
    "at random beforehand."
)
_UNLINKED = (
    "A row whose {keys} leads to no row, or that is above the declared number of those that refer "
    "to the same, was kept without its parent."
)
_LEADING_NOWHERE = "A row whose {keys} leads to no row was kept without its parent."
_DANGLING = "Rows that refer to none by {keys} were left out."
_REFUSED = "At most the declared number of rows refer to one row by {keys}: other data is refused."
_ALONE = (
    "A row of {tables} holds nothing of a protected row: it is protected by itself, if no row "
    "refers to it. Which of its rows are referred to is protected with the rows that refer."
)


def schema_unit_noun(schema: Schema) -> str:
    """The unit as a noun."""
    return f"row of {_start(schema)} with all rows that refer to it"


def schema_unit_description(schema: Schema) -> str:
    """Whom the guarantee protects, in plain words."""
    return f"one row of {_start(schema)}, with {_REFERRING}"


def schema_unit_statement(dataset: str, schema: Schema) -> str:
    """Whom the guarantee protects, with the most rows of each table that it has."""
    terms = "".join(f"; {line}" for line in arithmetic(schema))
    return f"unit = one row of {_start(schema)} and all rows of {dataset} that refer to it{terms}"


def schema_limits(schema: Schema) -> tuple[str, ...]:
    """Rows that were left out before any query, and units that are protected less."""
    required = [key for key in schema.keys if not key.optional]
    cut = [key for key in schema.keys if is_truncated(schema, key)]
    loose = [key for key in schema.keys if key.optional and key not in cut]
    alone = [name for name in schema.tables if name not in schema.holding]
    sentences = (
        _SEVERAL_UNITS.format(noun=schema_unit_noun(schema), start=_start(schema)),
        _sentence(_TRUNCATED, (key for key in cut if not key.optional)),
        _sentence(_DANGLING, required),
        _sentence(_UNLINKED, (key for key in cut if key.optional)),
        _sentence(_LEADING_NOWHERE, loose),
        _sentence(_REFUSED, (key for key in schema.keys if is_refused(schema, key))),
        _ALONE.format(tables=", ".join(alone)) if alone else "",
    )
    return tuple(sentence for sentence in sentences if sentence)


def _sentence(sentence: str, keys: Iterable[ForeignKey]) -> str:
    names = ", ".join(f"{key.table}.{key.column}" for key in keys)
    return sentence.format(keys=names) if names else ""


def _start(schema: Schema) -> str:
    return "any table" if schema.any_row else schema.lead
