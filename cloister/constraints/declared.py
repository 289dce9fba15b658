"""Constraints as a spec declares them, and the denial constraints that they mean.

An entry without a name is named by its place, ``constraint_1``; those of a file by the file,
``adult_1``; those of a dependency with several attributes on the right, and of a check that stands
for several denials, ``name_1``, ``name_2``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cloister.constraints.denial import DenialConstraint, KnownFigure
from cloister.constraints.holoclean import read_holoclean
from cloister.constraints.shapes import functional_dependency, key_attributes
from cloister.constraints.text import (
    dependency,
    format_denial,
    format_dependency,
    key,
    parse_check,
    parse_denial,
    parse_dependency,
)
from cloister.errors import ConstraintError
from cloister.schema.declarations.constraints import ConstraintDeclaration, KnownSoftness


def constraints_of(
    declarations: Sequence[ConstraintDeclaration],
    attribute_names: Collection[str],
    folder: Path,
    ignored: Collection[str] = (),
    require: Callable[[DenialConstraint], object] | None = None,
    nullable: Collection[str] | None = None,
) -> tuple[DenialConstraint, ...]:
    """The constraints of a spec, in order; files are looked up in ``folder``.

    ``ignored`` columns are left out of the data; no constraint can use them. ``require`` raises a
    ConstraintError for one that cannot be used, which then has the keys of its declaration. Cells
    of ``nullable`` attributes may be missing, which a ``check`` must know.

    Raises:
        ConstraintError: one cannot be read, names an unknown attribute, or two have the same name.
        StorageError: a constraint file cannot be read.
    """
    constraints: list[DenialConstraint] = []
    for place, declaration in enumerate(declarations):
        with declared_at("constraints", place):
            for constraint in _constraints(declaration, place + 1, folder, nullable):
                _require_known(constraint, attribute_names, ignored)
                if require:
                    require(constraint)
                constraints.append(_with_known(constraint, declaration))
    _require_unique([constraint.name for constraint in constraints])
    return tuple(constraints)


@contextmanager
def declared_at(*keys: str | int) -> Iterator[None]:
    """Add the keys of a spec, under which constraints are read inside, to what is wrong with one.

    Raises:
        ConstraintError: that of inside, with the keys that lead to the constraint.
    """
    try:
        yield
    except ConstraintError as error:
        raise ConstraintError(str(error), (*keys, *error.keys)) from None


def declaration_of(constraint: DenialConstraint) -> ConstraintDeclaration:
    """The declaration that ``constraints_of`` reads as this constraint: key, fd or deny.

    The first of these forms that can express it.
    """
    name, soft = constraint.name, _softness(constraint)
    attributes, rule = key_attributes(constraint), functional_dependency(constraint)
    if attributes is not None:
        return ConstraintDeclaration(name=name, key=list(attributes), soft=soft)
    if rule is not None and rule[0]:
        return ConstraintDeclaration(name=name, fd=format_dependency(rule[0], [rule[1]]), soft=soft)
    return ConstraintDeclaration(name=name, deny=format_denial(constraint), soft=soft)


def _softness(constraint: DenialConstraint) -> bool | KnownSoftness:
    known = constraint.known
    if known is None:
        return not constraint.hard
    return KnownSoftness(weight=known.weight, rate=known.rate, provenance=known.provenance)


def _with_known(
    constraint: DenialConstraint, declaration: ConstraintDeclaration
) -> DenialConstraint:
    soft = declaration.soft
    if isinstance(soft, bool):
        return constraint
    return replace(constraint, known=KnownFigure(soft.weight, soft.rate, soft.provenance))


def _constraints(
    declaration: ConstraintDeclaration, place: int, folder: Path, nullable: Collection[str] | None
) -> tuple[DenialConstraint, ...]:
    name, hard = declaration.name or f"constraint_{place}", not declaration.soft
    if declaration.fd is not None:
        return _dependencies(declaration.fd, name, hard)
    if declaration.deny is not None:
        return (parse_denial(declaration.deny, name, hard),)
    if declaration.check is not None:
        if nullable is None:
            raise TypeError("a check is read with the names of the attributes that may be missing")
        return parse_check(declaration.check, name, nullable, hard)
    if declaration.key is not None:
        return (key(name, declaration.key, hard),)
    path = folder / str(declaration.file)
    return read_holoclean(path, declaration.name or path.stem, hard)


def _dependencies(text: str, name: str, hard: bool) -> tuple[DenialConstraint, ...]:
    left, right = parse_dependency(text, name)
    if len(right) == 1:
        return (dependency(name, left, right[0], hard),)
    return tuple(
        dependency(f"{name}_{place}", left, attribute, hard)
        for place, attribute in enumerate(right, 1)
    )


def _require_unique(names: list[str]) -> None:
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ConstraintError(
            f"constraint '{twice[0]}': two constraints have this name; rename one"
        )


def _require_known(
    constraint: DenialConstraint, attribute_names: Collection[str], ignored: Collection[str]
) -> None:
    for attribute in constraint.attributes:
        if attribute in ignored:
            raise ConstraintError(
                f"constraint '{constraint.name}': '{attribute}' is left out by ignore; declare it "
                "under attributes"
            )
        if attribute not in attribute_names:
            close = difflib.get_close_matches(attribute, attribute_names, n=1)
            hint = (
                f"did you mean '{close[0]}'?"
                if close
                else "declare it under attributes or correct the name"
            )
            raise ConstraintError(
                f"constraint '{constraint.name}': no attribute '{attribute}'; {hint}"
            )
