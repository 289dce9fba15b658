"""Rows against their declared domain: counts and row numbers of what lies outside, never values.

Cells are read first; whether they are kept, clipped or dropped, all later code sees the same typed
values. Faults are found and repaired by masks: pandera's failure cases hold the faulty values, so
its schema checks what is published (:mod:`cloister.constraints.schema_file`), not sensitive rows.

Privacy: reading, dropping and clipping look at one row at a time, so they do not change who is
protected. A report holds exact counts of the data: it is internal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from cloister.arrays import Array, Booleans
from cloister.schema.attributes import Date, Datetime, Float, Integer
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import Domain, Table, code_type
from cloister.schema.parsing import parse
from cloister.schema.sources.batches import SourceBatch, SourceCells
from cloister.schema.sources.reading import read_batches
from cloister.schema.spec import OnInvalid, PersonUnit, Spec
from cloister.schema.validation_report import Rule, Tally, ValidationReport

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


class RowRule(Protocol):
    """A rule of a spec on single rows, such as when a cell is missing."""

    @property
    def name(self) -> str:
        """Its name."""

    def violation_mask(self, first: Table, second: Table) -> Booleans:
        """Where rows (n,) break it, row by row; ``second`` are the same rows."""


@dataclass(frozen=True)
class ValidRows:
    """The rows of a batch that lie in the declared domain."""

    domain: Domain
    cells: Mapping[str, SourceCells]
    checked: Mapping[str, CheckedCells]
    valid: Booleans

    def table(self) -> Table:
        """Their fine codes."""
        return Table(self.domain, {name: self._codes(name) for name in self.domain.names})

    def typed(self, name: str) -> pd.Series:
        """Their values of one column; rows are numbered from 0."""
        indices = self.cells[name].indices[self.valid]
        return self.checked[name].typed.take(indices).reset_index(drop=True)

    def _codes(self, name: str) -> np.ndarray:
        codes = self.checked[name].codes[self.cells[name].indices]
        return codes if self.valid.all() else codes[self.valid]


class Validation:
    """The validation of rows that come in batches, in the order of their source.

    ``on_invalid`` as the spec says: ``fail`` refuses. ``drop`` leaves out every row with a finding.
    ``clip`` moves numbers, dates and moments to the nearest admissible one, sets other invalid
    cells to missing where the attribute is nullable, and drops the rows that remain invalid, and
    those of persons outside the domain. Rows that break one of ``rules`` are dropped by both.

    Args:
        person: the column that identifies a row's person, if rows belong to persons.
        rules: what else is declared of each row.

    ``tally`` is what was found so far.

    Privacy: row by row, dtypes included; under ``fail``, whether any row breaks its domain is said
        exactly.
    """

    def __init__(
        self,
        domain: Domain,
        on_invalid: OnInvalid,
        person: str | None = None,
        rules: Sequence[RowRule] = (),
    ) -> None:
        self.domain = domain
        self._rules = tuple(rules)
        self._on_invalid = on_invalid
        self.tally = Tally()
        self._checks = {
            column.name: ColumnCheck(column, on_invalid, identifies=column.name == person)
            for column in domain
        }

    @classmethod
    def of(
        cls, spec: Spec, domain: Domain | None = None, rules: Sequence[RowRule] = ()
    ) -> Validation:
        """The validation that a spec declares, with the ``rules`` among its constraints."""
        unit = spec.privacy.protected
        return cls(
            domain or Domain.of(spec.attributes, spec.folder),
            spec.validation.on_invalid,
            unit.key if isinstance(unit, PersonUnit) else None,
            rules,
        )

    def check(self, batch: SourceBatch) -> ValidRows:
        """The rows of the next batch that are kept."""
        valid = np.ones(batch.rows, dtype=bool)
        checked = {name: check.check(batch.cells[name]) for name, check in self._checks.items()}
        for name, cells in checked.items():
            indices = batch.cells[name].indices
            for rule, mask in cells.broken.items():
                self.tally.add_broken(name, rule, mask[indices])
            if not cells.valid.all():
                valid &= cells.valid[indices]
            if cells.broken:
                self.tally.clipped += int(cells.clipped[indices].sum())
                self.tally.emptied += int(cells.emptied[indices].sum())
        if self._rules:
            valid = self._by_rules(ValidRows(self.domain, batch.cells, checked, valid))
        self.tally.end_batch(valid, batch.malformed)
        return ValidRows(self.domain, batch.cells, checked, valid)

    def _by_rules(self, rows: ValidRows) -> Booleans:
        """The rows of a batch (n,) that are kept, of those in the domain, by the rules on rows."""
        table, there, valid = rows.table(), np.flatnonzero(rows.valid), rows.valid.copy()
        for rule in self._rules:
            broken = np.zeros(len(valid), dtype=bool)
            broken[there] = rule.violation_mask(table, table)
            self.tally.add_broken(rule.name, "constraint", broken)
            valid &= ~broken
        return valid

    def table(
        self,
        batches: Iterable[SourceBatch],
        gather: Callable[[Iterable[Table]], Table] = Table.concatenate,
    ) -> Table:
        """The fine codes of the rows that are kept of all batches, as ``gather`` keeps them."""
        table = gather(self.check(batch).table() for batch in batches)
        pa.default_memory_pool().release_unused()  # 200 MB after a file of 10^7 rows
        return table

    def report(self) -> ValidationReport:
        """What was found in all batches; row numbers are those of the source.

        Raises:
            DataError: findings under ``fail``, or no row left.
        """
        names = (*self.domain.names, *(rule.name for rule in self._rules))
        return self.tally.report(names, self._on_invalid)


def read_table(
    spec: Spec,
    domain: Domain,
    data: Path | None = None,
    rules: Sequence[RowRule] = (),
    gather: Callable[[Iterable[Table]], Table] = Table.concatenate,
) -> tuple[Table, ValidationReport]:
    """The rows of a spec's source, or of ``data`` in its place, as fine codes, and the report.

    They are validated by ``rules`` too. Memory is that of a batch and of what ``gather`` keeps.

    Raises:
        StorageError: the source cannot be read.
        DataError: it is not as declared.
    """
    validation = Validation.of(spec, domain, rules)
    table = validation.table(read_batches(spec, data), gather)
    return table, validation.report()
