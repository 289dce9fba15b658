"""Conditions on drawn rows as the command line takes them: COLUMN=VALUE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pandas as pd

from cloister.errors import InputError
from cloister.models.protocol import Where
from cloister.models.task import Task
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import Domain
from cloister.schema.parsing import parse

_WRITTEN: Mapping[str, str] = MappingProxyType(
    {
        "integer": "is no whole number; write digits alone, as 1200, without marks of thousands",
        "float": "is no number; write it with a decimal point and no mark of thousands, as 1234.5",
        "date": "is no date; write it in the format of the column, or as 2020-01-31",
        "datetime": "is no moment; write it in the format of the column, or as 2020-01-31 10:00:00",
    }
)
"""What to say of a text that is no value of a type; other types have lists of values."""


def conditions(texts: Iterable[str]) -> Where:
    """The condition of some COLUMN=VALUE texts.

    Nothing after the last sign of a text is a missing value.

    Raises:
        InputError: a text has no sign, or a column has two conditions.
    """
    where: dict[str, str | None] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise InputError(
                f"--where {name}: give COLUMN=VALUE, as in --where education=Doctorate"
            )
        if name in where:
            raise InputError(f"--where {name}: the column has two conditions; give one")
        where[name] = value or None
    return where


def require_declared(where: Where, domain: Domain) -> None:
    """Check that a condition names columns and values that are declared.

    Raises:
        InputError: it does not.
    """
    for name, value in where.items():
        if name not in domain or domain[name].kind == "key":
            others = ", ".join(domain.modelled)
            raise InputError(
                f"--where: no column '{name}' can have a condition; use one of {others}"
            )
        if fault := _fault(domain[name], value):
            raise InputError(f"--where: the value of '{name}' {fault}")


def require_unconditional(where: Where, task: Task) -> None:
    """Check that no condition is asked of rows that belong to persons.

    Raises:
        InputError: one is.
    """
    if where and task.persons:
        raise InputError(
            "--where: rows that belong to persons are not drawn under conditions; draw without, "
            "and select rows of the output"
        )


def _fault(column: Column, value: object) -> str:
    """What is wrong with a value of a column, and the remedy; empty if nothing is."""
    if value is None:
        return "" if column.null_code is not None else "is never missing; give one after the ="
    text = pd.Series([value], dtype=object)
    if column.encode(text)[0] != OUTSIDE:
        return ""
    unreadable = column.kind == "numeric" and bool(parse(text, column.attribute)[1].any())
    if unreadable:
        return _WRITTEN[column.attribute.type]
    return "is not in its declared domain; use a declared one"
