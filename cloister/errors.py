"""Every error that Cloister raises on purpose.

    CloisterError
    ├── InputError              what was given cannot be used, exit code 2; all but StorageError: nothing spent
    │   ├── SpecError           the spec file: line, key, rule, remedy
    │   ├── DataError           the data file: column, rule, row numbers, remedy
    │   ├── ConstraintError     a constraint: its name, what is wrong with it, remedy
    │   ├── PlanError           no plan fits the budget, the memory or the privacy parameters
    │   ├── BudgetExceeded      the ledger refuses: what is left, what was asked
    │   └── StorageError        a path that cannot be read or written; after the charge, if the disk fills up then
    ├── PrivacyError            a step that cannot be shown private: refused
    │   ├── UnsupportedEvent    no accountant reads the event
    │   ├── UnplannedQuery      a model asked the door for something its plan does not hold
    │   └── JournalMismatch     a journal of other data, code, spec or parameters, or one that lacks answers
    ├── SampleError             the rows that were asked for cannot be drawn; never silently short
    └── VerificationError       a ledger, certificate or file is not what was recorded

Messages name files, columns, constraints and row *numbers*, the rule and the remedy. They never
carry a value of the data: in differential privacy an error message is an unaccounted release.
"""


class CloisterError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class InputError(CloisterError):
    """What was given cannot be used; unless it is a path, nothing was spent."""

    exit_code = 2


class SpecError(InputError):
    """The spec file cannot be used."""


class DataError(InputError):
    """The data does not fit its declared schema."""


class ConstraintError(InputError):
    """A constraint cannot be read, bound or satisfied."""


class PlanError(InputError):
    """No plan fits the budget, the memory or the privacy parameters."""


class BudgetExceeded(InputError):
    """The ledger refuses a reservation."""


class StorageError(InputError):
    """A path cannot be read or written."""


class PrivacyError(CloisterError):
    """A step that cannot be shown private."""


class UnsupportedEvent(PrivacyError):
    """No accountant reads this event."""


class UnplannedQuery(PrivacyError):
    """A model asked the door for something that its plan does not hold."""


class JournalMismatch(PrivacyError):
    """A journal belongs to other data, code, spec or parameters, or lacks answers that were drawn."""


class SampleError(CloisterError):
    """The rows that were asked for cannot be drawn."""


class VerificationError(CloisterError):
    """A ledger, certificate or file is not what was recorded."""
