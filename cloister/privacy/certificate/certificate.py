"""The certificate of a release: what was promised and spent, by which code and declarations.

Everything in it is public: declarations of the spec, the plan, counts on the synthetic table,
records of the ledger. It contains no figure that was computed from the real table, no time that a
step took and no exact private count. A round trip through YAML does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from cloister.errors import StorageError, VerificationError
from cloister.schema.declarations import DIFFERENTIAL_PRIVACY

FORMAT = 1
"""Version of the format, as written into each certificate."""

YAML_NAME, PAGE_NAME = "certificate.yaml", "certificate.html"

NOT_STATED = "not stated in the spec"
"""Shown in place of a statement that the curator left out."""

_READ = 8
"""Certificates read last, which are not parsed again: a release and its check read one often."""


class Part(BaseModel):
    """A frozen part of a certificate; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Subject(Part):
    """What the certificate is about; ``state`` is that of the day it was ``written``.

    ``rows`` of the synthetic table. ``input`` is a keyed digest of the data, which only its curator
    can check. ``blocks`` are those that were read of growing data.
    """

    id: str
    product: str
    dataset: str
    method: str
    method_summary: str
    rows: int
    state: str
    written: str
    spec: str
    input: str | None
    blocks: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)


class AccountedCost(Part):
    """An epsilon, and the accountant that shows it."""

    epsilon: float
    accountant: str


class Odds(Part):
    """The greatest certainty of a guess whose certainty was ``prior``, as shares.

    ``release`` after this release alone, ``period`` after all releases of the budget period.
    """

    prior: float
    release: float
    period: float


class Detection(Part):
    """The most true alarms, as a share, of any attack with this share of false alarms."""

    false_alarms: float
    release: float
    period: float


class Guarantee(Part):
    """The guarantee, whom it protects, and its wording; ``epsilon`` and ``delta`` are exact text.

    ``units`` is how many there are, where a number is public. ``accounted`` is what the events cost
    by the accountant with the least answer, ``second`` by another one.
    """

    private: bool
    definition: str
    unit: str
    unit_statement: str
    relation: str
    relation_words: str
    rows: str
    units: int | None = Field(default=None, exclude_if=lambda value: value is None)
    epsilon: str
    delta: str
    accounted: AccountedCost
    second: AccountedCost | None
    meaning: tuple[str, ...]
    odds: tuple[Odds, ...]
    detection: tuple[Detection, ...]


class RecordBound(Part):
    """An epsilon and delta of records made from seeds; ``t`` is the choice of Theorem 1."""

    epsilon: float
    delta: float
    t: int | None = None


class RecordGuarantees(Part):
    """The guarantees of records made from seeds, each under its own name.

    ``guarantee`` is what they were released under. ``k`` counts rows, which belong to ``k_units``
    privacy units or more. ``one_record`` is Theorem 1 for one released record alone,
    ``all_candidates`` of all records that were made and tested, ``network`` of the model that made
    them. None where nothing bounds it.
    """

    guarantee: str
    k: int
    k_units: int
    gamma: str
    candidates: int
    one_record: RecordBound | None
    all_candidates: RecordBound | None
    network: RecordBound | None


@dataclass(frozen=True)
class OwnGuarantees:
    """A method's own guarantees, for its certificates.

    ``records`` are those of records made from seeds. ``meaning`` follows that of differential
    privacy, and takes its place where the ``definition`` is another.
    """

    records: RecordGuarantees | None = None
    definition: str | None = None
    meaning: tuple[str, ...] = ()


class StageSpend(Part):
    """One stage: what it is for, what was done, and the epsilon that it would cost alone.

    The epsilon is at the release's delta; None for what is not differentially private. ``event`` is
    what the accountants read; a stage that does not query the data has none and costs 0.
    """

    name: str
    purpose: str
    done: str
    epsilon: float | None
    accountant: str
    event: dict[str, Any] | None


class Cumulative(Part):
    """The cost of all releases of the dataset together, including this one.

    Amounts are epsilons as text. ``before`` is the sum of those of the window without this one;
    certificates of older versions do not say. ``spent`` and ``left`` are of the window,
    ``lifetime`` of all windows: the loss of a person who is in the data throughout. ``filtered`` is
    the least budget under which a filter holds the window, where one admits its releases.

    Of growing data they are those of the ``block`` that the least is left of, of those that were
    read, and ``lifetime`` is of a person with rows in every block, at ``lifetime_delta``.
    """

    period: str
    window: str
    releases: int
    spent: str
    reserved: str
    left: str
    cap: str
    cap_delta: str
    lifetime: str
    composition: str
    before: str | None = Field(default=None, exclude_if=lambda value: value is None)
    filtered: str | None = Field(default=None, exclude_if=lambda value: value is None)
    block: str | None = Field(default=None, exclude_if=lambda value: value is None)
    lifetime_delta: str | None = Field(default=None, exclude_if=lambda value: value is None)


class ReusedRelease(Part):
    """A previous release whose noisy numbers were reused, and its charge.

    ``in_period`` says whether that is part of what the budget period of this release has spent.
    """

    release: str
    epsilon: str
    delta: str
    in_period: bool


class MeasuredCriterion(Part):
    """A criterion, the largest error that it accepts, and the noisy error of the rows."""

    name: str
    largest: float
    error: float
    met: bool


class Acceptance(Part):
    """The acceptance criteria of a release, ``met`` all or not: one of ``tries`` fits is delivered.

    Which one, and how many counted, is not told. The errors are against noisy counts.
    """

    tries: int
    criteria: tuple[MeasuredCriterion, ...]
    met: bool


class AttributeOrigin(Part):
    """The declared domain of an attribute and where it comes from.

    ``values`` is the whole of a list that ``domain`` shows the beginning of.
    """

    name: str
    type: str
    domain: str
    missing: bool
    provenance: str
    values: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)


class ConstraintOrigin(Part):
    """A constraint, where it comes from, and its violations in the synthetic table.

    Violations are rows, or pairs of rows.
    """

    name: str
    rule: str
    hard: bool
    provenance: str
    violations: int
    percent: float


class MechanismRecord(Part):
    """A mechanism that was used: its noise, the sampler of the noise, and its publication."""

    name: str
    sampler: str
    source: str


class AuditRecord(Part):
    """What an audit of the code and method of a release showed, on tables of its own.

    Of the attack that came nearest to its plan's claim: ``shown`` is a bound from below of the mu
    that a Gaussian would need, ``claimed`` the plan's, at ``epsilon``. ``alarm`` says that an
    attack showed more than was claimed.
    """

    date: str
    attacks: int
    releases: int
    epsilon: str
    shown: str
    claimed: str
    alarm: bool


class Software(Part):
    """The code that made the release; ``lock`` and ``sources`` are SHA-256 digests.

    ``device`` is where the model was trained; certificates of older versions do not say.
    ``earlier`` is how many noisy answers other versions drew before this one resumed the release.
    ``audit`` is of the same sources and method; without one they were not audited here.
    """

    cloister: str
    sources: str
    commit: str | None
    lock: str | None
    python: str
    platform: str
    libraries: dict[str, str]
    device: str | None = Field(default=None, exclude_if=lambda value: value is None)
    earlier: dict[str, int] = Field(default_factory=dict, exclude_if=lambda value: not value)
    audit: AuditRecord | None = Field(default=None, exclude_if=lambda value: value is None)


class Runner(Part):
    """Who had a release run: the person, with the roles of that day, and on whose behalf.

    ``identity`` says who acted where the house knows no such person; certificates of earlier
    versions hold it of people too.
    """

    identity: str | None = None
    person: str | None = None
    roles: tuple[str, ...] = ()
    on_behalf_of: str | None = None


class LedgerEntry(Part):
    """The entry of the ledger that charged the release: number and hash."""

    seq: int
    hash: str


class Certificate(Part):
    """The certificate of one release.

    ``about`` is what the curator states of it, with `NOT_STATED` for what was left out. ``ran_by``
    is who had it run; who decided on it later is in signed statements. ``ignored`` names columns of
    the source that were left out, ``model`` is the digest of its model, ``reused`` are releases
    whose numbers it uses; certificates of older versions have none.
    """

    certificate: int
    about: dict[str, str] = {}
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
    ran_by: Runner | None = None
    verification: str
    model: str | None = None
    ignored: tuple[str, ...] = ()
    records: RecordGuarantees | None = None
    acceptance: Acceptance | None = None
    reused: tuple[ReusedRelease, ...] = ()

    @property
    def weaker_guarantee(self) -> str | None:
        """The words for what records are released under in place of differential privacy."""
        guarantee = self.records.guarantee if self.records else DIFFERENTIAL_PRIVACY
        return None if guarantee == DIFFERENTIAL_PRIVACY else guarantee.replace("-", " ")

    def to_yaml(self) -> str:
        """The text of ``certificate.yaml``; the same certificate always gives the same text."""
        later = ("about", "ran_by", "model", "ignored", "records", "acceptance", "reused")
        absent = {name for name in later if not getattr(self, name)}
        content = self.model_dump(mode="json", exclude=absent)
        for name in ("identity", "on_behalf_of"):
            if self.ran_by and getattr(self.ran_by, name) is None:
                del content["ran_by"][name]
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)

    @classmethod
    def from_yaml(cls, text: str) -> Certificate:
        """The certificate in a text that `to_yaml` wrote.

        Raises:
            VerificationError: the text is not what was written.
        """
        return _read(text)


@lru_cache(maxsize=_READ)
def _read(text: str) -> Certificate:
    try:
        certificate = Certificate.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        raise VerificationError(
            f"{YAML_NAME} was altered: it cannot be read as a certificate"
        ) from None
    if certificate.to_yaml() != text:
        raise VerificationError(f"{YAML_NAME} was altered: its text is not as it was written")
    return certificate


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
