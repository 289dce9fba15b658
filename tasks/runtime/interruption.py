"""Errors that come of ending the process, by the keyboard or a signal."""

from __future__ import annotations

INTERRUPTED = "interrupted; run the same command again to resume"


def is_interruption(error: BaseException | None) -> bool:
    """Whether an error came of ending the process.

    Libraries fail in their own ways when a signal interrupts them.
    """
    while error is not None:
        # by its name, since a command line starts faster without Prefect
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "TerminationSignal":
            return True
        error = error.__cause__ or error.__context__
    return False
