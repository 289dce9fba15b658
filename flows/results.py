"""What Cloister gives in Python: small frozen values, one line as text, a table in a notebook.

Every text in HTML is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cloister.constraints.counting import violation_reports
from cloister.errors import InputError
from cloister.figures import figure, percent
from cloister.flows.database_sampling import draw_database
from cloister.flows.sampling import answer_of
from cloister.models.answers.answer import Answer
from cloister.models.answers.figures import Estimand
from cloister.models.storage import SavedModel
from cloister.privacy.certificate.certificate import Certificate, ConstraintOrigin
from cloister.privacy.mechanisms.randomness import SamplingSource
from cloister.tasks.data.tables import require_capacity, require_hard_constraints
from cloister.tasks.requests.plan import StageCost

if TYPE_CHECKING:
    from cloister.evaluation.report import AnyEvaluation


_SHOWN = 5
"""Rows of a frame that are shown: enough to see its columns."""


def facts_table(title: str, content: Mapping[str, object]) -> str:
    """Names and values, a line each."""
    return _table(title, (), [(name, text(value)) for name, value in content.items()])


def spend_table(stages: Sequence[StageCost], epsilon: float, delta: Fraction) -> str:
    """What each stage spends alone, and all together."""
    rows = [
        (stage.name, "not DP" if stage.epsilon is None else text(stage.epsilon), stage.explanation)
        for stage in stages
    ]
    rows += [
        ("sampling", "0", "drawing rows is post-processing"),
        ("all together", text(epsilon), ""),
    ]
    return _table(
        f"Privacy spend at delta {text(float(delta))}", ("stage", "epsilon alone", "what for"), rows
    )


def constraints_table(origins: Sequence[ConstraintOrigin]) -> str:
    """Constraints with their violations in the synthetic table; nothing if there are none."""
    if not origins:
        return ""
    rows = [
        (
            origin.name,
            "hard" if origin.hard else "soft",
            text(origin.violations),
            percent(origin.percent),
        )
        for origin in origins
    ]
    return _table(
        "Constraints in the synthetic table", ("constraint", "kind", "violations", "of all"), rows
    )


def first_rows(frame: pd.DataFrame) -> str:
    """The first rows of a frame."""
    return str(frame.head(_SHOWN).to_html(border=0, index=False))


def text(value: object) -> str:
    """A number to four digits, anything else as it is."""
    return figure(value, 4) if isinstance(value, float) and math.isfinite(value) else str(value)


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in rows
    )
    caption = f"<caption><b>{escape(title)}</b></caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, repr=False)
class SpendSummary:
    """What a release costs: epsilon of each stage alone, and of all together.

    The epsilons of single stages do not add up.
    """

    stages: tuple[StageCost, ...]
    epsilon: float
    delta: Fraction

    def __repr__(self) -> str:
        return _line(self, stages=len(self.stages), epsilon=self.epsilon, delta=float(self.delta))

    def _repr_html_(self) -> str:
        return spend_table(self.stages, self.epsilon, self.delta)


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return _line(
            self,
            method=self.method,
            rows=self.rows,
            epsilon=self.spend.epsilon,
            seconds=self.seconds,
        )

    def _repr_html_(self) -> str:
        facts = {
            "method": f"{self.method}: {self.reason}",
            "rows": self.rows,
            "time": f"about {self.seconds:.0f} s of processor time",
            "memory": f"about {self.memory / 2**30:.1f} GiB",
            "device": self.device,
        }
        return facts_table("Plan", facts) + self.spend._repr_html_()


@dataclass(frozen=True, repr=False)
class ReleaseResult:
    """A release that is ready for review.

    ``frames`` holds the synthetic rows of each table by its name, ``figures`` internal measures,
    ``folder`` the public files; ``budget_left`` is the epsilon that the dataset's budget still
    holds.
    """

    id: str
    frames: Mapping[str, pd.DataFrame]
    certificate: Certificate
    spend: SpendSummary
    budget_left: str
    figures: Mapping[str, float]
    folder: Path

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {len(frame)}" for name, frame in self.frames.items())
        return _line(
            self, id=self.id, rows=rows, epsilon=self.spend.epsilon, budget_left=self.budget_left
        )

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
            facts_table(f"Release {self.id} is a candidate", facts),
            self.spend._repr_html_(),
        )
        return "".join(
            (
                *parts,
                constraints_table(self.certificate.constraints),
                *map(first_rows, self.frames.values()),
            )
        )


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """Figures of a synthetic table beside the real one. Internal: they are not private."""

    evaluation: AnyEvaluation

    @property
    def metrics(self) -> dict[str, float]:
        """One number for each measure, by name."""
        return self.evaluation.metrics()

    def __repr__(self) -> str:
        return _line(self, level=self.evaluation.level, measures=len(self.metrics))

    def _repr_html_(self) -> str:
        return facts_table("Internal: measured on the real rows without noise", self.metrics)


@dataclass(frozen=True, repr=False)
class AnswerResult:
    """Figures with their intervals, and ``notes`` that say what these hold."""

    answer: Answer

    @property
    def frame(self) -> pd.DataFrame:
        """The figures, a row for each group."""
        return pd.DataFrame(self.answer.records())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures are of and from, and what their intervals contain."""
        return self.answer.notes

    def __repr__(self) -> str:
        return _line(self, question=self.answer.question.text, groups=len(self.answer.estimates))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return str(self.frame.to_html(border=0, index=False)) + notes


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
        require_capacity(self.saved.model, n)
        drawn = model.sample(n, SamplingSource(seed), where)
        require_hard_constraints(violation_reports(task.hard, drawn))
        return drawn.frame()

    def answer(
        self, question: str, of: Estimand = "population", confidence: float = 0.95
    ) -> AnswerResult:
        """A figure such as ``mean(age) by sex`` with its interval, from released numbers alone.

        ``of`` the population that the rows are a sample of, or of the ``"table"`` itself.

        Raises:
            InputError: the question cannot be read, or the released numbers do not answer it.
        """
        return AnswerResult(answer_of(self.saved, question, of, confidence))

    def sample_tables(
        self, n: int, seed: int | None = None, where: Mapping[str, object] | None = None
    ) -> dict[str, pd.DataFrame]:
        """Another database, at no cost, with ``n`` rows in the table of the privacy unit.

        ``where`` fixes the value of some columns in all rows of that table.

        Raises:
            SampleError: that many rows cannot be drawn.
        """
        tables = draw_database(self.saved, n, seed, where).tables
        return {name: table.frame() for name, table in tables.items()}


@dataclass(frozen=True, repr=False)
class DraftResult:
    """A drafted spec: its ``text``, and the ``file`` that it was written to."""

    text: str
    file: Path | None = None

    def __repr__(self) -> str:
        return _line(self, lines=len(self.text.splitlines()), file=str(self.file or ""))


@dataclass(frozen=True, repr=False)
class CheckResult:
    """A spec that a release would take: what it declares, by name; all of it is public."""

    facts: Mapping[str, Any]

    def __repr__(self) -> str:
        names = ("name", "attributes", "hard constraints", "soft constraints")
        return _line(self, **{name.replace(" ", "_"): self.facts[name] for name in names})

    @property
    def without_a_source(self) -> tuple[str, ...]:
        """The declarations that do not name their public source."""
        return tuple(self.facts["without a source"])

    def _repr_html_(self) -> str:
        return facts_table("This spec can be released", self.facts)


@dataclass(frozen=True, repr=False)
class MeasureResult:
    """Domains that were measured with noise: the new ``spec``, and a ``problem`` left in it."""

    id: str
    spec: Path
    attributes: Mapping[str, Any]
    spend: SpendSummary
    budget_left: str
    problem: str | None = None

    def __repr__(self) -> str:
        return _line(
            self,
            id=self.id,
            spec=str(self.spec),
            epsilon=self.spend.epsilon,
            budget_left=self.budget_left,
        )

    def _repr_html_(self) -> str:
        facts = {"new spec": self.spec, "epsilon left": self.budget_left}
        return facts_table(f"Release {self.id} measured", facts) + self.spend._repr_html_()


@dataclass(frozen=True)
class ReviewResult:
    """A release that a reviewer has moved, and the ``state`` that it has now."""

    id: str
    state: str


def _line(result: object, **facts: object) -> str:
    """A result on one line."""
    listed = ", ".join(
        f"{name}={text(fact) if isinstance(fact, float) else repr(fact)}"
        for name, fact in facts.items()
    )
    return f"{type(result).__name__}({listed})"
