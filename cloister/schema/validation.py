"""Rows against their declared domain: counts and row numbers of what lies outside, never values.

Cells are read first, each on its own; whether they are kept, clipped or dropped, all later code
sees the same typed values. A table of readable cells is accepted unchanged if it passes a pandera
schema generated from the spec. Pandera's failure cases copy every faulty value, so they are not
used: faults are counted and repaired by row masks.

Privacy: reading, dropping and clipping look at one row at a time, so they do not change who is
protected. A report holds exact counts of the data: it is internal.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pandera.pandas as pa
from pandera.errors import SchemaErrors

from cloister.arrays import Booleans
from cloister.errors import DataError
from cloister.schema.attributes import Date, Datetime, Float, Integer
from cloister.schema.columns import OUTSIDE, Column
from cloister.schema.domain import Domain
from cloister.schema.parsing import parse
from cloister.schema.sources.csv_files import ROWS_NAMED, malformed_rows
from cloister.schema.sources.reading import require_columns
from cloister.schema.spec import OnInvalid, PersonUnit, Spec

_Rule = Literal["type", "missing", "domain"]


_RULES: dict[_Rule, str] = {
    "type": "cannot be read as the declared type",
    "missing": "missing in an attribute that is not nullable",
    "domain": "outside the declared values or bounds",
}


@dataclass(frozen=True)
class DomainFinding:
    """How often one column breaks one rule: ``count`` cells, the first ten rows of them from 1."""

    column: str
    rule: _Rule
    count: int
    rows: tuple[int, ...]

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.rows) else ""
        rows = ", ".join(map(str, self.rows))
        return (
            f"column '{self.column}': {self.count:,} value(s) {_RULES[self.rule]} "
            f"(rows {rows}{more})"
        )


@dataclass(frozen=True)
class ValidationReport:
    """What validation found and did, in rows and cells; internal, since its counts are exact.

    ``clipped`` cells were moved to the nearest admissible number, ``emptied`` cells were set to
    missing. ``malformed`` lines of the file had more or fewer cells than its header; they count
    among ``rows`` and ``dropped``, but have no number in the findings.
    """

    on_invalid: OnInvalid
    rows: int
    dropped: int
    clipped: int
    emptied: int
    findings: tuple[DomainFinding, ...]
    malformed: int = 0

    @property
    def valid(self) -> bool:
        """Whether every value was inside its declared domain."""
        return not self.findings and not self.malformed

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def pandera_schema(spec: Spec) -> pa.DataFrameSchema:
    """The pandera schema of a spec, for raw or typed columns in any order.

    Its errors carry values of the data; ``validate_rows`` is the way to use it on sensitive rows.
    """
    domain = Domain.of(spec.attributes, spec.folder)
    columns = {
        column.name: pa.Column(checks=_inside(column), nullable=column.attribute.nullable)
        for column in domain
    }
    return pa.DataFrameSchema(columns, strict=True, name=spec.name)


def validate_rows(frame: pd.DataFrame, spec: Spec) -> tuple[pd.DataFrame, ValidationReport]:
    """The typed rows of a frame that lie in the declared domain, and what was found.

    ``on_invalid`` as the spec says: ``fail`` raises. ``drop`` leaves out every row with a finding.
    ``clip`` moves numbers, dates and moments to the nearest admissible one, sets other invalid
    cells to missing where the attribute is nullable, and drops the rows that remain invalid, and
    those of persons outside the domain. Rows are renumbered from 0.

    Privacy: row by row, dtypes included; under ``fail``, whether any row breaks its domain is said
        exactly.

    Raises:
        DataError: columns that are not those declared, findings under ``fail``, or no row left.
    """
    require_columns(list(frame.columns), list(spec.attributes), "the table")
    malformed = malformed_rows(frame)
    parsed = {name: parse(frame[name], attribute) for name, attribute in spec.attributes.items()}
    typed = pd.DataFrame({name: values for name, (values, _) in parsed.items()}).reset_index(
        drop=True
    )
    invalid = {name: mask for name, (_, mask) in parsed.items()}
    if not any(mask.any() for mask in invalid.values()) and _passes(typed, spec):
        kept, report = typed, ValidationReport(spec.validation.on_invalid, len(typed), 0, 0, 0, ())
    else:
        kept, report = _repaired(typed, invalid, spec)
    return kept, replace(
        report,
        malformed=malformed,
        rows=report.rows + malformed,
        dropped=report.dropped + malformed,
    )


def _inside(column: Column) -> pa.Check:
    def inside(values: pd.Series) -> pd.Series:
        return pd.Series(column.encode(values) != OUTSIDE, index=values.index)

    return pa.Check(inside, name="domain", n_failure_cases=1)


def _passes(frame: pd.DataFrame, spec: Spec) -> bool:
    try:
        pandera_schema(spec).validate(frame, lazy=True)
    except SchemaErrors:
        return False
    return True


def _repaired(
    frame: pd.DataFrame, invalid: Mapping[str, Booleans], spec: Spec
) -> tuple[pd.DataFrame, ValidationReport]:
    domain = Domain.of(spec.attributes, spec.folder)
    broken = {
        column.name: _broken(frame[column.name], invalid[column.name], column) for column in domain
    }
    findings = tuple(
        finding for name, rules in broken.items() for finding in _findings(name, rules)
    )
    if spec.validation.on_invalid == "fail":
        raise DataError(_failure(findings))
    if spec.validation.on_invalid == "drop":
        return _without(frame, _any_of(broken, len(frame)), spec, findings, 0, 0)
    return _clipped(frame, broken, spec, findings)


def _broken(typed: pd.Series, invalid: Booleans, column: Column) -> dict[_Rule, Booleans]:
    """Masks (n,) of the cells that break each rule; a cell breaks at most one."""
    outside = (column.encode(typed) == OUTSIDE) & ~invalid
    missing = outside & typed.isna().to_numpy(dtype=bool)
    return {"type": invalid, "missing": missing, "domain": outside & ~missing}


def _findings(name: str, rules: dict[_Rule, Booleans]) -> Iterator[DomainFinding]:
    for rule, mask in rules.items():
        rows = np.flatnonzero(mask)
        if len(rows):
            yield DomainFinding(
                name, rule, len(rows), tuple(int(row) + 1 for row in rows[:ROWS_NAMED])
            )


def _failure(findings: tuple[DomainFinding, ...]) -> str:
    remedy = "correct the data or the declared domain, or set validation.on_invalid to drop or clip"
    if len(findings) == 1:
        return f"{findings[0]}; {remedy}"
    listed = "\n".join(f"  {finding}" for finding in findings)
    return f"the data breaks its declared domain in {len(findings)} ways; {remedy}:\n{listed}"


def _any_of(broken: dict[str, dict[_Rule, Booleans]], rows: int) -> Booleans:
    bad = np.zeros(rows, dtype=bool)
    for rules in broken.values():
        for mask in rules.values():
            bad |= mask
    return bad


def _without(
    frame: pd.DataFrame,
    bad: Booleans,
    spec: Spec,
    findings: tuple[DomainFinding, ...],
    clipped: int,
    emptied: int,
) -> tuple[pd.DataFrame, ValidationReport]:
    kept = frame[~bad].reset_index(drop=True)
    if kept.empty:
        raise DataError(
            "no row lies inside the declared domain; compare the spec's attributes with the data"
        )
    report = ValidationReport(
        spec.validation.on_invalid, len(frame), len(frame) - len(kept), clipped, emptied, findings
    )
    return kept, report


def _clipped(
    frame: pd.DataFrame,
    broken: dict[str, dict[_Rule, Booleans]],
    spec: Spec,
    findings: tuple[DomainFinding, ...],
) -> tuple[pd.DataFrame, ValidationReport]:
    frame, bad = frame.copy(), np.zeros(len(frame), dtype=bool)
    clipped, emptied, key = 0, 0, _unit_key(spec)
    for name, rules in broken.items():
        attribute, faulty = spec.attributes[name], rules["type"] | rules["domain"]
        bad |= rules["missing"]
        if (
            isinstance(attribute, Integer | Float | Date | Datetime)
            and name != key
            and rules["domain"].any()
        ):
            frame[name] = _moved(frame[name], rules["domain"], attribute)
            clipped += int(rules["domain"].sum())
            faulty = rules["type"]
        if attribute.nullable:
            frame[name] = frame[name].mask(faulty)
            emptied += int(faulty.sum())
        else:
            bad |= faulty
    return _without(frame, bad, spec, findings, clipped, emptied)


def _unit_key(spec: Spec) -> str | None:
    """The column that identifies a row's person: moving its values would merge several persons."""
    unit = spec.privacy.unit
    return unit.key if isinstance(unit, PersonUnit) else None


def _moved(
    values: pd.Series, outside: Booleans, attribute: Integer | Float | Date | Datetime
) -> pd.Series:
    """The typed column with the cells outside moved to the nearest bound, or down to the grid."""
    low, high, step = _bounds(attribute)
    fine = values.astype("datetime64[us]") if isinstance(attribute, Date | Datetime) else values
    moved = fine.clip(low, high)
    moved = moved if step is None else moved - (moved - low) % step
    return values.mask(outside, moved.astype(values.dtype))


def _bounds(attribute: Integer | Float | Date | Datetime) -> tuple[Any, Any, Any]:
    if isinstance(attribute, Date | Datetime):
        step = (
            pd.Timedelta(seconds=attribute.step).as_unit("us")
            if isinstance(attribute, Datetime)
            else None
        )
        return _moment(attribute.min), _moment(attribute.max), step
    return attribute.min, attribute.max, attribute.step if isinstance(attribute, Integer) else None


def _moment(bound: dt.date) -> pd.Timestamp:
    moment = pd.Timestamp(bound).as_unit("us")
    return moment if moment.tz is None else moment.tz_convert("UTC").tz_localize(None)
