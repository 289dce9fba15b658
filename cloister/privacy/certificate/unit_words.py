"""Whom a guarantee protects, in words: the one place that tells units apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cloister.schema.fan_outs import rows_changed
from cloister.schema.relations import ForeignKey, Schema, is_refused, is_truncated
from cloister.schema.spec import PersonUnit, Spec
from cloister.schema.spec_files.foreign_keys import schema_of

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


_ROW = (
    "The unit is a row: a person who owns several rows is protected less, at k rows by k times "
    "epsilon."
)
_PERSON = "Rows of a person beyond {most} were left out beforehand, chosen at random."
_ROW_OF_BLOCK = "A row is in one {per}: releases of other {per}s reveal nothing more of it."
_PERSON_OF_BLOCKS = (
    "The guarantee for one {per} covers the rows that a person has in it. A person with rows in "
    "several {per}s loses what all their releases cost together: with rows in every {per}, what "
    "the account has spent over all of them, which is counted as the budget period above."
)


@dataclass(frozen=True)
class UnitWords:
    """Whom a guarantee protects: in plain words, and as a statement on the schema.

    ``noun`` names the unit, ``limits`` say what was left out before anything was asked and what is
    protected less, ``of_blocks`` what it means that data grows by blocks.
    """

    noun: str
    description: str
    statement: str
    limits: tuple[str, ...]
    of_blocks: str = _ROW_OF_BLOCK


def unit_words(spec: Spec) -> UnitWords:
    """Whom the releases of a spec protect: a person, a row, or a row with all that refer to it."""
    unit = spec.privacy.protected
    if isinstance(unit, PersonUnit):
        return UnitWords(
            "person",
            f"one person: all rows with the same {unit.key}, at most {unit.max_rows} of them",
            f"unit = rows of {spec.name} grouped by {unit.key}; rows per unit <= {unit.max_rows}",
            (_PERSON.format(most=unit.max_rows),),
            _PERSON_OF_BLOCKS,
        )
    if not spec.tables:
        statement = f"unit = one row of {spec.name}; rows per unit = 1"
        return UnitWords("row", "one row of the table", statement, (_ROW,))
    schema = schema_of(spec)
    start, terms = _start(schema), "".join(f"; {line}" for line in _arithmetic(schema))
    return UnitWords(
        _noun(schema),
        f"one row of {start}, with {_REFERRING}",
        f"unit = one row of {start} and all rows of {spec.name} that refer to it{terms}",
        schema_limits(schema),
    )


def _noun(schema: Schema) -> str:
    return f"row of {_start(schema)} with all rows that refer to it"


def schema_limits(schema: Schema) -> tuple[str, ...]:
    """Rows that were left out before any query, and units that are protected less."""
    required = [key for key in schema.keys if not key.optional]
    cut = [key for key in schema.keys if is_truncated(schema, key)]
    loose = [key for key in schema.keys if key.optional and key not in cut]
    alone = [name for name in schema.tables if name not in schema.holding]
    sentences = (
        _SEVERAL_UNITS.format(noun=_noun(schema), start=_start(schema)),
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


def _arithmetic(schema: Schema) -> tuple[str, ...]:
    """How many rows of each table a unit has, in words: a line for each table that refers."""
    changed = rows_changed(schema)
    return tuple(
        f"{name}: at most {changed[name]} ({_terms(schema, name, changed)})"
        for name in schema.tables
        if name in schema.holding and schema.required_of(name)
    )


def _terms(schema: Schema, name: str, changed: Mapping[str, int]) -> str:
    terms = [
        f"{changed[key.parent]} of {key.parent} x {key.max_rows} each"
        for key in schema.keys_to_units(name)
    ]
    return (
        f"the greatest of 1 and each of: {', '.join(terms)}"
        if schema.any_row
        else " + ".join(terms)
    )
