"""Cloister in Python: what ``import cloister`` offers, for notebooks and programs.

The same flows, checks and ledger as on the command line; results are values with an HTML form.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pandas as pd
from pydantic import ValidationError

from cloister.devices import AUTO, resolve_device
from cloister.errors import CloisterError, InputError
from cloister.evaluation import Level
from cloister.flows import results
from cloister.flows.cli.options import DELIVERY, keywords_of
from cloister.privacy.certificate.certificate import read_certificate
from cloister.schema.sources.batches import require_columns
from cloister.schema.spec_files.loading import load_spec
from cloister.tasks.data.sources import kept_frame
from cloister.tasks.home.home import Home
from cloister.tasks.home.identity import acting, identity
from cloister.tasks.release.comparison import EvaluationOptions, compare_files
from cloister.tasks.release.publish import confirm_delivery
from cloister.tasks.requests.plan import StageCost, plan_of, stage_costs, total_cost
from cloister.tasks.requests.plan_report import device_words, forecast_of
from cloister.tasks.requests.release_request import ReleaseRequest
from cloister.tasks.requests.resolved import ONLY_TABLE, ResolvedRequest, public_context_of, resolve

if TYPE_CHECKING:
    from cloister.flows.release import Finished, Outcome

__all__ = ["approve", "check", "draft", "evaluate", "load", "measure", "plan", "release"]

_Amount = str | float | Fraction
_Data = pd.DataFrame | str | Path
_Spec = str | Path
_TABLES = ("data", "synthetic")
"""The arguments that a table may be given as."""


def draft(
    *files: str | Path, out: str | Path | None = None, table: Sequence[str] = ()
) -> results.DraftResult:
    """Draft a spec for a file, or for several, each a table of its own.

    Or from the schema of a database by its URL, of a ``table`` or more.

    Every guess is marked; a release refuses it until a person declares it.

    Raises:
        InputError: the table cannot be read, or ``out`` exists.
    """
    from cloister.schema.drafts.reflection import write_draft

    with _in_python():
        path = None if out is None else Path(out)
        sources = [os.fspath(_path("file", file)) for file in files]
        return results.DraftResult(write_draft(sources, path, table), path)


def check(spec: _Spec) -> results.CheckResult:
    """Check a spec: form, bounds, constraints, and whether a release would take it; reads no data.

    Raises:
        InputError: a release would not.
    """
    from cloister.tasks.requests.plan import checked_spec

    with _in_python():
        return results.CheckResult(checked_spec(Path(_path("spec", spec))))


def measure(
    spec: _Spec,
    data: _Data | None = None,
    *,
    epsilon: _Amount,
    out: str | Path,
    delta: _Amount | None = None,
) -> results.MeasureResult:
    """Measure what a spec marks data-derived, with noise and at a charge; write a public spec.

    Called again after a crash, the same call resumes at no further cost.

    Raises:
        CloisterError: nothing was charged if it is an InputError.
    """
    from cloister.flows.cli.data import run_measurement

    home, path = Home.current(), Path(_path("spec", spec))
    with _in_python(), _file_of("data", data, home, path) as file:
        request = ReleaseRequest(
            spec=path, epsilon=epsilon, delta=delta, data=file, out=_path("out", out), by=identity()
        )
        with confirm_delivery(home, request.by):
            return _measured(run_measurement(request, home).to_json())


@keywords_of(*DELIVERY)
def plan(spec: _Spec, **options: Any) -> results.PlanSummary:
    """What a release would query and spend; touches no data and costs nothing.

    What is left out is as the spec says.

    Raises:
        InputError: the spec or an option cannot be used.
    """
    with _in_python():
        wanted = ReleaseRequest(spec=Path(_path("spec", spec)), by=identity(), **options)
        request = resolve(wanted)
        release_plan = plan_of(request)
        needed = forecast_of(request, public_context_of(request), release_plan)
        return results.PlanSummary(
            method=request.method,
            reason=request.reason,
            rows=request.rows,
            spend=_spend(request),
            seconds=needed.seconds,
            memory=needed.memory,
            device=device_words(request, release_plan),
        )


@keywords_of("data")
def release(spec: _Spec, data: _Data | None = None, **options: Any) -> results.ReleaseResult:
    """Release a synthetic table; charges the dataset's budget in the ledger of ``CLOISTER_HOME``.

    ``data`` takes the place of the spec's source; a frame is kept in the private home while the
    release runs. Called again after a crash, the same call resumes at no further cost, on any
    device.

    Raises:
        CloisterError: nothing was charged if it is an InputError.
    """
    from cloister.flows.cli.release import run_release

    home, path = Home.current(), Path(_path("spec", spec))
    with _in_python(), _file_of("data", data, home, path) as file:
        request = ReleaseRequest(spec=path, data=file, by=identity(), **options)
        with confirm_delivery(home, request.by):
            return _released(run_release(request, home))


def evaluate(
    spec: _Spec,
    data: _Data | None,
    synthetic: _Data,
    *,
    level: Level = "quick",
    device: str = AUTO,
) -> results.EvaluationResult:
    """Measure a synthetic table against the real one. Internal: the figures are not private.

    Without ``data`` the real rows are those of the spec's source. Boosted trees are trained on the
    ``device``; see :func:`plan`.

    Raises:
        InputError: the spec or a table cannot be used.
    """
    home, path = Home.current(), Path(_path("spec", spec))
    with (
        _in_python(),
        _file_of("data", data, home, path) as real,
        _file_of("synthetic", synthetic, home, path) as drawn,
    ):
        if drawn is None:
            raise InputError("synthetic is None; give a frame or the path of a file")
        _require_one("level", level, get_args(Level))
        settings = EvaluationOptions(level, device=resolve_device(device))
        location = None if real is None else str(real)
        return results.EvaluationResult(compare_files(path, location, str(drawn), settings, home))


def approve(
    release: str,
    reason: str,
    *,
    by: str | None = None,
    sign: str = "",
    same_data: Sequence[str] = (),
) -> results.ReviewResult:
    """Approve a candidate, once its folder is verified.

    ``by`` says on whose behalf; ``sign`` is your own key, where the rules ask that people sign.
    ``same_data`` are the other accounts that read the same rows, as an officer is asked to confirm.

    Raises:
        InputError: there is no such release, it is no candidate, or the rules ask for others.
        VerificationError: the folder is not what was recorded.
    """
    from cloister.flows.review import move_release

    with _in_python():
        if not reason.strip():
            raise InputError("an approval needs a reason; give it in a few words")
        who = acting(by or "")
        state = move_release(Home.current(), release, "approved", who, reason, sign, same_data)
        return results.ReviewResult(release, state)


def load(release: str) -> results.LoadedModel:
    """The model of an approved release, to draw more rows from and to answer questions.

    It is given by its id, by the folder of its public files, or by one of them.

    Raises:
        InputError: there is no such release, or it is not approved.
        VerificationError: the model is not the one that was released.
    """
    from cloister.flows.sampling import approved_model
    from cloister.privacy.certificate.manifest import release_named

    with _in_python():
        release = release_named(release)
        return results.LoadedModel(release, approved_model(Home.current(), release))


@contextmanager
def _in_python() -> Iterator[None]:
    """Rewrite errors for Python: the option ``--seed-sampling`` is the argument seed_sampling.

    Raises:
        InputError: an argument is of a wrong type, or a worker runs the program anew.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # before its own task
        raise InputError(
            "each worker runs this program from its first line; put what calls Cloister under: if "
            "__name__ == '__main__'"
        )
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise InputError(f"{name}: {first['msg'].lower()}; give another") from None
    except CloisterError as error:
        message = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda m: m[1].replace("-", "_"), str(error))
        error.args = (message, *error.args[1:])
        raise


@contextmanager
def _file_of(name: str, data: _Data | None, home: Home, spec: Path) -> Iterator[Path | None]:
    """The file that holds the data; one in the private home for a frame, while it is needed.

    Errors name a frame by its argument.

    Raises:
        InputError: it is neither a frame nor a path, or lacks declared columns.
    """
    if not isinstance(data, pd.DataFrame):
        yield None if data is None else Path(_path(name, data))
        return
    declared, shown = load_spec(spec), f"the frame {name}"
    if not declared.tables:
        columns = [column for column in data.columns if column not in declared.ignore]
        require_columns(list(map(str, columns)), list(declared.attributes), shown)
    home.prepare()
    with kept_frame(data, home) as file:
        try:
            yield file
        except CloisterError as error:
            error.args = (str(error).replace(str(file), shown), *error.args[1:])
            raise


def _path(name: str, value: str | Path) -> str | Path:
    """A path argument.

    Raises:
        InputError: it is not a path.
    """
    if isinstance(value, str | Path):
        return value
    raise InputError(
        f"{name} is of type {type(value).__name__}; give the path of a file"
        + (", or a pandas DataFrame with named columns" if name in _TABLES else "")
    )


def _require_one(name: str, value: object, choices: Sequence[object]) -> None:
    """Check that an argument is one of its choices."""
    if value not in choices:
        words = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise InputError(f"{name} should be one of {words}")


def _released(outcome: Outcome | Finished) -> results.ReleaseResult:
    content = outcome.to_json()
    folder = Path(content["files"]["public"])
    stages = tuple(StageCost(**stage) for stage in content["stages"])
    return results.ReleaseResult(
        outcome.release,
        {
            content["dataset"] if file.stem == ONLY_TABLE else file.stem: pd.read_parquet(file)
            for file in sorted(folder.glob("*.parquet"))
        },
        read_certificate(folder),
        results.SpendSummary(stages, content["accounted_epsilon"], Fraction(content["delta"])),
        content["budget_left"],
        content["internal"]["metrics"],
        folder,
    )


def _spend(request: ResolvedRequest) -> results.SpendSummary:
    release_plan, task = plan_of(request), public_context_of(request).task
    return results.SpendSummary(
        stage_costs(release_plan, request.budget, task),
        total_cost(release_plan, request.budget, task),
        request.budget.delta,
    )


def _measured(content: dict[str, Any]) -> results.MeasureResult:
    stages = tuple(StageCost(**stage) for stage in content["stages"])
    return results.MeasureResult(
        content["release"],
        Path(content["spec"]),
        content["attributes"],
        results.SpendSummary(stages, content["accounted_epsilon"], Fraction(content["delta"])),
        content["budget_left"],
        content["problem"],
    )
