"""How a function becomes a step of a flow: named, versioned, not persisted, errors without data.

Steps that read the data are never retried. Those that only record what was done are, so that a
tracking server that restarts does not fail a release that was paid for.
"""

from __future__ import annotations

import errno
import functools
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from cloister.errors import CloisterError, InputError, PrivacyError, StorageError, VerificationError
from cloister.tasks.runtime.code_version import PACKAGE
from cloister.tasks.runtime.interruption import INTERRUPTED, is_interruption
from cloister.tasks.runtime.progress import reporter
from cloister.version import __version__

_P = ParamSpec("_P")
_R = TypeVar("_R")

DELAYS = (2.0, 10.0, 60.0)
"""Seconds before each retry of a recording step: most servers restart within a minute."""


def step(name: str, run_name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function a Prefect task that runs once.

    Results are not persisted and runs are not retried or cached: a second run of a step that reads
    data is a second release, and only the ledger decides on that.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        made: Callable[_P, _R] = task(**_about(name, run_name), retries=0)(
            report_progress(name, function)
        )
        return made

    return decorate


def recording_step(name: str, run_name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function a Prefect task that is retried, unless its input is at fault.

    For functions that read no sensitive data and give the same result when they are repeated after
    a failure at any point. The delays grow: ``DELAYS``.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        again: dict[str, Any] = {
            "retries": len(DELAYS),
            "retry_delay_seconds": list(DELAYS),
            "retry_condition_fn": _may_pass,
        }
        made: Callable[_P, _R] = task(**_about(name, run_name), **again)(
            report_progress(name, function)
        )
        return made

    return decorate


def _about(name: str, run_name: str) -> dict[str, Any]:
    """What all tasks have in common."""
    return {
        "name": name,
        "task_run_name": run_name,
        "version": __version__,
        "persist_result": False,
        "cache_policy": NO_CACHE,
        "log_prints": False,
    }


def _may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the same step may succeed later: a store may come back, a wrong file stays wrong."""
    lasting = isinstance(state.data, InputError | PrivacyError | VerificationError)
    return isinstance(state.data, StorageError) or not lasting


def report_progress(name: str, function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function with its start and end reported, and its unforeseen errors scrubbed.

    Privacy: warnings of libraries are dropped, here and not by commands alone. That there is one
        can be a fact about a single row, such as a number too large for its grid.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        reporter().start(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = function(*args, **kwargs)
        except CloisterError:
            reporter().fail(name)
            raise
        except Exception as error:  # noqa: BLE001 - any message may quote the data
            reporter().fail(name)
            raise scrub(name, error) from None
        reporter().finish(name)
        return result

    return call


def scrub(name: str, error: Exception) -> CloisterError:
    """An error with the type and place of another one, but without its message."""
    if is_interruption(error):
        return CloisterError(INTERRUPTED)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"the disk is full at {error.filename or 'an output'}; make room and run the same "
            "command"
        )
    if isinstance(error, MemoryError):
        return CloisterError(
            f"step '{name}' ran out of memory; free memory or run on a larger machine"
        )
    return CloisterError(
        f"step '{name}' failed inside: {place_of(error)}; its message is withheld, since it may "
        "quote the data"
    )


def place_of(error: BaseException) -> str:
    """The type of an error and the innermost line of this project that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    if not ours:
        return type(error).__name__
    last = ours[-1]
    source = Path(last.filename).relative_to(PACKAGE.parent)
    return f"{type(error).__name__} at {source}:{last.lineno}"
