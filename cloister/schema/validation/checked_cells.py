"""What becomes of the cells of one column: read, checked, repaired and encoded, each on its own.

Cells are read first; whether they are kept, clipped or dropped, all later code sees the same typed
values. Faults are found and repaired by masks: pandera's failure cases hold the faulty values, so
its schema checks what is published (:mod:`cloister.constraints.schema_file`), not sensitive rows.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cloister.arrays import Array, Booleans
from cloister.schema.attributes import Date, Datetime, Float, Integer
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import code_type
from cloister.schema.sources.batches import SourceCells
from cloister.schema.spec import OnInvalid
from cloister.schema.validation.report import Rule
from cloister.schema.values.parsing import parse

_Movable = Integer | Float | Date | Datetime


@dataclass(frozen=True)
class CheckedCells:
    """Different cells (k,) of a column.

    ``typed`` and ``codes`` are what they become, ``valid`` those that have a code. ``broken`` are
    those that break a rule, for each that any breaks; ``clipped`` were moved to the nearest
    admissible number, ``emptied`` were set to missing.
    """

    typed: pd.Series
    codes: Array
    valid: Booleans
    broken: dict[Rule, Booleans]
    clipped: Booleans
    emptied: Booleans


class ColumnCheck:
    """The check of one column's cells.

    Args:
        identifies: whether the column names persons: moving its values would merge several.
    """

    def __init__(self, column: Column, on_invalid: OnInvalid, *, identifies: bool) -> None:
        self._column = column
        self._repairs = on_invalid == "clip"
        self._moves = isinstance(column.attribute, _Movable) and not identifies
        self._last: tuple[SourceCells, CheckedCells] | None = None

    def check(self, cells: SourceCells) -> CheckedCells:
        """What becomes of the stored cells; those of the batch before are not checked again."""
        if self._last is None or not cells.stores_same(self._last[0]):
            self._last = (cells, self._checked(cells.distinct()))
        return self._last[1]

    def _checked(self, raw: pd.Series) -> CheckedCells:
        typed, invalid = parse(raw.reset_index(drop=True), self._column.attribute)
        broken = self._broken(typed, invalid)
        return self._repaired(typed, broken) if self._repairs else self._refused(typed, broken)

    def _broken(self, typed: pd.Series, invalid: Booleans) -> dict[Rule, Booleans]:
        """Masks (k,) of the cells that break each rule; a cell breaks at most one."""
        outside = (self._column.encode(typed) == OUTSIDE) & ~invalid
        missing = outside & typed.isna().to_numpy(dtype=bool)
        masks: dict[Rule, Booleans] = {
            "type": invalid,
            "missing": missing,
            "domain": outside & ~missing,
        }
        return {rule: mask for rule, mask in masks.items() if mask.any()}

    def _refused(self, typed: pd.Series, broken: dict[Rule, Booleans]) -> CheckedCells:
        none = np.zeros(len(typed), dtype=bool)
        bad = np.logical_or.reduce([none, *broken.values()])
        return self._encoded(typed, broken, ~bad, none, none)

    def _repaired(self, typed: pd.Series, broken: dict[Rule, Booleans]) -> CheckedCells:
        """Numbers moved to the nearest admissible one, what else can be missing set to that."""
        none = np.zeros(len(typed), dtype=bool)
        clipped = broken.get("domain", none) if self._moves else none
        emptied = (broken.get("type", none) | broken.get("domain", none)) & ~clipped
        if clipped.any():
            typed = _moved(typed, clipped, self._column.attribute)
        if not self._column.attribute.nullable:
            emptied = none
        typed = typed.mask(emptied) if emptied.any() else typed
        return self._encoded(typed, broken, ~none, clipped, emptied)

    def _encoded(
        self,
        typed: pd.Series,
        broken: dict[Rule, Booleans],
        valid: Booleans,
        clipped: Booleans,
        emptied: Booleans,
    ) -> CheckedCells:
        codes = self._column.encode(typed)
        inside = valid & (codes != OUTSIDE)
        narrow = np.where(inside, codes, 0).astype(code_type(self._column))
        return CheckedCells(typed, narrow, inside, broken, clipped, emptied)


def _moved(values: pd.Series, outside: Booleans, attribute: Any) -> pd.Series:
    """The typed column with the cells outside moved to the nearest bound, or down to the grid."""
    low, high, step = _bounds(attribute)
    fine = values.astype("datetime64[us]") if isinstance(attribute, Date | Datetime) else values
    moved = fine.clip(low, high)
    moved = moved if step is None else moved - (moved - low) % step
    return values.mask(outside, moved.astype(values.dtype))


def _bounds(attribute: _Movable) -> tuple[Any, Any, Any]:
    if isinstance(attribute, Date | Datetime):
        step = (
            pd.Timedelta(microseconds=attribute.step_micros).as_unit("us")
            if isinstance(attribute, Datetime)
            else None
        )
        return _moment(attribute.min), _moment(attribute.max), step
    return attribute.min, attribute.max, attribute.step


def _moment(bound: dt.date) -> pd.Timestamp:
    moment = pd.Timestamp(bound).as_unit("us")
    return moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)
