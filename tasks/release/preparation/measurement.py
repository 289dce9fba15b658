"""Checks of a measurement before the ledger is charged and any data is opened."""

from __future__ import annotations

from pathlib import Path

from cloister.errors import PlanError, StorageError
from cloister.privacy.exact import decimal, decimal_below
from cloister.schema.attributes import ValuesFile
from cloister.schema.spec import Spec
from cloister.tasks.domains.plan import SPEC_NAME, domain_context
from cloister.tasks.ledger.queries import pending_release
from cloister.tasks.release.preparation.preflight import require_readable
from cloister.tasks.requests.options import require_small_delta
from cloister.tasks.requests.public_context import PublicContext
from cloister.tasks.requests.resolved import ResolvedRequest
from cloister.tasks.runtime.home import Home
from cloister.tasks.runtime.places import require_home, require_nameable, require_room

_SPEC_BYTES = 1 << 20
"""Bytes of disk that a new spec needs: as many as a spec may have."""


def require_ready(request: ResolvedRequest, home: Home) -> None:
    """Check everything about a measurement that needs no data.

    Raises:
        StorageError: the data cannot be read, the new spec cannot be written, or would not find its
            files.
        PlanError: delta cannot be, or too little of the declared budget is left for a release.
    """
    context = domain_context(request)
    if not 0 < request.budget.delta < 1:
        raise PlanError("delta should be above 0 and below 1; give a small one with --delta")
    if context.spec.privacy.rows.public:
        require_small_delta(request.budget, context.spec)
    _require_rest(request, context.spec)
    require_readable(request, context.spec)
    _require_place(request, context, home)
    require_home(home)
    require_room(home.folder, _SPEC_BYTES)


def _require_rest(request: ResolvedRequest, spec: Spec) -> None:
    """The declared budget holds the measurement and one release as it is declared."""
    declared, release = spec.privacy.budget, spec.release
    rest = declared.epsilon - request.budget.epsilon, declared.delta - request.budget.delta
    if rest[0] < release.epsilon or rest[1] < release.delta:
        left = declared.epsilon - release.epsilon, declared.delta - release.delta
        remedy = (
            f"measure with epsilon {decimal_below(left[0])} and delta {decimal_below(left[1])} at "
            "most, or declare"
            if min(left) > 0
            else "declare"
        )
        raise PlanError(
            f"of the declared budget, epsilon {decimal_below(declared.epsilon)} and delta "
            f"{decimal_below(declared.delta)}, too little is left for the declared release, "
            f"epsilon {decimal(release.epsilon)} and delta {decimal(release.delta)}; "
            f"{remedy} a smaller release or a larger budget"
        )


def _require_place(request: ResolvedRequest, context: PublicContext, home: Home) -> None:
    """Check that the new spec replaces nothing, and finds the files that it names."""
    out, spec = request.out_path, context.spec
    if out is None:
        raise StorageError("the new spec has no place; give a file with --out")
    require_nameable(out)
    if (out.exists() or out.is_symlink()) and not _written_before(out, request, context, home):
        raise StorageError(f"{out} exists; give another file with --out, or move it away")
    if _names_files(spec) and out.parent != request.spec.parent:
        raise StorageError(
            f"the spec names files beside it; give --out a file in {request.spec.parent}"
        )
    require_room(out.parent, _SPEC_BYTES)


def _written_before(
    out: Path, request: ResolvedRequest, context: PublicContext, home: Home
) -> bool:
    """Whether ``out`` is the spec that an earlier, killed run of this request wrote."""
    held = pending_release(request, context, home)
    kept = home.release(held.id) / "public" / SPEC_NAME if held else None
    return (
        kept is not None
        and kept.is_file()
        and out.is_file()
        and out.read_bytes() == kept.read_bytes()
    )


def _names_files(spec: Spec) -> bool:
    kept = [attribute for attribute in spec.attributes.values() if not attribute.data_derived]
    lists = any(isinstance(getattr(attribute, "values", None), ValuesFile) for attribute in kept)
    return lists or any(declaration.file for declaration in spec.constraints)
