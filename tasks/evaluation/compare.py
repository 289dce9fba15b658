"""Evaluations against real rows: internal, written to private folders only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloister.constraints.counting import ViolationReport, violation_reports
from cloister.errors import InputError
from cloister.evaluation.options import Level, Panel
from cloister.evaluation.persons import PersonColumns
from cloister.evaluation.report import Evaluation, unmeasured
from cloister.evaluation.targets import PredictionTarget, targets_of
from cloister.schema.domain import Table
from cloister.schema.sources.reading import read_frame
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.schema.validation import validate_rows
from models.task import Task
from tasks.requests.resolved import PublicContext, declared_context
from tasks.runtime.files import write_json
from tasks.runtime.home import Home


@dataclass(frozen=True)
class EvaluationOptions:
    """What is measured.

    Classifiers of the ``panel`` predict the ``targets``, all of the spec's if none is given.

    ``held_out`` is a file of real rows of the same population that took no part in the release, for
    attacks on membership.
    """

    level: Level
    panel: Panel = "nine"
    targets: tuple[str, ...] = ()
    held_out: Path | None = None


@dataclass(frozen=True)
class EvaluationRecord:
    """What was measured, and the folder that holds it as JSON, tables and plots; internal."""

    evaluation: Evaluation
    folder: Path


def compare_tables(
    real: Table, synthetic: Table, context: PublicContext, asked: EvaluationOptions, home: Home
) -> Evaluation:
    """The evaluation of one table against another of the same context; internal.

    Raises:
        InputError: a target is none of the spec's, or the rows held out cannot be used.
    """
    targets = _targets(context, asked)
    if asked.level == "none":
        return unmeasured(real, synthetic)
    from cloister.evaluation.measures import evaluate_tables
    from tasks.evaluation.reference_scores import ReferenceScores

    reference = ReferenceScores(home, spec_digest(context.spec))
    others = table_of(context, asked.held_out) if asked.held_out else None
    rules, panel = context.task.constraints, asked.panel
    people = _persons(context.one)
    return evaluate_tables(
        real, synthetic, rules, targets, asked.level, others, panel, reference.scores, people
    )


def _persons(task: Task) -> PersonColumns | None:
    if task.persons is None:
        return None
    return PersonColumns(task.persons.key, task.persons.attributes, task.neighbours.max_rows)


def write_evaluation(evaluation: Evaluation, folder: Path) -> EvaluationRecord:
    """Write an evaluation as JSON, tables and plots."""
    write_json(folder / "evaluation.json", evaluation.to_dict())
    if evaluation.level != "none":
        from cloister.evaluation.plots import write_plots, write_tables

        write_plots(evaluation, folder / "plots")
        write_tables(evaluation, folder / "plots")
    return EvaluationRecord(evaluation, folder)


def compare_files(
    spec: Path, data: Path, synthetic: Path, asked: EvaluationOptions, home: Home
) -> Evaluation:
    """The evaluation of one file against another; internal.

    Raises:
        InputError: the spec or a file cannot be used.
    """
    context = _public_context(spec)
    real = table_of(context, data)
    return compare_tables(real, table_of(context, synthetic), context, asked, home)


def violations_of(spec: Path, data: Path) -> tuple[ViolationReport, ...]:
    """Exact violations of each constraint of a spec in a file; internal.

    Raises:
        InputError: the spec or the file cannot be used.
    """
    context = _public_context(spec)
    return violation_reports(context.task.constraints, table_of(context, data))


def table_of(context: PublicContext, file: Path) -> Table:
    """The rows of a file, validated as the spec says.

    Raises:
        DataError: they are not as declared.
    """
    return context.one.domain.encode(validate_rows(read_frame(context.spec, file), context.spec)[0])


def _targets(context: PublicContext, asked: EvaluationOptions) -> tuple[PredictionTarget, ...]:
    known = {
        target.attribute: target
        for target in targets_of(context.spec.evaluation.targets, context.one.domain)
    }
    unknown = [name for name in asked.targets if name not in known]
    if unknown:
        raise InputError(
            f"the spec has no target '{unknown[0]}'; its targets are {', '.join(known)}"
        )
    return tuple(known[name] for name in asked.targets or known)


def _public_context(path: Path) -> PublicContext:
    """The context of a spec where its number of rows does not matter."""
    spec = load_spec(path)
    return declared_context(spec, spec.privacy.rows.public or 1)
