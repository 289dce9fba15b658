"""Every error that Cloister raises on purpose.

    CloisterError
    ├── InputError              the input cannot be used: exit code 2, nothing spent
    │   ├── SpecError           the spec file: line, key, rule, remedy
    │   ├── DataError           the data file: column, rule, row numbers, remedy
    │   │   └── ColumnsError    its columns are not those declared: their names alone
    │   ├── ConstraintError     a constraint: its name, what is wrong with it, remedy
    │   ├── PlanError           no plan fits the budget, the memory or the privacy parameters
    │   ├── BudgetExceeded      the ledger refuses: what is left, what was requested
    │   ├── NotPermitted        the ledger refuses: a role, or another person, is needed
    │   └── StorageError        a path cannot be read or written: possibly after the charge
    │       ├── DiskFull        a full disk, for which trying again at once is no remedy
    │       └── PlaceTaken      something else lies at a place, for which it is none either
    ├── PrivacyError            a step that cannot be shown private: refused
    │   ├── UnsupportedEvent    no accountant reads the event
    │   ├── UnplannedQuery      a model asked the door for an answer outside its plan
    │   └── JournalMismatch     a journal of other data, code, spec, parameters, or lacking answers
    ├── SampleError             the requested rows cannot be drawn; never silently fewer
    └── VerificationError       a ledger, certificate or file is not what was recorded

A StorageError is the one InputError that can follow a charge, as when the disk fills up.

Messages name files, columns, constraints and row *numbers*, the rule and the remedy. They never
carry a value of the data: in differential privacy an error message is an unaccounted release.
"""

from __future__ import annotations

_LONGEST_LINE = 4_600
"""Letters of a line of a message at most: the longest path of Linux, 4,096, and a sentence."""

_ENDS = (200, 300)
"""Letters that stay of the beginning and the end of a longer line, which holds the remedy."""


class CloisterError(Exception):
    """Base of all errors raised on purpose; long lines of a message lose their middle."""

    exit_code = 1

    def __str__(self) -> str:
        """The message."""
        return "\n".join(map(_shortened, super().__str__().split("\n")))


def _shortened(line: str) -> str:
    first, last = _ENDS
    left_out = len(line) - first - last
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:first]}... ({left_out:,} more characters) ...{line[-last:]}"


class InputError(CloisterError):
    """The input cannot be used; nothing was spent, unless the error is a StorageError."""

    exit_code = 2


class SpecError(InputError):
    """The spec file cannot be used."""


class DataError(InputError):
    """The data does not fit its declared schema."""


class ColumnsError(DataError):
    """The columns of a source are not those declared; says nothing that depends on its rows."""


class ConstraintError(InputError):
    """A constraint cannot be read, bound or satisfied; ``keys`` of a spec lead to it, if known."""

    def __init__(self, message: str, keys: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.keys = keys


class PlanError(InputError):
    """No plan fits the budget, the memory or the privacy parameters."""


class NotPermitted(InputError):
    """Who acts lacks a role, or the rules of the house ask for another person."""


class BudgetExceeded(InputError):
    """The ledger refuses a reservation."""


class StorageError(InputError):
    """A path cannot be read or written."""


class DiskFull(StorageError):
    """A disk is full: the same step fails until somebody makes room."""


class PlaceTaken(StorageError):
    """Something else lies where files should: the same step fails until somebody moves it."""


class PrivacyError(CloisterError):
    """A step that cannot be shown private."""


class UnsupportedEvent(PrivacyError):
    """No accountant reads this event."""


class UnplannedQuery(PrivacyError):
    """A model asked the door for an answer outside its plan."""


class JournalMismatch(PrivacyError):
    """A journal is of other data, code, spec or parameters, or lacks answers that were drawn."""


class SampleError(CloisterError):
    """The requested rows cannot be drawn."""


class VerificationError(CloisterError):
    """A ledger, certificate or file is not what was recorded."""
