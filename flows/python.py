"""Cloister in Python: what ``import cloister`` offers, for notebooks and programs.

The same flows, checks and ledger as on the command line; results are values with an HTML form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from cloister.constraints.counting import violation_reports
from cloister.devices import AUTO, resolve_device
from cloister.errors import InputError
from cloister.evaluation.options import Level
from cloister.privacy.certificate.certificate import Certificate
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.schema.declarations.release import Sampling
from cloister.schema.sources.files.parquet_files import parquet_names, read_native
from flows import html
from flows.cli.options import split_place, user
from flows.database_sampling import draw_database
from models.storage import SavedModel
from tasks.data.frames import kept_frame
from tasks.evaluation.compare import EvaluationOptions, compare_files
from tasks.ledger.certificates import read_certificate
from tasks.ledger.delivery import confirm_delivery
from tasks.release.certify import TABLE_NAME
from tasks.requests.options import Options
from tasks.requests.plan import StageCost, plan_of, stage_costs, total_cost
from tasks.requests.plan_report.forecast import forecast_of
from tasks.requests.plan_report.training_device import device_words
from tasks.requests.public_context import public_context_of
from tasks.requests.resolved import ResolvedRequest
from tasks.runtime.home import Home
from tasks.runtime.tables import require_capacity, require_hard_constraints

if TYPE_CHECKING:
    from cloister.evaluation.databases.report import AnyEvaluation
    from flows.outcome import Finished, Outcome

__all__ = ["evaluate", "load", "plan", "release"]

_Amount = str | float | Fraction
_Data = pd.DataFrame | str | Path


@dataclass(frozen=True)
class SpendSummary:
    """What a release costs: epsilon of each stage alone, and of all together.

    The epsilons of single stages do not add up.
    """

    stages: tuple[StageCost, ...]
    epsilon: float
    delta: Fraction

    def _repr_html_(self) -> str:
        return html.spend_table(self.stages, self.epsilon, self.delta)


@dataclass(frozen=True)
class PlanSummary:
    """The plan of a release and its cost; ``seconds`` of processor time, ``memory`` in bytes.

    ``device`` says where it trains, and what that promises.
    """

    method: str
    reason: str
    rows: int
    spend: SpendSummary
    seconds: float
    memory: int
    device: str

    def _repr_html_(self) -> str:
        facts = {
            "method": f"{self.method}: {self.reason}",
            "rows": self.rows,
            "time": f"about {self.seconds:.0f} s of processor time",
            "memory": f"about {self.memory / 2**30:.1f} GiB",
            "device": self.device,
        }
        return html.facts_table("Plan", facts) + self.spend._repr_html_()


@dataclass(frozen=True)
class ReleaseResult:
    """A release that is ready for review.

    ``frames`` holds the synthetic rows of each table by its name, ``figures`` internal measures,
    ``folder`` the public files; ``budget_left`` is the epsilon that the dataset's budget still
    holds.
    """

    id: str
    frames: Mapping[str, pd.DataFrame] = field(repr=False)
    certificate: Certificate = field(repr=False)
    spend: SpendSummary
    budget_left: str
    figures: Mapping[str, float] = field(repr=False)
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """The synthetic rows of the only table.

        Raises:
            InputError: there are several.
        """
        if len(self.frames) == 1:
            return next(iter(self.frames.values()))
        raise InputError(f"release {self.id} has several tables; take one of its frames")

    def _repr_html_(self) -> str:
        facts = {
            "rows": ", ".join(f"{name} {len(rows)}" for name, rows in self.frames.items()),
            "epsilon left": self.budget_left,
            "folder": self.folder,
        }
        parts = (
            html.facts_table(f"Release {self.id} is a candidate", facts),
            self.spend._repr_html_(),
        )
        return "".join(
            (
                *parts,
                html.constraints_table(self.certificate.constraints),
                *map(html.first_rows, self.frames.values()),
            )
        )


@dataclass(frozen=True)
class EvaluationResult:
    """Figures of a synthetic table beside the real one. Internal: they are not private."""

    evaluation: AnyEvaluation = field(repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """One number for each measure, by name."""
        return self.evaluation.metrics()

    def _repr_html_(self) -> str:
        return html.facts_table("Internal: measured on the real rows without noise", self.metrics)


@dataclass(frozen=True)
class LoadedModel:
    """The model of an approved release."""

    id: str
    saved: SavedModel = field(repr=False)

    def sample(
        self, n: int, where: Mapping[str, object] | None = None, seed: int | None = None
    ) -> pd.DataFrame:
        """``n`` rows, at no cost; ``where`` fixes the value of some columns in all rows.

        Raises:
            InputError: the model gives fewer rows.
            SampleError: that many rows cannot be drawn.
        """
        task, model = self.saved.one
        require_capacity(model, n)
        drawn = model.sample(n, SamplingSource(seed), where)
        require_hard_constraints(violation_reports(task.hard, drawn))
        return drawn.frame()

    def sample_tables(self, n: int, seed: int | None = None) -> dict[str, pd.DataFrame]:
        """Another database, at no cost, with ``n`` rows in the table of the privacy unit.

        Raises:
            SampleError: that many rows cannot be drawn.
        """
        tables = draw_database(self.saved, n, seed)
        return {name: table.frame() for name, table in tables.items()}


def plan(
    spec: str | Path,
    *,
    method: str | None = None,
    epsilon: _Amount | None = None,
    delta: _Amount | None = None,
    rows: int | None = None,
    sampling: Sampling | None = None,
    resample: float | None = None,
    accept_reject: int | None = None,
    device: str | None = None,
) -> PlanSummary:
    """What a release would query and spend; touches no data and costs nothing.

    What is left out is as the spec says. Rows under soft constraints are drawn by ``sampling``,
    "supports" or "sequential": then a share ``resample`` of cells is drawn anew, and
    ``accept_reject`` are the tries of a cell. ``device`` is "auto", "cpu", "cuda" or "cuda:NUMBER".

    Raises:
        InputError: the spec or an option cannot be used.
    """
    request = ResolvedRequest.of(
        Path(spec),
        Options(
            method=method,
            epsilon=_text(epsilon),
            delta=_text(delta),
            rows=rows,
            sampling=sampling,
            resample=resample,
            tries=accept_reject,
            device=device,
        ),
        user(),
    )
    made = plan_of(request)
    needed = forecast_of(request, public_context_of(request), made)
    return PlanSummary(
        method=request.method,
        reason=request.reason,
        rows=request.rows,
        spend=_spend(request),
        seconds=needed.seconds,
        memory=needed.memory,
        device=device_words(request, made),
    )


def release(
    spec: str | Path,
    data: _Data | None = None,
    *,
    method: str | None = None,
    epsilon: _Amount | None = None,
    delta: _Amount | None = None,
    rows: int | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    csv: bool = False,
    seed_sampling: int | None = None,
    evaluate: Level = "quick",
    sampling: Sampling | None = None,
    resample: float | None = None,
    accept_reject: int | None = None,
    device: str | None = None,
    prior: str | None = None,
) -> ReleaseResult:
    """Release a synthetic table; charges the dataset's budget in the ledger of ``CLOISTER_HOME``.

    ``data`` takes the place of the spec's source; a frame is kept in the private home while the
    release runs. With the URL of a database as ``out``, ``replace`` is for tables that an earlier
    release made there. ``sampling`` and what follows it are those of :func:`plan`; ``prior`` is an
    earlier release whose noisy numbers are used again, or "latest". Called again after a crash, the
    same call resumes at no further cost, on any device.

    Raises:
        CloisterError: nothing was charged if it is an InputError.
    """
    home = Home.current()
    home.prepare()
    folder, database = split_place(out)
    with _file_of(data, home) as file:
        options = Options(
            method=method,
            epsilon=_text(epsilon),
            delta=_text(delta),
            rows=rows,
            data=file,
            out=folder,
            csv=csv,
            seed=seed_sampling,
            evaluate=evaluate,
            database=database,
            sampling=sampling,
            resample=resample,
            tries=accept_reject,
            device=device,
            prior=prior,
            replace=replace,
        )
        with confirm_delivery(home, user()):
            return _released(_run(Path(spec), options, home))


def evaluate(
    spec: str | Path,
    data: _Data,
    synthetic: _Data,
    *,
    level: Level = "quick",
    device: str = AUTO,
) -> EvaluationResult:
    """Measure a synthetic table against the real one. Internal: the figures are not private.

    Boosted trees are trained on the ``device``; see :func:`plan`.

    Raises:
        InputError: the spec or a table cannot be used.
    """
    home, asked = Home.current(), EvaluationOptions(level, device=resolve_device(device))
    with _file_of(data, home) as real, _file_of(synthetic, home) as drawn:
        if real is None or drawn is None:
            raise TypeError("evaluate needs two tables: data and synthetic")
        return EvaluationResult(compare_files(Path(spec), str(real), str(drawn), asked, home))


def load(release: str) -> LoadedModel:
    """The model of an approved release, to draw more rows from.

    Raises:
        InputError: there is no such release, or it is not approved.
        VerificationError: the model is not the one that was released.
    """
    from flows.sampling import approved_model

    return LoadedModel(release, approved_model(Home.current(), release))


@contextmanager
def _file_of(data: _Data | None, home: Home) -> Iterator[Path | None]:
    """The file that holds the data; one in the private home for a frame, while it is needed."""
    if isinstance(data, pd.DataFrame):
        with kept_frame(data, home) as file:
            yield file
    else:
        yield None if data is None else Path(data)


def _run(spec: Path, options: Options, home: Home) -> Outcome | Finished:
    from flows.cli.release import run_release

    return run_release(spec, options, home)


def _released(outcome: Outcome | Finished) -> ReleaseResult:
    said = outcome.to_json()
    folder = Path(said["files"]["public"])
    stages = tuple(StageCost(**stage) for stage in said["stages"])
    return ReleaseResult(
        outcome.release,
        {
            said["dataset"] if file.name == TABLE_NAME else file.stem: read_native(
                file, parquet_names(file)
            )
            for file in sorted(folder.glob("*.parquet"))
        },
        read_certificate(folder),
        SpendSummary(stages, said["accounted_epsilon"], Fraction(said["delta"])),
        said["budget_left"],
        said["internal"]["metrics"],
        folder,
    )


def _spend(request: ResolvedRequest) -> SpendSummary:
    made, task = plan_of(request), public_context_of(request).task
    return SpendSummary(
        stage_costs(made, request.budget, task),
        total_cost(made, request.budget, task),
        request.budget.delta,
    )


def _text(amount: _Amount | None) -> str | None:
    """An amount as the text that is read exactly: a float as the decimal it is written as."""
    return None if amount is None else str(amount)
