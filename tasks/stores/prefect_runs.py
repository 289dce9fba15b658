"""Runs of Prefect: how a function becomes a step of a flow, and the page of the run.

A step is named, versioned and not persisted, and its errors hold no data. Steps that read the data
are never retried. Those that only record what was done are, so that a tracking server that restarts
does not fail a release that was paid for.

Privacy: the page shows the content of the certificate, which is public.
"""

from __future__ import annotations

import functools
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import httpx
from prefect import Task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import MissingContextError, PrefectException
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from prefect.utilities.annotations import opaque, quote
from prefect.utilities.urls import url_for

from cloister import errors
from cloister.privacy.certificate.certificate import Certificate, read_certificate
from cloister.tasks.home import process
from cloister.tasks.home.files import is_of_full_disk

_P = ParamSpec("_P")
_R = TypeVar("_R")

DELAYS = (2.0, 10.0, 60.0)
"""Seconds before each retry of a recording step: most servers restart within a minute."""


class Step(Task[..., Any]):
    """A task that follows, in the graph of a run, the steps whose results are given as ``follows``.

    Prefect looks for results in all that a task is given, and in their parts, and draws an edge
    from the step of each. Edges that others imply would cross each other, so they are left out.
    """

    def __init__(self, function: Callable[..., Any], follows: Sequence[str], **about: Any) -> None:
        super().__init__(function, **about)
        self._follows = frozenset(follows)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step."""
        arguments = signature(self.fn).bind(*args, **kwargs).arguments
        edges = {name: _edge(value) for name, value in arguments.items() if name in self._follows}
        return super().__call__(**{name: quote(value) for name, value in arguments.items()} | edges)


def _edge(value: object) -> object:
    """A result, or each in a list, so that Prefect draws an edge from it and not from its parts."""
    return [opaque(result) for result in value] if isinstance(value, list) else opaque(value)


def step(name: str, run_name: str, *follows: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function a Prefect task that runs once.

    Results are not persisted and runs are not retried or cached: a second run of a step that reads
    data is a second release, and only the ledger decides on that.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        return Step(report_progress(name, function), follows, **_about(name, run_name), retries=0)

    return decorate


def recording_step(
    name: str, run_name: str, *follows: str
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
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
        return Step(report_progress(name, function), follows, **_about(name, run_name), **again)

    return decorate


def _about(name: str, run_name: str) -> dict[str, Any]:
    """What all tasks have in common; the version is that of the code that decides an answer."""
    return {
        "name": name,
        "task_run_name": run_name,
        "version": process.code_version(),
        "persist_result": False,
        "cache_policy": NO_CACHE,
        "log_prints": False,
    }


def _may_pass(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the same step may succeed later: a store may come back, a wrong file stays wrong."""
    lasting = isinstance(
        state.data, errors.InputError | errors.PrivacyError | errors.VerificationError
    )
    passing = isinstance(state.data, errors.StorageError)
    waits_for_somebody = isinstance(state.data, errors.DiskFull | errors.PlaceTaken)
    return (passing or not lasting) and not waits_for_somebody


def report_progress(name: str, function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function with its start and end reported, and its unforeseen errors scrubbed.

    Privacy: warnings of libraries are dropped, here and not by commands alone. That there is one
        can be a fact about a single row, such as a number too large for its grid.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        process.reporter().start(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = function(*args, **kwargs)
        except errors.CloisterError:
            process.reporter().fail(name)
            raise
        except Exception as error:  # noqa: BLE001 - any message may quote the data
            process.reporter().fail(name)
            raise scrub(name, error) from None
        process.reporter().finish(name)
        return result

    return call


def scrub(name: str, error: Exception) -> errors.CloisterError:
    """An error with the type and place of another one, but without its message."""
    if process.is_interruption(error):
        return errors.CloisterError(process.INTERRUPTED)
    if isinstance(error, OSError) and is_of_full_disk(error):
        return errors.DiskFull(
            f"the disk is full at {error.filename or 'an output'}; make room and run the same "
            "command"
        )
    if isinstance(error, MemoryError):
        return errors.CloisterError(
            f"step '{name}' ran out of memory; free memory or run on a larger machine"
        )
    return errors.CloisterError(
        f"step '{name}' failed inside: {place_of(error)}; its message is withheld, since it may "
        "quote the data"
    )


def place_of(error: BaseException) -> str:
    """The type of an error and the innermost line of this project that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(process.PACKAGE)]
    if not ours:
        return type(error).__name__
    last = ours[-1]
    source = Path(last.filename).relative_to(process.PACKAGE.parent)
    return f"{type(error).__name__} at {source}:{last.lineno}"


DECLINED = "Declined"
"""Name of the state of a run whose price the budget does not hold."""


def decline_run(reason: str) -> Any:
    """The final state of a run that the ledger declined: a cancellation, at no charge.

    A caller in this process gets the error; nothing of it is stored.
    """
    note("declined: %s", reason)
    return Cancelled(name=DECLINED, message=reason, data=errors.BudgetExceeded(reason))


AWAITING = "AwaitingReview"
"""Name of the state of a run whose release waits for a decision."""


def await_review(release: str, done: _R) -> Any:
    """The final state of a run that made a candidate: completed, with what a caller gets."""
    return Completed(name=AWAITING, message=f"release {release} awaits review", data=done)


def name_run(*words: str) -> None:
    """Call this run by what is known of it now; nothing outside of a run."""
    if run := flow_run.id:
        with _shown("name"), get_client(sync_client=True) as client:
            client.update_flow_run(UUID(run), name=" ".join(filter(None, words)))


def link_resumed(release: str) -> None:
    """Link this run and those that began its release, both ways, on the pages of all."""
    current = flow_run.id
    if not current:
        return
    named = FlowRunFilter(name=FlowRunFilterName(like_=release))
    with _shown("link to the run that it resumes"), get_client(sync_client=True) as client:
        for earlier in client.read_flow_runs(flow_run_filter=named):
            if str(earlier.id) == current:
                continue
            links = [
                (
                    current,
                    "resumes",
                    f"Resumes {_link(str(earlier.id), earlier.name)}: nothing charged.",
                ),
                (
                    str(earlier.id),
                    "resumed-by",
                    f"Resumed by {_link(current, str(flow_run.name))}.",
                ),
            ]
            for run, way, text in links:
                client.create_artifact(
                    ArtifactCreate(
                        key=f"{release}-{way}", type="markdown", data=text, flow_run_id=UUID(run)
                    )
                )


def _link(run: str, name: str) -> str:
    return f"[{name}]({url_for('flow-run', obj_id=run) or f'/runs/flow-run/{run}'})"


@contextmanager
def _shown(what: str) -> Iterator[None]:
    """Continue if the server refuses what it should show: that fails no release."""
    try:
        yield
    except (PrefectException, httpx.HTTPError) as error:
        note("the page of this run shows no %s: the server failed (%s)", what, type(error).__name__)


def note(message: str, *values: object) -> None:
    """Write a line to the log of the run, or to that of this process outside of a run.

    Public values alone.
    """
    _logger().info(message, *values)


def note_warning(message: str, *values: object) -> None:
    """Write a warning where :func:`note` writes; public values alone."""
    _logger().warning(message, *values)


def _logger() -> Any:
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger(__name__)


def attach_certificate(public: Path) -> None:
    """Add spend, violations and the text of the certificate to the page of the run, if any.

    A server that rejects them fails no release.

    Privacy: all is read from the certificate, which is public.
    """
    if not flow_run.id:
        return
    certificate = read_certificate(public)
    with _shown("certificate"):
        _show(certificate)


def _show(certificate: Certificate) -> None:
    release = certificate.subject.id
    create_table_artifact(_spend(certificate), f"{release}-spend", _promise(certificate))
    create_table_artifact(
        _violations(certificate),
        f"{release}-violations",
        f"Constraints in the synthetic table of release {release}.",
    )
    create_markdown_artifact(
        _text(certificate), f"{release}-certificate", f"The certificate of release {release}."
    )


def _text(certificate: Certificate) -> str:
    """The certificate as it is handed on, after what it promises in words."""
    words = "\n".join(f"- {sentence}" for sentence in certificate.guarantee.meaning)
    return f"{_promise(certificate)}\n\n{words}\n\n~~~~~~yaml\n{certificate.to_yaml()}~~~~~~\n"


def _spend(certificate: Certificate) -> list[dict[str, Any]]:
    stages = [(stage.name, stage.purpose, stage.epsilon) for stage in certificate.stages]
    total = (
        "all together",
        "accounted for together, so not the sum of the stages",
        certificate.guarantee.accounted.epsilon,
    )
    return [
        {"stage": name, "purpose": purpose, "epsilon": cost}
        for name, purpose, cost in [*stages, total]
    ]


def _violations(certificate: Certificate) -> list[dict[str, Any]]:
    return [
        {
            "constraint": constraint.name,
            "kind": "hard" if constraint.hard else "soft",
            "rule": constraint.rule,
            "violations": constraint.violations,
        }
        for constraint in certificate.constraints
    ]


def _promise(certificate: Certificate) -> str:
    subject, guarantee = certificate.subject, certificate.guarantee
    stain = "" if guarantee.private else "**NOT PRIVATE** (seeded noise). "
    if weaker := certificate.weaker_guarantee:
        stain += f"**NOT differentially private**: {weaker}. "
    return (
        f"{stain}Release {subject.id} of {subject.dataset} by {subject.method}: epsilon "
        f"{guarantee.epsilon}, delta {guarantee.delta}, for {guarantee.unit}."
    )
