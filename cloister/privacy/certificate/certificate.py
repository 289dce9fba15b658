"""The certificate of a release: what was promised and spent, by which code and declarations.

Everything in it is public: declarations of the spec, the plan, counts on the synthetic table,
records of the ledger. It contains no figure that was computed from the real table, no time that a
step took and no exact private count.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from cloister.errors import StorageError, VerificationError
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
from cloister.schema.declarations import PLAUSIBLE_DENIABILITY

FORMAT = 1
"""Version of the format, as written into each certificate."""

YAML_NAME, PAGE_NAME = "certificate.yaml", "certificate.html"


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
