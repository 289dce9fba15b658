"""The step that collects the public files: synthetic tables, their schema and certificate."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cloister.models.plan import AnyPlan
from cloister.models.registry import create
from cloister.models.storage import model_digest
from cloister.models.task import AnyTask, Task
from cloister.privacy.certificate.certificate import PAGE_NAME, YAML_NAME, Facts, certify
from cloister.privacy.certificate.page import page
from cloister.privacy.certificate.provenance import software
from cloister.privacy.door.journal import Journal
from cloister.privacy.ledger import Anchor, BudgetStatus
from cloister.tasks.data.session import AnySpent
from cloister.tasks.ledger.queries import deniable_releases
from cloister.tasks.ledger.transitions import COMPOSITION, open_ledger
from cloister.tasks.release.charge import ReservedRelease
from cloister.tasks.release.kept_request import kept_prior
from cloister.tasks.release.prior import reused_releases
from cloister.tasks.release.sample import DrawnRows
from cloister.tasks.requests.plan_report.soft_constraints import unweighed_soft
from cloister.tasks.requests.plan_report.training_device import training_device
from cloister.tasks.requests.public_context import PublicContext, public_context_of
from cloister.tasks.requests.published import published_schema
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.code_version import code_digest, code_version
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.references import Reference, digest_of
from cloister.tasks.runtime.step import step
from cloister.tasks.runtime.tables import write_csv

TABLE_NAME, CSV_NAME = "synthetic.parquet", "synthetic.csv"


@dataclass(frozen=True)
class Certified:
    """What a certificate covers: the charge, the plan, the model and the drawn rows."""

    charge: ReservedRelease
    spent: AnySpent
    plan: AnyPlan
    model: Reference
    drawn: DrawnRows

    @property
    def anchor(self) -> Anchor:
        """The ledger's entry that made the charge final."""
        return self.spent.anchor


@step("certify", "certify {done.charge.release}")
def write_certificate(request: ResolvedRequest, done: Certified, home: Home) -> Reference:
    """The folder of public files, without the manifest.

    Raises:
        PrivacyError: the events cost more than was charged, or a hard constraint is violated.
    """
    context = public_context_of(request)
    folder = fresh(home.release(done.charge.release) / "public")
    artefacts = _place_tables(done.drawn, request, context, folder)
    artefacts |= {file.name: digest_of(file) for file in published_schema(context).write(folder)}
    status = open_ledger(home).budget(context.spec.name, context.unit)
    certificate = certify(_facts(request, done, artefacts, status, home))
    (folder / YAML_NAME).write_text(certificate.to_yaml(), encoding="utf-8")
    (folder / PAGE_NAME).write_text(page(certificate), encoding="utf-8")
    return Reference.of(folder)


def fresh(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def _place_tables(
    drawn: DrawnRows, request: ResolvedRequest, context: PublicContext, folder: Path
) -> dict[str, str]:
    """The synthetic tables, as Parquet and CSV if that was asked; SHA-256 by file name."""
    digests = {}
    for name, part in context.tables.items():
        table, text = (f"{context.files[name]}.{ending}" for ending in ("parquet", "csv"))
        os.link(drawn.files[name].open(), folder / table)
        digests[table] = drawn.files[name].digest
        if request.csv:
            write_csv(folder / table, folder / text, part.spec)
            digests[text] = digest_of(folder / text)
    return digests


def _facts(
    request: ResolvedRequest,
    done: Certified,
    artefacts: dict[str, str],
    status: BudgetStatus,
    home: Home,
) -> Facts:
    context = public_context_of(request)
    prior = kept_prior(home.release(done.charge.release))
    return Facts(
        spec=context.spec,
        constraints=context.task.constraints,
        across=() if isinstance(context.task, Task) else context.task.across,
        release=done.charge.release,
        method=request.method,
        method_summary=create(request.method).summary,
        rows=request.rows,
        epsilon=request.budget.epsilon,
        delta=request.budget.delta,
        stages=done.plan.stages,
        violations=done.drawn.violations,
        post_processing=done.drawn.post_processing,
        capacity=done.drawn.capacity,
        budget=status,
        composition=COMPOSITION,
        anchor=done.anchor,
        software=software(code_digest()).model_copy(
            update={
                "device": str(training_device(request, done.plan)),
                "earlier": _drawn_by_others(done.spent.journal),
            }
        ),
        artefacts=artefacts,
        written=datetime.now(UTC).date(),
        secure=done.spent.private.secure,
        input_digest=done.spent.digest,
        model=model_digest(done.model.open()),
        dangling=done.drawn.dangling,
        warnings=(*done.drawn.warnings, *unweighed_soft(request, context)),
        of_persons=_of_persons(context.task),
        deniable_releases=deniable_releases(home, context.spec.name),
        reused=reused_releases(prior, status, home) if prior else (),
    )


def _drawn_by_others(journal: Journal) -> dict[str, int]:
    """How many answers of a journal each other version of the code drew."""
    return {code: drawn for code, drawn in journal.drawn_by.items() if code != code_version()}


def _of_persons(task: AnyTask) -> tuple[str, ...]:
    """The key of persons with several rows and their attributes; empty if there are none."""
    persons = task.persons if isinstance(task, Task) else None
    return (persons.key, *persons.attributes) if persons else ()
