"""The earlier release whose noisy numbers a release uses again: found and checked beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from cloister.errors import CloisterError, InputError, PlanError
from cloister.models.protocol import AnySynthesizer, ReusesNumbers
from cloister.models.registry import create
from cloister.models.storage import SavedModel, load_saved, model_digest
from cloister.models.task import Task
from cloister.privacy.certificate.provenance import exact_text
from cloister.privacy.certificate.schema import ReusedRelease
from cloister.privacy.events import Relation
from cloister.privacy.ledger import BudgetStatus, Release, State
from cloister.privacy.mechanisms.randomness import noise_source
from cloister.schema.columns import Column
from cloister.schema.declarations import LATEST
from cloister.schema.domain import Domain
from cloister.tasks.ledger.queries import release_of, releases
from cloister.tasks.ledger.release_findings import recorded_certificate, released_manifest
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home

_DELIVERED = (State.CANDIDATE, State.APPROVED, State.PUBLISHED)

_NOT_COMPARED = frozenset({"provenance", "values"})
"""What may differ between declarations of one column; values are compared as they are listed."""


def find_prior(request: ResolvedRequest, context: PublicContext, home: Home) -> Release | None:
    """The release whose numbers a request asks to use again.

    None if it asks for none, or for the latest that can be used and there is none.

    Raises:
        PlanError: the method makes no use of such numbers.
        InputError: there is no such release, or its numbers cannot be used; says why.
    """
    if request.prior is None:
        return None
    task = _require_reuse(request, context)
    wanted = _identity(request, context)
    if request.prior == LATEST:
        delivered = reversed(releases(home, context.spec.name))
        return next((held for held in delivered if not _hindrance(held, wanted, task, home)), None)
    held = release_of(home, request.prior)
    if hindrance := _hindrance(held, wanted, task, home):
        raise InputError(
            f"the numbers of release {held.id} cannot be used again: {hindrance}; name another "
            "with --prior, or leave it out"
        )
    return held


def prior_digest(release: str, home: Home) -> str:
    """The digest of the model that holds the numbers of a release.

    Raises:
        StorageError, VerificationError: it cannot be read, or is not what was saved.
    """
    return model_digest(home.release(release) / "model")


def reusing(synthesizer: AnySynthesizer, release: str, home: Home) -> AnySynthesizer:
    """The method, whose fits use the numbers of an earlier release again.

    Raises:
        StorageError, VerificationError: they cannot be read, or are not those released.
    """
    _, model = _saved(release_of(home, release), home).one
    return cast("ReusesNumbers", synthesizer).following(model)


def reused_releases(release: str, status: BudgetStatus, home: Home) -> tuple[ReusedRelease, ...]:
    """A release and those whose numbers it used again itself, newest first.

    Raises:
        StorageError, VerificationError: a certificate cannot be read, or is not that recorded.
    """
    return tuple(
        ReusedRelease(
            release=held.id,
            epsilon=exact_text(held.request.epsilon),
            delta=exact_text(held.request.delta),
            in_period=status.budget.period.window(held.reserved_at) == status.window,
        )
        for held in _with_its_own(release, home)
    )


def _with_its_own(release: str, home: Home) -> Iterator[Release]:
    held = release_of(home, release)
    yield held
    certificate = recorded_certificate(home.release(release) / "public", held)
    yield from (release_of(home, own.release) for own in certificate.reused)


def _require_reuse(request: ResolvedRequest, context: PublicContext) -> Task:
    """The task of a request whose method uses such numbers again."""
    task = context.task
    if isinstance(task, Task) and task.persons is None:
        if create(request.method).reuses_numbers:
            return task
        raise PlanError(
            f"method '{request.method}' makes no use of an earlier release; leave prior out, or "
            "use --method mixture"
        )
    raise PlanError(
        "an earlier release is used again for one table whose privacy unit has one row; leave "
        "prior out"
    )


def _identity(request: ResolvedRequest, context: PublicContext) -> dict[str, str]:
    """What a release must have in common with the one whose numbers it uses, by its name."""
    return {
        "dataset": context.spec.name,
        "privacy unit": context.unit,
        "relation": Relation(context.spec.privacy.relation).value,
        "method": request.method,
    }


def _hindrance(held: Release, wanted: dict[str, str], task: Task, home: Home) -> str | None:
    """Why the numbers of a release cannot be used again; None if they can."""
    asked = held.request
    if held.state not in _DELIVERED:
        return f"it is {held.state.words}"
    found = (asked.dataset, asked.unit, asked.relation, asked.method)
    for (name, value), own in zip(wanted.items(), found, strict=True):
        if own != value:
            return f"its {name} is '{own}', not '{value}'"
    if asked.stain and noise_source().secure:
        return "its noise was seeded"
    try:
        earlier, model = _saved(held, home).one
        cast("ReusesNumbers", create(asked.method)).following(model)
    except CloisterError as error:
        return str(error)
    return None if _same_columns(earlier.domain, task.domain) else "its columns are not the same"


def _saved(held: Release, home: Home) -> SavedModel:
    """The model that a release is bound to."""
    return load_saved(home.release(held.id) / "model", released_manifest(home, held).lineage.model)


def _same_columns(earlier: Domain, now: Domain) -> bool:
    return earlier.names == now.names and all(map(_same_column, earlier, now))


def _same_column(earlier: Column, now: Column) -> bool:
    declared = [own.attribute.model_dump(exclude={*_NOT_COMPARED}) for own in (earlier, now)]
    return declared[0] == declared[1] and replace(earlier, attribute=now.attribute) == now
