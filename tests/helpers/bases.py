"""What a certificate is made from, with one thing changed."""

from dataclasses import replace
from typing import Any

from cloister.tasks.release.basis import Basis


def declaring(basis: Basis, **fields: Any) -> Basis:
    """The basis with other declarations in its spec."""
    spec = basis.spec.model_copy(update=fields)
    return replace(basis, context=replace(basis.context, spec=spec))


def charging(basis: Basis, **fields: Any) -> Basis:
    """The basis with another charge in the ledger's entry."""
    request = replace(basis.entry.request, **fields)
    return replace(basis, entry=replace(basis.entry, request=request))


def drawing(basis: Basis, **fields: Any) -> Basis:
    """The basis with other drawn rows."""
    return replace(basis, drawn=replace(basis.drawn, **fields))
