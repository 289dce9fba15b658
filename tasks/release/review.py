"""A release as its reviewer sees it, beside the one before: spend, utility, violations, spec.

What the specs declare is read from the certificates, so that specs that are gone compare too.

Privacy: ``metrics`` are measured on the real rows without noise, and stay inside; the rest is
    public.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from cloister.errors import InputError
from cloister.models.core.released_counts import Drift, ReleasedCounts, drifts
from cloister.models.protocol import CountedRows, counted_tables
from cloister.privacy.certificate.certificate import YAML_NAME, Certificate
from cloister.privacy.exact import decimal, decimal_below
from cloister.privacy.ledger import Entry, Release, State
from cloister.privacy.ledger.house import House
from cloister.schema.domain import Domain
from cloister.tasks.home.home import Home
from cloister.tasks.ledger.access import release_of, releases
from cloister.tasks.ledger.fingerprints import accounts_of_same_data
from cloister.tasks.ledger.people import looking_problem
from cloister.tasks.release.integrity import recorded_certificate
from cloister.tasks.release.preflight import saved_model

_TO_COMPARE = (State.CANDIDATE, State.APPROVED, State.PUBLISHED)
"""States of the releases that a later one is compared with."""


@dataclass(frozen=True)
class ReleaseView:
    """One release: its entry in the ledger, what its certificate says, internal measures.

    There is no certificate of an unfinished release, nor of a measurement of domains. ``metrics``
    are None where nothing was measured, once the measures were deleted, and for who may not look.
    """

    entry: Release
    certificate: Certificate | None
    metrics: Mapping[str, float] | None

    def to_json(self) -> dict[str, Any]:
        """The view as JSON values; ``internal`` must not be shared."""
        request, certificate = self.entry.request, self.certificate
        certified = certificate and {
            "accounted_epsilon": certificate.guarantee.accounted.epsilon,
            "rows": certificate.subject.rows,
            "stages": [
                {"name": stage.name, "epsilon": stage.epsilon} for stage in certificate.stages
            ],
            "violations": [
                {"name": constraint.name, "hard": constraint.hard}
                | {"violations": constraint.violations, "percent": constraint.percent}
                for constraint in certificate.constraints
            ],
        }
        return {
            "release": self.entry.id,
            "dataset": request.dataset,
            "method": request.method,
            "charged": {"epsilon": decimal(request.epsilon), "delta": decimal(request.delta)},
            "blocks": list(request.blocks),
            "state": self.entry.state.value,
            "steps": [
                {
                    "state": step.state.value,
                    "time": step.time,
                    "by": step.who,
                    "reason": step.reason,
                }
                for step in self.entry.steps
            ],
            "consents": [asdict(consent) | {"by": consent.who} for consent in self.entry.consents],
            "looks": [asdict(look) | {"by": look.who} for look in self.entry.looks],
            **(certified or {}),
            "internal": self.metrics and dict(self.metrics),
        }


def declined_facts(entry: Entry, house: House) -> dict[str, str]:
    """Return what was asked for by a request that was declined, what was left then, and by whom.

    Entries of earlier versions do not say what was left.
    """
    body, left = entry.body, entry.body.get("left")
    return {
        "entry": str(entry.seq),
        "time": entry.time,
        **{name: body[name] for name in ("dataset", "unit", "method")},
        "epsilon": decimal(Fraction(body["epsilon"])),
        "delta": decimal(Fraction(body["delta"])),
        "left": decimal_below(Fraction(left)) if left else "not recorded",
        "by": house.shown(body["by"]),
        "reason": body["reason"],
    }


@dataclass(frozen=True)
class Change:
    """A declaration that differs, in the words of certificates; empty where there is none."""

    what: str
    before: str
    now: str


@dataclass(frozen=True)
class Review:
    """A release, the one it is compared ``against`` if any, and what changed in the spec.

    ``drifts`` say of each attribute whether the data changed by more than the noise of both; empty
    where a method keeps no counts, or reused those of a previous release. ``same_data`` are other
    accounts that read the same rows, with the entry of the last time.
    """

    release: ReleaseView
    against: ReleaseView | None
    changes: tuple[Change, ...]
    drifts: tuple[Drift, ...] = ()
    same_data: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "release": self.release.to_json(),
            "against": self.against and self.against.to_json(),
            "changes": [asdict(change) for change in self.changes],
            "drifts": [asdict(drift) for drift in self.drifts],
            "same_data": dict(self.same_data),
        }


def by_state(home: Home) -> list[Release]:
    """All releases: first those that wait for review, then the others, the newest first of each."""
    newest = reversed(releases(home, None))
    return sorted(newest, key=lambda release: release.state is not State.CANDIDATE)


def compare(home: Home, release: str, by: str, against: str | None = None) -> Review:
    """A release beside another of its account, as somebody may see both.

    By default that is the newest before it that is a candidate, approved or published. Measures are
    for whoever may look at exact figures, accounts of the same data for officers.

    Raises:
        InputError: there is no such release, or the other is of another account.
        StorageError, VerificationError: a certificate cannot be read, or is not what was recorded.
    """
    entry = release_of(home, release)
    former = release_of(home, against) if against else _previous(home, entry)
    if former and former.request.dataset != entry.request.dataset:
        raise InputError(
            f"release {former.id} is of account {former.request.dataset}, and {entry.id} of "
            f"{entry.request.dataset}; compare releases of one account"
        )
    exact = not looking_problem(home, by)
    view, previous = _view(home, entry, exact), _view(home, former, exact) if former else None
    changes, drifted = tuple(_changes(previous, view)), _drifts(home, previous, view)
    return Review(view, previous, changes, drifted, accounts_of_same_data(home, entry, by))


def _drifts(home: Home, before: ReleaseView | None, now: ReleaseView) -> tuple[Drift, ...]:
    if before is None or now.certificate is None or now.certificate.reused:
        return ()
    earlier, later = (_counts(home, view.entry) for view in (before, now))
    return tuple(
        replace(drift, attribute=name + drift.attribute)
        for name, counts in later.items()
        if name in earlier
        for drift in drifts(earlier[name], counts)
    )


def _counts(home: Home, entry: Release) -> Mapping[str, ReleasedCounts]:
    """The noisy counts that a release was made from, by what names a table of several.

    None where its model was deleted.
    """
    if not (home.release(entry.id) / "model").is_dir():
        return {}
    saved = saved_model(entry, home)
    tables = counted_tables(saved.model, saved.task).items()
    released = {
        saved.spec.naming(name): _of_columns(counted, saved.task.tables[name].domain)
        for name, counted in tables
    }
    return {name: counts for name, counts in released.items() if counts}


def _of_columns(counted: CountedRows, domain: Domain) -> ReleasedCounts | None:
    """The noisy counts of the columns of a table, of the numbers of rows, and of differences."""
    if counted.released is None:
        return None
    histograms, attributes = counted.released.histograms, counted.task.domain
    names = {column: counted.name_of(column) for column in domain.modelled}
    names |= {name: name for name in histograms if name not in attributes or name == counted.number}
    shown = {name: histograms[of] for name, of in names.items() if of in histograms}
    return replace(counted.released, histograms=shown)


def _previous(home: Home, entry: Release) -> Release | None:
    """The newest finished release of the same account that was reserved before."""
    before = (
        release
        for release in releases(home, entry.request.dataset)
        if release.steps[0].seq < entry.steps[0].seq
        and release.state in _TO_COMPARE
        and release.of_domain == entry.of_domain
    )
    return max(before, key=lambda release: release.steps[0].seq, default=None)


def _view(home: Home, entry: Release, exact: bool) -> ReleaseView:
    folder = home.release(entry.id) / "public"
    certified = (folder / YAML_NAME).exists()
    certificate = recorded_certificate(folder, entry) if certified else None
    return ReleaseView(entry, certificate, _metrics(home, entry.id) if exact else None)


def _metrics(home: Home, release: str) -> dict[str, float] | None:
    try:
        path = home.release(release) / "internal" / "evaluation.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content.get("headline", content["metrics"])) or None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # deleted, or altered: cloister verify says which


def _changes(before: ReleaseView | None, now: ReleaseView) -> Iterator[Change]:
    if before is None:
        return
    specs = [view.entry.request.spec_digest for view in (before, now)]
    if specs[0] != specs[1]:
        yield Change("digest of the spec", *specs)
    if before.certificate is None or now.certificate is None:
        return
    earlier, later = _declared(before.certificate), _declared(now.certificate)
    for what in earlier | later:
        if earlier.get(what) != later.get(what):
            yield Change(what, earlier.get(what, ""), later.get(what, ""))


def _declared(certificate: Certificate) -> dict[str, str]:
    """What was declared and requested, by name, except the blocks, which differ by design."""
    subject, guarantee = certificate.subject, certificate.guarantee
    total = certificate.cumulative
    attributes = {
        f"attribute {attribute.name}": f"{attribute.type}, {attribute.domain}"
        f"{', may be missing' if attribute.missing else ''} ({attribute.provenance})"
        for attribute in certificate.attributes
    }
    constraints = {
        f"constraint {rule.name}": f"{'hard' if rule.hard else 'soft'}: {rule.rule} "
        f"({rule.provenance})"
        for rule in certificate.constraints
    }
    return {
        "method": subject.method,
        "rows": f"{subject.rows:,}",
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "protects": f"{guarantee.unit}; {guarantee.relation_words}",
        "budget": f"epsilon {total.cap} at delta {total.cap_delta} per {total.period}",
        "columns left out": ", ".join(certificate.ignored) or "none",
        **attributes,
        **constraints,
    }
