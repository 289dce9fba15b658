"""Rows against their declared domain: counts and row numbers of what lies outside, never values.

Privacy: reading, dropping and clipping look at one row at a time, so they do not change who is
protected. A report holds exact counts of the data: it is internal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from cloister.arrays import Booleans
from cloister.schema.domain import Domain, Table
from cloister.schema.sources.batches import SourceBatch, SourceCells
from cloister.schema.sources.files.csv_files import malformed_rows
from cloister.schema.sources.reading import read_batches
from cloister.schema.sources.required_columns import require_columns
from cloister.schema.spec import OnInvalid, PersonUnit, Spec
from cloister.schema.validation.checked_cells import CheckedCells, ColumnCheck
from cloister.schema.validation.report import Tally, ValidationReport


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
    kept: Booleans

    def table(self) -> Table:
        """Their fine codes."""
        return Table(self.domain, {name: self._codes(name) for name in self.domain.names})

    def typed(self, name: str) -> pd.Series:
        """Their values of one column; rows are numbered from 0."""
        places = self.cells[name].places[self.kept]
        return self.checked[name].typed.take(places).reset_index(drop=True)

    def _codes(self, name: str) -> np.ndarray:
        codes = self.checked[name].codes[self.cells[name].places]
        return codes if self.kept.all() else codes[self.kept]


class Validation:
    """The validation of rows that come in batches, in the order of their source.

    ``on_invalid`` as the spec says: ``fail`` refuses. ``drop`` leaves out every row with a finding.
    ``clip`` moves numbers, dates and moments to the nearest admissible one, sets other invalid
    cells to missing where the attribute is nullable, and drops the rows that remain invalid, and
    those of persons outside the domain. Rows that break one of ``rules`` are dropped by both.

    Args:
        person: the column that identifies a row's person, if rows belong to persons.
        rules: what else is declared of each row.

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
        self._tally = Tally()
        self._checks = {
            column.name: ColumnCheck(column, on_invalid, identifies=column.name == person)
            for column in domain
        }

    @classmethod
    def of(
        cls, spec: Spec, domain: Domain | None = None, rules: Sequence[RowRule] = ()
    ) -> Validation:
        """The validation that a spec declares, with the ``rules`` among its constraints."""
        unit = spec.privacy.unit
        return cls(
            domain or Domain.of(spec.attributes, spec.folder),
            spec.validation.on_invalid,
            unit.key if isinstance(unit, PersonUnit) else None,
            rules,
        )

    def check(self, batch: SourceBatch) -> ValidRows:
        """The rows of the next batch that are kept."""
        kept = np.ones(batch.rows, dtype=bool)
        checked = {name: own.check(batch.cells[name]) for name, own in self._checks.items()}
        for name, found in checked.items():
            places = batch.cells[name].places
            for rule, mask in found.broken.items():
                self._tally.add_broken(name, rule, mask[places])
            if not found.valid.all():
                kept &= found.valid[places]
            if found.broken:
                self._tally.clipped += int(found.clipped[places].sum())
                self._tally.emptied += int(found.emptied[places].sum())
        if self._rules:
            kept = self._by_rules(ValidRows(self.domain, batch.cells, checked, kept))
        self._tally.end_batch(kept, batch.malformed)
        return ValidRows(self.domain, batch.cells, checked, kept)

    def _by_rules(self, rows: ValidRows) -> Booleans:
        """The rows of a batch (n,) that are kept, of those in the domain, by the rules on rows."""
        table, there, kept = rows.table(), np.flatnonzero(rows.kept), rows.kept.copy()
        for rule in self._rules:
            broken = np.zeros(len(kept), dtype=bool)
            broken[there] = rule.violation_mask(table, table)
            self._tally.add_broken(rule.name, "constraint", broken)
            kept &= ~broken
        return kept

    def table(self, batches: Iterable[SourceBatch]) -> Table:
        """The fine codes of the rows that are kept of all batches."""
        return Table.concatenate(self.check(batch).table() for batch in batches)

    def report(self) -> ValidationReport:
        """What was found in all batches; row numbers are those of the source.

        Raises:
            DataError: findings under ``fail``, or no row left.
        """
        names = (*self.domain.names, *(rule.name for rule in self._rules))
        return self._tally.report(names, self._on_invalid)


def read_table(
    spec: Spec, domain: Domain, data: Path | None = None, rules: Sequence[RowRule] = ()
) -> tuple[Table, ValidationReport]:
    """The rows of a spec's source, or of ``data`` in its place, as fine codes, and what was found.

    They are validated by ``rules`` too. Memory is that of a batch and of the codes.

    Raises:
        StorageError: the source cannot be read.
        DataError: it is not as declared.
    """
    validation = Validation.of(spec, domain, rules)
    table = validation.table(read_batches(spec, data))
    return table, validation.report()


def validate_rows(frame: pd.DataFrame, spec: Spec) -> tuple[pd.DataFrame, ValidationReport]:
    """The typed rows of a frame that :class:`Validation` keeps, and what was found.

    Raises:
        DataError: columns that are not those declared, findings under ``fail``, or no row left.
    """
    require_columns(list(frame.columns), list(spec.attributes), "the table")
    validation = Validation.of(spec)
    batch = SourceBatch.of_frame(frame)
    rows = validation.check(SourceBatch(batch.cells, malformed_rows(frame)))
    report = validation.report()
    return pd.DataFrame({name: rows.typed(name) for name in spec.attributes}), report
