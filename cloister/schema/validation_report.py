"""What validation finds in rows: counts and row numbers, never values; internal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from cloister.arrays import Booleans
from cloister.errors import DataError
from cloister.figures import count_of, listed
from cloister.schema.sources.batches import ROWS_NAMED
from cloister.schema.spec import OnInvalid

Rule = Literal["type", "missing", "domain", "constraint"]

RULES: dict[Rule, str] = {
    "type": "cannot be read as the declared type",
    "missing": "missing in an attribute that is not nullable",
    "domain": "outside the declared values or bounds",
    "constraint": "breaking it: a cell is missing that should be there, or is there and should not",
}


@dataclass(frozen=True)
class DomainFinding:
    """How often one column breaks one rule: ``count`` cells, the first ten rows of them from 1.

    Of rule ``constraint``, how many rows break the constraint that ``column`` names.
    """

    column: str
    rule: Rule
    count: int
    rows: tuple[int, ...]

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.rows) else ""
        what, of = ("constraint", "row") if self.rule == "constraint" else ("column", "value")
        return (
            f"{what} '{self.column}': {count_of(self.count, of)} {RULES[self.rule]} "
            f"({listed('row', self.rows)}{more})"
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


@dataclass
class Tally:
    """Findings of rows that come in batches, in the order of a file."""

    rows: int = 0
    valid: int = 0
    clipped: int = 0
    emptied: int = 0
    malformed: int = 0
    _broken: Counter[tuple[str, Rule]] = field(default_factory=Counter)
    _first: dict[tuple[str, Rule], list[int]] = field(default_factory=dict)

    def add_broken(self, column: str, rule: Rule, broken: Booleans) -> None:
        """Add the rows of the current batch (n,) that break a rule of a column."""
        rows = np.flatnonzero(broken)
        self._broken[column, rule] += len(rows)
        first = self._first.setdefault((column, rule), [])
        first.extend(int(row) + self.rows + 1 for row in rows[: ROWS_NAMED - len(first)])

    def end_batch(self, valid: Booleans, malformed: int) -> None:
        """Count the rows (n,) of the current batch."""
        self.rows += len(valid)
        self.valid += int(valid.sum())
        self.malformed += malformed

    def add(self, later: Tally) -> None:
        """Add the findings of the rows that follow."""
        for (column, rule), count in later._broken.items():
            self._broken[column, rule] += count
            first = self._first.setdefault((column, rule), [])
            rows = later._first[column, rule][: ROWS_NAMED - len(first)]
            first.extend(row + self.rows for row in rows)
        self.rows += later.rows
        self.valid += later.valid
        self.clipped += later.clipped
        self.emptied += later.emptied
        self.malformed += later.malformed

    def report(self, names: Iterable[str], on_invalid: OnInvalid) -> ValidationReport:
        """The report on all batches, its findings in the order of columns and constraints.

        Raises:
            DataError: findings under ``fail``, or no row is left.
        """
        findings = tuple(
            DomainFinding(name, rule, self._broken[name, rule], tuple(self._first[name, rule]))
            for name in dict.fromkeys(names)
            for rule in RULES
            if self._broken[name, rule]
        )
        if findings and on_invalid == "fail":
            raise DataError(_failure(findings))
        if self.rows and not self.valid:
            raise DataError(
                "no row lies inside the declared domain; compare the spec's attributes with the "
                "data"
            )
        return ValidationReport(
            on_invalid,
            self.rows + self.malformed,
            self.rows - self.valid + self.malformed,
            self.clipped,
            self.emptied,
            findings,
            self.malformed,
        )


def _failure(findings: tuple[DomainFinding, ...]) -> str:
    remedy = "correct the data or the declared domain, or set validation.on_invalid to drop or clip"
    if len(findings) == 1:
        return f"{findings[0]}; {remedy}"
    listed = "\n".join(f"  {finding}" for finding in findings)
    return f"the data breaks its declared domain in {len(findings)} ways; {remedy}:\n{listed}"
