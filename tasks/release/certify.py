"""The step that certifies: public files, and a certificate made from what the release itself holds.

The request says what was requested, the plan what was intended, the ledger's entry what was
charged, the drawn rows what resulted. A certificate contains no figure computed from the real
table, no running time of a step and no exact private count.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from cloister.errors import PrivacyError
from cloister.figures import figure, listed
from cloister.identities import BEHALF, identity_of, named
from cloister.models.registry import create
from cloister.models.storage import model_digest
from cloister.models.task import Budget
from cloister.privacy.certificate import provenance, spend, wording
from cloister.privacy.certificate.certificate import (
    FORMAT,
    PAGE_NAME,
    YAML_NAME,
    AuditRecord,
    Certificate,
    Cumulative,
    Guarantee,
    LedgerEntry,
    OwnGuarantees,
    Runner,
    Subject,
)
from cloister.privacy.certificate.page import page
from cloister.privacy.certificate.unit_words import unit_words
from cloister.privacy.exact import decimal, decimal_below, exact, float_above
from cloister.privacy.ledger import Ledger
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY
from cloister.tasks.data.tables import published_schema, write_csv
from cloister.tasks.home.files import Reference, digest_of, emptied
from cloister.tasks.home.home import AUDITS, Home
from cloister.tasks.home.process import code_digest, code_version
from cloister.tasks.ledger.access import COMPOSITION, FILTERED, open_ledger, uncounted_releases
from cloister.tasks.release.basis import Basis
from cloister.tasks.release.kept_request import kept_previous
from cloister.tasks.release.preflight import reused_releases
from cloister.tasks.release.reports import write_reports
from cloister.tasks.release.synthesis import DrawnRows, Fitted
from cloister.tasks.requests.plan_report import training_device, unweighed_soft
from cloister.tasks.requests.resolved import PublicContext, ResolvedRequest, public_context_of
from cloister.tasks.stores.prefect_runs import step


@dataclass(frozen=True)
class Certified:
    """A release with its certificate: what was fitted and drawn, and the folder of public files."""

    fitted: Fitted
    drawn: DrawnRows
    folder: Reference

    @property
    def release(self) -> str:
        """The id of the release."""
        return self.fitted.release


@step("certify", "certify {fitted.release}", "drawn")
def write_certificate(
    request: ResolvedRequest, fitted: Fitted, drawn: DrawnRows, home: Home
) -> Certified:
    """Write the folder of public files, all but the manifest.

    Raises:
        PrivacyError: the events cost more than was charged, or a hard constraint is violated.
    """
    context = public_context_of(request)
    folder = emptied(home.release(fitted.release) / "public")
    artefacts = _place_tables(drawn, request, context, folder)
    artefacts |= {file.name: digest_of(file) for file in published_schema(context).write(folder)}
    certificate = certify(_basis(request, context, fitted, drawn, artefacts, home))
    report = write_reports(home, fitted.release, certificate)
    artefacts = dict(sorted({**certificate.artefacts, report.name: digest_of(report)}.items()))
    certificate = certificate.model_copy(update={"artefacts": artefacts})
    (folder / YAML_NAME).write_text(certificate.to_yaml(), encoding="utf-8")
    (folder / PAGE_NAME).write_text(page(certificate), encoding="utf-8")
    return Certified(fitted, drawn, Reference.of(folder))


def _place_tables(
    drawn: DrawnRows, request: ResolvedRequest, context: PublicContext, folder: Path
) -> dict[str, str]:
    """Write the synthetic tables, as Parquet and on request as CSV; SHA-256 by file name."""
    digests = {}
    for name, part in context.tables.items():
        table, text = (f"{context.files[name]}.{ending}" for ending in ("parquet", "csv"))
        os.link(drawn.files[name].open(), folder / table)
        digests[table] = drawn.files[name].digest
        if request.csv:
            write_csv(folder / table, folder / text, part.spec)
            digests[text] = digest_of(folder / text)
    return digests


def _basis(
    request: ResolvedRequest,
    context: PublicContext,
    fitted: Fitted,
    drawn: DrawnRows,
    artefacts: Mapping[str, str],
    home: Home,
) -> Basis:
    ledger, release, spent = open_ledger(home), fitted.release, fitted.spent
    blocks, previous = context.spec.blocks, kept_previous(home, release)
    read = [status for status in ledger.budgets() if status.budget.dataset == context.dataset]
    budget = ledger.budget(context.dataset, context.unit, blocks)
    drawn_by = spent.journal.drawn_by.items()
    run = {
        "device": str(training_device(request, fitted.plan)),
        "earlier": {code: drawn for code, drawn in drawn_by if code != code_version()},
        "audit": audit_record(request.method, home),
    }
    return Basis(
        request=request,
        context=context,
        plan=fitted.plan,
        entry=ledger.release(release),
        anchor=spent.anchor,
        budget=budget,
        drawn=drawn,
        software=provenance.software(code_digest()).model_copy(update=run),
        artefacts=artefacts,
        written=dt.datetime.now(dt.UTC).date(),
        secure=spent.private.secure,
        model=model_digest(fitted.model.open()),
        reused=reused_releases(previous, budget, home) if previous else (),
        uncounted_releases=uncounted_releases(budget),
        blocks=[status for status in read if status.block in blocks],
        ran_by=runner_of(ledger, release),
        moves=ledger.books().accounts[context.dataset].moves,
    )


def runner_of(ledger: Ledger, release: str) -> Runner:
    """Return who had a release run, with the roles that they have now."""
    by = ledger.release(release).steps[0].by
    person = ledger.books().house.person_of(by)
    if person is None:
        return Runner(identity=named("", by))
    principal = by.removeprefix(identity_of(by)).removeprefix(BEHALF)
    return Runner(person=person.name, roles=person.roles, on_behalf_of=principal or None)


def certify(basis: Basis) -> Certificate:
    """The certificate of a release.

    Raises:
        PrivacyError: the events cost more than was charged, or a hard constraint is violated:
            nothing is to be published.
    """
    _require_true(basis)
    return Certificate(
        certificate=FORMAT,
        about=provenance.statements(basis.spec.about),
        subject=_subject(basis),
        guarantee=_guarantee(basis),
        stages=spend.stage_spends(
            basis.plan.stages,
            basis.planned.delta,
            basis.spec.privacy.relation,
            basis.drawn.capacity,
            basis.spec.privacy.group_rows,
        ),
        cumulative=_cumulative(basis),
        attributes=provenance.attribute_origins(basis.spec, basis.of_persons),
        constraints=(
            *provenance.constraint_origins(basis.context.task.constraints, basis.drawn.violations),
            *provenance.across_origins(basis.across, basis.drawn.violations),
            *provenance.key_origins(basis.drawn.dangling),
        ),
        unprotected=provenance.unprotected_facts(basis.spec),
        post_processing=basis.drawn.post_processing,
        mechanisms=spend.mechanisms(basis.plan.stages, basis.secure),
        safeguards=wording.safeguards(basis.plan.stages, basis.secure),
        limitations=(
            *basis.drawn.warnings,
            *unweighed_soft(basis.request, basis.context),
            *([wording.OTHER_TRIES] if basis.drawn.acceptance else []),
            *wording.limitations(
                basis.spec,
                basis.secure,
                basis.uncounted_releases,
                basis.budget.refusals,
                basis.moves,
            ),
        ),
        software=basis.software,
        artefacts=dict(sorted(basis.artefacts.items())),
        ledger=LedgerEntry(seq=basis.anchor.seq, hash=basis.anchor.hash),
        ran_by=basis.ran_by,
        verification=f"cloister verify {basis.entry.id}",
        model=basis.model,
        ignored=provenance.ignored_columns(basis.spec),
        records=_own_guarantees(basis).records,
        acceptance=basis.drawn.acceptance,
        reused=tuple(basis.reused),
    )


def _require_true(basis: Basis) -> None:
    if not basis.counted and basis.spec.release.guarantee == DIFFERENTIAL_PRIVACY:
        raise PrivacyError(
            f"release {basis.entry.id} is not differentially private, and its spec declares no "
            "other guarantee; it must not be published"
        )
    planned, charged = basis.planned, Budget(basis.epsilon, basis.delta)
    accounted = spend.accounted_cost(basis.plan.stages, planned.delta, basis.spec.privacy.relation)
    priced = basis.context.price(planned) == charged
    if accounted.epsilon > float_above(planned.epsilon) or not priced:
        raise PrivacyError(
            f"the events of release {basis.entry.id} cost more than the epsilon charged; it must "
            "not be published"
        )
    broken = [report.name for report in basis.drawn.violations if report.hard and report.violations]
    broken += [f"{key.table}.{key.column}" for key, rows in basis.drawn.dangling if rows]
    if broken:
        raise PrivacyError(
            f"the synthetic table violates the {listed('hard constraint', broken)}; it must not "
            "be published"
        )


def audit_record(method: str, home: Home) -> AuditRecord | None:
    """What audits in this home showed of a method by this code; None if there was none.

    An alarm is one of the family of these attacks, by the first step of Holm's procedure.
    """
    files = sorted((home.folder / AUDITS).glob("*.json"))
    kept = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    audits = [a for a in kept if (a["code"], a["attack"]["method"]) == (code_version(), method)]
    if not audits:
        return None
    nearest = max(audits, key=lambda audit: audit["shown"]["mu_low"] / audit["claimed"])
    return AuditRecord(
        date=max(audit["date"] for audit in audits),
        attacks=len(audits),
        releases=sum(audit["shown"]["trials"] for audit in audits),
        epsilon=nearest["attack"]["epsilon"],
        shown=figure(nearest["shown"]["mu_low"], 3),
        claimed=figure(nearest["claimed"], 3),
        alarm=any(a["shown"]["p_value"] <= a["level"] / len(audits) for a in audits),
    )


def _subject(basis: Basis) -> Subject:
    return Subject(
        id=basis.entry.id,
        product="synthetic database" if basis.spec.tables else "synthetic table",
        dataset=basis.context.dataset,
        method=basis.request.method,
        method_summary=create(basis.request.method).summary,
        rows=basis.request.rows,
        state="candidate",
        written=basis.written.isoformat(),
        spec=basis.request.digest,
        input=basis.entry.evidence["data"],
        blocks=basis.entry.request.blocks,
    )


def _guarantee(basis: Basis) -> Guarantee:
    privacy, unit = basis.spec.privacy, unit_words(basis.spec)
    epsilon, period = _worst_epsilons(basis)
    accounted = basis.plan.stages, basis.planned.delta, privacy.relation, privacy.group_rows
    return Guarantee(
        private=basis.secure,
        definition=_own_guarantees(basis).definition or wording.definition_of(basis.delta),
        unit=unit.description,
        unit_statement=unit.statement,
        relation=privacy.relation,
        relation_words=wording.relation_words(privacy.relation),
        rows=wording.rows_words(privacy.rows),
        units=wording.public_units(basis.spec),
        epsilon=provenance.exact_text(basis.epsilon),
        delta=provenance.exact_text(basis.delta),
        accounted=spend.accounted_cost(*accounted),
        second=spend.second_cost(*accounted),
        meaning=_meaning(basis),
        odds=wording.odds(epsilon, period),
        detection=wording.detection(epsilon, basis.shown_delta, period, _period_delta(basis)),
    )


def _own_guarantees(basis: Basis) -> OwnGuarantees:
    method, relation = create(basis.request.method), basis.spec.privacy.relation
    return method.own_guarantees(basis.plan.event, basis.planned.delta, relation)


def _meaning(basis: Basis) -> tuple[str, ...]:
    guarantees = _own_guarantees(basis)
    if guarantees.definition and basis.secure:
        return guarantees.meaning
    shown = basis.shown_epsilon, basis.shown_delta
    meaning = wording.meaning(basis.spec, *shown, basis.secure, basis.drawn.capacity)
    if not basis.secure:
        return meaning
    planned, charged = (
        (provenance.exact_text(budget.epsilon), provenance.exact_text(budget.delta))
        for budget in (basis.planned, Budget(basis.epsilon, basis.delta))
    )
    return (
        *meaning,
        *wording.group_words(basis.spec, *planned),
        *wording.block_words(basis.spec, basis.entry.request.blocks, basis.moves),
        *wording.reuse_words(basis.reused, *charged),
        *guarantees.meaning,
    )


def _worst_epsilons(basis: Basis) -> tuple[float, float]:
    """Of this release, and of all of its budget period.

    Nothing bounds a release without secure noise, or one that is not differentially private.
    """
    if not basis.secure or not basis.counted:
        return math.inf, math.inf
    shown, spent = float(basis.shown_epsilon), basis.bound
    if spent is None or basis.uncounted_releases:
        return shown, math.inf
    before = sum(exact(release.epsilon) for release in basis.reused if not release.in_period)
    return shown, max(float(max(spent, basis.epsilon) + before), shown)


def _period_delta(basis: Basis) -> Fraction:
    """The delta of all releases of the budget period, and of those whose numbers were used."""
    before = sum(exact(release.delta) for release in basis.reused if not release.in_period)
    budget = basis.budget
    return before + (budget.lifetime_delta if basis.of_several_blocks else budget.budget.delta)


def _cumulative(basis: Basis) -> Cumulative:
    status = basis.budget
    before = None if status.spent is None else max(status.spent - basis.epsilon, Fraction(0))
    return Cumulative(
        period=status.budget.period.value,
        window=status.window,
        releases=status.releases,
        spent=decimal(status.spent),
        reserved=decimal(status.reserved),
        left=decimal_below(status.left),
        cap=provenance.exact_text(status.budget.epsilon),
        cap_delta=provenance.exact_text(status.budget.delta),
        lifetime=decimal(status.lifetime),
        composition=FILTERED if status.kept_by_filter else COMPOSITION,
        before=decimal(before),
        filtered=decimal(status.filtered) if status.kept_by_filter else None,
        block=status.block or None,
        lifetime_delta=provenance.exact_text(status.lifetime_delta) if status.block else None,
    )
