"""The certificate of a release: what was promised and spent, by which code and declarations.

Everything in it is public: declarations of the spec, the plan, counts on the synthetic table,
records of the ledger. It contains no figure that was computed from the real table, no time that a
step took and no exact private count.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import yaml

from cloister.constraints import DenialConstraint
from cloister.constraints.across import AcrossConstraint
from cloister.constraints.denial import ViolationReport
from cloister.errors import PrivacyError, StorageError, VerificationError
from cloister.figures import listed
from cloister.privacy.accounting.composition import PlannedStage, deniable_event, event_of_stages
from cloister.privacy.certificate.provenance import (
    across_origins,
    attribute_origins,
    constraint_origins,
    exact_text,
    ignored_columns,
    key_origins,
    unprotected_facts,
)
from cloister.privacy.certificate.schema import (
    AttributeOrigin,
    ConstraintOrigin,
    Cumulative,
    Guarantee,
    LedgerEntry,
    MechanismRecord,
    Part,
    RecordGuarantees,
    ReusedRelease,
    Software,
    StageSpend,
    Subject,
)
from cloister.privacy.certificate.spend import (
    DENIABLE_DEFINITION,
    accounted_cost,
    deniable_meaning,
    mechanisms,
    record_guarantees,
    record_words,
    second_cost,
    stage_spends,
)
from cloister.privacy.certificate.wording import (
    definition_of,
    detection,
    limitations,
    meaning,
    odds,
    relation_words,
    reuse_words,
    rows_words,
    safeguards,
    unit_description,
    unit_statement,
)
from cloister.privacy.exact import decimal, decimal_below, exact, float_above
from cloister.privacy.ledger import Anchor, BudgetStatus
from cloister.schema.declarations import PLAUSIBLE_DENIABILITY
from cloister.schema.relations import ForeignKey
from cloister.schema.spec import Spec
from cloister.schema.spec_files.loading import spec_digest

_FORMAT = 1
"""Version of the format, as written into each certificate."""

YAML_NAME, PAGE_NAME = "certificate.yaml", "certificate.html"


@dataclass(frozen=True)
class Facts:
    """What a certificate is made from.

    Args:
        epsilon, delta: what was requested and charged. stages: of the plan, with their noise and
        events. violations: of every constraint, counted on the synthetic file. post_processing:
        what the model did to its answers, in sentences. capacity: how many rows the model may ever
        give; None if any number. budget: of the dataset and unit, after the charge; ``composition``
        is how the ledger adds releases up. anchor: the ledger entry that made the charge final.
        artefacts: SHA-256 by file name. model: digest of the model that the rows were drawn from.
        secure: whether all noise came from a secure source. input_digest: keyed, of the data.
        warnings: what the rows have lost of the released histograms, in sentences.
        deniable_releases: of the dataset, those under plausible deniability alone, this one
        included. of_persons: where persons have several rows, their key and their attributes.
        across: the constraints across foreign keys. reused: earlier releases whose numbers were
        used again.
    """

    spec: Spec
    constraints: Sequence[DenialConstraint]
    release: str
    method: str
    method_summary: str
    rows: int
    epsilon: Fraction
    delta: Fraction
    stages: Sequence[PlannedStage]
    violations: Sequence[ViolationReport]
    post_processing: tuple[str, ...]
    budget: BudgetStatus
    composition: str
    anchor: Anchor
    software: Software
    artefacts: Mapping[str, str]
    written: dt.date
    secure: bool = True
    input_digest: str | None = None
    model: str | None = None
    capacity: int | None = None
    dangling: Sequence[tuple[ForeignKey, int]] = ()
    of_persons: Sequence[str] = ()
    warnings: Sequence[str] = ()
    deniable_releases: int = 0
    across: Sequence[AcrossConstraint] = ()
    reused: Sequence[ReusedRelease] = ()

    @property
    def shown_epsilon(self) -> Fraction:
        """What the rows reveal at most: of this release, and of those whose numbers it uses."""
        return self.epsilon + sum(exact(own.epsilon) for own in self.reused)

    @property
    def shown_delta(self) -> Fraction:
        """The delta of what the rows reveal."""
        return self.delta + sum(exact(own.delta) for own in self.reused)

    @property
    def deniable(self) -> bool:
        """Whether records are released under plausible deniability alone."""
        return deniable_event(self.stages) is not None


class Certificate(Part):
    """The certificate of one release.

    ``ignored`` names columns of the source that were left out, ``model`` is the digest of its
    model, ``reused`` are releases whose numbers it uses; certificates of older versions have none.
    """

    certificate: int
    subject: Subject
    guarantee: Guarantee
    stages: tuple[StageSpend, ...]
    cumulative: Cumulative
    attributes: tuple[AttributeOrigin, ...]
    constraints: tuple[ConstraintOrigin, ...]
    unprotected: tuple[str, ...]
    post_processing: tuple[str, ...]
    mechanisms: tuple[MechanismRecord, ...]
    safeguards: tuple[str, ...]
    limitations: tuple[str, ...]
    software: Software
    artefacts: dict[str, str]
    ledger: LedgerEntry
    verification: str
    model: str | None = None
    ignored: tuple[str, ...] = ()
    records: RecordGuarantees | None = None
    reused: tuple[ReusedRelease, ...] = ()

    @property
    def deniable(self) -> bool:
        """Whether records are released under plausible deniability alone."""
        return self.records is not None and self.records.guarantee == PLAUSIBLE_DENIABILITY

    def to_yaml(self) -> str:
        """The text of ``certificate.yaml``; the same certificate always gives the same text."""
        absent = {
            name for name in ("model", "ignored", "records", "reused") if not getattr(self, name)
        }
        content = self.model_dump(mode="json", exclude=absent)
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)

    @classmethod
    def from_yaml(cls, text: str) -> Certificate:
        """The certificate in a text that `to_yaml` wrote.

        Raises:
            VerificationError: the text is not what was written.
        """
        try:
            certificate = cls.model_validate(yaml.safe_load(text))
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            raise VerificationError(
                f"{YAML_NAME} was altered: it cannot be read as a certificate"
            ) from None
        if certificate.to_yaml() != text:
            raise VerificationError(f"{YAML_NAME} was altered: its text is not as it was written")
        return certificate


def certify(facts: Facts) -> Certificate:
    """The certificate that facts make.

    Raises:
        PrivacyError: the events cost more than was charged, or a hard constraint is violated:
            nothing is to be published.
    """
    _require_true(facts)
    return Certificate(
        certificate=_FORMAT,
        subject=_subject(facts),
        guarantee=_guarantee(facts),
        stages=stage_spends(facts.stages, facts.delta, facts.spec.privacy.relation, facts.capacity),
        cumulative=_cumulative(facts.budget, facts.composition),
        attributes=attribute_origins(facts.spec, facts.of_persons),
        constraints=(
            *constraint_origins(facts.constraints, facts.violations),
            *across_origins(facts.across, facts.violations),
            *key_origins(facts.dangling),
        ),
        unprotected=unprotected_facts(facts.spec),
        post_processing=facts.post_processing,
        mechanisms=mechanisms(facts.stages, facts.secure),
        safeguards=safeguards(facts.stages, facts.secure),
        limitations=(
            *facts.warnings,
            *limitations(facts.spec, facts.secure, facts.deniable_releases),
        ),
        software=facts.software,
        artefacts=dict(sorted(facts.artefacts.items())),
        ledger=LedgerEntry(seq=facts.anchor.seq, hash=facts.anchor.hash),
        verification=f"cloister verify {facts.release}",
        model=facts.model,
        ignored=ignored_columns(facts.spec),
        records=_records(facts),
        reused=tuple(facts.reused),
    )


def _require_true(facts: Facts) -> None:
    if facts.deniable and facts.spec.release.guarantee != PLAUSIBLE_DENIABILITY:
        raise PrivacyError(
            f"release {facts.release} is under plausible deniability alone, which its spec does "
            "not declare; it must not be published"
        )
    accounted = accounted_cost(facts.stages, facts.delta, facts.spec.privacy.relation)
    if accounted.epsilon > float_above(facts.epsilon):
        raise PrivacyError(
            f"the events of release {facts.release} cost more than the epsilon charged; it must "
            "not be published"
        )
    broken = [report.name for report in facts.violations if report.hard and report.violations]
    broken += [f"{key.table}.{key.column}" for key, rows in facts.dangling if rows]
    if broken:
        raise PrivacyError(
            f"the synthetic table violates the {listed('hard constraint', broken)}; it must not "
            "be published"
        )


def _subject(facts: Facts) -> Subject:
    return Subject(
        id=facts.release,
        product="synthetic database" if facts.spec.tables else "synthetic table",
        dataset=facts.spec.name,
        method=facts.method,
        method_summary=facts.method_summary,
        rows=facts.rows,
        state="candidate",
        written=facts.written.isoformat(),
        spec=spec_digest(facts.spec),
        input=facts.input_digest,
    )


def _guarantee(facts: Facts) -> Guarantee:
    privacy = facts.spec.privacy
    epsilon, period = _worst_epsilons(facts)
    return Guarantee(
        private=facts.secure,
        definition=DENIABLE_DEFINITION if facts.deniable else definition_of(facts.delta),
        unit=unit_description(facts.spec),
        unit_statement=unit_statement(facts.spec),
        relation=privacy.relation,
        relation_words=relation_words(privacy.relation),
        rows=rows_words(privacy.rows),
        epsilon=exact_text(facts.epsilon),
        delta=exact_text(facts.delta),
        accounted=accounted_cost(facts.stages, facts.delta, privacy.relation),
        second=second_cost(facts.stages, facts.delta, privacy.relation),
        meaning=_meaning(facts),
        odds=odds(epsilon, period),
        detection=detection(epsilon, facts.shown_delta, period, _period_delta(facts)),
    )


def _records(facts: Facts) -> RecordGuarantees | None:
    event = event_of_stages(facts.stages)
    return record_guarantees(event, facts.delta, facts.spec.privacy.relation)


def _meaning(facts: Facts) -> tuple[str, ...]:
    records = _records(facts)
    if records and facts.deniable and facts.secure:
        return deniable_meaning(records)
    words = record_words(records) if records and facts.secure else ()
    shown = facts.shown_epsilon, facts.shown_delta
    said = meaning(facts.spec, *shown, facts.secure, facts.capacity)
    return (*said, *_reuse_words(facts), *words)


def _reuse_words(facts: Facts) -> tuple[str, ...]:
    charged = exact_text(facts.epsilon), exact_text(facts.delta)
    return reuse_words(facts.reused, *charged) if facts.secure else ()


def _worst_epsilons(facts: Facts) -> tuple[float, float]:
    """Of this release, and of all of its budget period.

    Nothing bounds a release without secure noise, or under plausible deniability alone.
    """
    if not facts.secure or facts.deniable:
        return math.inf, math.inf
    shown, spent = float(facts.shown_epsilon), facts.budget.spent
    if spent is None or facts.deniable_releases:
        return shown, math.inf
    before = sum(exact(own.epsilon) for own in facts.reused if not own.in_period)
    return shown, max(float(max(spent, facts.epsilon) + before), shown)


def _period_delta(facts: Facts) -> Fraction:
    """The delta of all releases of the budget period, and of those whose numbers were used."""
    before = sum(exact(own.delta) for own in facts.reused if not own.in_period)
    return facts.budget.budget.delta + before


def _cumulative(status: BudgetStatus, composition: str) -> Cumulative:
    return Cumulative(
        period=status.budget.period.value,
        window=status.window,
        releases=status.releases,
        spent=decimal(status.spent),
        reserved=decimal(status.reserved),
        left=decimal_below(status.left),
        cap=exact_text(status.budget.epsilon),
        cap_delta=exact_text(status.budget.delta),
        lifetime=decimal(status.lifetime),
        composition=composition,
    )


def read_certificate(folder: Path) -> Certificate:
    """The certificate in a folder.

    Raises:
        StorageError: it cannot be read.
        VerificationError: it was altered.
    """
    path = folder / YAML_NAME
    try:
        return Certificate.from_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read ({error.strerror}); give the folder of a release"
        ) from None
    except UnicodeDecodeError:
        raise VerificationError(f"{YAML_NAME} was altered: it is not UTF-8 text") from None
