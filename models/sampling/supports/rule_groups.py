"""What hard constraints have to do with each other: which share attributes, and how."""

from __future__ import annotations

from collections.abc import Sequence

from cloister.constraints import DenialConstraint, functional_dependency, key_attributes
from cloister.constraints.denial import Cell, Op
from cloister.schema.domain import Domain


def differing_attributes(constraint: DenialConstraint) -> list[str]:
    """The attributes in which two rows must differ to violate a rule: with one value, none do."""
    return [
        p.left.attribute
        for p in constraint.predicates
        if isinstance(p.right, Cell)
        and p.left.row != p.right.row
        and p.left.attribute == p.right.attribute
        and p.op in (Op.LT, Op.GT, Op.NE)
    ]


def connected(constraints: Sequence[DenialConstraint]) -> list[list[DenialConstraint]]:
    """The constraints in groups that share no attribute."""
    groups: list[tuple[set[str], list[DenialConstraint]]] = []
    for constraint in constraints:
        names, members = set(constraint.attributes), [constraint]
        apart = []
        for group in groups:
            if names.isdisjoint(group[0]):
                apart.append(group)
            else:
                names, members = names | group[0], [*group[1], *members]
        groups = [*apart, (names, members)]
    return [members for _, members in groups]


def shared_numerics(domain: Domain, constraints: Sequence[DenialConstraint]) -> frozenset[str]:
    """Numeric attributes in several rules on pairs: one value a level, so that all rules hold.

    Functional dependencies alone need none: they choose the same value of a level, and their left
    sides whole levels. Keys never do.
    """
    pairs = [c for c in constraints if c.arity == 2 and key_attributes(c) is None]
    uses = [name for c in pairs for name in _narrowed_by(c) if domain[name].kind == "numeric"]
    ordered = {name for c in pairs if functional_dependency(c) is None for name in c.attributes}
    return frozenset(name for name in uses if uses.count(name) > 1 and name in ordered)


def determined_alone(constraints: Sequence[DenialConstraint]) -> frozenset[str]:
    """Right sides of one functional dependency, in no other rule but as left sides.

    Any value of its level may be chosen for each left side.
    """
    bound = [name for c in constraints for name in _narrowed_by(c)]
    return frozenset(
        own[1]
        for c in constraints
        if (own := functional_dependency(c)) is not None and bound.count(own[1]) == 1
    )


def _narrowed_by(constraint: DenialConstraint) -> tuple[str, ...]:
    """The attributes whose values a rule on pairs may narrow inside their levels."""
    dependency = functional_dependency(constraint)
    return constraint.attributes if dependency is None else (dependency[1],)
