"""Evaluations against real rows: internal, written to private folders only.

Scores of models trained on the real rows are kept in the home: every evaluation on the same rows
compares with the same scores.

Privacy: all figures are of real rows without noise; none leaves the home.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloister.constraints.counting import violation_reports
from cloister.constraints.denial import ViolationReport
from cloister.devices import CPU, Device
from cloister.errors import InputError
from cloister.evaluation import Level, Panel, report
from cloister.evaluation.persons import PersonColumns
from cloister.evaluation.targets import PredictionTarget, targets_of
from cloister.models.task import Task
from cloister.models.transforms.units import repeating_key, shared_by_rows
from cloister.schema.domain import Table
from cloister.schema.relations import Database
from cloister.schema.sources.files_and_urls import is_url
from cloister.schema.spec import SourceSpec
from cloister.schema.spec_files.loading import load_spec, spec_digest
from cloister.schema.validation import read_table
from cloister.tasks.data.tables import schema_warnings
from cloister.tasks.home.files import write_json
from cloister.tasks.home.home import Home, private_folder
from cloister.tasks.home.process import evaluating_digest
from cloister.tasks.requests import resolved

if TYPE_CHECKING:
    from cloister.evaluation.learning import Learning


@dataclass(frozen=True)
class EvaluationOptions:
    """What is measured.

    Classifiers of the ``panel`` predict the ``targets``; none given means all of the spec's.

    ``held_out`` is a file of real rows of the same population that were not in the released data,
    for membership attacks. Boosted trees are trained on the ``device``.
    """

    level: Level
    panel: Panel = "nine"
    targets: tuple[str, ...] = ()
    held_out: Path | None = None
    device: Device = CPU


@dataclass(frozen=True)
class EvaluationRecord:
    """What was measured, and the folder that holds it as JSON, tables and plots; internal."""

    evaluation: report.AnyEvaluation
    folder: Path


def compare(
    real: Database,
    synthetic: Database,
    context: resolved.PublicContext,
    options: EvaluationOptions,
    home: Home,
) -> report.AnyEvaluation:
    """The evaluation of one table against another of the same context, or of several; internal.

    Raises:
        InputError: a target is not in the spec, or the rows held out cannot be used.
    """
    if context.spec.tables:
        return compare_databases(real, synthetic, context, options, home)
    ((name, table),) = context.tables.items()
    return compare_tables(real.tables[name], synthetic.tables[name], table, options, home)


def compare_tables(
    real: Table,
    synthetic: Table,
    context: resolved.TableContext,
    options: EvaluationOptions,
    home: Home,
) -> report.Evaluation:
    """The evaluation of one table against another of the same context; internal.

    Raises:
        InputError: a target is not in the spec, or the rows held out cannot be used.
    """
    targets = _targets(context, options)
    if options.level == "none":
        return report.unmeasured_evaluation(real, synthetic)
    from cloister.evaluation.measures import evaluate_tables

    reference = ReferenceScores(home, spec_digest(context.spec))
    held_out = table_of(context, options.held_out) if options.held_out else None
    rules, panel = context.task.constraints, options.panel
    people = _persons(context.task)
    return evaluate_tables(
        *(
            real,
            synthetic,
            rules,
            targets,
            options.level,
            held_out,
            panel,
            reference.scores,
            people,
        ),
        device=options.device,
    )


def compare_databases(
    real: Database,
    synthetic: Database,
    context: resolved.PublicContext,
    options: EvaluationOptions,
    home: Home,
) -> report.DatabaseEvaluation:
    """The evaluation of several tables against others of the same context; internal.

    Raises:
        InputError: targets or rows held out are named, which are of one table.
    """
    if options.targets or options.held_out:
        raise InputError(
            "--target and --held-out are of one table, and the dataset has several; leave them out"
        )
    parts = context.tables

    def of_table(name: str, table: Table, synthetic: Table) -> report.Evaluation:
        return compare_tables(table, synthetic, parts[name], options, home)

    return report.evaluate_databases(real, synthetic, options.level, of_table, context.task.across)


def _persons(task: Task) -> PersonColumns | None:
    """The persons of a task, or the groups of rows that share a key which repeats."""
    if task.persons is None:
        key = repeating_key(task)
        return PersonColumns(key, shared_by_rows(task, key), 1, "groups") if key else None
    return PersonColumns(task.persons.key, task.persons.attributes, task.neighbours.max_rows)


def write_evaluation(evaluation: report.AnyEvaluation, folder: Path) -> EvaluationRecord:
    """Write an evaluation as JSON, tables and plots; of several tables in a folder for each."""
    write_json(folder / "evaluation.json", evaluation.to_dict())
    if evaluation.level != "none":
        from cloister.evaluation.plots import (
            write_plots,
            write_relations,
            write_tables,
            write_units,
        )

        plots = folder / "plots"
        for name, table in evaluation.tables.items():
            write_plots(table, plots / name)
            write_tables(table, plots / name)
        write_relations(evaluation.relations, plots)
        write_units(evaluation.units, plots)
    return EvaluationRecord(evaluation, folder)


def compare_files(
    spec: Path, data: str | None, synthetic: str, options: EvaluationOptions, home: Home
) -> report.AnyEvaluation:
    """The evaluation of one file, folder or database against another; internal.

    Without ``data`` the real rows are those of the spec's source. Several tables are in a folder of
    files with their names, or in a database by its URL. Synthetic Parquet files that break their
    published schema get a warning.

    Raises:
        InputError: the spec, or one of the places, cannot be used.
    """
    context = _public_context(spec)
    places = [_places(context, location) for location in (data, synthetic)]
    real, drawn = (
        Database(
            context.task.schema,
            {name: table_in(part, where[name], name) for name, part in context.tables.items()},
        )
        for where in places
    )
    warnings = schema_warnings(context, {n: path for n, path in places[1].items() if path})
    return replace(compare(real, drawn, context, options, home), warnings=warnings)


def table_in(context: resolved.TableContext, location: str | None, name: str) -> Table:
    """The rows of one table in a file, or under its name in the database of a URL.

    Without a location they are those of its source.

    Raises:
        InputError: they cannot be read, or are not as declared.
    """
    if location is None or not is_url(location):
        return table_of(context, Path(location) if location else None)
    source = SourceSpec(url=location, table=name)
    return table_of(replace(context, spec=context.spec.model_copy(update={"source": source})), None)


def _places(context: resolved.PublicContext, location: str | None) -> dict[str, str | None]:
    """Where each table is; None for its source."""
    if location is None or not context.spec.tables:
        return dict.fromkeys(context.tables, location)
    return {name: _location_of(name, location) for name in context.tables}


def _location_of(name: str, location: str) -> str:
    """Where one of several tables is: a file of its name in a folder, or the database.

    Raises:
        InputError: the folder has no such file.
    """
    if is_url(location):
        return location
    files = (Path(location) / f"{name}.{ending}" for ending in ("parquet", "csv"))
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise InputError(
            f"{location} has no {name}.parquet or {name}.csv; give the folder of a release"
        )
    return str(file)


def violations_of(spec: Path, data: Path | None = None) -> tuple[ViolationReport, ...]:
    """Exact violations of each constraint of a spec in a file, or in its source; internal.

    Raises:
        InputError: the spec or the rows cannot be used.
    """
    context = _public_context(spec)
    return violation_reports(context.task.constraints, table_of(context.only, data))


def table_of(context: resolved.TableContext, file: Path | None) -> Table:
    """The rows of a file, or of the spec's source, validated as the spec says.

    Raises:
        DataError: they are not as declared.
    """
    return read_table(context.spec, context.task.domain, file)[0]


def _targets(
    context: resolved.TableContext, options: EvaluationOptions
) -> tuple[PredictionTarget, ...]:
    known = {
        target.attribute: target
        for target in targets_of(context.spec.evaluation.targets, context.task.domain)
    }
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        raise InputError(
            f"the spec has no target '{unknown[0]}'; its targets are {', '.join(known)}"
        )
    return tuple(known[name] for name in options.targets or known)


def _public_context(path: Path) -> resolved.PublicContext:
    """The context of a spec where its number of rows does not matter."""
    spec = load_spec(path)
    with resolved.constraints_in(path):
        return resolved.declared_context(spec, spec.privacy.rows.public or 1)


@dataclass(frozen=True)
class ReferenceScores:
    """Scores kept under the digest of all that decides them; ``spec`` is the digest of the spec."""

    home: Home
    spec: str

    def scores(
        self,
        train: Table,
        test: Table,
        targets: Sequence[PredictionTarget],
        panel: Panel,
        device: Device = CPU,
    ) -> Learning:
        """The scores of `train_and_test`, stored or new."""
        from cloister.evaluation.learning import train_and_test

        self.home.prepare()
        path = (
            private_folder(self.home.folder / "truths")
            / f"{self._key(train, test, targets, panel, device)}.json"
        )
        with suppress(FileNotFoundError):
            return _learning(json.loads(path.read_text(encoding="utf-8")))
        scores = asdict(train_and_test(train, test, targets, panel, device))
        write_json(path, scores)
        return _learning(scores)

    def _key(
        self,
        train: Table,
        test: Table,
        targets: Sequence[PredictionTarget],
        panel: Panel,
        device: Device,
    ) -> str:
        names = [target.attribute for target in targets]
        decisive = [self.spec, evaluating_digest(), panel, names, str(device)]
        digest = hashlib.sha256(json.dumps([*decisive, *_libraries()]).encode())
        for table in (train, test):
            for name in table.domain.modelled:
                digest.update(table.codes[name].tobytes())
        return digest.hexdigest()[:16]


def _libraries() -> tuple[str, ...]:
    """Versions of the libraries that decide the scores, loaded by whoever trains models."""
    import numpy as np
    import sklearn
    import xgboost

    return tuple(library.__version__ for library in (np, sklearn, xgboost))


def _learning(fields: dict[str, Any]) -> Learning:
    from cloister.evaluation.learning import Learning, Score

    scores = tuple(Score(**score) for score in fields["scores"])
    return Learning(**fields | {"scores": scores, "one_class": tuple(fields["one_class"])})
